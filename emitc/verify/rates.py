"""How sure a counted rate is: exact binomial tails, with the standard library alone."""

import math


def _log_chance(count: int, elements: int, rate: float) -> float:
    """Logarithm of the chance that exactly `count` of `elements` differ where each does so with the chance `rate`."""
    ways = math.lgamma(elements + 1) - math.lgamma(count + 1) - math.lgamma(elements - count + 1)
    return ways + count * math.log(rate) + (elements - count) * math.log1p(-rate)


def chance_of_more(count: int, elements: int, rate: float) -> float:
    """The chance that `count` or more of `elements` differ where each does so with the chance `rate`, in 0..1 (both excluded)."""
    if count <= 0:
        return 1.0
    if count <= elements * rate:  # the other tail is the shorter sum
        return max(0.0, 1.0 - sum(math.exp(_log_chance(k, elements, rate)) for k in range(count)))
    total, k = 0.0, count
    while k <= elements:
        chance = math.exp(_log_chance(k, elements, rate))
        total += chance
        if chance <= total * 1e-12:
            break
        k += 1
    return min(total, 1.0)


def chance_of_fewer(count: int, elements: int, rate: float) -> float:
    """The chance that `count` or fewer of `elements` differ."""
    if count > elements * rate:  # the other tail is the shorter sum
        return max(0.0, 1.0 - chance_of_more(count + 1, elements, rate))
    return sum(math.exp(_log_chance(k, elements, rate)) for k in range(count + 1))


def highest_rate(count: int, elements: int, confidence: float) -> float:
    """The rate that the true one is below with this confidence (Clopper and Pearson's upper limit, one-sided).

    >>> round(highest_rate(0, 100_000, 0.99) * 1e5, 1)
    4.6
    """
    if count >= elements:
        return 1.0
    low, high = count / elements, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle <= 0.0 or middle >= 1.0:
            break
        if chance_of_fewer(count, elements, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high
