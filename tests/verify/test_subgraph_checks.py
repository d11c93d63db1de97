"""QDQ layers inside of If and Loop: each is compared with ONNX Runtime on its own inputs, and a wrong one is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.reference import random_samples
from emitc.verify.subgraph_checks import InnerCheck
from emitc.verify.verification import verify
from tests.support.models.onnx_control import (
    BOOL,
    FLOAT,
    INT64,
    POSITIVE,
    UINT8,
    ZERO,
    Value,
    constant,
    graph,
    model,
    node,
    quantized,
)

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

IMAGE = (1, 3, 5, 5)
SCALES = [constant("s", 0.02), constant("p", 120, "uint8"), constant("s2", 0.05)]


def compiled(made: ModelProto, folder: Path) -> Compiled:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return compile_model(path)


def weights() -> list[TensorProto]:
    values = np.random.default_rng(7).integers(-127, 128, (3, 3, 3, 3))
    return [constant("w", values, "int8"), constant("wp", 0, "int8")]


def layer(x: str, y: str) -> list[NodeProto]:
    """A convolution from codes to codes; its constants are those of a graph round it, one of them written by an operator."""
    return [
        node("DequantizeLinear", [x, "s", "p"], [f"{y}_r"]),
        node("DequantizeLinear", ["w", "ws", "wp"], [f"{y}_w"]),
        node("Conv", [f"{y}_r", f"{y}_w"], [f"{y}_c"], pads=[1, 1, 1, 1]),
        node("QuantizeLinear", [f"{y}_c", "s", "p"], [y]),
    ]


SCALE = node("Constant", [], ["ws"], value=constant("ws", 0.0043717))
"""No round number: sums would lie on the middle between two steps, which the engine's float noise breaks either way."""
ENDS: list[Value] = [("y", UINT8, IMAGE)]
IMAGES: list[Value] = [("x", FLOAT, IMAGE)]
QUANTIZED = node("QuantizeLinear", ["x", "s", "p"], ["q"])


def branch() -> ModelProto:
    """A convolution in a branch; the other one hands its operand on."""
    then = graph(layer("q", "inner"), (), [("inner", UINT8, IMAGE)])
    other = graph([node("Identity", ["q"], ["same"])], (), [("same", UINT8, IMAGE)])
    nodes = [*POSITIVE, QUANTIZED, SCALE, node("If", ["positive"], ["y"], then_branch=then, else_branch=other)]
    return model(nodes, IMAGES, ENDS, [*SCALES, *weights(), ZERO])


def body(nodes: Sequence[NodeProto]) -> GraphProto:
    """Of a loop over codes v, three times."""
    inputs: list[Value] = [("i", INT64, ()), ("going", BOOL, ()), ("v", UINT8, IMAGE)]
    outputs: list[Value] = [("go_on", BOOL, ()), ("v2", UINT8, IMAGE)]
    return graph([node("Identity", ["going"], ["go_on"]), *nodes], inputs, outputs)


def rounds() -> ModelProto:
    loop = node("Loop", ["m", "", "q"], ["y"], body=body(layer("v", "v2")))
    constants = [*SCALES, *weights(), constant("m", 3, "int64")]
    return model([QUANTIZED, SCALE, loop], IMAGES, ENDS, constants)


def deep() -> ModelProto:
    """A branch in the body of a loop, with one layer in it and one after it."""
    then = graph(layer("v", "inner"), (), [("inner", UINT8, IMAGE)])
    other = graph([node("Identity", ["v"], ["same"])], (), [("same", UINT8, IMAGE)])
    inside = [node("If", ["positive"], ["between"], then_branch=then, else_branch=other), *layer("between", "v2")]
    loop = node("Loop", ["m", "", "q"], ["y"], body=body(inside))
    constants = [*SCALES, *weights(), ZERO, constant("m", 3, "int64")]
    return model([*POSITIVE, QUANTIZED, SCALE, loop], IMAGES, ENDS, constants)


MODELS: dict[str, tuple[Callable[[], ModelProto], str, int]] = {
    "quantized": (quantized, "MatMul", 1), "branch": (branch, "Conv", 1), "rounds": (rounds, "Conv", 1),
    "deep": (deep, "Conv", 2),
}  # fmt: skip
"""A model, the type of its layers inside, and how many there are."""


@pytest.mark.parametrize("name", MODELS)
def test_layers_inside_are_counted(name: str, tmp_path: Path) -> None:
    make, op_type, count = MODELS[name]
    proof = verify(compiled(make(), tmp_path), samples=8, layers=True)
    assert (proof.match, proof.rule, proof.reference) == (True, "groups", "onnxruntime")
    (found,) = (group for group in proof.groups if group.kind == "sum")
    assert (found.op_type, found.operators, found.holds) == (op_type, count, True)
    assert found.elements > 0


def with_other(made: ModelProto, name: str, value: object, dtype: str) -> bytes:
    """The model with another constant."""
    other = ModelProto()
    other.CopyFrom(made)
    for tensor in other.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(constant(name, value, dtype))
    return other.SerializeToString()


@pytest.mark.parametrize("name", ["branch", "rounds"])
def test_a_layer_that_computes_something_else_is_found(name: str, tmp_path: Path) -> None:
    """The engine is given a file with one other weight, of a filter whose sums it changes by some steps."""
    made = MODELS[name][0]()
    other = numpy_helper.to_array(next(t for t in made.graph.initializer if t.name == "w")).copy()
    other[1, 1, 1, 1] = -other[1, 1, 1, 1]
    wrong = replace(compiled(made, tmp_path), model_bytes=with_other(made, "w", other, "int8"))
    proof = verify(wrong, samples=8)
    assert not proof.match
    assert [group.op_type for group in proof.groups if not group.holds] == ["Conv"]


def test_graphs_that_cannot_be_told_apart_are_judged_by_what_they_give(tmp_path: Path) -> None:
    """Both branches give their values the same names."""
    graphs = [graph(layer("q", "inner"), (), [("inner", UINT8, IMAGE)]) for _ in range(2)]
    choice = node("If", ["positive"], ["y"], then_branch=graphs[0], else_branch=graphs[1])
    made = compiled(model([*POSITIVE, QUANTIZED, SCALE, choice], IMAGES, ENDS, [*SCALES, *weights(), ZERO]), tmp_path)
    check = InnerCheck(made, "auto")
    check.add(random_samples(made.graph, 3, 0))
    assert (check.judged, check.groups()) == (False, ())
    proof = verify(made, samples=3)
    # A comparison of floats decides which branch is taken.
    assert (proof.rule, proof.unjudged, proof.differing) == ("exact", 0, 0)
    assert [(group.kind, group.operators) for group in proof.groups if group.op_type == "If"] == [("exact", 1)]


def test_other_references_have_nothing_inside(tmp_path: Path) -> None:
    made = compiled(branch(), tmp_path)
    check = InnerCheck(made, "numpy")
    check.add(random_samples(made.graph, 3, 0))
    assert not check.judged
    assert verify(made, samples=3, reference="numpy").match
