"""Convolutions and matrix products on cores without instructions for pairs or vectors: two products by one multiplication.

The values of two pixels are the halves of one word; a weight times that word is both products. The products with two weights
add up within 16 bits, then the kernel splits the two sums (c_runtime/scalar/emitc_scalar.h says how). Where a window or a row
reaches outside the input, the kernels read the zero point instead. So one bias holds its term for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.kernels.mac.problem import (
    POINTER_BYTES,
    FoldedWeights,
    MacProblem,
    NoKernel,
    factor_parts,
    folded_weights,
    packed_table,
    simplified,
)
from emitc.kernels.mac.weight_packing import shape_text, weight_table, with_zeros
from emitc.kernels.shared.windows import whole_window
from emitc.layer import ByRows, Layer, Param, Scratch, Table, WindowOrder, by_channel
from emitc.numerics.requantize import Int64

HEADERS = ("emitc_scalar.h",)
_LARGEST_LEFT = 30
_SMALL_SUM, _SMALL_SHIFT = 1 << 20, 13
"""Sums below this, with shifts up to this, are requantized by three products of 32 bits."""
PIXELS = 4
"""Output pixels that share the weights that are read."""
_LEFT_OVER, _LEFT_OVER_FROM_FOURS = 0.85, 0.5
"""What a pixel that is left over takes of a tile's time: counted on RV32; on a Cortex-M0 it is about half of it."""
_NOT_IN_TILES = Reason("the number of output pixels is not a multiple of 4", "a multiple of 4 output pixels")
_NOT_3X3 = Reason("the window is not 3x3 without dilation", "a 3x3 window")
_NOT_BY_COLUMNS = Reason(
    "its windows reach more than a row or a column beyond the input, or have a stride of three columns",
    "a stride of 1 or 2 and borders of one pixel",
)
_WITHIN = 255
"""Sum of the magnitudes of weights whose products with int8 values have 16 bits together."""
_MOST_PARTS, _FARTHEST = 127, 127
_TOGETHER = 2
"""Filters whose products with a value are made together."""
_PART_COST, _FILTER_COST = 2.4, 0.75
"""Of the instructions that four weights save, what a part costs, and what the end of a filter does."""
_EIGHT = 8
"""Filters of a row whose sums are made together, and values whose products are added before they are split."""
_DEEPEST, _PART_OF_EIGHTS = 32767, 10
"""Values of a row, and parts of eight filters, that int16 counts. Weights that must have no part, for each that has one."""
_NO_EIGHTS = Reason(
    "its weights are too large for eight products at a time, or its values or filters not enough",
    "eight filters or more and a multiple of eight values",
)
_NO_FOURS = Reason("its weights are too large for four products at a time", "smaller weights")
_PAIR_OVERFLOWS = Reason("two adjacent weights are -128", "weights of -127 to 127")


def fold(problem: MacProblem, *, mul32: bool) -> FoldedWeights:
    """The numbers of the kernels; raises NoKernel where there are none. mul32: for cores whose products have 32 bits only."""
    folded = simplified(folded_weights(problem))
    largest, scale = folded.largest_sum, folded.scale
    folded = folded.short_requantization(2 * largest)  # the short functions take four times the sum
    spec = folded.spec
    if scale.real and _exact_in_integers(folded):
        spec = replace(spec, suffix=spec.suffix.replace("_f32", "_exact"), exact_rounding=True)
    if mul32 and spec.rounding and largest < _SMALL_SUM and min(scale.shift) >= -_SMALL_SHIFT:
        spec = spec.extended("_small", small_sums=True)
    return replace(folded, spec=spec)


def _exact_in_integers(folded: FoldedWeights) -> bool:
    """Whether every sum, shifted by its float32 factor's exponent, stays within int32."""
    _, left = factor_parts(folded.scale)
    shifted = folded.largest_sums << np.clip(left, 0, _LARGEST_LEFT)
    return bool((left >= 0).all() and (left <= _LARGEST_LEFT).all() and (shifted < 1 << 31).all())


def convolution(problem: MacProblem, *, mul32: bool = False, fours: bool = False) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none.

    mul32: as in `fold`. fours: the products of four weights are added before they are split, for cores with many registers.
    """
    problem.require_runs()
    folded = fold(problem, mul32=mul32)
    is_product, window = problem.is_matrix_product, problem.window
    reads_rows = is_product and not _in_tiles(problem.pixels)
    if fours and reads_rows:
        return _eights(folded)
    if fours:
        weights = _fours_table(folded.filters, problem.filters.shape)
        if weights is None:
            raise NoKernel(_NO_FOURS)
        folded = replace(folded, spec=folded.spec.extended("_fours", window="fours"))
    elif not (window is None and reads_rows) and not _pairs_fit(folded.filters):
        raise NoKernel(_PAIR_OVERFLOWS)
    elif reads_rows:
        return _rows(folded, mul32=mul32)
    else:
        weights = _paired_table(folded.filters, problem.filters.shape)
    headers = (*HEADERS, "emitc_scalar_fours.h") if fours else HEADERS
    pairs = -(-folded.filters.shape[1] // 4) * 2 if fours else -(-folded.filters.shape[1] // 2)
    pairs_param = Param("pairs", "int32_t", pairs, "of a filter's weights")
    words = 4 * PIXELS * pairs
    if is_product:
        return folded.layer(
            "matrix/matrix_halves",
            weights,
            (*problem.size_params, pairs_param, *problem.output_limits),
            scratch=(Scratch("windows", words),),
            by_rows=ByRows(counted="rows"),
            headers=headers,
        )
    if not _in_tiles(problem.pixels // problem.bound.output.shape[0]):
        raise NoKernel(_NOT_IN_TILES)
    # Where nothing is outside the input, no row of a window is put together.
    _, _, kernel_w, depth = problem.filters.shape
    edge = -(-2 * kernel_w * depth // 4) * 4 if window and window.padding.any else 0
    edge_param = Param("edge", "int32_t", edge, "bytes for rows of windows that are put together")
    return folded.layer(
        "convolution/conv_2d_halves",
        weights,
        (*problem.window_params, pairs_param, edge_param, problem.zero_point, *problem.output_limits),
        scratch=(Scratch("windows", edge + words),),
        by_rows=ByRows(window=True, left_over=_LEFT_OVER_FROM_FOURS if fours else _LEFT_OVER),
        headers=headers,
    )


def depthwise(problem: MacProblem, *, mul32: bool = False) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none.

    Four pixels are computed at a time, channel by channel. So the last one's first channels are stored before the first one's
    window is read for the last time.
    """
    channels, y = problem.channels, problem.bound.output
    if not _in_tiles(y.shape[1] * y.shape[2]):
        raise NoKernel(_NOT_IN_TILES)
    folded = fold(problem, mul32=mul32)
    is_3x3 = problem.kernel == (3, 3)
    if is_3x3:
        folded = replace(folded, spec=folded.spec.extended("_3x3", window="3x3"))
    what = f"{shape_text(problem.filters.shape)}, channel by channel"
    taps = 0 if is_3x3 else PIXELS * POINTER_BYTES * folded.filters.shape[1]
    layer = folded.layer(
        "convolution/depthwise_conv_2d_scalar",
        Table("weights", "int8_t", tuple(folded.filters.reshape(-1).tolist()), what, pixels_per_load=1),
        (*problem.window_params, problem.zero_point, *problem.output_limits),
        scratch=(Scratch("taps", channels + taps),),
        ahead=by_channel(channels, channels, 1, 1, 1),
        headers=HEADERS,
    )
    return walked(layer, tile=PIXELS)


def depthwise_columns(problem: MacProblem) -> Layer:
    """The layer of a depthwise 3x3 convolution whose weights of a channel stay in registers; raises NoKernel where there is none.

    A column of values meets all weights before the next one is read. Only a channel's own values lie where its outputs go, if
    the distance from the input to the output is a number of whole pixels.
    """
    window, (_, out_h, out_w, channels) = problem.window, problem.bound.output.shape
    _, in_h, in_w, _ = problem.bound.input(0).shape
    if problem.kernel != (3, 3) or window is None or (window.dilation_h, window.dilation_w) != (1, 1):
        raise NoKernel(_NOT_3X3)
    below = (out_h - 1) * window.stride_h - window.padding.top + 3 - in_h
    beyond = (out_w - 1) * window.stride_w - window.padding.left + 3 - in_w
    if window.stride_w > 2 or max(window.padding.top, below, window.padding.left, beyond) > 1:
        raise NoKernel(_NOT_BY_COLUMNS)
    folded = fold(problem, mul32=False)
    stride = str(window.stride_w)
    folded = replace(folded, spec=folded.spec.extended(f"_step{stride}", window=stride))
    what = f"{shape_text(problem.filters.shape)}, channel by channel"
    layer = folded.layer(
        "convolution/depthwise_3x3_gpr31",
        Table("weights", "int8_t", tuple(folded.filters.reshape(-1).tolist()), what, pixels_per_load=out_h * out_w),
        (*problem.window_params, problem.zero_point, *problem.output_limits),
        headers=HEADERS,
    )
    return walked(layer, multiple=channels)  # one channel after the other


def walked(layer: Layer, **order: int) -> Layer:
    """The layer of a kernel that walks over its windows in another order, whose fields these are."""
    orders = [replace(o.order, **order) for o in layer.overlaps if isinstance(o.order, WindowOrder)]
    return replace(layer, overlaps=tuple(replace(o, order=w) for o, w in zip(layer.overlaps, orders, strict=True)))


def _rows(folded: FoldedWeights, *, mul32: bool) -> Layer:
    """The layer of a matrix product whose rows are read in place, one by one."""
    problem = folded.problem
    return folded.layer(
        "matrix/row_narrow" if mul32 else "matrix/row_scalar",
        weight_table(folded.filters.astype(np.int8), interleaved=not mul32),
        (*problem.size_params, *problem.output_limits),
        ahead=whole_window(problem.channels, 4, 1),
        by_rows=ByRows(counted="rows", outputs=4),
        headers=HEADERS,
    )


def _eights(folded: FoldedWeights) -> Layer:
    """As `_rows`, for eight filters at a time; raises NoKernel where there is none.

    c_runtime/scalar/emitc_scalar_eights.h says how their sums are made.
    """
    problem, (out, depth) = folded.problem, folded.filters.shape
    if out < _EIGHT or depth % _EIGHT or depth > _DEEPEST:
        raise NoKernel(_NO_EIGHTS)
    groups = folded.filters.reshape(out, -1, _EIGHT).copy()
    whole = out - out % _EIGHT
    blocks: list[list[tuple[int, int]]] = [[] for _ in range(0, whole, _EIGHT)]
    for filter_ in range(whole):
        lost = ((at, _EIGHT * part + filter_ % _EIGHT) for at, part in _parts(groups[filter_]) if part)
        blocks[filter_ // _EIGHT].extend(lost)
    missing = sum(map(len, blocks))
    if missing * _PART_OF_EIGHTS >= whole * depth or max(map(len, blocks)) > _DEEPEST:
        raise NoKernel(_NO_EIGHTS)
    weights = groups.reshape(out, depth).astype(np.int8)
    biased = (weights[:whole].reshape(-1, _EIGHT, depth) ^ -128).transpose(0, 2, 1)
    values = np.concatenate([biased.reshape(-1), folded.filters[whole:].reshape(-1)])
    what = "eight filters value by value, plus 128, then those left over"
    tables = folded.tables(packed_table(values, problem.filters.shape, what, 1))
    if missing:
        folded = replace(folded, spec=folded.spec.extended("_parts", window="parts"))
        listed = [value for block in blocks for value in (len(block), *(number for pair in block for number in pair))]
        tables += (Table("parts", "int16_t", tuple(listed), "of weights, which the sums of eight filters lack"),)
    return folded.layer(
        "mac/row_eights",
        tables,
        (*problem.size_params, *problem.output_limits),
        ahead=whole_window(problem.channels, _EIGHT, 1),
        by_rows=ByRows(counted="rows", outputs=0 if missing else _EIGHT),
        headers=(*HEADERS, "emitc_scalar_eights.h"),
    )


def _in_tiles(pixels: int) -> bool:
    """Whether tiles of four pixels are worth it; each pixel that is left over costs as much as a tile."""
    return 5 * (pixels // PIXELS + pixels % PIXELS) * PIXELS <= 8 * pixels


def _fours_table(filters: Int64, shape: tuple[int, ...]) -> Table | None:
    """Weights for four at a time, each filter with what is missing of its weights; None where that costs more than it saves.

    emitc_scalar_fours.h says how it is kept. shape: as in `_paired_table`.
    """
    fours = with_zeros(filters, 4).reshape(len(filters), -1, 4)
    parts = [_parts(filter_) for filter_ in fours]
    count = sum(map(len, parts))
    if count * _PART_COST + len(fours) * _FILTER_COST >= fours.shape[0] * fours.shape[1]:
        return None
    values: list[int] = []
    whole = len(fours) - len(fours) % _TOGETHER
    for first in [*range(0, whole, _TOGETHER), *range(whole, len(fours))]:
        block = slice(first, first + (_TOGETHER if first < whole else 1))
        values += fours[block].transpose(1, 0, 2).reshape(-1).tolist()
        values += [value for missing in parts[block] for value in _runs(missing)]
    what = f"{shape_text(shape)}, four at a time of two filters, and what is missing of each filter's"
    return Table("weights", "int8_t", tuple(values), what, pixels_per_load=PIXELS)


def _runs(parts: list[tuple[int, int]]) -> list[int]:
    """Parts of a filter in runs whose products have 16 bits together, each with its length before it; and a run of none."""
    values: list[int] = []
    before = 0
    run: list[int] = []
    total = 0
    for place, part in parts:
        if total + abs(part) > _WITHIN or len(run) == 2 * _MOST_PARTS:
            values += [len(run) // 2, *run]
            run, total = [], 0
        run += [place - before, part]
        total += abs(part)
        before = place
    return values + ([len(run) // 2, *run] if run else []) + [0]


def _parts(fours: Int64) -> list[tuple[int, int]]:
    """Makes weights smaller, so that the products of int8 values with a group of them always add up within 16 bits.

    fours: a filter [K / 4, 4], or in groups of another size, which is changed. For each change: the weight's place in the filter
    and what it lost. A change of nothing stands wherever a place is more than _FARTHEST weights after the one before.
    """
    clipped: list[tuple[int, int]] = []
    before = 0
    for group in np.flatnonzero(np.abs(fours).sum(axis=1) > _WITHIN).tolist():
        four = fours[group].tolist()
        while (excess := sum(map(abs, four)) - _WITHIN) > 0:
            sizes = [abs(weight) for weight in four]
            place = sizes.index(max(sizes))
            size = min(excess, sizes[place], 127)
            part = size if four[place] > 0 else -size
            four[place] -= part
            at = fours.shape[1] * group + place
            while at - before > _FARTHEST:
                before += _FARTHEST
                clipped.append((before, 0))
            clipped.append((at, part))
            before = at
        fours[group] = four
    return sorted(clipped)


def _pairs_fit(filters: Int64) -> bool:
    """Whether the products of int8 values with two weights always add up within 16 bits."""
    pairs = with_zeros(filters, 2).reshape(len(filters), -1, 2)
    low = np.minimum(-128 * pairs, 127 * pairs).sum(axis=2)
    high = np.maximum(-128 * pairs, 127 * pairs).sum(axis=2)
    return bool(low.min() >= -(1 << 15) and high.max() < 1 << 15)


def _paired_table(filters: Int64, shape: tuple[int, ...]) -> Table:
    """Weights for two at a time. shape: of them in the model."""
    what = shape_text(shape) + (", a zero after each filter" if filters.shape[1] % 2 else "")
    return Table("weights", "int8_t", tuple(with_zeros(filters, 2).reshape(-1).tolist()), what, pixels_per_load=PIXELS)
