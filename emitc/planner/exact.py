"""Whether a problem fits into a given height, answered for certain: for problems of the size of most networks.

The bound of `emitc.planner.bound` looks at one step at a time. A chain of operators that each write a little below their
input needs more: the distances add up along it. So where the packing stays above the bound, this search takes the question
"one unit less?" apart: of two buffers alive together one lies above the other, by its distance or its size. Both ways are
tried, pair by pair; each narrows the range of offsets that the buffers have left, and most pairs have but one way left then.
When all ways are dead ends there is no such packing: that is a proof, and needs no solver.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from emitc.planner.buffers import round_up
from emitc.planner.greedy import height
from emitc.planner.problem import Problem

_WORK = 600_000
"""Pairs looked at for one question, about a second of Python; then there is no answer."""
_LARGEST = 4_000
"""Pairs of a problem that the question is asked about at all: with more it is not answered in time."""
_QUESTIONS = 6


class _Pair(NamedTuple):
    """offset(one) - offset(other) >= above, or offset(other) - offset(one) >= below."""

    one: int
    other: int
    above: int
    below: int


class _Open(Enum):
    """What became of a question beside a list of offsets. NONE: there is no packing. UNKNOWN: the work ran out."""

    NONE = 0
    UNKNOWN = 1


def lowest_or_best(problem: Problem, offsets: list[int], bound: int, effort: float = 1.0) -> tuple[list[int], bool]:
    """(offsets that end as low as `offsets` or lower, whether no packing ends lower); `bound` is what none goes below.

    `effort`: share of the usual work of each question.
    """
    if sum(len(near) for near in problem.neighbours) > 2 * _LARGEST:
        return offsets, height(problem, offsets) <= bound
    for _ in range(_QUESTIONS):
        top = height(problem, offsets)
        if top <= bound:
            return offsets, True
        found = _Search(problem, top - problem.grid, int(_WORK * effort)).answer()
        if found is _Open.NONE:
            return offsets, True
        if isinstance(found, _Open):
            break
        offsets = found
    return offsets, height(problem, offsets) <= bound


class _State(NamedTuple):
    """The offsets that are left to each buffer, [low, high], and the way of each pair that is settled: 0, or 1 or 2."""

    low: list[int]
    high: list[int]
    ways: bytearray


class _Search:
    """The question whether `problem` fits into `limit` bytes."""

    def __init__(self, problem: Problem, limit: int, work: int = _WORK) -> None:
        self._problem = problem
        self._work = work
        self._pairs = [
            _Pair(i, other, above, below)
            for i, near in enumerate(problem.neighbours)
            for other, below, above in near
            if other < i
        ]
        self._of: list[list[int]] = [[] for _ in problem.sizes]
        for index, pair in enumerate(self._pairs):
            self._of[pair.one].append(index)
            self._of[pair.other].append(index)
        high = [(limit - size) // grid * grid for size, grid in zip(problem.sizes, problem.alignments, strict=True)]
        self._start = _State([0] * len(high), high, bytearray(len(self._pairs)))

    def answer(self) -> list[int] | _Open:
        """Offsets, or why there are none."""
        if min(self._start.high, default=0) < 0:
            return _Open.NONE
        if not self._narrowed(self._start, range(len(self._pairs))):
            return _Open.NONE
        waiting = [self._start]
        while waiting:
            state = waiting.pop()
            index = self._widest(state)
            if index is None:
                return state.low
            for way in (1, 2):
                following = _State(state.low[:], state.high[:], state.ways[:])
                following.ways[index] = way
                if self._narrowed(following, (index,)):
                    waiting.append(following)
                if self._work <= 0:
                    return _Open.UNKNOWN
        return _Open.NONE

    def _widest(self, state: _State) -> int | None:
        """The open pair of the largest buffers; None when all are settled, and every buffer may lie at its lowest offset."""
        sizes = self._problem.sizes
        best, most = None, -1
        for index, way in enumerate(state.ways):
            if not way:
                pair = self._pairs[index]
                least = min(sizes[pair.one], sizes[pair.other])
                if least > most:
                    best, most = index, least
        self._work -= len(state.ways) // 8
        return best

    def _narrowed(self, state: _State, changed: Iterable[int]) -> bool:
        """Takes from every buffer the offsets that its settled pairs forbid, and settles pairs with one way left.

        False when some pair has none.
        """
        low, high, ways = state
        alignments = self._problem.alignments
        queue = list(dict.fromkeys(changed))
        queued = bytearray(len(self._pairs))
        for index in queue:
            queued[index] = 1
        while queue:
            index = queue.pop()
            queued[index] = 0
            self._work -= 1
            one, other, above, below = self._pairs[index]
            if not ways[index]:
                first = high[one] - low[other] >= above
                second = high[other] - low[one] >= below
                if not first and not second:
                    return False
                if first and second:
                    continue
                ways[index] = 1 if first else 2
            if ways[index] == 1:
                upper, lower, least = one, other, above
            else:
                upper, lower, least = other, one, below
            moved = []
            if low[lower] + least > low[upper]:
                low[upper] = round_up(low[lower] + least, alignments[upper])
                moved.append(upper)
            if high[upper] - least < high[lower]:
                high[lower] = (high[upper] - least) // alignments[lower] * alignments[lower]
                moved.append(lower)
            for buffer in moved:
                if low[buffer] > high[buffer]:
                    return False
                for near in self._of[buffer]:
                    if not queued[near]:
                        queued[near] = 1
                        queue.append(near)
        return True
