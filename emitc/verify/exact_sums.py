"""The sums of a quantized convolution or matrix product of ONNX as real numbers, and how far float32 sums of them may be off.

A QDQ model states them in float32: dequantized values, products that are summed in some order, and a division by the
output's scale, each rounded. The C has the exact integer sum. They may differ by one step. Both are right if the exact
value lies no farther from the middle of two steps than those roundings reach.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode, DType, Quantization, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.accumulation import BIAS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.matrix.matmul import MatMul
from emitc.verify.engines.contract import Array
from emitc.verify.float_noise import gamma

Float64 = NDArray[np.float64]
_ROUNDINGS = 8
"""Of both dequantized values, their product, the bias, its addition, the quotient, and the factor of the integer sum twice."""
_LAST = 8 * 2.0**-24
"""The same roundings without those of the sum, as a share of the value."""


def steps_of_sums(bound: BoundNode, operands: Sequence[Array | None]) -> tuple[Float64, Float64, Float64] | None:
    """The outputs in steps without the zero point, how many steps float32 sums may be off, and single roundings of exact ones.

    Each has the output's shape. None for operators that are no such sum.
    """
    op, y = bound.node.op, bound.output
    if not isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected | MatMul) or y.quantization is None:
        return None
    folded = bool(getattr(op, "zero_point_folded", False))
    first, second = bound.input(0).quantization, bound.input(1).quantization
    x, w = (_centred(bound.input(i), operands[i]) for i in (0, 1))
    if x is None or w is None or first is None or second is None:
        return None
    unit = first.scale * second.spread(w.ndim)[0].astype(np.float64)
    sums, terms = _summed(bound, x, w * unit)
    magnitudes, _ = _summed(bound, np.abs(x), np.abs(w * unit))
    bias = bound.optional(BIAS) if len(bound.inputs) > BIAS else None
    start = _bias(bias, operands, first.scale * np.array(second.scales, np.float64))
    if folded:  # the bias holds -x_zero times the sum of the weights, and no window leaves the image
        start = start + first.zero_point * _full(bound, w * unit)
    steps = (sums + start) / y.quantization.scale
    # A bias that the model states in other units has been rounded to those of the sum.
    units = 0.0 if bias is None else first.scale * np.array(second.scales, np.float64) / 2
    noise = (gamma(terms + _ROUNDINGS) * (magnitudes + np.abs(start)) + units) / y.quantization.scale
    last = last_roundings(steps, y.quantization.zero_point)
    return tuple(np.broadcast_to(v, y.shape) for v in (steps, noise + last, last))  # type: ignore[return-value]


def last_roundings(steps: Float64, zero_point: int) -> Float64:
    """Steps that the single roundings after an exact sum may be off. steps: the exact values without the zero point."""
    return np.asarray(_LAST * (np.abs(steps) + abs(zero_point) + 1.0))


def _centred(tensor: Tensor, value: Array | None) -> Float64 | None:
    array = tensor.array() if value is None and tensor.is_constant else value
    if array is None or tensor.quantization is None:
        return None
    _, zero_points = tensor.quantization.spread(len(tensor.shape))
    return np.asarray(array.astype(np.float64).reshape(tensor.shape) - zero_points)


def _full(bound: BoundNode, weights: Float64) -> Float64:
    axis = {Conv2D: (1, 2, 3), DepthwiseConv2D: (0, 1, 2), FullyConnected: (1,)}.get(type(bound.node.op), ())
    return np.asarray(weights.sum(axis=axis))


def _bias(bias: Tensor | None, operands: Sequence[Array | None], units: Float64) -> Float64:
    if bias is None:
        return np.zeros(1)
    array = bias.array() if bias.is_constant else operands[BIAS]
    return np.zeros(1) if array is None else np.asarray(array.astype(np.float64) * units)


def _summed(bound: BoundNode, x: Float64, w: Float64) -> tuple[Float64, int]:
    """Sums of products in the output's shape, and how many terms each has at most."""
    op, y = bound.node.op, bound.output
    if isinstance(op, MatMul):
        return np.asarray(np.matmul(x, w)).reshape(y.shape), x.shape[-1]
    if isinstance(op, FullyConnected):
        return (x.reshape(-1, w.shape[1]) @ w.T).reshape(y.shape), w.shape[1]
    start = np.zeros(y.shape)
    if isinstance(op, Conv2D):
        return accumulation.convolved(op.window, x, w, start), w.size // w.shape[0]
    assert isinstance(op, DepthwiseConv2D)
    for ky, kx, values in op.window.taps(x, 0, w.shape[1], w.shape[2]):
        start += np.repeat(values, w.shape[3] // x.shape[3], axis=3) * w[0, ky, kx]
    return start, w.shape[1] * w.shape[2]


_FINER = 2.0**16


def steps_and_noise(
    bound: BoundNode, operands: Sequence[Array | None]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The outputs of a quantized one of ONNX in steps, to 2**-16 of a step instead of whole ones, without the zero point.

    The second array has for each output channel the steps that sums of float32 may be off in any order: the number of their
    terms, times half a last place of the largest sum of magnitudes.
    """
    x, w, y = bound.input(0), bound.input(1).quantization, bound.output
    bias = bound.optional(2)
    assert w
    exact = replace(bound.output, dtype=DType.INT32, quantization=Quantization((y.scale / _FINER,), (0,)))
    (fine,) = kernel_of(bound).reference(BoundNode(bound.node, bound.inputs, (exact,)), operands)
    weights = np.abs(bound.input(1).array().astype(np.int64) - np.array(w.zero_points, np.int64))
    magnitudes, terms = _largest_sums(bound, weights)
    low, high = bound.input(0).dtype.range
    start = np.zeros(1, np.int64) if bias is None else np.abs(bias.array().astype(np.int64))
    factor = x.scale * np.array(w.scales, np.float64) / y.scale
    per_channel = np.tile(factor, magnitudes.size // factor.size)
    # Further terms: the bias, and the roundings of both scales and of the quotient.
    noise = (magnitudes * max(high - x.zero_point, x.zero_point - low) + start) * per_channel * (terms + 4) * 2.0**-24
    return fine.astype(np.float64) / _FINER, noise


def _largest_sums(bound: BoundNode, magnitudes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Largest sum of magnitudes [I, KH, KW, O / groups] that falls on one pixel, per output channel, and the number of its terms.

    Taps fall on the same pixel where their places differ by multiples of the stride.
    """
    op = bound.op(ConvTranspose)
    each_in = magnitudes.shape[0] // op.groups
    by_group = magnitudes.reshape(op.groups, each_in, *magnitudes.shape[1:])
    rows = np.arange(magnitudes.shape[1]) * op.window.dilation_h % op.window.stride_h
    columns = np.arange(magnitudes.shape[2]) * op.window.dilation_w % op.window.stride_w
    largest, most = np.zeros(op.groups * magnitudes.shape[3], np.int64), 0
    for row in np.unique(rows):
        for column in np.unique(columns):
            taps = by_group[:, :, rows == row][:, :, :, columns == column]
            largest = np.maximum(largest, taps.sum(axis=(1, 2, 3)).reshape(-1))
            most = max(most, each_in * taps.shape[2] * taps.shape[3])
    return largest, most
