"""A RELU or RELU6 after an operator with a fused activation becomes that activation; so does a Clip to the same bounds.

The operator has no activation yet, and its output has no other reader. Both of the activation's tensors are float32, or share
scale and zero point: then the activation is a clamp, and no value is rounded again. Of ONNX's operators of float32 those that
sum up products take one.
"""

from dataclasses import replace

from emitc.ir import DType, Graph, Node, Numerics, Op, Tensor
from emitc.kernels.activation.activations import Relu, Relu6, ReluN1To1
from emitc.kernels.activation.unary_functions import Clip
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Mul, Sub
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.shared.pointwise import ACTIVATION_BOUNDS
from emitc.passes.rewriter import only_reader, with_nodes

_ACTIVATIONS: dict[type[Op], str] = {Relu: "RELU", Relu6: "RELU6", ReluN1To1: "RELU_N1_TO_1"}
_Sums = Conv2D | DepthwiseConv2D | FullyConnected
_Fusable = _Sums | AveragePool2D | MaxPool2D | Add | Sub | Mul


def _same_scale(a: Tensor, b: Tensor) -> bool:
    first, second = a.quantization, b.quantization
    return bool(first and second) and (first.scales, first.zero_points) == (second.scales, second.zero_points)  # type: ignore[union-attr]


def _floats(a: Tensor, b: Tensor) -> bool:
    return all(tensor.dtype is DType.FLOAT32 and tensor.quantization is None for tensor in (a, b))


def _activation(graph: Graph, node: Node) -> str | None:
    """The fused activation that is the node's; None where no such activation exists."""
    name = _ACTIVATIONS.get(type(node.op))
    if isinstance(node.op, Clip):
        bounds = (node.op.low, node.op.high)
        names = (known for known, limits in ACTIVATION_BOUNDS.items() if limits == bounds and None not in limits)
        name = next(names, None)
    if name is None or node.op.numerics is not Numerics.QOPERATOR:
        return name
    # A Relu or Clip of ONNX on integers compares the numbers themselves, whatever they stand for.
    return name if graph.tensor(node.inputs[0]).dtype is DType.FLOAT32 else None


def _producer(graph: Graph, node: Node) -> Node | None:
    """The operator that the activation can merge into."""
    name = node.inputs[0]
    producer = graph.producer(name)
    if producer is None or not isinstance(producer.op, _Fusable) or producer.op.activation != "NONE":
        return None
    if only_reader(graph, name) is None:
        return None
    ends = graph.tensor(name), graph.tensor(node.outputs[0])
    if not _floats(*ends):
        return producer if _same_scale(*ends) else None
    in_onnx = producer.op.numerics is Numerics.QOPERATOR
    same_format = in_onnx == (node.op.numerics is Numerics.QOPERATOR)
    return producer if same_format and (isinstance(producer.op, _Sums) or not in_onnx) else None


def fuse_activation(graph: Graph) -> Graph:
    """The graph with every activation fused that can be; the operator writes the activation's output tensor."""
    changed: dict[int, Node | None] = {}
    for node in graph.nodes:
        activation = _activation(graph, node)
        producer = _producer(graph, node) if activation else None
        if activation is not None and producer is not None:
            assert isinstance(producer.op, _Fusable)
            fused = replace(producer, op=replace(producer.op, activation=activation), outputs=node.outputs)
            changed |= {producer.index: fused, node.index: None}
    return with_nodes(graph, changed) if changed else graph
