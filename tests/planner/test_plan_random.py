"""Random problems: every plan passes the checker, and the bound never exceeds the true optimum."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emitc.planner import Buffer, Distance, LiveRange, check, plan
from emitc.planner.bound import _best_subset, _descent
from emitc.planner.problem import Overlap

GRID = 16
EXAMPLES = settings(max_examples=300, derandomize=True, deadline=None, database=None)
Problem = tuple[list[Buffer], list[Distance]]


@st.composite
def problems(draw: st.DrawFn, max_buffers: int, max_bytes: int, max_steps: int, relax: bool = True) -> Problem:
    """Buffers with random sizes and ranges; about half of the pairs alive together get a random distance."""
    buffers = []
    for i in range(draw(st.integers(0, max_buffers))):
        first = draw(st.integers(0, max_steps - 1))
        end = draw(st.integers(first + 1, max_steps))
        buffers.append(Buffer(f"b{i}", draw(st.integers(0, max_bytes)), LiveRange(first, end)))
    distances = []
    for i, left in enumerate(buffers):
        for right in buffers[:i]:
            if relax and left.live.overlaps(right.live) and draw(st.booleans()):
                above = draw(st.none() | st.integers(-40, right.size_bytes))
                below = draw(st.none() | st.integers(-40, left.size_bytes))
                distances.append(Distance(left.name, right.name, above, below))
    return buffers, distances


@EXAMPLES
@given(problems(max_buffers=10, max_bytes=600, max_steps=6))
def test_every_plan_is_legal(problem: Problem) -> None:
    buffers, distances = problem
    result = plan(buffers, distances)
    check(buffers, distances, result, GRID)
    assert result.lower_bound_bytes <= result.arena_bytes
    assert result.proven == (result.lower_bound_bytes == result.arena_bytes)
    assert plan(buffers, distances) == result


@EXAMPLES
@given(problems(max_buffers=5, max_bytes=64, max_steps=4))
def test_the_bound_never_exceeds_the_optimum(problem: Problem) -> None:
    buffers, distances = problem
    result = plan(buffers, distances)
    optimum = _optimum(buffers, distances, result.arena_bytes)
    assert result.lower_bound_bytes <= optimum <= result.arena_bytes


@EXAMPLES
@given(problems(max_buffers=5, max_bytes=64, max_steps=1))
def test_the_bound_never_exceeds_the_optimum_of_one_step(problem: Problem) -> None:
    buffers, distances = problem
    result = plan(buffers, distances)
    assert result.lower_bound_bytes <= _optimum(buffers, distances, result.arena_bytes)


@EXAMPLES
@given(problems(max_buffers=5, max_bytes=64, max_steps=4, relax=False))
def test_small_disjoint_problems_are_planned_optimally(problem: Problem) -> None:
    buffers, _ = problem
    result = plan(buffers)
    assert result.arena_bytes == _optimum(buffers, [], result.arena_bytes)


@EXAMPLES
@given(st.data())
def test_dropping_buffers_one_by_one_never_exceeds_the_best_subset(data: st.DataObject) -> None:
    sizes = dict(enumerate(data.draw(st.lists(st.integers(1, 50), min_size=2, max_size=7))))
    overlaps = [
        Overlap(left, right, data.draw(st.integers(1, min(sizes[left], sizes[right]))))
        for left in sizes
        for right in range(left)
        if data.draw(st.booleans())
    ]
    descent, best = _descent(sizes, overlaps), _best_subset(sizes, overlaps)
    assert max(sizes.values()) <= best
    assert sum(sizes.values()) - sum(pair.saving for pair in overlaps) <= descent <= best


def _optimum(buffers: list[Buffer], distances: list[Distance], known: int) -> int:
    """The smallest arena of all, by trying every offset on the grid that beats the `known` one."""
    relaxed = {(d.buffer, d.other): (d.above, d.below) for d in distances}
    offsets: list[int] = []
    best = known

    def legal(i: int, offset: int) -> bool:
        for j in range(i):
            if buffers[i].live.overlaps(buffers[j].live):
                above, below = relaxed.get((buffers[i].name, buffers[j].name), (None, None))
                far_above = offset - offsets[j] >= (buffers[j].size_bytes if above is None else above)
                far_below = offsets[j] - offset >= (buffers[i].size_bytes if below is None else below)
                if not (far_above or far_below):
                    return False
        return True

    def place(i: int, top: int) -> None:
        nonlocal best
        if i == len(buffers):
            best = min(best, -(-top // GRID) * GRID)
            return
        offset = 0
        while max(top, offset + buffers[i].size_bytes) <= best - GRID:
            if legal(i, offset):
                offsets.append(offset)
                place(i + 1, max(top, offset + buffers[i].size_bytes))
                offsets.pop()
            offset += GRID

    place(0, 0)
    return best
