"""The checker refuses every tampered plan with the buffers, the offsets and the rule in its message."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from emitc.planner import Buffer, Distance, LiveRange, Placement, Plan, PlanError, check, plan

BUFFERS = (
    Buffer("a", 64, LiveRange(0, 2)),
    Buffer("b", 32, LiveRange(1, 3), 32),
    Buffer("c", 64, LiveRange(2, 4)),
    Buffer("d", 64, LiveRange(3, 5)),
)
DISTANCES = (Distance("c", "d", above=16, below=48),)


def _plan(*offsets: int) -> Plan:
    """The four buffers at `offsets`, with honest claims: the bound is 96 at step 1."""
    placements = tuple(
        Placement(buffer.name, buffer.size_bytes, offset, buffer.live)
        for buffer, offset in zip(BUFFERS, offsets, strict=True)
    )
    arena = max(placement.offset_bytes + placement.size_bytes for placement in placements)
    return Plan(arena, 32, placements, 96, arena == 96, 1, ("a", "b"))


def test_the_planner_s_own_plan_is_accepted() -> None:
    result = plan(BUFFERS, DISTANCES)
    assert result.arena_bytes == 96
    check(BUFFERS, DISTANCES, result, 16)


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param((0, 64, 0, 48), id="below_at_its_distance"),
        pytest.param((0, 96, 16, 0), id="above_at_its_distance"),
        pytest.param((0, 64, 0, 64), id="disjoint"),
    ],
)
def test_legal_plans_are_accepted(offsets: tuple[int, ...]) -> None:
    check(BUFFERS, DISTANCES, _plan(*offsets), 16)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        pytest.param(
            (48, 64, 0, 48),
            "buffers 'a' at offset 48 (64 B) and 'b' at offset 64 (32 B) are alive together in steps [1, 2) and too "
            "close: the first must lie at least 32 above or 64 below the second",
            id="collision",
        ),
        pytest.param(
            (0, 64, 0, 32),
            "buffers 'c' at offset 0 (64 B) and 'd' at offset 32 (64 B) are alive together in steps [3, 4) and too "
            "close: the first must lie at least 16 above or 48 below the second",
            id="one_alignment_unit_under_its_distance",
        ),
        pytest.param((0, 80, 0, 48), "buffer 'b' at offset 80 is not a multiple of 32", id="own_alignment"),
        pytest.param((8, 96, 0, 48), "buffer 'a' at offset 8 is not a multiple of 16", id="grid"),
        pytest.param((-16, 64, 0, 48), "buffer 'a' at offset -16 starts before the arena", id="negative"),
    ],
)
def test_illegal_offsets_are_refused(offsets: tuple[int, ...], message: str) -> None:
    _refused(_plan(*offsets), message)


def test_a_record_in_either_direction_is_honoured() -> None:
    turned = (Distance("d", "c", above=48, below=16),)
    check(BUFFERS, turned, _plan(0, 64, 0, 48), 16)
    with pytest.raises(PlanError, match="must lie at least 48 above or 16 below the second"):
        check(BUFFERS, turned, _plan(0, 64, 0, 32), 16)


def test_moving_a_buffer_of_a_full_plan_by_one_unit_is_refused() -> None:
    buffers = [Buffer(f"b{i}", 16 * (i + 1), LiveRange(0, 1)) for i in range(4)]
    result = plan(buffers)
    check(buffers, (), result, 16)
    for i, placement in enumerate(result.placements):
        for moved in (placement.offset_bytes - 16, placement.offset_bytes + 16):
            placements = list(result.placements)
            placements[i] = replace(placement, offset_bytes=moved)
            with pytest.raises(PlanError, match=re.escape(f"{placement.name!r} at offset {moved} ")):
                check(buffers, (), replace(result, placements=tuple(placements)), 16)


def test_missing_foreign_and_repeated_buffers_are_refused() -> None:
    good = _plan(0, 64, 0, 48)
    _refused(replace(good, placements=good.placements[:3]), "buffer 'd' is not placed")
    foreign = replace(good.placements[0], name="z")
    _refused(replace(good, placements=(*good.placements, foreign)), "buffer 'z' is placed but was not asked for")
    again = replace(good.placements[0], offset_bytes=16)
    _refused(replace(good, placements=(*good.placements, again)), "buffer 'a' is placed twice, at offsets 0 and 16")


def test_changed_sizes_and_ranges_are_refused() -> None:
    good = _plan(0, 64, 0, 48)
    smaller = replace(good.placements[0], size_bytes=48)
    _refused(
        replace(good, placements=(smaller, *good.placements[1:])),
        "buffer 'a' at offset 0 is placed with 48 B alive in [0, 2), asked for with 64 B alive in [0, 2)",
    )
    shorter = replace(good.placements[0], live=LiveRange(0, 1))
    _refused(
        replace(good, placements=(shorter, *good.placements[1:])),
        "buffer 'a' at offset 0 is placed with 64 B alive in [0, 1), asked for with 64 B alive in [0, 2)",
    )


def test_false_claims_are_refused() -> None:
    good = _plan(0, 64, 0, 48)
    assert good.arena_bytes == 112
    _refused(replace(good, arena_bytes=96), "buffer 'd' at offset 48 ends at 112, past the arena of 96 B")
    _refused(replace(good, arena_bytes=120), "arena of 120 B is not a multiple of 16")
    _refused(replace(good, alignment=16), "arena aligned to 16 cannot keep a buffer aligned to 32")
    _refused(replace(good, lower_bound_bytes=128), "lower bound 128 B is above the arena of 112 B")
    _refused(replace(good, proven=True), "proven is True with an arena of 112 B and a lower bound of 96 B")
    _refused(replace(good, peak_step=2), "peak at step 2 names ('a', 'b'), alive are ['b', 'c']")


def test_refuses_an_offset_that_is_no_multiple() -> None:
    live = LiveRange(0, 1)
    buffers = (Buffer("a", 32, live), Buffer("b", 32, live, multiple=48))
    good = plan(buffers)
    assert {p.name: p.offset_bytes % 48 for p in good.placements}["b"] == 0 and good.alignment == 16
    placements = (Placement("a", 32, 0, live), Placement("b", 32, 32, live))
    with pytest.raises(PlanError, match="buffer 'b' at offset 32 is not a multiple of 48"):
        check(buffers, (), replace(good, arena_bytes=64, placements=placements), 16)


def _refused(tampered: Plan, message: str) -> None:
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        check(BUFFERS, DISTANCES, tampered, 16)
