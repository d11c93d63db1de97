"""requantize_float: examples worked out by hand, and the definition in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from emitc.numerics.requantize import INT32_MAX, INT32_MIN, requantize_float

SIXTH = np.float32(11184811 / 2**26)
"""The float32 nearest to 1/6; three times it is 1/2 + 2**-26."""


def one(acc: int, scale: float) -> int:
    """requantize_float of one pair."""
    return int(requantize_float(np.array(acc), np.float32(scale)))


@pytest.mark.parametrize(
    ("acc", "scale", "expected"),
    [
        pytest.param(1, 0.5, 0, id="half_to_0"),
        pytest.param(3, 0.5, 2, id="one_and_a_half_to_2"),
        pytest.param(5, 0.5, 2, id="two_and_a_half_to_2"),
        pytest.param(-1, 0.5, 0, id="minus_half_to_0"),
        pytest.param(-3, 0.5, -2, id="minus_one_and_a_half_to_minus_2"),
        pytest.param(-5, 0.5, -2, id="minus_two_and_a_half_to_minus_2"),
        pytest.param(7, 0.25, 2, id="one_and_three_quarters_to_2"),
        pytest.param(2**24 + 1, 1.0, 2**24, id="accumulator_halfway_to_even_below"),
        pytest.param(2**24 + 3, 1.0, 2**24 + 4, id="accumulator_halfway_to_even_above"),
        pytest.param(-(2**24) - 3, 1.0, -(2**24) - 4, id="accumulator_halfway_negative"),
        # Between two multiples of 4, the float32 next to it: the even one is 2**25 + 2**17, so the product is 128.5.
        pytest.param(2**25 + 2**17 + 2, 2.0**-18, 128, id="accumulators_rounding_makes_a_tie"),
        pytest.param(3, SIXTH, 0, id="products_rounding_makes_the_tie_0.5"),
        pytest.param(-3, SIXTH, 0, id="products_rounding_makes_the_tie_minus_0.5"),
        pytest.param(15, SIXTH, 2, id="products_rounding_makes_the_tie_2.5"),
        pytest.param(9, SIXTH, 2, id="products_rounding_makes_the_tie_1.5"),
        pytest.param(INT32_MAX, 1.0, INT32_MAX, id="float_of_the_largest_is_2**31"),
        pytest.param(INT32_MIN, 1.0, INT32_MIN, id="lowest"),
        pytest.param(INT32_MIN, 2.0, INT32_MIN, id="under_int32"),
        pytest.param(2, 3e38, INT32_MAX, id="over_float32"),
        pytest.param(-2, 3e38, INT32_MIN, id="under_float32"),
        pytest.param(INT32_MAX, 1.1754943508222875e-38, 0, id="smallest_scale"),
    ],
)
def test_by_hand(acc: int, scale: float, expected: int) -> None:
    assert one(acc, scale) == expected


def test_a_scale_for_each_channel() -> None:
    acc = np.array([[3, 3, 3], [-100, -100, -100]], np.int64)
    scale = np.array([1.0, 0.5, 0.1], np.float32)
    found = requantize_float(acc, scale)
    assert found.dtype == np.int64
    assert found.tolist() == [[3, 2, 0], [-100, -50, -10]]


def float32_of(value: Fraction) -> Fraction:
    """The fraction rounded to 24 significant bits, ties to even."""
    if value == 0:
        return value
    unit = Fraction(2) ** (math.frexp(float(abs(value)))[1] - 24)
    rounded = round(value / unit) * unit
    # frexp saw a double, which may have been rounded up to the next power of two: half a unit would be due.
    assert abs(rounded) <= unit * 2**24
    assert abs(value) >= unit * 2**23 or rounded == unit * 2**23 * (1 if value > 0 else -1)
    return rounded


def test_it_is_its_definition_in_fractions() -> None:
    rng = np.random.default_rng(1)
    acc = rng.integers(INT32_MIN, INT32_MAX, 3000, endpoint=True) >> rng.integers(0, 32, 3000)
    scale = np.exp2(rng.uniform(-34, 2, 3000)).astype(np.float32)
    scale[::3] = (rng.integers(-999, 1000, 1000) + 0.5) / np.maximum(np.abs(acc[::3]), 1)
    scale = np.maximum(np.abs(scale), np.float32(1e-20))
    # round() of a fraction takes ties to even.
    exact = [
        round(float32_of(float32_of(Fraction(int(a))) * Fraction(float(s)))) for a, s in zip(acc, scale, strict=True)
    ]
    assert requantize_float(acc, scale).tolist() == [min(max(x, INT32_MIN), INT32_MAX) for x in exact]
