"""First fit: buffers one by one, each at the lowest offset that its placed neighbours leave."""

from collections.abc import Sequence
from operator import add

from emitc.planner.problem import Problem

UNPLACED = -1
"""Offset of a buffer that has none yet, the only one below 0."""


def first_fit(
    problem: Problem,
    order: Sequence[int],
    *,
    placed: Sequence[int] | None = None,
    start: int = 0,
    limit: int | None = None,
) -> list[int] | None:
    """Offsets in bytes by buffer index when the buffers are placed in `order`.

    With `placed`, the offsets of `order[:start]` are taken from it and only the rest is placed. None as soon as a
    buffer would end above `limit` bytes.
    """
    offsets = [UNPLACED] * len(problem.sizes)
    if placed is not None:
        for i in order[:start]:
            offsets[i] = placed[i]
    for i in order[start:]:
        offset = _lowest(problem, offsets, i)
        if limit is not None and offset + problem.sizes[i] > limit:
            return None
        offsets[i] = offset
    return offsets


def first_fit_again(
    problem: Problem,
    order: Sequence[int],
    before: Sequence[int],
    moved: Sequence[int],
    span: tuple[int, int],
    limit: int | None,
) -> list[int] | None:
    """What `first_fit` gives for `order`, from the offsets that it gave `before`, when `moved` stood elsewhere in the order.

    span: the first and the last position at which the order may differ. None as in `first_fit`. Only those are placed anew
    that come before or after other neighbours now, or of whose neighbours one lies elsewhere.
    """
    start, last = span
    offsets = [UNPLACED] * len(problem.sizes)
    open_ = bytearray(len(problem.sizes))
    passed = {other for i in moved for other, _, _ in problem.neighbours[i]}.union(moved)
    for i in order[start : last + 1]:
        open_[i] = i in passed
    for i in order[:start]:
        offsets[i] = before[i]
    for i in order[start:]:
        offset = before[i]
        if open_[i]:
            offset = _lowest(problem, offsets, i)
            if offset != before[i]:
                for other, _, _ in problem.neighbours[i]:
                    open_[other] = 1
        if limit is not None and offset + problem.sizes[i] > limit:
            return None
        offsets[i] = offset
    return offsets


def _lowest(problem: Problem, offsets: Sequence[int], i: int) -> int:
    """The lowest offset that the placed neighbours of buffer `i` leave."""
    forbidden = [
        (base - below, base + above) for other, below, above in problem.neighbours[i] if (base := offsets[other]) >= 0
    ]
    forbidden.sort()
    alignment = problem.alignments[i]
    offset = 0
    # The intervals are open and sorted by their lower end: once one starts at or above the offset, so do the rest.
    for low, high in forbidden:
        if low >= offset:
            break
        if high > offset:
            offset = -(-high // alignment) * alignment
    return offset


def height(problem: Problem, offsets: Sequence[int]) -> int:
    """Bytes from the start of the arena to the end of its highest buffer."""
    return max(map(add, offsets, problem.sizes), default=0)
