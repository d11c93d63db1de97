"""exp, erf, tanh and the logistic function of float32 as ONNX Runtime computes them on processors with fused multiply-add.

Each step of a polynomial is a product and a sum, rounded once. A NaN stays one.
Source  ONNX Runtime's MLAS library: compute.cpp, erf.cpp (the polynomials are N. Juffa's), tanh.cpp and logistic.cpp (the
coefficients are Eigen's). erf, tanh and logistic equal version 1.32 in all bits of 2 million random numbers, the last two also in
those of all that float16 has.
"""

from functools import reduce

import numpy as np

from emitc.numerics.requantize import Float32

HEADERS = ("emitc_bits.h", "emitc_tanh.h")
"""Of the runtime, with tanh and the logistic function in C."""
EXP_HEADERS = (*HEADERS, "emitc_exp.h")
ERF_HEADERS = (*HEADERS, "emitc_erf.h")
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
"""Coefficients of dividend and divisor, polynomials of x^2, the highest power first."""
_EXP = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
_EXP_OF_ERF = (1.38319808e-3, 8.37550033e-3, 4.16689515e-2, 1.66664466e-1, 4.99999851e-1, 1.0, 1.0)
_ERF_NEAR = (-5.99104969e-4, 4.99339588e-3, -2.67667342e-2, 1.12818025e-1, -3.76124859e-1, 1.28379151e-1)
_ERF_FAR = (
    1.72948930e-5, -3.83208680e-4, 3.88393435e-3, -2.42545605e-2, 1.06777847e-1, 6.34846687e-1, 1.28717512e-1,
)  # fmt: skip
"""Coefficients, the highest power first; those of erf are of what is added to |x|, as a share of it."""
_LOWEST = np.float32(-86.5)
_ERF_SPLIT, _ERF_LAST = np.float32(0.921875), np.float32(3.925)
_LOG2_E, _MINUS_LN2_HIGH, _MINUS_LN2_LOW = 1.44269504088896341, -6.93145752e-1, -1.42860677e-6
_WHOLE = np.float32(12582912.0)
"""1.5 * 2^23: a sum with it has no fractional digits."""


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


def _polynomial(terms: tuple[float, ...], x: Float32) -> Float32:
    steps = [np.float32(term) for term in terms]
    return reduce(lambda value, term: fused(value, x, term), steps[1:], np.full_like(x, steps[0]))


def _within(x: Float32, low: int, high: int) -> Float32:
    return np.asarray(np.clip(x, np.float32(low), np.float32(high)))


def _quotient(x: Float32, terms: tuple[tuple[float, ...], tuple[float, ...]]) -> Float32:
    square = np.asarray(x * x)
    return np.asarray(_polynomial(terms[0], square) * x / _polynomial(terms[1], square))


def tanh(x: Float32) -> Float32:
    return _quotient(_within(x, -9, 9), _TANH)


def logistic(x: Float32) -> Float32:
    """1 / (1 + exp(-x)) of every element."""
    return _within(_quotient(_within(x, -18, 18), _LOGISTIC) + np.float32(0.5), 0, 1)


def _power(x: Float32, terms: tuple[float, ...]) -> Float32:
    """exp(x) as 2^n by the bits of the result, times a polynomial of the rest."""

    def times(factor: float, value: Float32, more: Float32 | np.float32) -> Float32:
        return fused(value, np.full_like(value, factor), more)

    whole = times(_LOG2_E, x, _WHOLE) - _WHOLE
    rest = times(_MINUS_LN2_LOW, whole, times(_MINUS_LN2_HIGH, whole, x))
    return np.asarray(np.ldexp(_polynomial(terms, rest), np.nan_to_num(whole).astype(np.int32)))


def exponential(x: Float32) -> Float32:
    """exp of numbers that are not above 0, as in Softmax. Below -86.5 the result is 0; the engine's ends at 2^-126."""
    v = np.asarray(np.maximum(x, _LOWEST), np.float32)
    # Of numbers so near to 0 the result is 1; the steps of the polynomial are for normal numbers.
    v = np.where(np.abs(v) < np.float32(1e-30), np.float32(0), v)
    return np.asarray(np.where(x < _LOWEST, np.float32(0), _power(v, _EXP)), np.float32)


def erf(x: Float32) -> Float32:
    """A polynomial of x^2 near 0, 1 - exp of one of |x| elsewhere. From 3.925 on the result is that of 3.925, which is 1."""
    size = np.minimum(np.abs(x), _ERF_LAST)
    near = fused(_polynomial(_ERF_NEAR, np.asarray(size * size)), size, size)
    far = np.float32(1) - _power(-fused(_polynomial(_ERF_FAR, size), size, size), _EXP_OF_ERF)
    return np.asarray(np.copysign(np.where(size > _ERF_SPLIT, far, near), x), np.float32)
