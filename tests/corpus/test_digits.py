"""bench.digits: the accuracy of the digit nets through the emitted C is that of onnxruntime."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bench import digits

COMMITTED = {row["model"]: digits.Accuracy(**row) for row in json.loads(digits.RESULTS.read_text(encoding="utf-8"))}
SHIPPED = Path(__file__).resolve().parents[2] / "examples" / "models"
NETS = ("digits_cnn_qdq_u8u8", "digits_resnet_qop_s8s8", "digits_tcn1d_qdq_s8s8_pc")
corpus = pytest.mark.skipif(not digits.CORPUS.is_dir(), reason="needs the model corpus in ../shared/models")


def test_the_committed_accuracies_are_equal() -> None:
    assert len(COMMITTED) >= 30
    assert all(row.equal for row in COMMITTED.values())
    assert [row.model for row in COMMITTED.values() if row.reason] == []
    assert all(row.compiled > 0.9 * row.images for row in COMMITTED.values() if not row.reason)


@corpus
@pytest.mark.corpus
@pytest.mark.parametrize("name", NETS)
def test_a_net_measured_again_has_the_committed_accuracy(name: str) -> None:
    images, answers = digits.held_out(digits.CORPUS / "data" / "digits.npz")
    found = digits.measure(digits.CORPUS / "onnx" / f"{name}.onnx", images, answers)
    assert found == COMMITTED[name]


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    """bench.accuracy, which needs scikit-learn."""
    pytest.importorskip("sklearn", reason="the extra emitc[examples] is not installed")
    return importlib.import_module("bench.accuracy")


def test_the_default_settings_cost_no_float_net_more_than_a_point(accuracy: ModuleType) -> None:
    rows = json.loads(accuracy.RESULTS.read_text(encoding="utf-8"))["rows"]
    default = [row for row in rows if row["settings"] == "default"]
    assert len(default) == len({row["model"] for row in default}) >= 12
    assert {f"digits_{name}" for name in accuracy.STYLES} <= {row["model"] for row in default}
    assert all(accuracy.points(row) <= accuracy.MOST_POINTS and row["float"] > 0.8 * row["images"] for row in default)
    assert all(row["differing_from_engine"] == 0 for row in rows)


def test_a_float_net_quantized_again_has_the_committed_accuracy(accuracy: ModuleType, tmp_path: Path) -> None:
    rows = json.loads(accuracy.RESULTS.read_text(encoding="utf-8"))["rows"]
    (stored,) = (row for row in rows if (row["model"], row["settings"]) == ("digits_mobilenet_v2", "default"))
    net = next(iter(accuracy.nets(digits.CORPUS)))
    found = accuracy.measured(net, "default", tmp_path)
    assert found | {"sqnr_db": 0} == stored | {"sqnr_db": 0}
    assert found["sqnr_db"] == pytest.approx(stored["sqnr_db"], abs=0.1)


def test_the_shipped_twins_answer_like_the_engine() -> None:
    given = np.load(SHIPPED / "digits_qdq.npz")
    images = np.concatenate([given[f"in0_{k}"] for k in range(10)])
    for name in ("digits_qdq", "digits_qoperator"):
        expected = np.load(SHIPPED / f"{name}.npz")
        assert np.array_equal(images[3], expected["in0_3"][0])
        labels = np.array([int(np.argmax(expected[f"out0_{k}"])) for k in range(10)])
        assert labels.tolist() == list(range(10))
        found = digits.measured(SHIPPED / f"{name}.onnx", list(images[:, np.newaxis]), labels)
        assert (found.engine, found.compiled, found.same) == (10, 10, 10)
