"""ARG_MAX and ARG_MIN: the position of the largest or smallest value along one dimension; of equal ones the first, or the last.

Shapes  x of rank 1 to 8, y without the dimension, or with size 1 in its place.
Types   TFLite: int8 in (whatever its scale) or float32, int32 or int64 out. ONNX: also float32, int16, int32 and uint8 in,
        int64 out.
Source  TFLite Micro's kernels for int32 positions; int64 ones as LiteRT's reference kernel writes them. ONNX: its operator
        specification.

CUMSUM: running sums along a dimension, from either end, with or without the element itself.

Shapes  x any of rank 1 or more, y the same.
Types   float32, added one after the other onto a 0. int8: y = y_zero + rq(acc * 2**19), acc = sum(x - x_zero) - x_zero, as ADD_N
        (shared/sums.py).
Source  TFLite Micro's kernel.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes
from emitc.kernels.reduction.mean import require_elements, work
from emitc.kernels.shared.byte_moves import axis_of
from emitc.kernels.shared.pointwise import operand, plain_numerics
from emitc.kernels.shared.sums import check_sum, rescaled, sum_params
from emitc.layer import PLAIN, KernelSpec, Layer, Param, in_step, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class ArgExtremum(Op):
    """axis: the dimension that is searched, not negative. last: of equal values the last counts. keep_dims: it stays."""

    axis: int
    last: bool = False
    keep_dims: bool = False


class ArgMax(ArgExtremum):
    """Position of the largest value."""


class ArgMin(ArgExtremum):
    """Position of the smallest value."""


def _from_tflite(op: type[ArgExtremum], node: SourceNode) -> Parsed:
    node.counts((2, 2))
    axes, rank = node.constant_integers(1, "axis"), len(node.input(0).shape)
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise node.refusal(f"has axis {list(axes)}", f"the input has {rank} dimensions", tensor=node.input(0))
    return Parsed(op(axes[0] % rank))


def _from_onnx(op: type[ArgExtremum], node: SourceNode) -> Parsed:
    node.counts((1, 1))
    axis = axis_of(node, node.integer("axis", 0), len(node.input(0).shape))
    last, keep_dims = node.integer("select_last_index", 0, 0, 1), node.integer("keepdims", 1, 0, 1)
    return Parsed(op(axis, bool(last), bool(keep_dims)))


def transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op | None:
    """The same search along another dimension, where that one keeps its place."""
    op = bound.op(ArgExtremum)
    return replace(op, axis=permutation[op.axis]) if op.keep_dims else None


def check(bound: BoundNode) -> None:
    """Refuses types that the format does not have or that have no code, and an empty dimension."""
    others = (DType.FLOAT32, DType.UINT8, DType.INT16, DType.INT32)
    if bound.op(ArgExtremum).numerics.float_scale:
        require_dtypes(bound, [(dtype, DType.INT64) for dtype in (DType.INT8, *others)], [(DType.INT64, DType.INT64)])
    else:
        positions = (DType.INT32, DType.INT64)
        require_dtypes(
            bound,
            [(dtype, out) for dtype in (DType.INT8, DType.FLOAT32) for out in positions],
            [(dtype, out) for dtype in others for out in positions],
        )
    require_elements(bound)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape without the dimension, or with size 1 in its place."""
    op, shape = bound.op(ArgExtremum), bound.input(0).shape
    return (shape[: op.axis] + ((1,) if op.keep_dims else ()) + shape[op.axis + 1 :],)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The first of the extreme values, or the last. A NaN in the first place is the extreme; another one is none."""
    op, values = bound.op(ArgExtremum), operand(bound, inputs, 0)
    unknown = values != values  # NaN alone is not itself
    with np.errstate(invalid="ignore"):
        extreme = np.fmin if isinstance(op, ArgMin) else np.fmax
        equal = (values == extreme.reduce(values, axis=op.axis, keepdims=True)) & ~np.take(unknown, [0], op.axis)
    positions = np.asarray(np.argmax(np.flip(equal, op.axis) if op.last else equal, axis=op.axis))
    if op.last:
        positions = np.where(equal.any(op.axis), values.shape[op.axis] - 1 - positions, 0)
    return (positions.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """One search per element of the output, along values at a distance of `inner`."""
    op, shape = bound.op(ArgExtremum), bound.input(0).shape
    axis = op.axis
    params = integers(
        outer=math.prod(shape[:axis]),
        depth=(shape[axis], "values to choose from"),
        inner=(math.prod(shape[axis + 1 :]), "distance between them"),
    )
    if bound.input(0).dtype is DType.INT8 and not op.last:
        flip = Param("flip", "int32_t", -isinstance(op, ArgMin), "0: largest, -1: smallest")
        return Layer("reduction/arg_extremum", "portable", (0,), params=(*params, flip), spec=PLAIN)
    smallest, last = "_min" if isinstance(op, ArgMin) else "_max", "_last" if op.last else ""
    x, y = bound.input(0).dtype, bound.output.dtype
    short = "" if y is DType.INT64 else f"_{y.value}"
    spec = KernelSpec(f"{smallest}{last}_{x.value}{short}", fixed_point=False, x=x.c_type, y=y.c_type)
    return Layer("reduction/arg_extremum_typed", "portable", (0,), params=params, spec=spec)


def _kernel(op: type[ArgExtremum], name: str, onnx: str, summary: str) -> KernelDef:
    return KernelDef(
        op,
        summary,
        (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.FLOAT32),
        tflite={name: partial(_from_tflite, op)},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.FLOAT32),
        onnx={onnx: partial(_from_onnx, op)},
        transposed=transposed,
    )


_CUMSUM_TYPES = (DType.INT8, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class CumSum(Op):
    """axis: the dimension, not negative. exclusive: each sum ends before its element. reverse: sums start at the end."""

    axis: int
    exclusive: bool
    reverse: bool


def _cumsum_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    axes, rank = node.constant_integers(1, "axis"), len(node.input(0).shape)
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise node.refusal(f"has the axes {list(axes)}", f"one in [{-rank}, {rank}) is expected", tensor=node.input(1))
    flags = (bool(node.attribute(name, False)) for name in ("exclusive", "reverse"))
    return Parsed(CumSum(axes[0] % rank, *flags, numerics=plain_numerics(node)))


def _check_cumsum(bound: BoundNode) -> None:
    """Refuses other types, and scales out of proportion."""
    require_dtypes(bound, [(t, t) for t in _CUMSUM_TYPES])
    if bound.output.dtype is DType.INT8:
        check_sum(bound)


def _cumsum_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Slice by slice along the dimension."""
    op, y, x = bound.op(CumSum), bound.output, operand(bound, inputs, 0)
    slices = np.moveaxis(x, op.axis, 0)
    if op.reverse:
        slices = slices[::-1]
    total: NDArray[Any]
    if y.dtype is DType.FLOAT32:
        total = np.zeros(slices.shape[1:], np.float32)
    else:
        quantization = bound.input(0)
        slices = slices.astype(np.int64) - quantization.zero_point
        total = np.full(slices.shape[1:], -quantization.zero_point, np.int64)
    sums = np.empty(slices.shape, total.dtype)
    with np.errstate(all="ignore"):
        for i, values in enumerate(slices):
            after = np.asarray(total + values, total.dtype)
            sums[i] = total if op.exclusive else after
            total = after
    placed = np.moveaxis(sums[::-1] if op.reverse else sums, 0, op.axis)
    return (np.ascontiguousarray(placed) if y.dtype is DType.FLOAT32 else rescaled(bound, placed.astype(np.int64)),)


def _lower_cumsum(bound: BoundNode) -> Layer:
    """One run per element of the other dimensions; it walks upwards where the dimension is the last and sums start there."""
    op, shape, dtype = bound.op(CumSum), bound.input(0).shape, bound.output.dtype
    depth, inner = shape[op.axis], math.prod(shape[op.axis + 1 :])
    params: tuple[Param, ...] = (
        Param("outer", "int32_t", math.prod(shape[: op.axis])),
        Param("depth", "int32_t", depth, "elements of a run"),
        Param("inner", "int32_t", inner, "runs side by side"),
        Param("first", "int32_t", (depth - 1) * inner if op.reverse else 0, "where a run starts"),
        Param("step", "int32_t", -inner if op.reverse else inner, "from element to element of a run"),
        Param("exclusive", "int32_t", int(op.exclusive), "1: without the element itself"),
    )
    overlaps = (in_step(bound),) if inner == 1 and not op.reverse else ()
    if dtype is DType.FLOAT32:
        spec = KernelSpec(x="float", y="float")
        return Layer("reduction/cumsum_float", "portable", (0,), params=params, overlaps=overlaps, spec=spec)
    quantization = bound.input(0)
    params = (
        *params,
        Param("x_offset", "int32_t", -quantization.zero_point, "minus the zero point"),
        *sum_params(bound),
    )
    return Layer("reduction/cumsum", "portable", (0,), params=params, overlaps=overlaps)


KERNELS = (
    _kernel(ArgMax, "ARG_MAX", "ArgMax", "position of the largest value along a dimension"),
    _kernel(ArgMin, "ARG_MIN", "ArgMin", "position of the smallest value along a dimension"),
    KernelDef(
        CumSum, "running sums along a dimension", _CUMSUM_TYPES, ("CUMSUM",), _cumsum_from_tflite, _check_cumsum,
        _cumsum_reference, _lower_cumsum,
    ),
)  # fmt: skip
