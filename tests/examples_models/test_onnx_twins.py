"""The ONNX twins of the digits model: what the script writes, and that they compile to what the TFLite model compiles to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.verification import verify

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "models"
TWINS = ("digits_qdq", "digits_qoperator")


@pytest.fixture(scope="module")
def tflite() -> Compiled:
    return compile_model(MODELS / "digits_int8.tflite")


def weights(compiled: Compiled) -> list[tuple[int, ...]]:
    """The weights of all layers, in execution order."""
    tables = [c.table for step in compiled.program.steps for c in step.constants]
    return [table.values for table in tables if table.role == "weights"]


def kernels(compiled: Compiled) -> list[str]:
    """The kernel templates of all layers between the float ends."""
    return [
        step.kernel_name
        for step in compiled.program.steps
        if step.op_type not in ("QuantizeLinear", "DequantizeLinear")
    ]


def test_script_makes_the_committed_files(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the vectors need the extra emitc[verify]")
    script = MODELS / "make_digits_onnx.py"
    subprocess.run(
        [sys.executable, str(script), "--output", str(tmp_path)], check=True, capture_output=True, cwd=tmp_path
    )
    for name in TWINS:
        assert (tmp_path / f"{name}.onnx").read_bytes() == (MODELS / f"{name}.onnx").read_bytes()
        made, committed = np.load(tmp_path / f"{name}.npz"), np.load(MODELS / f"{name}.npz")
        assert sorted(made.files) == sorted(committed.files) and len(made.files) == 20


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_plan_the_weights_and_the_kernels_of_the_tflite_model(name: str, tflite: Compiled) -> None:
    twin = compile_model(MODELS / f"{name}.onnx")
    assert twin.program.plan.arena_bytes == tflite.program.plan.arena_bytes == 3104
    assert twin.program.plan.proven
    # Also of the dense layer, whose columns ONNX has in the order channel, row, column.
    assert weights(twin) == weights(tflite)
    expected = kernels(tflite)
    found = kernels(twin)
    assert found[:4] == ["conv_2d", "depthwise_conv_2d", "fully_connected", found[3]] == [*expected[:3], found[3]]
    assert len(found) == len(expected)
    assert not [step for step in twin.program.steps if step.op_type in ("Transpose", "Reshape", "Flatten")]


def test_the_qoperator_twin_has_the_engines_bits() -> None:
    proof = verify(
        compile_model(MODELS / "digits_qoperator.onnx"), vectors=MODELS / "digits_qoperator.npz", layers=True
    )
    assert proof.match and proof.rule == "exact"
    assert (proof.differing, proof.samples) == (0, 30)


def test_the_qdq_twin_is_proven_operator_by_operator() -> None:
    proof = verify(compile_model(MODELS / "digits_qdq.onnx"), vectors=MODELS / "digits_qdq.npz")
    assert proof.match and proof.rule == "groups"
    kinds = {group.op_type: group for group in proof.groups}
    assert {"Conv", "Add", "AveragePool", "Gemm", "Softmax"} <= set(kinds)
    assert all(group.differing == 0 for name, group in kinds.items() if name not in ("AveragePool", "Conv"))
    # Equal scales on both sides of the pool make ties (docs/numerics.md).
    assert kinds["AveragePool"].largest <= 1
