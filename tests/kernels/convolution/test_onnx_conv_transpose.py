"""ConvTranspose of ONNX: float32, and int8 between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.support.onnx_fused import check_fused
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import OnnxCase, computed, prove_onnx, refusal

RNG = np.random.default_rng(0)
Setting = tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]
SETTINGS: dict[str, Setting] = {
    "plain": ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    "stride2": ((2, 3, 4, 5), (3, 4, 2, 2), {"strides": [2, 2]}),
    "overlapping": ((1, 3, 4, 5), (3, 2, 4, 3), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    "gaps": ((1, 2, 3, 3), (2, 2, 2, 1), {"strides": [3, 2]}),
    "output_padding": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [3, 2], "output_padding": [2, 1], "pads": [1, 1, 1, 1]}),
    "output_shape": ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": [8, 6]}),
    "beyond": ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
    "same_upper": ((1, 2, 3, 4), (2, 2, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same_lower": ((1, 2, 3, 4), (2, 2, 4, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "dilated": ((1, 2, 4, 3), (2, 2, 2, 3), {"dilations": [2, 3], "strides": [1, 2], "pads": [1, 2, 0, 1]}),
    "groups": ((1, 6, 4, 3), (6, 2, 3, 2), {"group": 3, "strides": [2, 1]}),
    "depthwise": ((1, 4, 4, 3), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "one_dimension": ((1, 3, 7), (3, 2, 3), {"strides": [2], "pads": [1, 1]}),
    "one_value": ((1, 1, 1, 1), (1, 1, 1, 1), {}),
}


def _channels(setting: Setting) -> int:
    _, weights, attributes = setting
    return int(weights[1] * attributes.get("group", 1))


def test_float_layers_are_within_the_tolerance_of_the_engine() -> None:
    cases = []
    for name, setting in SETTINGS.items():
        shape, weights, attributes = setting
        x, w = {"x": computed(shape)}, {"w": RNG.uniform(-1, 1, weights).astype(np.float32)}
        bias = {"b": RNG.uniform(-1, 1, _channels(setting)).astype(np.float32)}
        cases.append(OnnxCase(name, "ConvTranspose", {**x, **w, **bias}, attributes))
        cases.append(OnnxCase(f"{name}_no_bias", "ConvTranspose", {**x, **w}, attributes))
        operands = {**x, "w": computed(weights), "b": computed((_channels(setting),))}
        cases.append(OnnxCase(f"{name}_computed", "ConvTranspose", operands, attributes))
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


def test_node_tests() -> None:
    check_node_tests(node_tests("ConvTranspose", without=("3d",)))


def _qdq(name: str, dtype: str, per_channel: bool, bias: bool) -> OnnxCase:
    setting = SETTINGS[name]
    shape, weights, attributes = setting
    w_scale = np.array(0.013 + 0.002 * np.arange(weights[1]) if per_channel else 0.013, np.float32)
    w_zero = np.zeros(w_scale.shape, "int8") if dtype == "int8" else np.full(w_scale.shape, 131, "uint8")
    low, high = (-127, 128) if dtype == "int8" else (0, 256)
    inputs: dict[str, Any] = {
        "x": computed(shape, dtype),
        "x_scale": np.float32(0.05),
        "x_zero": np.array(7, dtype),
        "w": RNG.integers(low, high, weights).astype(dtype),
        "w_scale": w_scale,
        "w_zero": w_zero,
        "y_scale": np.float32(0.3137281),
        "y_zero": np.array(3, dtype),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["image"]),
        helper.make_node("DequantizeLinear", ["w", "w_scale", "w_zero"], ["filters"], axis=1),
    ]
    operands = ["image", "filters"]
    if bias:
        inputs["b"] = RNG.integers(-3000, 3000, _channels(setting)).astype(np.int32)
        inputs["b_scale"] = np.float32(0.05) * w_scale
        nodes.append(helper.make_node("DequantizeLinear", ["b", "b_scale"], ["bias"], axis=0))
        operands.append("bias")
    nodes.append(helper.make_node("ConvTranspose", operands, ["real"], **attributes))
    nodes.append(helper.make_node("QuantizeLinear", ["real", "y_scale", "y_zero"], ["y"]))
    return OnnxCase(name, "", inputs, nodes=tuple(nodes))


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(
    ("dtype", "per_channel", "bias"),
    [("int8", False, True), ("int8", True, True), ("int8", True, False), ("uint8", False, False)],
)
def test_layers_between_dequantize_and_quantize(dtype: str, per_channel: bool, bias: bool) -> None:
    # Scales with no common divisor: where sums fall on a half the engine's float32 rounds either way.
    # A bias scale per channel has as many values as a group has channels: with several groups there is no such file.
    names = [name for name, setting in SETTINGS.items() if not (per_channel and bias and "group" in setting[2])]
    proven = prove_onnx([_qdq(name, dtype, per_channel, bias) for name in names], 4)
    for outcome in proven.outcomes.values():
        for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
            assert np.array_equal(golden[0], found[0]), outcome.case.id
    assert proven.memory_errors == ()
    check_fused(proven, "ConvTranspose")


WEIGHTS = {"w": np.ones((1, 1, 3, 3), np.float32)}
IMAGE = {"x": computed((1, 1, 4, 4))}
REFUSED = {
    "channels": (
        OnnxCase("", "ConvTranspose", {"x": computed((1, 3, 4, 4)), "w": np.ones((2, 1, 3, 3), np.float32)}),
        2,
        "has channels that do not fit",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    case, code, message = REFUSED[name]
    error = refusal(case)
    assert message in str(error)
    assert error.exit_code == code
