"""The corpus' LSTM nets: the engine's answers over sequences, in no more memory than the interpreter plans for activations."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.verification import verify

pytest.importorskip("tflite_micro", reason="the golden engine of TFLite models is not installed")

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "models"
HEADS = {"mnist_lstm_int8": 1536, "keras_lstm_mnist_uint8io": 1568, "mnist_lstm_float": 5696}
"""TensorFlow Lite Micro's head, bytes: what its planner takes for activations and scratch, by its own report on this host."""


def compiled(name: str) -> Compiled:
    path = CORPUS / "tflite" / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the model corpus ../shared/models is not next to the checkout")
    return compile_model(path)


@pytest.mark.parametrize("name", HEADS)
def test_sequences_equal_the_engines(name: str) -> None:
    proof = verify(compiled(name), samples=60, vectors=CORPUS / "vectors" / "tflite" / f"{name}.npz", layers=True)
    assert proof.match, proof
    assert proof.reference == "tflm" and proof.samples == 68
    if name.endswith("float"):
        assert 0 < proof.tolerance <= 1e-5
    else:
        assert (proof.rule, proof.differing, proof.tolerated) == ("exact", 0, 0)


@pytest.mark.parametrize("name", HEADS)
def test_the_arena_is_smaller_than_the_interpreters_activations(name: str) -> None:
    program = compiled(name).program
    assert program.plan.arena_bytes + program.state_bytes <= HEADS[name]
