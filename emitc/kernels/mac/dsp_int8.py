"""Convolutions and matrix products on cores with Arm's DSP extension: layers of int8, summed by SMLAD.

SMLAD adds two products of int16. SXTB16 widens the first and the third byte of a word to such a pair of operands. With a
rotation it widens the second and the fourth. So weights of two channels share a word: its even bytes are the first channel's,
its odd bytes the second's. Joined weights need no second SXTB16: the halves of the word as it is are 256 times the second
channel's weights plus the first one's. So SMLAD gives 256 times the second sum plus the first one (`FoldedWeights.joined`).
Where a window or a row reaches outside the input, the kernels read the zero point instead. So one bias holds its term for all
pixels.

`stretch_convolution` is for windows that overlap: neighbouring pixels read one stretch of the input, widened once. For each row
of a window, the stretch has the values from the first pixel's first to the last one's last. They are int16 in the input's
order. A pixel's pairs are at a fixed distance from its neighbour's. Where that is an odd number of values they are at odd
halfwords, which these cores load in one instruction all the same. Where it is an even one, the words of a row lie by their
place modulo the distance. So those of neighbouring pixels follow each other, and one instruction loads two.

`convolution` widens every pixel's window by itself. Widening a stretch takes less time and less working memory. But
the kernel is printed for the window's size, so that every size is a kernel of its own.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import BoundNode, DType
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.problem import (
    FOUR_BITS,
    ONE_CHANNEL,
    POINTER_BYTES,
    WEIGHT_ZERO_POINTS,
    FoldedWeights,
    MacProblem,
    NoKernel,
    folded_weights,
    packed_table,
    simplified,
)
from emitc.kernels.mac.weight_packing import (
    BLOCK,
    adjacent_order,
    pack_dsp_blocks,
    pack_dsp_taps,
    pack_filter_pairs,
    pack_filter_pairs_with_zero,
    pack_filter_quads,
)
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.windows import BY_ROWS, whole_window
from emitc.layer import ByRows, Layer, Param, Scratch, Table, by_channel
from emitc.numerics.requantize import INT32_MAX
from emitc.records import dataclass, replace

HEADER = "emitc_dsp.h"
HEADERS = (HEADER, "emitc_dsp_tile.h")
"""Of kernels that add up products."""
PIXEL_HEADERS = (*HEADERS, "emitc_dsp_pixels.h")
"""Of kernels that make all channels of several pixels."""
BYTES_HEADER = "emitc_dsp_pool.h"
"""Of kernels that take bytes four by four, which need HEADER too."""
PIXELS = 4
"""Output pixels of the largest tile, which share the weights that are read."""
CHANNEL_PAIRS = "arranged for pairs of channels"
"""The order of weights, in the comments of their tables."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A kernel that widens the windows of some output pixels to scratch before it sums up all channels of them.

    pixels: in the tile. pixels_per_load: that share a load of weights. name: in the kernel's suffix, where a template serves
    several tiles. rowwise: scratch holds one row of the windows at a time, and the sums.
    """

    template: str
    pixels: int
    pixels_per_load: int
    by_rows: ByRows = BY_ROWS
    name: str = ""
    rowwise: bool = False


TILES: Mapping[str, Tile] = {
    "4px": Tile("convolution/conv_2d_dsp", PIXELS, PIXELS, ByRows(window=True, tile=PIXELS)),
    "2px": Tile("convolution/conv_2d_few_dsp", 2, 1, name="two"),
    "1px": Tile("convolution/conv_2d_few_dsp", 1, 1, name="one"),
    "2px-rowwise": Tile("convolution/conv_2d_part_dsp", 2, 2, rowwise=True),
}


def refusal(bound: BoundNode, *, zero: bool = False) -> str:
    """Why the node's operands have no kernel of int8 pairs; "" where they have. zero: all weights may have one zero point."""
    x, y = bound.input(0), bound.output
    if accumulation.in_float(bound):
        return Reason("its values are float32", "a quantized model")
    if x.dtype is not DType.INT8 or y.dtype is not DType.INT8:
        return f"{x.dtype.value} to {y.dtype.value}: there is code for int8"
    if int16x8.applies(bound) or bound.input(1).dtype.packed:
        return FOUR_BITS
    if accumulation.weights_of(bound).dtype != np.int8 and not (zero and weights_zero(bound)):
        return WEIGHT_ZERO_POINTS
    return ""


def weights_zero(bound: BoundNode) -> int:
    """The zero point of all weights; 0 where they have several."""
    quantization = bound.input(1).quantization
    assert quantization
    zeros = set(quantization.zero_points)
    return zeros.pop() if len(zeros) == 1 else 0


@lru_cache(maxsize=1)  # the variants of one node ask for its numbers one after another
def fold(problem: MacProblem) -> FoldedWeights:
    """The numbers of the kernels for pairs; raises NoKernel where there are none."""
    folded = simplified(folded_weights(problem))
    return folded.short_requantization(folded.largest_sum)


def fold_windows(problem: MacProblem) -> FoldedWeights:
    """The same for kernels whose windows are runs of the input, and which compute two channels at a time."""
    problem.require_runs()
    if problem.channels == 1:
        raise NoKernel(ONE_CHANNEL)
    return fold(problem)


def _with_weight_zero(folded: FoldedWeights, zero: int) -> FoldedWeights:
    """The same with weights as the model has them, for a kernel that subtracts their zero point times the sum of the values."""
    if not zero:
        return folded
    weights = replace(folded, filters=folded.filters + zero, spec=folded.spec.extended("_zero", weight_zero=True))
    if weights.largest_sum + 128 * abs(zero) * weights.filters.shape[1] > INT32_MAX:
        raise NoKernel("sums with the zero points of the weights could overflow int32")
    return weights


def convolution(problem: MacProblem, *, tile: str = "4px", scratch: bool = True) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none.

    tile: of `TILES`. scratch: whether the kernel may have working memory.
    """
    window, (kernel_h, kernel_w), form = problem.window, problem.kernel, TILES[tile]
    folded = fold(problem) if window is None else fold_windows(problem)
    is_product = problem.is_matrix_product
    if form.pixels < PIXELS and (is_product or problem.pixels < PIXELS or problem.channels < PIXELS):
        raise NoKernel("less than four channels or pixels, or windows of one pixel")
    if is_product:
        return _matrix_product(folded, ByRows(counted="rows", outputs=BLOCK), scratch=scratch)
    assert window is not None
    one_run = kernel_h == 1 or kernel_w == problem.bound.input(0).shape[2]
    if problem.pixels == 1 and window.dilation_h == 1 and not window.padding.any and one_run:
        return _matrix_product(folded, None, scratch=scratch)
    if form.rowwise and kernel_h == 1:
        raise NoKernel("its window has one row")
    if scratch:
        return _tiled(folded, form)
    if weights_zero(problem.bound):
        raise NoKernel(WEIGHT_ZERO_POINTS)
    return _without_scratch(folded)


def _tiled(folded: FoldedWeights, tile: Tile) -> Layer:
    problem, (kernel_h, _) = folded.problem, folded.problem.kernel
    channels, zero = problem.channels, weights_zero(problem.bound)
    folded = _with_weight_zero(folded.joined(zero), zero)
    values, words, zero_params = _packed(folded, kernel_h, zero, quads=tile.pixels < PIXELS)
    if tile.name:
        folded = replace(folded, spec=folded.spec.extended(f"_{tile.name}", window=tile.name))
    if tile.pixels == PIXELS:
        folded = _with_tail(folded, problem.bound.output.shape[-2] % PIXELS)
        if not zero and _in_columns(problem):  # not in the name either
            folded = replace(folded, spec=replace(folded.spec, window="columns"))
    words_in_scratch = words
    if tile.rowwise:  # the sums of all channels follow the words of one row
        words //= kernel_h
        words_in_scratch = words + -(-channels // BLOCK) * BLOCK
    what = "of the weights of two channels" + (" and one row" if tile.rowwise else "")
    params = (Param("words", "int32_t", words, what), *zero_params, problem.zero_point, *problem.output_limits)
    return folded.layer(
        tile.template,
        packed_table(values, problem.filters.shape, CHANNEL_PAIRS, tile.pixels_per_load),
        problem.window_params + params,
        scratch=(Scratch("windows", 4 * tile.pixels * words_in_scratch),),
        by_rows=tile.by_rows,
        headers=PIXEL_HEADERS if tile.pixels == PIXELS else HEADERS,
    )


def _in_columns(problem: MacProblem) -> bool:
    """Whether neighbouring windows share two of their three columns, whose channels are read four at a time."""
    window, (_, kernel_w), depth = problem.window, problem.kernel, problem.filters.shape[3]
    return window is not None and window.stride_w == 1 and kernel_w == 3 and depth % 4 == 0


def _packed(
    folded: FoldedWeights, rows: int, zero: int, *, quads: bool = False
) -> tuple[NDArray[np.int8], int, tuple[Param, ...]]:
    """Weights in words, how many words a pair of filters has, and a parameter where they have a zero point."""
    runs, joined = folded.filters.reshape(folded.problem.channels, rows, -1), folded.spec.joined
    if not zero:
        return *(pack_filter_quads if quads else pack_filter_pairs)(runs, joined=joined), ()
    values, words, zero_words = pack_filter_pairs_with_zero(runs, zero, joined=joined)
    what = "the last ones, for the weights' zero point"
    return values, words, (Param("sum_words", "int32_t", zero_words, what),)


def _without_scratch(folded: FoldedWeights) -> Layer:
    """The layer that needs no working memory: pixel by pixel, four channels at a time."""
    problem, (kernel_h, _) = folded.problem, folded.problem.kernel
    channels, x = problem.channels, problem.bound.input(0)
    runs = folded.filters.reshape(channels, kernel_h, -1)
    whole = channels // BLOCK * BLOCK
    blocks = [pack_dsp_blocks(runs[o : o + BLOCK, ky]) for o in range(0, whole, BLOCK) for ky in range(kernel_h)]
    values = np.concatenate([*blocks, runs[whole:].reshape(-1).astype(np.int8)])
    what = "the pixels outside of the image: every value is the zero point"
    padding = Table("padding_pixel", "int8_t", (x.zero_point,) * runs.shape[2], what)
    weights = packed_table(values, problem.bound.input(1).shape, CHANNEL_PAIRS, 1)
    return folded.layer(
        "convolution/conv_2d_lean_dsp",
        (*folded.tables(weights), padding),
        (*problem.window_params, problem.zero_point, *problem.output_limits),
        ahead=whole_window(channels, BLOCK, 1),
        headers=HEADERS,
    )


def _with_tail(folded: FoldedWeights, left_over: int) -> FoldedWeights:
    """The same for a kernel whose name does not say whether channels or columns are left over: see `with_shared_tails`."""
    return replace(folded, spec=replace(folded.spec, has_tail=left_over > 0))


def _matrix_product(folded: FoldedWeights, by_rows: ByRows | None, *, scratch: bool) -> Layer:
    problem = folded.problem
    out, depth = folded.filters.shape
    by_row = problem.pixels < PIXELS or out == 1 or not scratch
    zero = weights_zero(problem.bound)
    few = by_row and out < BLOCK
    folded = replace(folded, spec=folded.spec.extended("_few", window="few")) if few else folded.joined(zero)
    folded = _with_weight_zero(folded, zero)
    folded = _with_tail(folded, out % BLOCK if by_row else problem.bound.output.shape[-2] % PIXELS)
    if by_row:
        of_zero = (Param("weights_zero", "int32_t", zero, "the weights' zero point"),) if zero else ()
        return folded.layer(
            "matrix/row_dsp",
            packed_table(pack_dsp_blocks(folded.filters, joined=folded.spec.joined), (out, depth), CHANNEL_PAIRS, 1),
            (*problem.size_params, *of_zero, *problem.output_limits),
            ahead=whole_window(out, BLOCK, 1),
            by_rows=by_rows,
            headers=HEADERS,
        )
    values, words, zero_params = _packed(folded, 1, zero)
    of_pair = Param("words", "int32_t", words, "of the weights of two channels")
    return folded.layer(
        "matrix/matrix_dsp",
        packed_table(values, (out, depth), CHANNEL_PAIRS, PIXELS),
        (*problem.size_params, of_pair, *zero_params, *problem.output_limits),
        scratch=(Scratch("windows", 4 * PIXELS * words),),
        by_rows=by_rows,
        headers=PIXEL_HEADERS,
    )


def depthwise(problem: MacProblem, *, scratch: bool = True) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none.

    scratch: whether the kernel may have working memory. Without it the pixel of zero points is a constant.

    Of 3x3 windows two pixels are computed at a time, block by block of channels. So the second one's first blocks are stored
    before the first one's window is read for the last time. Weights with a zero point have 16 bits.
    """
    folded = fold(problem)
    channels, (kernel_h, kernel_w) = problem.channels, problem.kernel
    is_3x3, whole, spec = problem.kernel == (3, 3), channels // BLOCK * BLOCK, folded.spec
    if whole < channels:
        spec = spec.extended("_uneven", has_tail=True)
    if zero := weights_zero(problem.bound) != 0:
        spec = spec.extended("_zero", weight_zero=True, w="int16_t")
    if is_3x3:
        spec = spec.extended("_3x3", window="3x3")
    values = pack_dsp_taps(folded.filters, wide=zero)
    shape = problem.filters.shape
    folded = replace(folded, spec=spec)
    tables = folded.tables(packed_table(values, shape, "four channels after the other", 2, c_type=spec.w))
    sizes = {"padding_pixel": channels if scratch else 0, "taps": 0 if is_3x3 else POINTER_BYTES * kernel_h * kernel_w}
    if not scratch:
        if sizes["taps"]:
            raise NoKernel("other windows than 3x3 need working memory")
        what = "the pixel outside of the image: every channel is the zero point"
        pixel = (problem.bound.input(0).zero_point,) * channels
        tables = (*tables, Table("padding_pixel", "int8_t", pixel, what))
    ahead = by_channel(whole, whole // 4, 4, 1, 1) if whole else by_channel(channels, channels, 1, 1, 1)
    return folded.layer(
        "convolution/depthwise_conv_2d_dsp",
        tables,
        (*problem.window_params, problem.zero_point, *problem.output_limits),
        scratch=tuple(Scratch(role, size) for role, size in sizes.items() if size),
        ahead=channels if is_3x3 and channels not in (1, BLOCK) else ahead,
        headers=HEADERS,
    )


_STRETCH_HEADERS = (*PIXEL_HEADERS, "emitc_dsp_span.h")
MOST_WORDS = 12
"""Of a window's row: its products are printed one after the other, 14 instructions for four pixels."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """pixels: that read the stretch. run: values of one row of a window. step: values from a pixel to the next."""

    pixels: int
    run: int
    step: int

    @property
    def words(self) -> int:
        """Of one row of a window: pairs of values."""
        return (self.run + 1) // 2

    @property
    def values(self) -> int:
        """Of one row of all windows."""
        return (self.pixels - 1) * self.step + self.run

    @property
    def pitch(self) -> int:
        """Words that each row takes."""
        return (self.values + 1) // 2

    def size_bytes(self, rows: int) -> int:
        """Of the stretches of so many rows, and of the value after them that the last pair of an odd run may read."""
        over = (self.pixels - 1) * self.step + 2 * self.words > 2 * self.pitch
        return 4 * self.pitch * rows + (4 if over else 0)

    @property
    def name(self) -> str:
        """As the template takes it."""
        return f"{self.pixels}x{self.run}x{self.step}"


def _stretch(problem: MacProblem, pixels: int) -> Stretch:
    assert problem.window is not None
    _, _, kernel_w, depth = problem.filters.shape
    return Stretch(pixels, kernel_w * depth, problem.window.stride_w * depth)


def stretch_convolution(problem: MacProblem, *, pixels: int) -> Layer:
    """The layer of a convolution without groups. pixels: of a row of the output, computed at a time. Raises NoKernel."""
    folded = fold_windows(problem)
    stretch, (kernel_h, _) = _stretch(problem, pixels), problem.kernel
    if problem.bound.output.shape[2] < pixels:
        raise NoKernel(f"less than {pixels} pixels in a row")
    if stretch.step >= stretch.run:
        raise NoKernel("its windows do not overlap along the row")
    if stretch.words > MOST_WORDS:
        raise NoKernel(f"more than {2 * MOST_WORDS} values in a row of the window")
    folded = folded.joined()
    runs = folded.filters.reshape(problem.channels, kernel_h, stretch.run)
    values, words = pack_filter_pairs(runs, adjacent_order(stretch.run), joined=folded.spec.joined)
    of_pair = Param("words", "int32_t", words, "of the weights of two channels")
    return replace(folded, spec=folded.spec.extended(f"_{stretch.name}", window=stretch.name)).layer(
        "convolution/conv_2d_span_dsp",
        packed_table(values, problem.filters.shape, CHANNEL_PAIRS, 4),
        (*problem.window_params, of_pair, problem.zero_point, *problem.output_limits),
        scratch=(Scratch("windows", stretch.size_bytes(kernel_h)),),
        by_rows=ByRows(window=True, fitted=True),
        headers=_STRETCH_HEADERS,
    )


def stretch_cost(problem: MacProblem, pixels: int) -> float:
    """Instructions of such a convolution divided by those of `dsp_int8.convolution`.

    Counted in the loops of both: of a word of two channels' weights, of a row of a window, and of a pair of channels.
    """
    stretch, (kernel_h, _) = _stretch(problem, pixels), problem.kernel
    _, out_h, out_w, out_c = problem.bound.output.shape
    pairs = (out_c + 1) // 2
    word = 14 if pixels == 4 else 9 if stretch.step == 2 else 11
    inside = kernel_h * (word * stretch.words + 6) + 12 * pixels + 40
    ours = -(-out_w // pixels) * out_h * (pairs * inside + kernel_h * (1.75 * stretch.values + 12) + 60)
    theirs = -(-out_w * out_h // 4) * (
        pairs * (14.6 * stretch.words * kernel_h + 88) + 4 * kernel_h * (2.5 * stretch.run + 45) + 150
    )
    return ours / theirs
