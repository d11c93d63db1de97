"""A packing as low as the lower bound, or the best one found within a fixed number of tries.

First fit in a few fixed orders meets the bound on nearly every network. Where it does not, `packing_within` is asked for a
packing of exactly that height, and then of heights between it and the best one known. It knows no overlaps; where only these
make the bound reachable, a hill climb changes the order of first fit a little at a time. All of it is bounded by what is
looked at, not by a clock, so the same problem gives the same plan on every machine.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from emitc.planner.branch_and_bound import exceeds, lowest_or_best
from emitc.planner.buffers import round_up
from emitc.planner.greedy import first_fit, height
from emitc.planner.hill_climb import HillClimb
from emitc.planner.problem import Problem, steps_within
from emitc.planner.skyline import packing_within

_WORK_PER_BUFFER = 20_000
_QUESTIONS, _SHARE = 5, 10
"""Work of `packing_within` at the bound, in Python two seconds for 500 buffers; the heights above it that are asked for, each
for a tenth of that work."""
_TRIES_PER_BUFFER = 800
_WORK = 4_000_000
"""Limits of all climbs together: tries, and neighbours looked at (about a second of Python at any buffer count)."""
_WITH_OVERLAPS = 4
"""So many times that, where valleys cannot be filled because there are overlaps."""
_LONG = 3
"""Steps from which a buffer counts as one that others are packed around; what an operator hands to the next has two."""
_SEED = 0


def lowest_packing(
    problem: Problem,
    bound: int,
    bytes_at: Mapping[int, int],
    effort: float = 1.0,
    target_bytes: int = 0,
    useful_bytes: int | None = None,
) -> tuple[list[int], bool]:
    """(offsets in bytes by buffer index, whether it is proven that no packing is lower).

    `bound` bytes are what none goes below, so the search stops there; `bytes_at`: what it is at each step. `effort`: share of the
    usual work. With 0 the search ends once first fit has run in every starting order. It also ends then where the result needs at
    most `target_bytes` bytes, and where no packing needs at most `useful_bytes` bytes.
    """
    if not effort:
        lowest = lowest_first_fit(problem, bound, bytes_at)
        assert lowest is not None, "no packing is above no limit"
        return lowest, height(problem, lowest) <= bound
    packings: list[tuple[list[int], list[int]]] = []
    for order in _starting_orders(problem, bytes_at):
        offsets = first_fit(problem, order)
        assert offsets is not None, "no packing is above no limit"
        if height(problem, offsets) <= bound:
            return offsets, True
        packings.append((order, offsets))
    packings.sort(key=lambda packing: height(problem, packing[1]))
    least = height(problem, packings[0][1])
    if least <= target_bytes:
        return packings[0][1], False
    if useful_bytes is not None and least > useful_bytes and exceeds(problem, useful_bytes, bound, effort):
        return packings[0][1], False
    best, proven = lowest_or_best(problem, _lower(problem, packings[0][1], bound), bound, effort)
    if proven:
        return best, True
    asked = height(problem, best)
    climb = HillClimb(problem, bound, random.Random(_SEED))
    # One climb from each order, the lowest first: a climb that is stuck rarely gets free, a fresh one often does.
    work = len(problem.sizes) + sum(len(near) for near in problem.neighbours)
    tries = min(_TRIES_PER_BUFFER * len(problem.sizes), _WORK // work) // len(packings)
    if problem.overlaps:
        tries *= _WITH_OVERLAPS
    tries = int(tries * effort)
    for order, offsets in packings:
        reached = climb.lowest(order, offsets, tries)
        if height(problem, reached) < height(problem, best):
            best = reached
        if height(problem, best) <= bound:
            break
    return lowest_or_best(problem, best, bound, effort) if height(problem, best) < asked else (best, False)


def lowest_first_fit(
    problem: Problem, bound: int, bytes_at: Mapping[int, int], limit: int | None = None
) -> list[int] | None:
    """The lowest of what first fit gives in the starting orders, None where all of it ends above `limit` bytes.

    bound, bytes_at: as in `lowest_packing`.
    """
    best = None
    for order in () if limit is not None and bound > limit else _starting_orders(problem, bytes_at):
        offsets = first_fit(problem, order, limit=limit)
        if offsets is None:
            continue
        best, top = offsets, height(problem, offsets)
        if top <= bound:
            break
        limit = top - 1  # only one that ends below the best counts
    return best


def _lower(problem: Problem, best: list[int], bound: int) -> list[int]:
    """Offsets at the bound if `packing_within` finds any, else the lowest it finds by halving the gap, else `best`."""
    work = _WORK_PER_BUFFER * len(problem.sizes)
    packing = packing_within(problem, bound, work)
    if packing is not None:
        return packing
    low, high = bound, height(problem, best)
    for _ in range(_QUESTIONS):
        middle = round_up((low + high) // 2, problem.grid)
        if not low < middle < high:
            break
        packing = packing_within(problem, middle, work // _SHARE)
        if packing is None:
            low = middle
        else:
            best, high = packing, height(problem, packing)
    return best


def _starting_orders(problem: Problem, bytes_at: Mapping[int, int]) -> Iterator[list[int]]:
    """Orders of descending difficulty, by ten measures of it, and from the last buffer to the first, where each one finds
    what trails it in place; ties keep the order of the buffers.

    `peak` is the most bytes held at any step at which a buffer is alive, `away` how many steps it is from the step
    that holds most of all.
    """
    most = max(bytes_at.values(), default=0)
    top = min((step for step in bytes_at if bytes_at[step] == most), default=0)
    sizes, lives = problem.sizes, problem.lives
    near = [len(neighbours) for neighbours in problem.neighbours]
    steps = sorted(bytes_at)
    peak = [max(bytes_at[step] for step in steps_within(steps, live)) for live in lives]
    span = [live.end - live.first for live in lives]
    away = [max(0, live.first - top, top - live.end + 1) for live in lives]
    around = [
        size + sum(sizes[other] for other, _, _ in neighbours)
        for size, neighbours in zip(sizes, problem.neighbours, strict=True)
    ]
    indices = range(len(sizes))
    keys: tuple[Callable[[int], Any], ...] = (
        lambda i: (-peak[i], -span[i]),
        lambda i: -sizes[i],
        lambda i: -sizes[i] * span[i],
        lambda i: -sizes[i] * near[i],
        lambda i: -around[i],
        lambda i: (away[i], -sizes[i]),
        lambda i: (-peak[i], -sizes[i]),
        lambda i: (-span[i], -sizes[i]),
        lambda i: (-span[i], -lives[i].first),
        lambda i: (span[i] < _LONG, -span[i] if span[i] >= _LONG else -sizes[i], lives[i].first),
        lambda i: (-lives[i].first, -lives[i].end),
    )
    return (sorted(indices, key=key) for key in keys)
