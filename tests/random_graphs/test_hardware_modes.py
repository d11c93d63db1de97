"""The modes of a campaign that leave the batch: the model of the NPU, and emulated boards."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench.random_graphs import judge
from bench.random_graphs.case import Case
from bench.random_graphs.engines import EngineProcess, preload
from bench.random_graphs.formats import generate, rebuilt
from bench.random_graphs.judge import tried
from bench.random_graphs.modes import BOARDS, LIBRARIES, NPUS, draw_mode, options_of
from bench.random_graphs.native import Builds
from bench.random_graphs.records import modes_of
from bench.random_graphs.tflite.graph_builder import OFFERS, GraphBuilder
from emitc.target import load_board
from emitc.verify.engines.run import engines_in

vela = pytest.mark.skipif(importlib.util.find_spec("ethosu") is None, reason="the extra emitc[npu] is not installed")


def convolution() -> Case:
    """One CONV_2D of int8."""
    d = GraphBuilder(np.random.default_rng(3), "int8")
    x = d.model_input("int8", (1, 8, 8, 4))
    (y,) = OFFERS["CONV_2D"].make(d, x)
    return rebuilt("tflite", 0, 0, d.description([y.name]))


def judged(case: Case, mode: dict[str, object], folder: Path) -> judge.Trial:
    preload("tflite")
    process = EngineProcess()
    with engines_in(process):
        trial = tried(case, mode, Builds(folder))
    process.close()
    return trial


@vela
def test_both_are_drawn_now_and_then() -> None:
    case = generate("tflite", 20, 1)
    drawn = [draw_mode(np.random.default_rng(number), case.description) for number in range(3000)]
    seen = Counter(name for mode in drawn for name in modes_of(mode))
    assert all(seen[f"npu {name}"] for name in NPUS)
    assert sum(seen[f"board {name}"] for name in BOARDS) >= 3
    for mode in drawn:
        assert options_of(mode, "g").target == mode["target"]
        assert mode.get("board") is None or load_board(mode["board"]).target == mode["target"]


def test_a_library_is_drawn_where_its_sources_are() -> None:
    case = generate("tflite", 20, 1)
    for library, targets in LIBRARIES.items():
        drawn = [draw_mode(np.random.default_rng(number), case.description, {library: "/x"}) for number in range(300)]
        own = [mode for mode in drawn if mode.get("kernels") == library]
        assert 3 <= len(own) <= 40 and {mode["target"] for mode in own} == set(targets)
        assert all(options_of(mode, "g").backends == {library: "/x"} for mode in own)
    assert all("kernels" not in draw_mode(np.random.default_rng(number), case.description) for number in range(300))


@vela
def test_the_model_of_the_npu_runs_a_region(tmp_path: Path) -> None:
    mode = {"target": "cortex-m55", "backends": {"npu": "ethos-u55-64", "npu-always": "yes"}}
    trial = judged(convolution(), mode, tmp_path)
    assert (trial.verdict, trial.facts.get("npu")) == ("match", True)


@pytest.mark.parametrize(
    "more", [{}, {"max_step_cycles": 1}, {"regions": [["FAST", 4096, 1.0], ["SLOW", 1 << 20, 4.0]]}]
)
def test_external_weights_are_a_mode_of_the_batch(tmp_path: Path, more: dict[str, object]) -> None:
    drawn = (draw_mode(np.random.default_rng(number), convolution().description) for number in range(100))
    assert any(mode.get("weights") == "external" for mode in drawn)
    trial = judged(convolution(), {"target": "rv32imac", "weights": "external", **more}, tmp_path)
    assert trial.verdict == "match"


@pytest.mark.parametrize(("match", "verdict"), [(True, "match"), (False, "board")])
def test_the_board_decides_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, match: bool, verdict: str) -> None:
    boards = []

    def emulated(compiled: object, board: str, **asked: object) -> SimpleNamespace:
        boards.append((board, asked["reference"]))
        return SimpleNamespace(match=match, differing_bytes=7)

    monkeypatch.setattr(judge, "on_emulator", emulated)
    trial = judged(convolution(), {"target": "cortex-m4f", "board": "qemu_m4"}, tmp_path)
    assert boards == [("qemu_m4", "auto")]
    assert trial.verdict == verdict
