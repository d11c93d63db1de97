"""Convolutions and matrix products on cores with Arm's vector extension MVE: layers and weights for them.

One instruction multiplies 16 bytes by 16 bytes and adds the products to one sum. Two pixels at a time meet four channels: each
register of weights is used twice, each one of values four times. Weights lie in the order in which they are read. Where a window
reaches outside the input, the zero point is read instead, so that one bias holds its share for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification; that halves up are enough where the output's lower limit
is its zero point follows from the two roundings, since they differ for results below it only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import Array, BoundNode
from emitc.kernels.mac import accumulation, dsp_int8
from emitc.kernels.mac.requantization import Requantization, output_params, requantization, requantization_tables
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Scratch, Table
from emitc.numerics.requantize import Clamp, Int64, activation_clamp

HEADER = "emitc_mve.h"
HEADERS = (HEADER, "emitc_mve_dot_int8.h")
"""Of kernels that add up products."""
LANES = 16
"""Bytes in a register."""
CHANNELS = 4
"""Output channels that share the values that are read; as many sums make a register."""
LARGEST_OUTPUT = 2.0**30
"""Below it no zero point takes an output out of 32 bits."""
LONG_ROW = 64
"""From so many values on, a row with fewer than four outputs has a kernel of its own, which is short."""
CHUNK = 16
"""Output channels of one row whose sums are kept at a time."""


def scaling(scale: Requantization, clamp: Clamp, zero_point: int, filters: Int64, bias: Int64) -> KernelSpec:
    """How the kernel requantizes: halves up where negative results do not matter; as any core does where there are shifts to the
    left, or sums so large that an output could wrap. filters: [O, K], all that an output channel is the sum of.
    """
    clamped = clamp != dsp_int8.FULL
    ending = "_clamped" if clamped else ""
    if not scale.q31:
        return replace(PLAIN, suffix=f"_f32{ending}", fixed_point=False, clamped=clamped)
    sums = np.abs(filters).sum(axis=1) * 128 + np.abs(bias)
    largest = sums * (np.array(scale.q31) * 0.5**31) * 2.0 ** np.array(scale.shift)
    if max(scale.shift) > 0 or largest.max() >= LARGEST_OUTPUT:
        return replace(PLAIN, suffix="_any", short="any")
    short = "up" if clamp.low >= zero_point else "away"
    return replace(PLAIN, suffix=f"_{short}{ending}", short=short, clamped=clamped)


def channel_order(out: int, kind: KernelSpec, *, eights: bool) -> NDArray[np.int64]:
    """In which order sums of output channels lie: 16 at a time, such that registers of four narrow to registers in order.

    eights: then the next 8 for the same reason.

    >>> channel_order(17, replace(PLAIN, short="up"), eights=True).tolist()
    [0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15, 16]
    >>> channel_order(9, replace(PLAIN, short="up"), eights=True).tolist()
    [0, 2, 4, 6, 1, 3, 5, 7, 8]
    """
    order = np.arange(out, dtype=np.int64)
    if kind.short != "any":
        whole = out // LANES * LANES
        order[:whole] = order[:whole].reshape(-1, 4, 2, 2).transpose(0, 3, 2, 1).reshape(-1)
        if eights and out - whole >= LANES // 2:
            order[whole : whole + 8] = order[whole : whole + 8].reshape(4, 2).T.reshape(-1)
    return order


def scaling_tables(scale: Requantization, kind: KernelSpec, order: NDArray[np.int64]) -> tuple[Table, ...]:
    """Multipliers and shifts in the order of the channels; those for all channels repeated for a group of channels."""
    tables = requantization_tables(scale, kind)
    if scale.per_channel:
        return tuple(replace(table, values=tuple(table.values[i] for i in order)) for table in tables)
    count = next(group for group in (16, 8, 4) if len(order) >= group or group == CHANNELS)
    return tuple(replace(table, values=table.values * count) for table in tables)


def quad_weights(filters: Array) -> NDArray[np.int8]:
    """Filters [O, K] four by four: the first K % 16 weights of each of the four, then 16 of each at a time.

    What is left of O follows filter by filter.
    """
    whole, depth = len(filters) // CHANNELS * CHANNELS, filters.shape[1]
    count, part = whole // CHANNELS, depth % LANES
    quads = filters[:whole].reshape(count, CHANNELS, depth)
    first = quads[..., :part].reshape(count, CHANNELS * part)
    blocks = quads[..., part:].reshape(count, CHANNELS, depth // LANES, LANES).transpose(0, 2, 1, 3)
    ordered = np.concatenate([first, blocks.reshape(count, CHANNELS * (depth - part))], axis=1)
    return np.concatenate([ordered.reshape(-1), filters[whole:].reshape(-1)]).astype(np.int8)


def inner_columns(params: Sequence[Param]) -> tuple[Param, Param]:
    """The output columns whose windows lie wholly inside the input's width. params: start with the window's."""
    p = {param.name: int(param.value) for param in params}
    first = -(-p["pad_left"] // p["stride_w"])
    end = (p["in_w"] - 1 - (p["kernel_w"] - 1) * p["dilation_w"] + p["pad_left"]) // p["stride_w"] + 1
    end = max(0, min(p["out_w"], end))
    return (
        Param("inner_first", "int32_t", min(first, end), "output columns whose windows are inside"),
        Param("inner_end", "int32_t", end),
    )


def convolution(bound: BoundNode, window: Window, activation: str, filters: Array, *, folded: bool) -> Layer | str:
    """The layer of a convolution without groups, filters [O, KH, KW, I]; or why there is none.

    folded: the bias holds the zero point's share already.
    """
    if window.dilation_w != 1:
        return Reason("it is dilated along the row", "a dilation of 1 there")
    out, kernel_h, kernel_w, depth = filters.shape
    params = window_params(bound, window, kernel_h, kernel_w)
    direct = kernel_h == 1 and not window.padding.any
    alone = bound.output.elements == out and not window.padding.any and window.dilation_h == 1
    if alone and kernel_h * kernel_w * depth == bound.input(0).elements:  # the window is the image
        return _row(bound, params, activation, filters.reshape(out, -1), folded=folded)
    return _pairs(bound, params, activation, filters.reshape(out, -1), direct=direct, folded=folded, by_rows=BY_ROWS)


def product(bound: BoundNode, activation: str, rows: int, *, folded: bool) -> Layer | str:
    """The layer of a fully connected layer of `rows` rows; or why there is none."""
    filters = accumulation.weights_of(bound)
    filters = filters.reshape(len(filters), -1)
    out, depth = filters.shape
    params, _ = accumulation.pixels(rows, depth, out)
    if rows > 1:
        sizes = {"batches": 1, "in_h": rows, "out_h": rows}
        params = tuple(replace(param, value=sizes.get(param.name, param.value)) for param in params)
        return _pairs(bound, params, activation, filters, direct=True, folded=folded, by_rows=None)
    return _row(bound, params, activation, filters, folded=folded)


def _pairs(
    bound: BoundNode,
    params: tuple[Param, ...],
    activation: str,
    filters: Array,
    *,
    direct: bool,
    folded: bool,
    by_rows: ByRows | None,
) -> Layer | str:
    if len(filters) < CHANNELS and filters.shape[1] < LONG_ROW:
        return "it has fewer than four output channels"
    if isinstance(parts := _parts(bound, activation, filters, folded=folded, eights=True, pixels_per_load=2), str):
        return parts
    tables, tail, kind = parts
    if len(filters) % 8 or kind.short == "any":
        kind = kind.extended("_uneven", uneven=True)
    x = bound.input(0)
    out, depth = filters.shape
    own = (
        *inner_columns(params),
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
    )
    windows = 0 if direct else -(-2 * depth // LANES) * LANES
    scratch = (Scratch("windows", windows + 8 * 4 * -(-out // CHANNELS)),)
    return Layer(
        "convolution/conv_2d_mve", "mve", (0,), tables, (*params, *own, *tail), scratch=scratch,
        macs=bound.output.elements * depth, spec=kind, overlaps=window_overlap(bound, params, None), by_rows=by_rows,
        headers=HEADERS,
    )  # fmt: skip


def _row(bound: BoundNode, params: tuple[Param, ...], activation: str, filters: Array, *, folded: bool) -> Layer | str:
    out, depth = filters.shape
    long_rows = out < CHANNELS and depth >= LONG_ROW
    loads = 2 if long_rows else 1
    if isinstance(parts := _parts(bound, activation, filters, folded=folded, eights=False, pixels_per_load=loads), str):
        return parts
    tables, tail, kind = parts
    if kind.short == "up":  # few outputs: code for a rounding of its own would cost more than it saves
        kind = replace(kind, short="away", suffix=kind.suffix.replace("_up", "_away"))
    size = (Param("in", "int32_t", depth), Param("out_c", "int32_t", out))
    if long_rows:
        plain = PLAIN if kind.fixed_point else replace(PLAIN, suffix="_f32", fixed_point=False)
        return Layer(
            "matrix/dots_mve", "mve", (0,), tables, (*size, *tail), macs=filters.size, spec=plain,
            overlaps=window_overlap(bound, params, out - 1 or None), headers=HEADERS,
        )  # fmt: skip
    return Layer(
        "matrix/row_mve", "mve", (0,), tables, (*size, *tail), macs=filters.size, spec=kind,
        overlaps=window_overlap(bound, params, (out - 1) // CHUNK * CHUNK or None), headers=HEADERS,
    )  # fmt: skip


def _parts(
    bound: BoundNode, activation: str, filters: Array, *, folded: bool, eights: bool, pixels_per_load: int
) -> tuple[tuple[Table, ...], tuple[Param, ...], KernelSpec] | str:
    """Tables, parameters of the output and spec of a layer with filters [O, K]."""
    if reason := dsp_int8.refusal(bound):
        return reason
    bias = accumulation.bias_inside(bound, filters.astype(np.int64), folded=folded)
    if bias is None:
        return "folding the zero point into the bias could overflow int32"
    y = bound.output
    scale, clamp = requantization(bound), activation_clamp(activation, y)
    kind = scaling(scale, clamp, y.zero_point, filters.astype(np.int64), bias)
    order = channel_order(len(filters), kind, eights=eights)
    weights = quad_weights(filters[order])
    tables = (*_tables(weights, filters.shape, bias[order], pixels_per_load), *scaling_tables(scale, kind, order))
    return tables, output_params(bound, scale, clamp), kind


def _tables(weights: NDArray[np.int8], shape: Sequence[int], bias: Int64, pixels_per_load: int) -> tuple[Table, ...]:
    what = f"weights {'x'.join(map(str, shape))}, arranged for registers of 16"
    return (
        Table("weights", "int8_t", tuple(weights.tolist()), what, 4, pixels_per_load),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
    )
