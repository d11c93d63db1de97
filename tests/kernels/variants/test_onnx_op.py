"""The harness of single ONNX cases itself: what it builds, draws and runs, and that it sees what differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.onnx_op import (
    Computed,
    OnnxCase,
    Outcome,
    computed,
    graph_of,
    model_of,
    prove_onnx,
    refusal,
    with_opset,
)

F = np.float32
SCALE, ZERO = np.array(0.1, F), np.array(3, np.int8)
QUANTIZE = OnnxCase("q", "QuantizeLinear", {"x": computed((2, 5), low=-15, high=15), "s": SCALE, "z": ZERO})
DEQUANTIZE = OnnxCase("dq", "DequantizeLinear", {"x": computed((6,), "int8"), "s": SCALE, "z": ZERO}, opset=13)


def test_cases_stand_side_by_side_under_their_names() -> None:
    model = model_of([QUANTIZE, replace(QUANTIZE, id="other")])
    assert [value.name for value in model.graph.input] == ["q/x", "other/x"]
    assert [value.name for value in model.graph.output] == ["q/y", "other/y"]
    assert {value.type.tensor_type.elem_type for value in model.graph.output} == {TensorProto.INT8}
    assert [tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.output] == [(2, 5)] * 2
    assert sorted(t.name for t in model.graph.initializer) == ["other/s", "other/z", "q/s", "q/z"]


def test_inputs_that_are_left_out_are_empty_names() -> None:
    case = OnnxCase("clip", "Clip", {"x": computed((3,)), "low": None, "high": np.array(1, F)})
    (node,) = model_of([case]).graph.node
    assert list(node.input) == ["clip/x", "", "clip/high"]


def test_types_come_from_shape_inference_where_there_is_no_engine() -> None:
    model = model_of([OnnxCase("r", "Reshape", {"x": computed((2, 6)), "shape": np.array([3, -1])})], engine=False)
    (output,) = model.graph.output
    assert [d.dim_value for d in output.type.tensor_type.shape.dim] == [3, 4]


def test_every_opset_is_a_model_of_its_own() -> None:
    proven = prove_onnx([QUANTIZE, DEQUANTIZE, with_opset(QUANTIZE, 13)], samples=2)
    assert list(proven.outcomes) == ["q", "dq", "q_opset13"]
    assert sorted(proven.compiled) == [13, 21]
    proven.check()


def test_what_the_three_compute_is_right() -> None:
    outcome = prove_onnx([QUANTIZE], samples=3).outcomes["q"]
    for inputs, reference, golden, found in zip(
        outcome.inputs, outcome.reference, outcome.golden, outcome.compiled, strict=True
    ):
        expected = np.clip(np.rint(inputs["x"] / F(0.1)) + 3, -128, 127).astype(np.int8)
        for (value,) in (reference, golden, found):
            assert np.array_equal(value, expected)


def test_several_nodes_make_a_case() -> None:
    nodes = (
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["t"]),
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["y"]),
    )
    proven = prove_onnx([OnnxCase("both", "", {"x": computed((7,)), "s": SCALE, "z": ZERO}, nodes=nodes)])
    proven.check()
    (y,) = proven.outcomes["both"].compiled[0]
    assert np.abs(y - proven.outcomes["both"].inputs[0]["x"]).max() <= 0.0501


def test_draws() -> None:
    full = Computed((16, 16), "uint8")
    part = Computed((50,), "int32", low=-2, high=3)
    own = OnnxCase(
        "own",
        "Concat",
        {"a": computed((2,)), "b": computed((3,), low=10, high=11)},
        {"axis": 0},
        draw=lambda rng, sample: {"a": np.full(2, sample, F)},
    )
    cases = [
        OnnxCase("full", "Identity", {"x": full}),
        OnnxCase("part", "Identity", {"x": part}),
        own,
    ]
    given = {name: outcome.inputs for name, outcome in prove_onnx(cases, samples=4, sanitize=False).outcomes.items()}
    assert sorted(given["full"][0]["x"].reshape(-1)) == list(range(256))
    assert set(given["full"][3]["x"].reshape(-1)) == {0, 255}
    assert set(given["part"][1]["x"]) == {-2, -1, 0, 1, 2, 3}
    assert [float(sample["a"][0]) for sample in given["own"]] == [0, 1, 2, 3]
    assert all(sample["b"].min() >= 10 and sample["b"].max() < 11 for sample in given["own"])


def test_a_sample_is_the_same_for_its_seed() -> None:
    runs = [prove_onnx([QUANTIZE], samples=2, seed=seed, sanitize=False).outcomes["q"].inputs for seed in (5, 5, 6)]
    assert runs[0][1]["x"].tobytes() == runs[1][1]["x"].tobytes() != runs[2][1]["x"].tobytes()


ONE, NEAR = (np.array([1.0, 2.0], F),), (np.array([1.0, 2.00001], F),)


@pytest.mark.parametrize(
    ("reference", "golden", "found", "pair"),
    [
        (NEAR, ONE, ONE, "reference and engine"),
        (ONE, ONE, NEAR, "C and engine"),
        (ONE, NEAR, NEAR, "reference and engine"),
    ],
)
def test_a_difference_is_named(
    reference: tuple[np.ndarray], golden: tuple[np.ndarray], found: tuple[np.ndarray], pair: str
) -> None:
    case = OnnxCase("c", "Identity", {"x": computed((2,))})
    outcome = Outcome(case, ({},), (reference,), (golden,), (found,))
    with pytest.raises(AssertionError, match=f"c, sample 0, output y: {pair}: 1 of 2 elements differ"):
        outcome.check()
    outcome.check(rtol=1e-4)
    with pytest.raises(AssertionError, match=pair):
        outcome.check(rtol=1e-7)


def test_a_tolerance_is_for_floats_only() -> None:
    case = OnnxCase("c", "Identity", {"x": computed((2,), "int8")})
    a, b = (np.array([1, 2], np.int8),), (np.array([1, 3], np.int8),)
    with pytest.raises(AssertionError, match="C and engine"):
        Outcome(case, ({},), (a,), (a,), (b,)).check(rtol=1.0, atol=10.0)
    with pytest.raises(AssertionError, match="int16"):
        Outcome(case, ({},), (a,), (a,), ((a[0].astype(np.int16),),)).check()


def test_without_a_tolerance_every_bit_counts() -> None:
    case = OnnxCase("c", "Relu", {"x": computed((2,))})
    plus, minus = (np.array([0.0, np.nan], F),), (np.array([-0.0, np.nan], F),)
    Outcome(case, ({},), (plus,), (plus,), (plus,)).check()
    Outcome(case, ({},), (plus,), (plus,), (minus,)).check(atol=1e-9)
    with pytest.raises(AssertionError, match="C and engine: 1 of 2 elements differ, by 0 at most"):
        Outcome(case, ({},), (plus,), (plus,), (minus,)).check()


def test_refusals() -> None:
    error = refusal(OnnxCase("b", "Bernoulli", {"x": computed((3,))}))
    assert (error.exit_code, error.what) == (1, "Bernoulli is not supported")
    with pytest.raises(AssertionError, match="q is accepted"):
        refusal(QUANTIZE)
    assert [node.op_type for node in graph_of(QUANTIZE).nodes] == ["QuantizeLinear"]


def test_ids_must_differ() -> None:
    with pytest.raises(AssertionError, match="case ids must differ"):
        prove_onnx([QUANTIZE, QUANTIZE])
