"""CUMSUM: running sums along a dimension, from either end, with or without the element itself.

Shapes  x any of rank 1 or more, y the same.
Types   float32, added one after the other onto a 0. int8: y = y_zero + rq(acc * 2**19), acc = sum(x - x_zero) - x_zero, as ADD_N
        (kernels/long_sum.py).
Source  TFLite Micro's kernel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes
from emitc.kernels.shared.pointwise import operand, plain_numerics
from emitc.kernels.shared.sums import check_sum, rescaled, sum_params
from emitc.layer import KernelSpec, Layer, Param, in_step
from emitc.source import SourceNode

_TYPES = (DType.INT8, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class CumSum(Op):
    """axis: the dimension, not negative. exclusive: each sum ends before its element. reverse: sums start at the end."""

    axis: int
    exclusive: bool
    reverse: bool


def from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    axes, rank = node.constant_integers(1, "axis"), len(node.input(0).shape)
    if len(axes) != 1 or not -rank <= axes[0] < rank:
        raise node.refusal(f"has the axes {list(axes)}", f"one in [{-rank}, {rank}) is expected", tensor=node.input(1))
    flags = (bool(node.attribute(name, False)) for name in ("exclusive", "reverse"))
    return Parsed(CumSum(axes[0] % rank, *flags, numerics=plain_numerics(node)))


def check(bound: BoundNode) -> None:
    """Refuses other types, and scales out of proportion."""
    require_dtypes(bound, [(t, t) for t in _TYPES])
    if bound.output.dtype is DType.INT8:
        check_sum(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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


def lower(bound: BoundNode) -> Layer:
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
    KernelDef(
        CumSum, "running sums along a dimension", _TYPES, ("CUMSUM",), from_tflite, check, reference, lower,
    ),
)  # fmt: skip
