"""Transposes move down, meet their inverses and vanish: how many are left, and that nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from emitc.passes.transposes import cancel_transposes
from emitc.passes.verify_graph import verify_graph
from emitc.writers.tflite import TensorSpec
from tests.support.models.onnx_net import OnnxNet
from tests.support.passes.onnx_graphs import Build, check_same, classes, onnx_graph, whole_inputs
from tests.support.passes.pass_graphs import Net, graph_of, operators


def conv(net: OnnxNet, x: str, *shape: int, **attributes: object) -> str:
    """A Conv of whole numbers without a bias."""
    weights = net.constant(net.rng.integers(-2, 3, shape).astype(np.float32))
    return net.op("Conv", x, weights, **attributes)


def same(net: OnnxNet, x: str, *shape: int) -> str:
    """A 3x3 Conv that keeps the size."""
    return conv(net, x, *shape, 3, 3, pads=[1, 1, 1, 1])


def image(net: OnnxNet, channels: int = 3) -> str:
    """An image of 6 x 5."""
    return net.input((1, channels, 6, 5))


def row_of_convolutions(net: OnnxNet) -> None:
    y = net.op("Relu", same(net, image(net), 4, 3))
    y = net.op("Clip", conv(net, y, 4, 1, 3, 3, group=4), net.constant(0, "float32"), net.constant(6, "float32"))
    net.output(net.op("MaxPool", y, kernel_shape=[2, 2]))


def one_channel(net: OnnxNet) -> None:
    net.output(same(net, image(net, 1), 4, 1))


def one_channel_at_both_ends(net: OnnxNet) -> None:
    net.output(same(net, net.op("Relu", same(net, image(net, 1), 4, 1)), 1, 4))


def residual(net: OnnxNet) -> None:
    a = same(net, image(net), 4, 3)
    net.output(net.op("Relu", net.op("Add", same(net, net.op("Relu", a), 4, 4), a)))


def residual_of_the_input(net: OnnxNet) -> None:
    """The input itself is added: it is turned once more, or the sum is turned back before."""
    x = image(net)
    net.output(
        net.op("Add", same(net, net.op("Relu", same(net, x, 4, 3)), 3, 4), net.op("Mul", x, net.constant(2, "float32")))
    )


def branches(net: OnnxNet) -> None:
    a = same(net, image(net), 4, 3)
    joined = net.op("Concat", same(net, a, 2, 4), net.op("MaxPool", a, kernel_shape=[3, 3], pads=[1, 1, 1, 1]), axis=1)
    net.output(same(net, joined, 2, 6))


def parts(net: OnnxNet) -> None:
    a, b = net.ops("Split", same(net, image(net), 4, 3), net.ints(1, 3), outputs=2, axis=1)
    net.output(net.op("Concat", same(net, b, 1, 3), a, axis=-3))


def cut_and_padded(net: OnnxNet) -> None:
    y = net.op("Pad", same(net, image(net), 4, 3), net.ints(0, 1, 0, 0, 0, 0, 2, 1), net.constant(3, "float32"))
    y = net.op("Slice", y, net.ints(1, 0), net.ints(5, 4), net.ints(1, 2))
    net.output(conv(net, y, 2, 4, 1, 1))


def constants_alongside(net: OnnxNet) -> None:
    """Constants of every rank that broadcasts."""
    y = same(net, image(net), 4, 3)
    for shape in ((4, 1, 1), (), (5,), (6, 1), (1, 4, 6, 5), (1, 1, 1, 1)):
        y = net.op("Add", y, net.constant(net.rng.integers(-3, 4, shape).astype(np.float32)))
    net.output(same(net, y, 3, 4))


def constants_joined(net: OnnxNet) -> None:
    """A constant after what is computed and one in front of it, of equal sizes in every dimension but the axis."""
    y = net.op("Transpose", net.input((3, 2, 2)), perm=[0, 2, 1])
    first, last = (net.constant(net.rng.integers(-3, 4, (n, 2, 2)).astype(np.float32)) for n in (1, 2))
    net.output(net.op("Transpose", net.op("Concat", first, y, last, axis=0), perm=[0, 2, 1]))


def quantized_between(net: OnnxNet) -> None:
    y = net.qdq(same(net, net.qdq(image(net), 1.0, 0), 4, 3), 2.0, -4)
    net.output(same(net, y, 4, 4))


def written_by_tf2onnx(net: OnnxNet) -> None:
    """An image with its channels last, turned for each operator and back."""
    x = net.op("Transpose", net.input((1, 6, 5, 3)), perm=[0, 3, 1, 2])
    y = net.op("Transpose", same(net, x, 4, 3), perm=[0, 2, 3, 1])
    y = net.op("Add", y, net.constant(np.arange(4, dtype=np.float32)))
    y = net.op("Relu", net.op("Transpose", y, perm=[0, 3, 1, 2]))
    net.output(net.op("Transpose", net.op("MaxPool", y, kernel_shape=[2, 2]), perm=[0, 2, 3, 1]))


def rows(net: OnnxNet) -> None:
    y = net.op("Relu", conv(net, net.input((1, 3, 9)), 4, 3, 3))
    net.output(conv(net, net.op("Add", y, net.constant(np.ones((4, 1), np.float32))), 2, 4, 3, strides=[2]))


def rows_written_by_tf2onnx(net: OnnxNet) -> None:
    y = conv(net, net.op("Transpose", net.input((1, 9, 3)), perm=[0, 2, 1]), 4, 3, 3)
    net.output(net.op("Transpose", net.op("Relu", y), perm=[0, 2, 1]))


def mean_over_space(net: OnnxNet) -> None:
    net.output(net.op("ReduceMean", conv(net, image(net), 4, 3, 3, 2), axes=[2, 3], keepdims=0))


def mean_over_space_kept(net: OnnxNet) -> None:
    net.output(net.op("ReduceMean", conv(net, image(net), 4, 3, 3, 2), axes=[-1, -2], keepdims=1))


def mean_over_channels(net: OnnxNet) -> None:
    net.output(net.op("ReduceMean", conv(net, image(net), 4, 3, 3, 2), axes=[1], keepdims=0))


def mean_over_rows(net: OnnxNet) -> None:
    """What is left, channels and columns, comes in another order."""
    net.output(net.op("ReduceMean", conv(net, image(net), 4, 3, 3, 2), axes=[2], keepdims=0))


def pooled_and_classified(net: OnnxNet) -> None:
    y = net.op("Flatten", net.op("GlobalAveragePool", conv(net, image(net), 4, 3, 3, 2)))
    net.output(net.op("Gemm", y, net.constant(net.rng.integers(-2, 3, (4, 3)).astype(np.float32))))


def flattened(net: OnnxNet) -> None:
    """A Reshape mixes the dimensions: the Transpose in front of it stays."""
    net.output(net.op("Flatten", same(net, image(net), 4, 3)))


def seen_inside(net: OnnxNet) -> None:
    """A value within the chain is an output too."""
    y = net.op("Relu", same(net, image(net), 4, 3))
    net.output(y)
    net.output(same(net, y, 4, 4))


def there_and_back(net: OnnxNet) -> None:
    y = net.op("Transpose", net.input((2, 3, 4)), perm=[2, 0, 1])
    net.output(net.op("Transpose", net.op("Relu", y), perm=[1, 2, 0]))


def to_an_output(net: OnnxNet) -> None:
    """Two that cancel, of which nothing remains but a copy to the output."""
    y = net.op("Transpose", net.input((2, 3, 4)), perm=[2, 0, 1])
    net.output(net.op("Transpose", y, perm=[1, 2, 0]))


def together(net: OnnxNet) -> None:
    """Two that do not cancel are one."""
    y = net.op("Transpose", net.op("Transpose", net.input((2, 3, 4)), perm=[2, 0, 1]), perm=[2, 1, 0])
    net.output(net.op("Relu", y))


def different_orders(net: OnnxNet) -> None:
    """Operands in two orders cannot be met by one."""
    a = net.op("Transpose", net.input((2, 3, 4)), perm=[2, 0, 1])
    b = net.op("Transpose", net.input((3, 2, 4)), perm=[2, 1, 0])
    net.output(net.op("Add", a, b))


def enlarged(net: OnnxNet) -> None:
    y = net.op("Resize", same(net, image(net), 4, 3), "", net.constant([1, 1, 2, 2], "float32"), mode="nearest",
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    net.output(same(net, y, 2, 4))


def normalized_over_channels(net: OnnxNet) -> None:
    net.output(net.op("Softmax", same(net, image(net), 4, 3), axis=1))


@dataclass(frozen=True, slots=True)
class Case:
    """before, left: Transposes that the frontend writes, and that remain."""

    build: Build
    before: int
    left: int


CASES = (
    Case(row_of_convolutions, 6, 2), Case(one_channel, 2, 1), Case(one_channel_at_both_ends, 4, 0), Case(residual, 4, 2),
    Case(residual_of_the_input, 4, 2), Case(branches, 8, 2), Case(parts, 4, 2), Case(cut_and_padded, 4, 2),
    Case(constants_joined, 2, 0), Case(constants_alongside, 4, 2), Case(quantized_between, 4, 2),
    Case(written_by_tf2onnx, 8, 0), Case(rows, 4, 2), Case(rows_written_by_tf2onnx, 4, 0), Case(mean_over_space, 2, 1),
    Case(mean_over_space_kept, 2, 1), Case(mean_over_channels, 2, 1), Case(mean_over_rows, 2, 2),
    Case(pooled_and_classified, 4, 1), Case(flattened, 2, 2), Case(seen_inside, 4, 3), Case(there_and_back, 2, 0),
    Case(to_an_output, 2, 0), Case(together, 2, 1), Case(different_orders, 2, 2), Case(enlarged, 4, 2),
    Case(normalized_over_channels, 2, 2),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.build.__name__ for case in CASES])
def test_transposes_left(case: Case) -> None:
    before = onnx_graph(case.build)
    after = cancel_transposes(before)
    assert (classes(before)["Transpose"], classes(after)["Transpose"]) == (case.before, case.left)
    for seed in range(3):
        check_same(before, after, whole_inputs(before, seed))


def test_a_graph_without_transposes_stays_as_it_is() -> None:
    before = onnx_graph(lambda net: net.output(net.op("Relu", net.input((2, 3)))))
    assert cancel_transposes(before) is before


def test_nothing_to_gain_leaves_the_graph_alone() -> None:
    before = onnx_graph(flattened)
    assert cancel_transposes(before) is before


def test_a_second_pass_finds_nothing() -> None:
    for case in CASES:
        after = cancel_transposes(onnx_graph(case.build))
        assert cancel_transposes(after) == after, case.build.__name__


def test_one_constant_in_many_places_is_turned_within_bounds() -> None:
    """Each use has a name of its own, found without trying all that are taken."""

    def build(net: OnnxNet) -> None:
        y = net.op("Transpose", net.input((2, 3, 4)), perm=[2, 0, 1])
        constant = net.constant(net.rng.integers(-1, 2, (4, 2, 3)).astype(np.float32))
        for _ in range(50):
            y = net.op("Add", y, constant)
        net.output(net.op("Transpose", y, perm=[1, 2, 0]))

    before = onnx_graph(build)
    after = cancel_transposes(before)
    assert classes(after)["Transpose"] == 0
    check_same(before, after, whole_inputs(before, 0))


def test_an_operator_without_inputs_stays() -> None:
    """FILL of known sizes has none; it stands among Transposes that cancel, as before a recurrent layer."""

    def build(net: Net) -> None:
        turned = net.op("TRANSPOSE", (net.input((1, 2, 3)), net.integers((0, 2, 1))), net.activation((1, 3, 2)))
        back = net.op("TRANSPOSE", (net.unary("RELU", turned), net.integers((0, 2, 1))), net.activation((1, 2, 3)))
        value = net.tensor(TensorSpec("value", "float32", (), np.float32(1.5).tobytes()))
        filled = net.op("FILL", (net.integers((2, 2)), value), net.tensor(TensorSpec("filled", "float32", (2, 2))))
        net.output(back, filled)

    graph = cancel_transposes(graph_of(build))
    assert operators(graph)[:2] == ("RELU", "FILL") and "TRANSPOSE" not in operators(graph)


def test_what_has_no_code_in_its_new_place_stays() -> None:
    """A sum whose kept and reduced dimensions alternate once less after the Transpose than the kernel allows."""

    def build(net: Net) -> None:
        order, shape = net.integers((0, 2, 1, 3, 4, 5, 6)), (2, 2, 1, 1, 2, 1, 2)
        turned = net.op("TRANSPOSE", (net.input((2,) * 7), order), net.activation((2,) * 7))
        total = net.op("SUM", (turned, net.integers((2, 3, 5))), net.activation(shape), keep_dims=True)
        net.output(net.op("TRANSPOSE", (total, order), net.activation((2, 1, 2, 1, 2, 1, 2))))

    after = cancel_transposes(graph_of(build))
    verify_graph(after)
    assert operators(after) == ("Transpose", "SUM", "Reshape")  # the last one moves dimensions of size 1 only
