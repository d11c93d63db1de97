"""Arena against instructions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.explore.pareto import Point, undominated
from emitc.options import Options
from tests.support.cli_call import Emitc

PERSON = Path(__file__).resolve().parents[2] / "examples" / "models" / "person_detect_int8.tflite"
MEASURED = Path(__file__).resolve().parents[2] / "bench" / "results_arena.json"


def test_points_that_another_one_beats_are_left_out() -> None:
    points = [Point(100, 50, 0, 0, 0), Point(80, 60, 1, 2, 0), Point(80, 55, 1, 2, 0), Point(70, 90, 1, 4, 0)]
    worse = [Point(90, 55, 1, 1, 0), Point(100, 51, 0, 0, 0)]
    assert undominated(points + worse) == (points[0], points[2], points[3])


def test_the_command_prints_the_front(emitc: Emitc) -> None:
    found = json.loads(emitc("plan", PERSON, "--pareto", "--json").out)["pareto"]
    arenas, cycles = ([point[key] for point in found] for key in ("arena_bytes", "estimated_cycles"))
    assert (arenas[0], arenas[-1]) == (36880, 13600) and len(found) >= 3
    assert arenas == sorted(arenas, reverse=True) and cycles == sorted(cycles)
    text = emitc("plan", PERSON, "--pareto").out
    assert "13 600" in text and "+0.0 %" in text


def test_the_estimate_is_near_what_was_measured() -> None:
    """Instructions that the smallest arena costs, of the stored runs on a Cortex-M4, against the estimate."""
    if not MEASURED.is_file():
        pytest.skip("the benchmarks are not next to the tests")
    rows = {(r["model"], r["mode"]): r for r in json.loads(MEASURED.read_text(encoding="utf-8"))["rows"]}
    measured = rows["person_detect_int8", "min"]["instructions"] - rows["person_detect_int8", "default"]["instructions"]
    compiled = compile_model(PERSON, Options(ram_budget="min", target="cortex-m4"))
    default = compile_model(PERSON, Options(target="cortex-m4"))
    cost = compiled.program.estimated_cycles - default.program.estimated_cycles
    assert 0.5 < cost / measured < 2
