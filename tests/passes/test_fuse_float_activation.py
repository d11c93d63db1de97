"""fuse-activation on float32: a Relu or Clip merges into the sum of products before it, and the numbers stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emitc.passes.fold import fuse_activation
from emitc.passes.simplify import drop_dead
from emitc.passes.transposes import cancel_transposes
from emitc.writers.tflite import OperatorSpec, TensorSpec
from tests.support.models.onnx_net import OnnxNet
from tests.support.passes.onnx_graphs import check_same, classes, onnx_graph, whole_inputs
from tests.support.passes.pass_graphs import Net, graph_of


def conv(net: OnnxNet, x: str, group: int = 1) -> str:
    """A Conv of weights that are whole numbers."""
    weights = net.rng.integers(-3, 4, (4, 4 // group, 3, 3)).astype(np.float32)
    return net.op("Conv", x, net.constant(weights), group=group)


def clip(net: OnnxNet, x: str, low: float | None, high: float | None) -> str:
    """A Clip; a bound that is None is left out."""
    return net.op("Clip", x, *("" if bound is None else net.constant(bound, "float32") for bound in (low, high)))


def after(net: OnnxNet, activation: Callable[[OnnxNet, str], str], group: int = 1) -> None:
    """An activation between two Convs, past which the frontend's Transposes are moved."""
    net.output(conv(net, activation(net, conv(net, net.input((1, 4, 7, 6)), group))))


def relu(net: OnnxNet, x: str) -> str:
    return net.op("Relu", x)


def matrix(net: OnnxNet) -> None:
    weights = net.constant(net.rng.integers(-3, 4, (5, 4)).astype(np.float32))
    net.output(net.op("Relu", net.op("MatMul", net.input((2, 5)), weights)))


def two_readers(net: OnnxNet) -> None:
    x = conv(net, net.input((1, 4, 7, 6)))
    net.output(conv(net, net.op("Add", net.op("Relu", x), x)))


def pool(net: OnnxNet) -> None:
    x = net.op("MaxPool", net.input((1, 4, 7, 6)), kernel_shape=[2, 2])
    net.output(net.op("GlobalMaxPool", net.op("Relu", x)))


def total(net: OnnxNet) -> None:
    net.output(net.op("Relu", net.op("Add", net.input((2, 3)), net.input((2, 3)))))


FUSED: dict[str, tuple[Callable[[OnnxNet], None], str]] = {
    "relu": (lambda net: after(net, relu), "RELU"),
    "relu_of_each_channel": (lambda net: after(net, relu, 4), "RELU"),
    "relu6": (lambda net: after(net, lambda n, x: clip(n, x, 0.0, 6.0)), "RELU6"),
    "relu_n1_to_1": (lambda net: after(net, lambda n, x: clip(n, x, -1.0, 1.0), 4), "RELU_N1_TO_1"),
    "matrix": (matrix, "RELU"),
}
KEPT: dict[str, Callable[[OnnxNet], None]] = {
    "other_bounds": lambda net: after(net, lambda n, x: clip(n, x, 0.0, 5.0)),
    "no_upper_bound": lambda net: after(net, lambda n, x: clip(n, x, 0.0, None)),
    "no_bounds": lambda net: after(net, lambda n, x: clip(n, x, None, None)),
    "two_readers": two_readers,
    "behind_a_pool": pool,
    "behind_an_addition": total,
}


@pytest.mark.parametrize("name", FUSED)
def test_the_operator_takes_the_activation(name: str) -> None:
    build, activation = FUSED[name]
    before = cancel_transposes(onnx_graph(build))
    after = drop_dead(fuse_activation(before))
    assert {"Relu", "Clip"}.isdisjoint(classes(after))
    assert activation in [getattr(node.op, "activation", "") for node in after.nodes]
    check_same(before, after, whole_inputs(before, 3))


@pytest.mark.parametrize("name", KEPT)
def test_the_activation_stays(name: str) -> None:
    before = cancel_transposes(onnx_graph(KEPT[name]))
    assert fuse_activation(before) == before


def dense(net: Net, activation: str) -> None:
    """TFLite's FULLY_CONNECTED and an activation after it."""
    weights = net.rng.integers(-3, 4, (4, 6)).astype(np.float32)
    shapes: tuple[tuple[tuple[int, ...], bytes | None], ...] = (
        ((2, 6), None),
        ((4, 6), weights.tobytes()),
        ((2, 4), None),
        ((2, 4), None),
    )
    x, w, y, z = (net.tensor(TensorSpec("", "float32", shape, data)) for shape, data in shapes)
    net.inputs.append(x)
    net.operators.append(OperatorSpec("FULLY_CONNECTED", (x, w), (y,), {}))
    net.operators.append(OperatorSpec(activation, (y,), (z,)))
    net.output(z)


@pytest.mark.parametrize("activation", ["RELU", "RELU6"])
def test_so_does_an_operator_of_tflite(activation: str) -> None:
    before = graph_of(lambda net: dense(net, activation))
    after = fuse_activation(before)
    (node,) = after.nodes
    assert getattr(node.op, "activation", "") == activation
    check_same(before, after, whole_inputs(before, 3))
