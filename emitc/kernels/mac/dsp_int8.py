"""Convolutions and matrix products on cores that multiply pairs of int16 (Arm's DSP extension): layers and weights for them.

Values and weights are widened from bytes to pairs in registers. Of four bytes one instruction takes the even ones and another one
the odd ones; so weights of two channels share a word: even bytes are the first channel's, odd bytes the second's. Where a
window or a row reaches outside the input, the zero point is read instead, so that one bias holds its share for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification; that halves up are enough where the output's lower limit
is its zero point follows from the two roundings, since they differ for results below it only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import Array, BoundNode, DType
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.requantization import Requantization, output_params, requantization, requantization_tables
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Scratch, Table, by_channel, whole_window
from emitc.numerics.requantize import Clamp, Int64, activation_clamp

HEADER = "emitc_dsp.h"
HEADERS = (HEADER, "emitc_dsp_tile.h")
"""Of kernels that add up products."""
BYTES_HEADER = "emitc_dsp_pool.h"
"""Of kernels that take bytes four by four, beside HEADER."""
PIXELS = 4
"""Output pixels that share the weights that are read."""
FEW = {1: "one", 2: "two"}
"""Names of kernels that make less of them at a time, and need less working memory."""
_FORMS = {
    (PIXELS, False): ("convolution/conv_2d_dsp", ByRows(window=True, tile=PIXELS), PIXELS),
    (2, False): ("convolution/conv_2d_few_dsp", BY_ROWS, 1),
    (1, False): ("convolution/conv_2d_few_dsp", BY_ROWS, 1),
    (2, True): ("convolution/conv_2d_part_dsp", BY_ROWS, 2),
}
"""By the pixels that share the weights that are read, and whether row by row: template, rows, pixels per load."""
SHORT_SUM = 1 << 30
"""Sums below this may be doubled, which the multiplication that keeps the upper half needs."""
LARGEST_SHIFT = 22
POINTER_BYTES = 8
"""Of a host's pointer, so that a package runs there too."""
FULL = Clamp(-128, 127)
_INT32_MAX = 2**31 - 1
_SHARE = 32000
"""Of a sum, that a half of a word takes at most."""


def refusal(bound: BoundNode, *, zero: bool = False) -> str:
    """Why the node's operands have no kernel of pairs; "" where they have. zero: all weights may have one zero point."""
    x, y = bound.input(0), bound.output
    if accumulation.in_float(bound):
        return Reason("its values are float32", "a quantized model")
    if x.dtype is not DType.INT8 or y.dtype is not DType.INT8:
        return f"{x.dtype.value} to {y.dtype.value}: there is code for int8"
    if int16x8.applies(bound) or bound.input(1).dtype.packed:
        return Reason("its weights have four bits", "weights of eight bits")
    if accumulation.weights_of(bound).dtype != np.int8 and not (zero and weights_zero(bound)):
        return Reason("its weights have zero points", "symmetric weights")
    return ""


def weights_zero(bound: BoundNode) -> int:
    """The zero point of all weights; 0 where they have several."""
    quantization = bound.input(1).quantization
    assert quantization
    zeros = set(quantization.zero_points)
    return zeros.pop() if len(zeros) == 1 else 0


def sums_fit(filters: Int64, bias: Int64, zero: int) -> bool:
    """Whether partial sums of weights as the model has them fit into int32. filters [O, K]: weights less their zero point."""
    return bool(largest_sum(filters + zero, bias) + 128 * abs(zero) * int(filters.shape[1]) <= _INT32_MAX)


def with_zero(kind: KernelSpec) -> KernelSpec:
    """The kernel of weights with a zero point, which it takes off by the sum of the values."""
    return kind.extended("_zero", weight_zero=True)


def summed_weights(filters: Array, zero: int) -> tuple[NDArray[np.int8], int, int]:
    """`paired_weights` of filters as the model has them, and behind each pair words of the zero point, which meet minus the sum
    of the values; the words of a pair with them, and their number.
    """
    values, words = paired_weights(filters)
    more = -(-128 * filters.shape[1] * filters.shape[2] // (2 * _SHARE))
    pairs = values.reshape(-1, words, 4)
    zeros = np.full((len(pairs), more, 4), zero, np.int8)
    return np.concatenate([pairs, zeros], axis=1).reshape(-1), words + more, more


def settled(bound: BoundNode, filters: Int64, bias: Int64, clamp: Clamp) -> tuple[Int64, Int64, Requantization]:
    """Filters [O, K] of int8 values, bias and requantization; those of channels that are constant whatever the input is, in the
    plainest form that gives the same constant.

    Such channels (most of what a rectifier cuts off for good) often have scales and biases of a size of their own, for which the
    short functions would have to be given up.
    """
    scale, quantization = requantization(bound), bound.output
    if not scale.per_channel or not scale.q31:
        return filters, bias, scale
    low, high = -128 * filters, 127 * filters
    ends = np.stack([bias + np.minimum(low, high).sum(axis=1), bias + np.maximum(low, high).sum(axis=1)])
    outputs = scale.apply(ends, quantization.zero_point, clamp, bound.output.dtype).astype(np.int64)
    constant = outputs[0] == outputs[1]
    # A multiplier of 1/2 and a shift by 1 divide by 4.
    return (
        np.where(constant[:, None], 0, filters),
        np.where(constant, 4 * (outputs[0] - quantization.zero_point), bias),
        replace(
            scale,
            q31=tuple(np.where(constant, 1 << 30, scale.q31).tolist()),
            shift=tuple(np.where(constant, -1, scale.shift).tolist()),
        ),
    )


def scaling(scale: Requantization, clamp: Clamp, zero_point: int, largest_sum: int) -> KernelSpec:
    """How the kernel requantizes: by the short functions where sums and shifts let it.

    largest_sum: bound on the magnitude of every accumulator.
    """
    shared = "" if scale.per_channel else "_shared"
    clamped = "_clamped" if clamp != FULL else ""
    if not scale.q31:
        suffix = f"_f32{clamped}{shared}"
        return replace(PLAIN, suffix=suffix, fixed_point=False, clamped=bool(clamped), shared=bool(shared))
    if largest_sum >= SHORT_SUM or not all(-LARGEST_SHIFT <= shift <= -1 for shift in scale.shift):
        return replace(PLAIN, suffix=shared, shared=bool(shared))
    short = "up" if clamp.low >= zero_point else "away"
    return replace(PLAIN, suffix=f"_{short}{clamped}{shared}", short=short, clamped=bool(clamped), shared=bool(shared))


def output_numbers(bound: BoundNode, scale: Requantization, clamp: Clamp) -> tuple[Param, ...]:
    """Output offset and clamp."""
    return output_params(bound, scale, clamp)[:3]


def factor_parts(scale: Requantization) -> tuple[Int64, Int64]:
    """Float32 factors as mantissas in 2**30..2**31 and shifts to the left, for products with 14 bits of fraction.

    factor = mantissa * 2 ** (left - 46): (sum << left) * mantissa / 2**32 is the product times 2**14.
    """
    bits = np.array(scale.real, np.float32).view(np.uint32).astype(np.int64)
    return (bits & 0x7FFFFF | 0x800000) << 7, (bits >> 23) - 111


def scaling_tables(scale: Requantization, kind: KernelSpec) -> tuple[Table, ...]:
    """Multipliers and shifts; for the short functions the shift is to the right."""
    if kind.exact:
        mantissa, left = factor_parts(scale)
        each = "per output channel" if scale.per_channel else "for all channels"
        return (
            Table("multiplier", "int32_t", tuple(mantissa.tolist()), f"mantissa of the float32 factor {each}"),
            Table(
                "exponent", "int8_t", tuple(left.tolist()), f"its exponent {each}, as a shift of the sum to the left"
            ),
        )
    if not kind.short:
        return requantization_tables(scale, kind)
    multiplier, shift = requantization_tables(scale, kind)
    each = "per output channel" if scale.per_channel else "for all channels"
    return multiplier, Table(
        "right", "int8_t", tuple(-int(value) for value in shift.values), f"shift to the right {each}"
    )


def run_order(length: int) -> NDArray[np.int64]:
    """Indices of a run's values, two for each word that it is widened to; -1 for none.

    >>> run_order(4).tolist(), run_order(3).tolist(), run_order(2).tolist(), run_order(5).tolist()
    ([[0, 2], [1, 3]], [[0, 2], [1, -1]], [[0, 1]], [[0, 2], [1, 3], [4, -1]])
    """
    pairs = []
    for base in range(0, length - 3, 4):
        pairs += [(base, base + 2), (base + 1, base + 3)]
    base = length // 4 * 4
    pairs += {0: [], 1: [(base, -1)], 2: [(base, base + 1)], 3: [(base, base + 2), (base + 1, -1)]}[length % 4]
    return np.array(pairs, np.int64).reshape(-1, 2)


def paired_weights(filters: Array, order: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int8], int]:
    """Filters [O, runs, length] two by two, each word two values of a first and a second filter; and the words of a pair.

    Of an odd number the last pair is the last two filters; a run of odd length has a zero at its end. order: of a run's values,
    two for each word; that of `run_order` where there is none.
    """
    out, _, length = filters.shape
    order = run_order(length) if order is None else order
    chosen = np.concatenate([np.arange(out // 2 * 2), np.arange(out - 2, out)[: 2 * (out % 2)]])
    padded = np.pad(filters[chosen], ((0, 0), (0, 0), (0, 1)))  # index -1 is the zero behind each run
    words = padded[:, :, order].reshape(-1, 2, filters.shape[1] * len(order), 2)
    return np.ascontiguousarray(words.transpose(0, 2, 3, 1)).reshape(-1).astype(np.int8), words.shape[2]


def foursome_weights(filters: Array, order: NDArray[np.int64] | None = None) -> tuple[NDArray[np.int8], int]:
    """Filters [O, runs, length] four by four: each word of `paired_weights` of the first two is followed by that of the others.
    And the words of a pair. What is left of O is the last four filters. order: as `paired_weights` takes it.
    """
    out = len(filters)
    chosen = np.concatenate([np.arange(out // 4 * 4), np.arange(out - 4, out)[: 4 * min(1, out % 4)]])
    values, words = paired_weights(filters[chosen], order)
    return np.ascontiguousarray(values.reshape(-1, 2, words, 4).transpose(0, 2, 1, 3)).reshape(-1), words


def quartered_weights(filters: Array) -> NDArray[np.int8]:
    """Filters [O, K] four by four as `row_dsp` reads them; what is left of O follows filter by filter."""
    whole = len(filters) // 4 * 4
    depth = filters.shape[1]
    blocks, quads_each = whole // 4, depth // 4
    fours = filters[:whole].reshape(blocks, 2, 2, depth)  # block, channel pair, channel of it, value
    quads = fours[..., : 4 * quads_each].reshape(
        blocks, 2, 2, quads_each, 2, 2
    )  # ..., four values as (even or odd) of (low, high)
    # Values 0 1 2 3 are [low even, low odd, high even, high odd].
    quads = quads.transpose(0, 3, 5, 1, 4, 2).reshape(blocks, 16 * quads_each)
    rest = fours[..., 4 * quads_each :].transpose(0, 3, 1, 2).reshape(blocks, 4 * (depth % 4))
    return np.concatenate([np.concatenate([quads, rest], axis=1).reshape(-1), filters[whole:].reshape(-1)]).astype(
        np.int8
    )


def largest_sum(filters: Int64, bias: Int64) -> int:
    """Bound on every partial sum of int8 values with filters [O, K]."""
    return int((np.abs(filters).sum(axis=1) * 128 + np.abs(bias)).max())


def operands(
    bound: BoundNode, window: Window, activation: str, filters: Array, *, folded: bool, zero: bool = False
) -> tuple[Int64, Int64, Requantization, Clamp, KernelSpec] | str:
    """Of a convolution: filters [O, K], bias with the zero point's share, requantization, limits and the kernel's form of them.

    Or why it has no kernel of pairs. zero: all weights may have one zero point.
    """
    if reason := refusal(bound, zero=zero):
        return reason
    out = len(filters)
    if window.dilation_w != 1:
        return Reason("it is dilated along the row", "a dilation of 1 there")
    if out == 1:
        return Reason("it has one output channel", "two output channels or more")
    return prepared(bound, activation, filters.astype(np.int64).reshape(out, -1), folded=folded)


def prepared(
    bound: BoundNode, activation: str, filters: Int64, *, folded: bool
) -> tuple[Int64, Int64, Requantization, Clamp, KernelSpec] | str:
    """The same of filters [O, K] of a kernel that has no such demands."""
    bias = accumulation.bias_inside(bound, filters, folded=folded)
    if bias is None:
        return "folding the zero point into the bias could overflow int32"
    y = bound.output
    clamp = activation_clamp(activation, y)
    filters, bias, scale = settled(bound, filters, bias, clamp)
    return filters, bias, scale, clamp, scaling(scale, clamp, y.zero_point, largest_sum(filters, bias))


def convolution(
    bound: BoundNode,
    window: Window,
    activation: str,
    filters: Array,
    *,
    folded: bool,
    lean: bool = False,
    pixels: int = PIXELS,
    part: bool = False,
) -> Layer | str:
    """The layer of a convolution without groups, filters [O, KH, KW, I]; or why there is none.

    folded: the bias holds the zero point's share already. lean: without working memory, which windows of one pixel can do.
    pixels: that share the weights that are read, 1, 2 or PIXELS; working memory holds what they read. part: of two, one row
    of their windows at a time, and the sums that there are so far.
    """
    found = operands(bound, window, activation, filters, folded=folded, zero=pixels == PIXELS)
    if isinstance(found, str):
        return found
    flat, bias, scale, clamp, kind = found
    out, kernel_h, kernel_w, depth = filters.shape
    x, y = bound.input(0), bound.output
    runs, rows = flat.reshape(out, kernel_h, kernel_w * depth), y.elements // out
    plain = (kernel_h, kernel_w, window.stride_h, window.stride_w) == (1, 1, 1, 1) and not window.padding.any
    if pixels < PIXELS and (plain or rows < PIXELS or out < PIXELS):
        return "less than four channels or pixels, or windows of one pixel"
    if plain:
        return matrix(bound, rows, flat, bias, scale, clamp, kind, lean=lean)
    if rows == 1 and window.dilation_h == 1 and not window.padding.any and (kernel_h == 1 or kernel_w == x.shape[2]):
        # The whole window is one run of the input.
        return matrix(bound, 1, flat, bias, scale, clamp, kind, lean=lean, by_rows=False)
    if part and kernel_h == 1:
        return "its window has one row"
    if lean and weights_zero(bound):
        return Reason("its weights have zero points", "symmetric weights")
    if lean:
        return lean_convolution(bound, window, runs, bias, scale, clamp, kind)
    more: tuple[Param, ...] = ()
    if zero := weights_zero(bound):
        if not sums_fit(flat, bias, zero):
            return "sums with the zero points of the weights could overflow int32"
        kind = with_zero(kind)
        values, words, behind = summed_weights(runs + zero, zero)
        more = (Param("sum_words", "int32_t", behind, "the last ones, for the weights' zero point"),)
    elif pixels < PIXELS:
        if not part:
            kind = kind.extended(f"_{FEW[pixels]}", window=FEW[pixels])
        values, words = foursome_weights(runs)
    else:
        values, words = paired_weights(runs)
    needed = 4 * pixels * words
    if part:  # sums of four channels at a time
        words //= kernel_h
        needed = 4 * pixels * (words + -(-out // 4) * 4)
    params = window_params(bound, window, kernel_h, kernel_w)
    tail = (
        Param("words", "int32_t", words, "of the weights of two channels" + (" and one row" if part else "")),
        *more,
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
        *output_numbers(bound, scale, clamp),
    )
    template, by_rows, loads = _FORMS[pixels, part]
    tables = (*weight_tables(values, filters.shape, bias, pixels_per_load=loads), *scaling_tables(scale, kind))
    return Layer(
        template, "dsp", (0,), tables, params + tail,
        scratch=(Scratch("windows", needed),), macs=flat.size * rows, spec=kind,
        overlaps=window_overlap(bound, params, None), by_rows=by_rows, headers=HEADERS,
    )  # fmt: skip


def _in_fours(filters: Int64, whole: int, *, wide: bool) -> Int64:
    """The weights of a depthwise kernel, [channels, taps], tap by tap for four channels; those from `whole` on as they are.

    wide: of 16 bits, whose words hold the first and the third channel, then the second and the fourth.
    """
    fours = filters[:whole].reshape(whole // 4, 4, filters.shape[1]).transpose(0, 2, 1).reshape(-1)
    if wide:
        fours = fours.reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1)
    return np.concatenate([fours, filters[whole:].reshape(-1)])


def depthwise(bound: BoundNode, window: Window, activation: str, *, folded: bool, lean: bool = False) -> Layer | str:
    """The layer of a depthwise convolution with one filter per channel; or why there is none.

    lean: without working memory; the pixel of zero points is a constant.

    Of 3x3 windows two pixels are made at a time, group by group of channels, so that the second one's first groups are stored
    before the first one's window is read for the last time. Weights with a zero point have 16 bits.
    """
    if reason := refusal(bound, zero=True):
        return reason
    x, y = bound.input(0), bound.output
    weights = accumulation.weights_of(bound)
    _, kernel_h, kernel_w, channels = weights.shape
    if channels != x.shape[3]:
        return Reason("it has several filters per channel", "one filter per channel, followed by a 1x1 convolution")
    found = prepared(bound, activation, weights.astype(np.int64).reshape(-1, channels).T, folded=folded)
    if isinstance(found, str):
        return found
    filters, bias, scale, clamp, kind = found
    whole = channels // 4 * 4
    if whole < channels:
        kind = kind.extended("_uneven", uneven=True)
    wide = weights_zero(bound) != 0
    if wide:
        kind = replace(with_zero(kind), w="int16_t")
    three = (kernel_h, kernel_w) == (3, 3)
    if three:
        kind = kind.extended("_3x3", window="3x3")
    params = window_params(bound, window, kernel_h, kernel_w)
    tail = (
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
        *output_numbers(bound, scale, clamp),
    )
    arranged = _in_fours(filters, whole, wide=wide)
    what = f"weights {'x'.join(map(str, weights.shape))}, four channels after the other"
    tables = (
        Table("weights", kind.w, tuple(arranged.tolist()), what, 4, pixels_per_load=2),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
        *scaling_tables(scale, kind),
    )
    needed = {"padding_pixel": 0 if lean else channels, "taps": 0 if three else POINTER_BYTES * kernel_h * kernel_w}
    if lean and needed["taps"]:
        return "other windows than 3x3 need working memory"
    if lean:
        what = "the pixel outside of the image: every channel is the zero point"
        tables = (*tables, Table("padding_pixel", "int8_t", (x.zero_point,) * channels, what))
    ahead = by_channel(whole, whole // 4, 4, 1, 1) if whole else by_channel(channels, channels, 1, 1, 1)
    groups = whole // 4 + channels - whole
    return Layer(
        "convolution/depthwise_conv_2d_dsp", "dsp", (0,), tables, params + tail,
        scratch=tuple(Scratch(role, size) for role, size in needed.items() if size),
        macs=y.elements * kernel_h * kernel_w, spec=kind,
        overlaps=window_overlap(bound, params, channels if three and groups > 1 else ahead), by_rows=BY_ROWS,
        headers=HEADERS,
    )  # fmt: skip


def lean_convolution(
    bound: BoundNode, window: Window, runs: Int64, bias: Int64, scale: Requantization, clamp: Clamp, kind: KernelSpec
) -> Layer:
    """The layer that needs no working memory: pixel by pixel, four channels at a time. runs [O, KH, KW * I]."""
    x = bound.input(0)
    out, kernel_h, run = runs.shape
    whole = out // 4 * 4
    blocks = [quartered_weights(runs[o : o + 4, ky]) for o in range(0, whole, 4) for ky in range(kernel_h)]
    values = np.concatenate([*blocks, runs[whole:].reshape(-1).astype(np.int8)])
    params = window_params(bound, window, kernel_h, run // x.shape[3])
    tail = (
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
        *output_numbers(bound, scale, clamp),
    )
    what = "the pixels outside of the image: every value is the zero point"
    tables = (
        *weight_tables(values, bound.input(1).shape, bias, pixels_per_load=1),
        *scaling_tables(scale, kind),
        Table("padding_pixel", "int8_t", (x.zero_point,) * run, what),
    )
    return Layer(
        "convolution/conv_2d_lean_dsp",
        "dsp", (0,), tables, params + tail, macs=bound.output.elements * kernel_h * run, spec=kind,
        overlaps=window_overlap(bound, params, whole_window(out, 4, 1)), by_rows=BY_ROWS, headers=HEADERS,
    )  # fmt: skip


def matrix(
    bound: BoundNode,
    rows: int,
    filters: Int64,
    bias: Int64,
    scale: Requantization,
    clamp: Clamp,
    kind: KernelSpec,
    *,
    lean: bool = False,
    by_rows: bool = True,
) -> Layer | str:
    """The layer of a product of `rows` rows with filters [O, K]; the bias holds the zero point's share."""
    out, depth = filters.shape
    zero = weights_zero(bound)
    if zero:
        if not sums_fit(filters, bias, zero):
            return "sums with the zero points of the weights could overflow int32"
        kind, filters = with_zero(kind), filters + zero
    size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out_c", "int32_t", out))
    params, _ = accumulation.pixels(rows, depth, out)
    one_row = ByRows(counted="rows") if by_rows else None
    if rows < PIXELS or out == 1 or lean:
        values = quartered_weights(filters)
        tables = (*weight_tables(values, filters.shape, bias, pixels_per_load=1), *scaling_tables(scale, kind))
        taken = (Param("weights_zero", "int32_t", zero, "the weights' zero point"),) if zero else ()
        return Layer(
            "matrix/row_dsp", "dsp", (0,), tables, (*size, *taken, *output_numbers(bound, scale, clamp)),
            macs=rows * filters.size, spec=kind,
            overlaps=window_overlap(bound, params, whole_window(out, 4, 1)), by_rows=one_row, headers=HEADERS,
        )  # fmt: skip
    runs = filters.reshape(out, 1, depth)
    more: tuple[Param, ...] = ()
    if zero:
        values, words, behind = summed_weights(runs, zero)
        more = (Param("sum_words", "int32_t", behind, "the last ones, for the weights' zero point"),)
    else:
        values, words = paired_weights(runs)
    of_pair = Param("words", "int32_t", words, "of the weights of two channels")
    tail = (of_pair, *more, *output_numbers(bound, scale, clamp))
    tables = (*weight_tables(values, filters.shape, bias, pixels_per_load=PIXELS), *scaling_tables(scale, kind))
    return Layer(
        "matrix/matrix_dsp", "dsp", (0,), tables, size + tail,
        scratch=(Scratch("windows", 16 * words),), macs=rows * filters.size, spec=kind,
        overlaps=window_overlap(bound, params, None), by_rows=one_row, headers=HEADERS,
    )  # fmt: skip


def product(bound: BoundNode, activation: str, rows: int, *, folded: bool) -> Layer | str:
    """The layer of a fully connected layer of `rows` rows; or why there is none."""
    if reason := refusal(bound, zero=True):
        return reason
    filters = accumulation.weights_of(bound).astype(np.int64)
    found = prepared(bound, activation, filters.reshape(len(filters), -1), folded=folded)
    if isinstance(found, str):
        return found
    filters, bias, scale, clamp, kind = found
    return matrix(bound, rows, filters, bias, scale, clamp, kind)


def weight_tables(
    weights: NDArray[np.int8], shape: Sequence[int], bias: Int64, *, pixels_per_load: int
) -> tuple[Table, ...]:
    """Weights arranged for pairs, and the bias. pixels_per_load: as `Table` says."""
    what = f"weights {'x'.join(map(str, shape))}, arranged for pairs of channels"
    return (
        Table("weights", "int8_t", tuple(weights.tolist()), what, 4, pixels_per_load),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel, with the zero point's share"),
    )
