"""Where the ranges come from and which operators get 16 bits, or stay in float32: on a network that int8 breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from emitc.calibrate.precision import operations_of, order_of_raising
from emitc.cli.main import cli
from emitc.compiler import compile_model
from emitc.evaluate.quality import least_error_range
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DATA = MODELS / "digits_test.npz"
LOUD = 3000.0
"""Factor of one hidden value: the others get a few of the 256 codes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of the shipped digits as loud.onnx, and its calibration samples as c.npz."""
    place = tmp_path_factory.mktemp("loud")
    with np.load(DATA) as data:
        images, labels = data["X"].reshape(-1, 256), data["y"]
    x = images.astype(np.float32) / 255
    rng = np.random.default_rng(3)
    first = rng.normal(scale=0.2, size=(256, 200)).astype(np.float32)
    values = np.maximum(x @ first, 0)
    second = np.linalg.solve(values.T @ values + np.eye(200), values.T @ np.eye(10)[labels]).astype(np.float32)
    first[:, 0] *= LOUD
    second[0] /= LOUD
    net = OnnxNet()
    hidden = net.op("Relu", net.op("MatMul", net.input((1, 256)), net.constant(first), name="first"), name="cut")
    net.output(net.op("MatMul", hidden, net.constant(second), name="second"), shape=(1, 10))
    (place / "loud.onnx").write_bytes(net.serialized())
    np.savez(place / "c.npz", allow_pickle=False, X=x[:64, None])
    np.savez(place / "test.npz", allow_pickle=False, X=x, y=labels)
    return place


def quantize(folder: Path, *more: str) -> tuple[int, Any]:
    """Exit code and report of `emitc quantize`; of a refusal its text."""
    arguments = ["quantize", str(folder / "loud.onnx"), "--calibration", str(folder / "c.npz"), "--json"]
    found = CliRunner().invoke(cli, [*arguments, "-o", str(folder / "q.onnx"), *more])
    return found.exit_code, found.stderr or json.loads(found.stdout)


def stored(folder: Path) -> onnx.ModelProto:
    return onnx.load(folder / "q.onnx")


def test_int8_breaks_the_network_and_the_gate_says_so(folder: Path) -> None:
    code, report = quantize(folder, "--test", str(folder / "test.npz"), "--max-drop", "0.01")
    assert code == 1
    assert report["test"]["compared"] == 1.0 and report["test"]["drop"] > 0.3
    assert report["failed"] == [
        f"top1 is {report['test']['drop']:.6g} worse than the float model, and --max-drop allows 0.01"
    ]


def test_the_search_raises_the_operator_that_is_the_cause(folder: Path) -> None:
    code, report = quantize(folder, "--test", str(folder / "test.npz"), "--max-drop", "0.01", "--auto-mixed")
    assert code == 0 and report["failed"] == []
    assert "first" in report["int16"]
    assert report["test"]["drop"] <= 0.01 and report["test"]["engine_differing"] == 0
    types = {tensor.name: tensor.data_type for tensor in stored(folder).graph.initializer}
    assert onnx.TensorProto.INT16 in types.values() and onnx.TensorProto.INT8 in types.values()


def test_a_goal_that_no_mix_reaches_is_said(folder: Path) -> None:
    before = (folder / "q.onnx").read_bytes() if (folder / "q.onnx").exists() else None
    code, report = quantize(folder, "--test", str(folder / "test.npz"), "--max-drop", "-0.5", "--auto-mixed")
    assert code == 1
    assert report.startswith("error: no mix of 8 and 16 bits keeps the accuracy\n")
    assert ((folder / "q.onnx").read_bytes() if (folder / "q.onnx").exists() else None) == before


def test_an_excluded_operator_computes_in_float32(folder: Path) -> None:
    code, report = quantize(folder, "--exclude", "second")
    assert code == 0 and report["excluded"] == ["second"]
    (product,) = [node for node in stored(folder).graph.node if node.name == "second"]
    made = {name: node.op_type for node in stored(folder).graph.node for name in node.output}
    assert product.input[1] not in made, "its weights stay a constant in float32"
    kinds = [step.op_type for step in compile_model(folder / "q.onnx").program.steps]
    assert "MatMul" in kinds


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (("--exclude", "frst"), "--exclude frst is unknown", "did you mean first?"),
        (("--int16", "thrd"), "--int16 thrd is unknown", "choose one of these"),
        (("--method", "mes"), "--method mes is unknown", "did you mean mse?"),
        (("--auto-mixed", "--max-drop", "0.1"), "--auto-mixed has no samples", "add --test DATA"),
        (("--max-drop", "0.1"), "--max-drop has no samples", "add --test DATA"),
        (("--auto-mixed", "--test", "t.npz"), "--auto-mixed has no goal", "add --max-drop 0.005"),
    ],
)
def test_requests_without_an_answer(folder: Path, arguments: tuple[str, ...], what: str, hint: str) -> None:
    code, report = quantize(folder, *arguments)
    assert code == 2
    assert report.startswith(f"error: {what}\n") and f"  try:   {hint}\n  code:  E0102" in report


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_every_method_gives_a_model_whose_c_matches_the_engine(method: str, folder: Path) -> None:
    code, report = quantize(folder, "--method", method, "--test", str(folder / "test.npz"))
    assert code == 0 and report["method"] == method
    assert report["test"]["engine_differing"] == 0


def test_least_square_error_leaves_lonely_extremes_out() -> None:
    """A million of values up to 1 and one of 2, which would cost the others half of their precision."""
    values = np.append(np.linspace(0, 1, 1_000_000, dtype=np.float32), np.float32(2))
    low, high = least_error_range(values)

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        zero = np.rint(-low / step)
        return float((((np.clip(np.rint(values / step) + zero, 0, 255) - zero) * step - values) ** 2).mean())

    assert 0.95 < high < 1.2 and error(low, high) < error(0.0, 2.0) / 2
    assert least_error_range(np.zeros(3, np.float32)) == (0.0, 0.0)
    assert least_error_range(np.array([2.0, 2.0], np.float32)) == (0.0, 2.0)


def test_the_method_mse_gives_the_ranges_that_it_computes(folder: Path) -> None:
    """The input has values from 0 to 1 in most pixels: its scale is that of the whole range, or of a part of it."""
    scales = {}
    for method in ("minmax", "mse"):
        assert quantize(folder, "--method", method)[0] == 0
        tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in stored(folder).graph.initializer}
        scales[method] = float(tensors["x0_scale"] if "x0_scale" in tensors else tensors["input_scale"])
    with np.load(folder / "c.npz") as data:
        low, high = least_error_range(data["X"].reshape(-1))
    assert scales["minmax"] == pytest.approx(1 / 255, rel=1e-6)
    assert scales["mse"] == pytest.approx((high - low) / 255, rel=1e-6)


def test_much_noise_for_few_operations_comes_first() -> None:
    net = OnnxNet()
    x = net.input((1, 8))
    wide = net.op("MatMul", x, net.constant(np.ones((8, 100), np.float32)), name="wide")
    cut = net.op("Relu", wide, name="cut")
    narrow = net.op("MatMul", cut, net.constant(np.ones((100, 2), np.float32)), name="narrow")
    net.output(net.op("Flatten", narrow, name="flat"), shape=(1, 2))
    model = net.model()
    assert operations_of(model) == {"wide": 800, "cut": 100, "narrow": 200, "flat": 2}
    assert order_of_raising(model, {cut: 20.0, narrow: 20.0}) == ("narrow", "wide")
    assert order_of_raising(model, {cut: 10.0, narrow: 20.0}) == ("wide", "narrow")
    assert order_of_raising(model, {cut: np.inf, narrow: 20.0}) == ("narrow",)
