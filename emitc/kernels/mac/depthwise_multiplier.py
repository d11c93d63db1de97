"""Depthwise convolutions of several filters for each channel, or of int16: four outputs at a time, tap by tap.

Output o reads input channel o // multiplier: four outputs gather their values from the channels that they share, by one
instruction on cores with MVE, and one by one on those with DSP instructions. Sums have 32 bits.

Source of the arithmetic: TFLite 8-bit and 16x8 quantization specifications, as the portable kernel has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import BoundNode, DType
from emitc.kernels.mac import accumulation, dsp_int8, int16_dsp_mve
from emitc.kernels.mac.requantization import WEIGHTS, output_params, requantization
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import Layer, Param, Scratch, Table
from emitc.numerics.requantize import activation_clamp, reduced_multiplier

_LANES = 4
_HEADER = "emitc_mve.h"
_SPREAD_HEADER = "emitc_dsp_depthwise.h"


def _filled(values: NDArray[np.int64]) -> tuple[int, ...]:
    """The values, and zeros up to a whole register."""
    return tuple(np.pad(values, (0, -len(values) % _LANES)).tolist())


def _ahead(groups: Iterable[tuple[int, int]], multiplier: int, out_bytes: int, in_bytes: int) -> int | None:
    """Bytes that are stored before a window is read for the last time, less those of the channels in front of what is read.

    groups: for each group of outputs but the first, the outputs stored before it and its first one.

    >>> _ahead([(4, 4)], 2, 1, 1), _ahead([], 4, 1, 1), _ahead([(4, 4)], 3, 2, 2), _ahead([(4, 2)], 2, 1, 1)
    (2, None, 6, 3)
    """
    return max((stored * out_bytes - first // multiplier * in_bytes for stored, first in groups), default=None)


def depthwise(bound: BoundNode, window: Window, activation: str, *, folded: bool) -> Layer | str:
    """The layer, or why there is none. folded: the bias holds the zero point's share."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    if bound.node.op.numerics.float_scale or x.dtype is not y.dtype or x.dtype not in (DType.INT8, DType.INT16):
        return f"{x.dtype.value} to {y.dtype.value} by float32 factors: there is code for fixed point"
    weights = accumulation.weights_of(bound)
    if w.dtype.packed or weights.dtype != np.int8:
        return Reason("its weights have four bits", "weights of eight bits")
    kind = accumulation.spec(bound, weights, 3)
    if kind.acc != "int32_t":
        return "its sums need 64 bits"
    _, kernel_h, kernel_w, out = weights.shape
    multiplier = out // x.shape[3]
    scale, bias = requantization(bound), accumulation.bias_of(bound, out)
    each = np.zeros(out, np.int64)
    shifts = each + np.array(scale.shift)
    factors = each + np.array(scale.q31)
    if kind.reduced:
        factors = np.array([reduced_multiplier(int(q)) << 16 for q in factors], np.int64)
        shifts = 15 - shifts - 16
    outputs = np.arange(out, dtype=np.int64)
    groups = [(o, o) for o in range(_LANES, out, _LANES)]
    spread = outputs // multiplier - outputs // _LANES * _LANES // multiplier
    tables = (
        Table(
            "weights",
            "int8_t",
            tuple(weights.reshape(-1).tolist()),
            f"weights {'x'.join(map(str, w.shape))}",
            pixels_per_load=1,
        ),
        Table("bias", "int32_t", _filled(bias), "bias per output channel", alignment=4),
        Table("multiplier", "int32_t", _filled(factors), "multiplier per output channel"),
        Table("shift", "int8_t", _filled(shifts), "shift after it"),
        Table("spread", "int8_t", _filled(spread), "input channel of each output, from that of the first of four on"),
    )
    params = window_params(bound, window, kernel_h, kernel_w)
    tail = (
        Param("depth_multiplier", "int32_t", multiplier),
        accumulation.input_offset(bound, folded=folded),
        *output_params(bound, scale, activation_clamp(activation, y))[:3],
    )
    return Layer(
        "convolution/depthwise_spread_mve", "mve", (0,), tables, (*params, *tail), macs=y.elements * kernel_h * kernel_w,
        spec=kind, by_rows=BY_ROWS, headers=(_HEADER,),
        overlaps=window_overlap(bound, params, _ahead(groups, multiplier, y.dtype.bytes, x.dtype.bytes)),
    )  # fmt: skip


def paired_depthwise(bound: BoundNode, window: Window, activation: str, *, folded: bool) -> Layer | str:
    """The layer for DSP instructions, or why there is none. folded: the bias holds the zero point's share.

    It lists where the taps of a window read, pixel by pixel of the output; outside of the input they read a pixel of zero
    points. Of a number of outputs that is no multiple of four, the last four are made at the end, some of them again.
    """
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    shorts = int16_dsp_mve.applies(bound)
    if not shorts and (reason := dsp_int8.refusal(bound)):
        return reason
    weights = accumulation.weights_of(bound)
    _, kernel_h, kernel_w, out = weights.shape
    if out < _LANES:
        return "it has fewer than four output channels"
    filters = weights.reshape(-1, out).T
    if shorts:
        taken = int16_dsp_mve.numbers(bound, activation, filters, folded=folded)
        if isinstance(taken, str):
            return taken
        kind, numbers, tail = taken
    else:
        found = dsp_int8.prepared(bound, activation, filters.astype(np.int64), folded=folded)
        if isinstance(found, str):
            return found
        filters, bias, scale, clamp, kind = found
        numbers = (
            Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
            *dsp_int8.scaling_tables(scale, kind),
        )
        tail = dsp_int8.output_numbers(bound, scale, clamp)
    multiplier = out // x.shape[3]
    form = "one" if multiplier == 1 else "even" if multiplier % 2 == 0 else ""
    firsts = [*range(0, out - _LANES, _LANES), out - _LANES]
    order = np.array([first + lane for first in firsts for lane in range(_LANES)])
    arranged = filters[order].reshape(len(firsts), _LANES, -1).transpose(0, 2, 1).reshape(-1)
    what = f"weights {'x'.join(map(str, w.shape))}, four channels after the other"
    params = window_params(bound, window, kernel_h, kernel_w)
    zero = Param("zero_point", "int32_t", x.zero_point, "of the input")
    behind = (zero, Param("depth_multiplier", "int32_t", multiplier)) if multiplier > 1 else (zero,)
    groups = [(i * _LANES, first) for i, first in enumerate(firsts) if i]
    return Layer(
        "convolution/depthwise_spread_dsp", "dsp", (0,),
        (Table("weights", "int8_t", tuple(arranged.tolist()), what, 4, pixels_per_load=0), *numbers), (*params, *behind, *tail),
        scratch=(
            Scratch("padding_pixel", x.shape[3] * x.dtype.bytes),
            Scratch("taps", dsp_int8.POINTER_BYTES * kernel_h * kernel_w),
        ),
        macs=y.elements * kernel_h * kernel_w,
        spec=replace(kind, suffix=f"{kind.suffix}_{form}" if form else kind.suffix, window=form), by_rows=BY_ROWS,
        headers=(dsp_int8.HEADER, int16_dsp_mve.DSP_HEADER, _SPREAD_HEADER),
        overlaps=window_overlap(bound, params, _ahead(groups, multiplier, y.dtype.bytes, x.dtype.bytes)),
    )  # fmt: skip
