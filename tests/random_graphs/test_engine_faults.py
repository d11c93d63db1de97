"""An engine's fault is only one where exact arithmetic shows it."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.random_graphs.onnx import engine_faults
from bench.random_graphs.onnx.engine_faults import limited_reduction, rounded_softmax, rounded_sums
from bench.random_graphs.tflite.engine_faults import undefined_power, undefined_rounding
from emitc.compiler import compile_model
from emitc.verify import verification
from emitc.verify.engines.run import run_isolated
from emitc.verify.exact_sums import steps_of_sums
from emitc.verify.golden_run import GoldenRun, golden_run
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

BEYOND = [
    ("ReduceProd", "int32", [65536, 65535]),
    ("ReduceProd", "int64", [2**53 + 1, 1]),
    ("ReduceSum", "int32", [2**31 - 1, 5]),
    ("ReduceSumSquare", "int64", [2**40, 2**40]),
]


@pytest.mark.parametrize(("kind", "dtype", "values"), BEYOND, ids=[f"{kind}-{dtype}" for kind, dtype, _ in BEYOND])
def test_integer_reductions_in_float64(
    kind: str, dtype: str, values: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = OnnxNet(opset=18)
    net.output(net.op(kind, net.input((1, 2), dtype), net.ints(1)), dtype, (1, 1))
    path = tmp_path / "m.onnx"
    path.write_bytes(net.serialized())
    made = compile_model(path)
    assert f"{kind} of {dtype}" in limited_reduction(made, [(np.array([values], dtype),)], 0)
    assert limited_reduction(made, [(np.array([[3, 4]], dtype),)], 0) == ""
    # An engine that computes something else is not explained by it.
    monkeypatch.setitem(engine_faults._EXACT, kind, lambda row: sum(row) + 7)  # type: ignore[arg-type]
    assert limited_reduction(made, [(np.array([values], dtype),)], 0) == ""


SCALE, STEP = 0.03537699, 7.5004436e-08


def matmul_of_int16(folder: Path, step: float) -> Path:
    """A product of matrices of uint8 codes, quantized to int16."""
    net = OnnxNet(opset=21)
    left, right = (net.dequantize(net.input(shape, "uint8"), SCALE, 128, "uint8") for shape in ((1, 8, 4), (1, 4, 8)))
    net.output(net.quantize(net.op("MatMul", left, right), step, -53, "int16"), "int16", (1, 8, 8))
    path = folder / f"{step}.onnx"
    path.write_bytes(net.serialized())
    return path


def test_float_sums_with_small_steps_of_int16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Products of these codes cancel in many of the sums.
    rng = np.random.default_rng(1)
    inputs = tuple(rng.choice(np.array([1, 255], np.uint8), shape) for shape in ((1, 8, 4), (1, 4, 8)))
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, allow_pickle=False, in0_0=inputs[0], in1_0=inputs[1])
    made = compile_model(matmul_of_int16(tmp_path, STEP))
    proof = verify(made, vectors=vectors, samples=0, layers=True)
    assert not proof.match
    assert "ONNX Runtime sums MatMul in float32" in rounded_sums(made, [inputs], proof)

    coarse = compile_model(matmul_of_int16(tmp_path, 1e-3))
    assert rounded_sums(coarse, [inputs], verify(coarse, vectors=vectors, samples=0, layers=True)) == ""
    # Neither an engine that is farther off is explained, nor a reference that is not the exact sum.
    for wrong in (
        lambda steps, noise, last: (steps, noise / 1e6, last),
        lambda steps, noise, last: (steps + 2, noise, last),
    ):

        def changed(bound, operands, wrong=wrong):  # type: ignore[no-untyped-def]
            found = steps_of_sums(bound, operands)
            return None if found is None else wrong(*found)

        monkeypatch.setattr(engine_faults, "steps_of_sums", changed)
        assert rounded_sums(made, [inputs], proof) == ""


def softmax_of_bytes(folder: Path) -> Path:
    """A Softmax of ten codes of int8 with an output step of its own."""
    net = OnnxNet(opset=21)
    codes = net.dequantize(net.input((1, 10), "int8"), 0.05, 0, "int8")
    net.output(net.quantize(net.op("Softmax", codes), 0.0268, 10, "int8"), "int8", (1, 10))
    path = folder / "softmax.onnx"
    path.write_bytes(net.serialized())
    return path


@pytest.mark.parametrize(("nearest", "steps"), [(True, 1), (True, 2), (False, 1)])
def test_softmax_next_to_the_middle_of_two_steps(
    nearest: bool, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of many rows, the one with the share that is nearest to the middle of two steps, or farthest from it.
    rows = np.random.default_rng(3).integers(-128, 128, (200_000, 10))
    powers = np.exp(rows * float(np.float32(0.05)))
    exact = powers / powers.sum(axis=1, keepdims=True) / float(np.float32(0.0268))
    gaps = np.abs(exact - np.floor(exact) - 0.5)
    row, column = np.unravel_index(gaps.argmin() if nearest else gaps.argmax(), gaps.shape)
    codes = rows[row : row + 1].astype(np.int8)
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, allow_pickle=False, in0_0=codes)
    made = compile_model(softmax_of_bytes(tmp_path))

    def off(*arguments: Any, **named: Any) -> GoldenRun:
        """An engine whose element is on the other side of the middle, or one step farther than that."""
        run = golden_run(*arguments, **named)
        (name,) = made.graph.outputs
        moved = run.outputs[0][0].copy()
        up = moved[0, column] <= np.floor(exact[row, column]) + 10
        moved[0, column] += np.int8(steps if up else -steps)
        return replace(run, outputs=((moved,),), tensors=tuple({**tensors, name: moved} for tensors in run.tensors))

    monkeypatch.setattr(engine_faults, "golden_run", off)
    monkeypatch.setattr(verification, "golden_run", off)
    proof = verify(made, vectors=vectors, samples=0, layers=True)
    assert not proof.match
    shown = "ONNX Runtime sums Softmax in float32: 1 elements next to the middle of two steps"
    assert rounded_softmax(made, [(codes,)], proof) == (shown if nearest and steps == 1 else "")


def test_powers_outside_of_int32(tmp_path: Path) -> None:
    tensors = (
        TensorSpec("x", "int32", (4,)),
        TensorSpec("three", "int32", (4,), np.full(4, 3, "<i4").tobytes()),
        TensorSpec("y", "int32", (4,)),
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, (OperatorSpec("POW", (0, 1), (2,)),), (0,), (2,))))
    made = compile_model(path)
    given = [(np.array([2, 1290, 1291, -100_000], np.int32),)]
    low = -(2**31)
    assert "2 powers" in undefined_power(made, given, [[np.array([8, 1290**3, low, low], np.int32)]])
    # Neither what wraps is explained by it, nor powers within the type.
    assert undefined_power(made, given, [[np.array([8, 1290**3, low, 0], np.int32)]]) == ""
    assert undefined_power(made, [(np.full(4, 2, np.int32),)], [[np.full(4, 8, np.int32)]]) == ""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors convert them otherwise")
def test_quotients_beyond_int32(tmp_path: Path) -> None:
    tensors = [TensorSpec("x", "float32", (1, 4)), TensorSpec("y", "int8", (1, 4), None, (0.5,), (3,))]
    spec = ModelSpec(tensors, [OperatorSpec("QUANTIZE", (0,), (1,), {})], (0,), (1,))
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(spec))
    made = compile_model(path)
    inputs = [(np.array([[1e30, -1e30, 2.0, 4e9]], np.float32),)]
    engine = run_isolated(made.model_bytes, [list(inputs[0])], engine="litert")
    assert engine.outputs[0][0].tolist() == [[-128, -128, 7, -128]], "x86 gives the smallest int32"
    assert "3 quotients" in undefined_rounding(made, inputs, engine.outputs)
    # Neither other values of the engine nor quotients within int32 are explained by it.
    assert undefined_rounding(made, inputs, [[engine.outputs[0][0] + np.int8(1)]]) == ""
    small = [(np.array([[1.0, -1.0, 2.0, 4.0]], np.float32),)]
    assert (
        undefined_rounding(made, small, run_isolated(made.model_bytes, [list(small[0])], engine="litert").outputs) == ""
    )
