"""Integer forms of quantized sums and products: parameters that give the wanted result for every pair of int8 values.

Two int8 operands have 65 536 pairs. Whatever arithmetic a format specifies for them, in fixed point or in float32, its
results can be tabulated while compiling. Integer parameters are then searched that reproduce the whole table. The cores
then need neither long sequences of roundings nor a float unit. None where no parameters do. Sums: clamp((a * a_weight +
b * b_weight + bias) >> right). Products: clamp(((a - a_zero) * (b - b_zero) * multiplier + bias) >> right). Where
results are ties rounded to even (scales whose ratio is a power of two), the shift rounds to even too.
"""

from collections.abc import Iterator

import numpy as np

from emitc.numerics.requantize import BYTES, Clamp, Int64
from emitc.records import dataclass

_SEARCH = range(-3, 4)
_STEPS = sorted(((i, j) for i in _SEARCH for j in _SEARCH), key=lambda s: (abs(s[0]) + abs(s[1]), s))
"""By how much a sum's two weights differ from the rounded factors, the nearest first."""
_MOVED = 128 * 3 * 2
"""By how much a step changes the sum of a pair's products at most."""
_UNBOUNDED = 1 << 40
_PRECISIONS = 4
_EVEN_BITS = 8
"""Ties are looked for in multiples of 2**-8: ratios of scales with a finer denominator have next to none."""
_INT32 = 2**31
_SATURATED_SHIFT = 8
"""A multiplier of 2**15 shifted by so much takes the product 1 from one end of int8 to the other."""
_WIDE_BITS = 20
"""Bits to the right, beyond 32, of a wide product: more takes the search out of int64, and such factors leave only constants."""


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """y = clamp((a * a_weight + b * b_weight + bias) >> right), every step within int32."""

    a_weight: int
    b_weight: int
    bias: int
    right: int


def _strictest(bounds: Int64) -> tuple[Int64, Int64, Int64]:
    """a, b and bound of the pairs whose bound can be the largest after a step of the weights."""
    kept = np.flatnonzero(bounds >= bounds.max() - 2 * _MOVED)
    return BYTES[kept >> 8], BYTES[kept & 255], bounds.reshape(-1)[kept]


def weighted_sum(
    results: Int64, a_factor: float, b_factor: float, zero: float, clamp: Clamp, widest: int = _INT32
) -> WeightedSum | None:
    """Weights under `widest` that give `results` for every pair, or None.

    results: [256, 256], the clamped result of a = -128..127 and b = -128..127, near a * a_factor + b * b_factor + zero.
    For given weights the pairs bound the bias from both sides, so that the search over weights next to the factors is
    exact; results at the ends of the clamp bound it from one side only. A step of the weights moves a bound by _MOVED at most.
    So only pairs near the strictest bound of the rounded factors are looked at again.
    """
    reach = abs(zero) + 128.0 * (abs(a_factor) + abs(b_factor)) + 1.0
    if not reach < 1 << 22:
        return None
    top = min(31 - int(reach).bit_length(), 24)
    lowest, highest = results <= clamp.low, results >= clamp.high
    for right in range(top, max(top - _PRECISIONS, 0), -1):
        one = 1 << right
        nearest = round(a_factor * one), round(b_factor * one)
        products = BYTES[:, None] * nearest[0] + BYTES[None, :] * nearest[1]
        rest = results * one - products
        least_at = _strictest(np.where(lowest, -_UNBOUNDED, rest))
        most_at = _strictest(np.where(highest, -_UNBOUNDED, 1 - one - rest))
        for step_a, step_b in _STEPS:
            weight_a, weight_b = nearest[0] + step_a, nearest[1] + step_b
            if max(abs(weight_a), abs(weight_b)) >= widest:
                continue
            least = int((least_at[2] - step_a * least_at[0] - step_b * least_at[1]).max())
            most = -int((most_at[2] + step_a * most_at[0] + step_b * most_at[1]).max())
            if least <= most:
                bias = min(max(round(zero * one) + one // 2, least), most)
                # Bounds every partial sum for all int8 values.
                if abs(bias) + 128 * (abs(weight_a) + abs(weight_b)) < 1 << 31:
                    return WeightedSum(weight_a, weight_b, bias, right)
    return None


@dataclass(frozen=True, slots=True)
class EvenSum:
    """y = clamp(round(a * a_weight + b * b_weight + bias) + offset): round divides by 2**right, ties to even."""

    a_weight: int
    b_weight: int
    bias: int
    right: int
    offset: int


def rounded_even(values: Int64, right: int) -> Int64:
    """values / 2**right to nearest, ties to even; right is at least 1."""
    return (values + ((1 << (right - 1)) - 1) + ((values >> right) & 1)) >> right


def _even_factors(*factors: float) -> Iterator[tuple[int, ...]]:
    """Bits to the right, and each factor as a multiple of 2**-right, where all are such multiples up to a float32 rounding."""
    for right in range(1, _EVEN_BITS + 1):
        scaled = [factor * (1 << right) for factor in factors]
        if all(abs(s) < 1 << 16 and abs(s - round(s)) <= abs(s) * 2.0**-20 for s in scaled):
            yield (right, *map(round, scaled))


def _room(reach: int) -> int:
    """Bits by which values up to `reach` can be shifted left to fill 30 bits, as they are in the C.

    Otherwise GCC 12 at -O3 may compute a product of 17 bits in vectors of 16.
    """
    return max(30 - reach.bit_length(), 0)


def even_sum(
    results: Int64, a_factor: float, b_factor: float, zeros: tuple[int, int, int], clamp: Clamp
) -> EvenSum | None:
    """Weights that give `results` (as in weighted_sum) with ties to even, or None. zeros: zero points of a, b and y.

    The tie is broken before or after the output's zero point is added, whichever fits.
    """
    for right, weight_a, weight_b in _even_factors(a_factor, b_factor):
        products = (BYTES - zeros[0])[:, None] * weight_a + (BYTES - zeros[1])[None, :] * weight_b
        for odd in (0, 1):
            computed = rounded_even(products + (odd << right), right) + zeros[2] - odd
            if (np.clip(computed, clamp.low, clamp.high) == results).all():
                bias = (odd << right) - zeros[0] * weight_a - zeros[1] * weight_b
                up = _room(abs(bias) + 128 * (abs(weight_a) + abs(weight_b)) + (2 << right))
                return EvenSum(weight_a << up, weight_b << up, bias << up, right + up, zeros[2] - odd)
    return None


@dataclass(frozen=True, slots=True)
class ScaledProduct:
    """y = clamp(((a - a_zero) * (b - b_zero) * multiplier + bias) >> right).

    wide: the sum has 64 bits, of which the upper half is shifted on: `right` counts from there. Otherwise all within int32.
    """

    multiplier: int
    bias: int
    right: int
    wide: bool


@dataclass(frozen=True, slots=True)
class _Steps:
    """A non-decreasing function of the product, by the places where it rises.

    From products `at` on it is at least `reached`; up to products `before` it is under `limit`. largest: product.
    Of all pairs of an `at` and a `before`, up has those where `at` is above, as (at - before, reached - limit): for each
    difference of the results, which is 0 or more, the nearest; down those where it is below, as (before - at, limit - reached):
    for each, which is 1 or more, the farthest. No other pair bounds a multiplier more.
    """

    at: Int64
    reached: Int64
    before: Int64
    limit: Int64
    largest: int
    up: tuple[Int64, Int64]
    down: tuple[Int64, Int64]

    def multipliers(self, one: int) -> tuple[int, int]:
        """Smallest and largest multiplier for which some bias fits; the smallest is greater where there is none.

        A bias fits between at * m + bias >= reached * one and before * m + bias < limit * one: each pair of an `at` and a
        `before` bounds m from one side.
        """
        (near, rise), (far, fall) = self.up, self.down
        least = -(-(rise * one + 1) // near)
        most = (fall * one - 1) // far
        return max(0, int(least.max(initial=0))), int(most.min(initial=_INT32 - 1))

    def biases(self, multiplier: int, one: int) -> tuple[int, int]:
        """Smallest and largest bias for a multiplier."""
        least = int((self.reached * one - self.at * multiplier).max(initial=-(1 << 62)))
        most = int((self.limit * one - 1 - self.before * multiplier).min(initial=1 << 62))
        return least, most

    def bias(self, multiplier: int, one: int, wanted: int) -> int:
        """The bias next to `wanted` that fits a multiplier."""
        least, most = self.biases(multiplier, one)
        assert least <= most
        return min(max(wanted, least), most)


def _steps(results: Int64, zeros: tuple[int, int, int]) -> _Steps | None:
    """The results by product; None where two pairs of one product differ, or where a larger product has a smaller result."""
    products = ((BYTES - zeros[0])[:, None] * (BYTES - zeros[1])[None, :]).reshape(-1)
    values, smallest = results.reshape(-1), int(products.min())
    by_product = np.full(int(products.max()) - smallest + 1, -_UNBOUNDED, np.int64)
    by_product[products - smallest] = values
    if (by_product[products - smallest] != values).any():
        return None
    occurring = np.flatnonzero(by_product > -_UNBOUNDED)
    products, lowest = occurring + smallest, by_product[occurring]
    if (np.diff(lowest) < 0).any():
        return None
    rises = np.flatnonzero(np.diff(lowest) > 0)
    largest = int(np.abs(products).max())
    at, reached, before, limit = products[rises + 1], lowest[rises + 1], products[rises], lowest[rises] + 1
    distances, differences = at[:, None] - before[None, :], reached[:, None] - limit[None, :]
    above, below = distances > 0, distances < 0
    near = np.full(int(differences.max(initial=0)) + 1, _INT32, np.int64)
    np.minimum.at(near, differences[above], distances[above])
    far = np.zeros(int(-differences.min(initial=0)) + 1, np.int64)
    np.maximum.at(far, -differences[below], -distances[below])
    rise, fall = np.flatnonzero(near < _INT32), np.flatnonzero(far)
    return _Steps(at, reached, before, limit, largest, (near[rise], rise), (far[fall], fall))


def scaled_product(results: Int64, factor: float, zeros: tuple[int, int, int]) -> ScaledProduct | None:
    """Parameters that give `results` for every pair, or None: in 32 bits where possible, else in 64.

    results: [256, 256], near (a - zeros[0]) * (b - zeros[1]) * factor + zeros[2], clamped, for positive factors.
    """
    steps = _steps(results, zeros)
    if steps is None or not 0.0 < factor < 1 << 22:
        return None
    if not len(steps.at):
        return ScaledProduct(0, int(results[0, 0]), 0, False)
    # A factor over 1 saturates soon, so that a smaller multiplier than the factor asks for may do.
    cap = (_INT32 - 1) // (steps.largest + 1)
    top = max(30 - int(factor * (steps.largest + 1)).bit_length(), _SATURATED_SHIFT)
    for right in range(min(top, 30), -1, -1):
        fit = _product(steps, factor, zeros[2], right, cap)
        if fit is not None and steps.largest * fit[0] + abs(fit[1]) < _INT32:
            return ScaledProduct(*fit, right, False)
    for right in range(_WIDE_BITS, -1, -1):
        if factor * 2.0 ** (32 + right) < _INT32:
            fit = _product(steps, factor, zeros[2], 32 + right, _INT32 - 1)
            if fit is not None:
                return ScaledProduct(*fit, right, True)
    return None


def _product(steps: _Steps, factor: float, zero: int, right: int, cap: int) -> tuple[int, int] | None:
    """Multiplier, at most `cap`, and bias for a number of bits to the right."""
    one = 1 << right
    least, most = steps.multipliers(one)
    if least > min(most, cap):
        return None
    multiplier = min(max(round(factor * one), least), most, cap)
    return multiplier, steps.bias(multiplier, one, zero * one + one // 2)


LEFT = 14
"""Bits by which a high product's factors are shifted to the left: of 255 * 255 it leaves a sign."""


@dataclass(frozen=True, slots=True)
class HighProduct:
    """y = clamp((high + bias) >> right), high being the upper half of (a - a_zero) * (b - b_zero) * 2**LEFT * multiplier.

    For cores with one instruction for that half. Every step is within int32.
    """

    multiplier: int
    bias: int
    right: int


def high_product(results: Int64, factor: float, zeros: tuple[int, int, int]) -> HighProduct | None:
    """Parameters that give `results` for every pair, as in scaled_product, or None.

    Only multiples of 2**18 are biases of the product with the multiplier, so that of the multipliers that do several are tried.
    """
    steps = _steps(results, zeros)
    if steps is None or not 2.0**-24 < factor < 2.0**8 or not len(steps.at):
        return None
    unit = 1 << (32 - LEFT)
    top = 30 - (int(factor * steps.largest) + abs(zeros[2])).bit_length()
    for right in range(min(top, 30), 0, -1):
        one = unit << right
        least, most = steps.multipliers(one)
        for multiplier in (round(factor * one), (least + most) // 2, least, most):
            if least <= multiplier <= most:
                low, high = steps.biases(multiplier, one)
                bias = min(max((zeros[2] << right) + (1 << right >> 1), -(-low // unit)), high // unit)
                if -(-low // unit) <= bias and abs(bias) < 1 << 30:
                    return HighProduct(multiplier, bias, right)
    return None


@dataclass(frozen=True, slots=True)
class EvenProduct:
    """y = clamp(round((a - a_zero) * (b - b_zero) * multiplier + bias) + offset), as in EvenSum."""

    multiplier: int
    bias: int
    right: int
    offset: int


def even_product(results: Int64, factor: float, zeros: tuple[int, int, int], clamp: Clamp) -> EvenProduct | None:
    """Parameters that give `results` (as in scaled_product) with ties to even, or None."""
    products = (BYTES - zeros[0])[:, None] * (BYTES - zeros[1])[None, :]
    largest = int(np.abs(products).max())
    for right, multiplier in _even_factors(factor):
        if (largest + 1) * multiplier + (2 << right) >= _INT32:
            continue
        for odd in (0, 1):
            computed = rounded_even(products * multiplier + (odd << right), right) + zeros[2] - odd
            if (np.clip(computed, clamp.low, clamp.high) == results).all():
                up = _room((largest + 1) * multiplier + (2 << right))
                return EvenProduct(multiplier << up, odd << right + up, right + up, zeros[2] - odd)
    return None
