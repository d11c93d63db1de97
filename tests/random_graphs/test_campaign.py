"""Random graphs in CI: a fixed sample, one that moves with the commit, and every graph that ever failed.

The tool itself is tested with an operator that is broken on purpose.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.random_graphs import judge
from bench.random_graphs.campaign import Campaign, run, total
from bench.random_graphs.engines import EngineProcess, preload
from bench.random_graphs.judge import FAILURES
from bench.random_graphs.native import Builds
from bench.random_graphs.records import Tally
from bench.random_graphs.regressions import replayed
from emitc.ir import Array, BoundNode, Op
from emitc.kernels import definition_of, registry
from emitc.kernels.contract import KernelDef
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.recurrent import sequence_lstm_tflite
from emitc.verify import verification
from emitc.verify.engines.run import engines_in

ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted(
    path
    for path in (ROOT / "tests" / "regression" / "random_graphs").glob("*.*")
    if path.suffix in (".onnx", ".tflite")
)
GRAPHS = {"tflite": 40, "onnx": 24}


def failures(folder: Path) -> str:
    """What failed, a line each."""
    path = folder / "failures.jsonl"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def campaign(folder: Path, seed: int, count: int = 64, source_format: str = "tflite") -> Campaign:
    """One process, nothing kept."""
    return Campaign(seed, count, (source_format,), 1, folder, None)


def moving_seed() -> int:
    """A number that every commit changes."""
    command = ["git", "rev-list", "--count", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return 1_000_000 + int(done.stdout.strip() or 0)


@pytest.mark.parametrize("source_format", ["tflite", "onnx"])
@pytest.mark.parametrize("seed", [20, moving_seed()], ids=["fixed", "moving"])
def test_random_graphs_give_what_their_engine_gives(tmp_path: Path, seed: int, source_format: str) -> None:
    if source_format == "onnx":
        pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    count = GRAPHS[source_format]
    tally = run(campaign(tmp_path, seed, count, source_format), progress=False)
    assert not tally.failures(), f"seed {seed}: {failures(tmp_path)}"
    assert tally.graphs == count
    assert tally.verdicts[f"{source_format} match"] > count // 2


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_failed_once_is_right(tmp_path: Path, path: Path) -> None:
    preload(path.suffix.removeprefix("."))
    engine = EngineProcess()
    with engines_in(engine):
        trial = replayed(path, Builds(tmp_path))
    engine.close()
    assert trial.verdict not in FAILURES, (trial.verdict, trial.detail)


@pytest.mark.parametrize("factors", [(1.001, 1.0), (1.0, 1.001)], ids=["output", "cell state"])
def test_a_wrong_lstm_is_found_though_a_later_operator_magnifies_its_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factors: tuple[float, float]
) -> None:
    """Its floats make whole steps of FLOOR_DIV, so that operators decide one by one, each with the state of the run before."""
    (path,) = (path for path in KEPT if "lstm_floor" in path.stem)
    right = sequence_lstm_tflite._float_step

    def wrong(*operands: Any) -> tuple[Any, Any]:
        hidden, cell = right(*operands)
        return hidden * factors[0], cell * factors[1]

    monkeypatch.setattr(sequence_lstm_tflite, "_float_step", wrong)
    preload("tflite")
    engine = EngineProcess()
    with engines_in(engine):
        trial = replayed(path, Builds(tmp_path))
    engine.close()
    assert trial.verdict in FAILURES


def test_a_hook_that_breaks_softmax_is_found_and_cut_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(bound: BoundNode, permutation: tuple[int, ...]) -> Softmax | None:
        op = bound.node.op
        assert isinstance(op, Softmax)
        return op  # the last dimension is another one after the Transpose

    broken = replace(registry()[Softmax], transposed=wrong)

    def definition(op: Op) -> KernelDef:
        return broken if isinstance(op, Softmax) else definition_of(op)

    monkeypatch.setattr(importlib.import_module("emitc.passes.transposes"), "definition_of", definition)
    tally = run(campaign(tmp_path, 9), progress=False)
    records = [json.loads(line) for line in failures(tmp_path).splitlines()]
    found = [record for record in records if "SOFTMAX" in record["small"]["ops"]]
    assert tally.failures() == len(records)
    assert found
    assert min(len(record["small"]["ops"]) for record in found) <= 4


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    asked = replace(campaign(tmp_path, 5, 8))
    first = run(asked, progress=False)
    before = (tmp_path / "chunks.jsonl").read_text(encoding="utf-8")
    assert run(asked, progress=False).to_json() == first.to_json()
    assert (tmp_path / "chunks.jsonl").read_text(encoding="utf-8") == before
    assert total(asked).graphs == 8


def test_a_process_that_dies_costs_one_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = judge.prepared

    def dying(case, mode, folder):  # type: ignore[no-untyped-def]
        if case.index == 3:
            os.abort()
        return usual(case, mode, folder)

    monkeypatch.setattr("bench.random_graphs.campaign.prepared", dying)
    tally = run(campaign(tmp_path, 5, 8), progress=False)
    assert tally.graphs == 8
    assert tally.verdicts["tflite crash"] == 1
    assert "tflite:5:3" in failures(tmp_path)


def test_wrong_numbers_of_a_reference_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = judge.run_reference

    def off(graph, inputs, state=None):  # type: ignore[no-untyped-def]
        values: dict[str, Array] = usual(graph, inputs, state)
        return {name: np.bitwise_xor(v, 1) if v.dtype == np.int8 else v for name, v in values.items()}

    monkeypatch.setattr(judge, "run_reference", off)
    monkeypatch.setattr(verification, "run_reference", off)  # the proof, which decides where the two differ
    tally = run(campaign(tmp_path, 6, 3), progress=False)
    assert isinstance(tally, Tally)
    assert tally.verdicts["tflite reference"] > 0


def test_a_campaign_goes_on_after_the_sum_of_an_earlier_one(tmp_path: Path) -> None:
    earlier = run(campaign(tmp_path / "whole", 5, 64), progress=False)
    whole = run(campaign(tmp_path / "whole", 5, 72), progress=False)  # makes the last eight, and reads the others
    rest = replace(campaign(tmp_path / "rest", 5, 72), earlier=Tally.from_json(earlier.to_json()))
    assert list(rest.chunks()) == [("tflite", 64, 8)]
    added = run(rest, progress=False)
    assert added.graphs == 72
    assert added.verdicts == whole.verdicts
    with pytest.raises(ValueError, match="ends after 8 of the 64 graphs"):
        list(replace(campaign(tmp_path, 5, 128), earlier=added).chunks())
