"""How near to the middle of two steps the outputs of a quantized ConvTranspose lie, and how far float32 sums of it may be off."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode, DType, Quantization
from emitc.kernels import kernel_of
from emitc.kernels.convolution.conv_transpose import ConvTranspose
from emitc.verify.engines.contract import Array

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
