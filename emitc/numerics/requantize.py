"""Arithmetic of quantized values: Q31 multipliers, requantization, clamps. The only home of these formulas in Python.

All but requantize_float works on exact integers: numpy int64 arrays whose values fit int32, and Python integers.
Source: gemmlowp's fixed-point rounding as TFLite's 8-bit specification and TFLite Micro's kernels use it (measured:
0 differences against tflite_micro, see docs/numerics.md).
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, DType, Tensor
from emitc.records import dataclass

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
BYTES = np.arange(-128, 128, dtype=np.int64)
"""Every int8 value."""
_CACHED = 1 << 14
"""Factors of the channels of a model, which several stages ask for."""


@dataclass(frozen=True, slots=True)
class Multiplier:
    """A positive real factor as `q31 * 2**(shift - 31)`: q31 in [2**30, 2**31) or 0, shift positive to the left."""

    q31: int
    shift: int


@lru_cache(maxsize=_CACHED)
def multiplier_of(factor: float) -> Multiplier:
    """The Q31 multiplier nearest to `factor`, a non-negative finite double; ties away from zero.

    Factors below 2**-32 become 0, as in TFLite's QuantizeMultiplier. Raises ValueError above 2**30.
    """
    if factor == 0.0:
        return Multiplier(0, 0)
    mantissa, exponent = math.frexp(factor)
    q31 = math.floor(mantissa * 2**31 + 0.5)
    if q31 == 2**31:
        q31 //= 2
        exponent += 1
    if exponent < -31:
        return Multiplier(0, 0)
    if exponent > 30:
        raise ValueError(f"factor {factor!r} is over 2**30")
    return Multiplier(q31, exponent)


def rounding_doubling_high_mul(a: Int64, q31: Int64 | int) -> Int64:
    """High 32 bits of 2*a*q31, rounded half up; a and q31 int32 values, q31 >= 0 (so that it cannot saturate)."""
    return np.asarray((np.asarray(a, np.int64) * q31 + (1 << 30)) >> 31, np.int64)


def rounding_shift_right(x: Int64, right: Int64 | int) -> Int64:
    """x / 2**right rounded half away from zero; right in 0..31."""
    x = np.asarray(x, np.int64)
    right = np.asarray(right, np.int64)
    mask = (np.int64(1) << right) - 1
    threshold = (mask >> 1) + (x < 0)
    return np.asarray((x >> right) + ((x & mask) > threshold), np.int64)


def requantize(acc: Int64, q31: Int64 | int, shift: Int64 | int) -> Int64:
    """acc * q31 * 2**(shift - 31) with TFLite Micro's two roundings.

    acc: int32 values of any shape; q31, shift: scalars or arrays that broadcast against it. A left shift wraps to int32,
    as the 32-bit code does.
    """
    shift_array = np.asarray(shift, np.int64)
    left = np.maximum(shift_array, 0)
    right = np.maximum(-shift_array, 0)
    shifted = (np.asarray(acc, np.int64) << left).astype(np.int32).astype(np.int64)
    return rounding_shift_right(rounding_doubling_high_mul(shifted, q31), right)


REDUCED_SHIFT_MAX = 7
"""Largest left shift with which TFLite Micro requantizes a sum of 64 bits."""
REDUCED_SUM_LIMIT = 1 << 47
"""Sums of 64 bits are below it in magnitude."""


def reduced_multiplier(q31: int) -> int:
    """A Q31 multiplier in Q15, rounded to nearest: at most 2**15 - 1."""
    return min((q31 + (1 << 15)) >> 16, (1 << 15) - 1)


def requantize_reduced(acc: Int64, q31: Int64 | int, shift: Int64 | int) -> Int64:
    """acc * q15 * 2**(shift - 15) rounded half up, q15 the multiplier in 16 bits; wraps to int32.

    acc: of any shape; products of values from REDUCED_SUM_LIMIT on may wrap at 64 bits. q31, shift: scalars or arrays that
    broadcast against it, shift in -31..REDUCED_SHIFT_MAX. Source: how TFLite Micro requantizes 64-bit sums of int16 values
    (measured: 0 differences).
    """
    q15 = np.minimum((np.asarray(q31, np.int64) + (1 << 15)) >> 16, (1 << 15) - 1)
    right = 15 - np.asarray(shift, np.int64)
    scaled = (np.asarray(acc, np.int64) * q15 + (np.int64(1) << (right - 1))) >> right
    return np.asarray(scaled, np.int64).astype(np.int32).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ExactMultiplier:
    """A positive double as `(high * 2**32 + low) / 2**(right + 32)`: high below 2**21, low below 2**32, right in 1..62."""

    high: int
    low: int
    right: int


def exact_multiplier_of(factor: float) -> ExactMultiplier:
    """All 53 bits of a positive double below 2**20; of one below 2**-41 no int32 has a half, so that right ends at 62."""
    mantissa, exponent = math.frexp(factor)
    whole = int(mantissa * 2**53)
    return ExactMultiplier(whole >> 32, whole & 0xFFFFFFFF, min(21 - exponent, 62))


def requantize_exact(acc: Int64, factor: float) -> Int64:
    """acc * factor rounded once, ties away from zero; int32 values of any shape. Integers only, of any size that results have.

    What the product loses below 2**-32 of its last bit cannot be a tie. Source: how LiteRT's reference kernels requantize a
    uint8 FULLY_CONNECTED, in double (measured: 0 differences, between the neighbouring rules too).
    """
    m = exact_multiplier_of(factor)
    acc = np.asarray(acc, np.int64)
    magnitude = np.abs(acc)
    product = magnitude * m.high + (magnitude * m.low >> 32)
    scaled = (product + (np.int64(1) << (m.right - 1))) >> m.right
    return np.asarray(np.where(acc < 0, -scaled, scaled), np.int64)


def double_shows(factor: float, low: int, high: int) -> bool:
    """Whether in double acc * factor is a tie for an int32 acc for which it is none, between results low and high.

    Then `requantize_exact` is not what a kernel computes that multiplies in double.
    """
    for result in range(low, high):
        tie = result + 0.5
        near = round(tie / factor)
        for acc in (near - 1, near, near + 1):
            if abs(acc) < 2**31 and float(acc) * factor == tie and Fraction(acc) * Fraction(factor) != Fraction(tie):
                return True
    return False


def requantize_float(acc: Int64, scale: Float32 | np.float32) -> Int64:
    """rint(float32(acc) * float32(scale)): the conversion, the product and rint each round to nearest, ties to even.

    acc: int32 values of any shape; scale: positive, finite, normal; a scalar or an array that broadcasts against acc.
    Saturates to int32, also where the product overflows float32. The zero point and the clamp are the caller's.
    Source: the integer kernels of ONNX Runtime (QLinearConv, QGemm, QLinearMatMul), found by comparing candidate formulas
    with their outputs (0 of over 1.5 million elements differ); in C emitc_scale_f32 of c_runtime.
    """
    with np.errstate(over="ignore"):
        product = np.asarray(acc, np.int64).astype(np.float32) * np.asarray(scale, np.float32)
    return np.clip(np.rint(product).astype(np.float64), INT32_MIN, INT32_MAX).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Clamp:
    """Closed range of quantized values that an operator may write."""

    low: int
    high: int

    def apply(self, values: Int64, dtype: DType) -> Array:
        return np.asarray(np.clip(values, self.low, self.high).astype(dtype.value))


@lru_cache(maxsize=1024)  # every variant that an operator offers asks for the same limits
def quantize_real(value: float, scale: float, zero_point: int) -> int:
    """The quantized value of a real one, half away from zero, limited to int32.

    Computed in float32 like TFLite's activation ranges; a scale so small that the ratio overflows gives a limit.
    """
    with np.errstate(over="ignore", divide="ignore"):
        ratio = float(np.clip(np.float32(value) / np.float32(scale), INT32_MIN, INT32_MAX))
    return zero_point + int(math.copysign(math.floor(abs(ratio) + 0.5), ratio))


def activation_clamp(activation: str, output: Tensor) -> Clamp:
    """Range of the quantized output under a fused activation: NONE, RELU, RELU6 or RELU_N1_TO_1.

    Source: CalculateActivationRangeQuantized of TFLite (bounds quantized, then limited to the type's range).
    """
    low, high = output.dtype.range
    scale, zero_point = output.scale, output.zero_point
    bounds = {"NONE": (None, None), "RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}[activation]
    lower, upper = bounds
    if lower is not None:
        low = max(low, quantize_real(lower, scale, zero_point))
    if upper is not None:
        high = min(high, quantize_real(upper, scale, zero_point))
    return Clamp(low, high)


def scale_ratio(*numerators: float, over: float) -> float:
    """Product of scales divided by one, in double, in the order given (TFLite's GetQuantizedConvolutionMultipler)."""
    product = 1.0
    for scale in numerators:
        product *= scale
    return product / over
