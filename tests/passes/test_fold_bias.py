"""fold-bias: an Add of a constant for each channel becomes the bias of the sum of products before it, and the numbers stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emitc.passes.fold import fold_bias
from emitc.passes.simplify import drop_dead
from emitc.passes.transposes import cancel_transposes
from tests.support.models.onnx_net import OnnxNet
from tests.support.passes.onnx_graphs import check_same, classes, onnx_graph, whole_inputs


def whole(net: OnnxNet, *shape: int) -> str:
    """A constant of whole numbers."""
    return net.constant(net.rng.integers(-3, 4, shape).astype(np.float32))


def product(net: OnnxNet) -> str:
    return net.op("MatMul", net.input((2, 3, 5)), whole(net, 5, 4))


def conv(net: OnnxNet, x: str, *, bias: bool = False, group: int = 1) -> str:
    weights = whole(net, 4, 4 // group, 3, 3)
    return net.op("Conv", x, weights, *([whole(net, 4)] if bias else []), group=group)


def between(net: OnnxNet, *shape: int, bias: bool = False, group: int = 1) -> None:
    """An Add between two Convs, past which the frontend's Transposes are moved."""
    x = conv(net, net.input((1, 4, 7, 6)), bias=bias, group=group)
    net.output(conv(net, net.op("Add", x, whole(net, *shape))))


def two_readers(net: OnnxNet) -> None:
    x = product(net)
    net.output(net.op("Mul", net.op("Add", x, whole(net, 4)), x))


def also_an_output(net: OnnxNet) -> None:
    x = product(net)
    net.output(x)
    net.output(net.op("Add", x, whole(net, 4)))


def limited_before(net: OnnxNet) -> None:
    net.output(net.op("Add", net.op("Relu", product(net)), whole(net, 4)))


def twice(net: OnnxNet) -> None:
    net.output(net.op("Add", net.op("Add", product(net), whole(net, 4)), whole(net, 1, 1, 4)))


FOLDED: dict[str, Callable[[OnnxNet], None]] = {
    "behind": lambda net: net.output(net.op("Add", product(net), whole(net, 4))),
    "in_front": lambda net: net.output(net.op("Add", whole(net, 1, 1, 4), product(net))),
    "conv": lambda net: between(net, 4, 1, 1),
    "conv_of_each_channel": lambda net: between(net, 1, 4, 1, 1, group=4),
}
KEPT: dict[str, Callable[[OnnxNet], None]] = {
    "one_number": lambda net: net.output(net.op("Add", product(net), whole(net, 1))),
    "for_each_row": lambda net: net.output(net.op("Add", product(net), whole(net, 3, 1))),
    "for_each_element": lambda net: net.output(net.op("Add", product(net), whole(net, 3, 4))),
    "more_dimensions": lambda net: net.output(net.op("Add", product(net), whole(net, 1, 1, 1, 4))),
    "computed": lambda net: net.output(net.op("Add", product(net), net.input((4,)))),
    "a_bias_already": lambda net: between(net, 4, 1, 1, bias=True),
    "along_rows": lambda net: between(net, 5, 1),
    "two_readers": two_readers,
    "also_an_output": also_an_output,
    "limited_before": limited_before,
    "single_numbers": lambda net: net.output(net.op("Add", net.input(()), net.constant(np.array(3.0, np.float32)))),
    "difference": lambda net: net.output(net.op("Sub", product(net), whole(net, 4))),
}


@pytest.mark.parametrize("name", FOLDED)
def test_the_operator_takes_the_bias(name: str) -> None:
    before = cancel_transposes(onnx_graph(FOLDED[name]))
    after = drop_dead(fold_bias(before))
    assert classes(after)["Add"] == 0
    assert True in [getattr(node.op, "bias_last", False) for node in after.nodes]
    check_same(before, after, whole_inputs(before, 3))


@pytest.mark.parametrize("name", KEPT)
def test_the_sum_stays(name: str) -> None:
    before = cancel_transposes(onnx_graph(KEPT[name]))
    assert fold_bias(before) == before


def test_one_bias_is_enough() -> None:
    before = onnx_graph(twice)
    after = fold_bias(before)
    assert classes(after)["Add"] == 1
    check_same(before, after, whole_inputs(before, 3))
