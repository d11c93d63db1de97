"""Depthwise convolutions on cores with Arm's vector extension MVE: 16 channels at a time, tap by tap.

Products of bytes have 15 bits and a sign, so that those of two taps are added before they are widened. Of images with few
channels a register holds several neighbouring pixels, where their windows are neighbours too. A tap outside the input reads the
zero point, so that one bias holds its term for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array
from emitc.kernels.mac.mve_int8 import OUTPUT_HEADERS, channel_order, fold, inner_columns, ordered_tables
from emitc.kernels.mac.problem import POINTER_BYTES, FoldedWeights, MacProblem, NoKernel, packed_table
from emitc.kernels.mac.weight_packing import LANES, pack_mve_taps
from emitc.layer import Layer, Param, Scratch, Table

_HEADERS = (*OUTPUT_HEADERS, "emitc_mve_depthwise.h")


def pairs_fit(filters: Array) -> bool:
    """Whether the products of two taps, 0 and 1, 2 and 3, ..., with any bytes add up within 16 bits. filters: [taps, C]."""
    wide = np.pad(filters.astype(np.int64), ((0, len(filters) % 2), (0, 0))).reshape(-1, 2, filters.shape[1])
    positive, negative = np.maximum(wide, 0).sum(axis=1), -np.minimum(wide, 0).sum(axis=1)
    return bool(
        (127 * positive + 128 * negative).max() < 1 << 15 and (128 * positive + 127 * negative).max() <= 1 << 15
    )


def depthwise(problem: MacProblem) -> Layer:
    """The layer of a depthwise convolution with one filter for each channel; raises NoKernel where there is none."""
    taps, channels, window = problem.matrix.T, problem.channels, problem.window
    assert window is not None
    if not pairs_fit(taps):
        raise NoKernel("a weight is -128")
    folded = fold(problem)
    if folded.spec.rounding == "any":
        raise NoKernel("a factor of one or more, or an accumulator near 32 bits")
    together = LANES // channels if window.stride_w == 1 and LANES % channels == 0 else 1
    params = (
        *inner_columns(problem),
        Param("together", "int32_t", together, "pixels in a register"),
        problem.zero_point,
        *problem.output_params,
    )
    ahead, pixel = None if channels <= LANES else 0, -(-channels // LANES) * LANES
    if problem.kernel == (3, 3) and channels * together % 4 == 0 and not folded.spec.clamped:
        # The last channel stands for those that fill the last register: nothing of them is stored.
        every = np.minimum(np.tile(np.arange(pixel if together == 1 else channels), together), channels - 1)
        what = "weights 3x3, shifts, bias and multipliers of 16 channels at a time"
        table = Table(
            "records",
            "int8_t",
            tuple(records(taps[:, every], folded, every[channel_order(len(every), folded.spec)]).tolist()),
            what,
            4,
        )
        return folded.layer(
            "convolution/depthwise_3x3_mve",
            (table,),
            problem.window_params + params,
            scratch=(Scratch("taps", POINTER_BYTES * 10 + pixel + (LANES * 9 if together > 1 else 0)),),
            ahead=ahead,
            headers=_HEADERS,
        )
    order = np.tile(np.arange(channels), together)[channel_order(channels * together, folded.spec)]
    taps = np.tile(taps, (1, together))
    outside = 0 if _inside(problem.window_params) else pixel
    outside_param = Param("outside", "int32_t", outside, "zero points for taps outside of the input")
    scratch = 4 * LANES + POINTER_BYTES * len(taps) + outside + (LANES if together > 1 else 0)
    weights = packed_table(pack_mve_taps(taps), (*problem.kernel, channels), "16 channels at a time", 1)
    return folded.layer(
        "convolution/depthwise_conv_2d_mve",
        ordered_tables(folded, weights, order),
        (*problem.window_params, *params[:3], outside_param, *params[3:]),
        scratch=(Scratch("sums", scratch),),
        ahead=ahead,
        headers=OUTPUT_HEADERS,
    )


def _inside(params: Sequence[Param]) -> bool:
    """Whether no window reaches outside of the input."""
    p = {param.name: int(param.value) for param in params}
    return p["pad_top"] == p["pad_left"] == 0 and all(
        (p[f"out_{side}"] - 1) * p[f"stride_{side}"] + (p[f"kernel_{side}"] - 1) * p[f"dilation_{side}"]
        < p[f"in_{side}"]
        for side in "hw"
    )


def records(taps: Array, folded: FoldedWeights, order: NDArray[np.int64]) -> NDArray[np.int8]:
    """For every 16 channels of filters [9, C]: weights tap by tap, shifts, bias and multipliers, or bias and factors, as bytes.

    order: of the channels in all but the weights.
    """
    count = len(order) // LANES

    def record(values: Sequence[float], dtype: str) -> NDArray[np.int8]:
        spread = (np.full(len(order), values[0], dtype) if len(values) == 1 else np.array(values, dtype))[order]
        return spread.view(np.int8).reshape(count, -1)

    scale, start = folded.scale, np.asarray(folded.bias[order], "<i4").view(np.int8).reshape(count, -1)
    parts = [taps.astype(np.int8).reshape(9, -1, LANES).transpose(1, 0, 2).reshape(count, -1)]
    if scale.q31:
        parts += [record(scale.shift, "i1"), start, record(scale.q31, "<i4")]
    else:
        parts += [start, record(scale.real, "<f4")]
    return np.concatenate(parts, axis=1).reshape(-1)
