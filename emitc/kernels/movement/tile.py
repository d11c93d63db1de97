"""Tile and Expand of ONNX, TILE and BROADCAST_TO of TFLite: a tensor repeated along its dimensions.

Tile    x [d...], y [d * repeats...].
Expand  x broadcast to y: dimensions of size 1, and those that x lacks in front, are repeated.
Types   any; scale and zero point must not change.

SHAPE, ZEROS_LIKE, FILL and BROADCAST_ARGS: values that are known while compiling, since every shape is.

SHAPE           y [rank], int32 or int64: the sizes of x's dimensions; x itself is not read.
ZEROS_LIKE      y: zeros in the shape of x; int8, int32, int64 and float32.
FILL            dims [rank] and a value of one element, both constants; y [dims]: the value everywhere; int16 and bool too. A
                computed value is broadcast by Expand.
BROADCAST_ARGS  two shapes, both constants; y: the shape that tensors of these broadcast to.
Source  the schema's operators; measured in TFLite Micro.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes, unsupported
from emitc.kernels.shared import byte_moves
from emitc.kernels.shared.broadcast import common_shape
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer, integers
from emitc.numerics.requantize import Int64
from emitc.records import dataclass
from emitc.source import MAX_RANK, MAX_TENSOR_BYTES, SourceNode


@dataclass(frozen=True, slots=True)
class Repeat(Op):
    """shape: of the input, with dimensions of size 1 in front up to the output's rank. repeats: of each dimension."""

    shape: Shape
    repeats: tuple[int, ...]


class Tile(Repeat):
    """The whole tensor repeated."""


class Expand(Repeat):
    """Dimensions of size 1 repeated."""


def _tile_from_onnx(node: SourceNode) -> Parsed:
    """`repeats` [rank]; version 1 has a number of tiles and an axis instead."""
    node.counts((2, 3))
    shape = node.input(0).shape
    repeats = node.constant_integers(1, "repeats")
    if len(node.inputs) == 3:
        axes = node.constant_integers(2, "axis")
        fits = len(repeats) == len(axes) == 1 and 0 <= axes[0] < len(shape)
        repeats = tuple(repeats[0] if i == axes[0] else 1 for i in range(len(shape))) if fits else ()
    return _tiled(node, repeats, "repeats")


def _tiled(node: SourceNode, repeats: tuple[int, ...], name: str) -> Parsed:
    """name: of the repeats, in messages."""
    shape = node.input(0).shape
    if len(repeats) != len(shape) or min(repeats, default=1) < 0:
        raise node.refusal(f"has the {name} {list(repeats)}", f"one for each of {len(shape)} dimensions is expected")
    return Parsed(Tile(shape, repeats))


def _expand_from_onnx(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    shape = node.input(0).shape
    wanted = node.constant_integers(1, "shape")
    rank = max(len(shape), len(wanted))
    shape, wanted = ((1,) * (rank - len(dims)) + tuple(dims) for dims in (shape, wanted))
    if rank > MAX_RANK or any(w < 0 or (d != w and 1 not in (d, w)) for d, w in zip(shape, wanted, strict=True)):
        what = f"of {list(node.input(0).shape)} to {list(wanted)}"
        raise node.refusal(what, "dimensions must be equal, or one of them 1")
    return Parsed(_expanded(shape, wanted))


def _expanded(shape: Shape, wanted: Shape) -> Expand:
    return Expand(shape, tuple(w if d == 1 else 1 for d, w in zip(shape, wanted, strict=True)))


def _walk(bound: BoundNode) -> byte_moves.StridedLoop:
    """Forward through the output, seen as [repeats, d] for each dimension."""
    op, width = bound.op(Repeat), bound.input(0).dtype.bytes
    counts = tuple(n for pair in zip(op.repeats, op.shape, strict=True) for n in pair)
    x_steps = [n for step in byte_moves.strides(op.shape, width) for n in (0, step)]
    return byte_moves.walk(counts, x_steps, byte_moves.strides(counts, width), width)


def _positions(bound: BoundNode) -> tuple[Int64, ...]:
    op = bound.op(Repeat)
    return tuple(np.arange(n * d) % max(d, 1) for n, d in zip(op.repeats, op.shape, strict=True))


def _check(bound: BoundNode) -> None:
    byte_moves.require_same_values(bound, bound.input(0), bound.output)
    op = bound.op(Repeat)
    if 0 in op.repeats or 0 in op.shape:
        raise unsupported(bound, "to nothing is not supported", "a dimension is 0", "remove the operator")
    if len(_walk(bound).loops) > byte_moves.MAX_LOOPS:
        byte_moves.require_pickable(bound, op.shape, _positions(bound))


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op = bound.op(Repeat)
    return (tuple(n * d for n, d in zip(op.repeats, op.shape, strict=True)),)


def _lower(bound: BoundNode) -> Layer:
    """A walk that goes through the input again and again; by tables where it needs too many loops."""
    strided = _walk(bound)
    if len(strided.loops) <= byte_moves.MAX_LOOPS:
        return byte_moves.move_layer(bound, strided)
    return byte_moves.pick_layer(bound, bound.op(Repeat).shape, _positions(bound))


def _transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op | None:
    """Each dimension's repeats where the dimension was; None where the rank changes."""
    op = bound.op(Repeat)
    if len(op.shape) != len(permutation):
        return None
    order = np.argsort(permutation)
    return type(op)(tuple(op.shape[i] for i in order), tuple(op.repeats[i] for i in order), numerics=op.numerics)


def _tile_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    return _tiled(node, node.constant_integers(1, "multiples"), "multiples")


def _broadcast_to_from_tflite(node: SourceNode) -> Parsed:
    """Unlike Expand, no dimension of the input may be larger than the one asked for."""
    node.counts((2, 2))
    shape, wanted = node.input(0).shape, node.constant_integers(1, "shape")
    padded = (1,) * (len(wanted) - len(shape)) + shape
    if (
        len(wanted) > MAX_RANK
        or len(padded) != len(wanted)
        or any(d not in (1, w) or w < 1 for d, w in zip(padded, wanted, strict=True))
    ):
        why = "each dimension must be equal to the one asked for, or 1"
        raise node.refusal(f"of {list(shape)} to {list(wanted)}", why)
    return Parsed(_expanded(padded, wanted))


_kernel = partial(
    KernelDef,
    check=_check,
    reference=lambda bound, inputs: (
        byte_moves.picked(operand(bound, inputs, 0).reshape(bound.op(Repeat).shape), _positions(bound)),
    ),
    lower=_lower,
    output_shapes=_output_shapes,
    transposed=_transposed,
    moves=True,
)


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


def _check_known(bound: BoundNode) -> None:
    op = bound.op(KnownValue)
    taken = _FILLED if isinstance(op, Fill) else _NUMBERS
    require_dtypes(bound, [(t,) for t in (_INDICES if isinstance(op, ShapeOf | BroadcastArgs) else taken)])


def _known_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op = bound.op(KnownValue)
    values = np.array(op.values, bound.output.dtype.value)
    return (values.reshape(op.shape) if values.size == math.prod(op.shape) else np.full(op.shape, values[0]),)


def _lower_known(bound: BoundNode) -> Layer:
    """A copy of a table, where constants are not folded."""
    table = byte_moves.values_table("x", _known_reference(bound, ())[0], "the value")
    params = integers(x_start=(0, "bytes"), run_bytes=bound.output.size_bytes)
    return Layer("movement/copy_run", "portable", (), (table,), params)


_known = partial(
    KernelDef,
    check=_check_known,
    reference=_known_reference,
    lower=_lower_known,
    output_shapes=lambda bound: (bound.op(KnownValue).shape,),
)


KERNELS = (
    _kernel(
        Tile,
        "a tensor repeated along its dimensions",
        tflite={"TILE": _tile_from_tflite},
        onnx={"Tile": _tile_from_onnx},
    ),
    _kernel(
        Expand,
        "a tensor broadcast to a shape",
        tflite={"BROADCAST_TO": _broadcast_to_from_tflite},
        onnx={"Expand": _expand_from_onnx},
    ),
    _known(ShapeOf, "sizes of dimensions, known while compiling", _INDICES, tflite={"SHAPE": _shape_of}),
    _known(ZerosLike, "zeros, known while compiling", _NUMBERS, tflite={"ZEROS_LIKE": _zeros_like}),
    _known(Fill, "one value everywhere, known while compiling", _FILLED, tflite={"FILL": _fill}),
    _known(
        BroadcastArgs, "the shape that two shapes broadcast to", _INDICES, tflite={"BROADCAST_ARGS": _broadcast_args}
    ),
)
