"""Pools of ONNX: float32 within the engine's tolerance, quantized ones bit for bit, in both dialects."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import helper

from tests.support.onnx_fused import check_fused
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import MICROSOFT, OPSET, Computed, OnnxCase, computed, prove_onnx, refusal

WINDOWS = {
    "2x2": ((1, 3, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "overlapping": ((2, 3, 9, 7), {"kernel_shape": [3, 3], "strides": [1, 2]}),
    "padded": ((1, 5, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "padded_unevenly": ((1, 2, 6, 9), {"kernel_shape": [3, 4], "strides": [1, 3], "pads": [0, 1, 2, 3]}),
    "same_upper": ((1, 2, 7, 6), {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((1, 2, 7, 6), {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "valid": ((1, 2, 7, 6), {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "VALID"}),
    "ceil": ((1, 3, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "ceil_padded": ((1, 3, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    "one_row": ((2, 3, 1, 16), {"kernel_shape": [1, 4], "strides": [1, 4]}),
    "one_dimension": ((2, 3, 17), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    "whole_image": ((1, 6, 5, 4), {"kernel_shape": [5, 4]}),
    "one_value": ((1, 1, 1, 1), {"kernel_shape": [1, 1]}),
}
DILATED = {
    "dilated": ((1, 2, 9, 9), {"kernel_shape": [2, 3], "dilations": [2, 3], "strides": [2, 1]}),
    "dilated_padded": ((1, 2, 7, 9), {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [2, 2, 2, 2]}),
}
FLOAT_TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def _float_cases() -> list[OnnxCase]:
    cases = []
    for name, (shape, attributes) in (WINDOWS | DILATED).items():
        x = {"x": computed(shape)}
        cases.append(OnnxCase(f"max_{name}", "MaxPool", x, attributes))
        cases.append(OnnxCase(f"average_{name}", "AveragePool", x, attributes))
        cases.append(OnnxCase(f"counting_{name}", "AveragePool", x, attributes | {"count_include_pad": 1}))
    for shape in ((1, 3, 5, 7), (2, 4, 1, 1), (1, 3, 11)):
        for kind in ("GlobalAveragePool", "GlobalMaxPool"):
            cases.append(OnnxCase(f"{kind}_{len(shape)}_{shape[-1]}", kind, {"x": computed(shape)}))
    return cases


def test_float_pools_are_within_the_tolerance_of_the_engine() -> None:
    prove_onnx(_float_cases(), 3).check(**FLOAT_TOLERANCE)


def test_node_tests() -> None:
    check_node_tests(
        node_tests("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", without=("3d", "argmax"))
    )


def test_maximum_of_infinities() -> None:
    x = np.array([[[[-np.inf, -np.inf, 3.0, -np.inf, np.inf, 1.0]]]], np.float32)
    attributes = {"kernel_shape": [1, 2], "strides": [1, 2]}
    case = OnnxCase("infinities", "MaxPool", {"x": computed(x.shape)}, attributes, draw=lambda rng, i: {"x": x})
    outcome = prove_onnx([case], 1, engine=False).outcomes["infinities"]
    assert outcome.compiled[0][0].reshape(-1).tolist() == [-np.inf, 3.0, np.inf]


def _scales(dtype: str, x: tuple[float, int], y: tuple[float, int]) -> dict[str, np.ndarray]:
    return {
        "x_scale": np.float32(x[0]), "x_zero": np.array(x[1], dtype), "y_scale": np.float32(y[0]), "y_zero": np.array(y[1], dtype)
    }  # fmt: skip


QUANTIZATIONS = {
    "int8_same": ("int8", (0.05, 0), (0.05, 0)),
    "int8_odd_zero": ("int8", (0.02, 3), (0.02, 5)),
    "int8_ends": ("int8", (0.031, -128), (0.017, 127)),
    "int8_wider": ("int8", (0.0237, 7), (0.0311, -1)),
    "int8_saturating": ("int8", (0.1, 0), (0.01, 0)),
    "int8_very_wide": ("int8", (2.0, 5), (0.01, -3)),
    "uint8_zero": ("uint8", (0.05, 0), (0.05, 0)),
    "uint8_odd": ("uint8", (0.02, 3), (0.02, 5)),
}


def qlinear_averages(quantization: str) -> list[OnnxCase]:
    """QLinearAveragePool and QLinearGlobalAveragePool quantized as QUANTIZATIONS has it."""
    dtype, x, y = QUANTIZATIONS[quantization]
    cases = []
    for name, (shape, attributes) in WINDOWS.items():
        inputs = {"x": computed(shape, dtype), **_scales(dtype, x, y)}
        for counting in (0, 1):
            attrs = attributes | {"count_include_pad": counting}
            cases.append(OnnxCase(f"{name}_{counting}", "QLinearAveragePool", inputs, attrs, domain=MICROSOFT))
    for shape in ((1, 64, 4, 4), (2, 5, 7, 3)):
        inputs = {"x": computed(shape, dtype), **_scales(dtype, x, y)}
        case = OnnxCase(
            f"global_{shape[1]}", "QLinearGlobalAveragePool", inputs, {"channels_last": 0}, domain=MICROSOFT
        )
        cases.append(case)
    return cases


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_qlinear_average_pools_have_the_engines_bits(quantization: str) -> None:
    prove_onnx(qlinear_averages(quantization), 6).check()


def _qdq(
    id: str, kind: str, x: Computed, scales: dict[str, np.ndarray], attributes: dict[str, object], opset: int = OPSET
) -> OnnxCase:
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]),
        helper.make_node(kind, ["real"], ["pooled"], **attributes),
        helper.make_node("QuantizeLinear", ["pooled", "y_scale", "y_zero"], ["y"]),
    )
    return OnnxCase(id, "", {"x": x, **scales}, opset=opset, nodes=nodes)


QDQ = QUANTIZATIONS | {
    "int8_disproportionate": ("int8", (200.0, 0), (0.0001, 0)),
    "int16_same": ("int16", (0.05, 0), (0.05, 0)),
    "int16_offset": ("int16", (0.0003, 1000), (0.0004, -7)),
}


def dequantized_averages(quantization: str) -> list[OnnxCase]:
    """Averages between DequantizeLinear and QuantizeLinear, as QDQ has them."""
    dtype, x, y = QDQ[quantization]
    scales = _scales(dtype, x, y)
    cases = [
        _qdq(f"{name}_{counting}", "AveragePool", computed(shape, dtype), scales, attributes | {"count_include_pad": counting})
        for (name, (shape, attributes)), counting in itertools.product((WINDOWS | DILATED).items(), (0, 1))
    ]  # fmt: skip
    cases += [
        _qdq(f"global_{shape[1]}_{shape[2]}", "GlobalAveragePool", computed(shape, dtype), scales, {})
        for shape in ((1, 64, 4, 4), (2, 5, 7, 3), (1, 64, 8, 8), (1, 3, 1, 2))
    ]
    return cases


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("quantization", QDQ)
def test_averages_between_dequantize_and_quantize_have_the_engines_bits(quantization: str) -> None:
    proven = prove_onnx(dequantized_averages(quantization), 6)
    proven.check()
    check_fused(proven, "AveragePool")
    check_fused(proven, "GlobalAveragePool")


def test_averages_of_16_bits_have_the_engines_bits() -> None:
    """Of fewer and of more channels than a word has bytes."""
    proven = prove_onnx(dequantized_averages("int16_offset")[-4:], 6)
    proven.check()
    check_fused(proven, "GlobalAveragePool")


def ordered_averages(opset: int) -> list[OnnxCase]:
    """Averages of opsets in which the order of the engine's sums depends on the window."""
    wide = {
        "tall": ((1, 2, 40, 6), {"kernel_shape": [33, 2], "strides": [4, 1]}),
        "whole_strided": ((1, 24, 5, 6), {"kernel_shape": [5, 6], "strides": [1, 2]}),
        "broad": ((1, 1, 2, 2100), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    }
    scales = _scales("int8", (0.02, 3), (0.02, 5))
    return [
        _qdq(
            f"{name}_{count}",
            "AveragePool",
            computed(shape, "int8"),
            scales,
            attributes | {"count_include_pad": count},
            opset,
        )
        for (name, (shape, attributes)), count in itertools.product((WINDOWS | wide).items(), (0, 1))
    ]


@pytest.mark.parametrize("opset", [11, 18])
def test_averages_have_the_engines_bits_before_it_changed_the_order_of_its_sums(opset: int) -> None:
    proven = prove_onnx(ordered_averages(opset), 6)
    proven.check()
    check_fused(proven, "AveragePool")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_maxima_of_quantized_values_are_copies(dtype: str) -> None:
    scales = _scales(dtype, (0.1, 3), (0.1, 3))
    cases = [
        _qdq(name, "MaxPool", computed(shape, dtype), scales, attributes)
        for name, (shape, attributes) in (WINDOWS | DILATED).items()
    ]
    cases.append(_qdq("global", "GlobalMaxPool", computed((2, 5, 3, 4), dtype), scales, {}))
    prove_onnx(cases).check()


POOL = {"kernel_shape": [2, 2]}
IMAGE = {"x": computed((1, 1, 4, 4))}


JUMPING = {"kernel_shape": [2, 1], "dilations": [2, 1], "pads": [1, 0, 1, 0]}
REFUSED = {
    "indices": (OnnxCase("", "MaxPool", IMAGE, POOL, outputs=("y", "i")), "the output Indices is not supported"),
    "wide": (OnnxCase("", "MaxPool", IMAGE, POOL | {"pads": [2, 0, 0, 0]}), "padding [2, 0, 0, 0] round a 2x2 window"),
    "jump": (OnnxCase("", "MaxPool", {"x": computed((1, 1, 1, 4))}, JUMPING), "has a window that meets no value"),
    "double": (OnnxCase("", "MaxPool", {"x": computed((1, 1, 4, 4), "float64")}, POOL), "(float64, float64) is not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    case, message = REFUSED[name]
    error = refusal(case)
    assert message in str(error)
    assert error.exit_code == 1
