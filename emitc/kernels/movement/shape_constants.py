"""SHAPE, ZEROS_LIKE, FILL and BROADCAST_ARGS: values that are known while compiling, since every shape is.

SHAPE           y [rank], int32 or int64: the sizes of x's dimensions; x itself is not read.
ZEROS_LIKE      y: zeros in the shape of x; int8, int32, int64 and float32.
FILL            dims [rank] and a value of one element, both constants; y [dims]: the value everywhere; int16 and bool too. A
                computed value is broadcast (tile.py).
BROADCAST_ARGS  two shapes, both constants; y: the shape that tensors of these broadcast to.
Source  the schema's operators; measured in TFLite Micro.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes
from emitc.kernels.movement.tile import Expand
from emitc.kernels.shared.broadcast import common_shape
from emitc.kernels.shared.strided_copy import values_table
from emitc.layer import Layer, integers
from emitc.source import MAX_RANK, MAX_TENSOR_BYTES, SourceNode

_INDICES = (DType.INT32, DType.INT64)
_NUMBERS = (DType.INT8, *_INDICES, DType.FLOAT32)
_FILLED = (*_NUMBERS, DType.INT16, DType.BOOL)


@dataclass(frozen=True, slots=True)
class KnownValue(Op):
    """shape: of the output. values: its elements in order, or one that all of them have."""

    shape: Shape
    values: tuple[int | float, ...]


class ShapeOf(KnownValue):
    """Sizes of dimensions."""


class ZerosLike(KnownValue):
    """Zeros."""


class Fill(KnownValue):
    """One value."""


class BroadcastArgs(KnownValue):
    """A shape that two shapes broadcast to."""


def _shape_of(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    shape = node.input(0).shape
    return Parsed(ShapeOf((len(shape),), shape), operands=())


def _zeros_like(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    return Parsed(ZerosLike(node.input(0).shape, (0,)), operands=())


def _fill(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    shape, value = node.constant_integers(0, "shape"), node.input(1)
    if len(shape) > MAX_RANK or min(shape, default=1) < 1 or math.prod(shape) > MAX_TENSOR_BYTES or value.elements != 1:
        why = f"at most {MAX_RANK} dimensions over 0, and one value, are expected"
        raise node.refusal(f"makes {list(shape)} of {value.elements} values", why)
    if value.data is None:
        return Parsed(Expand((1,) * len(shape), shape), operands=(1,))
    return Parsed(Fill(shape, (node.value(1, "value").reshape(-1)[0].item(),)), operands=())


def _broadcast_args(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    shapes = [node.constant_integers(position, "shape") for position in (0, 1)]
    common = common_shape(shapes)
    if common is None or any(size < 0 for shape in shapes for size in shape):
        raise node.refusal(f"of {list(shapes[0])} and {list(shapes[1])}", "dimensions must be equal, or one of them 1")
    return Parsed(BroadcastArgs((len(common),), common), operands=())


def _check(bound: BoundNode) -> None:
    op = bound.op(KnownValue)
    taken = _FILLED if isinstance(op, Fill) else _NUMBERS
    require_dtypes(bound, [(t,) for t in (_INDICES if isinstance(op, ShapeOf | BroadcastArgs) else taken)])


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    return (bound.op(KnownValue).shape,)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op = bound.op(KnownValue)
    values = np.array(op.values, bound.output.dtype.value)
    return (values.reshape(op.shape) if values.size == math.prod(op.shape) else np.full(op.shape, values[0]),)


def _lower(bound: BoundNode) -> Layer:
    """A copy of a table, where constants are not folded."""
    table = values_table("x", _reference(bound, ())[0], "the value")
    params = integers(x_start=(0, "bytes"), run_bytes=bound.output.size_bytes)
    return Layer("movement/copy_run", "portable", (), (table,), params)


_kernel = partial(KernelDef, check=_check, reference=_reference, lower=_lower, output_shapes=_output_shapes)
KERNELS = (
    _kernel(ShapeOf, "sizes of dimensions, known while compiling", _INDICES, tflite={"SHAPE": _shape_of}),
    _kernel(ZerosLike, "zeros, known while compiling", _NUMBERS, tflite={"ZEROS_LIKE": _zeros_like}),
    _kernel(Fill, "one value everywhere, known while compiling", _FILLED, tflite={"FILL": _fill}),
    _kernel(
        BroadcastArgs, "the shape that two shapes broadcast to", _INDICES, tflite={"BROADCAST_ARGS": _broadcast_args}
    ),
)
