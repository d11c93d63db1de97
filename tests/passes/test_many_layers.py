"""Passes that rewrite one place after the other have as many to rewrite as a model has layers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from emitc.compiler import compile_model

LAYERS = sys.getrecursionlimit() + 100


def test_a_bias_and_an_activation_behind_each_of_very_many_products(tmp_path: Path) -> None:
    nodes, last = [], "x"
    for i in range(LAYERS):
        nodes += [
            helper.make_node("MatMul", [last, "w"], [f"product{i}"]),
            helper.make_node("Add", [f"product{i}", "b"], [f"sum{i}"]),
            helper.make_node("Relu", [f"sum{i}"], [f"positive{i}"]),
        ]
        last = f"positive{i}"
    tensors = [
        numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"),
        numpy_helper.from_array(np.ones(2, np.float32), "b"),
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "many", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = tmp_path / "many.onnx"
    path.write_bytes(model.SerializeToString())
    steps = compile_model(path).program.steps
    assert [step.op_type for step in steps] == ["MatMul"] * LAYERS
