"""Nodes of constants, computed by the evaluator of the onnx package."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnx.helper

from emitc.ir import Array


def evaluated(node: onnx.NodeProto, constants: Sequence[onnx.TensorProto], opset: int) -> list[Array]:
    """The outputs of a node. constants: its inputs in order, those without that are left out; opset: of the model."""
    import onnx.reference  # makes a class of every operator's schema, which few models need

    graph = onnx.helper.make_graph(
        [node],
        "constants",
        [],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
        list(constants),
    )
    for name, initializer in zip((i for i in node.input if i), graph.initializer, strict=True):
        initializer.name = name
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(value) for value in onnx.reference.ReferenceEvaluator(model).run(None, {})]
