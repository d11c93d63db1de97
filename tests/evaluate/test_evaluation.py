"""Accuracy through the generated C: the engine's predictions sample by sample, metrics by hand, and gates of the command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import emitc
from emitc.cli.main import cli
from emitc.errors import EmitcError
from emitc.evaluate.dataset import DataSet
from emitc.evaluate.evaluation import METRICS, area_under_curve, classes_of, metric_named
from emitc.verify.engines.run import run_isolated
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DATA = MODELS / "digits_test.npz"
MODEL = str(MODELS / "digits_int8.tflite")
COMMAND = ["evaluate", MODEL, "--data", str(DATA), "--scale", "1/255"]


def ran(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(cli, arguments)
    return found.exit_code, found.output


@pytest.mark.parametrize("name", ["digits_int8.tflite", "digits_qdq.onnx"])
def test_predictions_are_those_of_the_engine(name: str) -> None:
    if name.endswith("onnx"):
        pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    code, text = ran("evaluate", str(MODELS / name), *COMMAND[2:], "--engine", "--json")
    found = json.loads(text)
    assert code == 0 and found["engine_differing"] == 0
    model = emitc.compile_model(MODELS / name)
    stored = np.load(DATA)
    shape = model.inputs[0].shape
    cases = [(model.inputs[0].quantized(x.reshape(shape) / 255),) for x in stored["X"]]
    run = run_isolated(model.model_bytes, cases, source_format=model.source.format)
    right = np.array([outputs[0].argmax() for outputs in run.outputs]) == stored["y"]
    assert found["value"] == right.mean() > 0.98
    assert sum(map(sum, found["confusion"])) == found["samples"] == 300


def test_a_wrong_kernel_differs_from_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from emitc.evaluate import session

    right = session.Session.run_one
    monkeypatch.setattr(session.Session, "run_one", lambda self, inputs: tuple(y ^ 1 for y in right(self, inputs)))
    code, text = ran(*COMMAND, "--engine")
    assert code == 1 and "300 samples differ from tflm" in text


def test_gates_decide_the_exit_code() -> None:
    code, text = ran(*COMMAND, "--min-accuracy", "0.99")
    assert (code, "FAILED" in text) == (0, False)
    code, text = ran(*COMMAND, "--min-accuracy", "0.999")
    assert code == 1 and "--min-accuracy asks for 0.999" in text
    assert ran(*COMMAND, "--max-drop", "0.1")[0] == 2


def test_values_outside_of_the_inputs_range_are_told(tmp_path: Path) -> None:
    code, text = ran(*COMMAND[:4])
    assert code == 0 and "of the input values are outside" in text


def test_another_model_is_compared(tmp_path: Path) -> None:
    """A model of the same digits in another format stands for the float one."""
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    code, text = ran(*COMMAND, "--float", str(MODELS / "digits_qdq.onnx"), "--max-drop", "0.01", "--json")
    found = json.loads(text)
    assert code == 0 and abs(found["drop"]) <= 0.01 and found["agreement"] > 0.98
    broken = weighted(tmp_path, np.zeros((10, 256), np.int8))
    code, text = ran("evaluate", str(broken), *COMMAND[2:], "--float", MODEL, "--max-drop", "0.01")
    assert code == 1 and "worse than the float model" in text


def weighted(folder: Path, weights: np.ndarray) -> Path:
    """One fully connected layer on the pixels."""
    scale = (1 / 255,)
    bias = np.zeros(len(weights), np.int32)
    tensors = (
        TensorSpec("x", "int8", (1, 256), None, scale, (-128,)),
        TensorSpec("w", "int8", weights.shape, weights.tobytes(), (0.01,), (0,)),
        TensorSpec("b", "int32", (len(weights),), bias.tobytes(), (0.01 / 255,), (0,)),
        TensorSpec("y", "int8", (1, len(weights)), None, (0.1,), (0,)),
    )
    path = folder / "m.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, (OperatorSpec("FULLY_CONNECTED", (0, 1, 2), (3,)),), (0,), (3,))))
    return path


def test_a_metric_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text("def metric(outputs, labels):\n    return len(outputs) / 2\n", encoding="utf-8")
    code, text = ran(*COMMAND, "--metric", str(tmp_path / "half.py"), "--json")
    assert code == 0 and json.loads(text)["value"] == 150
    (tmp_path / "bad.py").write_text("1 / 0\n", encoding="utf-8")
    for name, why in ((tmp_path / "bad.py", "ZeroDivisionError"), ("f1", "none of top1, top5, mse, auc")):
        code, text = ran(*COMMAND, "--metric", str(name))
        assert code == 2 and why in text


def test_metrics_by_hand() -> None:
    outputs = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]])
    assert METRICS["top1"](outputs, np.array([1, 2, 1])) == pytest.approx(2 / 3)
    assert METRICS["top1"](outputs, np.eye(3)[[1, 2, 0]]) == 1
    seven = np.arange(7.0)[None].repeat(2, 0)
    assert METRICS["top5"](seven, np.array([2, 1])) == 0.5
    assert METRICS["mse"](np.array([[1.0, 2.0]]), np.array([[0.0, 4.0]])) == 2.5
    assert classes_of(np.array([[0.5], [0.51]])).tolist() == [0, 1]
    scores, labels = np.random.default_rng(1).integers(0, 9, 40) / 8, np.arange(40) % 2
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    assert area_under_curve(scores[:, None], labels) == pytest.approx(np.mean(pairs))
    with pytest.raises(EmitcError, match="one class"):
        area_under_curve(scores[:, None], np.zeros(40))
    assert metric_named("auc") is area_under_curve


@pytest.mark.parametrize(
    ("labels", "metric", "why"),
    [(None, "top1", "no labels"), (np.full(2, 10), "top1", "do not fit"), (np.zeros(2), "mse", "do not fit")],
)
def test_labels_that_do_not_fit_are_refused(labels: np.ndarray | None, metric: str, why: str) -> None:
    model = emitc.compile_model(MODEL)
    samples = tuple((np.zeros((1, 16, 16, 1), np.int8),) for _ in range(2))
    with pytest.raises(EmitcError, match=why):
        model.evaluate(DataSet(samples, labels, names=("a", "b")), metric=metric)


def test_a_model_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(emitc.CannotCompile):
        emitc.compile_model(MODEL).evaluate(DATA)
