"""Operators that make integers of floats within a tolerance: each is compared on the engine's own inputs, whatever the seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.golden_run import golden_run
from emitc.verify.operator_checks import OperatorCheck, has_operator_checks, quantizes_inexact
from emitc.verify.reference import random_samples
from emitc.verify.tolerances import rules
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")


def dynamic(net: OnnxNet, x: str) -> str:
    """A layer of the dynamic quantizer: x [8, 6] times int8 weights [6, 5]."""
    q, scale, zero = net.ops("DynamicQuantizeLinear", x, outputs=3)
    product = net.op("MatMulInteger", q, net.integers((6, 5)), zero)
    return net.op(
        "Mul", net.op("Cast", product, to=TensorProto.FLOAT), net.op("Mul", scale, net.constant(0.01, "float32"))
    )


def compiled(net: OnnxNet, folder: Path) -> Compiled:
    path = folder / "m.onnx"
    path.write_bytes(net.serialized())
    return compile_model(path)


def behind_floats(folder: Path) -> Compiled:
    """The layer after a Softmax, whose sums ONNX leaves to the runtime."""
    net = OnnxNet()
    net.output(dynamic(net, net.op("Softmax", net.input((8, 6)))))
    return compiled(net, folder)


def test_a_quantization_of_inexact_floats_is_judged_by_itself(tmp_path: Path) -> None:
    made = behind_floats(tmp_path)
    assert quantizes_inexact(made.graph, rules(made.graph, "onnx")) and not has_operator_checks(made.graph)
    for seed in range(2):
        proof = verify(made, samples=5, seed=seed)
        assert (proof.match, proof.unjudged) == (True, 0)
        assert [(g.kind, g.operators) for g in proof.groups if g.op_type == "DynamicQuantizeLinear"] == [("exact", 1)]
        assert {g.op_type for g in proof.groups} >= {"Softmax", "MatMulInteger", "Cast", "Mul"}
        assert proof.rule in ("groups", "tolerance")


def test_a_wrong_step_of_it_is_found(tmp_path: Path) -> None:
    made = behind_floats(tmp_path)
    (run,) = golden_run(made, "auto", random_samples(made.graph, 1, 0), preserve=True).tensors
    (bound,) = (b for b in made.graph.bound() if b.node.op_type == "DynamicQuantizeLinear")
    name = bound.outputs[0].name

    def broken(values: np.ndarray) -> bool:
        check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
        check.add(dict(run) | {name: values})
        return not all(group.holds for group in check.groups() if group.op_type == "DynamicQuantizeLinear")

    wrong = run[name].copy()
    wrong.reshape(-1)[7] ^= 1
    assert not broken(run[name])
    assert broken(wrong)


def test_a_quantization_of_the_input_itself_is_exact(tmp_path: Path) -> None:
    """Then the outputs decide, as they did."""
    net = OnnxNet()
    net.output(dynamic(net, net.input((8, 6))))
    made = compiled(net, tmp_path)
    assert not quantizes_inexact(made.graph, rules(made.graph, "onnx"))
    proof = verify(made, samples=5)
    assert proof.match and proof.groups == ()


def test_the_position_of_the_largest_float_is_judged_by_itself(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("ArgMax", net.op("Softmax", net.input((8, 6))), axis=1, keepdims=0), "int64")
    proof = verify(compiled(net, tmp_path), samples=5)
    assert proof.match and proof.rule == "exact"
    assert [(g.kind, g.broken) for g in proof.groups if g.op_type == "ArgMax"] == [("exact", 0)]
