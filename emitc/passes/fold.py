"""Operators that merge into a convolution, a fully connected layer, a pool or an arithmetic operator next to them.

- `fold_bias`: an Add of one constant for each channel, after a sum of products of float32 without a bias, becomes its bias.
- `fuse_activation`: a RELU or RELU6 becomes the fused activation of the operator before it.
- `fold_pad`: a PAD becomes the padding of the window after it, and the padded copy is never made.
- `fold_zero_point`: the input's zero point moves into the bias, and the inner loop reads the input as it is.
"""

from dataclasses import replace

import numpy as np

from emitc.ir import BoundNode, DType, Graph, Node, Numerics, Op, Tensor
from emitc.kernels.activation.activations import Relu, Relu6, ReluN1To1
from emitc.kernels.activation.unary_functions import Clip
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Mul, Sub
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, bias_of, weights_of
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.movement.pad import Pad, padding_value
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.shared.pointwise import ACTIVATION_BOUNDS
from emitc.kernels.shared.windows import Padding
from emitc.numerics.requantize import INT32_MAX, Int64
from emitc.passes.rewriter import free_name, only_reader, same_scale, with_nodes

_Sums = Conv2D | DepthwiseConv2D | FullyConnected
_Fusable = _Sums | AveragePool2D | MaxPool2D | Add | Sub | Mul
_ACTIVATIONS: dict[type[Op], str] = {Relu: "RELU", Relu6: "RELU6", ReluN1To1: "RELU_N1_TO_1"}


# ---- an Add that is a bias ----


def _bias(bound: BoundNode, position: int) -> Tensor | None:
    """The operand of an Add as the bias of what gives the other one, [O]; None where it is none."""
    tensor, sums = bound.input(position), bound.input(1 - position)
    channels = bound.output.shape[-1:]
    if not channels or not tensor.is_constant or tensor.shape[-1:] != channels or tensor.elements != channels[0]:
        return None
    return replace(tensor, shape=channels) if sums.shape == bound.output.shape else None


def _sums_of(graph: Graph, name: str) -> Node | None:
    """The operator that gives the sums and takes a bias."""
    node = graph.producer(name)
    if node is None or not isinstance(node.op, _Sums) or node.op.numerics is not Numerics.QOPERATOR:
        return None
    free = node.op.activation == "NONE" and not node.op.bias_last and not any(node.inputs[BIAS:])
    floats = all(graph.tensor(n).dtype is DType.FLOAT32 for n in (*node.inputs[:BIAS], name))
    return node if free and floats and only_reader(graph, name) else None


def fold_bias(graph: Graph) -> Graph:
    """Exporters write a linear layer as a MatMul and an Add (ONNX). Nothing else may read the sum.

    Such a bias is added to the whole sum, where a Conv's own is what its sums start with. The operator says which
    (`bias_last`), so that every rounding stays.
    """
    changed: dict[int, Node | None] = {}
    added: list[Tensor] = []
    for bound in graph.bound():
        add = bound.node
        if not isinstance(add.op, Add) or add.op.numerics is not Numerics.QOPERATOR or add.op.activation != "NONE":
            continue
        for position in (0, 1):
            sums, bias = _sums_of(graph, add.inputs[1 - position]), _bias(bound, position)
            if sums is None or bias is None:
                continue
            name = free_name(f"{add.outputs[0]}:bias", {tensor.name for tensor in graph.tensors})
            assert isinstance(sums.op, _Sums)
            op, inputs = replace(sums.op, bias_last=True), (*sums.inputs[:BIAS], name)
            changed |= {sums.index: replace(sums, op=op, inputs=inputs, outputs=add.outputs), add.index: None}
            added.append(replace(bias, name=name))
            break
    return with_nodes(graph, changed, added) if changed else graph


# ---- activations ----


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
    if any(tensor.dtype is not DType.FLOAT32 or tensor.quantization is not None for tensor in ends):
        return producer if same_scale(*ends) else None
    in_onnx = producer.op.numerics is Numerics.QOPERATOR
    same_format = in_onnx == (node.op.numerics is Numerics.QOPERATOR)
    return producer if same_format and (isinstance(producer.op, _Sums) or not in_onnx) else None


def fuse_activation(graph: Graph) -> Graph:
    """The graph with every activation fused that can be; the operator writes the activation's output tensor.

    A Clip to the bounds of an activation is one. The operator has no activation yet, and its output has no other reader. Both of
    the activation's tensors are float32, or share scale and zero point: then the activation is a clamp, and no value is rounded
    again. Of ONNX's operators of float32 those that sum up products take one.
    """
    changed: dict[int, Node | None] = {}
    for node in graph.nodes:
        activation = _activation(graph, node)
        producer = _producer(graph, node) if activation else None
        if activation is not None and producer is not None:
            assert isinstance(producer.op, _Fusable)
            fused = replace(producer, op=replace(producer.op, activation=activation), outputs=node.outputs)
            changed |= {producer.index: fused, node.index: None}
    return with_nodes(graph, changed) if changed else graph


# ---- padding ----


def _padded(reader: BoundNode, pad: BoundNode, extra: Padding) -> Op | None:
    """The reader's op with `extra` around its input, None where that is not the same computation."""
    x, op = pad.input(0), reader.node.op
    assert isinstance(pad.node.op, Pad)
    value, zero_point = padding_value(pad), x.zero_point
    if isinstance(op, Conv2D | DepthwiseConv2D) and not op.zero_point_folded and value == zero_point:
        window = replace(op.window, padding=op.window.padding.plus(extra))
        return replace(op, window=window) if window.meets(*reader.input(WEIGHTS).shape[1:3]) else None
    if not isinstance(op, AveragePool2D | MaxPool2D) or op.window.padding.any:
        return None
    window = replace(op.window, padding=extra)
    if not window.meets(op.kernel_h, op.kernel_w):
        return None
    if isinstance(op, AveragePool2D) and value == zero_point:
        return replace(op, window=window, count_padding=True)
    if isinstance(op, MaxPool2D) and value == x.dtype.range[0]:
        return replace(op, window=window)
    return None


def _rows_and_columns(pad: BoundNode) -> Padding | None:
    """What PAD adds around an image, None where it pads anything else."""
    assert isinstance(pad.node.op, Pad)
    paddings = pad.node.op.paddings
    if len(paddings) != 4 or paddings[0] != (0, 0) or paddings[3] != (0, 0):
        return None
    return Padding(*paddings[1], *paddings[2])


def fold_pad(graph: Graph) -> Graph:
    """The graph with every PAD folded that can be; of PADs in a row the last one comes first.

    Legal where the window would read just what PAD wrote: convolutions and counting averages take the zero point outside
    their input, so PAD must write it; MAX_POOL_2D ignores what is outside, so PAD must write the type's smallest value.
    Every window must still meet the input, which the kernels count on. PAD must only pad rows and columns, and its output
    must have no other reader.
    """
    changed: dict[int, Node | None] = {}
    for bound in graph.bound():
        if not isinstance(bound.node.op, Pad) or bound.input(0).quantization is None:
            continue
        extra, name = _rows_and_columns(bound), bound.output.name
        reader = only_reader(graph, name)
        op = _padded(graph.bind(reader), bound, extra) if extra is not None and reader is not None else None
        if op is not None and reader is not None and reader.inputs.count(name) == 1:
            inputs = (bound.node.inputs[0], *reader.inputs[1:])
            changed |= {reader.index: replace(reader, op=op, inputs=inputs), bound.node.index: None}
    return fold_pad(with_nodes(graph, changed)) if changed else graph


# ---- zero points ----


def _folded(bound: BoundNode) -> Int64 | None:
    """The bias with the zero point, None where folding is not legal or changes nothing."""
    op, x = bound.node.op, bound.optional(0)
    if not isinstance(op, _Sums) or op.zero_point_folded or x is None or x.quantization is None or not x.zero_point:
        return None
    if not isinstance(op, FullyConnected) and op.window.padding.any:
        return None
    weights = weights_of(bound).astype(np.int64)
    axes = (0, 1, 2) if isinstance(op, DepthwiseConv2D) else tuple(range(1, weights.ndim))
    sums = weights.sum(axis=axes)
    bias = bias_of(bound, len(sums)) - x.zero_point * sums
    # Every partial sum with the folded bias has to stay within int32.
    largest = np.abs(weights).sum(axis=axes) * max(abs(limit) for limit in x.dtype.range) + np.abs(bias)
    return np.asarray(bias, np.int64) if int(largest.max()) <= INT32_MAX else None


def fold_zero_point(graph: Graph) -> Graph:
    """b' = b - x_zero * sum(w), where no window reaches outside the input: there the sum of weights that meet an input varies."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    changed: dict[int, Node | None] = {}
    for bound in graph.bound():
        node, bias = bound.node, _folded(bound)
        if bias is not None:
            name = free_name(f"{node.outputs[0]}:folded bias", tensors)
            data = bias.astype(np.int32).tobytes()
            tensors[name] = Tensor(name, DType.INT32, (len(bias),), data=data, label=name)
            assert isinstance(node.op, _Sums)
            op, inputs = replace(node.op, zero_point_folded=True), (*node.inputs[:BIAS], name)
            changed[node.index] = replace(node, op=op, inputs=inputs)
    return with_nodes(graph, changed, tuple(tensors.values())[len(graph.tensors) :]) if changed else graph
