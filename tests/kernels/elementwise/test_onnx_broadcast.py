"""ONNX's operators of several tensors, element by element: reference, onnxruntime and C agree on every bit except for powers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

from emitc.ir import Array
from emitc.kernels import kernel_of
from emitc.kernels.shared.broadcast import walks_of
from emitc.layer import Layer
from tests.support.onnx_op import Computed, OnnxCase, computed, graph_of, prove_onnx, refusal

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

Shape = tuple[int, ...]
Inputs = dict[str, Array | Computed | None]
BROADCASTS: tuple[tuple[Shape, Shape], ...] = (
    ((), ()),
    ((), (7,)),
    ((7,), (1,)),
    ((1,), (7,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((1, 4, 5, 3), (1, 1, 1, 3)),
    ((2, 4, 5, 3), (2, 4, 5, 1)),
    ((2, 4, 5, 3), (1, 4, 1, 3)),
    ((2, 1, 5, 1), (1, 4, 1, 3)),
    ((4, 1), (1, 6)),
    ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1)),
    ((1, 2, 3, 1, 2, 2), (3, 4, 1, 1)),
    ((1, 1, 1), (1, 1)),
)
"""Shapes that repeat either operand, or both, in every position; ranks 0 to 6."""
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5, 3e38], np.float32)


def given(**values: Array) -> Callable[[np.random.Generator, int], Mapping[str, Array]]:
    """The same values in every sample."""
    return lambda rng, sample: values


def special_pairs(dtype: str) -> Callable[[np.random.Generator, int], Mapping[str, Array]]:
    """Every pair of zeros, infinities and what is not a number; every pair of ends of an integer type."""
    values: Array = SPECIAL
    if not dtype.startswith("float"):
        info = np.iinfo(dtype)
        values = np.array([info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max, info.max // 3], dtype)
    a, b = np.repeat(values, 8), np.tile(values, 8)
    return given(a=a.astype(dtype), b=b.astype(dtype))


def special(
    name: str, op_type: str, dtype: str, attributes: Mapping[str, Any] | None = None, **changes: Any
) -> OnnxCase:
    """An operator on such pairs."""
    inputs = {"a": computed((64,), dtype), "b": computed((64,), dtype)}
    return OnnxCase(name, op_type, inputs, attributes or {}, draw=special_pairs(dtype), **changes)


def broadcasts(op_type: str, dtype: str = "float32") -> list[OnnxCase]:
    """Every pair of shapes, both operands computed or either constant; the same tensor twice."""
    rng = np.random.default_rng(11)
    found = []
    for i, (a, b) in enumerate(BROADCASTS):
        fixed = [
            (rng.uniform(-4, 4, shape) if dtype == "float32" else rng.integers(0, 2, shape)).astype(dtype)
            for shape in (a, b)
        ]
        x, y = computed(a, dtype), computed(b, dtype)
        found.append(OnnxCase(f"{op_type}{i}", op_type, {"a": x, "b": y}))
        found.append(OnnxCase(f"{op_type}{i}_a_constant", op_type, {"a": fixed[0], "b": y}))
        found.append(OnnxCase(f"{op_type}{i}_b_constant", op_type, {"a": x, "b": fixed[1]}))
    twice = (helper.make_node(op_type, ["a", "a"], ["y"]),)
    found.append(OnnxCase(f"{op_type}_twice", op_type, {"a": computed((2, 5), dtype)}, nodes=twice))
    return found


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("op_type", ["Max", "Less", "Greater", "Sum", "Mean"])
def test_broadcasting(op_type: str) -> None:
    prove_onnx(broadcasts(op_type), samples=2).check()


def test_comparisons() -> None:
    cases = []
    relations = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    for relation, dtype in itertools.product(relations, ("float32", *INTEGERS)):
        cases.append(special(f"{relation}_{dtype}", relation, dtype))
    cases += broadcasts("Equal", "bool")
    prove_onnx(cases, samples=1).check()


def test_logic() -> None:
    cases = [case for op_type in ("And", "Or", "Xor") for case in broadcasts(op_type, "bool")]
    for op_type, dtype in itertools.product(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), INTEGERS):
        cases.append(special(f"{op_type}_{dtype}", op_type, dtype))
    prove_onnx(cases, samples=2).check()


def test_extremes() -> None:
    """A NaN wins, and of two zeros the later one; onnxruntime lacks the 16-bit integers."""
    cases = [
        special(f"{op_type}_{dtype}", op_type, dtype)
        for op_type, dtype in itertools.product(("Max", "Min"), ("float32", *INTEGERS))
        if "16" not in dtype
    ]
    prove_onnx(cases, samples=1).check()
    prove_onnx(
        [special(f"{o}_{t}", o, t) for o in ("Max", "Min") for t in ("int16", "uint16")], 1, engine=False
    ).check()


@pytest.mark.parametrize("op_type", ["Max", "Min", "Sum", "Mean"])
def test_many_operands(op_type: str) -> None:
    """One operand is copied; three and more go round by round; each may be repeated or constant."""
    shapes: tuple[tuple[Shape, ...], ...] = (
        ((5,),),
        ((2, 3), (2, 3), (2, 3)),
        ((3,), (2, 3), (1,)),
        ((2, 1), (1, 3), (2, 3), ()),
        ((4, 1, 3), (2, 1, 4, 5, 1), (5, 3)),
        tuple((6,) for _ in range(9)),
    )
    cases = [
        OnnxCase(f"{op_type}{i}", op_type, {f"x{j}": computed(shape) for j, shape in enumerate(each)})
        for i, each in enumerate(shapes)
    ]
    constant = np.array([[0.5], [-0.25]], np.float32)
    for position in range(3):
        inputs: dict[str, Any] = {f"x{j}": computed((2, 3)) for j in range(3)}
        inputs[f"x{position}"] = constant
        cases.append(OnnxCase(f"constant{position}", op_type, inputs))
    again = (helper.make_node(op_type, ["x", "z", "x"], ["y"]),)
    cases.append(OnnxCase("again", op_type, {"x": computed((4,)), "z": computed((4,))}, nodes=again))
    prove_onnx(cases, samples=2).check()


def test_where() -> None:
    cases = []
    shapes: tuple[tuple[Shape, Shape, Shape], ...] = (
        ((), (), ()),
        ((5,), (5,), (5,)),
        ((5,), (), (5,)),
        ((2, 1), (1, 3), ()),
        ((1, 4, 1), (2, 1, 3), (2, 4, 1)),
        ((3,), (2, 2, 1), (2, 1, 3)),
        ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1), (2, 4, 3, 5, 2)),
    )
    for i, (c, a, b) in enumerate(shapes):
        cases.append(OnnxCase(f"where{i}", "Where", {"c": computed(c, "bool"), "a": computed(a), "b": computed(b)}))
    for dtype in ("int8", "uint8", "int32", "uint32", "int64", "float64"):
        inputs: Inputs = {"c": computed((2, 9), "bool"), "a": np.array(1, dtype), "b": np.arange(9).astype(dtype)}
        inner = (helper.make_node("Where", ["c", "a", "b"], ["r"]), helper.make_node("Cast", ["r"], ["y"], to=1))
        cases.append(OnnxCase(f"where_{dtype}", "Where", inputs, nodes=inner))
    masked: Inputs = {"c": np.array([[True, False, True]]), "a": computed((4, 3)), "b": np.array(-np.inf, np.float32)}
    cases.append(OnnxCase("mask", "Where", masked))
    prove_onnx(cases, samples=2).check()
    numbers = ("int16", "uint16", "uint64")
    alone = [
        OnnxCase(t, "Where", {"c": computed((9,), "bool"), "a": computed((9,), t), "b": computed((), t)})
        for t in numbers
    ]
    prove_onnx(alone, engine=False).check()


def prelu(name: str, shape: Shape, slope: Shape, *, constant: bool) -> OnnxCase:
    """PRelu of every broadcast that ONNX allows: the slope to the input."""
    values = np.random.default_rng(3).uniform(-1, 1, slope).astype(np.float32)
    return OnnxCase(name, "PRelu", {"x": computed(shape), "slope": values if constant else computed(slope)})


def test_prelu() -> None:
    cases = []
    for i, slope in enumerate(((), (1,), (7,), (5, 1), (3, 1, 1), (2, 3, 5, 7), (2, 1, 1, 7), (1, 1, 1, 1))):
        cases += [prelu(f"slope{i}_{c}", (2, 3, 5, 7), slope, constant=c) for c in (False, True)]
    edges: Inputs = {"x": computed((8,)), "slope": np.full(1, -1.0, np.float32)}
    cases.append(OnnxCase("edges", "PRelu", edges, draw=given(x=SPECIAL)))
    prove_onnx(cases, samples=2).check()


def quantized_prelu(
    name: str, slope: Array, scale: Any, zero_point: Any, x: tuple[float, int], **attributes: Any
) -> OnnxCase:
    """PRelu between DequantizeLinear and QuantizeLinear, its slope dequantized too."""
    inputs: dict[str, Any] = {"x": computed((2, 3, 64), "int8"), "xs": np.float32(x[0]), "xz": np.int8(x[1])}
    inputs |= {
        "slope": slope.astype(np.int8),
        "ss": np.asarray(scale, np.float32),
        "sz": np.asarray(zero_point, np.int8),
    }
    inputs |= {"ys": np.float32(0.021), "yz": np.int8(-7)}
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["real"]),
        helper.make_node("DequantizeLinear", ["slope", "ss", "sz"], ["real_slope"], **attributes),
        helper.make_node("PRelu", ["real", "real_slope"], ["result"]),
        helper.make_node("QuantizeLinear", ["result", "ys", "yz"], ["y"]),
    )
    return OnnxCase(name, "PRelu", inputs, nodes=nodes)


def test_quantized_prelu() -> None:
    per_channel = np.array([[-128], [5], [127]])
    cases = [
        quantized_prelu("one_slope", np.array([[77]]), 0.003, -3, (0.04, 11)),
        quantized_prelu("per_channel", per_channel, 0.003, 5, (0.04, 11)),
        quantized_prelu("low_zero", per_channel, 0.003, 0, (0.05, -128)),
        quantized_prelu("high_zero", per_channel, 0.7, 0, (0.05, 127)),
        quantized_prelu("scale_each", per_channel, (0.003, 0.01, 0.02), (0, 1, -5), (0.04, 0), axis=0),
        quantized_prelu("per_element", np.arange(192).reshape(3, 64) - 96, 0.003, 5, (0.04, 11)),
    ]
    proven = prove_onnx(cases, samples=4)
    proven.check()
    templates = [step.kernel_name for step in proven.compiled[21].program.steps]
    assert templates == ["lookup", *["prelu_quantized"] * 5]


def quantized_extreme(name: str, op_type: str, b: tuple[float, int]) -> OnnxCase:
    """Max or Min between DequantizeLinear and QuantizeLinear; a and y have scale 0.05 and zero point -3."""
    inputs: Inputs = {"a": computed((2, 128), "int8"), "b": computed((128,), "int8")}
    for part, (scale, zero_point) in (("a", (0.05, -3)), ("b", b)):
        inputs |= {f"{part}s": np.array(scale, np.float32), f"{part}z": np.array(zero_point, np.int8)}
    nodes = (
        helper.make_node("DequantizeLinear", ["a", "as", "az"], ["real_a"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["real_b"]),
        helper.make_node(op_type, ["real_a", "real_b"], ["result"]),
        helper.make_node("QuantizeLinear", ["result", "as", "az"], ["y"]),
    )
    return OnnxCase(name, op_type, inputs, nodes=nodes)


def test_quantized_extremes() -> None:
    """Of one scale the bytes are compared; of two the operator stays in float32."""
    cases = [quantized_extreme(f"{o}_alike", o, (0.05, -3)) for o in ("Max", "Min")]
    cases += [quantized_extreme(f"{o}_other", o, b) for o in ("Max", "Min") for b in ((0.03, -3),)]
    proven = prove_onnx(cases)
    proven.check()
    templates = [
        s.kernel_name + s.spec.suffix for s in proven.compiled[21].program.steps if s.op_type in ("Max", "Min")
    ]
    assert templates == ["maximum_s8", "minimum_s8", "maximum_real_f32", "minimum_real_f32"]


def test_power() -> None:
    """float32 within 1e-5; a square is exact."""
    cases = []
    for exponent in (2.0, 3.0, 0.5, -1.0, 1.0, 0.0, 2.5, -0.75):
        inputs: Inputs = {"a": computed((9, 3), low=0.0), "b": np.array(exponent, np.float32)}
        cases.append(OnnxCase(f"to_{exponent}", "Pow", inputs))
        cases.append(OnnxCase(f"special_{exponent}", "Pow", {**inputs, "a": computed((8,))}, draw=given(a=SPECIAL)))
    for dtype in ("int32", "int64"):
        cases.append(OnnxCase(f"to_{dtype}", "Pow", {"a": computed((2, 4)), "b": np.array([0, 1, 2, 3], dtype)}))
    cases += [
        OnnxCase("both", "Pow", {"a": computed((2, 1, 3), low=0.1), "b": computed((4, 1))}),
        OnnxCase("wide", "Pow", {"a": computed((3,), low=0.1), "b": np.full((2, 1), 2.0, np.float32)}),
    ]
    for outcome in prove_onnx(cases, samples=2, sanitize=False).outcomes.values():
        outcome.check(1e-5, 1e-5)
    squares = [case for case in cases if case.id in ("to_2.0", "to_1.0")]
    prove_onnx(squares).check()


def test_whole_power() -> None:
    """Where int32 or int64 holds the result; beyond, onnxruntime gives what its processor makes of it."""
    cases = []
    for dtype in ("int32", "int64"):
        base = np.array([0, 1, -1, 2, -2, 3, 7, -9], dtype)
        exponents: tuple[Array, ...] = (np.array([0, 5, -3, 30, 3, 9, 4, 2], dtype), np.array(2, "int32"))
        for i, exponent in enumerate(exponents):
            inputs: Inputs = {"a": computed((8,), dtype), "b": exponent}
            cases.append(OnnxCase(f"{dtype}_{i}", "Pow", inputs, draw=given(a=base)))
        real: Inputs = {"a": computed((4,), dtype, 0, 9), "b": np.array([0.5, 2.0, 1.5, 0.0], np.float32)}
        cases.append(OnnxCase(f"{dtype}_real", "Pow", real))
    prove_onnx(cases, samples=2, sanitize=False).check()
    ends: Inputs = {"a": computed((4,), "int32"), "b": np.array([1e9, -1.0, np.nan, 2.0], np.float32)}
    values = np.array([2, 0, 5, -(2**31)], np.int32)
    saturated = OnnxCase("ends", "Pow", ends, draw=given(a=values))
    wrapped = OnnxCase("wraps", "Pow", {"a": np.array([3, 2, 10], np.int32), "b": computed((3,), "int32", 40, 40)})
    proven = prove_onnx([saturated, wrapped], 1, engine=False, sanitize=False)
    proven.check()
    assert proven.outcomes["ends"].compiled[0][0].tolist() == [2**31 - 1, 2**31 - 1, 0, 2**31 - 1]
    low_bits = [(base**40 + 2**31) % 2**32 - 2**31 for base in (3, 2, 10)]
    assert proven.outcomes["wraps"].compiled[0][0].tolist() == low_bits


def test_modulo() -> None:
    """Python's sign without fmod, C's with it. Division by 0 leaves 0; onnxruntime refuses it."""
    cases = []
    for dtype, fmod in itertools.product(INTEGERS, (0, 1)):
        a = np.array([7, 7, 100, 0, 1, 5], dtype)
        b = np.array([3, 4, 7, 5, 9, 5], dtype)
        if dtype.startswith("int"):
            a, b = (np.concatenate([v, -v, w]) for v, w in ((a, a), (b, -b)))
        inputs = {"a": computed(a.shape, dtype), "b": computed(b.shape, dtype)}
        cases.append(OnnxCase(f"{dtype}_{fmod}", "Mod", inputs, {"fmod": fmod}, draw=given(a=a, b=b)))
    prove_onnx(cases, samples=1).check()
    ends = [special(f"ends_{t}_{f}", "Mod", t, {"fmod": f}) for t in INTEGERS for f in (0, 1)]
    prove_onnx(ends, 1, engine=False).check()
    floats = special("fmod", "Mod", "float32", {"fmod": 1})
    rest = special("floor", "Mod", "float32", {"fmod": 0}, opset=13)
    prove_onnx([floats], 1, sanitize=False).outcomes["fmod"].check(1e-7, 0.0)
    prove_onnx([rest], 1, engine=False, sanitize=False).outcomes["floor"].check(1e-7, 0.0)


def _layer(case: OnnxCase) -> Layer:
    (bound,) = graph_of(case, engine=False).bound()
    return kernel_of(bound).lower(bound)


def test_loops_and_overlap() -> None:
    """Dimensions that behave alike are one loop; the output lies over an operand that is not repeated."""
    assert [(w.count, w.steps) for w in walks_of([(2, 3, 4), (2, 3, 4)], (2, 3, 4))] == [(1, (0, 0))] * 4 + [
        (24, (1, 1))
    ]
    assert [(w.count, w.steps) for w in walks_of([(2, 3, 4), (3, 1)], (2, 3, 4))][-3:] == [
        (2, (12, 0)),
        (3, (4, 1)),
        (4, (1, 0)),
    ]
    summed = _layer(OnnxCase("a", "Sum", {"a": computed((4,)), "b": computed((2, 4))}))
    assert [(o.input, o.distance_bytes) for o in summed.overlaps] == [(1, 0)]
    assert _layer(OnnxCase("a", "Less", {"a": computed((4,)), "b": computed((4,))})).overlaps != ()
    wider = _layer(OnnxCase("a", "Cast", {"a": computed((4,), "int8")}, {"to": 1}))
    assert wider.overlaps == ()


REFUSALS = [
    (
        OnnxCase("alternating", "Max", {"a": computed((2, 1, 2, 1, 2, 1)), "b": computed((1, 2, 1, 2, 1, 2))}),
        (
            1,
            "Max repeats its inputs along 6 alternating dimensions",
            "[2, 1, 2, 1, 2, 1], [1, 2, 1, 2, 1, 2] need as many nested loops, there is code for 5",
        ),
    ),
    (
        OnnxCase("slope", "PRelu", {"a": computed((2, 1)), "b": computed((1, 3))}),
        (
            2,
            "PRelu has inputs whose shapes do not fit each other",
            "[2, 1], [1, 3]: each dimension must be equal or 1, and 1 in the second alone",
        ),
    ),
    (
        OnnxCase("float64", "Mod", {"a": computed((2,), "float64"), "b": computed((2,), "float64")}, {"fmod": 1}),
        (
            1,
            "Mod with element types (float64, float64, float64) is not supported",
            "there is code for integers and float32",
        ),
    ),
    (
        OnnxCase("sum", "Sum", {"a": computed((2,), "float64")}),
        (1, "Sum with element types (float64, float64) is not supported", "there is code for float32"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: OnnxCase, expected: tuple[int, str, str]) -> None:
    error = refusal(case)
    errors = getattr(error, "errors", (error,))
    assert (error.exit_code, errors[0].what, errors[0].why) == expected


@pytest.mark.parametrize(("b", "flat"), [((2, 3, 4), True), ((1, 3, 4), False), ((4,), False), ((2, 3, 1), False)])
def test_operands_of_one_shape_are_walked_in_one_loop(b: tuple[int, ...], flat: bool) -> None:
    case = OnnxCase("sum", "Add", {"a": computed((2, 3, 4)), "b": computed(b)})
    (bound,) = graph_of(case).bound()
    layer = kernel_of(bound).lower(bound)
    assert layer.spec.no_broadcast == flat
    assert [param.name for param in layer.params] == ["count"] or not flat
