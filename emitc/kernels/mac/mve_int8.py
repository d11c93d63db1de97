"""Convolutions and matrix products on cores with Arm's vector extension MVE: layers of int8.

One instruction multiplies 16 bytes by 16 bytes and adds the products to one sum. A tile is two pixels by four channels: each
register of weights is used twice, each register of values four times. Weights lie in the order in which the kernel reads them.
Where a window reaches outside the input, the kernels read the zero point instead, so that one bias holds its term for all pixels.

Depthwise convolutions take 16 channels at a time, tap by tap. Products of bytes have 15 bits and a sign, so that those of two
taps are added before they are widened. Of images with few channels a register holds several neighbouring pixels, where their
windows are neighbours too. A tap outside the input reads the zero point, so that one bias holds its term for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array
from emitc.kernels.mac.accumulation import Requantization, requantization_tables
from emitc.kernels.mac.problem import (
    FULL,
    POINTER_BYTES,
    FoldedWeights,
    MacProblem,
    NoKernel,
    folded_weights,
    packed_table,
    rounding,
)
from emitc.kernels.mac.weight_packing import LANES, pack_mve_blocks, pack_mve_groups, pack_mve_taps, shape_text
from emitc.kernels.shared.windows import BY_ROWS
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Scratch, Table, integers

HEADER = "emitc_mve.h"
HEADERS = (HEADER, "emitc_mve_dot_int8.h")
"""Of kernels that add up products."""
OUTPUT_HEADERS = (*HEADERS, "emitc_mve_outputs.h")
"""Of those that compute outputs of 16 channels at a time."""
PAIR_HEADERS = (*HEADERS, "emitc_mve_pairs.h")
"""Of those that compute outputs of two pixels at a time."""
ROW_HEADERS = (*HEADERS, "emitc_mve_row.h")
"""Of those that compute outputs of one row of values."""
CHANNELS = 4
"""Output channels of a tile; their sums make a register."""
_LARGEST_OUTPUT = 2.0**30
"""Below it no zero point takes an output out of 32 bits."""
_LONG_ROW = 64
"""From so many values on, a row with fewer than four outputs has a kernel of its own, which is short."""
_GROUP, _MOST_ZEROS = 8, 512
"""Output channels of a row that are made at a time, and the most weights of 0 that may fill the last group."""
_CHUNK = 16
"""Output channels of one row whose sums are kept at a time."""


def fold(problem: MacProblem) -> FoldedWeights:
    """The numbers of the kernels for vectors; raises NoKernel where there are none.

    They round halves up where negative results do not matter. They round as the portable kernels do where there are shifts to
    the left, or sums so large that an output could wrap.
    """
    folded = folded_weights(problem)
    scale, clamped = folded.scale, problem.clamp != FULL
    ending = "_clamped" if clamped else ""
    if not scale.q31:
        return replace(folded, spec=replace(PLAIN, suffix=f"_f32{ending}", fixed_point=False, clamped=clamped))
    largest = folded.largest_sums * (np.array(scale.q31) * 0.5**31) * 2.0 ** np.array(scale.shift)
    if max(scale.shift) > 0 or largest.max() >= _LARGEST_OUTPUT:
        return replace(folded, spec=replace(PLAIN, suffix="_any", rounding="any"))
    short = rounding(problem)
    return replace(folded, spec=replace(PLAIN, suffix=f"_{short}{ending}", rounding=short, clamped=clamped))


def channel_order(out: int, spec: KernelSpec) -> NDArray[np.int64]:
    """In which order sums of output channels lie: 16 at a time, such that registers of four narrow to registers in order.

    >>> channel_order(17, replace(PLAIN, rounding="up")).tolist()
    [0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15, 16]
    """
    order = np.arange(out, dtype=np.int64)
    if spec.rounding != "any":
        whole = out // LANES * LANES
        order[:whole] = order[:whole].reshape(-1, 4, 2, 2).transpose(0, 3, 2, 1).reshape(-1)
    return order


def scaling_tables(scale: Requantization, spec: KernelSpec, order: NDArray[np.int64]) -> tuple[Table, ...]:
    """Multipliers and shifts in the order of the channels; those for all channels repeated for a group of channels."""
    tables = requantization_tables(scale, spec)
    if scale.per_channel:
        return tuple(replace(table, values=tuple(table.values[i] for i in order)) for table in tables)
    count = next(group for group in (16, 8, 4) if len(order) >= group or group == CHANNELS)
    return tuple(replace(table, values=table.values * count) for table in tables)


def ordered_tables(folded: FoldedWeights, weights: Table, order: NDArray[np.int64]) -> tuple[Table, ...]:
    """Weights, and bias, multipliers and shifts in the order of the channels."""
    bias = replace(folded.bias_table, values=tuple(folded.bias[order].tolist()))
    return (weights, bias, *scaling_tables(folded.scale, folded.spec, order))


def inner_columns(problem: MacProblem) -> tuple[Param, ...]:
    """The output columns whose windows lie wholly inside the input's width."""
    p = {param.name: int(param.value) for param in problem.window_params}
    first = -(-p["pad_left"] // p["stride_w"])
    end = (p["in_w"] - 1 - (p["kernel_w"] - 1) * p["dilation_w"] + p["pad_left"]) // p["stride_w"] + 1
    end = max(0, min(p["out_w"], end))
    return integers(inner_first=(min(first, end), "output columns whose windows are inside"), inner_end=end)


def convolution(problem: MacProblem) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none."""
    problem.require_runs()
    window = problem.window
    whole_image = window is None or (not window.padding.any and window.dilation_h == 1)
    if whole_image and problem.pixels == 1 and problem.matrix.shape[1] == problem.bound.input(0).elements:
        return _row(problem)
    return _pixel_pairs(problem)


def _pixel_pairs(problem: MacProblem) -> Layer:
    out, depth = problem.matrix.shape
    if out < CHANNELS and depth < _LONG_ROW:
        raise NoKernel("it has fewer than four output channels")
    folded = fold(problem)
    direct = _is_direct(problem)
    size = depth if direct else -(-depth // LANES) * LANES
    values = np.pad(_records(folded, size, range(CHANNELS)), (0, LANES))  # the kernel loads the next weights ahead
    what = f"{shape_text((out, depth))}, with bias and scaling of four channels at a time"
    weights = Table("weights", "int8_t", tuple(values.tolist()), what, 4, pixels_per_load=2)
    params = (
        *problem.window_params,
        *inner_columns(problem),
        Param("direct", "int32_t", int(direct), "1: every window is one run of the input"),
        problem.zero_point,
        *problem.output_params,
    )
    return folded.layer(
        "convolution/conv_2d_mve",
        (weights,),
        params,
        scratch=(Scratch("windows", 2 * LANES * -(-out // LANES) + (0 if direct else 2 * size)),),
        by_rows=None if problem.window is None else BY_ROWS,
        headers=PAIR_HEADERS,
    )


def _is_direct(problem: MacProblem) -> bool:
    """Whether each window is one run of the input."""
    window = problem.window
    return window is None or (problem.kernel[0] == 1 and not window.padding.any)


def _records(folded: FoldedWeights, size: int, order: Sequence[int]) -> NDArray[np.int8]:
    """For every few filters [O, K] their weights with zeros up to `size`, bias, multipliers and shifts, or factors, as bytes.

    order: of the filters in a group. Filters of zeros fill the last group. Weights: the first size % 16 of each filter, then
    16 of each at a time.
    """
    (out, depth), group, scale = folded.filters.shape, len(order), folded.scale
    count = -(-out // group)
    places = (group * np.arange(count)[:, None] + np.array(order)).reshape(-1)

    def per_filter(values: Sequence[float] | NDArray[np.int64], dtype: str) -> NDArray[np.int8]:
        spread = np.full(out, values[0], dtype) if len(values) == 1 else np.array(values, dtype)
        ordered: NDArray[np.int8] = np.pad(spread, (0, count * group - out))[places].view(np.int8)
        return ordered.reshape(count, -1)

    filters = np.pad(folded.filters, ((0, count * group - out), (0, size - depth)))[places].astype(np.int8)
    parts = [pack_mve_groups(filters, group), per_filter(folded.bias, "<i4")]
    parts += (
        [per_filter(scale.q31, "<i4"), per_filter(scale.shift, "i1")] if scale.q31 else [per_filter(scale.real, "<f4")]
    )
    values: NDArray[np.int8] = np.concatenate(parts, axis=1).reshape(-1)
    return values


def _row(problem: MacProblem) -> Layer:
    folded = fold(problem)
    out, depth = folded.filters.shape
    params = (*problem.size_params[1:], *problem.output_params)
    if out < CHANNELS and depth >= _LONG_ROW:
        spec = PLAIN if folded.spec.fixed_point else replace(PLAIN, suffix="_f32", fixed_point=False)
        tables = _tables(folded)
        return replace(folded, spec=spec).layer(
            "matrix/dots_mve", tables, params, ahead=out - 1 or None, by_rows=None, headers=HEADERS
        )
    if -out % _GROUP * depth > _MOST_ZEROS:
        return _pixel_pairs(problem)
    spec = folded.spec
    if spec.rounding == "up":  # few outputs: code for a rounding of its own would cost more than it saves
        spec = replace(spec, rounding="away", suffix=spec.suffix.replace("_up", "_away"))
    what = f"{shape_text((out, depth))}, with bias and scaling of eight channels at a time"
    values = _records(folded, depth, (0, 2, 4, 6, 1, 3, 5, 7))
    weights = Table("weights", "int8_t", tuple(values.tolist()), what, 4, pixels_per_load=1)
    ahead = (out - 1) // _CHUNK * _CHUNK or None
    return replace(folded, spec=spec).layer(
        "matrix/row_mve", (weights,), params, ahead=ahead, by_rows=ByRows(outputs=_GROUP), headers=ROW_HEADERS
    )


def _tables(folded: FoldedWeights) -> tuple[Table, ...]:
    order = np.arange(len(folded.filters))
    values, shape = pack_mve_blocks(folded.filters), folded.filters.shape
    return ordered_tables(folded, packed_table(values, shape, "arranged for registers of 16", 2), order)


_DEPTHWISE_HEADERS = (*OUTPUT_HEADERS, "emitc_mve_depthwise.h")


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
        values = records(taps[:, every], folded, every[channel_order(len(every), folded.spec)])
        table = Table("records", "int8_t", tuple(values.tolist()), what, 4)
        return folded.layer(
            "convolution/depthwise_3x3_mve",
            (table,),
            problem.window_params + params,
            scratch=(Scratch("taps", POINTER_BYTES * 10 + pixel + (LANES * 9 if together > 1 else 0)),),
            ahead=ahead,
            headers=_DEPTHWISE_HEADERS,
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
