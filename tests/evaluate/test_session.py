"""A compiled model that runs from Python: arrays of the model's own type, real numbers, several samples, state, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import emitc
from emitc.evaluate.session import TensorInfo
from emitc.verify.engines.run import TflmEngine

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DIGITS = np.load(MODELS / "digits_test.npz")


@pytest.fixture(scope="module")
def digits() -> emitc.Model:
    return emitc.compile_model(MODELS / "digits_int8.tflite")


def test_inputs_and_outputs_say_what_a_caller_needs(digits: emitc.Model) -> None:
    (x,), (y,) = digits.inputs, digits.outputs
    assert (x.name, x.dtype, x.shape, x.zero_point) == ("image", "int8", (1, 16, 16, 1), -128)
    assert (y.dtype, y.shape, y.scale, y.zero_point) == ("int8", (1, 10), 1 / 256, -128)


def test_every_form_of_the_input_gives_what_the_engine_gives(digits: emitc.Model) -> None:
    codes = (DIGITS["X"][:6].astype(np.int16) - 128).astype(np.int8)
    engine = TflmEngine((MODELS / "digits_int8.tflite").read_bytes())
    expected = np.concatenate([engine.run([image[None]])[0] for image in codes])
    assert (digits.run(codes) == expected).all()
    assert (digits.run(codes[:, None]) == expected).all()
    assert (digits.run(image=codes.astype(np.int64)) == expected).all()
    one = digits.run(codes[2])
    assert isinstance(one, np.ndarray) and one.shape == (1, 10) and (one == expected[2]).all()
    real = digits.run(DIGITS["X"][:6] / 255, quantize=True)
    assert isinstance(real, np.ndarray) and real.dtype == np.float32
    assert (real == (expected.astype(np.float32) + 128) / 256).all()
    none = digits.run(codes[:0])
    assert isinstance(none, np.ndarray) and none.shape == (0, 10)


@pytest.mark.parametrize(
    ("arrays", "named", "why"),
    [
        ((np.zeros((3, 5), np.int8),), {}, "takes [1, 16, 16, 1]"),
        ((np.zeros((1, 16, 16, 1), np.float32),), {}, "is int8, and float32 is given"),
        ((np.full((1, 16, 16, 1), 300),), {}, "is int8, and int64 is given"),
        ((), {"picture": np.zeros((1, 16, 16, 1), np.int8)}, "['picture'] are given"),
        ((), {}, "not 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    digits: emitc.Model, arrays: tuple[np.ndarray, ...], named: dict[str, np.ndarray], why: str
) -> None:
    with pytest.raises(emitc.EmitcError) as caught:
        digits.run(*arrays, **named)
    assert why in caught.value.why


def test_state_lasts_until_a_reset() -> None:
    model = emitc.compile_model(MODELS / "audio_preprocessor_int8.tflite")
    stored = np.load(MODELS / "audio_preprocessor_int8.npz")
    frames = np.concatenate([stored[f"in0_{k}"] for k in range(5)])
    expected = np.stack([stored[f"out0_{k}"] for k in range(5)])
    assert (model.run(frames) == expected).all()
    assert (model.run(frames) != expected).any()
    model.reset()
    assert (model.run(frames) == expected).all()


def test_real_numbers_round_away_from_zero_and_saturate() -> None:
    info = TensorInfo("x", "int8", (4,), 0.5, 10)
    assert info.quantized(np.array([0.25, -0.25, 1e9, -1e9])).tolist() == [11, 9, 127, -128]
    assert info.real(np.array([11, 9], np.int8)).tolist() == [0.5, -0.5]
    plain = TensorInfo("x", "float32", (2,))
    assert plain.quantized(np.array([1, 2])).dtype == np.float32


def test_a_model_is_one_line_in_a_notebook(digits: emitc.Model) -> None:
    assert "\n" not in repr(digits) and len(repr(digits)) < 200
