"""The sign of a zero that an operator of ONNX selects is open; every other zero has its sign."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.tolerances import ANY_ZERO, EXACT, TOLERANT, Difference, compared, rules
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet


def selecting(kind: str) -> OnnxNet:
    net = OnnxNet()
    x = net.input((1, 4, 9, 9))
    if kind == "Where":
        y = net.op("Where", net.op("Less", x, net.constant(0.5, "float32")), x, net.constant(1.5, "float32"))
    elif kind == "MaxPool":
        y = net.op("MaxPool", x, kernel_shape=[3, 3])
    elif kind == "ReduceMax":
        y = net.op("ReduceMax", x, axes=[1], keepdims=1)
    else:
        y = net.op(kind, x)
    net.output(y)
    return net


def test_zeros_of_either_sign_are_one_value_only_where_the_rule_says_so() -> None:
    found = np.array([0.0, -0.0, 1.0, 2.0], np.float32)
    expected = np.array([-0.0, -0.0, 1.0, np.nextafter(np.float32(2), np.float32(3))], np.float32)
    assert compared(found, expected, EXACT).differing == 2
    assert compared(found, expected, ANY_ZERO).differing == 1
    assert compared(found[:3], expected[:3], ANY_ZERO) == Difference(0, 1, 0.0)


def test_the_rule_is_handed_on_by_what_keeps_values(tmp_path: Path) -> None:
    net = OnnxNet()
    y = net.op("Abs", net.op("MaxPool", net.input((1, 2, 4, 4)), kernel_shape=[2, 2]))
    for value in (y, net.op("Exp", y), net.op("Relu", net.input((2, 3)))):
        net.output(value)
    path = tmp_path / "m.onnx"
    path.write_bytes(net.serialized())
    graph = compile_model(path).graph
    found = rules(graph, "onnx")
    assert [found[name] for name in graph.outputs] == [ANY_ZERO, TOLERANT, EXACT]


@pytest.mark.parametrize("kind", ["Where", "MaxPool", "GlobalMaxPool", "ReduceMax", "Relu", "Identity"])
def test_the_engine_is_followed_but_for_that_sign(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    path = tmp_path / "m.onnx"
    path.write_bytes(selecting(kind).serialized())
    made = compile_model(path)
    rng = np.random.default_rng(7)
    inputs = rng.choice(np.array([0.0, -0.0, -1.0], np.float32), (1, 4, 9, 9))
    vectors = tmp_path / "vectors.npz"
    np.savez(vectors, in0_0=inputs)
    proof = verify(made, vectors=vectors, samples=0)
    assert proof.match, proof.to_json()
    assert (proof.tolerated > 0) <= (kind not in ("Relu", "Identity"))
