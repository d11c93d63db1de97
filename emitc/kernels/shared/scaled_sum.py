"""Sums of many int8 values at one scale, as TFLite Micro's ADD_N and CUMSUM requantize them.

y = clamp(y_zero + rq(acc * 2**19)), the factor 2 * x_scale / (2**20 * y_scale): each value is shifted left by 20 bits and
halved, which is exact, so that whole steps can be summed and shifted once. acc * 2**19 wraps to 32 bits.
"""

import numpy as np

from emitc.ir import Array, BoundNode
from emitc.kernels.contract import out_of_proportion, require_quantization
from emitc.layer import Param, integers
from emitc.numerics.requantize import Int64, Multiplier, multiplier_of, requantize

GAINED_BITS = 19


def _factor(bound: BoundNode) -> float:
    x, y = bound.input(0), bound.output
    return 2 * x.scale / ((1 << (GAINED_BITS + 1)) * y.scale)


def _multiplier(bound: BoundNode) -> Multiplier:
    return multiplier_of(_factor(bound))


def check_sum(bound: BoundNode) -> None:
    """Refuses tensors without a scale, and scales whose ratio the fixed-point arithmetic cannot hold."""
    x, y = bound.input(0), bound.output
    require_quantization(bound, x, y)
    if not _factor(bound) < 1.0 - 2.0**-32:
        why = f"input {x.scale!r}, output {y.scale!r}: the ratio does not fit the fixed-point arithmetic"
        raise out_of_proportion(bound, why)


def rescaled(bound: BoundNode, acc: Int64) -> Array:
    """The sums of steps, requantized to the output."""
    y, last = bound.output, _multiplier(bound)
    wide = (acc << GAINED_BITS).astype(np.int32).astype(np.int64)
    result = requantize(wide, last.q31, last.shift) + y.zero_point
    return np.clip(result, *y.dtype.range).astype(y.dtype.value)


def sum_params(bound: BoundNode) -> tuple[Param, ...]:
    """The requantization as members of a parameter struct; the templates shift by 19 bits first."""
    last = _multiplier(bound)
    return integers(
        multiplier=(last.q31, "Q31, of sums with 19 more bits"),
        shift=(last.shift, "positive left"),
        output_offset=bound.output.zero_point,
    )
