"""Reductions of ONNX over any dimensions, and ArgMax and ArgMin."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from emitc.ir import Array
from tests.support.onnx_frozen import frozen
from tests.support.onnx_fused import check_fused
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import OnnxCase, computed, prove_onnx, refusal

FLOAT = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"]
FLOAT += ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]
INTEGER = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"]
AXES: dict[str, tuple[tuple[int, ...], list[int] | None]] = {
    "last": ((3, 4, 5), [-1]),
    "first": ((3, 4, 5), [0]),
    "middle": ((3, 4, 5), [1]),
    "ends": ((3, 4, 5), [0, 2]),
    "all": ((3, 4), None),
    "image": ((2, 3, 4, 5), [2, 3]),
    "alternating": ((2, 3, 2, 3, 2, 2, 2), [0, 2, 4, 6]),
    "alternating_inside": ((2, 3, 2, 3, 2, 2, 2), [1, 3, 5]),
    "ones": ((1, 5, 1), [0, 2]),
    "vector": ((7,), [0]),
}


def _case(name: str, kind: str, dtype: str, keep: int, low: float | None = None, high: float | None = None) -> OnnxCase:
    shape, axes = AXES[name]
    inputs: dict[str, object] = {"x": computed(shape, dtype, low, high)}
    if axes is not None:
        inputs["axes"] = np.array(axes, np.int64)
    return OnnxCase(f"{name}_{keep}", kind, inputs, {"keepdims": keep})  # type: ignore[arg-type]


@pytest.mark.sweep(keep=5)
@pytest.mark.parametrize("kind", FLOAT)
def test_reductions_of_floats_are_within_the_tolerance_of_the_engine(kind: str) -> None:
    low = 0.5 if kind == "ReduceLogSum" else -2.0
    cases = [_case(name, kind, "float32", keep, low, 2.0) for name in AXES for keep in (0, 1)]
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", FLOAT)
def test_node_tests(kind: str) -> None:
    # Those of LogSumExp are in float64; the empty set has an open dimension.
    tests = node_tests(kind, without=("empty_set", "log_sum_exp"))
    check_node_tests(frozen(tests))


def test_node_tests_of_arguments() -> None:
    check_node_tests(node_tests("ArgMax", "ArgMin"))


@pytest.mark.sweep(keep=6)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    # onnxruntime has no kernel for two of them on int64.
    [(k, t) for k in INTEGER for t in ("int32", "int64") if t == "int32" or k not in ("ReduceL1", "ReduceMean")],
)
def test_reductions_of_integers_have_the_engines_bits(kind: str, dtype: str) -> None:
    reach = 2 if kind == "ReduceProd" else 40
    cases = [_case(name, kind, dtype, 1, -reach, reach) for name in AXES]
    prove_onnx(cases, 3).check()


def test_integers_wrap() -> None:
    cases = [
        OnnxCase(kind, kind, {"x": computed((4, 6), "int32"), "axes": np.array([1], np.int64)})
        for kind in ("ReduceSum", "ReduceProd", "ReduceSumSquare", "ReduceL1")
    ]
    prove_onnx(cases, 4, engine=False).check()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_extremes_of_bytes(dtype: str) -> None:
    cases = [
        OnnxCase(f"{kind}_{name}", kind, _case(name, kind, dtype, 1).inputs, {"keepdims": 1})
        for kind in ("ReduceMax", "ReduceMin")
        for name in AXES
    ]
    prove_onnx(cases, 3).check()


def test_axes_by_attribute_and_none_at_all() -> None:
    x = {"x": computed((2, 3, 4))}
    empty = {"x": computed((2, 3, 4)), "axes": np.array([], np.int64)}
    cases = [
        OnnxCase("attribute", "ReduceMean", x, {"axes": [1, -1]}, opset=13),
        OnnxCase("attribute_sum", "ReduceSum", x, {"axes": [0], "keepdims": 0}, opset=11),
        OnnxCase("no_operation", "ReduceSum", empty, {"noop_with_empty_axes": 1}),
        OnnxCase("everything", "ReduceMax", empty),
    ]
    prove_onnx(cases, 2).check(rtol=1e-5, atol=1e-5)


def test_a_large_exponent_does_not_overflow() -> None:
    case = OnnxCase("large", "ReduceLogSumExp", {"x": computed((3, 4), low=500.0, high=900.0), "axes": np.array([1])})
    prove_onnx([case], 2).check(rtol=1e-5, atol=1e-5)


def _qdq(
    id: str, kind: str, dtype: str, shape: tuple[int, ...], axes: list[int], scales: tuple[float, float]
) -> OnnxCase:
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real"]),
        helper.make_node(kind, ["real", "axes"], ["reduced"], keepdims=0),
        helper.make_node("QuantizeLinear", ["reduced", "y_scale", "y_zero"], ["y"]),
    )
    constants: dict[str, Array] = {
        "axes": np.array(axes, np.int64),
        "x_scale": np.float32(scales[0]),
        "x_zero": np.array(3, dtype),
        "y_scale": np.float32(scales[1]),
        "y_zero": np.array(7, dtype),
    }
    return OnnxCase(id, "", {"x": computed(shape, dtype), **constants}, nodes=nodes)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_quantized_means_and_sums_differ_from_the_engine_in_ties_only(dtype: str) -> None:
    cases, ties = [], set()
    for name, (shape, axes) in {
        "token": ((1, 16, 24), [1]),
        "image": ((1, 8, 5, 5), [2, 3]),
        "last": ((6, 7), [1]),
    }.items():
        for kind, y_scale in (("ReduceMean", 0.0211), ("ReduceMean", 0.05), ("ReduceSum", 0.73)):
            cases.append(_qdq(f"{name}_{kind}_{y_scale}", kind, dtype, shape, axes, (0.05, y_scale)))
            if y_scale == 0.05 and name == "token":
                ties.add(cases[-1].id)
    proven = prove_onnx(cases, 6)
    for outcome in proven.outcomes.values():
        for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
            gap = np.abs(found[0].astype(np.int64) - golden[0])
            assert gap.max() <= (1 if outcome.case.id in ties else 0), outcome.case.id
    assert proven.memory_errors == ()
    check_fused(proven, "ReduceMean")
    check_fused(proven, "ReduceSum")


def test_arguments_of_extremes() -> None:
    cases = [
        OnnxCase(
            f"{kind}_{dtype}_{axis}_{last}_{keep}",
            kind,
            {"x": computed((3, 5, 4), dtype, -3, 3)},
            {"axis": axis, "select_last_index": last, "keepdims": keep},
        )
        for kind in ("ArgMax", "ArgMin")
        for dtype in ("float32", "int8", "int32")
        for axis in (0, 1, -1)
        for last, keep in ((0, 1), (1, 0))
    ]
    cases.append(OnnxCase("defaults", "ArgMax", {"x": computed((3, 5))}))
    cases.append(OnnxCase("bytes", "ArgMax", {"x": computed((3, 5), "uint8")}, {"axis": 1}))
    prove_onnx(cases, 3).check()


def some_unknown(rng: np.random.Generator, sample: int) -> dict[str, Array]:
    """Few different numbers, infinities and NaN, in the first place too, and nothing but NaN in the last sample."""
    values = np.array([np.nan, -np.inf, np.inf, 1.0, -1.0], np.float32)
    return {"x": np.full((6, 5, 4), np.nan, np.float32) if sample == 3 else rng.choice(values, (6, 5, 4))}


def test_extremes_beside_what_is_no_number() -> None:
    """A NaN in the first place is the extreme, any other one is passed over, as ONNX Runtime does it."""
    cases = [
        OnnxCase(
            f"{kind}_{axis}_{last}", kind, {"x": computed((6, 5, 4))}, {"axis": axis, "select_last_index": last},
            draw=some_unknown,
        )
        for kind in ("ArgMax", "ArgMin")
        for axis in (0, 1, 2)
        for last in (0, 1)
    ]  # fmt: skip
    prove_onnx(cases, 4).check()


def test_refusals() -> None:
    computed_axes = {"x": computed((2, 3)), "axes": computed((1,), "int64")}
    error = refusal(OnnxCase("", "ReduceSum", computed_axes))
    assert error.exit_code == 1
    error = refusal(OnnxCase("", "ReduceL2", {"x": computed((2, 3), "int32")}))
    assert "ReduceL2 with element types (int32, int32) is not supported" in str(error) and error.exit_code == 1
