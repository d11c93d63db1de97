"""The shape that a TFLite file states for an operator's output must be the computed one, also where the batch is open.

TensorFlow Lite Micro takes the stated shape: it then writes other elements, or beyond its buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import Graph
from emitc.kernels import tflite_registry
from emitc.writers.tflite import TensorSpec, write_tflite
from tests.support.passes.pass_graphs import Net

SHAPE = (1, 6, 4, 3)


def softmax(net: Net, x: int) -> int:
    return net.op("SOFTMAX", (x,), net.like(x, scales=(2.0**-8,), zero_points=(-128,)), beta=1.0)


def resized(net: Net, x: int) -> int:
    return net.op("RESIZE_NEAREST_NEIGHBOR", (x, net.integers((3, 2))), net.like(x, shape=(1, 3, 2, 3)))


def mean(net: Net, x: int) -> int:
    return net.op("MEAN", (x, net.integers((1, 2))), net.activation((1, 1, 1, 3)), keep_dims=True)


def turned(net: Net, x: int) -> int:
    return net.op("TRANSPOSE", (x, net.integers((0, 3, 1, 2))), net.like(x, shape=(1, 3, 6, 4)))


OPERATORS: dict[str, Callable[[Net, int], int]] = {
    "conv": lambda net, x: net.conv(x, 4, kernel=1),
    "depthwise": lambda net, x: net.depthwise(x),
    "dense": lambda net, x: net.dense(x, 4),
    "pool": lambda net, x: net.pool("MAX_POOL_2D", x),
    "add": lambda net, x: net.binary("ADD", x, x),
    "relu": lambda net, x: net.unary("RELU", x),
    "pad": lambda net, x: net.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))),
    "concat": lambda net, x: net.op("CONCATENATION", (x, x), net.like(x, shape=(1, 6, 4, 6)), axis=3),
    "reshape": lambda net, x: net.reshape(x, (1, 72)),
    "mean": mean,
    "resize": resized,
    "softmax": softmax,
    "transpose": turned,
}
STATED: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "without_the_batch": lambda shape: shape[1:],
    "another_dimension": lambda shape: (1, *shape),
    "one_size_less": lambda shape: (*shape[:-1], shape[-1] - 1),
    "another_batch": lambda shape: (2 * shape[0], *shape[1:]),
}


def graph_of(operator: str, stated: Callable[[tuple[int, ...]], tuple[int, ...]], open_batch: bool) -> Graph:
    """The operator on an input whose first dimension may be open."""
    net = Net()
    x = net.tensor(TensorSpec("x", "int8", SHAPE, None, (0.05,), (3,)))
    net.inputs.append(x)
    y = OPERATORS[operator](net, x)
    if open_batch:
        net.tensors[x] = replace(net.tensors[x], shape_signature=(-1, *SHAPE[1:]))
    net.tensors[y] = replace(net.tensors[y], shape=stated(net.tensors[y].shape))
    net.output(y)
    return build_graph(read_tflite(write_tflite(net.spec())), tflite_registry(), "net")


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_computed_shape_is_taken(operator: str) -> None:
    for open_batch in (False, True):
        assert graph_of(operator, tuple, open_batch).nodes


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("stated", STATED)
def test_another_shape_is_refused(operator: str, stated: str) -> None:
    for open_batch in (False, True):
        with pytest.raises(EmitcError) as caught:
            graph_of(operator, STATED[stated], open_batch)
        assert "has an output of the wrong shape" in caught.value.what and caught.value.exit_code == 2
        assert ("--shape" in caught.value.hint) == open_batch


@pytest.mark.parametrize("stated", [(4, 3), (1, 3)])
def test_a_size_of_onnx_may_be_that_of_another_batch(stated: tuple[int, ...], tmp_path: Path) -> None:
    """Exporters state sizes of the batch that they traced; ONNX Runtime replaces them."""
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, stated),
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    compiled = compile_model(path)
    assert [compiled.graph.tensor(name).shape for name in (*compiled.graph.inputs, *compiled.graph.outputs)] == [
        (1, 3)
    ] * 2
