"""exp of float32 numbers that are not above 0, as ONNX Runtime's Softmax computes it: 2^n by the bits, a polynomial of the rest.

Each step of the polynomial is a product and a sum, rounded once. Below -86.5 the result is 0; the engine's ends at 2^-126. A NaN
stays one.
Source  ONNX Runtime's MLAS library (compute.cpp) on processors with fused multiply-add.
"""

from functools import reduce

import numpy as np

from emitc.numerics.requantize import Float32
from emitc.numerics.tanh_logistic import HEADERS as _RATIONAL
from emitc.numerics.tanh_logistic import fused

HEADERS = (*_RATIONAL, "emitc_exp.h")
"""Of the runtime, with the same function in C."""
_LOWEST = np.float32(-86.5)
_TERMS = (1.37805939e-3, 8.37312452e-3, 4.16695364e-2, 1.66664720e-1, 4.99999851e-1, 1.0, 1.0)
"""Coefficients, the highest power first."""
_LOG2_E, _MINUS_LN2_HIGH, _MINUS_LN2_LOW = 1.44269504088896341, -6.93145752e-1, -1.42860677e-6
_WHOLE = np.float32(12582912.0)
"""1.5 * 2^23: a sum with it has no fractional digits."""


def exponential(x: Float32) -> Float32:
    v = np.asarray(np.maximum(x, _LOWEST), np.float32)
    # Of numbers so near to 0 the result is 1; the steps below are for normal numbers.
    v = np.where(np.abs(v) < np.float32(1e-30), np.float32(0), v)

    def times(factor: float, value: Float32, more: Float32 | np.float32) -> Float32:
        return fused(value, np.full_like(value, factor), more)

    whole = times(_LOG2_E, v, _WHOLE) - _WHOLE
    rest = times(_MINUS_LN2_LOW, whole, times(_MINUS_LN2_HIGH, whole, v))
    steps = [np.float32(term) for term in _TERMS]
    power = reduce(lambda value, term: fused(value, rest, term), steps[1:], np.full_like(v, steps[0]))
    result = np.ldexp(power, np.nan_to_num(whole).astype(np.int32))
    return np.asarray(np.where(x < _LOWEST, np.float32(0), result), np.float32)
