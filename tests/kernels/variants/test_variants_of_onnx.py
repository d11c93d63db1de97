"""ONNX's quantized operators on cores with vectors, pairs or a float unit: against onnxruntime here, and on emulated cores."""

from __future__ import annotations

import itertools
import math
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.boards import verify
from emitc.boards.result import RunResult
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import Array
from tests.kernels.activation import test_onnx_cast as cast
from tests.kernels.activation import test_onnx_unary as unary
from tests.kernels.elementwise import test_onnx_arithmetic as arithmetic
from tests.kernels.elementwise import test_onnx_computed_scales as scales
from tests.kernels.matrix import test_onnx_matmul as matmul
from tests.kernels.normalization import test_onnx_softmax as softmax
from tests.kernels.pooling import test_onnx_pooling as pooling
from tests.kernels.quantization import test_onnx_dynamic as dynamic
from tests.kernels.quantization import test_onnx_quantize as quantize
from tests.kernels.recurrent import test_onnx_dynamic_lstm as dynamic_lstm
from tests.kernels.recurrent import test_onnx_gru as gru
from tests.kernels.recurrent import test_onnx_lstm as lstm
from tests.support.onnx_op import OnnxCase, computed, drawn, model_of, prove_onnx
from tests.support.single_op import preferring

TARGETS = {"dsp": "cortex-m4f", "fpu": "cortex-m4f", "mve": "cortex-m55"}


def matmul_cases() -> list[OnnxCase]:
    """Zero points at their ends; depths and columns that leave something over, a factor for each column, a single row."""
    rng = np.random.default_rng(3)
    cases = []
    for name, quantization in matmul.QUANTIZATIONS.items():
        for rows, depth, columns in ((8, 12, 8), (3, 7, 6), (5, 16, 9), (2, 37, 4), (4, 1, 3), (1, 6, 5), (6, 255, 5)):
            given = computed((2, rows, depth), quantization[0]), computed((2, depth, columns), quantization[0])
            cases.append(matmul.qlinear(f"{name}_{rows}x{depth}x{columns}", *given, name))
    cases.append(matmul.qlinear("repeated_b", computed((2, 3, 5, 7), "int8"), computed((7, 6), "int8"), "int8"))
    cases.append(matmul.qlinear("deep", computed((2, 256), "int8"), computed((256, 4), "int8"), "int8"))
    constant = rng.integers(-128, 128, (2, 3, 7), np.int8)
    cases.append(matmul.qlinear("constant_a", constant, computed((2, 7, 6), "int8"), "int8"))
    return [*cases, *matmul.column_cases()]


def float_matmul_cases() -> list[OnnxCase]:
    """Rows and columns that leave something over, and too few of them; operands that are repeated, or constant."""
    cases = [
        OnnxCase(
            f"{rows}x{depth}x{columns}", "MatMul", {"a": computed((2, rows, depth)), "b": computed((2, depth, columns))}
        )
        for rows, depth, columns in ((8, 12, 8), (3, 7, 6), (5, 1, 9), (2, 37, 4), (4, 5, 7), (1, 6, 5), (4, 3, 3))
    ]
    constant = np.random.default_rng(8).normal(0.0, 1.0, (2, 3, 7)).astype(np.float32)
    return [
        *cases,
        OnnxCase("repeated_b", "MatMul", {"a": computed((2, 3, 5, 7)), "b": computed((7, 6))}),
        OnnxCase("repeated_a", "MatMul", {"a": computed((3, 7)), "b": computed((2, 7, 5))}),
        OnnxCase("constant_a", "MatMul", {"a": constant, "b": computed((2, 7, 6))}),
    ]


def gru_cases() -> list[OnnxCase]:
    """Whole fours of units and others, both places of the reset gate, directions, with and without bias and state."""
    cases = []
    for reset in (0, 1):
        cases += [
            gru.gru(f"eight{reset}", linear_before_reset=reset, sizes=(5, 3, 7, 8)),
            gru.gru(f"four{reset}", linear_before_reset=reset, sizes=(6, 1, 1, 4), optional=""),
            gru.gru(
                f"turned{reset}",
                linear_before_reset=reset,
                sizes=(3, 2, 6, 12),
                direction="bidirectional",
                optional="bh",
            ),
            gru.gru(f"bias{reset}", linear_before_reset=reset, sizes=(4, 2, 5, 4), optional="bh", is_computed="bh"),
            gru.gru(f"six{reset}", linear_before_reset=reset, sizes=(4, 2, 5, 6)),
            gru.gru(f"computed{reset}", linear_before_reset=reset, sizes=(4, 2, 5, 8), is_computed="w"),
        ]
    return cases


def product_cases() -> list[OnnxCase]:
    """Of every pair of int8; few elements, which leave something over; those for which there is no multiplier, or ties."""
    pairs = [*arithmetic.SIGNED_CASES, *arithmetic.UNSIGNED_CASES[::5]]
    cases = [case for case in pairs if "Mul" in (case.op_type, case.op_type.removeprefix("QLinear"))]
    for a, b, y in (
        ((0.0472509, -1), (0.00784314, -128), (0.0488405, -121)),
        ((0.0237731, 127), (0.0713771, -128), (0.9117313, -7)),
        ((0.0511731, 3), (0.0713771, -4), (0.0117313, 5)),
    ):
        for make in (arithmetic.qlinear, arithmetic.dequantized):
            cases.append(make("all", "Mul", a, b, y))
            cases += [make(f"{count}", "Mul", a, b, y, shapes=((1, count), (1, count))) for count in (1, 3, 4, 7, 24)]
    cases.append(arithmetic.dequantized("rectified", "Mul", a, b, (0.1117313, 5), activation="Relu"))
    return [replace(case, id=f"{i}_{case.id}") for i, case in enumerate(cases)]


def real_cases() -> list[OnnxCase]:
    """int16, and int8 without an integer form: ties, saturation, zero points, activations, scales far apart."""
    cases = [case for case in arithmetic.NOT_INTEGER if case.id.startswith("qdq")]
    quantizations = {
        "plain": ((0.000103, 0), (0.000185, 0), (0.000218, 0)),
        "ties": ((0.25, 0), (0.5, 0), (1.0, 0)),
        "saturates": ((0.7, 0), (0.3, 0), (0.011, 0)),
        "moved": ((0.0123, 1000), (0.0217, -32768), (0.0321, 32767)),
        "apart": ((3e-5, 5), (7.3, -7), (0.9, 11)),
        "vanishes": ((1e-4, 1), (1e-4, 2), (4e4, 3)),
    }
    for op, (name, (a, b, y)), activation in itertools.product(
        ("Add", "Sub", "Mul"), quantizations.items(), ("", "Relu")
    ):
        if op == "Mul":
            y = (y[0] * 1000, y[1])
        for count in (3, 4, 41):
            shapes = ((1, count), (1, count))
            case = arithmetic.dequantized(f"{op}_{name}_{activation}_{count}", op, a, b, y, "int16", shapes, activation)
            cases.append(case)
    cases.append(arithmetic.dequantized("repeated", "Add", *quantizations["plain"], "int16", ((3, 8), (8,))))
    cases.append(arithmetic.dequantized("far", "Add", (1e-10, 0), (1e-10, 0), (1e-10, 0), "int16", ((8,), (8,))))
    return cases


def by_scales_cases(op: str) -> list[OnnxCase]:
    """Scales that are known when the layer runs: usual ones, some far apart, and quotients of them that are not numbers."""
    usual = (*scales.EVERY_PAIR, *scales.EXCHANGED, *scales.SHAPES, *scales.PARTLY)
    cases = [case for case in usual if case.op_type == f"QLinear{op}"]
    for a, b, y in (
        (1e-12, 1.0, 1.0),
        (3.7, 1e-11, 2.0),
        (1e-30, 1e-14, 1.0),
        (0.5, 0.25, 1e-4),
        (0.1, 0.1, 1e7),
        (0.0, 0.1, 0.2),
        (0.1, 0.0, 0.0),
    ):
        constant = {"a_scale": a, "b_scale": b, "y_scale": y}
        cases += [scales.by_scales(f"{op}_{a}_{b}_{y}_{t}", op, t, constant=constant) for t in ("int8", "uint8")]
    return cases


def pool_cases() -> list[OnnxCase]:
    """Windows of every kind, sums in every order, scales in and out of proportion."""
    cases = [case for name in ("int8_same", "int8_ends", "uint8_odd") for case in pooling.qlinear_averages(name)]
    for name in ("int8_wider", "int8_same", "int8_disproportionate"):
        cases += pooling.dequantized_averages(name)
    cases += pooling.dequantized_averages("int16_same")[:1]
    return [replace(case, id=f"{i}_{case.id}") for i, case in enumerate(cases)]


def ordered_pool_cases() -> list[OnnxCase]:
    """Of an opset in which windows are summed column by column."""
    return pooling.ordered_averages(11)


def largest_cases() -> list[OnnxCase]:
    """Windows of every kind over whole fours of channels."""
    numbers = np.array([0.0, 1e-45, -1e-45, 1e-40, -1e-40, 2e-38, -2e-38, 3e38, -3e38, np.inf], np.float32)

    def draw(shape: tuple[int, ...], rng: np.random.Generator, sample: int) -> Mapping[str, Array]:
        return {"x": rng.choice(numbers, shape) if sample else rng.normal(0.0, 3.0, shape).astype(np.float32)}

    cases = []
    for name, (shape, attributes) in (pooling.WINDOWS | pooling.DILATED).items():
        wide = (shape[0], shape[1] * 4, *shape[2:])
        cases.append(OnnxCase(name, "MaxPool", {"x": computed(wide)}, attributes, draw=partial(draw, wide)))
    return cases


def softmax_cases() -> list[OnnxCase]:
    """Rows of one value to hundreds, steep and flat; rows whose values lie apart; an output scale that leaves float32."""
    outputs = [("int8", 1 / 256, -128), ("int8", 1 / 128, 0), ("uint8", 1 / 253, 3), ("uint8", 0.003921569, 0)]
    cases = [case for output in outputs for case in softmax.qlinear_cases(*output)]
    cases += [case for output in (*outputs, ("int8", 1e-30, 0)) for case in softmax.dequantized_cases(*output)]
    return [replace(case, id=f"{i}_{case.id}") for i, case in enumerate(cases)]


def _reals(shape: tuple[int, ...], reach: float) -> Callable[[np.random.Generator, int], Mapping[str, Array]]:
    """Values of x with zeros, infinities, a NaN, and numbers that vectors take for 0 among them, in every lane of a vector."""
    tiny = np.array([1e-45, -1e-45, 1e-40, -1e-40, 1.2e-38, -1.2e-38, 7e-31, -7e-31, 9e-31, -9e-31], np.float32)

    def draw(rng: np.random.Generator, sample: int) -> Mapping[str, Array]:
        values = rng.uniform(-reach, reach, math.prod(shape)).astype(np.float32)
        odd = np.concatenate([unary.EDGES, tiny])
        places = rng.permutation(values.size)[: values.size // 3] if sample else np.arange(min(odd.size, values.size))
        values[places] = np.resize(odd, places.size)
        return {"x": values.reshape(shape)}

    return draw


def function_cases() -> list[OnnxCase]:
    """Functions of float32: few elements, which leave something over, and steep slopes, down to what float32 holds."""
    cases = []
    for op, reach in (("Tanh", 9.5), ("Sigmoid", 19.0), ("Relu", 3.0), ("Erf", 4.2)):
        for count in (1, 3, 4, 7, 1001):
            cases.append(OnnxCase(f"{op}_{count}", op, {"x": computed((count,))}, draw=_reals((count,), reach)))
    for i, alpha in enumerate((0.01, -1.7, 1e-30, 1e-38)):
        given = _reals((301,), 3.0)
        cases.append(OnnxCase(f"Leaky_{i}", "LeakyRelu", {"x": computed((301,))}, {"alpha": alpha}, draw=given))
    return cases


def slope_cases() -> list[OnnxCase]:
    """PRelu with a slope for each element of a row, for each row, and for each value."""
    rng = np.random.default_rng(5)
    cases = []
    for i, (shape, slope) in enumerate(
        (
            ((2, 3, 24), (24,)),
            ((5, 7), (7,)),
            ((3, 5, 41), (5, 1)),
            ((3, 8), (3, 8)),
            ((2, 4, 3), (1, 4, 3)),
            ((9,), (9,)),
        )
    ):
        values = rng.uniform(-1, 1, slope).astype(np.float32)
        values.reshape(-1)[::5] = 1e-36
        inputs = {"x": computed(shape), "slope": values}
        cases.append(OnnxCase(f"{i}", "PRelu", inputs, draw=_reals(shape, 3.0)))
    computed_slope = {"x": computed((4, 13)), "slope": computed((13,))}
    return [*cases, OnnxCase("computed", "PRelu", computed_slope, draw=_reals((4, 13), 3.0))]


def normalization_cases() -> list[OnnxCase]:
    """Rows of whole fours and others, of fewer than four; scale and bias constant and computed; the statistics as outputs."""
    rng = np.random.default_rng(7)
    cases = []
    for rows, size in ((3, 24), (5, 4), (1, 64), (4, 7), (2, 3), (3, 41)):
        x, count = computed((rows, size), low=-30.0, high=40.0), (size,)
        scale, bias = (rng.uniform(-2, 2, count).astype(np.float32) for _ in range(2))
        name, op = f"{rows}x{size}", "LayerNormalization"
        cases += [
            OnnxCase(f"{name}_constant", op, {"x": x, "scale": scale, "bias": bias}),
            OnnxCase(f"{name}_computed", op, {"x": x, "scale": computed(count), "bias": computed(count)}),
            OnnxCase(f"{name}_all", op, {"x": x, "scale": scale, "bias": bias}, outputs=("y", "mean", "inverse")),
            OnnxCase(f"{name}_no_bias", op, {"x": x, "scale": scale}),
        ]
    return cases


def integer_product_cases() -> list[OnnxCase]:
    """Zero points for all and for each column; depths and columns that leave something over; several rows."""
    cases = list(dynamic.PRODUCTS)
    for types in itertools.product(dynamic.BYTES, dynamic.BYTES):
        for rows, depth, columns in ((1, 16, 4), (2, 33, 8), (4, 3, 11), (3, 64, 5)):
            name = f"{'_'.join(types)}_{rows}x{depth}x{columns}"
            cases.append(dynamic.product(name, (rows, depth), (depth, columns), types, ((), [])))
    return cases


def range_cases() -> list[OnnxCase]:
    """Values to quantize by their range: infinities, what is no number, steps that vanish; all magnitudes."""
    reals = [dynamic.dynamic(n, computed((len(v),)), dynamic.given(v)) for n, v in dynamic.REALS.items()]
    shapes = [computed(shape) for shape in ((1,), (7,), (3, 41))]
    return [*reals, *(dynamic.dynamic(f"random_{i}", x, dynamic.scaled(x)) for i, x in enumerate(shapes))]


def real_softmax_cases() -> list[OnnxCase]:
    """Rows of one value to dozens, flat and steep ones; rows whose values lie apart; infinities and what is not a number."""
    cases = []
    for i, (shape, reach) in enumerate(
        (((3, 1), 1.0), ((2, 3), 5.0), ((4, 4), 90.0), ((2, 3, 41), 30.0), ((1, 8), 1e-3))
    ):
        cases.append(OnnxCase(f"rows_{i}", "Softmax", {"x": computed(shape, low=-reach, high=reach)}))
    cases.append(OnnxCase("apart", "Softmax", {"x": computed((2, 5, 3), low=-9.0, high=9.0)}, {"axis": 1}))
    odd = np.array([[1.0, -np.inf, 2.0, -200.0], [np.nan, 0.0, 1.0, 2.0], [1e-40, 0.0, -1e-42, 0.0]], np.float32)
    cases.append(OnnxCase("odd", "Softmax", {"x": computed(odd.shape)}, draw=cast.fixed(odd)))
    return cases


def plain_cases() -> list[OnnxCase]:
    """Of float32: equal shapes, rows and single numbers repeated on either side; what fours leave over, and what overflows."""
    special = np.array([0.0, -0.0, 1.5, 3e38, -3e38, 1e-40], np.float32)

    def drawn_floats(
        a: tuple[int, ...], b: tuple[int, ...]
    ) -> Callable[[np.random.Generator, int], Mapping[str, Array]]:
        def draw(rng: np.random.Generator, sample: int) -> Mapping[str, Array]:
            values = {"a": rng.uniform(-4, 4, a).astype(np.float32), "b": rng.uniform(-4, 4, b).astype(np.float32)}
            for one in values.values():
                flat = one.reshape(-1)
                flat[rng.permutation(flat.size)[: flat.size // 3]] = rng.choice(special)
            return values

        return draw

    shapes = [
        ((7,), (7,)),
        ((3, 8), (3, 8)),
        ((2, 3), (3,)),
        ((24,), (8, 24)),
        ((4, 41), (1,)),
        ((), (9,)),
        ((3, 5), (3, 1)),
        ((3,), (3,)),
    ]
    return [
        OnnxCase(f"{op}_{i}", op, {"a": computed(a), "b": computed(b)}, draw=drawn_floats(a, b))
        for op in ("Add", "Sub", "Mul")
        for i, (a, b) in enumerate(shapes)
    ]


def cast_cases() -> list[OnnxCase]:
    """Integers as float32, ends of their types and what float32 rounds among them; fours and what is left over."""
    cases = []
    for dtype, count in itertools.product(("int8", "uint8", "int16", "int32"), (1, 3, 4, 24)):
        draw = cast.fixed(cast.ends(dtype)[:count])
        name = f"{dtype}_{count}"
        cases.append(OnnxCase(name, "Cast", {"x": computed((count,), dtype)}, {"to": cast.code("float32")}, draw=draw))
    return cases


CASES: dict[str, Callable[[], list[OnnxCase]]] = {
    "matmul": matmul_cases,
    "products": product_cases,
    "reals": real_cases,
    "sums_by_scales": partial(by_scales_cases, "Add"),
    "products_by_scales": partial(by_scales_cases, "Mul"),
    "pools": pool_cases,
    "largest": largest_cases,
    "ordered_pools": ordered_pool_cases,
    "to_reals": quantize.dequantize_cases,
    "softmax": softmax_cases,
    "functions": function_cases,
    "slopes": slope_cases,
    "normalization": normalization_cases,
    "integer_products": integer_product_cases,
    "ranges": range_cases,
    "casts": cast_cases,
    "plain": plain_cases,
    "real_softmax": real_softmax_cases,
    "lstm": lambda: lstm.CASES,
    "dynamic_lstm": lambda: [case for case in dynamic_lstm.CASES if case.inputs["p"] is None],
    "float_matmul": float_matmul_cases,
    "gru": gru_cases,
}
"""By family."""
_AVERAGES = {"average_pool_2d_even_mve"}
TEMPLATES = {
    "dsp": {
        "matmul": {"matmul_dsp"},
        "products": {"high_product_dsp"},
        "integer_products": {"matmul_integer_constant_dsp"},
        "dynamic_lstm": {"dynamic_lstm_dsp"},
    },
    "fpu": {
        "reals": {"real_sum_fpu", "real_difference_fpu", "real_product_fpu"},
        "sums_by_scales": {"sum_by_scales_fpu"},
        "functions": {"tanh_rational_fpu", "logistic_rational_fpu", "erf_fpu"},
        "normalization": {"normalization_rows"},
        "ranges": {"dynamic_quantize_fpu"},
        "casts": {"cast_real_fpu"},
        "plain": {"plain_sum_fpu", "plain_difference_fpu", "plain_product_fpu"},
        "real_softmax": {"softmax_exp_fpu"},
        "lstm": {"lstm_fpu"},
        "largest": {"max_pool_2d_float_fpu"},
        "float_matmul": {"matmul_float_fpu"},
        "gru": {"gru_fpu"},
    },
    "mve": {
        "matmul": {"matmul_mve"},
        "products": {"high_product_mve", "real_product_mve"},
        "reals": {"real_sum_mve", "real_difference_mve", "real_product_mve"},
        "sums_by_scales": {"sum_by_scales_mve"},
        "products_by_scales": {"product_by_scales_mve"},
        "pools": {"average_pool_2d_sum_mve", *_AVERAGES},
        "ordered_pools": _AVERAGES,
        "largest": {"max_pool_2d_float_mve"},
        "to_reals": {"dequantize_mve"},
        "softmax": {"softmax_table_mve"},
        "functions": {"tanh_rational_mve", "logistic_rational_mve", "relu_mve", "leaky_relu_mve", "erf_mve"},
        "slopes": {"prelu_mve"},
        "normalization": {"normalization_rows"},
        "integer_products": {"matmul_integer_constant_mve"},
        "dynamic_lstm": {"dynamic_lstm_mve"},
        "casts": {"cast_real_mve"},
        "real_softmax": {"softmax_exp_mve"},
        "lstm": {"lstm_mve"},
        "float_matmul": {"matmul_float_mve"},
        "gru": {"gru_mve"},
    },
}
"""Kernels of each variant that the cases of a family have."""
WITHIN = dict.fromkeys(("normalization", "lstm", "gru", "dynamic_lstm", "float_matmul", "real_softmax"), (1e-5, 1e-5))
"""Families of float sums: how far from the engine they may be, relatively and absolutely."""


_SMALL, _FEW = 2048, 60
"""Elements of an operand, and cases, that an emulated board has memory for."""


def few(family: str) -> list[OnnxCase]:
    """Some of a family's small cases, the largest first."""

    def elements(case: OnnxCase) -> int:
        return max(math.prod(spec.shape) for spec in case.given.values())

    cases = sorted((case for case in CASES[family]() if elements(case) <= _SMALL), key=elements, reverse=True)
    return cases[:: 1 + len(cases) // _FEW]


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(("variant", "family"), [(v, f) for v, found in TEMPLATES.items() for f in found])
def test_every_case_has_the_engines_bits(variant: str, family: str) -> None:
    with preferring(variant):
        proven = prove_onnx(CASES[family](), 4, target=TARGETS[variant])
    proven.check(*WITHIN.get(family, ()))
    steps = [step for compiled in proven.compiled.values() for step in compiled.program.steps]
    assert {step.kernel_name for step in steps if step.variant == variant} == TEMPLATES[variant][family]


def result_on(
    board: str, target: str, cases: list[OnnxCase], variant: str, folder: Path, weights: str = "built-in"
) -> RunResult:
    """An emulated board's results against the numpy references', on the values that the cases draw."""
    folder.mkdir()
    file = folder / "cases.onnx"
    file.write_bytes(model_of(cases).SerializeToString())
    with preferring(variant):
        compiled = compile_model(file, target=target, package="platformio", weights=weights)
    rng = np.random.default_rng(1)
    given = [tuple(drawn(cases, rng, sample)) for sample in range(3)]
    with patch.object(verify, "random_samples", lambda *_: given):
        return on_emulator(compiled, board, reference="numpy", samples=3, seed=1, layers=False, workdir=folder / "run")


def match_on(board: str, target: str, cases: list[OnnxCase], variant: str, folder: Path) -> None:
    """Asserts that an emulated board has the numpy references' bits."""
    result = result_on(board, target, cases, variant, folder)
    assert (result.match, result.tolerated) == (True, 0), folder.name


emulated = pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)


@emulated
@pytest.mark.sweep(keep=0)
@pytest.mark.parametrize("variant", sorted(TARGETS))
def test_on_emulated_cores(variant: str, tmp_path: Path) -> None:
    board = "qemu_m55" if variant == "mve" else "qemu_m4"
    for family in TEMPLATES[variant].keys() - WITHIN.keys():
        match_on(board, TARGETS[variant], few(family), variant, tmp_path / family)


@emulated
@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(
    ("board", "variant", "family"),
    [
        (board, variant, family)
        for board, variant in (("qemu_m4", "dsp"), ("qemu_m4", "fpu"), ("qemu_m55", "mve"), ("qemu_m55", "fpu"))
        for family in WITHIN
        if family in TEMPLATES[variant]
    ],
)
def test_sums_of_floats_are_those_of_the_portable_kernel(board: str, variant: str, family: str, tmp_path: Path) -> None:
    target = "cortex-m4f" if board == "qemu_m4" else "cortex-m55"
    cases = few(family)
    found, plain = (result_on(board, target, cases, name, tmp_path / name) for name in (variant, "portable"))
    assert found.match
    assert (found.differing_bytes, found.max_abs_diff) == (plain.differing_bytes, plain.max_abs_diff)


@emulated
@pytest.mark.parametrize(("board", "target"), [("qemu_m4", "cortex-m4f"), ("qemu_m3", "cortex-m3")])
def test_functions_have_the_same_bits_on_cores_without_vectors(board: str, target: str, tmp_path: Path) -> None:
    match_on(board, target, few("functions"), "portable", tmp_path / "functions")


@emulated
@pytest.mark.parametrize(("board", "variant"), [("qemu_m4", "dsp"), ("qemu_m55", "mve")])
def test_matrices_of_bytes_in_a_file_begin_at_words(board: str, variant: str, tmp_path: Path) -> None:
    """The kernels load several words at once, which ends in a fault elsewhere; a compiler aligns what it prints by itself."""
    cases = few("integer_products")
    assert result_on(board, TARGETS[variant], cases, variant, tmp_path / "file", weights="external").match


@pytest.mark.parametrize("variant", ["dsp", "mve"])
@pytest.mark.parametrize(("family", "arrays"), [("integer_products", "weights"), ("dynamic_lstm", "w|r")])
def test_matrices_of_bytes_begin_at_words(family: str, arrays: str, variant: str, tmp_path: Path) -> None:
    """GCC aligns them by itself with -O2, and not with -Os."""
    file = tmp_path / "cases.onnx"
    file.write_bytes(model_of(CASES[family]()).SerializeToString())
    with preferring(variant):
        compiled = compile_model(file, target=TARGETS[variant], name="cases")
    kernels = {step.index for step in compiled.program.steps if step.variant == variant}
    text = compiled.files["cases.c"].decode("ascii")
    printed = re.findall(rf"(.*)static const int8_t op(\d+)_\w+_(?:{arrays})\[", text)
    aligned = {before for before, index in printed if int(index) in kernels}
    assert aligned == {"_Alignas(4) "}


@emulated
def test_a_layer_that_normalizes_one_row_stores_it(tmp_path: Path) -> None:
    """Nothing reads the pointers after the only row, so that the compiler took the stores for useless."""
    cases = [case for case in normalization_cases() if case.id == "1x64_constant"]
    assert len(cases) == 1 and result_on("qemu_m4", "cortex-m4f", cases, "fpu", tmp_path / "row").match
