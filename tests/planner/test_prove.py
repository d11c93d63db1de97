"""The exact solver's answers: right where all packings can be tried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import emitc.planner
from emitc.planner import Buffer, Distance, LiveRange
from emitc.planner.greedy import height
from emitc.planner.problem import problem_of

pytest.importorskip("ortools.sat.python.cp_model", reason="the extra emitc[prove] is not installed")

from bench.exact_packing import Answer, certify


def test_a_height_is_possible_or_not() -> None:
    problem = problem_of([Buffer("a", 32, LiveRange(0, 2)), Buffer("b", 64, LiveRange(1, 3))], (), 16)
    assert certify(problem, 80).answer is Answer.NO
    found = certify(problem, 96)
    assert found.answer is Answer.YES
    assert height(problem, found.offsets) == 96
    assert certify(problem, 48).answer is Answer.NO  # below the larger buffer


def test_a_distance_counts_as_it_stands() -> None:
    buffers = [Buffer("x", 64, LiveRange(0, 1)), Buffer("y", 64, LiveRange(0, 2))]
    problem = problem_of(buffers, [Distance("x", "y", above=16)], 16)
    assert certify(problem, 64).answer is Answer.NO
    found = certify(problem, 80)
    assert found.answer is Answer.YES
    assert found.offsets == (16, 0)
    free = problem_of(buffers, [Distance("x", "y", above=0, below=0)], 16)
    assert certify(free, 64).answer is Answer.YES  # nothing is left to ask of this pair


def test_an_alignment_of_its_own_counts() -> None:
    buffers = [Buffer("a", 48, LiveRange(0, 1), 64), Buffer("b", 48, LiveRange(0, 1), 64)]
    problem = problem_of(buffers, (), 16)
    assert certify(problem, 96).answer is Answer.NO
    assert certify(problem, 112).answer is Answer.YES


def test_no_time_is_no_answer() -> None:
    buffers = [Buffer(f"b{i}", 16 * (i % 7 + 1), LiveRange(i % 5, i % 5 + 4)) for i in range(60)]
    assert certify(problem_of(buffers, (), 16), 16 * 200, seconds=0.0).answer is Answer.UNKNOWN


def test_without_the_solver_the_planner_works_and_the_question_is_an_import_error() -> None:
    program = (
        "import sys\n"
        "sys.modules['ortools'] = None\n"
        "from emitc.planner import Buffer, LiveRange, plan\n"
        "from emitc.planner.problem import problem_of\n"
        "from bench.exact_packing import certify\n"
        "b = [Buffer('a', 16, LiveRange(0, 1))]\n"
        "assert plan(b).proven\n"
        "try:\n    certify(problem_of(b, (), 16), 16)\n"
        "except ImportError:\n    print('no solver')\n"
    )
    checkout = Path(emitc.planner.__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, check=True)
    assert run.stdout == "no solver\n"
