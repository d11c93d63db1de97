"""Activations of one int16 value in TFLite: LOGISTIC, TANH, RELU, RELU6, LEAKY_RELU.

Scales are symmetric: no zero points.
LOGISTIC, TANH    a table of the sigmoid at multiples of 1/24, interpolated; tanh(x) = 2 sigmoid(2x) - 1. x is scaled to units
                  of 1/12288 by a multiplier of 15 bits and a shift. Where its scale is the power of two that needs no rounding,
                  it is scaled by 3 and a shift. y has the scale 2**-15.
RELU, LEAKY_RELU  requantized by x_scale / y_scale (times alpha below zero), Q31 and two roundings.
RELU6             a clamp of the quantized value: x and y share their scale.
Source  TFLite Micro's int16 kernels (measured on all 65 536 values).
"""

import math
from dataclasses import dataclass

import numpy as np

from emitc.ir import BoundNode
from emitc.kernels.shared.pointwise import formula_of, pointwise_layer
from emitc.kernels.shared.sigmoid_table import SIGMOID, sigmoid_table
from emitc.layer import Formula, Layer, Param, in_step, integers
from emitc.numerics.float_functions import FUNCTIONS
from emitc.numerics.requantize import Clamp, Int64, Multiplier

_ENTRIES = len(SIGMOID)
_UNITS = 4096.0 * 3.0
_MULTIPLIER_MAX = 32767
_LAST_SHIFT = 30
_POWER_TOLERANCE = 1e-3
"""How far the logarithm of a scale may lie from an integer for the scale to count as a power of two."""


@dataclass(frozen=True, slots=True)
class Interpolation:
    """How LOGISTIC or TANH reads the table.

    v = (x * multiplier + rounding) >> right; the table at |v| >> bits, with the bits below as the weight of the next
    entry; at the table's end `saturated`. y is (above + that) >> output_right, or (below - that) >> output_right for negative v.
    """

    multiplier: int
    right: int
    bits: int
    saturated: int
    above: int
    below: int
    output_right: int

    @property
    def rounding(self) -> int:
        """Half of what is shifted out."""
        return 1 << (self.right - 1) if self.right > 0 else 0

    def apply(self, q: Int64) -> Int64:
        v = (q * self.multiplier + self.rounding) >> self.right
        table = np.array((*SIGMOID, 0), np.int64)
        index = np.minimum(np.abs(v) >> self.bits, _ENTRIES - 1)
        rest = np.abs(v) & ((1 << self.bits) - 1)
        between = (table[index] << self.bits) + rest * (table[index + 1] - table[index])
        sigmoid = np.where(index < _ENTRIES - 1, between, self.saturated)
        return np.asarray(np.where(v >= 0, self.above + sigmoid, self.below - sigmoid) >> self.output_right, np.int64)

    def layer(self, bound: BoundNode) -> Layer:
        params = integers(
            count=bound.output.elements,
            multiplier=(self.multiplier, "to units of 1/12288, with the right shift"),
            rounding=self.rounding,
            right=self.right,
            bits=(self.bits, "of the share of the next entry"),
            saturated=self.saturated,
            above=self.above,
            below=self.below,
            output_right=self.output_right,
        )
        return Layer("activation/sigmoid_s16", "portable", (0,), (sigmoid_table(),), params, overlaps=(in_step(bound),))


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
    if tanh:
        return Interpolation(multiplier, right, 8, 0xFFFF << 8, (1 << 7) - (1 << 23), (1 << 23) + (1 << 7) - 1, 8)
    return Interpolation(multiplier, right, 9, 0x7FFF << 10, 1 << 9, (1 << 25) + (1 << 9) - 1, 10)


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
