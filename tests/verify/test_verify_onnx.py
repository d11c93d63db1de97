"""`verify` on ONNX models: right ones are proven layer by layer, and a change in the C is found and named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import helper

from emitc.cli import main
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.verify.engines.run import EngineRefused
from emitc.verify.proof import Proof
from emitc.verify.verification import verify
from tests.support.onnx_op import OnnxCase, computed, model_of

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

RNG = np.random.default_rng(7)
F = np.float32


def quantized_case() -> OnnxCase:
    """float -> uint8 -> convolution of uint8 by int8 per channel -> float, with the image in NCHW."""
    constants = {
        "xs": np.array(0.05, F), "xz": np.array(120, np.uint8),
        "w": RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.array([0.01, 0.02, 0.03, 0.04], F), "wz": np.zeros(4, np.int8),
        "ys": np.array(0.4, F), "yz": np.array(128, np.uint8),
        "b": RNG.integers(-1000, 1000, 4).astype(np.int32),
    }  # fmt: skip
    nodes = (
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("QLinearConv", ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], strides=[2, 2]),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    )
    return OnnxCase("quantized", "", {"x": computed((1, 3, 9, 9)), **constants}, nodes=nodes)


def float_case() -> OnnxCase:
    """Two convolutions of floats and a sigmoid, the first an output too."""
    weights = {name: RNG.normal(size=(4, 4, 3, 3)).astype(F) for name in ("w1", "w2")}
    nodes = (
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["y"]),
    )
    return OnnxCase("real", "", {"x": computed((1, 4, 8, 8)), **weights}, nodes=nodes)


def compiled_case(case: OnnxCase, folder: Path) -> Compiled:
    path = folder / f"{case.id}.onnx"
    path.write_bytes(model_of([case]).SerializeToString())
    return compile_model(path)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compiled_case(quantized_case(), tmp_path_factory.mktemp("quantized"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compiled_case(float_case(), tmp_path_factory.mktemp("real"))


def changed(compiled: Compiled, pattern: str, replacement: str) -> Compiled:
    """The model with its C changed in one place."""
    name = f"{compiled.program.name}.c"
    before = compiled.files[name].decode("ascii")
    after, count = re.subn(pattern, replacement, before, count=1)
    assert count == 1 and after != before, "the mutation found nothing to change"
    return replace(compiled, files=compiled.files | {name: after.encode("ascii")})


def other_weight(compiled: Compiled, op: int) -> Compiled:
    """The first weight of the operator made 0.5 or 64 more, or so much less where it is positive."""
    name = f"{compiled.program.name}.c"
    text = compiled.files[name].decode("ascii")
    found = re.search(rf"static const (\w+) op{op}_\w*weights\[\d+\] = \{{\s+(-?[\d.e-]+)f?", text)
    assert found, "there are no weights"
    step = 0.5 if found[1] == "float" else 64
    value = float(found[2]) - step if float(found[2]) > 0 else float(found[2]) + step
    new = f"{value!r}f" if found[1] == "float" else str(int(value))
    after = text[: found.start(2)] + new + text[found.end() :]
    return replace(compiled, files=compiled.files | {name: after.encode("ascii")})


def test_a_quantized_net_is_proven_exactly(quantized: Compiled) -> None:
    proof = verify(quantized, samples=6, layers=True, sanitize=True)
    assert proof.match
    assert (proof.reference, proof.rule, proof.tolerance, proof.tolerated) == ("onnxruntime", "exact", 0.0, 0)
    assert (proof.elements, proof.differing, proof.numpy_differing) == (6 * 4 * 4 * 4, 0, 0)
    assert proof.layers_checked >= 6 * 3, "quantize, convolution and dequantize at least"


def test_a_wrong_weight_is_named(quantized: Compiled) -> None:
    (index,) = (step.index for step in quantized.program.steps if step.op_type == "QLinearConv")
    proof = verify(other_weight(quantized, index), samples=3, layers=True)
    assert not proof.match
    assert proof.first_divergence is not None
    assert (proof.first_divergence.op, proof.first_divergence.index) == ("QLinearConv", index)
    assert proof.differing > 0 and proof.numpy_differing > 0


def test_a_float_net_is_proven_within_the_tolerance_and_says_so(real: Compiled) -> None:
    proof = verify(real, samples=6, layers=True, sanitize=True)
    assert proof.match
    assert (proof.rule, proof.tolerance) == ("tolerance", 1e-5)
    assert proof.differing == 0
    assert proof.max_abs_diff <= 2e-5
    content = proof.to_json()
    assert (content["rule"], content["tolerance"], content["tolerated"]) == ("tolerance", 1e-5, proof.tolerated)


def test_a_float_net_beyond_the_tolerance_is_found(real: Compiled) -> None:
    (first, *_) = (step.index for step in real.program.steps if step.op_type == "Conv")
    proof = verify(other_weight(real, first), samples=2, layers=True)
    assert not proof.match
    assert proof.first_divergence is not None
    assert proof.first_divergence.index == first


def test_a_small_difference_is_tolerated_and_counted(real: Compiled) -> None:
    """1e-6 on every output: bits differ, the rule holds; 1e-3 breaks it."""
    (output,) = real.program.outputs
    for amount, match in (("1e-6f", True), ("1e-3f", False)):
        code = (
            f"    for (int i = 0; i < {output.elements}; i++) {{ ((float *)(void *)(self->arena"
            f" + AT_OP{real.program.steps[-1].index}))[i] += {amount}; }}\n    return EMITC_OK;\n}}"
        )
        name = f"{real.program.name}_run"
        wrong = changed(real, rf"(?s)({name}\(\w+ \*self\)\n.*?)    return EMITC_OK;\n\}}", rf"\1{code}")
        proof = verify(wrong, samples=2)
        assert proof.match is match, amount
        assert (proof.tolerated > 100) is match
        assert (proof.differing > 100) is not match


@pytest.mark.parametrize("reference", ["auto", "onnxruntime", "numpy"])
def test_every_reference_of_onnx(reference: str, quantized: Compiled) -> None:
    proof = verify(quantized, reference=reference, samples=2, layers=True)
    assert proof.match
    assert proof.reference == ("numpy" if reference == "numpy" else "onnxruntime")


@pytest.mark.parametrize("reference", ["tflm", "litert"])
def test_engines_of_tflite_are_refused(reference: str, quantized: Compiled) -> None:
    with pytest.raises(EmitcError) as caught:
        verify(quantized, reference=reference, samples=1)
    assert caught.value.what == f"the engine {reference} does not read onnx models"
    assert caught.value.exit_code == 2


def test_onnxruntime_is_refused_for_tflite(tiny: Path) -> None:
    result = CliRunner().invoke(
        main.cli, ["verify", str(tiny / "spotter.tflite"), "--reference", "onnxruntime", "--json"]
    )
    assert result.exit_code == 2
    (error,) = json.loads(result.stdout)["error"]
    assert error["what"] == "the engine onnxruntime does not read tflite models"


def test_a_model_that_the_engine_does_not_take_is_refused(quantized: Compiled) -> None:
    """emitc reads what the package onnx reads; onnxruntime may be older."""
    import onnx

    model = onnx.ModelProto.FromString(quantized.model_bytes)
    model.ir_version = 10_000
    with pytest.raises(EngineRefused) as caught:
        verify(replace(quantized, model_bytes=model.SerializeToString()), samples=1)
    assert "IR version" in caught.value.why


def test_the_command_line_verifies_onnx(quantized: Compiled, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(quantized.model_bytes)
    result = CliRunner().invoke(main.cli, ["verify", str(path), "--samples", "2", "--layers", "--json"])
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert (content["reference"], content["match"], content["rule"]) == ("onnxruntime", True, "exact")


def test_a_proof_without_rule_is_exact() -> None:
    assert Proof("tflm", 1, 1, 0, 0.0, 1, 0, 0, None, 16, 16, False).to_json()["rule"] == "exact"
