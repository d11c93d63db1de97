"""Elements on cores with vectors or a float unit: tables, products, QUANTIZE and DEQUANTIZE; here, and on emulated cores."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.boards import verify as boards
from emitc.compiler import compile_model
from emitc.ir import Array, BoundNode, Graph
from emitc.kernels.contract import Variant
from emitc.numerics.requantize import requantize
from emitc.target import Target
from emitc.writers.tflite import write_tflite
from tests.kernels.activation import test_byte_functions
from tests.kernels.elementwise import test_arithmetic, test_int16_elementwise
from tests.kernels.quantization import test_onnx_quantize, test_quantize_ops
from tests.kernels.reduction import test_mean
from tests.support.onnx_op import model_of as onnx_model_of
from tests.support.onnx_op import prove_onnx
from tests.support.single_op import Case, model_of, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

NONE = {"fused_activation_function": "NONE"}


def _products() -> list[Case]:
    return [
        Case(
            f"product_{count}_{zero}",
            "MUL",
            (quantized((1, count), 0.0235, zero), quantized((1, count), 0.0412, 4)),
            (quantized((1, count), scale, -zero - 1),),
            NONE,
            2,
        )
        for count, zero, scale in ((1, -128, 0.0391), (4, 0, 0.001), (39, 127, 0.0391), (18, 5, 1e-5))
    ]


def sums() -> list[Case]:
    """Of int16."""
    return [
        Case(
            f"{opcode.lower()}_{i}_{count}",
            opcode,
            (quantized((1, count), a, 0, "int16"), quantized((1, count), b, 0, "int16")),
            (quantized((1, count), scale, 0, "int16"),),
            {"fused_activation_function": activation},
            2,
        )
        for i, (opcode, a, b, scale, activation) in enumerate(
            (
                ("ADD", 0.0013, 0.0007, 0.0019, "NONE"),
                ("SUB", 0.0013, 0.0007, 0.0002, "NONE"),
                ("ADD", 0.0013, 0.0007, 0.9, "NONE"),
                ("SUB", 0.0007, 0.0013, 0.0009, "NONE"),
                ("ADD", 0.00031, 0.0011, 0.0012, "RELU"),
                ("SUB", 0.0013, 0.0013, 0.0017, "NONE"),
                ("ADD", 1e-6, 0.002, 0.002, "RELU6"),
            )
        )
        for count in (1, 4, 39)
    ]


def reductions() -> list[Case]:
    """Of int8 and of int16, over what lies apart and what lies side by side."""
    shorts = [
        test_int16_elementwise.reduced(
            f"{op}_of_shorts_{n}", op, test_int16_elementwise.int16((2, 3, 5, n), 0.01), (1, 2), 0.03
        )
        for op in ("MEAN", "SUM")
        for n in (1, 6, 8)
    ]
    return [*test_mean.CASES, *shorts]


def some_bytes() -> list[Case]:
    """Tables whose last register is not full, and bytes to reals."""
    tables = [
        Case(f"table_{count}", "QUANTIZE", (quantized((count,), 0.05, 3),), (quantized((count,), 0.03, -4),))
        for count in (256, 257, 271, 300)
    ]
    return [*tables, *_products()]


def _sums_of_shorts() -> list[Case]:
    return [replace(case, id=f"{case.id}_{i}") for i, case in enumerate(sums())]


def _preferring(*names: str) -> object:
    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") in names else 1.0

    return patch.object(backend, "cost_of", cost)


def _checked(cases: list[Case], target: str, *names: str) -> set[str]:
    """The kernels that ran."""
    with _preferring(*names):
        proven = prove(cases, target=target)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    return {outcome.step.kernel_name for outcome in proven.outcomes.values() if outcome.step}


def test_tables_and_products_by_vectors() -> None:
    assert _checked(some_bytes(), "cortex-m55", "mve") == {"lookup_mve", "product_mve"}
    assert _checked(_sums_of_shorts(), "cortex-m55", "mve") == {"rescaled_sum_mve"}
    assert "lookup_mve" in _checked(test_byte_functions.CASES, "cortex-m55", "mve")


def test_reductions_by_vectors() -> None:
    assert _checked(reductions(), "cortex-m55", "mve") >= {"reduce_sum_mve", "reduce_sum"}


def test_sums_of_shorts_in_pairs() -> None:
    assert _checked(_sums_of_shorts(), "cortex-m4", "dsp") == {"rescaled_sum_dsp"}


def test_sums_of_bytes_by_weights() -> None:
    """Of all pairs of values, and of less than a word; other sums and products keep the portable kernel."""
    assert "weighted_sum_xpulp" in _checked([*test_arithmetic.PAIR_CASES, *test_arithmetic.SHAPES], "cv32e40p", "xpulp")


def test_the_largest_multiplier_halves_every_short() -> None:
    """As a multiplier of 1/2 does, which takes no shift."""
    values = np.arange(-(1 << 15), 1 << 15, dtype=np.int64) << 15
    halves = values >> 1
    assert (requantize(values, (1 << 31) - 1, -1) == halves).all()
    assert (requantize(values, 1 << 30, 0) == halves).all()


@pytest.mark.parametrize(("target", "variant"), [("cortex-m4f", "fpu"), ("cortex-m55", "mve")])
def test_to_bytes_and_back(target: str, variant: str) -> None:
    cases = [
        c for c in test_quantize_ops.CASES if c.id.startswith("float" if variant == "fpu" else ("real", "int8_uint8"))
    ]
    found = _checked(cases, target, variant)
    assert found >= ({"quantize_fpu"} if variant == "fpu" else {"dequantize_mve", "lookup_mve"})


def test_onnx_quantization() -> None:
    with _preferring("fpu", "mve"):
        cases = test_onnx_quantize.quantize_cases()
        quantize = prove_onnx(cases, target="cortex-m55")
        dequantize = prove_onnx(test_onnx_quantize.dequantize_cases(), target="cortex-m55")
    quantize.check()
    dequantize.check()
    steps = [s for proven in (quantize, dequantize) for c in proven.compiled.values() for s in c.program.steps]
    assert {s.kernel_name for s in steps} >= {"quantize_even_fpu", "dequantize_mve"}


def _edges(graph: Graph, samples: int, seed: int) -> list[list[Array]]:
    """Halves and quarters, numbers far out, infinities and a NaN for floats; random bytes."""
    rng = np.random.default_rng(seed)
    found: list[list[Array]] = []
    for _ in range(samples):
        arrays: list[Array] = []
        for name in graph.inputs:
            tensor = graph.tensor(name)
            if tensor.dtype.value == "float32":
                values = rng.integers(-3000, 3000, tensor.elements).astype(np.float32) / 8
                values[:8] = (np.inf, -np.inf, np.nan, 0.25, -0.25, 3e9, -3e38, -0.0)
            else:
                low, high = tensor.dtype.range
                values = rng.integers(low, high, tensor.elements, endpoint=True).astype(tensor.dtype.value)
            arrays.append(values.reshape(tensor.shape))
        found.append(arrays)
    return found


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize(("target", "board"), [("cortex-m4f", "qemu_m4"), ("cortex-m55", "qemu_m55")])
def test_on_emulated_cores(target: str, board: str, tmp_path: Path) -> None:
    scales = (0.5, 3.7)
    reals = [test_quantize_ops.from_real(f"from_{d}_{s}", d, (s, 0)) for d in ("int8", "int16") for s in scales]
    cases = [
        *some_bytes(),
        *_sums_of_shorts(),
        *(case for case in reductions() if math.prod(case.inputs[0].shape) < 3000),
        *reals,
        *(test_quantize_ops.to_real(f"to_{s}", "int8", (s, 5)) for s in scales),
    ]
    tflite, onnx = tmp_path / "cases.tflite", tmp_path / "cases.onnx"
    tflite.write_bytes(write_tflite(model_of(cases)))
    onnx.write_bytes(onnx_model_of(test_onnx_quantize.quantize_cases(), engine=True).SerializeToString())
    for model in (tflite, onnx):
        with _preferring("fpu", "mve", "dsp"), patch.object(boards, "random_samples", _edges):
            compiled = compile_model(model, target=target, package="platformio")
            result = boards.on_emulator(
                compiled, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path / model.suffix[1:]
            )
        assert result.match, model.name
