"""CIRCULAR_BUFFER: reference, engine and C agree over a sequence, on buffers that run every time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flatbuffers import flexbuffers

from tests.support.single_op import Case, plain, prove, quantized, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def buffer(name: str, slots: int, width: int, channels: int, zero: int = 0, cycles: int | None = 1) -> Case:
    x, y = (quantized((1, count, width, channels), 0.1, zero) for count in (1, slots))
    options = b"" if cycles is None else flexbuffers.Dumps({"cycles_max": cycles})
    made = (replace(y, is_variable=True),)
    return Case(name, "CUSTOM", (x,), made, custom_code="CIRCULAR_BUFFER", custom_options=options)


CASES = [
    buffer("short", 3, 1, 7),
    buffer("zero_point", 4, 2, 3, -9),
    buffer("one_slot", 1, 1, 4),
    buffer("unsaid", 5, 1, 4, cycles=None),
    buffer("unsaid_long", 25, 2, 2, cycles=None),
]


def test_reference_engine_and_c_agree() -> None:
    proven = prove(CASES, samples=9)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


@pytest.mark.parametrize(
    ("case", "code", "message"),
    [
        (buffer("a", 4, 1, 3, cycles=2), 1, "CIRCULAR_BUFFER with cycles_max 2 is not supported"),
        (buffer("b", 4, 1, 3, cycles=None), 1, "CIRCULAR_BUFFER without cycles_max"),
        (replace(buffer("c", 4, 1, 3), inputs=(quantized((1, 2, 1, 3), 0.1, 0),)), 2, "has an input that is no slot"),
        (replace(buffer("d", 4, 1, 3), inputs=(quantized((1, 1, 1, 3), 0.2, 0),)), 2, "changes scale or zero point"),
        (replace(buffer("e", 4, 1, 3), outputs=(quantized((1, 4, 1, 3), 0.1, 0),)), 2, "has 1 inputs"),
        (replace(buffer("f", 4, 1, 3), inputs=(plain((1, 1, 1, 3), "int16"),)), 2, "with element types"),
    ],
)
def test_refused(case: Case, code: int, message: str) -> None:
    error = refusal(case)
    assert message in str(error) and error.exit_code == code
