"""ONNX's operators of one tensor: numpy reference, onnxruntime and C agree; on quantized bytes with 0 differing elements."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

from emitc.errors import EmitcError
from emitc.ir import Array, Numerics
from emitc.kernels import kernel_of, onnx_registry
from emitc.kernels.activation.unary_functions import Function
from emitc.layer import Layer
from emitc.source import SourceNode, SourceTensor
from tests.support.onnx_op import MICROSOFT, OnnxCase, computed, graph_of, prove_onnx, refusal

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 20.5, -88.0],
    np.float32,
)
Attributes = Mapping[str, Any]


def edged(shape: tuple[int, ...] = (len(EDGES) + 110,), low: float = -6.0, high: float = 6.0) -> dict[str, Any]:
    """Values that begin with the edges."""

    def draw(rng: np.random.Generator, _sample: int) -> Mapping[str, Array]:
        values = rng.uniform(low, high, int(np.prod(shape))).astype(np.float32)
        values[: len(EDGES)] = EDGES[: values.size]
        return {"x": values.reshape(shape)}

    return {"inputs": {"x": computed(shape)}, "draw": draw}


def real(name: str, op_type: str, attributes: Attributes | None = None, **changes: Any) -> OnnxCase:
    """An operator of float32, on the edges and on random values."""
    return OnnxCase(name, op_type, attributes=attributes or {}, **{**edged(), **changes})


LIBRARY = (
    "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Softplus", "Softsign", "Mish", "Selu", "Elu", "Celu", "Sin", "Cos", "Tan",
    "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)  # fmt: skip
BY_TABLE = (
    "Sigmoid", "Tanh", "Relu", "HardSwish", "HardSigmoid", "Erf", "Gelu", "Elu", "Selu", "Celu", "Softplus", "Softsign",
    "Mish", "Abs", "Neg", "Exp", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Atan", "Sinh", "Shrink",
)  # fmt: skip
# Copies, comparisons and single float32 operations: every bit.
EXACT = [
    real("relu", "Relu"),
    real("leaky_relu", "LeakyRelu"),
    real("leaky_relu_zero", "LeakyRelu", {"alpha": 0.0}),
    real("leaky_relu_negative", "LeakyRelu", {"alpha": -1.5}),
    real("thresholded_relu", "ThresholdedRelu"),
    real("thresholded_relu_negative", "ThresholdedRelu", {"alpha": -0.5}),
    real("hard_sigmoid", "HardSigmoid"),
    real("hard_sigmoid_steep", "HardSigmoid", {"alpha": 0.7, "beta": 0.1}),
    real("hard_swish", "HardSwish"),
    real("abs", "Abs"),
    real("neg", "Neg"),
    real("sign", "Sign"),
    real("floor", "Floor"),
    real("ceil", "Ceil"),
    real("round", "Round"),
    real("reciprocal", "Reciprocal"),
    real("shrink", "Shrink"),
    real("shrink_soft", "Shrink", {"lambd": 1.5, "bias": 1.5}),
    real("is_nan", "IsNaN"),
    real("is_inf", "IsInf", opset=20),
    real("is_inf_negative", "IsInf", {"detect_positive": 0}, opset=20),
    real("is_inf_positive", "IsInf", {"detect_negative": 0}, opset=20),
    *(real(f"rank{len(s)}", "Relu", **edged(s)) for s in ((), (1,), (3, 5), (2, 3, 7), (1, 4, 4, 8), (2, 1, 3, 1, 2))),
]
# float32 functions of the C library: within 1e-5, relative and absolute. What ONNX Runtime itself approximates (Sigmoid,
# Tanh, Softsign) is up to 5e-7 from the truth.
CLOSE = [
    *(real(name.lower(), name) for name in LIBRARY),
    real("elu_alpha", "Elu", {"alpha": 2.5}),
    real("celu_alpha", "Celu", {"alpha": 0.3}),
    real("selu_both", "Selu", {"alpha": 1.1, "gamma": 0.9}),
    real("gelu", "Gelu", **edged(low=-4.0)),
    real("gelu_none", "Gelu", {"approximate": "none"}),
    real("gelu_tanh", "Gelu", {"approximate": "tanh"}),
    real("gelu_microsoft", "Gelu", domain=MICROSOFT),
    real("swish", "Swish", opset=24),
    real("swish_alpha", "Swish", {"alpha": 1.7}, opset=24),
]
CLIPS: list[tuple[float | None, float | None]] = [
    (-1.0, 1.0),
    (0.0, 6.0),
    (None, 0.5),
    (-0.5, None),
    (None, None),
    (1.0, -1.0),
]


def bounded(name: str, dtype: str, low: float | None, high: float | None, **changes: Any) -> OnnxCase:
    """A Clip with its bounds as constant inputs, or left out."""
    bounds = {name: None if value is None else np.array(value, dtype) for name, value in (("low", low), ("high", high))}
    if bounds["high"] is None:
        del bounds["high"]
        if bounds["low"] is None:
            del bounds["low"]
    start = edged() if dtype == "float32" else {"inputs": {"x": computed((300,), dtype)}}
    return OnnxCase(name, "Clip", **{**start, "inputs": {**start["inputs"], **bounds}, **changes})


def integer_cases() -> list[OnnxCase]:
    """Integers at the ends of their types."""
    found = []
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1], dtype)
        signed = dtype.startswith("int")

        def draw(rng: np.random.Generator, _sample: int, ends: Array = ends) -> Mapping[str, Array]:
            return {"x": np.concatenate([ends, rng.integers(0, 100, 9).astype(ends.dtype)])}

        for op_type in ("Abs", "Sign", *(("Neg",) if signed else ()), "BitwiseNot"):
            found.append(OnnxCase(f"{op_type}_{dtype}", op_type, {"x": computed((13,), dtype)}, draw=draw))
    return found


@pytest.mark.parametrize(("table", "tolerance"), [(EXACT, 0.0), (CLOSE, 1e-5)], ids=["exact", "close"])
def test_float(table: list[OnnxCase], tolerance: float) -> None:
    # The functions of the C library stand in the same loop: the sanitizers see it in the first table.
    proven = prove_onnx(table, samples=2, sanitize=tolerance == 0.0)
    for outcome in proven.outcomes.values():
        outcome.check(tolerance, tolerance)
    assert proven.memory_errors == ()


def test_clip() -> None:
    cases = [bounded(f"clip{i}", "float32", *bounds) for i, bounds in enumerate(CLIPS)]
    cases += [
        bounded("infinite_bounds", "float32", -np.inf, np.inf),
        bounded("no_number", "float32", np.nan, 2.0),
        bounded("wide_scalar", "float32", 1.0, 2.0, opset=12),
        real("by_attribute", "Clip", {"min": -0.25, "max": 0.75}, opset=6),
        real("by_no_attribute", "Clip", opset=10),
        bounded("int8", "int8", -7, 99),
        bounded("int8_default", "int8", None, None),
        bounded("uint8_low", "uint8", 3, None),
        bounded("uint8_high", "uint8", None, 200),
        bounded("int32", "int32", -70000, 70000),
        bounded("int64", "int64", -(2**40), 2**40),
        bounded("uint64", "uint64", 5, 2**63 + 5),
        bounded("wrong_way_round", "int8", 5, -5),
    ]
    prove_onnx(cases, samples=2).check()


def test_integers() -> None:
    """onnxruntime has all of these; the smallest value has no absolute value, and stays."""
    relus = [OnnxCase(f"Relu_{t}", "Relu", {"x": computed((40,), t)}) for t in ("int8", "int32")]
    nots = [OnnxCase("Not", "Not", {"x": computed((2, 9), "bool")})]
    prove_onnx([*integer_cases(), *relus, *nots], samples=2).check()
    prove_onnx(
        [OnnxCase(f"Relu_{t}", "Relu", {"x": computed((40,), t)}) for t in ("int16", "int64")], engine=False
    ).check()


def quantized_unary(
    name: str, op_type: str, x: tuple[float, int], y: tuple[float, int], dtype: str = "int8", **attributes: Any
) -> OnnxCase:
    """An operator of com.microsoft on every byte."""
    inputs: dict[str, Any] = {"x": computed((256,), dtype)}
    for part, (scale, zero_point) in (("x", x), ("y", y)):
        inputs |= {f"{part}_scale": np.float32(scale), f"{part}_zero_point": np.array(zero_point, dtype)}
    return OnnxCase(name, op_type, inputs, attributes, domain=MICROSOFT)


def between(
    name: str,
    op_type: str,
    x: tuple[float, int],
    y: tuple[float, int],
    attributes: Attributes,
    *more: Any,
    opset: int = 21,
    dtype: str = "int8",
) -> OnnxCase:
    """DequantizeLinear, an operator, QuantizeLinear on every value of the type."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    every = np.arange(least, most + 1).astype(dtype)
    inputs: dict[str, Any] = {"x": computed(every.shape, dtype)}
    for part, (scale, zero_point) in (("x", x), ("y", y)):
        inputs |= {f"{part}_scale": np.float32(scale), f"{part}_zero_point": np.array(zero_point, dtype)}
    inputs |= {f"more{i}": value for i, value in enumerate(more)}
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero_point"], ["real"]),
        helper.make_node(op_type, ["real", *(f"more{i}" for i in range(len(more)))], ["result"], **dict(attributes)),
        helper.make_node("QuantizeLinear", ["result", "y_scale", "y_zero_point"], ["y"]),
    )
    return OnnxCase(name, op_type, inputs, nodes=nodes, opset=opset, draw=lambda _rng, _sample: {"x": every})


TABULATED: list[tuple[str, Attributes, tuple[Any, ...]]] = [
    *((name, {}, ()) for name in BY_TABLE),
    ("LeakyRelu", {"alpha": 0.013}, ()),
    ("ThresholdedRelu", {"alpha": 0.4}, ()),
    ("Clip", {}, (np.float32(-0.7), np.float32(2.5))),
    ("PRelu", {}, (np.array([0.3], np.float32),)),
    ("Pow", {}, (np.float32(2.0),)),
    ("Pow", {}, (np.float32(3.0),)),
]


def test_quantized_operators() -> None:
    """QLinearSigmoid and QLinearLeakyRelu: zero points at the ends, saturation, nothing left of the scale, uint8."""
    cases = []
    for scale, zero in itertools.product((1e-4, 0.02, 0.05, 0.6), (-128, -1, 0, 127)):
        for ratio in (0.01, 0.9, 60.0):
            y = (scale / ratio, -1 - zero)
            cases.append(
                quantized_unary(f"leaky_{scale}_{zero}_{ratio}", "QLinearLeakyRelu", (scale, zero), y, alpha=0.1)
            )
        for y in ((1 / 256, -128), (1 / 255, -128), (1 / 128, 0), (1e-4, 127)):
            cases.append(quantized_unary(f"sigmoid_{scale}_{zero}_{y}", "QLinearSigmoid", (scale, zero), y))
    cases += [
        quantized_unary("sigmoid_u8", "QLinearSigmoid", (0.05, 131), (1 / 255, 0), "uint8"),
        quantized_unary("leaky_u8", "QLinearLeakyRelu", (0.05, 131), (0.04, 9), "uint8", alpha=-0.7),
        quantized_unary("leaky_default", "QLinearLeakyRelu", (0.05, 3), (0.04, 9)),
    ]
    prove_onnx(cases, samples=1, sanitize=False).check()


def test_between_quantizations() -> None:
    """Every byte through every function: the table that the compiler makes is onnxruntime's float arithmetic."""
    rng = np.random.default_rng(7)
    cases = []
    for i, (op_type, attributes, more) in enumerate(TABULATED):
        for j, y in enumerate(
            ((1 / 255, -128), (2 / 255, 0), (0.031, 127), (float(np.float32(rng.uniform(1e-3, 0.1))), 3))
        ):
            x = (float(np.float32(rng.uniform(1e-3, 0.1))), int(rng.choice([-128, 0, 17])))
            cases.append(between(f"{op_type}_{i}_{j}", op_type, x, y, attributes, *more))
    proven = prove_onnx(cases, samples=1, sanitize=False)
    proven.check()
    steps = proven.compiled[21].program.steps
    assert {step.kernel_name for step in steps} == {"lookup"}


def test_relu_between_equal_scales_of_int16() -> None:
    """Every value: steps are kept from the smallest float32 on to where values leave float32; other scales stay in float32."""
    scales = (1e-45, 1e-38, 3.0518509e-05, 0.1, 1 / 3, 2.0**110)
    kept = [
        between(f"{i}_{z}", "Relu", (s, z), (s, z), {}, dtype="int16")
        for i, s in enumerate(scales)
        for z in (0, -32768, 7, 32767)
    ]
    other = [
        between("scale", "Relu", (0.1, 0), (0.2, 0), {}, dtype="int16"),
        between("zero_point", "Relu", (0.1, 0), (0.1, 1), {}, dtype="int16"),
    ]
    for cases, template in ((kept, {"clip"}), (other, {"dequantize", "relu", "quantize_even"})):
        proven = prove_onnx(cases, samples=1, sanitize=False)
        proven.check()
        assert {step.kernel_name for step in proven.compiled[21].program.steps} == template


def _layer(case: OnnxCase, numerics: Numerics | None = None) -> Layer:
    (bound,) = graph_of(case, engine=False).bound()
    return kernel_of(bound).lower(bound)


def test_from_bytes_to_floats() -> None:
    """Every byte through every costly function: the C has what the reference computes in float32, on every bit."""
    cases = []
    for i, op_type in enumerate((*LIBRARY, "Gelu")):
        inputs = {"x": computed((2, 256), "int8"), "scale": np.float32(0.01 + i / 300), "zero": np.int8(7 * i - 100)}
        nodes = (
            helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
            helper.make_node(op_type, ["real"], ["y"]),
        )
        cases.append(OnnxCase(op_type, op_type, inputs, nodes=nodes))
    proven = prove_onnx(cases, samples=2)
    assert proven.memory_errors == ()
    steps = {step.op_type: step.kernel_name for step in proven.compiled[21].program.steps}
    assert {name for name, template in steps.items() if template != "lookup_real"} == {
        "DequantizeLinear",
        "Sqrt",
        "Softsign",
    }
    for name, outcome in proven.outcomes.items():
        outcome.check(1e-5, 1e-5)
        pairs = zip(outcome.compiled, outcome.reference, strict=True)
        assert name == "Sqrt" or all(np.array_equal(c, r, equal_nan=True) for (c,), (r,) in pairs), name


def test_selu_of_version_1_has_other_defaults() -> None:
    """onnxruntime does not have it any more."""
    x, y = (SourceTensor(i, name, "float32", (4,), None, None) for i, name in enumerate("xy"))
    by_version = []
    for opset in (1, 6):
        node = SourceNode(0, "Selu", "selu", (x,), (y,), {"opset": opset}, "onnx", "Selu")
        op = onnx_registry()["Selu"].parse(node).op
        assert isinstance(op, Function)
        by_version.append(op.parameters)
    assert by_version == [(1.7580311298370361, 1.0506999492645264), (1.7580993175506592, 1.0507010221481323)]


def test_what_is_printed() -> None:
    """One kernel serves all layers of a type; unsigned values have no sign to take away."""
    assert _layer(OnnxCase("a", "Abs", {"x": computed((4,), "uint16")})).kernel_name == "copy"
    assert _layer(OnnxCase("a", "Sign", {"x": computed((4,), "uint16")})).kernel_name == "truth"
    assert _layer(OnnxCase("a", "Abs", {"x": computed((4,), "int16")})).spec.suffix == "_s16"
    proven = prove_onnx([real("first", "Exp"), real("second", "Exp"), real("third", "Tanh")], samples=1, sanitize=False)
    source = proven.compiled[21].files["cases.c"].decode()
    assert source.count("static inline void emitc_exp_f32(") == 1
    assert "#include <math.h>" in source


REFUSALS = [
    (
        OnnxCase("float64", "Exp", {"x": computed((4,), "float64")}),
        (
            1,
            "Exp with element types (float64, float64) is not supported",
            "there is code for float32, and int8 with scales",
        ),
    ),
    (
        OnnxCase("bound_computed", "Clip", {"x": computed((4,)), "low": computed(())}),
        (1, "Clip takes its minimum from a computed tensor", "it must be known at compile time"),
    ),
    (
        OnnxCase("two_bounds", "Clip", {"x": computed((4,)), "low": np.zeros(2, np.float32)}),
        (2, "Clip has 2 values of float32 as its minimum", "one of float32 is expected"),
    ),
    (
        OnnxCase("celu", "Celu", {"x": computed((4,))}, {"alpha": 0.0}),
        (2, "Celu has alpha 0", "it divides by alpha"),
    ),
    (
        OnnxCase("alpha", "LeakyRelu", {"x": computed((4,))}, {"alpha": float("inf")}),
        (2, "LeakyRelu has alpha = inf", "a finite number is expected"),
    ),
    (
        OnnxCase("approximation", "Gelu", {"x": computed((4,))}, {"approximate": "sigmoid"}),
        (1, "Gelu with approximate sigmoid is not supported", "supported: none, tanh"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: OnnxCase, expected: tuple[int, str, str]) -> None:
    error: EmitcError = refusal(case)
    errors = getattr(error, "errors", (error,))
    assert (error.exit_code, errors[0].what, errors[0].why) == expected
