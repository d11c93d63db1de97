"""Convolutions by SMLAD whose windows overlap: neighbouring pixels read one stretch of the input, widened once.

For each row of a window, the stretch has the values from the first pixel's first to the last one's last. They are int16 in the
input's order. A pixel's pairs are at a fixed distance from its neighbour's. Where that is an odd number of values they are at
odd halfwords, which these cores load in one instruction all the same. Where it is an even one, the words of a row lie by their
place modulo the distance. So those of neighbouring pixels follow each other, and one instruction loads two.

`dsp_int8.convolution` widens every pixel's window by itself. Widening a stretch takes less time and less working memory. But
the kernel is printed for the window's size, so that every size is a kernel of its own.
"""

from dataclasses import dataclass, replace

from emitc.kernels.mac.dsp_int8 import CHANNEL_PAIRS, PIXEL_HEADERS, fold_windows
from emitc.kernels.mac.problem import MacProblem, NoKernel, packed_table
from emitc.kernels.mac.weight_packing import adjacent_order, pack_filter_pairs
from emitc.layer import ByRows, Layer, Param, Scratch

_HEADERS = (*PIXEL_HEADERS, "emitc_dsp_span.h")
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


def convolution(problem: MacProblem, *, pixels: int) -> Layer:
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
        headers=_HEADERS,
    )


def relative_cost(problem: MacProblem, pixels: int) -> float:
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
