"""Sigmoid and tanh of 16-bit values by a table of the sigmoid, as TFLite has them for int16 and inside its quantized LSTM.

The table has sigmoid(i / 24) in Q0.16 for i in 0..255; between two entries values lie on the chord. Since sigmoid is concave
there, every entry is raised by half of what the chord lacks in its middle: sigmoid''/16 of the step squared. Both functions
are odd about their middle, and tanh(v) = 2 sigmoid(2 v) - 1.
Source: the table's 256 values and the rounding are those of TensorFlow Lite (compared in tests).
"""

import math

import numpy as np

from emitc.ir import BoundNode
from emitc.layer import Layer, Table, in_step, integers
from emitc.numerics.requantize import Int64
from emitc.records import dataclass

_STEPS_PER_UNIT = 24
_ENTRIES = 256
_LAST = _ENTRIES - 1


def _entry(index: int) -> int:
    s = 1.0 / (1.0 + math.exp(-index / _STEPS_PER_UNIT))
    curvature = s * (1 - s) * (1 - 2 * s)
    return round(2**16 * (s - curvature / (16 * _STEPS_PER_UNIT**2)))


SIGMOID = (*(_entry(index) for index in range(_LAST)), 2**16 - 1)
"""The table; the last entry is the limit."""
_VALUES = np.array(SIGMOID, np.int64)
MAX_LEFT = 14
"""Furthest shift to the left of an int16 value times 3 that stays within 32 bits."""


def sigmoid_table() -> Table:
    return Table("sigmoid", "uint16_t", SIGMOID, "sigmoid of i / 24 in Q0.16, for linear interpolation")


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
        """Quantized results of quantized values."""
        v = (q * self.multiplier + self.rounding) >> self.right
        magnitude = np.abs(v)
        index = np.minimum(magnitude >> self.bits, _LAST - 1)
        rest = magnitude & ((1 << self.bits) - 1)
        between = (_VALUES[index] << self.bits) + rest * (_VALUES[index + 1] - _VALUES[index])
        sigmoid = np.where(magnitude >> self.bits < _LAST, between, self.saturated)
        return np.where(v >= 0, self.above + sigmoid, self.below - sigmoid) >> self.output_right

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


def sigmoid_of(multiplier: int, right: int) -> Interpolation:
    """In Q0.15, of values that these scale to units of 1/12288: half up above 0, the mirror image below."""
    return Interpolation(multiplier, right, 9, 0x7FFF << 10, 1 << 9, (1 << 25) + (1 << 9) - 1, 10)


def tanh_of(multiplier: int, right: int) -> Interpolation:
    """The same for tanh."""
    return Interpolation(multiplier, right, 8, 0xFFFF << 8, (1 << 7) - (1 << 23), (1 << 23) + (1 << 7) - 1, 8)


def sigmoid_q15(x: Int64) -> Int64:
    """Sigmoid of Q3.12 values in Q0.15."""
    return sigmoid_of(3, 0).apply(x)


def tanh_scaling(exponent: int) -> tuple[int, int]:
    """For tanh of values in units of 2**exponent: what they are multiplied by, and shifted right by after that."""
    left = 12 + exponent
    return (3 << left, 0) if left >= 0 else (3, -left)


def tanh_q15(x: Int64, exponent: int) -> Int64:
    """Tanh of int16 values in units of 2**exponent, in Q0.15."""
    return tanh_of(*tanh_scaling(exponent)).apply(x)
