"""TFLite files that vela has compiled: what its NPU operators say outside of the schema becomes attributes of theirs.

vela writes each part of the network that the NPU runs as a custom operator `ethos-u`. Its inputs are the driver's payload, the
constants, the scratch memory, the fast scratch memory, then the real inputs. Both scratch memories are the same tensor, unless
the memory mode is Dedicated_Sram. Where each tensor lies in the scratch memory stands in the metadata OfflineMemoryAllocation:
version, subgraph, count, then an int32 for each tensor, -1 for those that are not in it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import tflite

from emitc.errors import EmitcError, Where
from emitc.frontends.tflite.flatbuffer import Budget, Damaged, opened, root_position
from emitc.records import dataclass, replace
from emitc.source import SourceModel, SourceNode, SourceTensor

if TYPE_CHECKING:
    from emitc.ethosu.simulator import Allowance, Effects
    from emitc.frontends.tflite.npu_memory import SharedMemory

OPERATOR = "CUSTOM:ethos-u"
_METADATA = b"OfflineMemoryAllocation"
_MAGIC = b"COP1"
_PAYLOAD, _CONSTANTS, _SCRATCH, _FAST, _FIRST_INPUT = range(5)
_MAX_METADATA = 256
_MAX_SCRATCH_BYTES = 1 << 26
_HEADER_WORDS = 3
_AGAIN = "compile the model again with vela"


def with_npu_operands(model: SourceModel, data: bytes) -> SourceModel:
    """The model whose NPU operators have payload, constants and real inputs as inputs, and the rest as attributes.

    scratch_bytes; fast_bytes (0 where the scratch serves, or the stream uses none); touched_bytes of the scratch;
    input_offsets, output_offsets: in the scratch; places: index and offset of every tensor of the file that lies there,
    in turn. shared: whether the last output is the content of the scratch, as several operators have it; follows:
    whether the first real input is that of the one before. carried, writes: first byte and the byte after the last, in
    turn, of what is needed of that content, and of what the stream writes. data: the file. Models without an NPU
    operator come back as they are. Raises EmitcError where the file contradicts itself.
    """
    if all(node.op_type != OPERATOR for node in model.nodes):
        return model
    # Imported here and below: it reads command streams, which most models do not have.
    from emitc.ethosu.simulator import Allowance
    from emitc.frontends.tflite.npu_memory import StreamUse, places_of, shared_memory

    offsets, allowance = tensor_offsets(data, len(model.tensors)), Allowance()
    streams = {at: _stream(node, offsets, allowance) for at, node in enumerate(model.nodes) if node.op_type == OPERATOR}
    size = max(stream.scratch_bytes for stream in streams.values())
    places = places_of(model, offsets, frozenset(i for s in streams.values() for i in s.memory), size)
    for at, stream in streams.items():
        for tensor in (*stream.inputs, *model.nodes[at].outputs):
            _require_inside(model.nodes[at], tensor, offsets, stream.scratch_bytes)
    uses = {at: StreamUse(s.inputs, model.nodes[at].outputs, *s.runs) for at, s in streams.items()}
    memory = shared_memory(model, uses, places, size)
    ends = [place + tensor_bytes(memory.tensors[index]) for index, place in memory.places.items()]
    return _rewritten(model, streams, memory, max([*ends, *(stream.touched_bytes for stream in streams.values())]))


@dataclass(frozen=True, slots=True)
class _Stream:
    """An NPU operator as the file has it. memory: indices of the tensors that stand for scratch memories."""

    payload: SourceTensor
    constants: SourceTensor | None
    inputs: tuple[SourceTensor, ...]
    scratch_bytes: int
    fast_bytes: int
    memory: tuple[int, int]
    effects: Effects | None

    @property
    def runs(self) -> tuple[tuple[int, ...], tuple[int, ...]] | tuple[None, None]:
        """What the stream reads before it writes it, and what it writes; None where that is not known."""
        return (None, None) if self.effects is None else (self.effects.reads, self.effects.writes)

    @property
    def touched_bytes(self) -> int:
        """Bytes of the scratch up to the last one that the stream uses; all of them where that is not known."""
        return self.scratch_bytes if self.effects is None else self.effects.end


def _rewritten(model: SourceModel, streams: Mapping[int, _Stream], operands: SharedMemory, size: int) -> SourceModel:
    """The model with the operands that the streams really have. size: bytes of the scratch memory that are used."""
    tensors, nodes = list(operands.tensors), list(operands.nodes)
    places = tuple(part for pair in sorted(operands.places.items()) for part in pair)
    shared, before = len(streams) > 1, None
    for at, stream in streams.items():
        use = operands.uses[at]
        memory = SourceTensor(len(tensors), f"scratch memory after op {at}", "uint8", (size,), None, None)
        tensors += [memory] * shared
        nodes[at] = replace(
            nodes[at],
            inputs=(stream.payload, stream.constants, *(() if before is None else (before,)), *use.inputs),
            outputs=(*use.outputs, memory) if shared else use.outputs,
            attributes={
                "scratch_bytes": size if shared else stream.scratch_bytes,
                "fast_bytes": stream.fast_bytes,
                "touched_bytes": stream.touched_bytes,
                "input_offsets": tuple(operands.places[t.index] for t in use.inputs),
                "output_offsets": tuple(operands.places[t.index] for t in use.outputs),
                "places": places,
                "shared": shared,
                "follows": before is not None,
                "carried": use.carried,
                "writes": use.writes,
            },
        )
        before = memory if shared else None
    return replace(model, tensors=tuple(tensors), nodes=tuple(nodes))


def tensor_bytes(tensor: SourceTensor) -> int:
    """Bytes of a computed tensor, 0 where its type has no fixed size. An open dimension is 1, as vela has it."""
    try:
        return math.prod(abs(d) for d in tensor.shape) * np.dtype(tensor.dtype).itemsize
    except TypeError:
        return 0


def tensor_offsets(data: bytes, tensors: int) -> tuple[int, ...]:
    """The offset of every tensor of the first subgraph, -1 for none."""
    budget = Budget(len(data))
    try:
        model = opened(tflite.Model(), data, root_position(data), budget)
        for index in range(min(model.MetadataLength(), _MAX_METADATA)):
            entry = model.Metadata(index)
            entry = opened(entry, data, entry._tab.Pos, budget)
            if entry.Name() == _METADATA and 0 <= entry.Buffer() < model.BuffersLength():
                buffer = model.Buffers(entry.Buffer())
                buffer = opened(buffer, data, buffer._tab.Pos, budget)
                return _allocation(buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b"", tensors)
    except Damaged as error:
        raise EmitcError("the .tflite file is damaged", Where(), str(error), _AGAIN) from error
    why = f"the metadata {_METADATA.decode()} is missing"
    raise EmitcError("the file does not say where its tensors lie", Where(), why, _AGAIN)


def _allocation(data: bytes, tensors: int) -> tuple[int, ...]:
    """Version, subgraph, count, then an int32 for each tensor of the file, the first subgraph's first."""
    words = struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4])
    places = words[_HEADER_WORDS:]
    if len(words) < _HEADER_WORDS + tensors or words[2] != len(places) or min(places, default=0) < -1:
        why = f"{_METADATA.decode()} has {len(words)} numbers for {tensors} tensors"
        raise EmitcError("the places of the tensors are damaged", Where(), why, _AGAIN)
    return places[:tensors]


def require_scratch(node: SourceNode, scratch: SourceTensor, fast: SourceTensor, offsets: tuple[int, ...]) -> None:
    """Refuses an operator whose scratch memories have values or a wrong size, or do not start the arena."""
    for tensor in (scratch, fast):
        if tensor.dtype not in ("uint8", "int8") or tensor.data or not 0 <= tensor.elements <= _MAX_SCRATCH_BYTES:
            raise node.refusal("has no scratch memory", "bytes without a value are expected", _AGAIN, tensor)
    if offsets[scratch.index] > 0:
        why = f"it lies at byte {offsets[scratch.index]}; vela places it at 0"
        raise node.unsupported("has a scratch memory that does not start the arena", why, _AGAIN, scratch)


def _stream(node: SourceNode, offsets: tuple[int, ...], allowance: Allowance) -> _Stream:
    from emitc.ethosu.simulator import scratch_effects

    node.counts((_FIRST_INPUT, 64), (1, 64))
    payload, constants, scratch, fast = (node.input(i) for i in range(_FIRST_INPUT))
    if not payload.data or len(payload.data) % 4:
        raise node.refusal("has no payload", "its first input is no constant of words", _AGAIN, payload)
    require_scratch(node, scratch, fast, offsets)
    inputs = tuple({(t := node.input(i)).index: t for i in range(_FIRST_INPUT, len(node.inputs))}.values())
    fast_bytes = 0 if fast.index == scratch.index else fast.elements
    effects = None
    if payload.data.startswith(_MAGIC):  # what is no payload the operator refuses
        try:
            effects = scratch_effects(payload.data, scratch.elements, fast_bytes, allowance)
        except EmitcError as error:
            raise error.at(node.where(), f"{error.where.op}: {error.why}") from error
    if effects is not None and effects.carries_fast:
        why = "bytes of the fast scratch memory that it has not written"
        raise node.refusal("reads what is not there", why, _AGAIN)
    if effects is not None and not effects.uses_fast:
        fast_bytes = 0
    memory = scratch.index, fast.index
    kept = constants if constants.data else None
    return _Stream(payload, kept, inputs, scratch.elements, fast_bytes, memory, effects)


def _require_inside(node: SourceNode, tensor: SourceTensor, offsets: tuple[int, ...], scratch_bytes: int) -> None:
    """Refuses a tensor of an NPU operator that does not lie in the scratch memory, and state."""
    if tensor.is_variable:
        why = f"{tensor.describe()} holds its value between runs"
        raise node.unsupported("keeps state", why, "state is not supported")
    first, end = offsets[tensor.index], offsets[tensor.index] + tensor_bytes(tensor)
    if tensor.data is not None or not 0 <= first < end <= scratch_bytes:
        why = f"bytes {first} to {end} of {scratch_bytes}"
        raise node.refusal("has a tensor outside the scratch memory", why, _AGAIN, tensor)
