"""Softmax and LogSoftmax of ONNX: float32, and quantized in both dialects."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from emitc.ir import Array
from emitc.numerics.engine_functions import exponential
from tests.support.onnx_fused import check_fused
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import MICROSOFT, OnnxCase, computed, prove_onnx, refusal

SHAPES = {
    "last": ((4, 10), -1),
    "first": ((3, 5), 0),
    "middle": ((2, 6, 4), 1),
    "four": ((2, 3, 4, 5), -2),
    "one_value": ((7, 1), 1),
    "vector": ((33,), 0),
}


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_float_softmax_is_within_the_tolerance_of_the_engine(kind: str) -> None:
    cases = []
    for name, (shape, axis) in SHAPES.items():
        cases.append(OnnxCase(name, kind, {"x": computed(shape, low=-20.0, high=20.0)}, {"axis": axis}))
        cases.append(OnnxCase(f"{name}_flat", kind, {"x": computed(shape)}, {"axis": axis % len(shape)}, opset=12))
    cases.append(OnnxCase("defaults", kind, {"x": computed((3, 4, 5))}))
    cases.append(OnnxCase("flat_defaults", kind, {"x": computed((3, 4, 5))}, opset=11))
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


def test_exponentials_of_float32_are_the_engines() -> None:
    """It multiplies them by the reciprocal of their sum, which for two has no order; the generated code divides."""
    rng = np.random.default_rng(7)
    x = np.zeros((20000, 2), np.float32)
    x[:, 1] = -np.concatenate([rng.uniform(0, 86.4, 10000), 10.0 ** rng.uniform(-8, 1.9, 10000)])
    case = OnnxCase("pairs", "Softmax", {"x": computed(x.shape)}, draw=lambda rng, sample: {"x": x})
    ((golden,),) = prove_onnx([case], samples=1, sanitize=False).outcomes["pairs"].golden
    powers = exponential(x[:, 1])
    one = np.float32(1)
    assert golden[:, 1].tolist() == (powers * (one / (one + powers))).tolist()


@pytest.mark.parametrize("target", ["generic32", "cortex-m4f", "cortex-m55"])
def test_softmax_of_float32_has_the_references_bits(target: str) -> None:
    cases = [
        OnnxCase(name, "Softmax", {"x": computed(shape, low=-50.0, high=50.0)}, {"axis": axis})
        for name, (shape, axis) in SHAPES.items()
    ]
    prove_onnx(cases, 4, engine=False, target=target).check()


def test_node_tests() -> None:
    check_node_tests(node_tests("Softmax", "LogSoftmax"))


def _scales(dtype: str, x_scale: float, y_scale: float, y_zero: int) -> dict[str, Array]:
    zero = np.array(128 if dtype == "uint8" else 0, dtype)
    return {
        "x_scale": np.float32(x_scale),
        "x_zero": zero,
        "y_scale": np.float32(y_scale),
        "y_zero": np.array(y_zero, dtype),
    }


OUTPUTS = [("int8", 1 / 256, -128), ("int8", 0.003921569, -128), ("int8", 1 / 200, -20), ("int8", 1 / 128, 0)]
OUTPUTS += [("int8", 1 / 249.5, -128)]  # two equal values have 124.5 steps each
OUTPUTS += [("uint8", 1 / 256, 0), ("uint8", 0.003921569, 0), ("uint8", 1 / 253, 3)]


def qlinear_cases(dtype: str, y_scale: float, y_zero: int) -> list[OnnxCase]:
    """QLinearSoftmax of short and long rows, flat and steep; in a flat one, shares of equal values may be exactly a half."""
    return [
        OnnxCase(
            f"{depth}_{x_scale}",
            "QLinearSoftmax",
            {"x": computed((16, depth), dtype), **_scales(dtype, x_scale, y_scale, y_zero)},
            {"axis": -1, "opset": 13},
            domain=MICROSOFT,
        )
        for depth in (1, 2, 3, 10, 35, 300)
        for x_scale in (0.001, 0.05, 0.3, 1.0, 10.0)
    ]


@pytest.mark.sweep(keep=4)
@pytest.mark.parametrize(("dtype", "y_scale", "y_zero"), OUTPUTS)
def test_qlinear_softmax_has_the_engines_bits(dtype: str, y_scale: float, y_zero: int) -> None:
    prove_onnx(qlinear_cases(dtype, y_scale, y_zero), 6).check()


def _qdq(id: str, kind: str, shape: tuple[int, ...], dtype: str, scales: dict[str, Array], axis: int) -> OnnxCase:
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]),
        helper.make_node(kind, ["real"], ["shares"], axis=axis),
        helper.make_node("QuantizeLinear", ["shares", "y_scale", "y_zero"], ["y"]),
    )
    return OnnxCase(id, "", {"x": computed(shape, dtype), **scales}, nodes=nodes)


def dequantized_cases(dtype: str, y_scale: float, y_zero: int) -> list[OnnxCase]:
    """Softmax between DequantizeLinear and QuantizeLinear, along every dimension."""
    return [
        _qdq(f"{name}_{x_scale}", "Softmax", shape, dtype, _scales(dtype, x_scale, y_scale, y_zero), axis)
        for name, (shape, axis) in SHAPES.items()
        for x_scale in (0.01, 0.1, 0.7)
    ]


@pytest.mark.sweep(keep=4)
@pytest.mark.parametrize(("dtype", "y_scale", "y_zero"), OUTPUTS)
def test_softmax_between_dequantize_and_quantize_has_the_engines_bits(dtype: str, y_scale: float, y_zero: int) -> None:
    proven = prove_onnx(dequantized_cases(dtype, y_scale, y_zero), 6)
    proven.check()
    check_fused(proven, "Softmax")


def test_int16_softmax_differs_from_the_engine_by_one_step_in_few_elements() -> None:
    # The engine's float32 exp is off by more than the tables.
    cases = [
        _qdq(f"{depth}_{x_scale}", "Softmax", (64, depth), "int16", _scales("int16", x_scale, y_scale, 0), -1)
        for depth in (2, 10, 40)
        for x_scale in (1e-4, 5e-4, 2e-3)
        for y_scale in (1 / 32768,)
    ]
    proven = prove_onnx(cases, 4)
    differing = elements = 0
    for outcome in proven.outcomes.values():
        for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
            gap = np.abs(found[0].astype(np.int64) - golden[0])
            assert gap.max() <= 1
            differing += int((gap > 0).sum())
            elements += gap.size
    assert differing <= elements // 500
    check_fused(proven, "Softmax")
    assert proven.memory_errors == ()


def test_log_softmax_between_dequantize_and_quantize_stays_in_float() -> None:
    case = _qdq("log", "LogSoftmax", (4, 10), "int8", _scales("int8", 0.1, 0.05, 0), -1)
    proven = prove_onnx([case])
    proven.check()
    (compiled,) = proven.compiled.values()
    assert "log_softmax_float" in {step.kernel_name for step in compiled.program.steps}


def test_a_softmax_of_no_stated_opset_is_refused_where_it_matters() -> None:
    inputs = {"x": computed((2, 3, 4), "int8"), **_scales("int8", 0.1, 1 / 256, -128)}
    case = OnnxCase("", "QLinearSoftmax", inputs, {"axis": 1, "opset": 1}, domain=MICROSOFT)
    error = refusal(case, engine=True)
    assert "does not say whose Softmax it is" in str(error) and error.exit_code == 1


def test_a_share_of_too_many_steps_is_refused() -> None:
    case = OnnxCase(
        "", "QLinearSoftmax", {"x": computed((2, 3), "int8"), **_scales("int8", 0.1, 2.0**-25, -128)},
        {"axis": -1, "opset": 13}, domain=MICROSOFT,
    )  # fmt: skip
    error = refusal(case, engine=True)
    assert "an output scale that is out of proportion" in str(error) and error.exit_code == 2
