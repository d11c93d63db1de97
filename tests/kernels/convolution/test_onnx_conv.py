"""Convolutions and constant matrices of ONNX: both dialects against onnxruntime, and float32.

QOperator: 0 differing elements. DequantizeLinear-operator-QuantizeLinear groups: the engine computes in float32, so that an
exact tie may fall the other way: at most 1 step in at most 1 of 10^5 elements (docs/numerics.md). Float: 1e-5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.support.onnx_op import MICROSOFT, Computed, OnnxCase, Outcome, computed, prove_onnx, refusal

FLOAT_TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
RNG = np.random.default_rng(7)

WINDOWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 3, 7, 6), (5, 3, 3, 3), {}),
    "padded": ((2, 4, 6, 7), (6, 4, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    "padded_unevenly": ((1, 2, 8, 8), (4, 2, 3, 3), {"pads": [0, 0, 1, 1], "strides": [2, 2]}),
    "same_upper": ((1, 2, 7, 6), (3, 2, 2, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same_lower": ((1, 2, 7, 6), (3, 2, 2, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "dilated": ((1, 2, 9, 9), (4, 2, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "grouped": ((1, 6, 5, 5), (4, 3, 3, 3), {"group": 2}),
    "pointwise": ((1, 7, 4, 5), (9, 7, 1, 1), {}),
    "depthwise": ((1, 6, 7, 5), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "depthwise_twice": ((1, 3, 6, 6), (6, 1, 3, 3), {"group": 3, "pads": [1, 0, 1, 0]}),
    "one_dimension": ((1, 3, 11), (4, 3, 3), {"pads": [1, 1], "strides": [2]}),
    "one_dimension_dilated": ((2, 4, 12), (4, 1, 3), {"group": 4, "dilations": [2]}),
}


def _weights(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def _scalar(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


def qlinear_conv(
    name: str, x: str, w: str, y: str, w_zero: int = 0, *, channels: bool = False, bias: bool = True, x_zero: int = 3
) -> OnnxCase:
    """A QLinearConv of x, w, y types on a window of the table."""
    shape, kernel, attributes = WINDOWS[name]
    out = kernel[0]
    scale = RNG.uniform(0.002, 0.01, out).astype(np.float32) if channels else _scalar(0.004)
    zeros = np.full(out, w_zero, w) if channels else _scalar(w_zero, w)
    inputs: dict[str, Any] = {
        "x": computed(shape, x), "xs": _scalar(0.05), "xz": _scalar(x_zero, x),
        "w": _weights(kernel, w), "ws": scale, "wz": zeros,
        "ys": _scalar(0.13), "yz": _scalar(100 if y == "uint8" else -7, y),
    }  # fmt: skip
    if bias:
        inputs["b"] = RNG.integers(-3000, 3000, out).astype(np.int32)
    kind = f"{name}_{x}_{w}{'_channels' if channels else ''}{'' if bias else '_no_bias'}{'_zero' if w_zero else ''}"
    return OnnxCase(kind, "QLinearConv", inputs, attributes)


CONVOLUTIONS = [
    *(qlinear_conv(name, "int8", "int8", "int8", channels=True) for name in WINDOWS),
    *(qlinear_conv(name, "uint8", "int8", "uint8", x_zero=128, channels=True) for name in WINDOWS),
    *(qlinear_conv(name, "uint8", "uint8", "uint8", 131, x_zero=9) for name in WINDOWS),
    qlinear_conv("plain", "int8", "int8", "int8", 5),
    qlinear_conv("plain", "uint8", "uint8", "uint8", 128, x_zero=255, bias=False),
    qlinear_conv("pointwise", "uint8", "int8", "uint8", x_zero=0, bias=False),
    qlinear_conv("depthwise", "int8", "int8", "int8", bias=False, x_zero=-128),
]


def qgemm(
    name: str, a: str, b: str, turned: int, zero: int = 0, *, channels: bool = False, bias: bool = True
) -> OnnxCase:
    """A QGemm with a constant matrix."""
    depth, out = 13, 7
    matrix = _weights((out, depth) if turned else (depth, out), b)
    scale = RNG.uniform(0.002, 0.01, out).astype(np.float32) if channels else _scalar(0.006)
    zeros = np.full(out, zero, b) if channels else _scalar(zero, b)
    inputs: dict[str, Any] = {
        "a": computed((3, depth), a), "as": _scalar(0.04), "az": _scalar(11, a), "b": matrix, "bs": scale, "bz": zeros,
        "c": RNG.integers(-2000, 2000, (out,)).astype(np.int32) if bias else None,
        "ys": _scalar(0.17), "yz": _scalar(64, a),
    }  # fmt: skip
    return OnnxCase(name, "QGemm", inputs, {"transB": turned}, domain=MICROSOFT)


MATRICES = [
    qgemm("s8s8", "int8", "int8", 1),
    qgemm("s8s8_as_it_comes", "int8", "int8", 0),
    qgemm("u8s8_channels", "uint8", "int8", 1, channels=True),
    qgemm("u8u8", "uint8", "uint8", 0, 77),
    qgemm("u8u8_no_bias", "uint8", "uint8", 1, 128, bias=False),
    OnnxCase(
        "matmul_three_dimensions",
        "QLinearMatMul",
        {
            "a": computed((2, 4, 9), "uint8"), "as": _scalar(0.03), "az": _scalar(130, "uint8"),
            "b": _weights((9, 5), "uint8"), "bs": _scalar(0.01), "bz": _scalar(99, "uint8"),
            "ys": _scalar(0.2), "yz": _scalar(3, "uint8"),
        },
    ),
]  # fmt: skip


def test_integer_convolutions_have_the_bits_of_the_engine() -> None:
    prove_onnx(CONVOLUTIONS, 4).check()


def test_integer_matrices_have_the_bits_of_the_engine() -> None:
    prove_onnx(MATRICES, 6).check()


def float_conv(name: str, *, computed_weights: bool = False) -> OnnxCase:
    """A Conv in float32."""
    shape, kernel, attributes = WINDOWS[name]
    w: Any = computed(kernel) if computed_weights else RNG.normal(0, 0.3, kernel).astype(np.float32)
    bias: Any = computed(kernel[:1]) if computed_weights else RNG.normal(0, 1, kernel[0]).astype(np.float32)
    suffix = "_computed" if computed_weights else ""
    return OnnxCase(f"float_{name}{suffix}", "Conv", {"x": computed(shape), "w": w, "b": bias}, attributes)


FLOATS = [
    *(float_conv(name) for name in WINDOWS),
    float_conv("padded", computed_weights=True),
    float_conv("grouped", computed_weights=True),
    OnnxCase(
        "float_no_bias", "Conv", {"x": computed((1, 2, 5, 5)), "w": RNG.normal(0, 1, (3, 2, 2, 2)).astype(np.float32)}
    ),
    OnnxCase(
        "gemm",
        "Gemm",
        {
            "a": computed((3, 6)),
            "b": RNG.normal(0, 1, (4, 6)).astype(np.float32),
            "c": RNG.normal(0, 1, (1, 4)).astype(np.float32),
        },
        {"transB": 1},
    ),
    OnnxCase(
        "gemm_turned", "Gemm", {"a": computed((6, 3)), "b": RNG.normal(0, 1, (6, 4)).astype(np.float32)}, {"transA": 1}
    ),
    OnnxCase("matmul", "MatMul", {"a": computed((2, 3, 6)), "b": RNG.normal(0, 1, (6, 5)).astype(np.float32)}),
]


def test_float_convolutions_are_within_the_tolerance_of_the_engine() -> None:
    prove_onnx(FLOATS, 3).check(**FLOAT_TOLERANCE)


def group(
    name: str, op: str, x: str, weights: np.ndarray, attributes: dict[str, Any], shape: tuple[int, ...]
) -> OnnxCase:
    """DequantizeLinear - op - Relu - QuantizeLinear with weights per output channel."""
    out = weights.shape[0]
    axis = {"axis": 0}
    relu = name.endswith("relu")
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], **axis),
        helper.make_node("DequantizeLinear", ["b", "bs"], ["bf"], **axis),
        helper.make_node(op, ["xf", "wf", "bf"], ["raw"], **attributes),
        *([helper.make_node("Relu", ["raw"], ["cut"])] if relu else []),
        helper.make_node("QuantizeLinear", ["cut" if relu else "raw", "ys", "yz"], ["y"]),
    ]
    scale = RNG.uniform(0.002, 0.01, out).astype(np.float32)
    wide = x == "int16"
    inputs: dict[str, Any] = {
        "x": computed(shape, x), "xs": _scalar(0.0003 if wide else 0.05), "xz": _scalar(0 if wide else 4, x),
        "w": weights, "ws": scale, "wz": np.zeros(out, np.int8),
        "b": RNG.integers(-3000, 3000, out).astype(np.int32), "bs": (scale * np.float32(0.0003 if wide else 0.05)),
        "ys": _scalar(0.0009 if wide else 0.13), "yz": _scalar(0 if wide else -9, x),
    }  # fmt: skip
    return OnnxCase(name, "", inputs, nodes=tuple(nodes))


GROUPS = [
    *(
        group(f"{name}_{x}{relu}", "Conv", x, _weights(kernel, "int8"), attributes, shape)
        for name, (shape, kernel, attributes) in WINDOWS.items()
        for x, relu in (("int8", ""), ("int8", "_relu"), ("int16", ""))
    ),
    group("gemm_int8", "Gemm", "int8", _weights((9, 21), "int8"), {"transB": 1}, (2, 21)),
    group("gemm_int16_relu", "Gemm", "int16", _weights((9, 21), "int8"), {"transB": 1}, (2, 21)),
]


def _off_by(outcome: Outcome) -> tuple[int, int, int]:
    """Elements, those of the C that differ from the engine's, and the largest difference, in steps."""
    differing = largest = elements = 0
    for found, golden in zip(outcome.compiled, outcome.golden, strict=True):
        gap = np.abs(found[0].astype(np.int64).reshape(-1) - golden[0].astype(np.int64).reshape(-1))
        elements += gap.size
        differing += int((gap != 0).sum())
        largest = max(largest, int(gap.max()))
    return elements, differing, largest


def _integer_only(cases: list[OnnxCase]) -> tuple[int, int, int]:
    """The sums of `_off_by` over cases that must have compiled to integer operators alone."""
    proven = prove_onnx(cases, 4)
    assert proven.memory_errors == ()
    (compiled,) = proven.compiled.values()
    assert {port.dtype for port in (*compiled.program.inputs, *compiled.program.outputs)} <= {"int8", "int16"}
    assert not [step.op_type for step in compiled.program.steps if "float" in (*(o.c_type for o in step.outputs),)]
    sums = [_off_by(proven.outcomes[case.id]) for case in cases]
    return sum(s[0] for s in sums), sum(s[1] for s in sums), max(s[2] for s in sums)


def test_groups_of_bytes_have_the_bits_of_the_engine() -> None:
    elements, differing, largest = _integer_only([case for case in GROUPS if "int16" not in case.id])
    # At most 1 step in 1 of 10^5 elements (docs/numerics.md); there are fewer than 10^5.
    assert elements > 10_000
    assert (differing, largest) == (0, 0)


def test_groups_of_words_are_within_a_step_of_the_engine() -> None:
    # The engine sums products in float32, whose error is a fair part of an int16 step: 1 step at most (docs/numerics.md).
    elements, differing, largest = _integer_only([case for case in GROUPS if "int16" in case.id])
    assert largest <= 1
    assert differing <= elements // 50


@pytest.mark.parametrize(
    ("inputs", "attributes", "what"),
    [
        ({"x": computed((1, 2, 5, 5)), "w": computed((3, 2, 3, 3))}, {"kernel_shape": [2, 2]}, "Conv has kernel_shape"),
        ({"x": computed((1, 2, 2, 5, 5)), "w": computed((3, 2, 1, 3, 3))}, {}, "3 spatial dimensions is not supported"),
    ],
)
def test_refusals(inputs: dict[str, Computed], attributes: dict[str, Any], what: str) -> None:
    assert what in str(refusal(OnnxCase("refused", "Conv", inputs, attributes)))
