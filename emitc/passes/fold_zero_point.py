"""The input's zero point moves into the bias: b' = b - x_zero * sum(w), and the inner loop reads x as it is.

Legal where no window reaches outside the input, since there the sum of weights that meet an input varies.
"""

from dataclasses import replace

import numpy as np

from emitc.ir import BoundNode, DType, Graph, Node, Tensor
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.accumulation import BIAS, bias_of, weights_of
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.numerics.requantize import INT32_MAX, Int64
from emitc.passes.rewriter import free_name, with_nodes

_Sums = Conv2D | DepthwiseConv2D | FullyConnected


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
