"""A climb from one order of first fit to others that pack no higher, by moving one or two buffers at a time.

Thousands of orders are tried for one plan, so that this code is written for speed.
"""

import random
from collections.abc import Collection, Sequence

from emitc.planner.greedy import UNPLACED, height, lowest
from emitc.planner.problem import Problem

_SWAP = 0.1
_EARLIER = 0.5
"""Shares of moves: swap any two buffers; of the rest, place one that ends above the bound earlier, or move one that
is alive together with it."""
_ACCEPT_WORSE = 0.01


class HillClimb:
    """Climbs in one problem, until a packing ends at `bound` bytes or below. rng: what all climbs draw from, in turn."""

    def __init__(self, problem: Problem, bound: int, rng: random.Random) -> None:
        self._problem = problem
        self._bound = bound
        self._rng = rng
        self._near = [tuple(other for other, _, _ in near) for near in problem.neighbours]
        self._met = [frozenset((i, *near)) for i, near in enumerate(self._near)]

    def lowest(self, order: list[int], offsets: list[int], tries: int) -> list[int]:
        """The lowest offsets seen while moving from `order` to orders that are no worse, now and then to a worse one.

        offsets: what first fit gives for `order`; they end above the bound.
        """
        problem, bound, sizes = self._problem, self._bound, self._problem.sizes
        best, best_height = offsets, height(problem, offsets)
        current_height, high = best_height, list[int]()
        for _ in range(tries):
            high = high or [i for i in order if offsets[i] + sizes[i] > bound]
            candidate, start, last, met = self._changed(order, high)
            limit = None if self._rng.random() < _ACCEPT_WORSE else current_height
            placed = self.placed(candidate, offsets, start, met.intersection(candidate[start : last + 1]), limit)
            if placed is None:
                continue
            order, offsets, high = candidate, placed, []
            current_height = height(problem, placed)
            if current_height < best_height:
                best, best_height = placed, current_height
                if best_height <= bound:
                    break
        return best

    def _changed(self, order: list[int], high: Sequence[int]) -> tuple[list[int], int, int, frozenset[int]]:
        """(a changed copy of `order`, the first and the last position at which it may differ, those that were moved and theirs).

        Theirs are the buffers that are alive together with them. The change is aimed at a random one of `high`, which are those
        that end above the bound.
        """
        changed, at, below, chance = order[:], order.index, self._below, self._rng.random
        aim = high[below(len(high))]
        near = self._near[aim]
        if chance() < _SWAP or not near:
            source, target = below(len(order)), below(len(order))
            one, other = order[source], order[target]
            changed[source], changed[target] = other, one
            return changed, min(source, target), max(source, target), self._met[one] | self._met[other]
        if chance() < _EARLIER:
            source = at(aim)
            before = sorted(self._met[aim].intersection(order[:source]))
            target = at(before[below(len(before))]) if before else below(len(order))
        else:
            blocker = near[below(len(near))]
            others = self._near[blocker]
            source = at(blocker)
            target = at(aim) if chance() < _EARLIER else at(others[below(len(others))])
        moved = changed.pop(source)
        changed.insert(target, moved)
        return changed, min(source, target), max(source, target), self._met[moved]

    def _below(self, count: int) -> int:
        """A random number below `count`: the one that `Random.randrange` gives."""
        draw, bits = self._rng.getrandbits, count.bit_length()
        number = draw(bits)
        while number >= count:
            number = draw(bits)
        return number

    def placed(
        self, order: Sequence[int], before: Sequence[int], start: int, anew: Collection[int], limit: int | None
    ) -> list[int] | None:
        """What first fit gives for `order`, which differs from the order that it gave `before` for, from position `start` on.

        anew: buffers that were moved, or come before or after other neighbours now. Of the others only those are placed anew of
        whose neighbours one lies elsewhere. None where a buffer would end above `limit` bytes, which `before` does not.
        """
        problem, sizes, near, waiting = self._problem, self._problem.sizes, self._near, set(anew)
        offsets = [UNPLACED] * len(sizes)
        for i in order[:start]:
            offsets[i] = before[i]
        for i in order[start:]:
            if i not in waiting:
                offsets[i] = before[i]
                continue
            offsets[i] = offset = lowest(problem, offsets, i)
            if offset != before[i]:
                if limit is not None and offset + sizes[i] > limit:
                    return None
                waiting.update(near[i])
        return offsets
