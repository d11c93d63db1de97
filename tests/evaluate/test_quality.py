"""What `emitc quantize` says: the loss by hand, and warnings for calibrations that have broken a network."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from emitc.cli.main import cli
from emitc.evaluate.quality import cosine, sqnr_db, steps_used
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DATA = MODELS / "digits_test.npz"


@pytest.fixture(scope="module")
def drawn() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_digits", MODELS / "make_digits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_digits"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def classifier(drawn: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A float network of the drawn digits: random features and their least squares; and its training images, from 0 to 1."""
    pixels, labels = drawn.digits(1500, drawn.Uniform(7))
    images = (pixels.reshape(len(pixels), 256) / 255).astype(np.float32)
    rng = np.random.default_rng(3)
    first = rng.normal(scale=0.2, size=(256, 300)).astype(np.float32)
    hidden = np.maximum(images @ first, 0)
    second = np.linalg.lstsq(hidden, np.eye(10)[labels], rcond=None)[0].astype(np.float32)
    net = OnnxNet()
    y = net.op("Relu", net.op("MatMul", net.input((1, 256)), net.constant(first)))
    net.output(net.op("MatMul", y, net.constant(second)), shape=(1, 10))
    path = tmp_path_factory.mktemp("float") / "mlp.onnx"
    path.write_bytes(net.serialized())
    return path, images


def quantized(model: Path, folder: Path, samples: np.ndarray, *more: str) -> dict[str, Any]:
    np.savez(folder / "c.npz", allow_pickle=False, X=samples[:, None])
    arguments = ["quantize", str(model), "--calibration", str(folder / "c.npz"), "-o", str(folder / "q.onnx"), *more]
    found = CliRunner().invoke(cli, [*arguments, "--json"])
    assert found.exit_code == 0, found.output
    content: dict[str, Any] = json.loads(found.output)
    return content


def test_a_good_calibration_costs_little_and_says_how_much(classifier: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    model, images = classifier
    found = quantized(model, tmp_path, images[:200], "--test", str(DATA), "--scale", "1/255")
    (output,) = found["outputs"]
    assert output["sqnr_db"] > 12 and output["cosine"] > 0.98 and output["agreement"] > 0.95
    assert found["warnings"] == []
    assert found["worst"] and found["worst"][0]["sqnr_db"] > 12
    test = found["test"]
    assert test["compared"] > 0.95 and abs(test["drop"]) <= 0.01 and test["engine_differing"] == 0


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(
    ("samples", "causes", "codes"),
    [
        (
            np.zeros((1, 256), np.float32),
            ["1 calibration samples are few", "have one value throughout"],
            ["W1101", "W1102", "W1104"],
        ),
        (
            np.zeros((20, 256), np.float32),
            ["20 of 20 calibration samples have one value", "only 1 of 20"],
            ["W1102", "W1103", "W1104"],
        ),
        (
            np.random.default_rng(5).uniform(0, 25500, (32, 256)).astype(np.float32),
            ["steps of input", "the calibration had far larger values than the test has"],
            ["W1104"],
        ),
    ],
    ids=["one of zeros", "all of zeros", "noise"],
)
def test_a_calibration_that_breaks_the_network_is_named(
    classifier: tuple[Path, np.ndarray], tmp_path: Path, samples: np.ndarray, causes: list[str], codes: list[str]
) -> None:
    found = quantized(classifier[0], tmp_path, samples, "--test", str(DATA), "--scale", "1/255")
    assert found["test"]["drop"] > 0.2
    text = "\n".join(row["what"] for row in found["warnings"])
    assert all(cause in text for cause in causes), text
    assert [row["code"] for row in found["warnings"]] == codes


def test_a_test_without_labels_is_refused_by_its_own_option(
    classifier: tuple[Path, np.ndarray], tmp_path: Path
) -> None:
    model, images = classifier
    np.savez(tmp_path / "c.npz", allow_pickle=False, X=images[:20, None])
    samples = str(tmp_path / "c.npz")
    arguments = ["quantize", str(model), "--calibration", samples, "--test", samples, "-o", str(tmp_path / "q.onnx")]
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 2
    (error,) = json.loads(result.stdout)["error"]
    assert (error["what"], error["where"]) == ("the data have no labels", "--test")


def test_the_report_is_for_a_person(classifier: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", allow_pickle=False, X=classifier[1][:20, None])
    command = ["quantize", str(classifier[0]), "--calibration", str(tmp_path / "c.npz"), "-o", str(tmp_path / "q.onnx")]
    text = CliRunner().invoke(cli, command).output
    assert "signal to noise" in text and "the same largest value in" in text and "emitc evaluate" in text


def test_figures_by_hand() -> None:
    assert sqnr_db(np.zeros(2), np.ones(2)) == -np.inf and sqnr_db(np.ones(2), np.ones(2)) == np.inf
    assert cosine(np.array([1.0, 0.0]), np.array([1.0, 1.0])) == pytest.approx(2**-0.5)
    assert cosine(np.zeros(2), np.zeros(2)) == 1 and cosine(np.zeros(2), np.ones(2)) == 0
    assert steps_used(np.arange(-128, 128, dtype=np.int8)) == 253
