"""Functions of one quantized value in TFLite.

LOGISTIC, TANH, RELU, RELU6 and LEAKY_RELU of int16, without zero points:
LOGISTIC, TANH    a table of the sigmoid at multiples of 1/24, interpolated; tanh(x) = 2 sigmoid(2x) - 1. x is scaled to units
                  of 1/12288 by a multiplier of 15 bits and a shift. Where its scale is the power of two that needs no rounding,
                  it is scaled by 3 and a shift. y has the scale 2**-15.
RELU, LEAKY_RELU  requantized by x_scale / y_scale (times alpha below zero), Q31 and two roundings.
RELU6             a clamp of the quantized value: x and y share their scale.
Source  TFLite Micro's int16 kernels (measured on all 65 536 values).

ABS, RSQRT, ELU, EXP, GELU and LOG of TFLite's int8: what each of the 256 values becomes; ABS and RSQRT of its int16, without
zero points:
ABS    requantized by x_scale / y_scale; where the two are equal, not at all.
RSQRT  1 / sqrt(q - z_x) as a Q31 multiplier on 2**20, by five Newton steps as in L2_NORMALIZATION; requantized by 1 /
       (sqrt(x_scale) * y_scale) with 20 bits less. A zero becomes the type's largest value; so does what lies below, for which
       the interpreter ends the run.
ELU    dequantized, exp(x) - 1 below zero, times 1 / y_scale, rounded half away from zero; all in float32. So are EXP, GELU (both
       formulas) and LOG.
LOG    of what is not above zero is the type's smallest value.
Source  TFLite Micro's kernels, measured: both factors are computed in double; EXP, GELU and LOG LiteRT's, measured.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from emitc.ir import BoundNode, DType
from emitc.kernels.contract import out_of_proportion, require_quantization
from emitc.kernels.shared.int16x8 import require_symmetric
from emitc.kernels.shared.pointwise import byte_table, formula_of, half_away, pointwise_layer, require_factor
from emitc.kernels.shared.sigmoid_table import Interpolation, sigmoid_of, tanh_of
from emitc.layer import Formula, Layer, Param, in_step, integers
from emitc.numerics.float_functions import FUNCTIONS
from emitc.numerics.gemmlowp import inverse_root
from emitc.numerics.requantize import BYTES, Clamp, Float32, Int64, Multiplier, multiplier_of, requantize

_UNITS = 4096.0 * 3.0
_MULTIPLIER_MAX = 32767
_LAST_SHIFT = 30
_POWER_TOLERANCE = 1e-3
"""How far the logarithm of a scale may lie from an integer for the scale to count as a power of two."""


def _power(scale: float) -> int | None:
    """The exponent of a scale that is a power of two, nearly, in float32 as TFLite Micro takes the logarithm."""
    log = np.float32(np.log(np.float32(scale))) * (np.float32(1.0) / np.log(np.float32(2.0)))
    whole = round(float(log))
    return whole if abs(np.float32(log) - np.float32(whole)) < np.float32(_POWER_TOLERANCE) else None


def unit_scale(scale: float) -> bool:
    """Whether an output scale counts as 2**-15."""
    return _power(scale) == -15


def interpolation(scale: float, *, tanh: bool) -> Interpolation | None:
    """For an input scale; None where no multiplier of 15 bits holds it."""
    power = _power(scale)
    left = None if power is None else power + 12
    if left is not None and (left == 0 or (tanh and left == 1)):
        multiplier, right = 3 << left, 0
    else:
        factor, right = scale * _UNITS, 0
        while factor <= _MULTIPLIER_MAX / 2.0 and right <= _LAST_SHIFT:
            right += 1
            factor *= 2.0
        if factor >= _MULTIPLIER_MAX + 1:
            return None
        multiplier = math.floor(factor)
    return (tanh_of if tanh else sigmoid_of)(multiplier, right)


def rectifier_layer(bound: BoundNode, identity: Multiplier, clamp: Clamp) -> Layer:
    """RELU: a requantization within other limits."""
    params = integers(
        count=bound.output.elements,
        input_offset=0,
        multiplier=(identity.q31, "Q31"),
        shift=(identity.shift, "positive left"),
        output_offset=0,
        clamp_low=clamp.low,
        clamp_high=clamp.high,
    )
    return Layer("quantization/requantized", "portable", (0,), params=params, overlaps=(in_step(bound),))


_LEAKY = Formula(
    "leaky_relu_s16",
    "({y})emitc_clamp(v < 0 ? p->sign * emitc_requantize(v, p->slope, p->slope_shift)"
    " : emitc_requantize(v, p->multiplier, p->shift), INT16_MIN, INT16_MAX)",
    "x at another scale, below zero by another factor",
)


def leaky_layer(bound: BoundNode, identity: Multiplier, slope: Multiplier, sign: int) -> Layer:
    """LEAKY_RELU. slope: of the magnitude of alpha; sign: alpha's."""
    parameters = integers(
        multiplier=(identity.q31, "Q31"),
        shift=(identity.shift, "positive left"),
        slope=(slope.q31, "Q31, below zero"),
        slope_shift=slope.shift,
        sign=(sign, "alpha's"),
    )
    return pointwise_layer(bound, _LEAKY, parameters)


def clamp_layer(bound: BoundNode, clamp: Clamp) -> Layer:
    """RELU6, and RELU between equal scales: two comparisons."""
    limits = (Param("low", "int16_t", clamp.low), Param("high", "int16_t", clamp.high))
    return pointwise_layer(bound, formula_of(FUNCTIONS["Clip"]), limits)


WIDE_NAMES = frozenset(("Abs", "Rsqrt"))
"""Functions that int16 has too."""
_REAL: Mapping[str, tuple[float, ...]] = {"Elu": (1.0, 1.0), "Exp": (), "Gelu": (), "GeluTanh": (), "Log": ()}
"""Functions that are computed in float32, with their parameters."""
NAMES = WIDE_NAMES | set(_REAL)
_ABSOLUTE = Multiplier(1 << 30, 1)
"""Times 1, without rounding."""
_ABSOLUTE_OF_SHORTS = Formula(
    "absolute_s16",
    "({y})emitc_clamp(emitc_requantize(v < 0 ? -v : v, p->multiplier, p->shift), INT16_MIN, INT16_MAX)",
    "|x| at another scale",
)
_ROOT_BITS = 20
_LARGEST = {DType.INT8: 255, DType.INT16: 1 << 15}
"""Magnitude of a value less its zero point."""


def _factor(bound: BoundNode, name: str) -> float:
    x, y = bound.input(0).scale, bound.output.scale
    return x / y if name == "Abs" else 1.0 / (math.sqrt(x) * y)


def require_function_scales(bound: BoundNode, name: str) -> None:
    """Refuses tensors without a scale, and scales beyond the fixed-point arithmetic."""
    require_quantization(bound, bound.input(0), bound.output)
    require_symmetric(bound)
    if name == "Abs":
        require_factor(bound, _factor(bound, name), _LARGEST[bound.output.dtype])
    if name == "Rsqrt" and not 2.0**-10 <= (factor := _factor(bound, name)) < 2.0**29:
        why = f"values are multiplied by {factor!r}, which the fixed-point arithmetic cannot hold"
        raise out_of_proportion(bound, why)


def _multiplier(bound: BoundNode, name: str) -> Multiplier:
    """ABS: from x's scale to y's. RSQRT: of the root with 20 bits more."""
    factor = multiplier_of(_factor(bound, name))
    if name == "Abs":
        return factor if bound.input(0).scale != bound.output.scale else _ABSOLUTE
    return Multiplier(factor.q31, factor.shift - _ROOT_BITS)


def through_float(bound: BoundNode, function: Callable[[Float32], Float32], centred: Int64) -> Float32:
    """The function of dequantized values, quantized half away from zero, not limited. centred: without zero point."""
    with np.errstate(all="ignore"):
        real = function(np.float32(bound.input(0).scale) * centred.astype(np.float32))
        scaled = real * (np.float32(1) / np.float32(bound.output.scale))
        return np.asarray(half_away(scaled) + np.float32(bound.output.zero_point))


def function_results(bound: BoundNode, name: str, values: Int64) -> Int64:
    y = bound.output
    low, high = y.dtype.range
    centred = values - bound.input(0).zero_point
    if name in _REAL:
        codes = through_float(bound, lambda x: FUNCTIONS[name].apply(x, _REAL[name]), centred)
        if name == "Log":
            codes = np.where(centred > 0, codes, np.float32(low))
        return np.asarray(np.clip(codes, low, high), np.int64)
    multiplier = _multiplier(bound, name)
    if name == "Abs":
        return np.clip(requantize(np.abs(centred), multiplier.q31, multiplier.shift) + y.zero_point, low, high)
    unlike, places = np.unique(np.maximum(centred, 1), return_inverse=True)
    roots = [inverse_root(int(value)) for value in unlike]
    one = np.ones(1, np.int64)
    widened = np.concatenate([requantize(one, root.q31, root.shift + _ROOT_BITS) for root in roots])
    inverse = requantize(widened, multiplier.q31, multiplier.shift)[places].reshape(centred.shape)
    return np.where(centred <= 0, high, np.clip(inverse + y.zero_point, low, high))


def function_layer(bound: BoundNode, name: str) -> Layer:
    """A table of the 256 bytes; of int16 the arithmetic."""
    if bound.input(0).dtype is DType.INT8:
        return byte_table(bound, 0, function_results(bound, name, BYTES))
    multiplier = _multiplier(bound, name)
    params = integers(multiplier=(multiplier.q31, "Q31"), shift=multiplier.shift)
    return pointwise_layer(bound, _ABSOLUTE_OF_SHORTS if name == "Abs" else "activation/reciprocal_root_s16", params)
