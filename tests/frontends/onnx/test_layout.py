"""Images to NHWC, filters to OHWI, matrices to [O, I]: shapes, values, quantization axes, and what stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emitc.frontends.onnx.layout import channels_last
from emitc.frontends.onnx.quantization import quantization_on_tensors
from emitc.frontends.onnx.reader import read_onnx
from emitc.ir import Array, Shape
from emitc.source import SourceModel, SourceNode, SourceTensor
from tests.support.models.onnx_net import OnnxNet


def turned(net: OnnxNet) -> SourceModel:
    """The model as the operators get to see it."""
    return channels_last(quantization_on_tensors(read_onnx(net.serialized())))


def kinds(model: SourceModel) -> list[str]:
    """What the operators are, in order."""
    return [node.kind or node.op_type for node in model.nodes]


def node_of(model: SourceModel, kind: str) -> SourceNode:
    """The only operator of a kind."""
    (found,) = (node for node in model.nodes if node.kind == kind)
    return found


def tensor_at(node: SourceNode, position: int) -> SourceTensor:
    """An input that is there."""
    tensor = node.inputs[position]
    assert tensor is not None
    return tensor


def counting(shape: Shape, dtype: str = "float32") -> Array:
    """0, 1, 2, ... in a shape."""
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


# ---- windows ----


def conv(x: Shape, w: Shape, **attributes: Any) -> tuple[SourceModel, Array]:
    """A Conv of floats, and its filters."""
    net = OnnxNet()
    filters = counting(w)
    net.output(net.op("Conv", net.input(x), net.constant(filters), **attributes))
    return turned(net), filters


def test_a_convolution_stands_between_transposes() -> None:
    model, filters = conv((1, 3, 5, 6), (4, 3, 2, 2))
    assert kinds(model) == ["Transpose", "Conv", "Transpose"]
    node = node_of(model, "Conv")
    assert [tensor_at(node, 0).shape, node.outputs[0].shape] == [(1, 5, 6, 3), (1, 4, 5, 4)]
    assert np.array_equal(tensor_at(node, 1).array(), filters.transpose(0, 2, 3, 1))
    assert [n.attributes.get("perm") for n in model.nodes] == [(0, 2, 3, 1), None, (0, 3, 1, 2)]
    assert model.tensors[model.outputs[0]].shape == (1, 4, 4, 5)


def test_one_filter_for_each_channel_is_depthwise() -> None:
    model, filters = conv((1, 3, 5, 6), (6, 1, 2, 2), group=3)
    node = node_of(model, "DepthwiseConv")
    assert np.array_equal(tensor_at(node, 1).array(), filters.transpose(1, 2, 3, 0))
    assert tensor_at(node, 1).shape == (1, 2, 2, 6)


@pytest.mark.parametrize(
    ("x", "w", "group"),
    [((1, 4, 5, 6), (6, 2, 2, 2), 2), ((1, 1, 5, 6), (6, 1, 2, 2), 1)],
    ids=["groups", "one_channel"],
)
def test_groups_and_one_channel_are_no_depthwise(x: Shape, w: Shape, group: int) -> None:
    model, filters = conv(x, w, group=group)
    assert np.array_equal(tensor_at(node_of(model, "Conv"), 1).array(), filters.transpose(0, 2, 3, 1))


def test_one_dimension_is_an_image_of_one_row() -> None:
    model, filters = conv((1, 3, 9), (4, 3, 2), strides=[2], pads=[1, 3], dilations=[2], kernel_shape=[2])
    assert kinds(model) == ["Transpose", "Reshape", "Conv", "Reshape", "Transpose"]
    node = node_of(model, "Conv")
    assert [tensor_at(node, 0).shape, node.outputs[0].shape] == [(1, 1, 9, 3), (1, 1, 6, 4)]
    assert np.array_equal(tensor_at(node, 1).array(), filters.transpose(0, 2, 1)[:, None])
    expected = {"strides": (1, 2), "pads": (0, 1, 0, 3), "dilations": (1, 2), "kernel_shape": (1, 2)}
    assert {name: node.attributes[name] for name in expected} == expected
    assert model.tensors[model.outputs[0]].shape == (1, 4, 6)


def test_one_dimension_depthwise() -> None:
    model, filters = conv((1, 3, 9), (3, 1, 2), group=3)
    assert np.array_equal(tensor_at(node_of(model, "DepthwiseConv"), 1).array(), filters.transpose(1, 2, 0)[None])


def test_a_transposed_convolution_keeps_its_inputs_in_front() -> None:
    net = OnnxNet()
    filters = counting((3, 4, 2, 2))
    net.output(net.op("ConvTranspose", net.input((1, 3, 5, 6)), net.constant(filters), strides=[2, 2]))
    node = node_of(turned(net), "ConvTranspose")
    assert np.array_equal(tensor_at(node, 1).array(), filters.transpose(0, 2, 3, 1))


def test_a_transposed_convolution_of_one_dimension() -> None:
    net = OnnxNet()
    x = net.input((1, 3, 5))
    net.output(net.op("ConvTranspose", x, net.constant(counting((3, 4, 2))), strides=[2], output_padding=[1]))
    node = node_of(turned(net), "ConvTranspose")
    assert node.attributes["output_padding"] == (0, 1)
    assert tensor_at(node, 1).shape == (3, 1, 2, 4)


@pytest.mark.parametrize(
    ("op_type", "attributes", "inside", "outside"),
    [
        ("MaxPool", {"kernel_shape": [2, 2]}, (1, 3, 5, 4), (1, 4, 3, 5)),
        ("AveragePool", {"kernel_shape": [2, 2]}, (1, 3, 5, 4), (1, 4, 3, 5)),
        ("GlobalAveragePool", {}, (1, 1, 1, 4), (1, 4, 1, 1)),
        ("GlobalMaxPool", {}, (1, 1, 1, 4), (1, 4, 1, 1)),
        ("DepthToSpace", {"blocksize": 2}, (1, 8, 12, 1), (1, 1, 8, 12)),
        ("SpaceToDepth", {"blocksize": 2}, (1, 2, 3, 16), (1, 16, 2, 3)),
    ],
)
def test_windows_without_filters(op_type: str, attributes: dict[str, Any], inside: Shape, outside: Shape) -> None:
    net = OnnxNet()
    net.output(net.op(op_type, net.input((1, 4, 4, 6)), **attributes))
    model = turned(net)
    assert kinds(model) == ["Transpose", op_type, "Transpose"]
    assert node_of(model, op_type).outputs[0].shape == inside
    assert model.tensors[model.outputs[0]].shape == outside


# ---- filters after a DequantizeLinear ----


@pytest.mark.parametrize(
    ("rank", "group"), [(4, 1), (4, 3), (3, 1), (3, 3)], ids=["2d", "2d_depthwise", "1d", "1d_depthwise"]
)
def test_dequantized_filters_are_turned_with_their_axis(rank: int, group: int) -> None:
    net = OnnxNet()
    shape = (6, 3 // group, 2, 2)[:rank]
    x = net.input((1, 3, 5, 6)[:rank])
    net.output(net.conv(x, shape, 0, group=group))
    model = turned(net)
    node = node_of(model, "Conv" if group == 1 else "DepthwiseConv")
    filters = tensor_at(node, 1)
    (dequantize,) = (n for n in model.nodes if n.outputs == (filters,))
    constant = tensor_at(dequantize, 0)
    assert (dequantize.kind, constant.shape) == ("Dequantize", filters.shape)
    assert constant.quantization is not None
    assert constant.quantization.axis == (0 if group == 1 else 3)
    original = next(t for t in model.tensors if t.name == "c0" or (t.shape == shape and t.data is not None)).array()
    wide = original if rank == 4 else original[:, :, None]
    assert np.array_equal(constant.array(), wide.transpose((0, 2, 3, 1) if group == 1 else (1, 2, 3, 0)))
    assert tensor_at(node, 2).shape == (6,)


def test_filters_on_another_axis_of_one_dimension() -> None:
    """A scale per tap is no usual thing; its axis moves with its dimension."""
    net = OnnxNet()
    filters = net.dequantize(net.integers((4, 3, 2)), [0.1, 0.2], 0, "int8", 2)
    net.output(net.op("Conv", net.input((1, 3, 9)), filters))
    model = turned(net)
    (constant,) = (t for t in model.tensors if t.quantization is not None and t.shape == (4, 1, 2, 3))
    assert constant.quantization is not None and constant.quantization.axis == 2


def test_filters_that_two_convolutions_share_are_turned_once() -> None:
    net = OnnxNet()
    x, filters = net.input((1, 3, 5, 6)), net.constant(counting((4, 3, 2, 2)))
    net.output(net.op("Conv", x, filters))
    net.output(net.op("Conv", x, filters, pads=[1, 1, 1, 1]))
    used = {tensor_at(node, 1).index for node in turned(net).nodes if node.kind == "Conv"}
    assert len(used) == 1


def test_computed_filters_are_turned_by_operators() -> None:
    net = OnnxNet()
    net.output(net.op("Conv", net.input((1, 3, 5, 6)), net.input((4, 3, 2, 2))))
    model = turned(net)
    assert kinds(model) == ["Transpose", "Transpose", "Conv", "Transpose"]
    assert tensor_at(node_of(model, "Conv"), 1).shape == (4, 2, 2, 3)


# ---- products ----


def test_a_matrix_product_with_a_constant_is_a_fully_connected_layer() -> None:
    net = OnnxNet()
    matrix = counting((3, 4))
    net.output(net.op("MatMul", net.input((2, 3)), net.constant(matrix)))
    model = turned(net)
    assert kinds(model) == ["FullyConnected"]
    assert np.array_equal(tensor_at(model.nodes[0], 1).array(), matrix.T)


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("trans_a", [0, 1])
def test_a_gemm_takes_its_matrix_either_way(trans_a: int, trans_b: int) -> None:
    net = OnnxNet()
    matrix = counting((3, 4))
    x = net.input((3, 2) if trans_a else (2, 3))
    w = net.constant(matrix.T if trans_b else matrix)
    net.output(net.op("Gemm", x, w, net.constant(counting((4,))), transA=trans_a, transB=trans_b))
    model = turned(net)
    assert kinds(model) == ["Transpose"] * trans_a + ["FullyConnected"]
    node = node_of(model, "FullyConnected")
    assert tensor_at(node, 0).shape == (2, 3)
    assert np.array_equal(tensor_at(node, 1).array(), matrix.T)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (1,), (), (1, 1)], ids=str)
@pytest.mark.parametrize("quantized", [False, True], ids=["float", "dequantized"])
def test_the_bias_of_a_gemm_is_a_vector(shape: Shape, quantized: bool) -> None:
    net = OnnxNet()
    integers = net.integers(shape, "int32")
    bias = net.dequantize(integers, 0.01, 0, "int32") if quantized else net.constant(7 + counting(shape))
    net.output(net.op("Gemm", net.input((2, 3)), net.constant(counting((3, 4))), bias))
    node = node_of(turned(net), "FullyConnected")
    found = tensor_at(node, 2)
    assert found.shape == (4,)
    if not quantized:
        assert np.array_equal(
            found.array(), np.broadcast_to(7 + counting(shape), (4,) if len(shape) < 2 else (1, 4)).reshape(-1)
        )


def test_the_axis_of_a_bias_with_a_scale_per_channel() -> None:
    net = OnnxNet()
    bias = net.dequantize(net.integers((1, 4), "int32"), [0.1, 0.2, 0.3, 0.4], 0, "int32", 1)
    net.output(net.op("Gemm", net.input((2, 3)), net.weights((3, 4), 1), bias))
    model = turned(net)
    (vector,) = (t for t in model.tensors if t.shape == (4,) and t.quantization is not None)
    (matrix,) = (t for t in model.tensors if t.shape == (4, 3) and t.quantization is not None)
    for tensor in (vector, matrix):
        assert tensor.quantization is not None and tensor.quantization.axis == 0


@pytest.mark.parametrize(
    ("a", "b", "attributes", "bias"),
    [
        ((2, 3), None, {}, None),
        ((2, 3), (3, 4), {"alpha": 0.5}, None),
        ((2, 3), (3, 4), {"beta": 2.0}, (4,)),
        ((2, 3), (3, 4), {}, (2, 4)),
        ((2, 3), (3, 4), {}, (2, 1)),
    ],
    ids=["computed", "alpha", "beta", "matrix", "column"],
)
def test_other_products_stay(a: Shape, b: Shape | None, attributes: dict[str, float], bias: Shape | None) -> None:
    net = OnnxNet()
    right = net.input((3, 4)) if b is None else net.constant(counting(b))
    last = [] if bias is None else [net.constant(counting(bias))]
    net.output(net.op("Gemm", net.input(a), right, *last, **attributes))
    assert kinds(turned(net)) == ["Gemm"]


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3, 4)), ((2, 2, 3), (2, 3, 4)), ((2, 3), (3,))], ids=["vector", "stacked", "column"]
)
def test_products_of_other_ranks_stay(a: Shape, b: Shape) -> None:
    net = OnnxNet()
    net.output(net.op("MatMul", net.input(a), net.constant(counting(b))))
    assert kinds(turned(net)) == ["MatMul"]


# ---- refusals ----


def test_three_spatial_dimensions_block_the_operator() -> None:
    model, _ = conv((1, 2, 3, 3, 3), (2, 2, 1, 1, 1))
    (node,) = model.nodes
    assert node.blocker is not None
    assert node.blocker.what == "Conv with 3 spatial dimensions is not supported"
    assert node.blocker.exit_code == 1
