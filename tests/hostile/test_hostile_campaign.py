"""Damaged model files end in success or in exit code 2 with a message: no traceback, no hang, no gigabytes."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hostile_campaign import failures, run, table
from hostile_child import damagers
from hostile_models import corpus, made

from emitc.compiler import compile_model
from emitc.host.build import WARNINGS, compiler

FAST = 30
SWEEP = 2000
BUILT = 60


def test_the_intact_models_compile(tmp_path: Path) -> None:
    for name, data in corpus().items():
        (tmp_path / f"{name}.tflite").write_bytes(data)
        assert compile_model(tmp_path / f"{name}.tflite").files


def test_damaged_files_are_refused_or_compiled() -> None:
    cases = run([(name, 10_000, 10_000 + FAST) for name in corpus()], processes=2, seconds=300)
    assert len(cases) == FAST * len(corpus()), table(cases)
    assert failures(cases, honest=False) == []
    assert {case.outcome for case in cases} == {"ok", "refused"}


def test_wrong_descriptions_are_refused_or_compiled() -> None:
    cases = run([(f"{name} described wrongly", 10_000, 10_000 + 2 * FAST) for name in made()], processes=2, seconds=300)
    assert len(cases) == 2 * FAST * len(made()), table(cases)
    assert failures(cases, honest=True) == []


@pytest.mark.sweep
def test_sweep_of_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    each = -(-SWEEP // len(corpus()))
    cases = run([(name, 0, each) for name in corpus()])
    wrong = run([(f"{name} described wrongly", 0, each) for name in made()])
    with capsys.disabled():
        print(f"\n{table(cases + wrong)}")
    assert len(cases) >= SWEEP
    assert failures(cases, honest=False) + failures(wrong, honest=True) == []
    known = damagers()
    successes = [case for case in cases + wrong if case.outcome == "ok"]
    for case in random.Random(0).sample(successes, BUILT):
        path = tmp_path / "model.tflite"
        path.write_bytes(known[case.model].damaged(case.number)[1])
        compile_model(path, name="model").write(tmp_path / "package")
        done = subprocess.run(
            [
                *compiler().split(),
                *WARNINGS,
                "-c",
                "-O1",
                str(tmp_path / "package" / "model.c"),
                "-o",
                str(tmp_path / "o"),
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{case.model} {case.number} ({case.kind})\n{done.stderr}"
