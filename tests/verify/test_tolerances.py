"""emitc.verify.tolerances: which tensors may differ from the engine's, and what counts as a difference."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from emitc.ir import DType, Graph, Node, Op, Tensor
from emitc.verify.tolerances import EXACT, FLOAT_TOLERANCE, NEAR, TOLERANT, Difference, Tolerance, compared, rules
from tests.support.onnx_op import Computed, OnnxCase, computed, graph_of

SCALE, ZERO = np.array(0.1, np.float32), np.array(3, np.int8)


def nodes_of(*steps: tuple[str, str, str]) -> Graph:
    """Float tensors over nodes (op_type, inputs, outputs); tensors called i... are int8, k... constants, v... views of x."""
    names = dict.fromkeys(" ".join(f"{inputs} {outputs}" for _, inputs, outputs in steps).split())
    tensors = tuple(
        Tensor(
            n,
            DType.INT8 if n[0] == "i" else DType.FLOAT32,
            (1,),
            data=b"\0" * 4 if n[0] == "k" else None,
            alias_of="x" if n[0] == "v" else "",
        )
        for n in dict.fromkeys(["x", *names])
    )
    nodes = [Node(Op(), op, tuple(i.split()), tuple(o.split()), k) for k, (op, i, o) in enumerate(steps)]
    return Graph("g", tensors, tuple(nodes), ("x",), ())


def tolerant(graph: Graph, source_format: str = "onnx") -> set[str]:
    return {name for name, rule in rules(graph, source_format).items() if rule == TOLERANT}


@pytest.mark.parametrize("op_type", ["SOFTMAX", "TANH", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_one_function_of_exact_floats_is_within_a_tenth_of_what_sums_may_differ_by(op_type: str) -> None:
    behind_bytes = rules(nodes_of(("DEQUANTIZE", "i", "y"), (op_type, "y", "z"), ("RESHAPE", "z", "w")), "tflite")
    assert (behind_bytes["y"], behind_bytes["z"], behind_bytes["w"]) == (EXACT, NEAR, NEAR)
    behind_sums = rules(nodes_of(("CONV_2D", "x k", "y"), (op_type, "y", "z")), "tflite")
    assert (behind_sums["y"], behind_sums["z"]) == (TOLERANT, TOLERANT)
    assert NEAR not in rules(nodes_of((op_type.title(), "x", "y")), "onnx").values()
    assert NEAR.absolute == 1e-6
    assert NEAR.relative == 0.0


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([("Dequantize", "i", "y")], set(), id="dequantize"),
        pytest.param([("DequantizeLinear", "i", "y"), ("Reshape", "y", "z")], set(), id="dequantize and copy"),
        pytest.param([("Conv", "x k", "y")], {"y"}, id="convolution"),
        pytest.param([("Conv", "x k", "y"), ("QuantizeLinear", "y", "i")], {"y"}, id="integers are exact"),
        pytest.param(
            [("Conv", "x k", "y"), ("QuantizeLinear", "y", "i"), ("DequantizeLinear", "i", "z")],
            {"y"},
            id="exact again after integers",
        ),
        pytest.param(
            [("Conv", "x k", "y"), ("Relu", "y", "z"), ("Reshape", "z", "w")], {"y", "z", "w"}, id="copies of it"
        ),
        pytest.param([("Relu", "x", "y"), ("MaxPool", "y", "z"), ("Concat", "z x", "w")], set(), id="selections"),
        pytest.param([("Sigmoid", "x", "y"), ("Concat", "x y", "w")], {"y", "w"}, id="one of two"),
        pytest.param([("Sigmoid", "x", "y"), ("Relu", "x", "w")], {"y"}, id="another branch"),
        pytest.param([("Sigmoid", "v1", "y"), ("Cast", "i", "c")], {"y"}, id="through a view"),
        pytest.param([("NoSuchOperator", "x", "y z")], {"y", "z"}, id="what is not known may compute"),
    ],
)
def test_only_what_operators_on_floats_compute_is_tolerant(
    steps: list[tuple[str, str, str]], expected: set[str]
) -> None:
    graph = nodes_of(*steps)
    assert tolerant(graph) == expected
    assert tolerant(graph, "tflite") == set()


def test_views_follow_their_owner() -> None:
    graph = nodes_of(("Sigmoid", "k", "x"), ("Relu", "v1", "y"))
    assert tolerant(graph) == {"x", "v1", "y"}


def test_rules_of_a_real_graph() -> None:
    """Whole cases through the frontend: their outputs only."""
    quantized = {"s": SCALE, "z": ZERO}
    x = computed((1, 3, 4, 4))
    cases = [
        OnnxCase("dq", "DequantizeLinear", {"x": Computed((2,), "int8"), **quantized}),
        OnnxCase("conv", "Conv", {"x": x, "w": np.ones((2, 3, 1, 1), np.float32)}),
        OnnxCase("turn", "Transpose", {"x": x}, {"perm": [0, 2, 3, 1]}),
        OnnxCase(
            "end",
            "",
            {"x": x, "w": np.ones((2, 3, 1, 1), np.float32), **quantized},
            nodes=(
                helper.make_node("Conv", ["x", "w"], ["c"]),
                helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
                helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
            ),
        ),
    ]
    graph = graph_of(*cases)
    found = rules(graph, "onnx")
    assert [found[name].exact for name in graph.outputs] == [True, False, True, True]


def test_exact_means_every_bit() -> None:
    assert EXACT.exact and not TOLERANT.exact
    zero = np.array([0.0, 1.0], np.float32)
    assert compared(zero, zero.copy()) == Difference(0, 0, 0.0)
    assert compared(-zero, zero) == Difference(2, 0, 2.0)
    assert compared(np.array([-0.0, 1.0], np.float32), zero) == Difference(1, 0, 0.0)
    nan = np.array([np.nan], np.float32)
    assert compared(nan, nan.copy()).differing == 0
    assert compared(nan, np.array([1.0], np.float32)) == Difference(1, 0, np.inf)
    assert compared(np.array([3, -7], np.int8), np.array([3, 5], np.int8)) == Difference(1, 0, 12.0)


def test_the_tolerance_is_of_the_largest_magnitude() -> None:
    expected = np.array([100.0, 0.0, -1.0], np.float32)
    limit = FLOAT_TOLERANCE + FLOAT_TOLERANCE * 100
    inside = expected + np.array([0, 0.99 * limit, 0], np.float32)
    outside = expected + np.array([0, 1.01 * limit, 0], np.float32)
    assert compared(inside, expected, TOLERANT) == Difference(0, 1, pytest.approx(0.99 * limit))
    assert compared(outside, expected, TOLERANT) == Difference(1, 0, pytest.approx(1.01 * limit))
    assert compared(inside, expected).differing == 1
    assert compared(outside[1:], expected[1:], TOLERANT).differing == 1, "the range is that of the tensor compared"
    both = inside + np.array([0.1, 0, 0], np.float32)
    assert (compared(both, expected, TOLERANT).differing, compared(both, expected, TOLERANT).tolerated) == (1, 1)


def test_what_is_not_finite_has_to_be_where_the_engine_has_it() -> None:
    expected = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    other_nan = np.array([0x7FC00001], np.uint32).view(np.float32)
    found = expected.copy()
    found[0] = other_nan[0]
    assert compared(found, expected, TOLERANT) == Difference(0, 1, 0.0)
    assert compared(found, expected).differing == 1
    for position, value in ((0, 1.0), (1, -np.inf), (1, 3e38), (2, np.nan), (3, np.nan), (3, np.inf)):
        wrong = expected.copy()
        wrong[position] = value
        assert compared(wrong, expected, TOLERANT) == Difference(1, 0, np.inf), (position, value)


def test_arrays_of_another_form_are_a_mistake() -> None:
    a = np.zeros((2, 3), np.float32)
    for other in (a.T, a.astype(np.float64), a.reshape(6)):
        with pytest.raises(ValueError, match="is compared with"):
            compared(a, other, Tolerance(1.0, 0.0))
