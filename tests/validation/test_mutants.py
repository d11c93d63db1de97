"""Deliberate faults of passes and memory techniques are found, and the right one is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import mutants
from bench.mutant_models import written
from emitc.compiler import compile_model
from emitc.passes import LATE_PASSES, PASSES
from emitc.validation import validate
from emitc.validation.program import TECHNIQUES

STORED = Path(mutants.__file__).resolve().parent / "results_mutants.json"


def test_every_pass_and_technique_has_its_faults() -> None:
    """The stored campaign: ten faults each, all of them found, and the right step named."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert list(stored) == list(mutants.names())
    assert {name for name, _ in (*PASSES, *LATE_PASSES)} <= set(stored)
    assert set(TECHNIQUES) <= set(stored)
    for name, row in stored.items():
        assert row["faults"] == row["named"] == mutants.COUNT, name
        assert row["misnamed"] == row["missed"] == [], name


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("name", mutants.names())
def test_some_faults_are_found_again(name: str, tmp_path: Path) -> None:
    if name == mutants.CUT:
        pytest.importorskip("ethosu", reason="ethos-u-vela, which compiles for the NPU, is not installed")
    models = mutants.all_models(tmp_path)
    find = mutants.pass_result if name in mutants.PASS_MODELS else mutants.technique_result
    found = find(name, models, 3)
    assert (found.misnamed, found.missed) == ([], [])
    assert found.named == found.count == 3


def test_the_models_are_right_without_a_fault(tmp_path: Path) -> None:
    for path in written(tmp_path).values():
        assert validate(compile_model(path)).wrong is None
