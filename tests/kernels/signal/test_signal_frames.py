"""The operators of TFLite Micro's signal library that keep values between runs: reference, engine and C agree over a sequence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support.single_op import Array, Case, Outcome, plain, prove, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Option = int | bool
Shape = tuple[int, ...]


def signal(
    name: str,
    operator: str,
    x: Shape,
    y: Shape,
    options: dict[str, Option],
    *,
    flag: bool = False,
    dtype: str = "int16",
) -> Case:
    """One custom operator; flag: it says whether its output counts."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        if dtype == "float32":
            return [rng.normal(0, 100, x).astype(np.float32)]
        return [
            rng.choice([-32768, -20000, 0, 9, 32767], x).astype(np.int16)
            if sample % 2
            else rng.integers(-32768, 32768, x).astype(np.int16)
        ]

    outputs = (plain(y, dtype), *((plain((), "bool"),) if flag else ()))
    custom = flexbuffers.Dumps(options)
    return Case(
        name, "CUSTOM", (plain(x, dtype),), outputs, draw=draw, custom_code=f"Signal{operator}", custom_options=custom
    )


def framer(name: str, x: Shape, size: int, step: int, *, prefill: bool) -> Case:
    y = (*x[:-1], x[-1] // step, size)
    return signal(name, "Framer", x, y, {"frame_size": size, "frame_step": step, "prefill": prefill}, flag=True)


def stacker(name: str, channels: int, left: int, right: int, step: int) -> Case:
    options = {
        "num_channels": channels, "stacker_left_context": left, "stacker_right_context": right, "stacker_step": step,
    }  # fmt: skip
    return signal(name, "Stacker", (channels,), ((left + 1 + right) * channels,), options, flag=True)


def delay(name: str, x: Shape, length: int) -> Case:
    return signal(name, "Delay", x, x, {"delay_length": length})


def overlap(name: str, x: Shape, step: int, dtype: str = "int16") -> Case:
    y = (*x[:-2], x[-2] * step)
    options = {"T": 7 if dtype == "int16" else 0, "frame_step": step}
    return signal(name, "OverlapAdd", x, y, options, dtype=dtype)


CASES = [
    *(framer(f"framer_{prefill}", (160,), 400, 160, prefill=prefill) for prefill in (False, True)),
    *(framer(f"framer_rows_{prefill}", (2, 3, 8), 6, 2, prefill=prefill) for prefill in (False, True)),
    *(framer(f"framer_equal_{prefill}", (12,), 4, 4, prefill=prefill) for prefill in (False, True)),
    *(framer(f"framer_odd_{prefill}", (3, 5), 7, 5, prefill=prefill) for prefill in (False, True)),
    framer("framer_apart", (2, 12), 3, 4, prefill=False),
    framer("framer_long", (2, 2), 9, 1, prefill=False),
    stacker("stacker", 10, 2, 1, 2),
    stacker("stacker_left", 4, 3, 0, 1),
    stacker("stacker_right", 5, 0, 3, 3),
    stacker("stacker_all", 3, 1, 2, 4),
    stacker("stacker_one", 7, 0, 0, 1),
    delay("delay", (20,), 5),
    delay("delay_long", (2, 3, 4), 11),
    delay("delay_equal", (6,), 6),
    delay("delay_none", (2, 5), 0),
    *(overlap(f"overlap_{t}", (1, 30), 10, t) for t in ("int16", "float32")),
    *(overlap(f"overlap_rows_{t}", (2, 3, 7), 3, t) for t in ("int16", "float32")),
    *(overlap(f"overlap_none_{t}", (2, 4), 4, t) for t in ("int16", "float32")),
    overlap("overlap_by_one", (3, 5), 1),
]  # fmt: skip


def _counted(outcome: Outcome) -> Outcome:
    """What the engine leaves in an output that does not count is what its memory holds."""
    if len(outcome.case.outputs) == 1:
        return outcome
    golden = []
    for found, own in zip(outcome.golden, outcome.reference, strict=True):
        zeros = own[0].reshape(found[0].shape) == 0
        golden.append((found[0] if found[1].all() else np.where(zeros, 0, found[0]).astype(np.int16), found[1]))
    return replace(outcome, golden=tuple(golden))


def test_reference_engine_and_c_agree() -> None:
    proven = prove(CASES, samples=9)
    for outcome in proven.outcomes.values():
        _counted(outcome).check()
    assert proven.memory_errors == ()
    flags = {
        name: [bool(y[1]) for y in outcome.compiled]
        for name, outcome in proven.outcomes.items()
        if len(outcome.case.outputs) > 1
    }
    assert flags["framer_False"] == [False, False, *(True,) * 7]
    assert flags["framer_True"] == [True] * 9
    assert flags["stacker"] == [False, True, False, True, False, True, False, True, False]


@pytest.mark.parametrize(
    ("case", "options", "code", "message"),
    [
        (framer("f", (8,), 6, 2, prefill=False), {"frame_size": 6, "frame_step": 3, "prefill": False}, 2, "has frame_step = 3"),
        (framer("f", (8,), 6, 2, prefill=False), {"frame_size": 1 << 30, "frame_step": 2}, 2, "has frame_size = 1073741824"),
        (framer("f", (8,), 6, 2, prefill=False), {"frame_step": 2}, 2, "has no attribute frame_size"),
        (stacker("s", 3, 1, 1, 1), {"num_channels": 3, "stacker_left_context": 1, "stacker_right_context": 1, "stacker_step": 4},
         2, "has stacker_step = 4 and num_channels = 3"),
        (stacker("s", 3, 1, 1, 1), {"num_channels": 4, "stacker_left_context": 1, "stacker_right_context": 1, "stacker_step": 1},
         2, "has stacker_step = 1 and num_channels = 4"),
        (framer("f", (8,), 6, 2, prefill=True), {"frame_size": 2, "frame_step": 4, "prefill": True}, 2, "has frame_step = 4"),
        (delay("d", (4,), 2), {"delay_length": -1}, 2, "has delay_length = -1"),
        (overlap("o", (2, 4), 2), {"T": 7, "frame_step": 5}, 2, "has frame_step = 5"),
        (overlap("o", (2, 4), 2), {"T": 2, "frame_step": 2}, 1, "SignalOverlapAdd of type 2 is not supported"),
    ],
)  # fmt: skip
def test_refused_options(case: Case, options: dict[str, Option], code: int, message: str) -> None:
    error = refusal(replace(case, custom_options=flexbuffers.Dumps(options)))
    assert message in str(error) and error.exit_code == code


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.id)
def test_other_types_are_refused(case: Case) -> None:
    outputs = (replace(case.outputs[0], dtype="int32"), *case.outputs[1:])
    assert "with element types" in str(refusal(replace(case, outputs=outputs)))
