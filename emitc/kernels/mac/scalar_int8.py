"""Convolutions and matrix products on cores without instructions for pairs or vectors: two products by one multiplication.

The values of two pixels lie in one word, 16 bits apart; a weight times that word is both products. Those of two weights add up
within 16 bits, then they are taken apart (c_runtime/scalar/emitc_scalar.h says how). Where a window or a row reaches
outside the input, the zero point is read instead, so that one bias holds its share for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.ir import Array, BoundNode
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.dsp_int8 import (
    POINTER_BYTES,
    factor_parts,
    largest_sum,
    output_numbers,
    refusal,
    scaling,
    scaling_tables,
    settled,
)
from emitc.kernels.mac.requantization import Requantization
from emitc.kernels.mac.weight_packing import weight_table
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import (
    AccessOrder,
    ByRows,
    KernelSpec,
    Layer,
    Param,
    Scratch,
    Table,
    WindowOrder,
    by_channel,
    whole_window,
)
from emitc.numerics.requantize import Clamp, Int64, activation_clamp

HEADER = "emitc_scalar.h"
LARGEST_LEFT = 30
SMALL_SUM, SMALL_SHIFT = 1 << 20, 13
"""Sums below this, with shifts up to this, are requantized by three products of 32 bits."""
PIXELS = 4
"""Output pixels that share the weights that are read."""


def convolution(
    bound: BoundNode, window: Window, activation: str, filters: Array, *, folded: bool, mul32: bool = False
) -> Layer | str:
    """The layer of a convolution without groups, filters [O, KH, KW, I]; or why there is none.

    folded: the bias holds the zero point's share already. mul32: for cores whose products have 32 bits only.
    """
    if reason := refusal(bound):
        return reason
    out, kernel_h, kernel_w, depth = filters.shape
    if window.dilation_w != 1:
        return Reason("it is dilated along the row", "a dilation of 1 there")
    prepared = _prepared(bound, activation, filters.astype(np.int64).reshape(out, -1), folded=folded, mul32=mul32)
    if isinstance(prepared, str):
        return prepared
    flat, bias, scale, clamp, kind = prepared
    if not _fits(flat):
        return Reason("two adjacent weights are -128", "weights of -127 to 127")
    x, y = bound.input(0), bound.output
    rows = y.elements // out
    if (kernel_h, kernel_w, window.stride_h, window.stride_w) == (1, 1, 1, 1) and not window.padding.any:
        return _matrix(bound, rows, flat, bias, scale, clamp, kind, mul32=mul32)
    if not _in_fours(rows // y.shape[0]):
        return Reason("the number of output pixels is not a multiple of 4", "a multiple of 4 output pixels")
    params = window_params(bound, window, kernel_h, kernel_w)
    # Where nothing is outside the input, no row of a window is put together.
    edge = -(-2 * kernel_w * depth // 4) * 4 if window.padding.any else 0
    pairs = -(-flat.shape[1] // 2)
    tail = (
        Param("pairs", "int32_t", pairs, "of a filter's weights"),
        Param("edge", "int32_t", edge, "bytes for rows of windows that are put together"),
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
        *output_numbers(bound, scale, clamp),
    )
    return Layer(
        "convolution/conv_2d_halves",
        "swar", (0,), (*_tables(flat, filters.shape, bias), *scaling_tables(scale, kind)), params + tail,
        scratch=(Scratch("windows", edge + 4 * PIXELS * pairs),), macs=flat.size * rows, spec=kind,
        overlaps=window_overlap(bound, params, None), by_rows=BY_ROWS, headers=(HEADER,),
    )  # fmt: skip


def depthwise(bound: BoundNode, window: Window, activation: str, *, folded: bool, mul32: bool = False) -> Layer | str:
    """The layer of a depthwise convolution with one filter per channel; or why there is none.

    Four pixels are made at a time, channel by channel, so that the last one's first channels are stored before the first one's
    window is read for the last time.
    """
    if reason := refusal(bound):
        return reason
    x, y = bound.input(0), bound.output
    weights = accumulation.weights_of(bound)
    _, kernel_h, kernel_w, channels = weights.shape
    if channels != x.shape[3]:
        return Reason("it has several filters per channel", "one filter per channel, followed by a 1x1 convolution")
    if not _in_fours(y.shape[1] * y.shape[2]):
        return Reason("the number of output pixels is not a multiple of 4", "a multiple of 4 output pixels")
    prepared = _prepared(
        bound, activation, weights.astype(np.int64).reshape(-1, channels).T, folded=folded, mul32=mul32
    )
    if isinstance(prepared, str):
        return prepared
    filters, bias, scale, clamp, kind = prepared
    three = (kernel_h, kernel_w) == (3, 3)
    if three:
        kind = kind.extended("_3x3", window="3x3")
    params = window_params(bound, window, kernel_h, kernel_w)
    tail = (
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
        *output_numbers(bound, scale, clamp),
    )
    what = f"weights {'x'.join(map(str, weights.shape))}, channel by channel"
    tables = (
        Table("weights", "int8_t", tuple(filters.reshape(-1).tolist()), what, pixels_per_load=1),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
        *scaling_tables(scale, kind),
    )
    overlaps = tuple(
        replace(each, walk=_tiled(each.walk))
        for each in window_overlap(bound, params, by_channel(channels, channels, 1, 1, 1))
    )
    return Layer(
        "convolution/depthwise_conv_2d_scalar", "swar", (0,), tables, params + tail,
        scratch=(Scratch("taps", channels + (0 if three else PIXELS * POINTER_BYTES * kernel_h * kernel_w)),),
        macs=filters.size * (y.elements // channels), spec=kind, overlaps=overlaps, by_rows=BY_ROWS, headers=(HEADER,),
    )  # fmt: skip


def _tiled(walk: AccessOrder) -> AccessOrder:
    """The walk of a kernel that makes its pixels four at a time."""
    assert isinstance(walk, WindowOrder)
    return replace(walk, tile=PIXELS)


def product(bound: BoundNode, activation: str, rows: int, *, folded: bool, mul32: bool = False) -> Layer | str:
    """The layer of a fully connected layer of `rows` rows; or why there is none."""
    if reason := refusal(bound):
        return reason
    filters = accumulation.weights_of(bound).astype(np.int64)
    prepared = _prepared(bound, activation, filters.reshape(len(filters), -1), folded=folded, mul32=mul32)
    return prepared if isinstance(prepared, str) else _matrix(bound, rows, *prepared, mul32=mul32)


def _prepared(
    bound: BoundNode, activation: str, filters: Int64, *, folded: bool, mul32: bool
) -> tuple[Int64, Int64, Requantization, Clamp, KernelSpec] | str:
    """Filters [O, K], bias with the zero point's share, requantization, limits and spec; or why there is no such layer."""
    y = bound.output
    bias = accumulation.bias_inside(bound, filters, folded=folded)
    if bias is None:
        return "folding the zero point into the bias could overflow int32"
    clamp = activation_clamp(activation, y)
    filters, bias, scale = settled(bound, filters, bias, clamp)
    # The short functions take four times the sum.
    largest = largest_sum(filters, bias)
    kind = scaling(scale, clamp, y.zero_point, 2 * largest)
    if scale.real and _in_parts(scale, filters, bias):
        kind = replace(kind, suffix=kind.suffix.replace("_f32", "_exact"), exact=True)
    if mul32 and kind.short and largest < SMALL_SUM and min(scale.shift) >= -SMALL_SHIFT:
        kind = kind.extended("_small", small=True)
    return filters, bias, scale, clamp, kind


def _in_parts(scale: Requantization, filters: Int64, bias: Int64) -> bool:
    """Whether every sum, moved by its factor's exponent, stays within int32."""
    _, left = factor_parts(scale)
    most = 128 * np.abs(filters).sum(axis=1) + np.abs(bias)
    return bool(
        (left >= 0).all() and (left <= LARGEST_LEFT).all() and (most << np.clip(left, 0, LARGEST_LEFT) < 1 << 31).all()
    )


def _matrix(
    bound: BoundNode,
    rows: int,
    filters: Int64,
    bias: Int64,
    scale: Requantization,
    clamp: Clamp,
    kind: KernelSpec,
    *,
    mul32: bool,
) -> Layer | str:
    """The layer of a product of `rows` rows with filters [O, K]; the bias holds the zero point's share."""
    if not _in_fours(rows):
        return _rows(bound, rows, filters, bias, scale, clamp, kind, mul32=mul32)
    if not _fits(filters):
        return Reason("two adjacent weights are -128", "weights of -127 to 127")
    out, depth = filters.shape
    pairs = -(-depth // 2)
    params, _ = accumulation.pixels(rows, depth, out)
    numbers = (
        Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out_c", "int32_t", out),
        Param("pairs", "int32_t", pairs, "of a filter's weights"), *output_numbers(bound, scale, clamp),
    )  # fmt: skip
    return Layer(
        "matrix/matrix_halves", "swar", (0,), (*_tables(filters, filters.shape, bias), *scaling_tables(scale, kind)), numbers,
        scratch=(Scratch("windows", 4 * PIXELS * pairs),), macs=rows * filters.size, spec=kind,
        overlaps=window_overlap(bound, params, None), by_rows=ByRows(counted="rows"), headers=(HEADER,),
    )  # fmt: skip


def _rows(
    bound: BoundNode,
    rows: int,
    filters: Int64,
    bias: Int64,
    scale: Requantization,
    clamp: Clamp,
    kind: KernelSpec,
    *,
    mul32: bool,
) -> Layer:
    """The same for rows that come in no fours, as they are."""
    out, depth = filters.shape
    params, _ = accumulation.pixels(rows, depth, out)
    numbers = (
        Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out_c", "int32_t", out),
        *output_numbers(bound, scale, clamp),
    )  # fmt: skip
    tables = (
        weight_table(filters.astype(np.int8), interleaved=not mul32),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
        *scaling_tables(scale, kind),
    )
    return Layer(
        "matrix/row_narrow" if mul32 else "matrix/row_scalar",
        "swar", (0,), tables, numbers, macs=rows * filters.size, spec=kind,
        overlaps=window_overlap(bound, params, whole_window(out, 4, 1)), by_rows=ByRows(counted="rows"), headers=(HEADER,),
    )  # fmt: skip


def _in_fours(pixels: int) -> bool:
    """Whether most of that many pixels are made four at a time; each of those that are left costs as much as four."""
    return 5 * (pixels // PIXELS + pixels % PIXELS) * PIXELS <= 8 * pixels


def _even(filters: Int64) -> Int64:
    """Filters [O, K] with a zero at the end where K is odd."""
    return np.pad(filters, ((0, 0), (0, filters.shape[1] % 2)))


def _fits(filters: Int64) -> bool:
    """Whether the products of int8 values with two weights always add up within 16 bits."""
    pairs = _even(filters).reshape(len(filters), -1, 2)
    low = np.minimum(-128 * pairs, 127 * pairs).sum(axis=2)
    high = np.maximum(-128 * pairs, 127 * pairs).sum(axis=2)
    return bool(low.min() >= -(1 << 15) and high.max() < 1 << 15)


def _tables(filters: Int64, shape: tuple[int, ...], bias: Int64) -> tuple[Table, ...]:
    what = f"weights {'x'.join(map(str, shape))}" + (", a zero behind each filter" if filters.shape[1] % 2 else "")
    return (
        Table("weights", "int8_t", tuple(_even(filters).reshape(-1).tolist()), what, pixels_per_load=PIXELS),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
    )
