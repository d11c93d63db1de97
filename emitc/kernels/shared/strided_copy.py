"""Moves of bytes from one tensor to another: what PAD, SLICE, TRANSPOSE and their like share, for every element type.

A StridedLoop is a nest of loops around one copy of a contiguous run. Dimensions that lie next to each other in both tensors are
merged, so that most moves need no loop or one. Everything is in bytes; steps may be negative on the reading side.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Shape, Tensor
from emitc.kernels.contract import illegal, require_same_quantization, unsupported
from emitc.layer import ElementwiseOrder, Inside, Layer, Overlap, Param, Table, integers

MAX_LOOPS = 6
"""Loops of the kernel `strided_copy`."""


@dataclass(frozen=True, slots=True)
class Loop:
    """count passes; after each, the reading side advances by x_step bytes and the writing side by y_step."""

    count: int
    x_step: int
    y_step: int


@dataclass(frozen=True, slots=True)
class StridedLoop:
    """Runs of run_bytes from x_start + i * x_step to y_start + i * y_step; loops are innermost first."""

    run_bytes: int
    loops: tuple[Loop, ...]
    x_start: int = 0
    y_start: int = 0


def strides(shape: Shape, element_bytes: int) -> tuple[int, ...]:
    """Bytes from one element to the next along each dimension of a row-major tensor.

    >>> strides((2, 3, 4), 1)
    (12, 4, 1)
    """
    return tuple(element_bytes * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def walk(
    shape: Shape, x_steps: Sequence[int], y_steps: Sequence[int], element_bytes: int, x_start: int = 0, y_start: int = 0
) -> StridedLoop:
    """The shortest nest that moves `shape` elements, which lie x_steps[i] and y_steps[i] bytes from each other along dimension
    i.

    >>> walk((2, 3, 4), (12, 4, 1), (24, 4, 1), 1)
    StridedLoop(run_bytes=12, loops=(Loop(count=2, x_step=12, y_step=24),), x_start=0, y_start=0)
    """
    run = element_bytes
    loops: list[Loop] = []
    for count, x_step, y_step in reversed(list(zip(shape, x_steps, y_steps, strict=True))):
        if count == 1:
            continue
        inner = loops[-1] if loops else None
        if inner is None and x_step == y_step == run:
            run *= count
        elif inner and (x_step, y_step) == (inner.count * inner.x_step, inner.count * inner.y_step):
            loops[-1] = Loop(inner.count * count, inner.x_step, inner.y_step)
        else:
            loops.append(Loop(count, x_step, y_step))
    return StridedLoop(run, tuple(loops), x_start, y_start)


def require_same_type(bound: BoundNode) -> None:
    """Refuses operands and outputs whose element type, scale or zero point differ: a move changes no value.

    Integers of ONNX are moved as they are, whatever they stand for; between float32 values that were quantized, the scales
    count.
    """
    first = bound.input(0)
    tensors = (*(t for t in bound.inputs[1:] if t is not None), *bound.outputs)
    if bound.node.op.numerics is not Numerics.TFLITE:
        require_same_values(bound, first, *tensors)
        return
    for tensor in tensors:
        if tensor.dtype is not first.dtype:
            why = f"{first.dtype.value} and {tensor.dtype.value}, but the operator copies values"
            raise illegal(bound, "changes the element type", why, tensor=tensor)
        if first.quantization and tensor.quantization:
            require_same_quantization(bound, first, tensor)


def require_same_values(bound: BoundNode, first: Tensor, *others: Tensor) -> None:
    """`require_same_type` for a model from ONNX: what differs there is legal, but has no code."""
    for tensor in others:
        quantizations = (first.quantization, tensor.quantization)
        if tensor.dtype is first.dtype and (
            bound.node.op.numerics is Numerics.QOPERATOR or quantizations[0] == quantizations[1]
        ):
            continue
        what = "from one quantization to another is not supported"
        why = f"the operator moves values: {first.describe()} and {tensor.describe()}"
        raise unsupported(bound, what, why, "quantize both alike", tensor)


def require_depth(bound: BoundNode, loop: StridedLoop) -> None:
    if len(loop.loops) > MAX_LOOPS:
        why = f"the kernel has {MAX_LOOPS}; neighbouring dimensions that move together count as one"
        hint = "move fewer dimensions at once, for example by two operators"
        raise unsupported(bound, f"needs {len(loop.loops)} nested loops", why, hint, bound.input(0))


def values_table(role: str, values: Array, comment: str) -> Table:
    """A constant as a table for a kernel on bytes. Floats that have no decimal (infinities, NaN) go by their bits."""
    flat = np.ascontiguousarray(values).reshape(-1)
    dtype = DType(flat.dtype.name)
    if dtype is DType.FLOAT32 and not np.isfinite(flat.astype(np.float32)).all():
        return Table(role, "int32_t", tuple(flat.view(np.int32).tolist()), f"{comment}, float32 by its bits")
    if dtype is DType.FLOAT64 and not np.isfinite(flat.astype(np.float64)).all():
        return Table(role, "int64_t", tuple(flat.view(np.int64).tolist()), f"{comment}, float64 by its bits")
    if dtype is DType.BOOL:
        flat = flat.astype(np.uint8)
    return Table(role, dtype.c_type, tuple(flat.tolist()), comment)


def data_operands(tensor: Tensor, position: int = 0, comment: str = "") -> tuple[tuple[int, ...], tuple[Table, ...]]:
    """Layer.operands and Layer.tables for an input: passed as `x`, or the table `x` when it is a constant."""
    if not tensor.is_constant:
        return (position,), ()
    return (), (values_table("x", tensor.array(), comment or f"constant input {list(tensor.shape)}"),)


def move_layer(bound: BoundNode, strided: StridedLoop, fill: Table | None = None) -> Layer:
    """The layer of a walk: one memmove where no loop is left, else nested loops.

    fill: table `padding_byte` or `padding`, a byte or an element that is written everywhere in the output first, for what
    the walk leaves out. y may share memory with x where it is one memmove, and start up to x_start bytes above it.
    """
    operands, tables = data_operands(bound.input(0))
    if not strided.loops and fill is None:
        return Layer(
            "movement/copy_run",
            operands=operands,
            tables=tables,
            params=integers(x_start=(strided.x_start, "bytes"), run_bytes=strided.run_bytes),
            overlaps=(Overlap(0, 0, ElementwiseOrder(strided.run_bytes, first=strided.x_start)),) if operands else (),
            inside=(Inside(output=True, position=0, offset_bytes=strided.x_start),) if operands else (),
        )
    params = [Param("run_bytes", "int32_t", strided.run_bytes, "copied at a time")]
    if strided.x_start:
        params.append(Param("x_start", "int32_t", strided.x_start, "bytes before the first run in x"))
    if strided.y_start:
        params.append(Param("y_start", "int32_t", strided.y_start, "bytes before the first run in y"))
    for level, loop in enumerate(strided.loops):
        params += [
            Param(f"count_{level}", "int32_t", loop.count, "innermost loop" if level == 0 else ""),
            Param(f"x_step_{level}", "int32_t", loop.x_step),
            Param(f"y_step_{level}", "int32_t", loop.y_step),
        ]
    return Layer("movement/strided_copy", "portable", operands, tables + ((fill,) if fill else ()), tuple(params))
