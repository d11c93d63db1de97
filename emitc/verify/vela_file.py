"""A TFLite file that vela has compiled: its NPU operators with payload, constants, and where their tensors lie.

vela writes each part of the network that the NPU runs as a custom operator `ethos-u`. Its inputs are the payload, the
constants (region 0), the scratch memory (region 1), the fast scratch memory (region 2), then the real inputs. Both scratch
memories are the same tensor, unless the memory mode is Dedicated_Sram. The metadata entry OfflineMemoryAllocation has an offset
in the scratch memory for every tensor, -1 for those without one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from emitc.errors import EmitcError, Where
from emitc.frontends.tflite.npu import require_scratch, tensor_offsets
from emitc.frontends.tflite.npu_memory import places_of
from emitc.frontends.tflite.reader import read_tflite
from emitc.source import SourceModel, SourceNode, SourceTensor

OPERATOR = "CUSTOM:ethos-u"
_PAYLOAD, _CONSTANTS, _SCRATCH, _FAST, _FIRST_INPUT = range(5)
_AGAIN = "compile the model again with vela"


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of an NPU operator and its first byte in the scratch memory."""

    tensor: SourceTensor
    offset: int

    @property
    def size_bytes(self) -> int:
        return self.tensor.elements * np.dtype(self.tensor.dtype).itemsize


@dataclass(frozen=True, slots=True)
class NpuOperator:
    """One driver call. fast_bytes: size of region 2, None where it is the scratch memory itself."""

    node: SourceNode
    payload: bytes
    constants: bytes
    scratch_bytes: int
    fast_bytes: int | None
    inputs: tuple[Placed, ...]
    outputs: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class VelaFile:
    """The file's operators in order; a SourceNode is one that vela has left on the CPU.

    places: by index of each tensor that lies in the scratch memory, whoever computes it, its first byte there.
    """

    model: SourceModel
    operators: tuple[NpuOperator | SourceNode, ...]
    places: Mapping[int, int]

    @property
    def npu_operators(self) -> tuple[NpuOperator, ...]:
        return tuple(operator for operator in self.operators if isinstance(operator, NpuOperator))

    @property
    def cpu_operators(self) -> tuple[SourceNode, ...]:
        """What the CPU has to run."""
        return tuple(operator for operator in self.operators if isinstance(operator, SourceNode))


def read_vela(data: bytes) -> VelaFile:
    """The NPU operators of a .tflite file.

    Raises EmitcError for a file that is damaged or contradicts itself, and for one that vela has not compiled.
    """
    model = _with_closed_dimensions(read_tflite(data))
    kinds = sorted({node.op_type for node in model.nodes})
    if OPERATOR not in kinds:
        named = ", ".join((*kinds[:8], *(["..."] if len(kinds) > 8 else []))) or "none at all"
        why = f"vela writes what the NPU runs as custom operators ethos-u; here are {named}"
        hint = "compile it first: vela MODEL.tflite --accelerator-config ethos-u55-128; or give MODEL_vela.tflite"
        raise EmitcError("the file has no NPU operator", Where(), why, hint)
    offsets = tensor_offsets(data, len(model.tensors))
    operators = tuple(_operator(node, offsets) if node.op_type == OPERATOR else node for node in model.nodes)
    file = VelaFile(model, operators, {})
    scratch = (name for operator in file.npu_operators for name in operator.node.inputs[_SCRATCH:_FIRST_INPUT])
    memory = frozenset(tensor.index for tensor in scratch if tensor is not None)
    size = max(operator.scratch_bytes for operator in file.npu_operators)
    return replace(file, places=places_of(model, offsets, memory, size))


def _with_closed_dimensions(model: SourceModel) -> SourceModel:
    """The model with every open dimension 1, which is what vela compiles it for."""
    tensors = tuple(replace(tensor, shape=tuple(1 if d < 0 else d for d in tensor.shape)) for tensor in model.tensors)
    nodes = tuple(
        replace(
            node,
            inputs=tuple(None if t is None else tensors[t.index] for t in node.inputs),
            outputs=tuple(tensors[t.index] for t in node.outputs),
        )
        for node in model.nodes
    )
    return replace(model, tensors=tensors, nodes=nodes)


def _operator(node: SourceNode, offsets: tuple[int, ...]) -> NpuOperator:
    node.counts((_FIRST_INPUT, 64), (0, 64))
    payload = node.input(_PAYLOAD)
    if payload.data is None:
        raise node.refusal("has no payload", "its first input is no constant", _AGAIN, payload)
    scratch, fast = node.input(_SCRATCH), node.input(_FAST)
    require_scratch(node, scratch, fast, offsets)
    return NpuOperator(
        node,
        payload.data,
        node.input(_CONSTANTS).data or b"",
        scratch.elements,
        None if fast.index == scratch.index else fast.elements,
        tuple(_placed(node, tensor, offsets, scratch) for tensor in node.inputs[_FIRST_INPUT:]),
        tuple(_placed(node, tensor, offsets, scratch) for tensor in node.outputs),
    )


def _placed(node: SourceNode, tensor: SourceTensor | None, offsets: tuple[int, ...], scratch: SourceTensor) -> Placed:
    if tensor is None or tensor.dtype not in ("int8", "uint8", "int16", "int32"):
        raise node.refusal("has an operand that it cannot have", "integers are expected", _AGAIN, tensor)
    placed = Placed(tensor, offsets[tensor.index])
    if placed.offset < 0 or placed.offset + placed.size_bytes > scratch.elements:
        why = f"bytes {placed.offset} to {placed.offset + placed.size_bytes} of {scratch.elements}"
        raise node.refusal("has a tensor outside the scratch memory", why, _AGAIN, tensor)
    return placed
