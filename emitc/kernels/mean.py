"""MEAN and SUM over any dimensions of a quantized tensor.

Shapes  x any, y without the reduced dimensions, or with size 1 in their place (keep_dims).   Types  int8, own scales.
Both    acc = sum(x - x_zero), int32; y = clamp(y_zero + requantize(acc)).
MEAN    the multiplier x_scale / y_scale is divided by the number of elements n in integers: with k = floor(log2 n), its
        Q31 value times 2**k over n, rounded down, and k more bits of right shift. SUM takes it as it is.
Source  TFLite Micro's integer reduction; it has one way for all dimensions.
Errors  a sum that can leave int32; more than three separate groups of kept or of reduced dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Layer,
    Param,
    Parsed,
    illegal,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.quantize import Multiplier, multiplier_of, requantize

_GROUPS = 3
_INT32_BITS = 31


@dataclass(frozen=True, slots=True)
class Reduction(Op):
    """axes: dimensions that are summed up, ascending and not negative. keep_dims: they stay, with size 1."""

    axes: tuple[int, ...]
    keep_dims: bool


class Mean(Reduction):
    """Arithmetic mean."""

    __slots__ = ()


class Sum(Reduction):
    """Sum."""

    __slots__ = ()


def _from_tflite(op: type[Reduction]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        node.counts((2, 2))
        rank = len(node.input(0).shape)
        listed = node.constant_integers(1, "axes")
        # A scalar has no dimension to name; what is listed then goes unused.
        axes = [axis % rank if -rank <= axis < rank else -1 for axis in listed] if rank else []
        if -1 in axes:
            raise node.refusal(
                f"{node.op_type} has axes {list(listed)}",
                f"the input has {rank} dimensions",
                "export the model again",
                node.input(0),
            )
        return Parsed(op(tuple(sorted(set(axes))), bool(node.integer("keep_dims", 0, 0, 1))))

    return parse


def _op(bound: BoundNode) -> Reduction:
    assert isinstance(bound.node.op, Reduction)
    return bound.node.op


def _count(bound: BoundNode) -> int:
    """Elements of one mean."""
    shape = bound.input(0).shape
    return math.prod(shape[axis] for axis in _op(bound).axes)


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring dimensions that are all kept or all reduced: `count` steps of `stride` elements."""

    count: int
    stride: int
    reduced: bool


def _groups(bound: BoundNode) -> tuple[_Group, ...]:
    """The input's dimensions, outermost first; those of size 1 belong to no group."""
    shape, axes = bound.input(0).shape, _op(bound).axes
    groups: list[_Group] = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        if size == 1:
            continue
        if groups and groups[-1].reduced == (axis in axes):
            groups[-1] = _Group(groups[-1].count * size, stride, axis in axes)
        else:
            groups.append(_Group(size, stride, axis in axes))
    return tuple(groups)


def _factor(bound: BoundNode) -> float:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    return x.scale / y.scale


def _multiplier(bound: BoundNode) -> Multiplier:
    """The requantization of the sum, its right shift at most 31."""
    whole = multiplier_of(_factor(bound))
    if isinstance(bound.node.op, Sum):
        return whole
    count = _count(bound)
    bits = min(count.bit_length() - 1, 32, 31 + whole.shift)
    return Multiplier((whole.q31 << bits) // count, whole.shift - bits)


def check(bound: BoundNode) -> None:
    """Refuses other types than int8, sums beyond int32, and too many separate groups of dimensions."""
    x, y = bound.input(0), bound.output
    others = (DType.INT16, DType.INT32, DType.UINT8, DType.FLOAT32)
    require_dtypes(bound, [(DType.INT8,) * 2], [(dtype,) * 2 for dtype in others])
    require_quantization(bound, x, y)
    if 0 in x.shape:
        raise illegal(
            bound, f"{bound.node.op_type} has an empty input", "a dimension is 0", "export the model again", x
        )
    reach = 255 * _count(bound)
    factor = _factor(bound)
    if reach >= 1 << _INT32_BITS:
        raise unsupported(
            bound,
            f"{bound.node.op_type} over {_count(bound)} elements",
            "their sum can leave int32",
            "reduce in several steps",
            x,
        )
    if not factor < 1 << 30 or reach << max(_multiplier(bound).shift, 0) >= 1 << _INT32_BITS:
        raise illegal(
            bound,
            f"{bound.node.op_type} has scales that are out of proportion",
            f"sums are multiplied by {factor!r}, which the fixed-point arithmetic cannot hold",
            "quantize the model again",
            y,
        )
    groups = _groups(bound)
    if max(sum(g.reduced for g in groups), sum(not g.reduced for g in groups)) > _GROUPS:
        raise unsupported(
            bound,
            f"{bound.node.op_type} over axes {list(_op(bound).axes)} of {list(x.shape)} is not supported",
            f"kept and reduced dimensions alternate more than {_GROUPS} times",
            "reduce in several steps",
            x,
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The kept dimensions, and 1 in the place of the others with keep_dims."""
    op, shape = _op(bound), bound.input(0).shape
    if op.keep_dims:
        return (tuple(1 if axis in op.axes else size for axis, size in enumerate(shape)),)
    return (tuple(size for axis, size in enumerate(shape) if axis not in op.axes),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's sum over the axes, requantized."""
    x, y = bound.input(0).quantization, bound.output.quantization
    assert inputs[0] is not None and x and y
    acc = (inputs[0].astype(np.int64) - x.zero_point).sum(axis=_op(bound).axes)
    multiplier = _multiplier(bound)
    scaled = requantize(np.asarray(acc), multiplier.q31, multiplier.shift) + y.zero_point
    return (np.clip(scaled, -128, 127).astype(np.int8).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """Nested loops over kept and reduced groups; the input's zero point is taken off the sum once."""
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    params: list[Param] = []
    for name, reduced in (("kept", False), ("reduced", True)):
        groups = [g for g in _groups(bound) if g.reduced == reduced]
        padded = [_Group(1, 0, reduced)] * (_GROUPS - len(groups)) + groups
        for i, group in enumerate(padded):
            params.append(Param(f"{name}{i}", "int32_t", group.count))
            params.append(Param(f"{name}{i}_stride", "int32_t", group.stride))
    multiplier = _multiplier(bound)
    params += [
        Param("sum_offset", "int32_t", -x.zero_point * _count(bound), "minus the zero point of every element"),
        Param("multiplier", "int32_t", multiplier.q31, "Q31, over the number of elements for a mean"),
        Param("shift", "int32_t", multiplier.shift, "positive left"),
        Param("output_offset", "int32_t", y.zero_point),
    ]
    return Layer("reduce_sum", "portable", (0,), params=tuple(params))


def _kernel(op: type[Reduction], name: str, summary: str) -> KernelDef:
    return KernelDef(op, summary, (DType.INT8,), (name,), _from_tflite(op), check, output_shapes, reference, lower)


KERNELS = (_kernel(Mean, "MEAN", "mean over any dimensions"), _kernel(Sum, "SUM", "sum over any dimensions"))
