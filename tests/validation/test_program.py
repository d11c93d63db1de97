"""The finished program executed on bytes: each technique's faults are named, and programs that are right are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.layer import AccessOrder, ChannelOrder, ElementwiseOrder, WindowOrder
from emitc.planner.region_assignment import Region
from emitc.program import Move, RowSegment
from emitc.validation import Wrong, validate
from emitc.validation.access_order import overwritten

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


def wrong(compiled: Compiled, **changes: object) -> Wrong | None:
    """What validation says of a program with some of its members replaced."""
    return validate(replace(compiled, program=replace(compiled.program, **changes)), ("alternating",), 1).wrong


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("person_detect_int8.tflite", {"ram_budget": "min"}),
        ("person_detect_int8.tflite", {"input_rows": True}),
        ("kws_ref_int8.tflite", {"target": "cortex-m55", "disabled": frozenset(("moves",))}),
        ("digits_qdq.onnx", {"regions": (Region("DTCM", 1024, 1), Region("SRAM", 65536, 4))}),
    ],
)
def test_other_schedules_are_right(model: str, options: dict[str, object]) -> None:
    compiled = compile_model(MODELS / model, **options)
    assert validate(compiled, ("alternating",), 1).wrong is None


def test_a_wrong_offset_is_found() -> None:
    compiled = compile_model(MODELS / "digits_int8.tflite", disabled=frozenset(("overlap",)))
    assert wrong(compiled) is None
    slots = compiled.program.slots
    both = [i for i, slot in enumerate(slots) if slot.first <= 2 < slot.end]
    moved = replace(slots[both[0]], offset_bytes=slots[both[1]].offset_bytes)
    found = wrong(compiled, slots=tuple(moved if i == both[0] else slot for i, slot in enumerate(slots)))
    assert found is not None and found.step in ("plan", "overlap")


def test_a_wrong_move_is_found() -> None:
    compiled = compile_model(MODELS / "kws_ref_int8.tflite")
    schedule = compiled.program.schedule
    move = next(entry for entry in schedule if isinstance(entry, Move))
    short = replace(move, size_bytes=move.size_bytes - 1)
    found = wrong(compiled, schedule=tuple(short if entry is move else entry for entry in schedule))
    assert found is not None and found.step == "moves"


def test_a_row_too_few_is_found() -> None:
    compiled = compile_model(MODELS / "person_detect_int8.tflite", ram_budget="min")
    schedule = compiled.program.schedule
    segment = next(entry for entry in schedule if isinstance(entry, RowSegment))
    call = next(call for call in segment.calls if any(use.extent == 3 for use in call.uses))
    less = replace(call, uses=tuple(replace(use, extent=use.extent - 1) for use in call.uses))
    calls = tuple(less if each is call else each for each in segment.calls)
    found = wrong(compiled, schedule=tuple(replace(e, calls=calls) if e is segment else e for e in schedule))
    assert found is not None and found.step == "streaming"
    assert "depends on rows" in found.why


@pytest.mark.parametrize(
    "walk",
    [
        ElementwiseOrder(7, 1, 4),
        ElementwiseOrder(7, 4, 1, 3),
        ElementwiseOrder(1, 1, 1),
        WindowOrder(2, 6, 5, 3, 3, 3, 3, 2, 2, 1, 1, 1, 1, 4, 8),
        WindowOrder(1, 6, 5, 6, 5, 3, 3, 1, 1, 1, 1, 1, 1, 4, 4),
        WindowOrder(1, 8, 8, 8, 8, 3, 3, 1, 1, 2, 2, 2, 2, 8, 16, 12),
        WindowOrder(1, 8, 8, 8, 8, 1, 1, 1, 1, 1, 1, 0, 0, 8, 16, 12, 4),
        WindowOrder(2, 6, 5, 6, 5, 3, 3, 1, 1, 1, 1, 1, 1, 4, 4, multiple=4),
        ChannelOrder(2, 12, 12, 6),
    ],
)
def test_the_distance_of_a_walk_is_the_least_one(walk: AccessOrder) -> None:
    """Two computations of one thing: the planner's formula, and each reading by itself."""
    distance = walk.distance_bytes()
    assert overwritten(walk, 1000 + distance, 1000) == 0
    if distance > 0:
        assert overwritten(walk, 1000 + distance - 1, 1000) > 0


def test_channels_that_follow_each_other_lie_at_multiples_of_a_pixel() -> None:
    order = ChannelOrder(1, 12, 12, 6)
    free = [distance for distance in range(-6, 49) if not overwritten(order, 200 + distance, 200)]
    assert free == [*range(0, 49, 6)]


def test_windows_of_one_channel_after_the_other_lie_at_multiples_of_a_pixel() -> None:
    """The nearest place is a row and a pixel after the output."""
    order = WindowOrder(1, 3, 4, 3, 4, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6, multiple=6)
    free = [distance for distance in range(-71, 73) if not overwritten(order, 200 + distance, 200)]
    assert free == [*range(30, 73, 6)]


def test_windows_that_meet_no_input_read_nothing() -> None:
    """Taps of a dilated window on both sides of a single row: the output may lie anywhere."""
    walk = WindowOrder(1, 1, 21, 4, 9, 5, 5, 2, 3, 2, 1, 7, 4, 4, 8, 4)
    assert [overwritten(walk, 144, offset) for offset in (0, 100, 144, 200)] == [0, 0, 0, 0]
