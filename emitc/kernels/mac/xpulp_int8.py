"""Convolutions and matrix products on cores with the CORE-V extension of RISC-V (Xpulp): layers of int8.

One instruction multiplies four bytes by four bytes and adds the products to a sum. A tile is four pixels by four channels, so
that 16 such instructions need eight loads. Windows in scratch are rows of whole words. Their last values may meet weights of 0.

Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from dataclasses import replace

from emitc.kernels.mac import four_pixels, scalar_int8
from emitc.kernels.mac.four_pixels import PIXELS, matrix, reads_rows_in_place, tiled
from emitc.kernels.mac.problem import DILATED, SEVERAL_FILTERS, FoldedWeights, MacProblem, NoKernel, packed_table
from emitc.kernels.mac.short_multipliers import short_multipliers
from emitc.kernels.mac.weight_packing import pack_word_blocks, shape_text, with_zeros
from emitc.kernels.shared.windows import BY_ROWS, whole_window
from emitc.layer import ByRows, KernelSpec, Layer, Scratch, Table, integers

HEADERS = (*scalar_int8.HEADERS, "emitc_xpulp.h")
_DROPPED, _DROPPED_3X3 = 6, 5
"""Bits that short multipliers lack, as the kernels say: sums of nine products are smaller, and leave room for a bit more."""
_ORDER = "four filters word by word"
_BANDS, _BAND_BYTES = 5, 2048
"""A depthwise convolution makes a fifth of its rows at a time, or so many bytes; so far its stores get ahead of its reads."""

_WIDE_ROW = 16
"""Output pixels of a row from which on it is worth to make single rows: the input's rows become planes again for each."""


def fold(problem: MacProblem) -> FoldedWeights:
    """The numbers of the kernels; raises NoKernel where there are none. The short functions are those of these cores."""
    folded = scalar_int8.fold(problem, mul32=False)
    if not folded.spec.rounding:
        return folded
    return replace(folded, spec=replace(folded.spec, rounding=f"{folded.spec.rounding}_xpulp"))


def _shortened(folded: FoldedWeights, dropped: int) -> FoldedWeights:
    """The same with multipliers that lack so many bits, where they keep all outputs."""
    spec = folded.spec
    scale = short_multipliers(folded, dropped) if spec.rounding == "up_xpulp" and not spec.clamped else None
    if scale is None:
        return folded
    return replace(folded, scale=scale, spec=folded.spec.extended("_small", small_sums=True))


def convolution(problem: MacProblem) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none."""
    if problem.is_dilated:
        raise NoKernel(DILATED)
    folded = _shortened(fold(problem), _DROPPED)
    if problem.is_matrix_product and problem.pixels < PIXELS:
        return _rows(folded)
    filters = with_zeros(folded.filters, 4)
    size = filters.shape[1]
    weights = packed_table(pack_word_blocks(filters), problem.filters.shape, _ORDER, PIXELS)
    if reads_rows_in_place(problem) and filters.shape == folded.filters.shape:
        return tiled(matrix(folded, "mac/matrix_xpulp", weights, size, 4, HEADERS))
    return four_pixels.convolution(folded, "mac/conv_2d_xpulp", weights, size, HEADERS)


def _rows(folded: FoldedWeights) -> Layer:
    """The layer of a matrix product whose rows are read in place, one by one."""
    problem = folded.problem
    return folded.layer(
        "mac/row_xpulp",
        packed_table(pack_word_blocks(folded.filters), folded.filters.shape, _ORDER, 1),
        (*problem.size_params, *problem.output_limits),
        ahead=whole_window(problem.channels, 4, 1),
        by_rows=ByRows(counted="rows"),
        headers=HEADERS,
    )


def depthwise(problem: MacProblem) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none.

    Channels become planes in scratch, for some rows of outputs at a time, so that a word has neighbours along a row.
    """
    channels, (kernel_h, kernel_w) = problem.channels, problem.kernel
    if channels != problem.bound.input(0).shape[3]:
        raise NoKernel(SEVERAL_FILTERS)
    if channels < 4:
        raise NoKernel("it has fewer than four channels")
    if problem.is_dilated:
        raise NoKernel(DILATED)
    folded = fold(problem)
    if problem.kernel == (3, 3):
        folded = _shortened(folded, _DROPPED_3X3)
        folded = replace(folded, spec=_of_3x3(folded.spec, bool(problem.window and problem.window.stride_w == 1)))
    filters = with_zeros(folded.filters.reshape(channels, kernel_h, kernel_w), 4)
    p = {param.name: int(param.value) for param in problem.window_params}
    width = max(p["pad_left"] + p["in_w"], (p["out_w"] - 1) * p["stride_w"] + filters.shape[2])
    width += -width % 4
    reach = (kernel_h - 1) * p["dilation_h"] + 1
    band = _band(p["out_h"], p["out_w"] * channels)
    plane = width * ((band - 1) * p["stride_h"] + reach)
    params = integers(
        band=(band, "rows of outputs at a time"),
        plane=(plane, "bytes of a channel in scratch"),
        plane_w=(width, "bytes of a row of it"),
        filter=(filters[0].size, "bytes of a filter"),
    )
    what = f"{shape_text(problem.filters.shape)}, channel by channel, rows of whole words"
    values = tuple(filters.reshape(-1).tolist())
    layer = folded.layer(
        "mac/depthwise_conv_2d_xpulp",
        Table("weights", "int8_t", values, what, 4, p["out_h"] * p["out_w"]),
        (*problem.window_params, *params, problem.zero_point, *problem.output_limits),
        ahead=-channels % 4 if channels > 4 else None,
        scratch=(Scratch("planes", 4 * plane),),
        by_rows=BY_ROWS if p["out_w"] >= _WIDE_ROW else None,
        headers=(*HEADERS, "emitc_xpulp_windows.h"),
    )
    return tiled(layer, band * p["out_w"])


def _of_3x3(spec: KernelSpec, dense: bool) -> KernelSpec:
    """The spec for windows of 3x3. Outputs are made by loops in assembly where the short rounding up is all they need."""
    if spec.rounding != "up_xpulp" or spec.clamped:
        return spec.extended("_3x3", window="3x3")
    if not spec.small_sums:
        return spec.extended("_3x3", window="long")
    return spec.extended("_3x3", window="pairs") if dense else spec.extended("_3x3_strided", window="strided")


def _band(out_h: int, row_bytes: int) -> int:
    """How many rows of outputs are made at a time: all of a few, else a divisor of their number.

    >>> _band(25, 320), _band(48, 384), _band(6, 384), _band(3, 384), _band(13, 2048)
    (5, 8, 3, 3, 13)
    """
    most = max(out_h // _BANDS, _BAND_BYTES // row_bytes)
    fitting = max(rows for rows in range(1, out_h + 1) if rows == 1 or (out_h % rows == 0 and rows <= most))
    return fitting if 2 * fitting > most else out_h
