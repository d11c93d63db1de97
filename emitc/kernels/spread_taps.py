"""Depthwise convolutions of several filters for each channel, or of int16, on cores with MVE: four outputs at a time, tap by tap.

Output o reads input channel o // multiplier: four outputs gather their values from the channels that they share. Sums have
32 bits.

Source of the arithmetic: TFLite 8-bit and 16x8 quantization specifications, as the portable kernel has them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode, DType
from emitc.kernels import accumulate
from emitc.kernels.contract import Layer, Param, Table
from emitc.kernels.requantization import WEIGHTS, output_params, requantization
from emitc.kernels.spatial import BY_ROWS, Window, window_overlap, window_params
from emitc.quantize import activation_clamp, reduced_multiplier

_LANES = 4
_HEADER = "emitc_mve.h"


def _filled(values: NDArray[np.int64]) -> tuple[int, ...]:
    """The values, and zeros up to a whole register."""
    return tuple(np.pad(values, (0, -len(values) % _LANES)).tolist())


def _ahead(channels: int, multiplier: int, out_bytes: int, in_bytes: int) -> int | None:
    """Bytes that are stored before a window is read for the last time, less those of the channels in front of what is read.

    >>> _ahead(8, 2, 1, 1), _ahead(4, 4, 1, 1), _ahead(6, 3, 2, 2)
    (2, None, 6)
    """
    starts = range(_LANES, channels, _LANES)
    return max((o * out_bytes - o // multiplier * in_bytes for o in starts), default=None)


def depthwise(bound: BoundNode, window: Window, activation: str, *, folded: bool) -> Layer | str:
    """The layer, or why there is none. folded: the bias holds the zero point's share."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    weights = accumulate.weights_of(bound)
    if bound.node.op.numerics.float_scale or x.dtype is not y.dtype or x.dtype not in (DType.INT8, DType.INT16):
        return f"{x.dtype.value} to {y.dtype.value} by float32 factors: there is code for fixed point"
    if w.dtype.packed or weights.dtype != np.int8:
        return "weights of four bits"
    kind = accumulate.flavour(bound, weights, 3)
    if kind.acc != "int32_t":
        return "sums of 64 bits"
    _, kernel_h, kernel_w, out = weights.shape
    multiplier = out // x.shape[3]
    scale, bias = requantization(bound), accumulate.bias_of(bound, out)
    each = np.zeros(out, np.int64)
    shifts = each + np.array(scale.shift)
    factors = each + np.array(scale.q31)
    if kind.reduced:
        factors = np.array([reduced_multiplier(int(q)) << 16 for q in factors], np.int64)
        shifts = 15 - shifts - 16
    outputs = np.arange(out, dtype=np.int64)
    spread = outputs // multiplier - outputs // _LANES * _LANES // multiplier
    tables = (
        Table("weights", "int8_t", tuple(weights.reshape(-1).tolist()), f"weights {'x'.join(map(str, w.shape))}"),
        Table("bias", "int32_t", _filled(bias), "bias per output channel", alignment=4),
        Table("multiplier", "int32_t", _filled(factors), "multiplier per output channel"),
        Table("shift", "int8_t", _filled(shifts), "shift after it"),
        Table("spread", "int8_t", _filled(spread), "input channel of each output, from that of the first of four on"),
    )
    params = window_params(bound, window, kernel_h, kernel_w)
    tail = (
        Param("depth_multiplier", "int32_t", multiplier),
        accumulate.input_offset(bound, folded=folded),
        *output_params(bound, scale, activation_clamp(activation, y))[:3],
    )
    return Layer(
        "depthwise_spread_mve", "mve", (0,), tables, (*params, *tail), macs=y.elements * kernel_h * kernel_w,
        flavour=kind, by_rows=BY_ROWS, headers=(_HEADER,),
        overlaps=window_overlap(bound, params, _ahead(out, multiplier, y.dtype.bytes, x.dtype.bytes)),
    )  # fmt: skip
