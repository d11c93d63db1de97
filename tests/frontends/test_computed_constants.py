"""float16 constants that a DEQUANTIZE widens: float32 ones in the compiled model, with the engine's bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.errors import EmitcError, Refusals
from emitc.ir import DType
from emitc.report.catalogue import inspect_text
from emitc.report.inspection import inspect_model
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, TensorSpec, write_tflite
from tests.support.models.tiny import Net


def half(layers: int = 1) -> ModelSpec:
    """Fully connected layers whose weights and biases are float16: subnormal numbers and the largest one among them."""
    net = Net(7)
    first = x = net.tensor(TensorSpec("x", "float32", (2, 5)))
    for number in range(layers):
        parts = []
        for name, shape in (("w", (5, 5)), ("b", (5,))):
            values = net.rng.normal(0, 2, shape).astype("<f2")
            values.reshape(-1)[:3] = 2.0**-24, 2.0**-15, 65504.0 / 2**14
            narrow = net.tensor(TensorSpec(f"{name}{number}_half", "float16", shape, values.tobytes()))
            parts.append(net.tensor(TensorSpec(f"{name}{number}", "float32", shape)))
            net.op("DEQUANTIZE", (narrow,), (parts[-1],))
        y = net.tensor(TensorSpec(f"y{number}", "float32", (2, 5)))
        net.op("FULLY_CONNECTED", (x, *parts), (y,), fused_activation_function="RELU", weights_format="DEFAULT")
        x = y
    return net.spec((first,), (x,))


def saved(spec: ModelSpec, folder: Path) -> Path:
    path = folder / "half.tflite"
    path.write_bytes(write_tflite(spec))
    return path


def test_they_are_widened_exactly_and_no_operator_is_left(tmp_path: Path) -> None:
    spec = half()
    made = compile_model(saved(spec, tmp_path))
    assert [step.op_type for step in made.program.steps] == ["FULLY_CONNECTED"]
    weights = made.graph.tensor("w0")
    assert weights.dtype is DType.FLOAT32
    wanted = np.frombuffer(spec.tensors[1].data or b"", "<f2").astype(np.float32).reshape(5, 5)
    assert np.array_equal(weights.array(), wanted)
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    proof = verify(made, samples=5, layers=True, sanitize=True)
    assert proof.match and proof.reference == "litert"


def test_inspect_lists_the_operators_as_done(tmp_path: Path) -> None:
    found = inspect_model(saved(half(), tmp_path), {})
    assert [each["op"] for each in found["operators"]] == ["DEQUANTIZE", "DEQUANTIZE", "FULLY_CONNECTED"]
    assert found["compiles"]


def test_values_that_are_computed_in_float16_are_refused_and_inspect_names_a_few(tmp_path: Path) -> None:
    """float16 that is no constant has no code; of many operators eight are named."""
    spec = half(6)
    computed = tuple(replace(t, data=None) if t.dtype == "float16" else t for t in spec.tensors)
    inputs = (*spec.inputs, *(i for i, t in enumerate(computed) if t.dtype == "float16"))
    path = saved(replace(spec, tensors=computed, inputs=inputs), tmp_path)
    with pytest.raises(Refusals):
        compile_model(path)
    text = inspect_text(inspect_model(path, {}))
    assert (
        "ops 0 DEQUANTIZE, 1 DEQUANTIZE, 3 DEQUANTIZE, 4 DEQUANTIZE, 6 DEQUANTIZE, 7 DEQUANTIZE, 9 DEQUANTIZE," in text
    )
    assert " and 4 more" in text


def test_a_sparse_constant_is_said_once(tmp_path: Path) -> None:
    found = inspect_model(saved(half(), tmp_path), {})
    found |= {"blockers": ["sparse", "other", "sparse"], "blocker_hints": ["dense", "none", "dense"]}
    found["blocker_codes"] = ["E0302"] * 3
    text = inspect_text(found)
    assert text.count("blocker E0302: sparse (2 times)") == 1 and "blocker E0302: other\n" in text


def test_a_widening_that_changes_the_shape_is_refused(tmp_path: Path) -> None:
    spec = half()
    tensors = list(spec.tensors)
    tensors[1] = replace(tensors[1], shape=(25,))
    with pytest.raises(EmitcError) as error:
        compile_model(saved(replace(spec, tensors=tuple(tensors)), tmp_path))
    assert "DEQUANTIZE changes the shape" in error.value.what
