"""LOG_SOFTMAX of int8 values in TFLite: x - max - log(sum exp(x - max)) in Q5.26, as steps of 1/16.

The exponentials are those of SOFTMAX, their sum s is Q12.19. 2**n is the power for which z = s * 2**-n is within a factor
sqrt(sqrt(1/2)) to sqrt(sqrt(2)) of sqrt(sqrt(1/2)). The logarithm is n' * log(2) + log of the rest, with n' a multiple of 1/4
and a half. That of the rest is a rational function of degrees 3 and 2 around sqrt(sqrt(1/2)), in Q0.31.
Source  TFLite Micro's kernel.   y has the scale 1/16 and the zero point 127.
"""

import math

import numpy as np

from emitc.ir import Array, BoundNode
from emitc.kernels.normalization.rows import of_distances, row_params
from emitc.layer import Layer, Param, Table, in_step
from emitc.numerics import gemmlowp
from emitc.numerics.requantize import INT32_MIN, Int64, Multiplier, multiplier_of, requantize, rounding_shift_right

_SUM_BITS = 12
_LOG_2 = 1488522236
_SQRT_HALF = 1518500250
_CENTRE = 1805811301
"""sqrt(sqrt(1/2)); like the others in Q0.31."""
_CUBIC = 117049297
"""11/240 * sqrt(sqrt(2))."""
_QUADRATIC = 127690142
"""1/20 * sqrt(sqrt(2))."""
_CONSTANT = 1057819769
"""2 / sqrt(sqrt(2)) - sqrt(sqrt(2))."""
_LINEAR = 638450708
"""1/4 * sqrt(sqrt(2))."""
_POWER_BITS = 25
"""Fractional bits of a power of 2, and a quarter in them."""
_QUARTER = 1 << (_POWER_BITS - 2)
_OUTPUT_SHIFT = 22


def _product(a: int, b: int) -> int:
    return int(gemmlowp.high_mul(np.asarray(a, np.int64), b))


def logarithm(total: int) -> int:
    """log of a sum in Q12.19, at least 1, in Q5.26."""
    headroom = 32 - total.bit_length()
    upper = min(_product(total << (headroom - 1), _SQRT_HALF) * 2, 2**31 - 1)
    headroom_b = 31 - _product(total, _SQRT_HALF).bit_length()
    lower = min(total << headroom_b, 2**31 - 1)
    rest = min(upper, lower)
    power = max(
        ((_SUM_BITS - headroom) << _POWER_BITS) + _QUARTER, ((_SUM_BITS - headroom_b) << _POWER_BITS) - _QUARTER
    )
    middle = (rest + _CENTRE + 1) >> 1
    double = 2 * (rest - _CENTRE)
    square = _product(double, double)
    numerator = _product(double, rest) + _product(_product(double, square), _CUBIC)
    denominator = _product(middle, _CONSTANT + double + _product(_QUADRATIC, square)) + _product(_LINEAR, double)
    quotient = _product(int(rounding_shift_right(np.asarray(numerator), 6)), gemmlowp.one_over_one_plus_x(denominator))
    return min(2 * (_product(power, _LOG_2) + quotient), 2**31 - 1)


def _back(multiplier: Multiplier) -> Multiplier:
    """From Q5.26 to steps of the input."""
    return multiplier_of((1 << (31 - multiplier.shift)) / multiplier.q31)


def _radius(multiplier: Multiplier) -> int:
    """The largest distance to the maximum that counts."""
    return math.floor(31 * 2.0 ** (26 - multiplier.shift))


def reference(values: Array, multiplier: Multiplier, exponentials: tuple[int, ...]) -> Array:
    """Row by row, from the table of exponentials by distance to the maximum."""
    rows = values.astype(np.int64).reshape(-1, values.shape[-1])
    distance: Int64 = rows.max(axis=1, keepdims=True) - rows
    table = rounding_shift_right(np.array(exponentials, np.int64), _SUM_BITS)
    sums = of_distances(distance, table)[1].sum(axis=1)
    back, radius = _back(multiplier), _radius(multiplier)
    out = np.full_like(rows, -128)
    for i, row in enumerate(distance):
        log = logarithm(int(sums[i]))
        lowest = max(-radius - 1, int(requantize(np.asarray(log + INT32_MIN, np.int64), back.q31, back.shift)))
        scaled = requantize(-row, multiplier.q31, multiplier.shift)
        steps = rounding_shift_right((scaled - log).astype(np.int32).astype(np.int64), _OUTPUT_SHIFT) + 127
        out[i] = np.where(-row > lowest, np.clip(steps, -128, 127), -128)
    return out.astype(np.int8).reshape(values.shape)


def layer(bound: BoundNode, multiplier: Multiplier, exponentials: tuple[int, ...]) -> Layer:
    """One table, two passes over each row; the row may be overwritten in place."""
    table = rounding_shift_right(np.array(exponentials, np.int64), _SUM_BITS)
    back = _back(multiplier)
    return Layer(
        "normalization/log_softmax",
        tables=(
            Table("exponentials", "int32_t", tuple(table.tolist()), "exp of minus the distance to the maximum, Q12.19"),
        ),
        params=(
            *row_params(bound.output.shape),
            Param("steps", "int32_t", len(table), "entries of the table; beyond it exp counts for nothing"),
            Param("multiplier", "int32_t", multiplier.q31, "Q31, from steps of x to Q5.26"),
            Param("shift", "int32_t", multiplier.shift, "positive left"),
            Param("back", "int32_t", back.q31, "the other way round"),
            Param("back_shift", "int32_t", back.shift),
            Param("lowest", "int32_t", -min(_radius(multiplier), 256) - 1, "below no difference counts"),
        ),
        overlaps=(in_step(bound),),
        headers=("emitc_bits.h",),
    )
