"""Convolutions and matrix products of int8 on RISC-V cores with vectors of integers (Zve32x) or the CORE-V extension (Xpulp).

A tile is four output pixels, which share the weights that are read. Rows of a matrix product are read in place. Windows of a
convolution are copied to scratch, each as one row of values. Where a window reaches outside the input it has the zero point,
so that one bias holds its term for all pixels.

Zve32x  A vector has the sums of neighbouring output channels. One instruction multiplies a value by the weights of all of them
        and adds the products. Weights lie value by value, so that no kernel depends on the length of the registers. VSMUL
        rounds the doubled product to its upper half, halves up, as the specification has it; VSSRA rounds the shift so.
Xpulp   One instruction multiplies four bytes by four bytes and adds the products to a sum. Four pixels by four channels are 16
        such instructions and eight loads. Windows are rows of whole words. Their last values may meet weights of 0.
        Multipliers have so few bits that two products of 32 bits requantize a sum, where all sums that can occur keep their
        outputs. A multiplier is high * 2**13 + low, with low in -4096..4095: acc * high plus acc * low, shifted by 13, is the
        product without its last 13 bits. It has some bits fewer than the Q31 number, so it is another factor. So the compiler
        compares, for each channel, the least sums from which on the outputs are -127..127.
Source of the arithmetic: TFLite 8-bit quantization specification.
"""

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.ir import BoundNode
from emitc.kernels.mac import scalar_int8
from emitc.kernels.mac.accumulation import Requantization
from emitc.kernels.mac.problem import (
    FoldedWeights,
    MacProblem,
    NoKernel,
    folded_weights,
    packed_table,
    rounding,
)
from emitc.kernels.mac.weight_packing import pack_word_blocks, shape_text, with_zeros
from emitc.kernels.shared.windows import BY_ROWS, whole_window
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Scratch, Table, by_channel, integers
from emitc.numerics.requantize import Int64

PIXELS = scalar_int8.PIXELS


def reads_rows_in_place(problem: MacProblem) -> bool:
    """Whether the problem is a matrix product, and no tile of it has pixels of two images."""
    images = 1 if problem.window is None else problem.bound.output.shape[0]
    return problem.is_matrix_product and (images == 1 or problem.pixels // images % PIXELS == 0)


def _matrix(
    folded: FoldedWeights,
    template: str,
    tables: Table | tuple[Table, ...],
    size: int,
    channels: int,
    headers: tuple[str, ...],
) -> Layer:
    """A matrix product. size: bytes of a row of weights. channels: how many the kernel makes at a time."""
    problem = folded.problem
    rows, _, out = problem.size_params
    return folded.layer(
        template,
        tables,
        (rows, out, _size_param(size), *problem.output_limits),
        ahead=whole_window(problem.channels, channels, 1),
        by_rows=ByRows(counted="rows"),
        headers=headers,
    )


def _windows(
    folded: FoldedWeights, template: str, tables: Table | tuple[Table, ...], size: int, headers: tuple[str, ...]
) -> Layer:
    """A convolution without groups. size: bytes of a window in scratch."""
    problem = folded.problem
    return folded.layer(
        template,
        tables,
        (*problem.window_params, _size_param(size), problem.zero_point, *problem.output_limits),
        scratch=(Scratch("windows", PIXELS * size),),
        headers=headers,
    )


def _size_param(size: int) -> Param:
    return Param("size", "int32_t", size, "bytes of a window")


_LOW = 13
"""Bits of the multiplier's first part, which has a sign."""
_OUTPUTS = np.arange(-127, 128, dtype=np.int64)


def short_multipliers(folded: FoldedWeights, dropped: int) -> Requantization | None:
    """Multipliers and shifts of two products; None where a channel's sums are too large, or no multiplier keeps its outputs.

    dropped: last bits of the Q31 multiplier that the short one lacks, as the kernel says.
    """
    low, high = folded.ends
    largest = np.maximum(np.abs(low), np.abs(high))
    channels = len(low)
    q31 = np.broadcast_to(np.array(folded.scale.q31, np.int64), channels)
    right = -np.broadcast_to(np.array(folded.scale.shift, np.int64), channels)
    if not folded.scale.per_channel or (largest << (_LOW - 1) >= 1 << 31).any() or (q31 < 1 << 30).any():
        return None
    offset = 2 * folded.problem.bound.output.zero_point + 1
    # Both roundings go up: half a unit of the Q31 product, then half a unit of the output.
    wanted = _least_sums(q31, (offset << (30 + right)) + (1 << 30), right + 31, low, high)
    shift = right + 31 - _LOW - dropped
    added = (offset << (shift - 1)) + (1 << (30 - _LOW - dropped))
    multipliers = np.zeros_like(q31)
    for multiplier in (q31 >> dropped, -(-q31 >> dropped)):
        fits = largest * ((multiplier >> _LOW) + 2) + 2 * np.abs(added) < 1 << 31
        sums = _least_sums(multiplier, added << _LOW, shift + _LOW, low, high)
        multipliers = np.where(fits & (sums == wanted).all(axis=1), multiplier, multipliers)
    if not multipliers.all():
        return None
    high_part = (multipliers + (1 << (_LOW - 1))) >> _LOW
    packed = high_part << 16 | (multipliers - (high_part << _LOW)) & 0xFFFF
    return replace(folded.scale, q31=tuple(packed.tolist()), shift=tuple((-shift).tolist()))


def _least_sums(multiplier: Int64, added: Int64, shift: Int64, low: Int64, high: Int64) -> Int64:
    """The least sums of low..high whose outputs are at least -127..127, [channels, 255]; high + 1 where there is none.

    An output is (sum * multiplier + added) >> shift, before it is limited.
    """
    needed = (_OUTPUTS << shift[:, None]) - added[:, None]
    sums: Int64 = np.clip(-(-needed // multiplier[:, None]), low[:, None], high[:, None] + 1)
    return sums


_RVV_HEADERS = ("emitc_rvv.h",)
_FLOAT_FACTORS = Reason("its factors are float32", "TFLite's fixed-point factors")
_LANES = 16
_BY_VALUE = "value by value"


def _rvv_fold(problem: MacProblem) -> FoldedWeights:
    """The numbers of the kernels, with a factor for each channel; raises NoKernel where there are none."""
    folded = folded_weights(problem)
    scale = folded.scale
    if not scale.q31:
        raise NoKernel(_FLOAT_FACTORS)
    short = rounding(problem) if max(scale.shift) < 0 else "any"
    return replace(folded, spec=replace(PLAIN, suffix=f"_{short}", rounding=short))


def _lane_tables(folded: FoldedWeights, weights: Table) -> tuple[Table, ...]:
    """Weights, bias, multipliers, and shifts: to the right, or to either side where the rounding is `any`."""
    channels, scale = folded.problem.channels, folded.scale
    q31, shift = (tuple(np.broadcast_to(np.array(v), channels).tolist()) for v in (scale.q31, scale.shift))
    places = (
        Table("shift", "int8_t", shift, "shift of the product per output channel, positive left")
        if folded.spec.rounding == "any"
        else Table("right", "int8_t", tuple(-s for s in shift), "right shift of the product per output channel")
    )
    return weights, folded.bias_table, Table("multiplier", "int32_t", q31, "multiplier per output channel"), places


def rvv_convolution(problem: MacProblem) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none."""
    problem.require_runs()
    folded = _rvv_fold(problem)
    size = folded.filters.shape[1]
    pixels = 1 if problem.pixels < PIXELS else PIXELS
    weights = packed_table(folded.filters.T.reshape(-1), problem.filters.shape, _BY_VALUE, pixels)
    if reads_rows_in_place(problem):
        layer = _matrix(folded, "mac/matrix_rvv", _lane_tables(folded, weights), size, 1, _RVV_HEADERS)
        return scalar_int8.walked(layer, tile=PIXELS) if pixels > 1 else layer
    return _windows(folded, "mac/conv_2d_rvv", _lane_tables(folded, weights), size, _RVV_HEADERS)


def rvv_depthwise(problem: MacProblem) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none.

    Channels are made as many at a time as there are lanes; each reads its own input channel only.
    """
    channels = problem.channels
    folded = _rvv_fold(problem)
    return folded.layer(
        "mac/depthwise_conv_2d_rvv",
        _lane_tables(folded, packed_table(folded.filters.T.reshape(-1), problem.filters.shape, "tap by tap", 1)),
        (*problem.window_params, problem.zero_point, *problem.output_limits),
        ahead=by_channel(channels, channels, 1, 1, 1),
        headers=_RVV_HEADERS,
    )


def share_of_lanes(bound: BoundNode) -> float:
    """Lanes that registers of 128 bits have for a pixel's output channels, by the channels.

    A cost per product of full registers times this is that of a product.
    """
    channels = bound.output.shape[-1]
    return -(-channels // _LANES) * _LANES / channels


XPULP_HEADERS = (*scalar_int8.HEADERS, "emitc_xpulp.h")
_DROPPED, _DROPPED_3X3 = 6, 5
"""Bits that short multipliers lack, as the kernels say: sums of nine products are smaller, and leave room for a bit more."""
_ORDER = "four filters word by word"
_BANDS, _BAND_BYTES = 5, 2048
"""A depthwise convolution makes a fifth of its rows at a time, or so many bytes; so far its stores get ahead of its reads."""

_WIDE_ROW = 16
"""Output pixels of a row from which on it is worth to make single rows: the input's rows become planes again for each."""


def _xpulp_fold(problem: MacProblem) -> FoldedWeights:
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


def xpulp_convolution(problem: MacProblem) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none."""
    problem.require_runs()
    folded = _shortened(_xpulp_fold(problem), _DROPPED)
    if problem.is_matrix_product and problem.pixels < PIXELS:
        return _xpulp_rows(folded)
    filters = with_zeros(folded.filters, 4)
    size = filters.shape[1]
    weights = packed_table(pack_word_blocks(filters), problem.filters.shape, _ORDER, PIXELS)
    if reads_rows_in_place(problem) and filters.shape == folded.filters.shape:
        layer = _matrix(folded, "mac/matrix_xpulp", weights, size, 4, XPULP_HEADERS)
        return scalar_int8.walked(layer, tile=PIXELS)
    return _windows(folded, "mac/conv_2d_xpulp", weights, size, XPULP_HEADERS)


def _xpulp_rows(folded: FoldedWeights) -> Layer:
    """The layer of a matrix product whose rows are read in place, one by one."""
    problem = folded.problem
    return folded.layer(
        "mac/row_xpulp",
        packed_table(pack_word_blocks(folded.filters), folded.filters.shape, _ORDER, 1),
        (*problem.size_params, *problem.output_limits),
        ahead=whole_window(problem.channels, 4, 1),
        by_rows=ByRows(counted="rows"),
        headers=XPULP_HEADERS,
    )


def xpulp_depthwise(problem: MacProblem) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none.

    Channels become planes in scratch, for some rows of outputs at a time, so that a word has neighbours along a row.
    """
    channels, (kernel_h, kernel_w) = problem.channels, problem.kernel
    if channels < 4:
        raise NoKernel("it has fewer than four channels")
    problem.require_runs()
    folded = _xpulp_fold(problem)
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
        headers=(*XPULP_HEADERS, "emitc_xpulp_windows.h"),
    )
    return scalar_int8.walked(layer, tile=band * p["out_w"])


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
