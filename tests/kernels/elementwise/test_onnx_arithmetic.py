"""ONNX's Add, Sub, Mul and Div: plain numbers, and quantized in both dialects, against onnxruntime on every pair of values."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from emitc.errors import EmitcError
from emitc.ir import Array, BoundNode, DType, Node, Numerics, Quantization, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.elementwise.arithmetic import Add, Arithmetic, Div, Mul, Sub
from emitc.kernels.elementwise.onnx_arithmetic import check, combined, integer_form, operands_change_places
from emitc.layer import Layer
from emitc.numerics.exhaustive_fit import (
    EvenProduct,
    EvenSum,
    ScaledProduct,
    WeightedSum,
    even_product,
    even_sum,
    rounded_even,
    scaled_product,
)
from emitc.numerics.requantize import BYTES, Clamp, Int64
from emitc.verify.build import HostModel, run_compiler, sources
from emitc.verify.golden_run import interface_of
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import MICROSOFT, Computed, Draw, OnnxCase, Proven, computed, graph_of, prove_onnx, refusal

Scale = tuple[float, int]
"""Scale and zero point."""
OPS: dict[str, type[Arithmetic]] = {"Add": Add, "Sub": Sub, "Mul": Mul, "Div": Div}
SYMBOLS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}
PAIRS = (256, 256)
SCALES = (0.017436975613236427, -124), (0.13357236981391907, -109), (0.07272595167160034, -84)
"""Of a sum of int8 values, as calibration gives them: without ties."""
FULL = Clamp(-128, 127)


def single(value: float) -> float:
    return float(np.float32(value))


def every_pair(dtype: str) -> dict[str, Array]:
    """Operands [256, 256] that hold every pair of values."""
    low = np.iinfo(dtype).min
    values = np.arange(low, low + 256).astype(dtype)
    return {"a": np.repeat(values, 256).reshape(PAIRS), "b": np.tile(values, 256).reshape(PAIRS)}


def qlinear(
    name: str, op: str, a: Scale, b: Scale, y: Scale, dtype: str = "int8", shapes: tuple[tuple[int, ...], ...] = ()
) -> OnnxCase:
    """QLinearAdd or QLinearMul; of every pair of values unless shapes are given."""
    first, second = shapes or (PAIRS, PAIRS)
    inputs: dict[str, Array | Computed | None] = {}
    for role, shape, (scale, zero) in (("a", first, a), ("b", second, b)):
        inputs |= {
            role: computed(shape, dtype),
            f"{role}_scale": np.array(scale, np.float32),
            f"{role}_zero": np.array(zero, dtype),
        }
    inputs |= {"y_scale": np.array(y[0], np.float32), "y_zero": np.array(y[1], dtype)}
    draw = None if shapes else lambda rng, sample: every_pair(dtype)
    return OnnxCase(name, f"QLinear{op}", inputs, domain=MICROSOFT, draw=draw)


def dequantized(
    name: str,
    op: str,
    a: Scale,
    b: Scale,
    y: Scale,
    dtype: str = "int8",
    shapes: tuple[tuple[int, ...], ...] = (),
    activation: str = "",
) -> OnnxCase:
    """DequantizeLinear of both operands, the operator, QuantizeLinear."""
    first, second = shapes or (PAIRS, PAIRS)
    inputs: dict[str, Array | Computed | None] = {"a": computed(first, dtype), "b": computed(second, dtype)}
    for role, (scale, zero) in (("a", a), ("b", b), ("y", y)):
        inputs |= {f"{role}_scale": np.array(scale, np.float32), f"{role}_zero": np.array(zero, dtype)}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "a_scale", "a_zero"], ["real_a"]),
        helper.make_node("DequantizeLinear", ["b", "b_scale", "b_zero"], ["real_b"]),
        helper.make_node(op, ["real_a", "real_b"], ["result"]),
        *([helper.make_node(activation, ["result"], ["active"])] if activation else []),
        helper.make_node("QuantizeLinear", ["active" if activation else "result", "y_scale", "y_zero"], ["y"]),
    ]
    draw: Draw | None = None if shapes or dtype == "int16" else lambda rng, sample: every_pair(dtype)
    if op == "Div":
        draw = _without_zero_by_zero(draw, inputs)
    return OnnxCase(name, op, inputs, draw=draw, nodes=tuple(nodes))


def _without_zero_by_zero(draw: Draw | None, inputs: dict[str, Array | Computed | None]) -> Draw:
    """The dividend off its zero point where both are on theirs; `test_zero_by_zero` has what is not a number."""
    a, b = inputs["a"], inputs["b"]
    zero_a, zero_b = (np.asarray(inputs[name]) for name in ("a_zero", "b_zero"))
    assert isinstance(a, Computed) and isinstance(b, Computed)
    low, high = np.iinfo(a.dtype).min, np.iinfo(a.dtype).max

    def drawn(rng: np.random.Generator, sample: int) -> Mapping[str, Array]:
        if draw is not None:
            values = dict(draw(rng, sample))
        else:
            shapes = {"a": a.shape, "b": b.shape}
            values = {name: np.asarray(rng.integers(low, high, s, a.dtype, True)) for name, s in shapes.items()}
        if a.shape == b.shape:
            both = (values["a"] == zero_a) & (values["b"] == zero_b)
            values["a"] = np.where(both, zero_a ^ 1, values["a"]).astype(a.dtype)
        else:
            values["b"] = np.where(values["b"] == zero_b, zero_b ^ 1, values["b"]).astype(b.dtype)
        return values

    return drawn


# ---- every pair of values: reference, onnxruntime and C ----

_DIALECTS = (("qop", qlinear, ("Add", "Mul")), ("qdq", dequantized, ("Add", "Sub", "Mul", "Div")))


def pair_cases(dtype: str) -> list[OnnxCase]:
    """Zero points at their ends, ties, saturation, and scales whose results no integers give."""
    zero = np.iinfo(dtype).min + 128
    low, high = zero - 128, zero + 127
    cases = []
    for dialect, make, operators in _DIALECTS:
        for op in operators:
            y = {"Add": 0.12, "Sub": 0.12, "Mul": 0.09, "Div": 0.8}[op]
            for name, scales in {
                "zero_points_low": ((0.05, low), (0.07, low), (y, low)),
                "zero_points_high": ((0.05, high), (0.07, high), (y, high)),
                "zero_points_apart": ((0.05, low), (0.07, high), (y, zero)),
                "saturates": ((0.05, zero + 3), (0.07, zero - 4), (y / 9, zero + 5)),
                "vanishes": ((0.05, zero + 3), (0.07, zero - 4), (3e4, zero + 5)),
                "ties_of_two_to_one": ((single(1 / 255), zero), (single(1 / 255), low), (single(2 / 255), zero + 1)),
                "ties_of_powers_of_two": ((0.25, zero + 47), (0.125, zero + 96), (4.0, zero - 93)),
                "all_one": ((1.0, zero), (1.0, zero - 1), (1.0, zero)),
            }.items():
                cases.append(make(f"{dialect}_{op}_{name}", op, *scales, dtype))
    return cases


NOT_INTEGER = [
    qlinear("qop_add", "Add", (0.01416517049074173, -98), (0.24828100204467773, 57), (0.4734093248844147, -51)),
    qlinear("qop_mul", "Mul", (single(0.01), 34), (0.25, 111), (single(0.075), 119)),
    dequantized("qdq_add", "Add", (0.01416517049074173, -98), (0.24828100204467773, 57), (0.4734093248844147, -51)),
    dequantized(
        "qdq_mul", "Mul", (0.0039151571691036224, -128), (0.044331081211566925, 10), (0.03022763505578041, -17)
    ),
]
"""Scales of real models, and found by search, whose results no integer form gives."""
REAL_PRODUCT = (0.00391958886757493, 0), (0.04677930101752281, 134), (0.03369535505771637, 107)
SIGNED_CASES = pair_cases("int8")
UNSIGNED_CASES = [*pair_cases("uint8"), qlinear("not_integer", "Mul", *REAL_PRODUCT, "uint8")]


@pytest.mark.parametrize("cases", [pytest.param(SIGNED_CASES, id="int8"), pytest.param(UNSIGNED_CASES, id="uint8")])
def test_every_pair(cases: list[OnnxCase]) -> None:
    prove_onnx(cases, samples=1, sanitize=False).check()


def test_every_pair_four_at_a_time() -> None:
    """Weights of 24 bits, which the kernel for cores with the DSP extension multiplies by 256: of ic_resnet's first sum."""
    wide = dequantized("wide", "Add", (0.0773237, 3), (0.2045237, -128), (0.1, -128))
    proven = prove_onnx([*SIGNED_CASES, wide], samples=1, sanitize=False, target="cortex-m4")
    proven.check()
    (compiled,) = proven.compiled.values()
    taken = [step for step in compiled.program.steps if step.variant == "dsp"]
    assert {step.kernel_name for step in taken} == {"weighted_sum_dsp"}
    values = [{p.name: p.value for p in step.params} for step in taken]
    assert all(abs(int(v[name])) < 1 << 23 for v in values for name in ("a_weight", "b_weight"))


def test_every_pair_without_an_integer_form() -> None:
    proven = prove_onnx(NOT_INTEGER, samples=1)
    proven.check()
    (compiled,) = proven.compiled.values()
    templates = {step.kernel_name for step in compiled.program.steps} - {"rebias"}
    assert templates == {"fused_sum", "rounded_product", "real_sum", "real_product"}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_zero_by_zero(dtype: str) -> None:
    """Not a number: quantized, the smallest value of the type, as in onnxruntime."""
    zeros = np.full((8,), 3, dtype)
    case = dequantized("nan", "Div", (0.05, 3), (0.07, 3), (0.8, 5), dtype, ((8,), (8,)))
    case = replace(case, draw=lambda rng, sample: {"a": zeros, "b": zeros})
    outcome = prove_onnx([case], samples=1).outcomes["nan"]
    assert (outcome.golden[0][0] == np.iinfo(dtype).min).all()
    assert (outcome.compiled[0][0] == outcome.golden[0][0]).all()


def test_no_compiler_merges_products_with_sums() -> None:
    """Neither with fused multiply-adds, which GCC uses where it may, nor in vectors."""
    cases = [
        *NOT_INTEGER,
        # Ties in decimals: one rounding less changes up to 3252 of the results.
        dequantized("sum", "Add", (single(0.02), 72), (single(0.01), 6), (single(0.02), 32)),
        dequantized("difference", "Sub", (single(0.02), 72), (single(0.01), 6), (single(0.02), 32)),
        dequantized("int16", "Add", (3.1e-5, 7), (2.7e-5, -9), (5.3e-5, 3), "int16", ((256, 256), (256, 256))),
        qlinear("even", "Mul", (0.25, 47), (0.125, 96), (4.0, -93)),
        qlinear("wide", "Mul", (0.6164452433586121, 80), (0.11289756000041962, 33), (8.984025001525879, 11)),
    ]
    proven = prove_onnx(cases, samples=1, sanitize=False)
    (compiled,) = proven.compiled.values()
    values = [value for outcome in proven.outcomes.values() for value in outcome.inputs[0].values()]
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        compiled.write(workdir / "package")
        files, includes = sources(workdir / "package")
        options = ["-std=gnu11", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", f"-I{includes[0]}"]
        run_compiler([*options, *map(str, files), "-o", str(workdir / "fused.so")])
        found = HostModel(workdir / "fused.so", interface_of(compiled)).run(values)
    for value, outcome in zip(found, proven.outcomes.values(), strict=True):
        assert (value == outcome.golden[0][0]).all(), outcome.case.id


def test_activation_behind_a_quantized_sum() -> None:
    cases = [
        dequantized("relu", "Add", (0.05, -3), (0.07, 4), (0.06, -20), activation="Relu"),
        dequantized("relu_of_ties", "Sub", (0.25, -3), (0.25, 4), (0.5, -20), activation="Relu"),
    ]
    prove_onnx(cases, samples=1).check()


# ---- hundreds of scales: the reference and the integer forms against onnxruntime ----


def session(op: str, dtype: str, a: tuple[int, ...], b: tuple[int, ...]) -> onnxruntime.InferenceSession:
    """A QLinear operator whose scales and zero points are inputs."""
    kind = TensorProto.INT8 if dtype == "int8" else TensorProto.UINT8
    names = ("a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero")
    types = (kind, TensorProto.FLOAT, kind, kind, TensorProto.FLOAT, kind, TensorProto.FLOAT, kind)
    shapes = (a, (), (), b, (), (), (), ())
    graph = helper.make_graph(
        [helper.make_node(f"QLinear{op}", names, ["y"], domain=MICROSOFT)],
        "pairs",
        [helper.make_tensor_value_info(*each) for each in zip(names, types, shapes, strict=True)],
        [helper.make_tensor_value_info("y", kind, np.broadcast_shapes(a, b))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def fed(dtype: str, values: Mapping[str, Array], a: Scale, b: Scale, y: Scale) -> dict[str, Array]:
    feed = dict(values)
    for role, (scale, zero) in (("a", a), ("b", b), ("y", y)):
        feed |= {f"{role}_scale": np.array(scale, np.float32), f"{role}_zero": np.array(zero, dtype)}
    return feed


def random_scales(rng: np.random.Generator, op: str, index: int) -> tuple[Scale, Scale, Scale]:
    """Any scales, and every fourth time powers of two or equal ones; zero points of int8."""
    a, b = (2.0 ** rng.uniform(-9, 1) for _ in range(2))
    if index % 4 == 1:
        a, b = (2.0 ** float(rng.integers(-8, 1)) for _ in range(2))
    if index % 4 == 2:
        b = a
    reach = max(a, b) * 2.0 ** rng.uniform(-2, 3) if op in ("Add", "Sub") else a * b * 2.0 ** rng.uniform(0, 9)
    if index % 4 in (1, 2):
        reach = 2.0 ** float(rng.integers(-1, 3)) * (max(a, b) if op in ("Add", "Sub") else a * b * 16)
    za, zb, zy = (int(v) for v in rng.integers(-128, 128, 3))
    return (single(a), za), (single(b), zb), (single(reach), zy)


def bound_pairs(
    op: str, scales: tuple[Scale, Scale, Scale], numerics: Numerics, *, unsigned: bool = False, exchanged: bool = False
) -> BoundNode:
    """The operator on every pair of int8 values."""
    node_type = f"QLinear{op}" if numerics is Numerics.QOPERATOR else op
    made = OPS[op]("NONE", unsigned, exchanged, numerics=numerics)
    node = Node(made, node_type, ("a", "b"), ("y",), 0)
    a, b, y = (
        Tensor(name, DType.INT8, PAIRS, Quantization((scale,), (zero,)))
        for name, (scale, zero) in zip("aby", scales, strict=True)
    )
    return BoundNode(node, (a, b), (y,))


def by_form(form: WeightedSum | EvenSum | ScaledProduct | EvenProduct, zeros: tuple[int, int]) -> Int64:
    """What the integers give for every pair, each step within the width that C has for it."""

    def fits(values: Int64, bits: int) -> Int64:
        assert np.abs(values).max() < 1 << (bits - 1)
        return values

    a, b = BYTES[:, None], BYTES[None, :]
    if isinstance(form, WeightedSum | EvenSum):
        acc = fits(fits(form.bias + a * form.a_weight, 32) + b * form.b_weight, 32)
    else:
        product = (a - zeros[0]) * (b - zeros[1])
        width = 64 if isinstance(form, ScaledProduct) and form.wide else 32
        acc = fits(fits(product * form.multiplier, width) + form.bias, width)
        assert abs(form.multiplier) < 1 << 31
    if isinstance(form, EvenSum | EvenProduct):
        fits(acc + (1 << form.right), 32)
        return np.asarray(np.clip(rounded_even(acc, form.right) + form.offset, -128, 127), np.int64)
    if isinstance(form, ScaledProduct) and form.wide:
        acc = fits(acc >> 32, 32)
    return np.asarray(np.clip(acc >> form.right, -128, 127), np.int64)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_hundreds_of_scales(op: str, dtype: str) -> None:
    """The reference equals onnxruntime, and a form that was found equals both, on every pair; most have a form."""
    rng = np.random.default_rng(30)
    engine, values = session(op, dtype, PAIRS, PAIRS), every_pair(dtype)
    bias, formed, count = 128 if dtype == "uint8" else 0, 0, 60
    for index in range(count):
        scales = random_scales(rng, op, index)
        a, b, y = ((scale, zero + bias) for scale, zero in scales)
        expected = engine.run(None, fed(dtype, values, a, b, y))[0].astype(np.int64) - bias
        bound = bound_pairs(op, scales, Numerics.QOPERATOR, unsigned=dtype == "uint8")
        found = combined(bound, SYMBOLS[op], FULL, BYTES[:, None], BYTES[None, :])
        assert (found == expected).all(), scales
        form = integer_form(bound, SYMBOLS[op], found, FULL)
        if form is not None:
            formed += index % 4 != 2
            assert (by_form(form, (scales[0][1], scales[1][1])) == expected).all(), scales
    assert formed > 0.9 * 0.75 * count


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_integer_forms_of_dequantized_operands(op: str) -> None:
    """The float arithmetic is compared with onnxruntime above; here the forms with it."""
    rng = np.random.default_rng(31)
    formed, count = 0, 60
    for index in range(count):
        scales = random_scales(rng, op, index)
        bound = bound_pairs(op, scales, Numerics.QDQ)
        results = combined(bound, SYMBOLS[op], FULL, BYTES[:, None], BYTES[None, :])
        form = integer_form(bound, SYMBOLS[op], results, FULL)
        if form is not None:
            formed += index % 4 != 2
            assert (by_form(form, (scales[0][1], scales[1][1])) == results).all(), scales
    assert formed > 0.9 * 0.75 * count


@pytest.mark.parametrize(
    ("a", "b", "changed"),
    [
        ((5,), (5,), False),
        ((1,), (5,), True),
        ((5,), (1,), False),
        ((), (5,), True),
        ((5,), (), False),
        ((), (), True),
        ((1,), (1,), True),
        ((3, 1), (1,), True),
        ((3, 1), (), True),
        ((3, 1), (3, 1), False),
        ((1, 1), (1, 1), True),
        ((3, 1), (1, 1), False),
        ((3, 1, 1), (1, 1), True),
        ((3, 1, 1), (1, 1, 1), False),
        ((2, 1, 1), (1, 3, 1), True),
        ((2, 3, 4), (2, 1, 1), False),
        ((1, 3, 1), (2, 3, 4), True),
        ((4, 1, 1), (1, 4, 1, 1), False),
        ((1, 1), (1, 4, 1, 1), True),
    ],
    ids=str,
)
def test_which_operand_qlinearadd_takes_first(a: tuple[int, ...], b: tuple[int, ...], changed: bool) -> None:
    """Found by pairs of values for which the two orders differ."""
    assert operands_change_places(a, b) is changed
    engine, rng, seen = session("Add", "int8", a, b), np.random.default_rng(32), 0
    while seen < 3:
        scales = random_scales(rng, "Add", 0)
        tables = [
            combined(
                bound_pairs("Add", scales, Numerics.QOPERATOR, exchanged=exchanged),
                "+", FULL, BYTES[:, None], BYTES[None, :],
            )
            for exchanged in (False, True)
        ]  # fmt: skip
        for first, second in np.argwhere(tables[0] != tables[1])[:2]:
            values = {"a": np.full(a, first - 128, np.int8), "b": np.full(b, second - 128, np.int8)}
            (found,) = engine.run(None, fed("int8", values, *scales))
            assert (found == tables[int(changed)][first, second]).all()
            seen += 1


# ---- integer forms on their own ----


def test_even_sum_only_where_it_gives_the_results() -> None:
    halves = BYTES[:, None] + BYTES[None, :]
    results = np.clip(np.rint(halves / 2).astype(np.int64), -128, 127)
    form = even_sum(results, 0.5, 0.5, (0, 0, 0), FULL)
    assert form is not None
    assert form.a_weight == form.b_weight == 1 << (form.right - 1)
    assert (by_form(form, (0, 0)) == results).all()
    results[17, 40] += 1
    assert even_sum(results, 0.5, 0.5, (0, 0, 0), FULL) is None


@pytest.mark.parametrize("zero", [0, 1])
def test_ties_are_even_with_or_without_the_zero_point(zero: int) -> None:
    products = (BYTES[:, None] - 3) * (BYTES[None, :] + 5)
    inside = np.clip(np.rint(products / 128 + zero), -128, 127).astype(np.int64)
    outside = np.clip(np.rint(products / 128) + zero, -128, 127).astype(np.int64)
    zeros = (3, -5, zero)
    assert (inside != outside).any() == bool(zero)
    for results in (inside, outside):
        form = even_product(results, 1 / 128, zeros, FULL)
        assert form is not None
        assert (by_form(form, (3, -5)) == results).all()


@pytest.mark.parametrize("factor", [1e-9, 0.00031, 0.011019, 0.49, 0.5, 0.77, 3.3, 900.0, 2.0**21])
@pytest.mark.parametrize("zeros", [(0, 0, 0), (-128, -128, -128), (127, -128, 12)], ids=str)
def test_products_by_any_factor(factor: float, zeros: tuple[int, int, int]) -> None:
    products = (BYTES[:, None] - zeros[0]) * (BYTES[None, :] - zeros[1])
    results = np.clip(np.floor(products * factor + 0.5) + zeros[2], -128, 127).astype(np.int64)
    form = scaled_product(results, factor, zeros)
    assert form is not None
    assert (by_form(form, zeros[:2]) == results).all()


def test_no_product_for_results_that_no_factor_has() -> None:
    products = BYTES[:, None] * BYTES[None, :]
    results = np.clip(np.floor(products * 0.0071 + 0.5), -128, 127).astype(np.int64)
    assert scaled_product(results, 0.0071, (0, 0, 0)) is not None
    results[128 + 20, 128 + 30] += 1
    assert scaled_product(results, 0.0071, (0, 0, 0)) is None


# ---- shapes, types and plain numbers ----

SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((7,), (7,)),
    ((7,), (1,)),
    ((1,), (7,)),
    ((), (5,)),
    ((), ()),
    ((2, 3), (3,)),
    ((1, 4, 5, 3), (1, 1, 1, 3)),
    ((2, 4, 5, 3), (1, 4, 1, 3)),
    ((2, 1, 5, 1), (1, 4, 1, 3)),
    ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1)),
)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def shape_cases() -> list[OnnxCase]:
    """Every shape in every arithmetic."""
    cases = []
    for i, shapes in enumerate(SHAPES):
        a, b = shapes
        cases += [
            OnnxCase(f"plain_{op}_{i}", op, {"a": computed(a), "b": computed(b)}) for op in ("Add", "Sub", "Mul", "Div")
        ]
        scales = (single(0.05), 3), (single(0.07), -4)
        for dialect, make, operators in _DIALECTS:
            for op in operators:
                y = (single({"Add": 0.12, "Sub": 0.12, "Mul": 0.09, "Div": 0.8}[op]), 5)
                cases.append(make(f"{dialect}_{op}_{i}", op, *scales, y, shapes=shapes))
        # Each form in a loop of its own: ties, and no integers.
        cases += [
            qlinear(f"even_sum_{i}", "Add", (0.25, 3), (0.25, -4), (0.5, 5), shapes=shapes),
            qlinear(f"even_product_{i}", "Mul", (0.25, 3), (0.25, -4), (4.0, 5), shapes=shapes),
            dequantized(f"int16_{i}", "Add", (3e-5, 3), (2e-5, -4), (4e-5, 5), "int16", shapes),
        ]
    return cases


@pytest.fixture(scope="module")
def shapes_proven() -> Proven:
    return prove_onnx(shape_cases(), samples=4)


@pytest.mark.parametrize("name", [case.id for case in shape_cases()])
def test_shape(shapes_proven: Proven, name: str) -> None:
    shapes_proven.outcomes[name].check()


def test_memory(shapes_proven: Proven) -> None:
    assert shapes_proven.memory_errors == ()


def test_int16() -> None:
    cases = []
    for op in OPS:
        y = {"Add": 5e-5, "Sub": 4e-5, "Mul": 2e-5, "Div": 2e-4}[op]
        cases += [
            dequantized(f"{op}_symmetric", op, (3e-5, 0), (2.7e-5, 0), (y, 0), "int16", ((40, 41), (40, 41))),
            dequantized(f"{op}_apart", op, (3e-5, -32768), (2.7e-5, 32767), (y, 77), "int16", ((40, 41), (40, 41))),
            dequantized(f"{op}_ties", op, (0.25, 1), (0.25, 0), (0.5, 0), "int16", ((40, 41), (40, 41))),
            dequantized(f"{op}_saturates", op, (3e-2, 1), (2e-2, 0), (1e-9, 0), "int16", ((41,), (40, 1))),
        ]
    prove_onnx(cases, samples=4).check()


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_plain_numbers_onnxruntime_has(dtype: str) -> None:
    spec = computed((37,), dtype)
    cases = [OnnxCase(op, op, {"a": spec, "b": spec}) for op in ("Add", "Sub", "Mul")]
    if dtype.startswith("float"):
        cases.append(OnnxCase("Div", "Div", {"a": spec, "b": spec}))
    else:
        cases.append(OnnxCase("Div", "Div", {"a": spec, "b": computed((37,), dtype, 1, 1000)}))
        cases.append(
            OnnxCase("Div_negative", "Div", {"a": computed((37,), dtype, -99, 99), "b": computed((37,), dtype, -9, -1)})
        )
        cases.append(OnnxCase("constant", "Add", {"a": spec, "b": np.array([[2**31 - 1], [-5]], dtype)}))
    prove_onnx(cases).check()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_every_type(dtype: str) -> None:
    """Results and overflows against numpy's; a divisor of 0 gives 0, the smallest value over -1 itself."""
    info = np.iinfo(dtype)
    edges = np.array(
        [info.min, info.min + 1, 0, 1, 3, 7, info.max - 1, info.max] + ([-1, -7] if info.min else []), dtype
    )
    a, b = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    cases = [
        OnnxCase(
            op, op, {"a": computed(a.shape, dtype), "b": computed(b.shape, dtype)}, draw=lambda rng, n: {"a": a, "b": b}
        )
        for op in OPS
    ]
    proven = prove_onnx(cases, samples=1, engine=False)
    proven.check()
    with np.errstate(all="ignore"):
        exact = [
            np.trunc(0 if y == 0 else int(x) / int(y)) if abs(int(x)) < 2**50 else 0 for x, y in zip(a, b, strict=True)
        ]
        wanted = {"Add": a + b, "Sub": a - b, "Mul": a * b}
    for op, values in wanted.items():
        assert (proven.outcomes[op].compiled[0][0] == values).all()
    quotients = proven.outcomes["Div"].compiled[0][0]
    for x, y, found, real in zip(a.tolist(), b.tolist(), quotients.tolist(), exact, strict=True):
        if y == 0:
            assert found == 0
        elif y == -1 and x == info.min and info.min:
            assert found == info.min
        else:
            assert found == abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
            assert abs(x) >= 2**50 or found == real


def test_node_tests() -> None:
    tests = node_tests("Add", "Sub", "Mul", "Div")
    assert len(tests) == 36
    check_node_tests(tests)


def test_infinite_constants() -> None:
    """As masks of attention have them."""
    mask = np.array([0.0, -np.inf, -np.inf, 1.0], np.float32)
    prove_onnx([OnnxCase("mask", "Add", {"a": computed((3, 4)), "b": mask})]).check()


@pytest.mark.parametrize(("opset", "attributes"), [(6, {"broadcast": 1}), (6, {"broadcast": 1, "axis": 1}), (7, {})])
def test_old_broadcasting_along_leading_dimensions(opset: int, attributes: dict[str, int]) -> None:
    case = OnnxCase("old", "Add", {"a": computed((2, 3)), "b": computed((3,))}, attributes, opset)
    prove_onnx([case], engine=False).check()


# ---- what is chosen ----


def layer_of(case: OnnxCase) -> Layer:
    (bound,) = [b for b in graph_of(case).bound() if isinstance(b.node.op, Arithmetic)]
    return kernel_of(bound).lower(bound)


@pytest.mark.parametrize(
    ("case", "template"),
    [
        (qlinear("sum", "Add", *SCALES), "weighted_sum"),
        (qlinear("ties", "Add", (0.25, 3), (0.25, -4), (0.5, 5)), "even_sum"),
        (qlinear("whole", "Add", (0.5, 3), (0.25, -4), (0.25, 5)), "weighted_sum"),
        (qlinear("narrow", "Mul", (0.5, -120), (0.3, -123), (0.007, 10)), "scaled_product"),
        (qlinear("wide", "Mul", (0.6164452433586121, 80), (0.11289756000041962, 33), (8.984025001525879, 11)), "wide_product"),
        (qlinear("product_ties", "Mul", (0.25, 3), (0.25, -4), (4.0, 5)), "even_product"),
        (OnnxCase("float", "Div", {"a": computed((3,)), "b": computed((3,))}), "quotient"),
        (OnnxCase("int", "Div", {"a": computed((3,), "int32"), "b": computed((3,), "int32")}), "quotient_integer"),
    ],
    ids=lambda value: value.id if isinstance(value, OnnxCase) else value,
)  # fmt: skip
def test_template(case: OnnxCase, template: str) -> None:
    assert layer_of(case).kernel_name == template


def test_one_constant_number_makes_a_table() -> None:
    cases = []
    for op in ("Add", "Mul"):
        case = qlinear(f"{op}_scalar", op, (0.05, 3), (0.07, -4), (0.12, 5), shapes=((300,), (1,)))
        cases.append(OnnxCase(case.id, case.op_type, {**case.inputs, "b": np.array([57], np.int8)}, domain=MICROSOFT))
    cases.append(dequantized("quotient", "Div", (0.05, 3), (0.07, -4), (0.12, 5), shapes=((20,), (1,))))
    cases[-1] = OnnxCase("quotient", "Div", {**cases[-1].inputs, "b": np.array([57], np.int8)}, nodes=cases[-1].nodes)
    proven = prove_onnx(cases)
    proven.check()
    (compiled,) = proven.compiled.values()
    assert {step.kernel_name for step in compiled.program.steps} == {"lookup"}


@pytest.mark.parametrize(
    ("a", "b", "arena"),
    [
        pytest.param((4, 8, 8), (4, 8, 8), 512, id="same_shape"),
        pytest.param((4, 8, 8), (8,), 256 + 16, id="b_repeated"),
        pytest.param((16, 1), (1, 16), 256 + 32, id="both_repeated"),
    ],
)
def test_result_lies_over_an_operand_that_is_not_repeated(a: tuple[int, ...], b: tuple[int, ...], arena: int) -> None:
    case = qlinear("product", "Mul", (0.05, 3), (0.07, -4), (0.12, 5), shapes=(a, b))
    proven = prove_onnx([case])
    proven.check()
    (compiled,) = proven.compiled.values()
    assert compiled.program.plan.arena_bytes == arena


# ---- refusals ----


def refused_with(bound: BoundNode, symbol: str) -> str:
    """What is said of an operator that is refused, else ""."""
    try:
        check(bound, symbol, "NONE")
    except EmitcError as error:
        return error.what
    return ""


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("op", "first", "step"), [("Add", 16_909_270.0, 2.0), ("Mul", 131_071.875, 1 / 128)])
def test_results_are_taken_up_to_the_end_of_int32(op: str, first: float, step: float, dtype: str) -> None:
    """Where all results have an int32 the reference equals onnxruntime; with the next scale there is a refusal."""
    engine, values, bias = session(op, dtype, PAIRS, PAIRS), every_pair(dtype), 128 if dtype == "uint8" else 0
    accepted = []
    for index in range(32):
        scales = (single(first + index * step), 0), (1.0, 0), (1.0, 0)
        expected = engine.run(None, fed(dtype, values, *((scale, zero + bias) for scale, zero in scales)))[0]
        bound = bound_pairs(op, scales, Numerics.QOPERATOR, unsigned=dtype == "uint8")
        found = combined(bound, SYMBOLS[op], FULL, BYTES[:, None], BYTES[None, :])
        equal, refused = (found == expected.astype(np.int64) - bias).all(), refused_with(bound, SYMBOLS[op])
        accepted.append(not refused)
        assert refused in ("", f"QLinear{op} with results that leave int32 is not supported")
        assert equal if not refused else not equal or platform.machine() != "x86_64", scales
    assert 0 < sum(accepted) < 32
    assert accepted == sorted(accepted, reverse=True)


def test_refusals() -> None:
    quantize = helper.make_node("QuantizeLinear", ["a", "scale", "zero"], ["q"])
    add = helper.make_node("Add", ["q", "q"], ["y"])
    inputs: dict[str, Array | Computed | None] = {
        "a": computed((4,)),
        "scale": np.array(0.1, np.float32),
        "zero": np.array(3, np.int8),
    }
    error = refusal(OnnxCase("numbers", "Add", inputs, nodes=(quantize, add)))
    assert (error.exit_code, error.what) == (1, "Add of quantized numbers is not supported")
    huge = qlinear("huge", "Mul", (1e30, 0), (1e30, 0), (1.0, 0), shapes=((4,), (4,)))
    error = refusal(huge, engine=True)
    assert (error.exit_code, error.what) == (2, "QLinearMul has scales that are out of proportion")
    error = refusal(
        OnnxCase("middle", "Add", {"a": computed((2, 3)), "b": computed((2,))}, {"broadcast": 1, "axis": 0}, 6)
    )
    assert (error.exit_code, error.what) == (1, "Add with axis 0 is not supported")
    loops = OnnxCase("loops", "Mul", {"a": computed((2, 1, 2, 1, 2, 1)), "b": computed((1, 2, 1, 2, 1, 2))})
    error = refusal(loops)
    assert (error.exit_code, error.what) == (1, "Mul repeats its inputs along 6 alternating dimensions")
