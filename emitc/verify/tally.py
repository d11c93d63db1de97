"""Arrays of a proof compared and counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from emitc.ir import Array
from emitc.verify.tolerances import EXACT, Tolerance, compared


@dataclass(slots=True)
class Tally:
    """Elements compared so far. tolerated: those whose bits differ within their rule's tolerance."""

    elements: int = 0
    differing: int = 0
    max_abs_diff: float = 0.0
    tolerated: int = 0

    def add(self, actual: Array, expected: Array, rule: Tolerance = EXACT) -> int:
        """Compares two arrays under a rule; returns how many elements break it."""
        result = compared(actual, expected, rule)
        self.elements += actual.size
        self.differing += result.differing
        self.tolerated += result.tolerated
        self.max_abs_diff = max(self.max_abs_diff, result.largest)
        return result.differing

    def with_those_of(self, other: Tally) -> Tally:
        return Tally(
            self.elements + other.elements,
            self.differing + other.differing,
            max(self.max_abs_diff, other.max_abs_diff),
            self.tolerated + other.tolerated,
        )


def finite(value: float) -> float | None:
    """The number, or None where one of the two values that differ is infinite or not a number: JSON has neither."""
    return value if math.isfinite(value) else None


def difference(actual: Array, expected: Array) -> tuple[int, float]:
    """Elements whose bits differ, and the largest absolute difference of their values."""
    result = compared(actual, expected)
    return result.differing, result.largest
