"""The bound by hand: what several overlaps at one step can and cannot save together."""

from __future__ import annotations

import pytest

from emitc.planner import Buffer, Distance, LiveRange
from emitc.planner.lower_bound import LowerBound, _best_subset, bytes_saved, held_bytes, lower_bound
from emitc.planner.problem import Overlap, problem_of, saving_of


def _at_one_step(sizes: dict[str, int], distances: list[Distance]) -> int:
    buffers = [Buffer(name, size, LiveRange(0, 1)) for name, size in sizes.items()]
    return lower_bound(problem_of(buffers, distances, 16)).size_bytes


@pytest.mark.parametrize(
    ("sizes", "distances", "bound"),
    [
        pytest.param({"a": 32, "b": 64}, [], 96, id="disjoint"),
        pytest.param({"a": 32, "b": 64, "c": 16}, [Distance("a", "b", 0)], 80, id="pair_and_bystander"),
        pytest.param(
            {"a": 64, "b": 64, "y": 64}, [Distance("a", "y", 0), Distance("b", "y", 0)], 128, id="two_inputs_in_place"
        ),
        # y = 64 over a and b, which may share 16 bytes each with it: neither pair stops the other.
        pytest.param(
            {"a": 64, "b": 64, "y": 64}, [Distance("a", "y", 48), Distance("b", "y", 48)], 160, id="two_small_overlaps"
        ),
        pytest.param(
            {"a": 64, "b": 64, "c": 32, "d": 32}, [Distance("a", "b", 0), Distance("c", "d", 16)], 112, id="two_groups"
        ),
        # A ring: no single buffer costs more than it adds, yet the two that are not neighbours in it cover most.
        pytest.param(
            {"a": 16, "b": 16, "c": 16, "d": 32},
            [Distance("a", "b", 0), Distance("a", "c", 0), Distance("d", "b", 0), Distance("d", "c", 0)],
            48,
            id="ring_of_four",
        ),
        pytest.param(
            {f"b{i}": 64 for i in range(8)},
            [Distance(f"b{i}", f"b{j}", 0) for i in range(8) for j in range(i)],
            64,
            id="all_on_top_of_one_another",
        ),
        pytest.param(
            {"y": 64, **{f"b{i}": 64 for i in range(8)}},
            [Distance(f"b{i}", "y", 0) for i in range(8)],
            512,
            id="many_inputs_in_place_of_one_output",
        ),
    ],
)
def test_overlaps_at_one_step(sizes: dict[str, int], distances: list[Distance], bound: int) -> None:
    assert _at_one_step(sizes, distances) == bound


def test_the_first_of_equal_steps_is_the_peak() -> None:
    buffers = [
        Buffer("late", 48, LiveRange(3, 6)),
        Buffer("b", 16, LiveRange(1, 3)),
        Buffer("a", 16, LiveRange(1, 2)),
        Buffer("c", 32, LiveRange(0, 2)),
        Buffer("d", 16, LiveRange(5, 6)),
    ]
    problem = problem_of(buffers, [], 16)
    assert held_bytes(problem) == {0: 32, 1: 64, 3: 48, 5: 64}
    assert lower_bound(problem) == LowerBound(64, 1, ("c", "a", "b"), {0: 32, 1: 64, 3: 48, 5: 64})


def test_a_saving_counts_only_where_both_are_alive() -> None:
    buffers = [Buffer("x", 64, LiveRange(0, 2)), Buffer("y", 64, LiveRange(1, 3)), Buffer("z", 32, LiveRange(2, 3))]
    assert held_bytes(problem_of(buffers, [Distance("x", "y", 0)], 16)) == {0: 64, 1: 64, 2: 96}


def test_a_pair_alone_saves_what_the_search_of_all_subsets_finds() -> None:
    for left, right, above in ((32, 64, 16), (64, 32, 48), (64, 64, 0), (64, 64, -128), (16, 160, 160)):
        sizes = {0: left, 1: right}
        pair = Overlap(0, 1, saving_of(left, right, above, left))
        assert bytes_saved([left, right], [pair]) == left + right - _best_subset(sizes, [pair])
