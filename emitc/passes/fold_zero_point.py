"""The input's zero point moves into the bias: b' = b - x_zero * sum(w), and the inner loop reads x as it is.

Legal where no window reaches outside the input, since there the sum of weights that meet an input varies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.ir import BoundNode, DType, Graph, Tensor
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.accumulation import bias_of, weights_of
from emitc.kernels.mac.requantization import BIAS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.numerics.requantize import INT32_MAX, Int64


def _sums(bound: BoundNode) -> Int64 | None:
    """Sum of the weights of each output channel, None where folding is not legal or changes nothing."""
    op, weights = bound.node.op, weights_of(bound).astype(np.int64)
    if isinstance(op, FullyConnected) and not op.zero_point_folded:
        return np.asarray(weights.sum(axis=1), np.int64)
    if isinstance(op, Conv2D) and not op.zero_point_folded and not op.window.padding.any:
        return np.asarray(weights.sum(axis=(1, 2, 3)), np.int64)
    if isinstance(op, DepthwiseConv2D) and not op.zero_point_folded and not op.window.padding.any:
        return np.asarray(weights.sum(axis=(0, 1, 2)), np.int64)
    return None


def _fits(bound: BoundNode, bias: Int64) -> bool:
    """Whether every partial sum with the folded bias stays within int32."""
    weights = np.abs(weights_of(bound).astype(np.int64))
    reach = max(abs(limit) for limit in bound.input(0).dtype.range)
    axes = (0, 1, 2) if isinstance(bound.node.op, DepthwiseConv2D) else tuple(range(1, weights.ndim))
    return int((weights.sum(axis=axes) * reach + np.abs(bias)).max()) <= INT32_MAX


def fold_zero_point(graph: Graph) -> Graph:
    """The graph with folded biases."""
    tensors = list(graph.tensors)
    taken = {t.name for t in tensors}
    nodes = []
    for bound in graph.bound():
        node = bound.node
        quantization = bound.input(0).quantization if node.inputs and node.inputs[0] else None
        accumulates = isinstance(node.op, Conv2D | DepthwiseConv2D | FullyConnected)
        if accumulates and quantization and (sums := _sums(bound)) is not None:
            bias = bias_of(bound, len(sums)) - quantization.zero_point * sums
            if quantization.zero_point and _fits(bound, bias):
                name = f"{node.outputs[0]}:folded bias"
                while name in taken:
                    name += "'"
                taken.add(name)
                tensors.append(
                    Tensor(name, DType.INT32, (len(sums),), data=bias.astype(np.int32).tobytes(), label=name)
                )
                assert isinstance(node.op, Conv2D | DepthwiseConv2D | FullyConnected)
                node = replace(node, op=replace(node.op, zero_point_folded=True), inputs=(*node.inputs[:BIAS], name))
        nodes.append(node)
    if tuple(nodes) == graph.nodes:
        return graph
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))
