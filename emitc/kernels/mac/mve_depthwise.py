"""Depthwise convolutions on cores with Arm's vector extension MVE: 16 channels at a time, tap by tap.

Products of bytes have 15 bits and a sign, so that those of two taps are added before they are widened. Images of few channels
have several neighbouring pixels in a register, where their windows are neighbours too. A tap outside the input reads the
zero point, so that one bias holds its share for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.mve_int8 import HEADERS, LANES, channel_order, inner_columns, scaling, scaling_tables
from emitc.kernels.mac.requantization import Requantization, output_params, requantization
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import KernelSpec, Layer, Param, Scratch, Table
from emitc.numerics.requantize import Clamp, Int64, activation_clamp

POINTER = 8
"""Bytes of a pointer at most."""


def tap_weights(filters: Array) -> NDArray[np.int8]:
    """Filters [taps, C]: of every 16 channels tap by tap, then of what is left of the channels tap by tap."""
    parts = [filters[:, first : first + LANES].reshape(-1) for first in range(0, filters.shape[1], LANES)]
    return np.concatenate(parts).astype(np.int8)


def pairs_fit(filters: Array) -> bool:
    """Whether the products of two taps, 0 and 1, 2 and 3, ..., with any bytes add up within 16 bits."""
    wide = np.pad(filters.astype(np.int64), ((0, len(filters) % 2), (0, 0))).reshape(-1, 2, filters.shape[1])
    positive, negative = np.maximum(wide, 0).sum(axis=1), -np.minimum(wide, 0).sum(axis=1)
    return bool(
        (127 * positive + 128 * negative).max() < 1 << 15 and (128 * positive + 127 * negative).max() <= 1 << 15
    )


def depthwise(bound: BoundNode, window: Window, activation: str, *, folded: bool) -> Layer | str:
    """The layer of a depthwise convolution with one filter for each channel; or why there is none."""
    y = bound.output
    weights = accumulation.weights_of(bound)
    _, kernel_h, kernel_w, channels = weights.shape
    filters = weights.reshape(-1, channels)
    if not pairs_fit(filters):
        return "a weight is -128"
    bias = accumulation.bias_inside(bound, filters.T.astype(np.int64), folded=folded)
    if bias is None:
        return "folding the zero point into the bias could overflow int32"
    scale, clamp = requantization(bound), activation_clamp(activation, y)
    kind = scaling(scale, clamp, y.zero_point, filters.T.astype(np.int64), bias)
    if kind.short == "any":
        return "a factor of one or more, or an accumulator near 32 bits"
    together = LANES // channels if window.stride_w == 1 and LANES % channels == 0 else 1
    order = np.tile(np.arange(channels), together)[channel_order(channels * together, kind, eights=False)]
    if (kernel_h, kernel_w) == (3, 3) and channels * together % LANES == 0 and not kind.clamped:
        return _three_by_three(bound, window, filters, bias, scale, clamp, kind, together)
    arranged = tap_weights(np.tile(filters, (1, together)))
    tables = (
        Table(
            "weights",
            "int8_t",
            tuple(arranged.tolist()),
            f"weights {kernel_h}x{kernel_w}x{channels}, 16 channels at a time",
            4,
            pixels_per_load=1,
        ),
        Table("bias", "int32_t", tuple(bias[order].tolist()), "bias per output channel, with the zero point's share"),
    )
    params = window_params(bound, window, kernel_h, kernel_w)
    outside = 0 if _inside(params) else -(-channels // LANES) * LANES
    own = list(_own_params(bound, params, together))
    own.insert(-1, Param("outside", "int32_t", outside, "zero points for taps outside of the input"))
    scratch = Scratch("sums", 4 * LANES + POINTER * len(filters) + outside + (LANES if together > 1 else 0))
    return Layer(
        "convolution/depthwise_conv_2d_mve", "mve", (0,), (*tables, *scaling_tables(scale, kind, order)),
        (*params, *own, *output_params(bound, scale, clamp)),
        scratch=(scratch,), macs=y.elements * len(filters), spec=kind,
        overlaps=window_overlap(bound, params, None if channels <= LANES else 0), by_rows=BY_ROWS, headers=HEADERS,
    )  # fmt: skip


def _inside(params: Sequence[Param]) -> bool:
    """Whether no window reaches outside of the input."""
    p = {param.name: int(param.value) for param in params if isinstance(param.value, int)}
    return p["pad_top"] == p["pad_left"] == 0 and all(
        (p[f"out_{side}"] - 1) * p[f"stride_{side}"] + (p[f"kernel_{side}"] - 1) * p[f"dilation_{side}"]
        < p[f"in_{side}"]
        for side in "hw"
    )


def _own_params(bound: BoundNode, params: Sequence[Param], together: int) -> tuple[Param, ...]:
    x = bound.input(0)
    return (
        *inner_columns(params),
        Param("together", "int32_t", together, "pixels in a register"),
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
    )


def records(filters: Array, bias: Int64, scale: Requantization, order: NDArray[np.int64]) -> NDArray[np.int8]:
    """For every 16 channels of filters [9, C]: weights tap by tap, shifts, bias and multipliers, or bias and factors, as bytes.

    order: of the channels in all but the weights.
    """

    def each(values: Sequence[float], dtype: str) -> NDArray[np.int8]:
        spread = (np.full(len(order), values[0], dtype) if len(values) == 1 else np.array(values, dtype))[order]
        return spread.view(np.int8).reshape(len(order) // LANES, -1)

    weights = filters.astype(np.int8).reshape(9, -1, LANES).transpose(1, 0, 2).reshape(len(order) // LANES, -1)
    start = np.asarray(bias[order], "<i4").view(np.int8).reshape(len(weights), -1)
    if scale.q31:
        parts = [weights, each(scale.shift, "i1"), start, each(scale.q31, "<i4")]
    else:
        parts = [weights, start, each(scale.real, "<f4")]
    return np.concatenate(parts, axis=1).reshape(-1)


def _three_by_three(
    bound: BoundNode,
    window: Window,
    filters: Array,
    bias: Int64,
    scale: Requantization,
    clamp: Clamp,
    kind: KernelSpec,
    together: int,
) -> Layer:
    channels = filters.shape[1]
    order = np.tile(np.arange(channels), together)[channel_order(channels * together, kind, eights=False)]
    values = records(np.tile(filters, (1, together)), bias, scale, order)
    table = Table(
        "records",
        "int8_t",
        tuple(values.tolist()),
        "weights 3x3, shifts, bias and multipliers of 16 channels at a time",
        4,
    )
    params = window_params(bound, window, 3, 3)
    room = -(-channels // LANES) * LANES + (LANES * 9 if together > 1 else 0)
    return Layer(
        "convolution/depthwise_3x3_mve", "mve", (0,), (table,),
        (*params, *_own_params(bound, params, together), *output_params(bound, scale, clamp)),
        scratch=(Scratch("taps", POINTER * 10 + room),), macs=bound.output.elements * 9, spec=kind,
        overlaps=window_overlap(bound, params, None if channels <= LANES else 0), by_rows=BY_ROWS, headers=HEADERS,
    )  # fmt: skip
