"""TFLite files that vela has compiled: what its NPU operators say outside of the schema becomes attributes of theirs.

vela writes each part of the network that the NPU runs as a custom operator `ethos-u`. Its inputs are the driver's payload, the
constants, the scratch memory, the fast scratch memory (the same tensor, unless the memory mode is Dedicated_Sram), then
the real inputs. Where each tensor lies in the scratch memory stands in the metadata OfflineMemoryAllocation: version,
subgraph, count, then an int32 for each tensor, -1 for those that are not in it.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import tflite

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.frontends.flatbuffer import Budget, Damaged, opened, root_position
from emitc.frontends.source import SourceModel, SourceNode, SourceTensor

OPERATOR = "CUSTOM:ethos-u"
_METADATA = b"OfflineMemoryAllocation"
_PAYLOAD, _CONSTANTS, _SCRATCH, _FAST, _FIRST_INPUT = range(5)
_MAX_METADATA = 256
_MAX_SCRATCH_BYTES = 1 << 28
_HEADER_WORDS = 3
_AGAIN = "compile the model again with vela"


def with_npu_operands(model: SourceModel, data: bytes) -> SourceModel:
    """The model whose NPU operators have payload, constants and real inputs as inputs, and the rest as attributes.

    scratch_bytes, fast_bytes (0 where the scratch serves), constant_bytes; input_offsets, output_offsets: in the scratch. data:
    the file. Models without an NPU operator come back as they are. Raises EmitcError where the file contradicts itself.
    """
    if all(node.op_type != OPERATOR for node in model.nodes):
        return model
    offsets = tensor_offsets(data, len(model.tensors))
    nodes = tuple(_operands(node, offsets) if node.op_type == OPERATOR else node for node in model.nodes)
    return replace(model, nodes=nodes)


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
    raise EmitcError(
        "the file does not say where its tensors lie", Where(), f"the metadata {_METADATA.decode()} is missing", _AGAIN
    )


def _allocation(data: bytes, tensors: int) -> tuple[int, ...]:
    """Version, subgraph, count, then an int32 for each tensor of the file, the first subgraph's first."""
    words = struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4])
    if (
        len(words) < _HEADER_WORDS + tensors
        or words[2] != len(words) - _HEADER_WORDS
        or min(words[_HEADER_WORDS:], default=0) < -1
    ):
        raise EmitcError(
            "the places of the tensors are damaged",
            Where(),
            f"{_METADATA.decode()} has {len(words)} numbers for {tensors} tensors",
            _AGAIN,
        )
    return words[_HEADER_WORDS : _HEADER_WORDS + tensors]


def _operands(node: SourceNode, offsets: tuple[int, ...]) -> SourceNode:
    node.counts((_FIRST_INPUT + 1, 64), (1, 64))
    payload, constants, scratch, fast = (node.input(i) for i in range(_FIRST_INPUT))
    if not payload.data or len(payload.data) % 4:
        raise node.refusal("an NPU operator has no payload", "its first input is no constant of words", _AGAIN, payload)
    for tensor in (scratch, fast):
        if tensor.dtype not in ("uint8", "int8") or tensor.data or not 0 <= tensor.elements <= _MAX_SCRATCH_BYTES:
            raise node.refusal(
                "an NPU operator has no scratch memory", "bytes without a value are expected", _AGAIN, tensor
            )
    if offsets[scratch.index] > 0:
        raise CannotCompile(
            "the scratch memory does not start the arena",
            node.where(scratch),
            f"it lies at byte {offsets[scratch.index]}; vela places it at 0",
            _AGAIN,
        )
    inputs = tuple(node.input(i) for i in range(_FIRST_INPUT, len(node.inputs)))
    return replace(
        node,
        inputs=(payload, constants if constants.data else None, *inputs),
        attributes={
            "scratch_bytes": scratch.elements,
            "fast_bytes": 0 if fast.index == scratch.index else fast.elements,
            "input_offsets": tuple(_offset(node, t, offsets, scratch.elements) for t in inputs),
            "output_offsets": tuple(_offset(node, t, offsets, scratch.elements) for t in node.outputs),
        },
    )


def _offset(node: SourceNode, tensor: SourceTensor, offsets: tuple[int, ...], scratch_bytes: int) -> int:
    """Where a tensor lies. Its size is the operator's to check, since a dimension may be open here."""
    if tensor.is_variable:
        raise node.unsupported(
            "an NPU operator keeps state",
            f"{tensor.describe()} holds its value between runs",
            "state is not supported",
        )
    offset = offsets[tensor.index]
    if not 0 <= offset < scratch_bytes:
        raise node.refusal(
            "a tensor of an NPU operator lies outside the scratch memory",
            f"byte {offset} of {scratch_bytes}",
            _AGAIN,
            tensor,
        )
    return offset
