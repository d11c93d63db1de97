"""Dynamic quantization: DynamicQuantizeLinear, MatMulInteger and ConvInteger against onnxruntime, and whole models of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.kernels import kernel_of
from emitc.layer import Layer
from emitc.verify.verification import verify
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import Computed, OnnxCase, Proven, computed, graph_of, prove_onnx, refusal

MODELS = Path(__file__).resolve().parents[4] / "shared" / "models" / "onnx"
BYTES = ("uint8", "int8")
INF, NAN = float("inf"), float("nan")


def rng_of(name: str) -> np.random.Generator:
    """A generator that depends on the name alone."""
    return np.random.default_rng(list(name.encode()))


# ---- DynamicQuantizeLinear ----

REALS: dict[str, list[float]] = {
    "both_signs": [-1.5, 0.0, 2.25, 7.0],
    "positive": [3.0, 4.0, 5.5],
    "negative": [-3.0, -4.0, -5.5],
    "zeros": [0.0, -0.0, 0.0],
    "equal": [2.5, 2.5],
    "one": [-7.0],
    "zero_point_tie": [-0.5, 254.5],
    "ties": [-127.5, 0.5, 1.5, 2.5, -0.5, -1.5, 127.5],
    "tiny": [1e-42, 0.0, -1e-43],
    "smallest": [1e-45, 0.0, 0.0],
    "huge": [1e38, -1e38, 0.0],
    "range_overflows": [3e38, -3e38, 0.0],
    "infinite": [INF, 1.0, 2.0],
    "infinite_both": [-INF, INF, 0.0],
    "not_a_number": [NAN, 1.0, 2.0],
    "not_a_number_late": [1.0, -2.0, NAN],
}


def given(values: list[float]) -> Callable[[np.random.Generator, int], dict[str, Array]]:
    return lambda rng, sample: {"x": np.array(values, np.float32)}


def dynamic(
    name: str, spec: Computed, draw: Callable[[np.random.Generator, int], dict[str, Array]] | None = None
) -> OnnxCase:
    return OnnxCase(name, "DynamicQuantizeLinear", {"x": spec}, draw=draw, outputs=("y", "scale", "zero_point"))


def scaled(spec: Computed) -> Callable[[np.random.Generator, int], dict[str, Array]]:
    """Values around different centres, of all magnitudes."""

    def draw(rng: np.random.Generator, sample: int) -> dict[str, Array]:
        values = rng.normal(rng.choice([-3.0, 0.0, 3.0]), 1.0, spec.shape) * 10.0 ** rng.uniform(-5, 5)
        return {"x": values.astype(np.float32)}

    return draw


def test_quantized_by_range() -> None:
    cases = [dynamic(name, computed((len(values),)), given(values)) for name, values in REALS.items()]
    prove_onnx(cases, samples=1).check()


def test_quantized_by_range_of_random_values() -> None:
    shapes = ((), (1,), (3, 5), (2, 3, 4, 5), (64,))
    cases = [dynamic(f"random{i}", computed(shape), scaled(computed(shape))) for i, shape in enumerate(shapes)]
    prove_onnx(cases, samples=50, sanitize=False).check()


def test_bytes_lie_over_the_values_they_come_from() -> None:
    proven = prove_onnx([dynamic("over", computed((64,)))])
    proven.check()
    (compiled,) = proven.compiled.values()
    assert compiled.program.plan.arena_bytes == 256 + 16 + 16


# ---- MatMulInteger ----


def constant(name: str, shape: tuple[int, ...], dtype: str) -> Array:
    info = np.iinfo(dtype)
    return rng_of(name).integers(info.min, info.max, shape, dtype, endpoint=True)


def product(
    name: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    types: tuple[str, str] = ("uint8", "int8"),
    zeros: tuple[object, object] = (None, None),
    *,
    weights: bool = True,
    op: str = "MatMulInteger",
    **attributes: object,
) -> OnnxCase:
    """weights: the second operand is constant. zeros: None, a shape for a computed one, or a shape in a list for a constant."""
    inputs: dict[str, Array | Computed | None] = {
        "a": computed(a, types[0]),
        "b": constant(name, b, types[1]) if weights else computed(b, types[1]),
    }
    for role, zero, dtype in zip(("a_zero", "b_zero"), zeros, types, strict=True):
        inputs[role] = (
            None if zero is None
            else constant(name + role, tuple(zero), dtype) if isinstance(zero, list)
            else computed(tuple(zero), dtype)  # type: ignore[arg-type]
        )  # fmt: skip
    while inputs and list(inputs.values())[-1] is None:
        inputs.popitem()
    return OnnxCase(name, op, inputs, attributes)


PRODUCTS = [
    *(product(f"constant_{a}_{b}", (3, 7), (7, 9), (a, b), ([], [])) for a in BYTES for b in BYTES),
    *(product(f"computed_{a}_{b}", (3, 7), (7, 9), (a, b), ((), ()), weights=False) for a in BYTES for b in BYTES),
    product("no_zero_points", (3, 7), (7, 9)),
    product("no_zero_points_computed", (3, 7), (7, 9), weights=False),
    product("only_b_zero", (3, 7), (7, 8), zeros=(None, [])),
    product("computed_a_zero", (3, 7), (7, 8), zeros=((), [])),
    product("computed_a_zero_1", (3, 7), (7, 8), zeros=((1,), None)),
    product("computed_b_zero_of_constant", (3, 7), (7, 8), ("uint8", "uint8"), ((), ())),
    product("per_column", (3, 7), (7, 9), ("uint8", "uint8"), ([], [9])),
    product("per_column_computed", (3, 7), (7, 9), ("int8", "uint8"), ((), (9,)), weights=False),
    product("batches", (2, 3, 7), (7, 4), zeros=([], [])),
    product("batches_of_both", (2, 5, 3, 4), (2, 5, 4, 6), zeros=([], []), weights=False),
    product("batches_repeated", (2, 1, 3, 4), (5, 4, 6), ("int8", "int8"), ((), ()), weights=False),
    product("batches_of_constants", (2, 3, 4), (2, 4, 5), zeros=([], [])),
    product("vector_by_matrix", (7,), (7, 5), zeros=([], [])),
    product("matrix_by_vector", (3, 7), (7,), zeros=([], [])),
    product("vector_by_vector", (7,), (7,), weights=False),
    product("single", (1, 1), (1, 1), zeros=([], [])),
    product("deep", (1, 300), (300, 5), ("uint8", "uint8"), ([], [])),
]


@pytest.fixture(scope="module")
def products_proven() -> Proven:
    return prove_onnx(PRODUCTS)


@pytest.mark.parametrize("name", [case.id for case in PRODUCTS])
def test_product(products_proven: Proven, name: str) -> None:
    products_proven.outcomes[name].check()


def test_memory_of_products(products_proven: Proven) -> None:
    assert products_proven.memory_errors == ()


def test_zero_point_for_each_row() -> None:
    """In the standard, not in onnxruntime."""
    cases = [
        product("rows", (3, 7), (7, 9), zeros=([3], [])),
        product("rows_computed", (3, 7), (7, 9), zeros=((3,), ()), weights=False),
        product("rows_as_column", (2, 3, 7), (7, 9), zeros=([3, 1], [])),
    ]
    proven = prove_onnx(cases, engine=False)
    proven.check()
    for name in ("rows", "rows_as_column"):
        outcome = proven.outcomes[name]
        a, b = outcome.inputs[0]["a"].astype(np.int64), np.asarray(outcome.case.inputs["b"]).astype(np.int64)
        a_zero, b_zero = (np.asarray(outcome.case.inputs[zero]).astype(np.int64) for zero in ("a_zero", "b_zero"))
        assert (outcome.compiled[0][0] == (a - a_zero.reshape(3, 1)) @ (b - b_zero)).all()


def layer_of(case: OnnxCase) -> Layer:
    (bound,) = [b for b in graph_of(case).bound() if b.node.op_type == case.op_type]
    return kernel_of(bound).lower(bound)


def test_template() -> None:
    wanted = {"computed_a_zero": "matmul_integer_constant", "computed_b_zero_of_constant": "matmul_integer"}
    wanted |= {"batches": "matmul_integer_constant", "batches_of_both": "matmul_integer"}
    assert {c.id: layer_of(c).kernel_name for c in PRODUCTS if c.id in wanted} == wanted


# ---- ConvInteger ----

UNSIGNED, MIXED = ("uint8", "uint8"), ("uint8", "int8")


def convolution(
    name: str, x: tuple[int, ...], w: tuple[int, ...], types: tuple[str, str] = UNSIGNED,
    zeros: tuple[object, object] = ([], []), *, weights: bool = True, **attributes: object,
) -> OnnxCase:  # fmt: skip
    return product(name, x, w, types, zeros, weights=weights, op="ConvInteger", **attributes)


IMAGE, FILTERS = (1, 3, 5, 5), (4, 3, 3, 3)
CONVOLUTIONS = [
    convolution("conv_unsigned", (2, 3, 5, 6), (4, 3, 3, 2), pads=[1, 0, 2, 1]),
    convolution("conv_mixed", (2, 3, 5, 6), (4, 3, 3, 2), MIXED, pads=[1, 0, 2, 1]),
    convolution("conv_no_zero_points", IMAGE, FILTERS, zeros=(None, None)),
    convolution("conv_strided", (1, 2, 7, 9), (3, 2, 3, 3), strides=[2, 3], dilations=[2, 1]),
    convolution("conv_groups", (1, 4, 5, 5), (6, 2, 3, 3), MIXED, group=2, pads=[1] * 4),
    convolution("conv_depthwise", (1, 4, 5, 5), (4, 1, 3, 3), group=4, auto_pad="SAME_UPPER"),
    convolution("conv_1d", (2, 3, 9), (4, 3, 3), MIXED, pads=[1, 2]),
    convolution("conv_computed", IMAGE, FILTERS, zeros=((), ()), weights=False, pads=[1] * 4),
]
SPECIFIED = [
    convolution("conv_signed", IMAGE, FILTERS, ("int8", "int8"), pads=[1, 0, 2, 1]),
    convolution("conv_per_channel", IMAGE, FILTERS, zeros=([], [4]), pads=[1] * 4),
    convolution("conv_computed_zeros", (1, 2, 4, 5), (3, 2, 2, 2), ("int8", "uint8"), ((), (3,)), weights=False),
]
"""In the standard, but not in onnxruntime: int8 inputs, and a zero point for each channel."""


def exact_convolution(x: Array, w: Array, pads: tuple[int, int, int, int]) -> Array:
    """NCHW, stride 1, of integers without zero points."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)))


def test_convolutions() -> None:
    prove_onnx(CONVOLUTIONS).check()


def test_convolutions_that_only_the_standard_has() -> None:
    proven = prove_onnx(SPECIFIED, engine=False)
    proven.check()
    for outcome in proven.outcomes.values():
        pads = tuple(outcome.case.attributes.get("pads", (0, 0, 0, 0)))
        for inputs, (found,) in zip(outcome.inputs, outcome.compiled, strict=True):
            given = {name: np.asarray(inputs.get(name, value)) for name, value in outcome.case.inputs.items()}
            x, w, x_zero, w_zero = (given[name].astype(np.int64) for name in ("a", "b", "a_zero", "b_zero"))
            assert (found == exact_convolution(x - x_zero, w - w_zero.reshape(-1, 1, 1, 1), pads)).all()


# ---- as quantizers write them ----


def test_dynamically_quantized_layer() -> None:
    """DynamicQuantizeLinear, MatMulInteger, Cast, Mul by both scales, Add: what a quantizer makes of a float layer."""
    nodes = (
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero", "w_zero"], ["acc"]),
        helper.make_node("Cast", ["acc"], ["real"], to=1),
        helper.make_node("Mul", ["scale", "w_scale"], ["factor"]),
        helper.make_node("Mul", ["real", "factor"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["y"]),
    )
    inputs: dict[str, Array | Computed | None] = {
        "x": computed((4, 37)),
        "w": constant("layer", (37, 10), "uint8"),
        "w_zero": np.array(131, np.uint8),
        "w_scale": np.array(0.013, np.float32),
        "bias": np.linspace(-1, 1, 10).astype(np.float32),
    }
    case = OnnxCase("layer", "MatMulInteger", inputs, nodes=nodes, outputs=("y", "q", "scale", "zero"))
    prove_onnx([case], samples=10).check()


@pytest.mark.parametrize("name", ["digits_mlp_dyn_u8", "digits_mlp_dyn_s8"])
def test_model(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip("the sibling folder of models is absent")
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    proof = verify(compile_model(path), samples=5)
    assert proof.match, proof.to_json()


def test_node_tests() -> None:
    tests = node_tests("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger")
    assert len(tests) == 6
    check_node_tests(tests)


# ---- refusals ----


def test_refusals() -> None:
    error = refusal(product("deep", (1, 20000), (20000, 1)))
    assert (error.exit_code, error.what) == (1, "MatMulInteger with sums of 20000 products is not supported")
    error = refusal(product("per_batch", (2, 3, 7), (7, 5), zeros=([2, 3, 1], None)), engine=False)
    assert (error.exit_code, error.what) == (1, "MatMulInteger with zero points of shape [2, 3, 1] is not supported")
    error = refusal(product("columns", (3, 7), (7, 5), zeros=([], [4])), engine=False)
    assert (error.exit_code, error.what) == (1, "MatMulInteger with zero points of shape [4] is not supported")
    error = refusal(product("wide", (1, 1, 4, 4), (1, 1, 2, 2), zeros=([2], None), op="ConvInteger"), engine=False)
    assert (error.exit_code, error.what) == (1, "ConvInteger with zero points of shape [2] is not supported")
