"""exp, reciprocal and inverse square root in fixed point, bit for bit as gemmlowp and TFLite Micro compute them.

Raw values are int64 arrays that hold int32 values; Qm.n means m integer and n fractional bits in addition to the sign.
"""

import functools

import numpy as np

from emitc.numerics.requantize import INT32_MAX, INT32_MIN, Int64, Multiplier, rounding_shift_right

_EXP_MINUS_EIGHTH = 1895147668
"""exp(-1/8) in Q0.31."""
_THIRD = 715827883
"""1/3 in Q0.31."""
_EXP_OF_POWERS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""(k, exp(-2**k) in Q0.31)."""


def high_mul(a: Int64, b: Int64 | int) -> Int64:
    """High 32 bits of 2ab, rounded half up, saturated where both are -2**31."""
    product = (np.asarray(a, np.int64) * b + (1 << 30)) >> 31
    return np.asarray(np.minimum(product, INT32_MAX), np.int64)


def saturating_shift_left(x: Int64, bits: int) -> Int64:
    """x * 2**bits limited to int32."""
    return np.asarray(np.clip(np.asarray(x, np.int64) << bits, INT32_MIN, INT32_MAX), np.int64)


def _exp_near_zero(a: Int64) -> Int64:
    """exp(a) for a in [-1/4, 0), both Q0.31: a Taylor polynomial of degree 4 around -1/8."""
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3 = high_mul(x2, x)
    x4 = high_mul(x2, x2)
    quarter = rounding_shift_right(x4, 2)
    tail = rounding_shift_right(high_mul(quarter + x3, _THIRD) + x2, 1)
    return _EXP_MINUS_EIGHTH + high_mul(x + tail, _EXP_MINUS_EIGHTH)


def exp_on_negative_values(a: Int64, integer_bits: int) -> Int64:
    """exp(a) in Q0.31 for a <= 0 in Q(integer_bits).(31 - integer_bits), integer_bits at most 5; exp(0) is 2**31 - 1."""
    a = np.asarray(a, np.int64)
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    modulo = (a & (quarter - 1)) - quarter
    result = _exp_near_zero(saturating_shift_left(modulo, integer_bits))
    remainder = modulo - a
    for power, factor in _EXP_OF_POWERS:
        if integer_bits > power:
            bit = 1 << (fraction + power)
            result = np.where(remainder & bit, high_mul(result, factor), result)
    return np.asarray(np.where(a == 0, INT32_MAX, result), np.int64)


def one_over_one_plus_x(x: int) -> int:
    """1 / (1 + x) for x in [0, 1), both Q0.31: three Newton steps from 48/17 - 32/17 d, d = (1 + x) / 2."""
    total = x + INT32_MAX
    half_denominator = (total + 1) // 2 if total >= 0 else -((1 - total) // 2)
    half = np.asarray(half_denominator, np.int64)
    estimate = np.asarray(1515870810 + high_mul(half, -1010580540), np.int64)
    for _ in range(3):
        error = np.asarray((1 << 29) - high_mul(half, estimate), np.int64)
        estimate = np.asarray(estimate + saturating_shift_left(high_mul(estimate, error), 2), np.int64)
    return int(saturating_shift_left(estimate, 1))


_HALF_SQRT_2 = 1518500250
"""sqrt(1/2) in Q0.31."""
_THREE_HALVES = 3 << 27
_STEPS = 5


@functools.lru_cache(1 << 16)
def inverse_root(n: int) -> Multiplier:
    """1 / sqrt(n) for an int32 n, 0 as 1."""
    if n <= 1:
        return Multiplier(INT32_MAX, 0)
    # n * 4**pairs is in [2**27, 2**29).
    pairs = (28 - (n.bit_length() - 1)) // 2
    scaled = np.asarray(n << 2 * pairs if pairs >= 0 else n >> -2 * pairs, np.int64)
    value = scaled >> 1
    half = (value + 1) >> 1
    x = np.asarray(1 << 28, np.int64)
    for _ in range(_STEPS):
        cube = saturating_shift_left(high_mul(high_mul(x, x), x), 6)
        x = saturating_shift_left(high_mul(x, _THREE_HALVES) - high_mul(half, cube), 3)
    right = 11 - pairs
    root = int(high_mul(x, _HALF_SQRT_2))
    return Multiplier(root << max(-right, 0), -max(right, 0))
