"""The custom operator `ethos-u` of TFLite files that vela has compiled: a command stream for Arm's Ethos-U.

Shapes  any inputs and outputs, as the file states them; an open dimension is 1.   Types  integers.
Operands  the driver's payload (format COP1) and the constants as vela packs them, then the real inputs. Each tensor lies at an
offset of the scratch memory when the NPU reads or writes it.
Source  the host model of the NPU executes the commands: it is the numpy reference of this operator, and its only one.
Errors  tensors that reach over the end of the scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape, Tensor
from emitc.kernels.contract import (
    Expression,
    KernelDef,
    Layer,
    LibraryCall,
    Parsed,
    Pin,
    Scratch,
    Table,
    illegal,
    require_dtypes,
)

PAYLOAD, CONSTANTS, FIRST_INPUT = 0, 1, 2
"""Positions of the operands."""
ALIGNMENT = 16
"""Bytes to which the driver needs payload and regions aligned."""
SCRATCH_REGION, FAST_REGION = 1, 2
"""The scratch memories among the driver's base addresses."""
_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)
_MAGIC = b"COP1"


@dataclass(frozen=True, slots=True)
class NpuCommand(Op):
    """fast_bytes: of the fast scratch memory, 0 where the scratch memory serves. Offsets are those of inputs and outputs in the
    scratch memory.
    """

    scratch_bytes: int
    fast_bytes: int
    input_offsets: tuple[int, ...]
    output_offsets: tuple[int, ...]


def _op(bound: BoundNode) -> NpuCommand:
    assert isinstance(bound.node.op, NpuCommand)
    return bound.node.op


def _from_tflite(node: SourceNode) -> Parsed:
    offsets = {name: node.attribute(name) for name in ("input_offsets", "output_offsets")}
    inputs, outputs = (tuple(int(v) for v in value) for value in offsets.values() if isinstance(value, tuple))
    op = NpuCommand(node.integer("scratch_bytes"), node.integer("fast_bytes"), inputs, outputs)
    return Parsed(op, tuple(range(len(node.inputs))))


def real_inputs(bound: BoundNode) -> tuple[Tensor, ...]:
    """The inputs that the NPU computes with."""
    return tuple(bound.input(i) for i in range(FIRST_INPUT, len(bound.inputs)))


def check(bound: BoundNode) -> None:
    """Refuses a payload of another format, other types than integers, and tensors outside the scratch memory."""
    op = _op(bound)
    payload, constants = bound.input(PAYLOAD), bound.optional(CONSTANTS)
    assert payload.data is not None
    if payload.data[:4] != _MAGIC or len(payload.data) % 4:
        raise illegal(
            bound,
            "an NPU operator has no driver payload",
            f"{len(payload.data)} bytes, first {payload.data[:4]!r}; COP1 and whole words are expected",
            "compile the model again with vela, for the Ethos-U55 or U65",
            payload,
        )
    assert constants is None or constants.data is not None
    for tensor in (*real_inputs(bound), *bound.outputs):
        if tensor.dtype not in _INTEGERS:
            require_dtypes(bound, ())
    placed = (*zip(op.input_offsets, real_inputs(bound), strict=True), *_placed_outputs(bound))
    for offset, tensor in placed:
        size = int(np.prod([abs(d) for d in tensor.shape])) * tensor.dtype.bytes
        if offset + size > op.scratch_bytes:
            raise illegal(
                bound,
                "a tensor of an NPU operator lies outside the scratch memory",
                f"bytes {offset} to {offset + size} of {op.scratch_bytes}",
                "compile the model again with vela",
                tensor,
            )


def _placed_outputs(bound: BoundNode) -> tuple[tuple[int, Tensor], ...]:
    return tuple(zip(_op(bound).output_offsets, bound.outputs, strict=True))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """As the file states them."""
    return tuple(tuple(max(1, d) for d in tensor.shape) for tensor in bound.outputs)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """What the host model of the NPU writes."""
    # Imported here: the host model is loaded only where it runs.
    from emitc.host.ethosu.host_model import HostModel

    op = _op(bound)
    payload, constants = inputs[PAYLOAD], inputs[CONSTANTS]
    assert payload is not None
    scratch = np.zeros(op.scratch_bytes, np.uint8)
    fast = np.zeros(op.fast_bytes, np.uint8) if op.fast_bytes else scratch
    written = []
    for offset, value in zip(op.input_offsets, inputs[FIRST_INPUT:], strict=True):
        assert value is not None
        data = np.frombuffer(value.tobytes(), np.uint8)
        scratch[offset : offset + data.size] = data
        written.append((offset, offset + data.size))
    regions = (b"" if constants is None else constants.tobytes(), scratch, fast)
    HostModel().invoke(payload.tobytes(), regions, initialised={SCRATCH_REGION: written})
    return tuple(
        scratch[offset : offset + tensor.size_bytes].copy().view(tensor.dtype.value).reshape(tensor.shape)
        for offset, tensor in _placed_outputs(bound)
    )


def layer(bound: BoundNode, scratch_bytes: int, *, pin_inputs: bool, pin_outputs: bool) -> Layer:
    """The driver's call. scratch_bytes: what the stream needs of them. What is not pinned in the scratch memory is copied there
    before the call, or from there behind it.
    """
    op = _op(bound)
    payload, constants = bound.input(PAYLOAD), bound.optional(CONSTANTS)
    tables = [_table("payload", payload, "commands, as vela has compiled them")]
    regions = [(Expression("NULL"), 0)]
    if constants is not None:
        tables.append(_table("constants", constants, "weights, scales and tables, as vela packs them"))
        regions = [(Expression(table="constants"), constants.size_bytes)]
    scratch = [Scratch("npu_scratch", -(-scratch_bytes // ALIGNMENT) * ALIGNMENT)]
    regions.append((Expression("npu_scratch"), scratch_bytes))
    if op.fast_bytes:
        scratch.append(Scratch("npu_fast", -(-op.fast_bytes // ALIGNMENT) * ALIGNMENT))
        regions.append((Expression("npu_fast"), op.fast_bytes))
    else:
        regions.append(regions[-1])
    arguments = tuple(part for place, size in regions for part in (place, Expression(f"{size}u")))
    unused: list[str] = []
    pins: list[Pin] = []
    copies: list[tuple[str, int, str, int]] = []
    for i, (offset, tensor) in enumerate(zip(op.input_offsets, real_inputs(bound), strict=True)):
        if pin_inputs:
            pins.append(Pin(False, i, "npu_scratch", offset))
            unused.append(f"x{i}")
        else:
            copies.append(("npu_scratch", offset, f"x{i}", tensor.size_bytes))
    for i, (offset, tensor) in enumerate(_placed_outputs(bound)):
        if pin_outputs:
            pins.append(Pin(True, i, "npu_scratch", offset))
            unused.append(f"y{i}")
        else:
            copies.append((f"y{i}", offset, "npu_scratch", tensor.size_bytes))
    call = LibraryCall("emitc_npu_invoke", arguments, copies=tuple(copies), unused=tuple(unused))
    operands = tuple(range(FIRST_INPUT, len(bound.inputs)))
    return Layer(
        "ethos_u/invoke", "ethos-u", operands, tuple(tables), scratch=tuple(scratch), fallible=True, call=call,
        pins=tuple(pins),
    )  # fmt: skip


def _table(role: str, tensor: Tensor, comment: str) -> Table:
    assert tensor.data is not None
    return Table(role, "uint8_t", tuple(tensor.data), comment, ALIGNMENT)


def lower(bound: BoundNode) -> Layer:
    """With copies: where tensors may be pinned, the backend decides."""
    return layer(bound, _op(bound).scratch_bytes, pin_inputs=False, pin_outputs=False)


KERNELS = (
    KernelDef(
        NpuCommand,
        "a command stream for Arm's Ethos-U, in a file that vela has compiled",
        _INTEGERS,
        ("CUSTOM:ethos-u",),
        _from_tflite,
        check,
        output_shapes,
        reference,
        lower,
        # A stream on constants is never run while compiling: a few words of it can ask for hours.
        work=lambda bound: 1 << 62,
    ),
)
