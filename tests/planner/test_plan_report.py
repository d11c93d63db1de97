"""The proof line, the table, the map and the JSON, byte for byte."""

from __future__ import annotations

import json

from emitc.planner import Buffer, LiveRange, Placement, Plan, plan
from emitc.planner.proof_text import arena_map, proof_line, to_json

PLAN = Plan(
    arena_bytes=96,
    alignment=16,
    placements=(
        Placement("stem/conv", 60, 0, LiveRange(0, 2)),
        Placement("stem\n\x1b[31m", 32, 64, LiveRange(1, 4)),
        Placement("scratch", 16, 0, LiveRange(2, 3)),
    ),
    lower_bound_bytes=96,
    proven=True,
    peak_step=1,
    peak_buffers=("stem/conv", "stem\n\x1b[31m"),
)


def test_proof_line_of_an_optimal_plan() -> None:
    result = plan([Buffer("x", 18432, LiveRange(0, 4)), Buffer("y", 18432, LiveRange(3, 5))])
    assert proof_line(result, "op 3 DEPTHWISE_CONV_2D") == (
        "arena 36864 B = lower bound 36864 B at op 3 DEPTHWISE_CONV_2D "
        "(optimal for this operator order, alignment 16, these kernels)"
    )


def test_proof_line_names_the_gap() -> None:
    unproven = Plan(1040, 16, PLAN.placements, 1000, False, 2, ())
    assert proof_line(unproven, "op 2 ADD") == ("arena 1040 B, lower bound 1000 B at op 2 ADD (gap 4.0 %), not proven")
    tiny = Plan(1000016, 16, PLAN.placements, 1000000, False, 2, ())
    assert "(gap 0.1 %), not proven" in proof_line(tiny, "op 2 ADD")


def test_proof_line_of_a_plan_that_was_proven_by_search() -> None:
    searched = Plan(9792, 16, PLAN.placements, 9792, True, 1, (), held_bytes=8384)
    assert proof_line(searched, "op 1 CONV_2D") == (
        "arena 9792 B, no packing is lower: all were searched (8384 B are held at op 1 CONV_2D; "
        "optimal for this operator order, alignment 16, these kernels)"
    )


def test_nothing_to_place() -> None:
    empty = plan([])
    assert proof_line(empty, "op 0") == "arena 0 B = lower bound 0 B (nothing to place)"
    assert arena_map(empty) == ""


def test_map() -> None:
    assert arena_map(PLAN) == "80 |.bbb|\n64 |.bbb|\n48 |aa..|\n32 |aa..|\n16 |aa..|\n 0 |aac.|\n"


def test_map_marks_shared_cells() -> None:
    assert arena_map(PLAN, rows=2, columns=2) == "48 |*b|\n 0 |ac|\n"


def test_json() -> None:
    value = to_json(PLAN)
    assert json.loads(json.dumps(value)) == {
        "arena_bytes": 96,
        "lower_bound_bytes": 96,
        "proven": True,
        "peak": {"step": 1, "tensors": ["stem/conv", "stem\n\x1b[31m"]},
        "buffers": [
            {"name": "stem/conv", "bytes": 60, "offset": 0, "first": 0, "end": 2},
            {"name": "stem\n\x1b[31m", "bytes": 32, "offset": 64, "first": 1, "end": 4},
            {"name": "scratch", "bytes": 16, "offset": 0, "first": 2, "end": 3},
        ],
    }
