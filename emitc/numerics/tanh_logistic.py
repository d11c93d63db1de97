"""tanh and the logistic function of float32 as ONNX Runtime computes them: x * a(x^2) / b(x^2) of x within limits.

Each step of the polynomials a and b is a product and a sum, rounded once. Half is added to the logistic quotient, which is
then limited to [0, 1]. A NaN stays one.
Source  ONNX Runtime's MLAS library (tanh.cpp, logistic.cpp; the coefficients are Eigen's) on processors with fused multiply-add:
equal to version 1.32 in all bits of 2 million random numbers and of all that float16 has.
"""

from functools import reduce

import numpy as np

from emitc.numerics.requantize import Float32

HEADERS = ("emitc_bits.h", "emitc_tanh.h")
"""Of the runtime, with the same functions in C."""
_TANH = (
    (
        -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
        6.37261928875436e-04, 4.89352455891786e-03,
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)  # fmt: skip
_LOGISTIC = (
    (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01),
    (
        6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03, 1.16817656904453e-01,
        9.93151921023180e-01,
    ),
)  # fmt: skip
"""Coefficients of a and b, the highest power first."""


def fused(a: Float32, b: Float32, c: Float32 | np.float32) -> Float32:
    """a * b + c rounded once, for results that are 0 or normal numbers.

    The product is exact in float64. There the sum is rounded to odd: if it is not exact, to the neighbour whose last bit is
    set. So rounding it to float32 sees on which side of a tie it lies.
    """
    product, addend = np.asarray(a.astype(np.float64) * b), np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    shared = total - product
    rest = (product - (total - shared)) + (addend - shared)
    bits = total.view(np.int64)
    outwards = np.where((rest > 0) == (total > 0), 1, -1)
    odd = np.where((rest != 0) & (bits % 2 == 0), bits + outwards, bits)
    return np.asarray(odd.view(np.float64).astype(np.float32))


def _within(x: Float32, low: int, high: int) -> Float32:
    return np.asarray(np.clip(x, np.float32(low), np.float32(high)))


def _quotient(x: Float32, terms: tuple[tuple[float, ...], tuple[float, ...]]) -> Float32:
    square = np.asarray(x * x)
    above, below = (
        reduce(lambda value, c: fused(value, square, c), steps[1:], np.full_like(x, steps[0]))
        for steps in (tuple(np.float32(c) for c in part) for part in terms)
    )
    return np.asarray(above * x / below)


def tanh(x: Float32) -> Float32:
    return _quotient(_within(x, -9, 9), _TANH)


def logistic(x: Float32) -> Float32:
    """1 / (1 + exp(-x)) of every element."""
    return _within(_quotient(_within(x, -18, 18), _LOGISTIC) + np.float32(0.5), 0, 1)
