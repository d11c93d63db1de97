"""How much two float32 results of one ONNX operator may differ although both are right.

ONNX leaves the order of a sum to the runtime. It also leaves open whether a product is rounded before it is added. The error of
a sum of n terms, in any order, has a bound: gamma(n) = n*u / (1 - n*u) times the sum of the magnitudes of its terms. Here u is
2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3). Two such sums differ by at most twice that. The bound
grows with the magnitudes of the terms and not with their sum. A share of the output would be too small for terms that cancel
and for long sums.

The numbers of terms below also count the roundings of the products, and those of what follows the sum.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Graph, Op
from emitc.kernels import kernel_of
from emitc.kernels.control_flow.control_flow import If
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.binary_functions import VariadicSum
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.matrix.matmul import Gemm, MatMul
from emitc.kernels.normalization.normalizations import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    normalized_rows,
)
from emitc.kernels.normalization.softmax import LogSoftmax, Softmax, rows_of
from emitc.kernels.pooling.pool_ops import AveragePool2D
from emitc.kernels.reduction.mean import Mean, Reduction, Sum
from emitc.kernels.reduction.reduce import ReduceL1, ReduceL2, ReduceLogSum, ReduceProd, ReduceSumSquare
from emitc.kernels.shared.subgraph_reference import executed, watched

Float64 = NDArray[np.float64]
_UNIT = 2.0**-24
_ROUNDINGS = 4
"""Of a product, an addend, a factor and the result."""
_NORMALIZATIONS = (LayerNormalization, InstanceNormalization, GroupNormalization)


def gamma(terms: int) -> float:
    """The share of the sum of magnitudes that a float32 sum of so many terms may be off."""
    return terms * _UNIT / (1 - terms * _UNIT)


def noise(bound: BoundNode, operands: Sequence[Array | None], *, own: bool = False) -> list[Float64 | None]:
    """The largest difference that two right results may have: one array of the output's shape for each output.

    An entry is None where no bound is derived. operands: values of its inputs, None for one that is left out. own: both results
    are emitc's, whose variances are means of (x - mean)^2.
    """
    op = bound.node.op
    if isinstance(op, If):
        return _of_branch(bound, operands, own)
    tensors = (*bound.inputs, *bound.outputs)
    if any(tensor is not None and tensor.dtype is not DType.FLOAT32 for tensor in tensors):
        return [None] * len(bound.outputs)
    with np.errstate(all="ignore"):
        if isinstance(op, _NORMALIZATIONS):
            return _of_normalization(bound, operands, own)
        if isinstance(op, BatchNormalization):
            bound_on_noise: Float64 | None = _of_batches(bound, operands)
        elif isinstance(op, Softmax):
            bound_on_noise = _of_softmax(bound, operands)
        elif isinstance(op, Reduction):
            bound_on_noise = _of_reduction(bound, operands)
        else:
            terms = _terms(bound)
            bound_on_noise = None if terms is None else 2 * gamma(terms + _ROUNDINGS) * _magnitudes(bound, operands)
    shaped = None if bound_on_noise is None else np.asarray(bound_on_noise, np.float64).reshape(bound.output.shape)
    return [shaped, *[None] * (len(bound.outputs) - 1)]


def _terms(bound: BoundNode) -> int | None:
    """The most terms that one output element is the sum of; None for operators that are no such sum."""
    op, y = bound.node.op, bound.output
    if isinstance(op, Conv2D | FullyConnected):
        return bound.input(1).elements // max(1, bound.input(1).shape[0])
    if isinstance(op, DepthwiseConv2D):
        return bound.input(1).elements // max(1, y.shape[-1])
    if isinstance(op, ConvTranspose):
        return bound.input(1).elements * op.groups // max(1, y.shape[-1])
    if isinstance(op, Gemm):
        return bound.input(0).shape[0 if op.turn_a else 1]
    if isinstance(op, MatMul):
        return bound.input(0).shape[-1]
    if isinstance(op, AveragePool2D):
        return op.kernel_h * op.kernel_w
    return len(bound.inputs) if isinstance(op, VariadicSum) else None


def _magnitudes(bound: BoundNode, operands: Sequence[Array | None]) -> Float64:
    """The sum of the magnitudes of the terms of each output: what the reference makes of the magnitudes of its operands."""
    changes: dict[str, Any] = {}
    if hasattr(bound.node.op, "activation"):
        changes["activation"] = "NONE"
    if isinstance(bound.node.op, Gemm):
        changes |= {"alpha": abs(bound.node.op.alpha), "beta": abs(bound.node.op.beta)}
    op: Op = replace(bound.node.op, **changes)
    inputs = tuple(
        replace(tensor, data=np.abs(tensor.array()).tobytes()) if tensor is not None and tensor.is_constant else tensor
        for tensor in bound.inputs
    )
    node = BoundNode(replace(bound.node, op=op), inputs, bound.outputs)
    magnitudes = [None if value is None else np.abs(value) for value in operands]
    return np.asarray(kernel_of(node).reference(node, magnitudes)[0], np.float64)


def _of_reduction(bound: BoundNode, operands: Sequence[Array | None]) -> Float64 | None:
    """Sums, products and norms over some dimensions."""
    op = bound.node.op
    assert isinstance(op, Reduction) and operands[0] is not None
    x = np.abs(operands[0].astype(np.float64))
    count = math.prod(bound.input(0).shape[axis] for axis in op.axes)
    if isinstance(op, Sum | ReduceL1):
        reduced = x.sum(axis=op.axes)
    elif isinstance(op, Mean):
        reduced = x.mean(axis=op.axes)
    elif isinstance(op, ReduceProd):
        reduced = x.prod(axis=op.axes)
    elif isinstance(op, ReduceSumSquare | ReduceL2):
        squares = (x * x).sum(axis=op.axes)
        reduced = np.sqrt(squares) if isinstance(op, ReduceL2) else squares  # the root halves a relative error
    elif isinstance(op, ReduceLogSum):
        total = operands[0].astype(np.float64).sum(axis=op.axes)
        reduced = x.sum(axis=op.axes) / np.abs(total) + np.abs(np.log(total))
    else:
        return None
    return np.asarray(2 * gamma(count + _ROUNDINGS) * reduced)


def _of_softmax(bound: BoundNode, operands: Sequence[Array | None]) -> Float64:
    """exp(x - max) over the sum of such terms, or x - max less the logarithm of the sum.

    All terms are positive, so that the sum is off by a share of itself. A logarithm is off by the share of its argument.
    """
    op, rows = bound.op(Softmax), rows_of(bound)
    assert operands[0] is not None
    x: Float64 = rows.view(operands[0]).astype(np.float64) * op.beta
    below = x - x.max(axis=1, keepdims=True)
    exponentials = np.exp(below)
    total = exponentials.sum(axis=1, keepdims=True)
    share = 2 * gamma(rows.depth + 2 * _ROUNDINGS)
    if isinstance(op, LogSoftmax):
        return np.asarray(share + 2 * gamma(_ROUNDINGS) * (np.abs(below) + np.log(total)))
    return np.asarray((share + 2 * gamma(_ROUNDINGS) * np.abs(below)) * exponentials / total)


def _of_branch(bound: BoundNode, operands: Sequence[Array | None], own: bool) -> list[Float64 | None]:
    """The bounds of the operators that make the outputs of the branch that runs, on the values that they get there."""
    ran: list[tuple[Graph, Sequence[Array | None]]] = []
    with watched(lambda graph, inputs: ran.append((graph, inputs))):
        kernel_of(bound).reference(bound, operands)
    graph, inputs = ran[0]
    values = executed(graph, {n: v for n, v in zip(graph.inputs, inputs, strict=True) if v is not None})
    margins: list[Float64 | None] = []
    for name, tensor in zip(graph.outputs, bound.outputs, strict=True):
        root = graph.root(name).name
        node = graph.producer(root)
        if node is None:
            margins.append(None)
            continue
        inner = graph.bind(node)
        limits = noise(inner, [None if t is None else values[t.name] for t in inner.inputs], own=own)
        limit = limits[[output.name for output in inner.outputs].index(root)]
        margins.append(None if limit is None else limit.reshape(tensor.shape))
    return margins


def _of_batches(bound: BoundNode, operands: Sequence[Array | None]) -> Float64:
    """(x - mean) * factor + bias, or x * factor + (bias - mean * factor): sums of three terms."""
    op = bound.node.op
    assert isinstance(op, BatchNormalization) and operands[0] is not None
    shape = [1] * len(bound.output.shape)
    shape[op.axis] = -1
    scale, bias, mean, variance = (bound.input(i).array().astype(np.float64).reshape(shape) for i in range(1, 5))
    factor = np.abs(scale) / np.sqrt(variance + op.epsilon)
    total = (np.abs(operands[0].astype(np.float64)) + np.abs(mean)) * factor + np.abs(bias)
    return np.asarray(2 * gamma(3 + 2 * _ROUNDINGS) * total)


def _of_normalization(bound: BoundNode, operands: Sequence[Array | None], own: bool) -> list[Float64 | None]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, and the mean and the inverse of the root where they are asked for.

    The mean is a sum, so that x - mean is off by a share of |x| + mean |x|. ONNX Runtime has mean x^2 - mean^2 for the
    variance, off by three shares of mean x^2 at most. That of emitc, mean (x - mean)^2, is off by a share of itself, and by what
    errors of x - mean make of it: two shares of the root of variance times mean x^2, by the Cauchy-Schwarz inequality. The
    root has half the relative error.
    """
    x, scale, bias, epsilon = normalized_rows(bound, operands)
    axes = (2, 3)
    share = 2 * gamma(x.shape[2] * x.shape[3] + 2 * _ROUNDINGS)
    mean = x.mean(axis=axes, keepdims=True)
    inverse = 1.0 / np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    magnitude = np.abs(x).mean(axis=axes, keepdims=True)
    ratio = (x * x).mean(axis=axes, keepdims=True) * inverse * inverse
    of_root = 1.0 + (np.sqrt(ratio) if own else 1.5 * ratio)
    total = (np.abs(x) + magnitude + np.abs(x - mean) * of_root) * inverse * np.abs(scale) + np.abs(bias)
    terms = [share * total, share * magnitude, share * inverse * of_root]
    op = bound.node.op
    present = op.outputs if isinstance(op, LayerNormalization) else (0,)
    return [
        np.asarray(terms[position].reshape(tensor.shape))
        for position, tensor in zip(present, bound.outputs, strict=True)
    ]
