"""Schedules to buffers: exact live ranges, sizes and order, and every refusal."""

from __future__ import annotations

import re

import pytest

from emitc.planner import Buffer, LiveRange, ScratchRequest, Step, buffers_of, plan


def test_a_chain_lives_from_its_write_to_its_last_read() -> None:
    steps = [Step(("x",), ("a",)), Step(("a",), ("b",)), Step(("b",), ("y",))]
    buffers = buffers_of(steps, {"x": 100, "a": 200, "b": 50, "y": 10}, ["x"], ["y"])
    assert buffers == (
        Buffer("x", 100, LiveRange(0, 1)),
        Buffer("a", 200, LiveRange(0, 2)),
        Buffer("b", 50, LiveRange(1, 3)),
        Buffer("y", 10, LiveRange(2, 3)),
    )


def test_inputs_are_held_from_step_0_to_their_last_reader() -> None:
    steps = [Step(("x",), ("a",)), Step(("a",), ("b",)), Step(("b", "late"), ("y",))]
    lives = _lives(steps, ["x", "late", "unread"], ["y"])
    assert lives["late"] == LiveRange(0, 3)
    assert lives["unread"] == LiveRange(0, 1)


def test_an_output_written_early_is_held_to_the_end() -> None:
    steps = [Step(("x",), ("early",)), Step(("early",), ("a",)), Step(("a",), ("y",))]
    assert _lives(steps, ["x"], ["early", "y"])["early"] == LiveRange(0, 3)


def test_a_name_that_nobody_reads_is_held_while_it_is_written() -> None:
    steps = [Step(("x",), ("a",)), Step(("a",), ("y", "unread")), Step(("y",), ("z",))]
    assert _lives(steps, ["x"], ["z"])["unread"] == LiveRange(1, 2)


def test_scratch_lives_for_its_step_and_keeps_its_alignment() -> None:
    steps = [Step(("x",), ("a",)), Step(("a",), ("y",), (ScratchRequest("s", 24, 32),))]
    buffers = buffers_of(steps, {"x": 8, "a": 8, "y": 8}, ["x"], ["y"], alignment=4)
    assert buffers[-2:] == (Buffer("y", 8, LiveRange(1, 2), 4), Buffer("s", 24, LiveRange(1, 2), 32))


def test_an_update_in_place_extends_the_range() -> None:
    steps = [Step(("x",), ("a",)), Step(("a",), ("a",)), Step((), ("a",))]
    assert _lives(steps, ["x"], [])["a"] == LiveRange(0, 3)


def test_without_steps_the_output_is_the_input() -> None:
    buffers = buffers_of([], {"x": 20}, ["x"], ["x"])
    assert buffers == (Buffer("x", 20, LiveRange(0, 1)),)
    assert plan(buffers).arena_bytes == 32


@pytest.mark.parametrize(
    ("steps", "sizes", "outputs", "message"),
    [
        pytest.param([Step(("a",), ("y",))], {"a": 1, "y": 1}, ["y"], "step 0: 'a' is read before it is written"),
        pytest.param([Step((), ("a",))], {"a": 1, "y": 1}, ["y"], "graph output: 'y' is read before it is written"),
        pytest.param([Step((), ("a",))], {}, [], "step 0: 'a' has no size"),
        pytest.param(
            [Step((), (), (ScratchRequest("s", 1),)), Step((), (), (ScratchRequest("s", 1),))],
            {},
            [],
            "step 1: scratch name 's' is used twice",
        ),
        pytest.param(
            [Step((), ("a",), (ScratchRequest("a", 1),))],
            {"a": 1},
            [],
            "scratch name 'a' is also the name of a buffer that steps read or write",
        ),
    ],
)
def test_mistakes_are_refused(steps: list[Step], sizes: dict[str, int], outputs: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        buffers_of(steps, sizes, [], outputs)


def _lives(steps: list[Step], inputs: list[str], outputs: list[str]) -> dict[str, LiveRange]:
    names = [*inputs, *(name for step in steps for name in (*step.reads, *step.writes))]
    buffers = buffers_of(steps, dict.fromkeys(names, 16), inputs, outputs)
    return {buffer.name: buffer.live for buffer in buffers}
