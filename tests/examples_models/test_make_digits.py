"""examples/models/make_digits.py: it makes the committed model again, and its arithmetic is what it claims to be."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a fresh module."""
    spec = importlib.util.spec_from_file_location("make_digits", MODELS / "make_digits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses looks a class's module up by name.
    monkeypatch.setitem(sys.modules, "make_digits", module)
    spec.loader.exec_module(module)
    return module


def test_script_makes_the_committed_files(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    command = [sys.executable, str(MODELS / "make_digits.py"), "--output", str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == ("accuracy on 1000 unseen digits: float 99.6%, int8 99.5%\ndigits_int8.tflite: 9856 bytes\n")
    assert (tmp_path / "digits_int8.tflite").read_bytes() == (MODELS / "digits_int8.tflite").read_bytes()
    for name in ("digits_int8.npz", "digits_test.npz"):
        with np.load(tmp_path / name) as made, np.load(MODELS / name) as committed:
            assert made.files == committed.files
            assert all(made[key].tobytes() == committed[key].tobytes() for key in made.files)


def test_product_does_not_depend_on_the_order_of_summation(script: ModuleType) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((7, 8192)), rng.standard_normal((8192, 5)) * 1e-3
    expected = script.product(a, b)
    for _ in range(5):
        order = rng.permutation(8192)
        assert np.array_equal(script.product(a[:, order], b[order]), expected)
    assert np.allclose(expected, a @ b, rtol=0, atol=1e-4)


def test_column_sum_does_not_depend_on_the_order_of_summation(script: ModuleType) -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((100_000, 3)) * np.array([1.0, 1e-4, 1e3])
    expected = script.column_sum(values)
    for _ in range(5):
        assert np.array_equal(script.column_sum(values[rng.permutation(len(values))]), expected)
    assert np.allclose(expected, values.sum(axis=0), rtol=0, atol=1e-3)


def test_exponential(script: ModuleType) -> None:
    x = -np.linspace(0.0, 100.0, 100_001)
    assert np.max(np.abs(script.exponential(x) / np.exp(x) - 1)) < 1e-9
    assert script.exponential(np.array([-1e6]))[0] == script.exponential(np.array([-100.0]))[0]


def test_gradients_are_the_slope_of_the_loss(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    # Rounded operands make the loss a staircase, whose slope no difference quotient shows.
    monkeypatch.setattr(script, "product", lambda a, b: a @ b)
    pixels, labels = script.digits(20, script.Uniform(1))
    images = script.real(pixels)
    p = script.initial(script.Uniform(2))
    rng = np.random.default_rng(5)
    # With biases of 0, dark patches sit exactly on the kink of relu.
    for name in ("stem_bias", "depthwise_bias", "pointwise_bias", "dense_bias"):
        setattr(p, name, rng.uniform(-0.1, 0.1, getattr(p, name).shape))

    def loss() -> float:
        logits = script.forward(p, images).logits
        shifted = logits - logits.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]))

    for field in dataclasses.fields(p):
        gradient = getattr(script.gradients(p, images, labels), field.name)
        value = getattr(p, field.name)
        # Along a random direction and along the gradient itself, which weighs every parameter.
        for direction in (rng.standard_normal(value.shape), gradient / np.sqrt(np.sum(gradient * gradient))):
            step = 1e-7
            setattr(p, field.name, value + step * direction)
            above = loss()
            setattr(p, field.name, value - step * direction)
            below = loss()
            setattr(p, field.name, value)
            assert (above - below) / (2 * step) == pytest.approx(float(np.sum(gradient * direction)), rel=1e-5)


def test_digits_are_reproducible_and_differ(script: ModuleType) -> None:
    pixels, labels = script.digits(30, script.Uniform(9))
    again, _ = script.digits(30, script.Uniform(9))
    assert labels.tolist() == [*range(10)] * 3
    assert np.array_equal(pixels, again)
    assert not np.array_equal(pixels[0], pixels[10])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([-1.0, 1.55], (0.01, -28), id="both_signs"),
        pytest.param([0.5, 2.55], (0.01, -128), id="positive_holds_zero"),
        pytest.param([-2.55, -1.0], (0.01, 127), id="negative_holds_zero"),
    ],
)
def test_activation_range(script: ModuleType, values: list[float], expected: tuple[float, int]) -> None:
    scale, zero_point = expected
    result = script.activation_range(np.array(values))
    assert (result.scale, result.zero_point) == (float(np.float32(scale)), zero_point)
