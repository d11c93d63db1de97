"""What no plan can go below: the most bytes that have to be held at one step.

At a step the buffers alive cover some set of bytes of the arena, so the arena is at least as large as that set.
Without distances the buffers are disjoint and the set has the sum of their sizes. With distances it is smaller,
by at most what the overlaps can save together:

- Buffers joined by no chain of overlaps are disjoint, so the groups that overlaps join add up.
- Within a group, any subset S covers at least (sum of sizes in S) - (sum of the savings of the pairs in S), because
  counting a byte k times takes at most its k * (k - 1) / 2 >= k - 1 pairs to count it once (Bonferroni's
  inequality). The largest value over the subsets is taken; a subset without a pair is one of them, so that one
  operator reading two inputs in place of one output is not credited twice.

The bound is exact for a group of two, the case of one operator that overlaps one input with its output.
"""

from collections.abc import Mapping, Sequence

from emitc.planner.buffers import LiveRange
from emitc.planner.problem import Overlap, Problem, steps_within
from emitc.records import dataclass

_EXHAUSTIVE_GROUP = 6
"""Groups up to this many buffers are searched over all subsets; larger ones descend from the whole group."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """`size_bytes` on the grid, the first step that sets it and the names alive there, largest first; bytes_at: `held_bytes`."""

    size_bytes: int
    step: int
    names: tuple[str, ...]
    bytes_at: Mapping[int, int]


def lower_bound(problem: Problem) -> LowerBound:
    """The bound of the module's description for `problem`; 0 bytes at step 0 when there are no buffers."""
    bytes_at = held_bytes(problem)
    if not bytes_at:
        return LowerBound(0, 0, (), bytes_at)
    size_bytes = max(bytes_at.values())
    step = min(step for step in bytes_at if bytes_at[step] == size_bytes)
    alive = [i for i, live in enumerate(problem.lives) if live.first <= step < live.end]
    alive.sort(key=lambda i: (-problem.sizes[i], problem.names[i]))
    return LowerBound(size_bytes, step, tuple(problem.names[i] for i in alive), bytes_at)


def held_bytes(problem: Problem) -> dict[int, int]:
    """{step: bytes that must be held at it}, at every step at which a buffer starts.

    The live set only grows there, so no other step holds more, and every buffer is alive at one of them.
    """
    steps = sorted({live.first for live in problem.lives})
    bytes_at = dict.fromkeys(steps, 0)
    overlaps: dict[int, list[Overlap]] = {step: [] for step in steps}
    for size, live in zip(problem.sizes, problem.lives, strict=True):
        for step in steps_within(steps, live):
            bytes_at[step] += size
    for pair in problem.overlaps:
        left, right = problem.lives[pair.left], problem.lives[pair.right]
        for step in steps_within(steps, LiveRange(max(left.first, right.first), min(left.end, right.end))):
            overlaps[step].append(pair)
    return {step: bytes_at[step] - bytes_saved(problem.sizes, overlaps[step]) for step in steps}


def bytes_saved(sizes: Sequence[int], overlaps: Sequence[Overlap]) -> int:
    """The most bytes that `overlaps` can save together, all their buffers alive at once; `sizes` by buffer index."""
    saved = 0
    for group in _groups(overlaps):
        if len(group) == 1:  # as most are: the pair saves no more than the smaller buffer
            saved += group[0].saving
            continue
        members = {i: sizes[i] for pair in group for i in (pair.left, pair.right)}
        covered = _best_subset if len(members) <= _EXHAUSTIVE_GROUP else _descent
        saved += sum(members.values()) - covered(members, group)
    return saved


def _groups(overlaps: Sequence[Overlap]) -> list[list[Overlap]]:
    """The overlaps split into the connected groups of buffers that they join."""
    groups: list[tuple[set[int], list[Overlap]]] = []
    for pair in overlaps:
        members, pairs = {pair.left, pair.right}, [pair]
        separate = []
        for other in groups:
            if other[0].isdisjoint(members):
                separate.append(other)
            else:
                members |= other[0]
                pairs = other[1] + pairs
        groups = [*separate, (members, pairs)]
    return [pairs for _, pairs in groups]


def _best_subset(sizes: dict[int, int], overlaps: Sequence[Overlap]) -> int:
    """The largest (sizes - savings of the pairs inside) over subsets of one group; every subset is a valid bound."""
    members = sorted(sizes)
    best = 0
    for mask in range(1, 1 << len(members)):
        subset = {member for bit, member in enumerate(members) if mask >> bit & 1}
        shared = sum(pair.saving for pair in overlaps if pair.left in subset and pair.right in subset)
        best = max(best, sum(sizes[i] for i in subset) - shared)
    return best


def _descent(sizes: dict[int, int], overlaps: Sequence[Overlap]) -> int:
    """The value reached from the whole group by dropping, as long as one exists, the buffer that costs most.

    A buffer costs what its pairs save beyond its own size.
    """
    shares: dict[int, dict[int, int]] = {member: {} for member in sorted(sizes)}
    for pair in overlaps:
        shares[pair.left][pair.right] = shares[pair.right][pair.left] = pair.saving
    cost = {member: sum(shares[member].values()) - sizes[member] for member in shares}
    covered = sum(sizes.values()) - sum(pair.saving for pair in overlaps)
    while cost[worst := max(cost, key=cost.__getitem__)] > 0:
        covered += cost.pop(worst)
        for other, saving in shares[worst].items():
            if other in cost:
                cost[other] -= saving
    return covered
