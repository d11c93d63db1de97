"""A RELU or RELU6 behind an operator with a fused activation becomes that activation.

Legal where both of the activation's tensors share scale and zero point (it is then a clamp, nothing is rounded again),
the operator has no activation yet, and its output has no other reader.
"""

from __future__ import annotations

from dataclasses import replace

from emitc.ir import Graph, Node, Numerics, Op, Tensor
from emitc.kernels.arithmetic import Add, Mul, Sub
from emitc.kernels.conv_2d import Conv2D
from emitc.kernels.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.fully_connected import FullyConnected
from emitc.kernels.pooling_ops import AveragePool2D, MaxPool2D
from emitc.kernels.unary import Relu, Relu6, ReluN1To1

_ACTIVATIONS: dict[type[Op], str] = {Relu: "RELU", Relu6: "RELU6", ReluN1To1: "RELU_N1_TO_1"}
_Fusable = Conv2D | DepthwiseConv2D | FullyConnected | AveragePool2D | MaxPool2D | Add | Sub | Mul


def _same_scale(a: Tensor, b: Tensor) -> bool:
    first, second = a.quantization, b.quantization
    return bool(first and second) and (first.scales, first.zero_points) == (second.scales, second.zero_points)  # type: ignore[union-attr]


def _producer(graph: Graph, node: Node) -> Node | None:
    """The operator that the activation can merge into."""
    name = node.inputs[0]
    producer = graph.producer(name)
    if producer is None or not isinstance(producer.op, _Fusable) or producer.op.activation != "NONE":
        return None
    if name in graph.outputs or graph.aliases(name) or len(graph.consumers(name)) != 1:
        return None
    return producer if _same_scale(graph.tensor(name), graph.tensor(node.outputs[0])) else None


def fuse_activation(graph: Graph) -> Graph:
    """The graph with every activation fused that can be; the operator writes the activation's output tensor."""
    for node in graph.nodes:
        # A Relu of ONNX on integers compares the numbers themselves, whatever they stand for.
        activation = _ACTIVATIONS.get(type(node.op)) if node.op.numerics is not Numerics.QOPERATOR else None
        producer = _producer(graph, node) if activation else None
        if activation is None or producer is None:
            continue
        assert isinstance(producer.op, _Fusable)
        fused = replace(producer, op=replace(producer.op, activation=activation), outputs=node.outputs)
        nodes = tuple(fused if n is producer else n for n in graph.nodes if n is not node)
        tensors = tuple(t for t in graph.tensors if t.name != node.inputs[0])
        return fuse_activation(replace(graph, nodes=nodes, tensors=tensors))
    return graph
