"""Shifts to the right with the roundings of the NPU, on int64 arrays: the arithmetic of every output of the host model."""

import numpy as np

from emitc.ethosu.commands import Array, Rounding

_PRODUCT_BITS = 62
_HIGH_BIT = 31


class Overflow(Exception):
    """A product or an accumulator has more bits than the NPU has: its result is not defined."""


def product(values: Array, multiplier: Array | int) -> Array:
    """values * multiplier in int64. Raises Overflow above 62 bits."""
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    factor = int(np.max(multiplier, initial=0)) if isinstance(multiplier, np.ndarray) else multiplier
    if largest * factor >> _PRODUCT_BITS:
        raise Overflow(f"{largest} times {factor} has more than {_PRODUCT_BITS} bits")
    return values * multiplier


def shifted(values: Array, shift: Array | int, rounding: Rounding, high_bit: int = _HIGH_BIT) -> Array:
    """values >> shift, rounded; `shift` is 0 to 63, a number or one per channel (the last axis).

    TFL adds half, and above a shift of `high_bit` also 2^(high_bit - 1) with the sign of the value. That is TFLite's
    doubling high multiplication (rounded at bit 31) and the rounding shift after it (half away from zero) in one sum.
    NATURAL rounds half up, TRUNCATE towards zero.

    >>> shifted(np.array([-3, -1, 1, 3]), 1, Rounding.NATURAL), shifted(np.array([-3, -1, 1, 3]), 1, Rounding.TRUNCATE)
    (array([-1,  0,  1,  2]), array([-1,  0,  0,  1]))
    """
    amount = np.asarray(shift, np.int64)
    if rounding is Rounding.TRUNCATE:
        return np.where(values < 0, -(-values >> amount), values >> amount)
    half = np.where(amount > 0, np.left_shift(np.int64(1), np.maximum(amount - 1, 0)), 0)
    if rounding is Rounding.TFL and bool((amount > high_bit).any()):
        nudge = np.where(amount > high_bit, np.int64(1) << np.int64(high_bit - 1), 0)
        return (values + half + np.where(values < 0, -nudge, nudge)) >> amount
    return (values + half) >> amount


def scaled(values: Array, multiplier: Array | int, shift: Array | int, rounding: Rounding) -> Array:
    """values * multiplier >> shift, rounded. Raises Overflow."""
    return shifted(product(values, multiplier), shift, rounding)
