"""1 / sqrt(n) of an integer as TFLite Micro computes it: Newton steps in fixed point.

Source: TFLite Micro's L2_NORMALIZATION: five steps x' = (3 - n x * x) x / 2 in Q3.28 from x = 1, n scaled by a power of 4
into [1/4, 1).
"""

import functools

import numpy as np

from emitc.numerics.gemmlowp import high_mul, saturating_shift_left
from emitc.numerics.requantize import INT32_MAX, Multiplier

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
