"""MatMul and Gemm of ONNX: float32, QLinearMatMul, and between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from emitc.ir import Array
from tests.support.onnx_frozen import frozen
from tests.support.onnx_fused import check_fused
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import Computed, OnnxCase, computed, prove_onnx, refusal

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "matrices": ((5, 7), (7, 6)),
    "one_column": ((5, 7), (7, 1)),
    "nine_columns": ((1, 3), (3, 9)),
    "batch": ((4, 5, 7), (4, 7, 6)),
    "repeated_a": ((5, 7), (3, 7, 4)),
    "repeated_b": ((2, 3, 5, 7), (7, 4)),
    "crossed": ((2, 1, 5, 3), (1, 4, 3, 5)),
    "alternating": ((2, 1, 2, 2, 3), (1, 3, 2, 3, 2)),
    "vector_matrix": ((7,), (7, 6)),
    "matrix_vector": ((5, 7), (7,)),
    "vectors": ((7,), (7,)),
    "vector_batch": ((7,), (2, 7, 5)),
    "batch_vector": ((2, 3, 7), (7,)),
    "scalar_like": ((1, 1), (1, 1)),
}
RNG = np.random.default_rng(0)


def _reals(*shape: int) -> Array:
    return RNG.uniform(-2, 2, shape).astype(np.float32)


def test_float_products_are_within_the_tolerance_of_the_engine() -> None:
    cases = []
    for name, (a, b) in SHAPES.items():
        cases.append(OnnxCase(name, "MatMul", {"a": computed(a), "b": computed(b)}))
        cases.append(OnnxCase(f"{name}_constant_a", "MatMul", {"a": _reals(*a), "b": computed(b)}))
        cases.append(OnnxCase(f"{name}_constant_b", "MatMul", {"a": computed(a), "b": _reals(*b)}))
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


def test_gemm_is_within_the_tolerance_of_the_engine() -> None:
    cases = []
    for turn_a, turn_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        a, b = (7, 5) if turn_a else (5, 7), (6, 7) if turn_b else (7, 6)
        turned = {"transA": turn_a, "transB": turn_b}
        for name, c in {
            "none": None,
            "whole": (5, 6),
            "row": (6,),
            "rows": (1, 6),
            "column": (5, 1),
            "one": (),
        }.items():
            for alpha, beta in ((1.0, 1.0), (0.5, -2.0)):
                inputs = {"a": computed(a), "b": computed(b)} | ({} if c is None else {"c": computed(c)})
                attributes = turned | {"alpha": alpha, "beta": beta}
                cases.append(OnnxCase(f"{name}_{turn_a}{turn_b}_{alpha}", "Gemm", inputs, attributes))
        constants = {"a": _reals(*a), "b": computed(b), "c": _reals(5, 6)}
        cases.append(OnnxCase(f"constant_a_{turn_a}{turn_b}", "Gemm", constants, turned))
        constants = {"a": computed(a), "b": _reals(*b), "c": _reals(1)}
        cases.append(OnnxCase(f"constant_b_{turn_a}{turn_b}", "Gemm", constants, turned | {"alpha": 3.0}))
    prove_onnx(cases, 2).check(rtol=1e-5, atol=1e-5)


def test_node_tests() -> None:
    check_node_tests(node_tests("MatMul", "Gemm"))
    check_node_tests(frozen(node_tests("QLinearMatMul", without=("float16",)), 0, 3))


def _quantization(name: str, dtype: str, scale: float | list[float], zero_point: int) -> dict[str, Array]:
    scales = np.array(scale, np.float32)
    return {f"{name}_scale": scales, f"{name}_zero": np.full(scales.shape, zero_point, dtype)}


QUANTIZATIONS = {
    "int8": ("int8", (0.05, 3), (0.02, -7), (0.11, 5)),
    "int8_ends": ("int8", (0.05, -128), (0.02, 127), (0.31, -128)),
    "int8_ties": ("int8", (0.5, 0), (0.5, 0), (0.5, 1)),
    "int8_saturating": ("int8", (0.5, 10), (0.5, 0), (0.1, 0)),
    "uint8": ("uint8", (0.05, 128), (0.02, 120), (0.11, 3)),
}


def qlinear(id: str, a: Computed | Array, b: Computed | Array, name: str) -> OnnxCase:
    """QLinearMatMul quantized as QUANTIZATIONS has it."""
    dtype, *scales = QUANTIZATIONS[name]
    inputs: dict[str, Array | Computed | None] = {}
    for role, value, q in zip("aby", (a, b, None), scales, strict=True):
        inputs |= ({role: value} if value is not None else {}) | _quantization(role, dtype, *q)
    return OnnxCase(id, "QLinearMatMul", inputs)


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_qlinear_matmul_has_the_engines_bits(name: str) -> None:
    dtype, info = QUANTIZATIONS[name][0], np.iinfo(QUANTIZATIONS[name][0])
    cases = []
    for shape, (a, b) in SHAPES.items():
        if len(a) == 1 or len(b) == 1:
            continue
        for constant in ("", "a", "b"):
            given = [
                RNG.integers(info.min, info.max + 1, shape_of).astype(dtype)
                if constant == role
                else computed(shape_of, dtype)
                for role, shape_of in (("a", a), ("b", b))
            ]
            cases.append(qlinear(f"{shape}_{constant}", given[0], given[1], name))
    prove_onnx(cases, 4).check()


def _qdq(id: str, a: tuple[int, ...], b: tuple[int, ...], dtypes: tuple[str, str, str], y_scale: float) -> OnnxCase:
    a_type, b_type, y_type = dtypes
    nodes = (
        helper.make_node("DequantizeLinear", ["a", "a_scale", "a_zero"], ["left"]),
        helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["right"]),
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "y_scale", "y_zero"], ["y"]),
    )
    inputs: dict[str, object] = {"a": computed(a, a_type), "b": computed(b, b_type)}
    inputs |= _quantization("a", a_type, 0.0123, 3)
    inputs |= _quantization("b", b_type, 0.0217, 5)
    inputs |= _quantization("y", y_type, y_scale, 1)
    return OnnxCase(id, "", inputs, nodes=nodes)  # type: ignore[arg-type]


WIDTHS = {
    "int8": (("int8", "int8", "int8"), 0.0531),
    "uint8": (("uint8", "uint8", "uint8"), 0.0531),
    "int16_int8": (("int16", "int8", "int16"), 0.0531),
    "int16": (("int16", "int16", "int16"), 31.7),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_products_between_dequantize_and_quantize(name: str) -> None:
    # The engine sums float32 products: beyond 24 bits that differs from integers by one step where the result is near a half.
    dtypes, y_scale = WIDTHS[name]
    cases = [_qdq(shape, a, b, dtypes, y_scale) for shape, (a, b) in SHAPES.items()]
    proven = prove_onnx(cases, 4)
    differing = elements = 0
    for outcome in proven.outcomes.values():
        for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
            gap = np.abs(found[0].astype(np.int64) - golden[0])
            assert gap.max() <= (1 if "16" in name else 0), outcome.case.id
            differing += int((gap > 0).sum())
            elements += gap.size
    assert differing <= elements // 100
    assert proven.memory_errors == ()
    check_fused(proven, "MatMul")


def column_cases() -> list[OnnxCase]:
    """A constant with a scale for each column."""
    nodes = (
        helper.make_node("DequantizeLinear", ["a", "a_scale", "a_zero"], ["left"]),
        helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["right"], axis=2),
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "y_scale", "y_zero"], ["y"]),
    )
    cases = []
    for rows, depth, columns in ((3, 5, 6), (2, 4, 4), (1, 7, 3)):
        inputs: dict[str, object] = {"a": computed((2, rows, depth), "int8")} | _quantization("a", "int8", 0.0313, 5)
        inputs["b"] = RNG.integers(-127, 128, (2, depth, columns)).astype(np.int8)
        inputs |= _quantization("b", "int8", [0.0117 * (i + 1) for i in range(columns)], 0)
        inputs |= _quantization("y", "int8", 0.0531, 7)
        cases.append(OnnxCase(f"{columns}", "", inputs, nodes=nodes))  # type: ignore[arg-type]
    return cases


def test_a_constant_with_a_scale_for_each_column() -> None:
    proven = prove_onnx(column_cases(), 4)
    for outcome in proven.outcomes.values():
        for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
            assert np.array_equal(golden[0], found[0])
    check_fused(proven, "MatMul")


REFUSED = {
    "alternating": (((2, 1, 2, 1, 3, 2), (1, 2, 1, 2, 2, 3)), 1, "alternating dimensions"),
    "integers": (((2, 3), (3, 2)), 1, "(int32, int32, int32) is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    (a, b), code, message = REFUSED[name]
    dtype = "int32" if name == "integers" else "float32"
    error = refusal(OnnxCase("", "MatMul", {"a": computed(a, dtype), "b": computed(b, dtype)}))
    assert message in str(error)
    assert error.exit_code == code
