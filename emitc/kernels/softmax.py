"""SOFTMAX: y_i = exp(beta * x_i) / sum exp(beta * x_j) over the last dimension, in fixed point.

Shapes  x [..., D], y the same.   Types  int8 in and out; y has scale 1/256 and zero point -128.
exp of a difference to the row's maximum is one of at most 256 values: they are a table (Q31 in [0, 1)).
Source  TFLite's integer softmax over gemmlowp's fixed-point exp and reciprocal (Q5.26 differences, Q12.19 sum).
Errors  rows of more than 4 095 elements, whose sum can leave Q12.19.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels import fixed_point
from emitc.kernels.contract import (
    KernelDef,
    Layer,
    Overlap,
    Param,
    Parsed,
    Table,
    illegal,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.quantize import Multiplier, multiplier_of, rounding_doubling_high_mul, rounding_shift_right

_DIFFERENCE_BITS = 5
_SUM_BITS = 12
_MAX_DEPTH = (1 << _SUM_BITS) - 1
_LARGEST = Multiplier(2**31 - 1, 30)
"""What TFLite takes for every factor that has no multiplier (QuantizeMultiplier)."""


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """beta: factor on the input."""

    beta: float


def from_tflite(node: SourceNode) -> Parsed:
    """SOFTMAX's option."""
    node.counts((1, 1))
    return Parsed(Softmax(node.real("beta")))


def check(bound: BoundNode) -> None:
    """Refuses other types than int8, another output scale than 1/256, and rows that are too long."""
    x, y = bound.input(0), bound.output
    require_dtypes(bound, [(DType.INT8, DType.INT8)], [(DType.INT8, DType.INT16)])
    require_quantization(bound, x, y)
    assert x.quantization and y.quantization and isinstance(bound.node.op, Softmax)
    if (y.quantization.scale, y.quantization.zero_point) != (1 / 256, -128):
        raise illegal(
            bound,
            "SOFTMAX has another output scale than 1/256",
            "TFLite's int8 softmax fixes it",
            "export the model again",
            y,
        )
    if not x.shape or bound.node.op.beta <= 0:
        raise illegal(
            bound, "SOFTMAX has no row or no positive beta", f"beta {bound.node.op.beta}", "export the model again", x
        )
    if _factor(bound) <= 1.0:
        raise illegal(
            bound,
            "SOFTMAX has an input scale that is out of proportion",
            f"scale {x.quantization.scale!r} times beta {bound.node.op.beta!r} leaves nothing of 26 fractional bits",
            "quantize the model again",
            x,
        )
    if x.shape[-1] > _MAX_DEPTH:
        raise unsupported(
            bound,
            f"SOFTMAX over {x.shape[-1]} elements",
            f"the sum fits {_MAX_DEPTH}",
            "reduce the number of classes",
            x,
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape."""
    return (bound.input(0).shape,)


def _factor(bound: BoundNode) -> float:
    """What a difference of quantized values is multiplied with to become Q5.26."""
    x = bound.input(0)
    assert x.quantization and isinstance(bound.node.op, Softmax)
    return bound.node.op.beta * x.quantization.scale * (1 << (31 - _DIFFERENCE_BITS))


def _exponentials(bound: BoundNode) -> tuple[int, ...]:
    """exp(-d * scale * beta) in Q31 for d = 0, 1, ... until it counts for nothing."""
    factor = _factor(bound)
    multiplier = multiplier_of(factor) if factor < 2.0**30 - 1.0 else _LARGEST
    radius = math.floor(((1 << _DIFFERENCE_BITS) - 1) * 2.0 ** (31 - _DIFFERENCE_BITS - multiplier.shift))
    differences = -np.arange(min(256, radius + 1), dtype=np.int64)
    scaled = rounding_doubling_high_mul((differences << max(multiplier.shift, 0)), multiplier.q31)
    return tuple(int(v) for v in fixed_point.exp_on_negative_values(scaled, _DIFFERENCE_BITS))


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Row by row, from the table of exponentials."""
    y = bound.output
    assert inputs[0] is not None
    table = np.array(_exponentials(bound), np.int64)
    rows = inputs[0].astype(np.int64).reshape(-1, y.shape[-1])
    difference = rows.max(axis=1, keepdims=True) - rows
    counted = difference < len(table)
    exponential = np.where(counted, table[np.minimum(difference, len(table) - 1)], 0)
    out = np.empty_like(rows)
    for i, row in enumerate(exponential):
        total = int(rounding_shift_right(row, _SUM_BITS)[counted[i]].sum())
        headroom = 32 - total.bit_length()
        scale = fixed_point.one_over_one_plus_x((total << headroom) - (1 << 31))
        exponent = _SUM_BITS - headroom + 31 - 8
        out[i] = rounding_shift_right(rounding_doubling_high_mul(row, scale), exponent) - 128
    return (np.clip(np.where(counted, out, -128), -128, 127).astype(np.int8).reshape(y.shape),)


def lower(bound: BoundNode) -> Layer:
    """One table, two passes over each row; the row may be overwritten in place."""
    table = _exponentials(bound)
    depth = bound.output.shape[-1]
    return Layer(
        "softmax",
        "portable",
        (0,),
        (Table("exponentials", "int32_t", table, "exp of minus the distance to the maximum, Q31"),),
        (
            Param("rows", "int32_t", bound.output.elements // depth),
            Param("depth", "int32_t", depth),
            Param("steps", "int32_t", len(table), "entries of the table; beyond it exp counts for nothing"),
        ),
        overlaps=(Overlap(0, 0, 0),),
    )


def work(bound: BoundNode) -> int:
    """Elements, and what a row costs in the loop over the rows."""
    return bound.output.elements + 1000 * (bound.output.elements // bound.output.shape[-1])


KERNELS = (
    KernelDef(
        Softmax,
        "softmax over the last dimension",
        (DType.INT8,),
        ("SOFTMAX",),
        from_tflite,
        check,
        output_shapes,
        reference,
        lower,
        work=work,
    ),
)
