"""Binomial tails and the limit of a counted rate, against sums of exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from emitc.verify.operator_checks import ENOUGH, ONE_IN, Group, chance_of_fewer, chance_of_more, highest_rate


def exactly(low: int, high: int, elements: int, rate: Fraction) -> float:
    """The chance of low..high of so many elements."""
    return float(sum(math.comb(elements, k) * rate**k * (1 - rate) ** (elements - k) for k in range(low, high + 1)))


@pytest.mark.parametrize(("count", "elements"), [(0, 5), (1, 40), (3, 40), (7, 40), (40, 40), (2, 300)])
@pytest.mark.parametrize("rate", [Fraction(1, 1000), Fraction(1, 20), Fraction(1, 3)])
def test_tails_are_exact(count: int, elements: int, rate: Fraction) -> None:
    more, fewer = exactly(count, elements, elements, rate), exactly(0, count, elements, rate)
    assert chance_of_more(count, elements, float(rate)) == pytest.approx(more, rel=1e-9, abs=1e-14)
    assert chance_of_fewer(count, elements, float(rate)) == pytest.approx(fewer, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("count", "elements"), [(0, 100), (1, 1000), (20, 2_000_000), (99, 100)])
def test_the_highest_rate_is_the_one_whose_lower_tail_is_what_confidence_leaves(count: int, elements: int) -> None:
    found = highest_rate(count, elements, 0.99)
    assert chance_of_fewer(count, elements, found) == pytest.approx(0.01, rel=1e-6)
    assert found > count / elements


def test_no_rate_is_excluded_where_everything_differs() -> None:
    assert highest_rate(7, 7, 0.99) == 1.0


@pytest.mark.parametrize(
    ("differing", "elements", "largest", "holds"),
    [
        (0, 10, 0, True),
        (1, 10, 1, True),  # a chance of one in ten thousand: in doubt
        (2, 10, 1, False),
        (2, 20_480, 1, True),  # 1.8 % at the rate that is granted
        (5, 20_480, 1, True),
        (6, 20_480, 1, False),
        (20, ENOUGH, 1, True),
        (45, ENOUGH, 1, True),
        (46, ENOUGH, 1, False),
        (94, ENOUGH, 1, False),
        (1, ENOUGH, 2, False),
    ],
)
def test_the_rule_is_broken_by_counts_that_the_rate_does_not_explain(
    differing: int, elements: int, largest: float, holds: bool
) -> None:
    assert Group("Conv", "sum", 1, elements, differing, largest).holds is holds


def test_a_count_that_breaks_the_rule_is_rarer_than_one_in_a_million() -> None:
    """At the rate that is granted, whatever the number of elements."""
    for elements in (10, 1000, ONE_IN, ENOUGH):
        first = next(k for k in range(100) if not Group("Conv", "sum", 1, elements, k, 1).holds)
        assert chance_of_more(first, elements, 1 / ONE_IN) < 1e-6
        assert chance_of_more(first - 1, elements, 1 / ONE_IN) >= 1e-6
