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
        offset = lowest(problem, offsets, i)
        if limit is not None and offset + problem.sizes[i] > limit:
            return None
        offsets[i] = offset
    return offsets


def lowest(problem: Problem, offsets: Sequence[int], i: int) -> int:
    """The lowest offset that the placed neighbours of buffer `i` leave."""
    forbidden = []
    for other, below, above in problem.neighbours[i]:  # written for speed: a hill climb calls this most
        base = offsets[other]
        if base >= 0:
            forbidden.append((base - below, base + above))
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
