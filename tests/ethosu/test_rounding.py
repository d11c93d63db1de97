"""Shifts and scales of the host model against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from emitc.ethosu.commands import Rounding
from emitc.ethosu.execute import Overflow, product, scaled, shifted

VALUES = [0, 1, -1, 2, -2, 3, -3, 5, -5, 6, -6, 7, -7, 2**30, -(2**30), 2**31 - 1, -(2**31), 2**40 + 1, -(2**40) - 1]


def tflite(value: int, multiplier: int, shift: int) -> int:
    """TFLite's two steps: doubling high multiplication (nudged at bit 31), then a shift with half away from zero."""
    right = shift - 31
    wide = value * multiplier
    high = wide + (2**30 if wide >= 0 else 1 - 2**30)
    high = high // 2**31 if high >= 0 else -(-high // 2**31)
    exact = Fraction(high, 2**right)
    return floor(exact + Fraction(1, 2)) if exact >= 0 else -floor(-exact + Fraction(1, 2))


@pytest.mark.parametrize("shift", [1, 2, 7, 31, 40, 60])
def test_natural_rounds_half_up(shift: int) -> None:
    expected = [floor(Fraction(v, 2**shift) + Fraction(1, 2)) for v in VALUES]
    assert shifted(np.array(VALUES), shift, Rounding.NATURAL).tolist() == expected


@pytest.mark.parametrize("shift", [0, 1, 2, 7, 31, 40])
def test_truncate_goes_towards_zero(shift: int) -> None:
    assert shifted(np.array(VALUES), shift, Rounding.TRUNCATE).tolist() == [int(Fraction(v, 2**shift)) for v in VALUES]


def test_a_shift_of_nothing_changes_nothing() -> None:
    for rounding in Rounding:
        assert shifted(np.array(VALUES), 0, rounding).tolist() == VALUES


@pytest.mark.parametrize("shift", [32, 33, 35, 40, 47, 55])
def test_tfl_equals_both_roundings_of_tflite(shift: int) -> None:
    rng = np.random.default_rng(shift)
    values = np.concatenate([rng.integers(-(2**24), 2**24, 4000), np.arange(-2000, 2000)])
    multipliers = rng.integers(2**30, 2**31, len(values))
    multipliers[:1000] = 2**30  # ties of the first rounding, and after it of the second
    found = [
        int(scaled(np.array([v]), int(m), shift, Rounding.TFL)[0]) for v, m in zip(values, multipliers, strict=True)
    ]
    assert found == [tflite(int(v), int(m), shift) for v, m in zip(values, multipliers, strict=True)]


def test_the_roundings_differ_on_ties_and_negative_numbers() -> None:
    ties = np.array([-3, -1, 1, 3]) << np.int64(40)
    assert shifted(ties, 41, Rounding.TFL).tolist() == [-2, -1, 1, 2]
    assert shifted(ties, 41, Rounding.NATURAL).tolist() == [-1, 0, 1, 2]
    assert shifted(ties, 41, Rounding.TRUNCATE).tolist() == [-1, 0, 0, 1]


def test_a_shift_per_channel_is_that_of_each_channel() -> None:
    values = np.arange(-60, 60).reshape(-1, 3) << np.int64(36)
    shifts = np.array([0, 33, 40])
    for rounding in Rounding:
        each = [shifted(values[:, i], int(shifts[i]), rounding) for i in range(3)]
        assert np.array_equal(shifted(values, shifts, rounding), np.stack(each, 1))


def test_a_product_that_does_not_fit_is_refused() -> None:
    assert product(np.array([2**31]), 2**30).tolist() == [2**61]
    with pytest.raises(Overflow, match="more than 62 bits"):
        product(np.array([5, -(2**32)]), 2**31)
    with pytest.raises(Overflow):
        product(np.array([2**40]), np.array([1, 2**31]))
