"""Convolutions and matrix products on cores with Arm's vector extension MVE: layers of int8.

One instruction multiplies 16 bytes by 16 bytes and adds the products to one sum. A tile is two pixels by four channels: each
register of weights is used twice, each register of values four times. Weights lie in the order in which the kernel reads them.
Where a window reaches outside the input, the kernels read the zero point instead, so that one bias holds its term for all pixels.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.kernels.mac.problem import DILATED, FULL, FoldedWeights, MacProblem, packed_table, rounding
from emitc.kernels.mac.requantization import Requantization, requantization_tables
from emitc.kernels.mac.weight_packing import LANES, pack_mve_blocks
from emitc.kernels.shared.windows import BY_ROWS
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Scratch, Table

HEADER = "emitc_mve.h"
HEADERS = (HEADER, "emitc_mve_dot_int8.h")
"""Of kernels that add up products."""
OUTPUT_HEADERS = (*HEADERS, "emitc_mve_outputs.h")
"""Of those that compute outputs of 16 channels at a time."""
CHANNELS = 4
"""Output channels of a tile; their sums make a register."""
_LARGEST_OUTPUT = 2.0**30
"""Below it no zero point takes an output out of 32 bits."""
_LONG_ROW = 64
"""From so many values on, a row with fewer than four outputs has a kernel of its own, which is short."""
_CHUNK = 16
"""Output channels of one row whose sums are kept at a time."""


def fold(problem: MacProblem) -> FoldedWeights | str:
    """The numbers of the kernels for vectors; or why there are none.

    They round halves up where negative results do not matter. They round as the portable kernels do where there are shifts to
    the left, or sums so large that an output could wrap.
    """
    folded = problem.fold()
    if isinstance(folded, str):
        return folded
    scale, clamped = folded.scale, problem.clamp != FULL
    ending = "_clamped" if clamped else ""
    if not scale.q31:
        return replace(folded, spec=replace(PLAIN, suffix=f"_f32{ending}", fixed_point=False, clamped=clamped))
    largest = folded.largest_sums * (np.array(scale.q31) * 0.5**31) * 2.0 ** np.array(scale.shift)
    if max(scale.shift) > 0 or largest.max() >= _LARGEST_OUTPUT:
        return replace(folded, spec=replace(PLAIN, suffix="_any", rounding="any"))
    short = rounding(problem)
    return replace(folded, spec=replace(PLAIN, suffix=f"_{short}{ending}", rounding=short, clamped=clamped))


def channel_order(out: int, spec: KernelSpec, *, eights: bool) -> NDArray[np.int64]:
    """In which order sums of output channels lie: 16 at a time, such that registers of four narrow to registers in order.

    eights: then the next 8 for the same reason.

    >>> channel_order(17, replace(PLAIN, rounding="up"), eights=True).tolist()
    [0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15, 16]
    >>> channel_order(9, replace(PLAIN, rounding="up"), eights=True).tolist()
    [0, 2, 4, 6, 1, 3, 5, 7, 8]
    """
    order = np.arange(out, dtype=np.int64)
    if spec.rounding != "any":
        whole = out // LANES * LANES
        order[:whole] = order[:whole].reshape(-1, 4, 2, 2).transpose(0, 3, 2, 1).reshape(-1)
        if eights and out - whole >= LANES // 2:
            order[whole : whole + 8] = order[whole : whole + 8].reshape(4, 2).T.reshape(-1)
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


def inner_columns(problem: MacProblem) -> tuple[Param, Param]:
    """The output columns whose windows lie wholly inside the input's width."""
    p = {param.name: int(param.value) for param in problem.window_params}
    first = -(-p["pad_left"] // p["stride_w"])
    end = (p["in_w"] - 1 - (p["kernel_w"] - 1) * p["dilation_w"] + p["pad_left"]) // p["stride_w"] + 1
    end = max(0, min(p["out_w"], end))
    return (
        Param("inner_first", "int32_t", min(first, end), "output columns whose windows are inside"),
        Param("inner_end", "int32_t", end),
    )


def convolution(problem: MacProblem) -> Layer | str:
    """The layer of a convolution without groups or of a fully connected layer; or why there is none."""
    if problem.is_dilated:
        return DILATED
    window = problem.window
    whole_image = window is None or (not window.padding.any and window.dilation_h == 1)
    if whole_image and problem.pixels == 1 and problem.matrix.shape[1] == problem.bound.input(0).elements:
        return _row(problem)
    return _pixel_pairs(problem)


def _pixel_pairs(problem: MacProblem) -> Layer | str:
    window, (out, depth) = problem.window, problem.matrix.shape
    if out < CHANNELS and depth < _LONG_ROW:
        return "it has fewer than four output channels"
    folded = fold(problem)
    if isinstance(folded, str):
        return folded
    tables = _tables(folded, pixels_per_load=2, eights=True)
    if out % 8 or folded.spec.rounding == "any":
        folded = replace(folded, spec=folded.spec.extended("_uneven", has_tail=True))
    in_place = window is None or (problem.kernel[0] == 1 and not window.padding.any)
    windows = 0 if in_place else -(-2 * depth // LANES) * LANES
    return folded.layer(
        "convolution/conv_2d_mve",
        tables,
        (*problem.window_params, *inner_columns(problem), problem.zero_point, *problem.output_params),
        scratch=(Scratch("windows", windows + 8 * 4 * -(-out // CHANNELS)),),
        by_rows=None if window is None else BY_ROWS,
        headers=OUTPUT_HEADERS,
    )


def _row(problem: MacProblem) -> Layer | str:
    folded = fold(problem)
    if isinstance(folded, str):
        return folded
    out, depth = folded.filters.shape
    is_long = out < CHANNELS and depth >= _LONG_ROW
    template, ahead, spec = "matrix/row_mve", (out - 1) // _CHUNK * _CHUNK or None, folded.spec
    if is_long:
        template, ahead = "matrix/dots_mve", out - 1 or None
        spec = PLAIN if spec.fixed_point else replace(PLAIN, suffix="_f32", fixed_point=False)
    elif spec.rounding == "up":  # few outputs: code for a rounding of its own would cost more than it saves
        spec = replace(spec, rounding="away", suffix=spec.suffix.replace("_up", "_away"))
    tables = _tables(folded, pixels_per_load=2 if is_long else 1, eights=False)
    params = (*problem.size_params[1:], *problem.output_params)
    headers = HEADERS if is_long else OUTPUT_HEADERS
    return replace(folded, spec=spec).layer(template, tables, params, ahead=ahead, by_rows=None, headers=headers)


def _tables(folded: FoldedWeights, *, pixels_per_load: int, eights: bool) -> tuple[Table, ...]:
    order = channel_order(len(folded.filters), folded.spec, eights=eights)
    values, shape = pack_mve_blocks(folded.filters[order]), folded.filters.shape
    return ordered_tables(folded, packed_table(values, shape, "arranged for registers of 16", pixels_per_load), order)
