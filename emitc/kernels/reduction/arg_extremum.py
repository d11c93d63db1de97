"""ARG_MAX and ARG_MIN: the position of the largest or smallest value along one dimension; of equal ones the first, or the last.

Shapes  x of rank 1 to 8, y without the dimension, or with size 1 in its place.
Types   TFLite: int8 in (whatever its scale) or float32, int32 or int64 out. ONNX: also float32, int16, int32 and uint8 in,
        int64 out.
Source  TFLite Micro's kernels for int32 positions; int64 ones as LiteRT's reference kernel writes them. ONNX: its operator
        specification.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes
from emitc.kernels.reduction.mean import require_elements, work
from emitc.kernels.shared.byte_moves import axis_of
from emitc.kernels.shared.pointwise import operand
from emitc.layer import PLAIN, KernelSpec, Layer, Param, integers
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


KERNELS = (
    _kernel(ArgMax, "ARG_MAX", "ArgMax", "position of the largest value along a dimension"),
    _kernel(ArgMin, "ARG_MIN", "ArgMin", "position of the smallest value along a dimension"),
)
