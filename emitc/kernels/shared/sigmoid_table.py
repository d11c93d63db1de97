"""Sigmoid and tanh of 16-bit values by a table of the sigmoid, as TFLite has them for int16 and inside its quantized LSTM.

The table has sigmoid(i / 24) in Q0.16 for i in 0..255; between two entries values lie on the chord. Since sigmoid is concave
there, every entry is raised by half of what the chord lacks in its middle: sigmoid''/16 of the step squared. Both functions
are odd about their middle, and tanh(v) = 2 sigmoid(2 v) - 1.
Source: the table's 256 values and the rounding are those of TensorFlow Lite (compared in tests).
"""

import math

import numpy as np

from emitc.layer import Table
from emitc.numerics.requantize import Int64

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


def _between(magnitude: Int64, bits: int, beyond: int) -> Int64:
    """Sigmoid of magnitude / (24 * 2**bits), with as many more bits; `beyond` from the last entry on."""
    index = np.minimum(magnitude >> bits, _LAST - 1)
    fraction = magnitude & ((1 << bits) - 1)
    inside = (_VALUES[index] << bits) + fraction * (_VALUES[index + 1] - _VALUES[index])
    return np.where(magnitude >> bits >= _LAST, beyond, inside)


def sigmoid_q15(x: Int64) -> Int64:
    """Sigmoid of Q3.12 values in Q0.15: half up above 0, the mirror image below."""
    scaled = 3 * x
    magnitude = _between(np.abs(scaled), 9, 0x7FFF << 10)
    return np.where(scaled >= 0, magnitude + (1 << 9), (1 << 25) - magnitude + (1 << 9) - 1) >> 10


def tanh_scaling(exponent: int) -> tuple[int, int]:
    """For tanh of values in units of 2**exponent: what they are multiplied by, and shifted right by after that."""
    left = 12 + exponent
    return (3 << left, 0) if left >= 0 else (3, -left)


def tanh_q15(x: Int64, exponent: int) -> Int64:
    """Tanh of int16 values in units of 2**exponent, in Q0.15."""
    factor, right = tanh_scaling(exponent)
    scaled = (x * factor + ((1 << right) >> 1)) >> right
    magnitude = _between(np.abs(scaled), 8, 0xFFFF << 8) - (1 << 23)
    return np.where(scaled >= 0, magnitude + (1 << 7), (1 << 7) - 1 - magnitude) >> 8
