"""The packing problem in integers: buffers by index, sizes and distances rounded to one alignment grid.

Rounding loses nothing: all offsets are multiples of the grid, so a difference of two offsets that is at least a
size or a distance is also at least that number rounded up.
"""

from bisect import bisect_left
from collections.abc import Sequence
from math import lcm
from typing import TypeAlias

from emitc.planner.buffers import Buffer, Distance, LiveRange, require_alignment, round_up
from emitc.records import dataclass

Neighbour: TypeAlias = tuple[int, int, int]
"""(other, below, above): a buffer `other` alive together with the owner of this record, and where the owner may not start, which
is strictly between offset(other) - below and offset(other) + above. Plain tuples, since first fit unpacks a great many of them.
"""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A pair that need not be disjoint: `saving` is the largest number of bytes the two can share."""

    left: int
    right: int
    saving: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Buffers 0..n-1. `sizes` are multiples of `grid`, `alignments` hold for offsets and are multiples of `grid`.

    `neighbours[i]` lists, by ascending index, every buffer that constrains buffer i. `overlaps` lists the pairs
    with a distance that lets them share bytes.
    """

    grid: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    alignments: tuple[int, ...]
    lives: tuple[LiveRange, ...]
    neighbours: tuple[tuple[Neighbour, ...], ...]
    overlaps: tuple[Overlap, ...]


def problem_of(buffers: Sequence[Buffer], distances: Sequence[Distance], alignment: int) -> Problem:
    """The problem that `buffers` and `distances` state on the grid `alignment`, in bytes.

    Raises ValueError, always for a mistake of the caller: an alignment that is not a power of two, or two buffers of one name.
    The same for a distance of a buffer to itself, to an unknown buffer or between buffers that are never alive together.
    The same for two distances of one pair, and for a distance above what disjoint buffers need.
    """
    require_alignment(alignment, "plan")
    index_of = {buffer.name: index for index, buffer in enumerate(buffers)}
    if len(index_of) != len(buffers):
        names = [buffer.name for buffer in buffers]
        raise ValueError(f"two buffers are named {next(n for n in names if names.count(n) > 1)!r}")
    sizes = tuple(round_up(buffer.size_bytes, alignment) for buffer in buffers)
    relaxed = _relaxed(buffers, distances, index_of, sizes, alignment)
    neighbours: list[list[Neighbour]] = [[] for _ in buffers]
    for right, left in _alive_together([buffer.live for buffer in buffers]):
        above, below = relaxed.get((left, right), (sizes[right], sizes[left]))
        if above + below > 0:
            neighbours[left].append((right, below, above))
            neighbours[right].append((left, above, below))
    overlaps = tuple(
        Overlap(left, right, saving)
        for (left, right), (above, below) in relaxed.items()
        if (saving := saving_of(sizes[left], sizes[right], above, below)) > 0
    )
    return Problem(
        grid=alignment,
        names=tuple(buffer.name for buffer in buffers),
        sizes=sizes,
        alignments=tuple(lcm(max(alignment, buffer.alignment), buffer.multiple) for buffer in buffers),
        lives=tuple(buffer.live for buffer in buffers),
        neighbours=tuple(tuple(near) for near in neighbours),
        overlaps=overlaps,
    )


def steps_within(steps: Sequence[int], live: LiveRange) -> Sequence[int]:
    """Those of the sorted `steps` that lie in a live range."""
    return steps[bisect_left(steps, live.first) : bisect_left(steps, live.end)]


def _alive_together(lives: Sequence[LiveRange]) -> list[tuple[int, int]]:
    """Every pair (i, j), j < i, of ranges that overlap, sorted: each is found where the later one of them starts."""
    steps = sorted({live.first for live in lives})
    alive: dict[int, list[int]] = {step: [] for step in steps}
    for i, live in enumerate(lives):
        for step in steps_within(steps, live):
            alive[step].append(i)
    starts = [live.first for live in lives]
    return sorted(
        (i, j) if i > j else (j, i)
        for i, start in enumerate(starts)
        for j in alive[start]
        if starts[j] < start or j < i
    )


def _relaxed(
    buffers: Sequence[Buffer],
    distances: Sequence[Distance],
    index_of: dict[str, int],
    sizes: Sequence[int],
    alignment: int,
) -> dict[tuple[int, int], tuple[int, int]]:
    """{(i, j): (above, below)} with i < j: offset i - offset j >= above, or offset j - offset i >= below."""
    relaxed: dict[tuple[int, int], tuple[int, int]] = {}
    for distance in distances:
        label = f"distance of {distance.buffer!r} to {distance.other!r}"
        for name in (distance.buffer, distance.other):
            if name not in index_of:
                raise ValueError(f"{label}: there is no buffer {name!r}")
        i, j = index_of[distance.buffer], index_of[distance.other]
        if i == j:
            raise ValueError(f"{label}: a buffer has no distance to itself")
        if not buffers[i].live.overlaps(buffers[j].live):
            raise ValueError(f"{label}: the two are never alive together")
        above = sizes[j] if distance.above is None else round_up(distance.above, alignment)
        below = sizes[i] if distance.below is None else round_up(distance.below, alignment)
        if above > sizes[j] or below > sizes[i]:
            raise ValueError(f"{label}: above {distance.above}, below {distance.below} ask for more than disjoint")
        pair, clearance = ((i, j), (above, below)) if i < j else ((j, i), (below, above))
        if pair in relaxed:
            raise ValueError(f"{label}: the pair already has a distance")
        relaxed[pair] = clearance
    return relaxed


def saving_of(left: int, right: int, above: int, below: int) -> int:
    """The largest number of bytes that buffers of sizes `left` and `right` can share at a legal distance.

    With `left` d >= above bytes over `right` they share at most right - above bytes, reached at d = above unless
    the smaller one already lies within the other; the other direction is the mirror image.
    """
    return max(0, min(left, right, max(right - above, left - below)))
