"""Convolutions in pairs of int16 whose windows overlap: neighbouring pixels read one stretch of the input, widened once.

For each row of a window, the stretch has the values from the first pixel's first to the last one's last, as int16 in the
input's order. A pixel's pairs are at a fixed distance from its neighbour's. Where that is an odd number of values they are at
odd halfwords, which these cores load in one instruction all the same; where it is an even one, the words of a row lie by their
place modulo the distance, so that those of neighbouring pixels follow each other and come two at a time.

Next to `pair_products.convolution`, which widens every pixel's window by itself, filling takes less time and less working
memory; but the kernel is printed for the window's size, so that every size is a kernel of its own.

Source of the arithmetic: as in `pair_products`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode
from emitc.kernels.mac.dsp_int8 import HEADERS, operands, output_numbers, paired_weights, scaling_tables, weight_tables
from emitc.kernels.mac.requantization import WEIGHTS
from emitc.kernels.shared.windows import Window, window_overlap, window_params
from emitc.layer import ByRows, Layer, Param, Scratch

MOST_WORDS = 12
"""Of a window's row: its products are printed one after the other, 15 instructions for four pixels."""


@dataclass(frozen=True, slots=True)
class Span:
    """pixels: that read one stretch. run: values of one row of a window. step: values from a pixel to the next."""

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
        """Of the stretches of so many rows, and of a value behind them where the last pair of an odd run reads it."""
        over = (self.pixels - 1) * self.step + 2 * self.words > 2 * self.pitch
        return 4 * self.pitch * rows + (4 if over else 0)

    @property
    def name(self) -> str:
        """As the template takes it."""
        return f"{self.pixels}x{self.run}x{self.step}"


def in_order(length: int) -> NDArray[np.int64]:
    """Indices of a run's values, two for each word; -1 for none.

    >>> in_order(3).tolist()
    [[0, 1], [2, -1]]
    """
    return np.array([*range(length), *([-1] * (length % 2))], np.int64).reshape(-1, 2)


def convolution(
    bound: BoundNode, window: Window, activation: str, filters: Array, *, folded: bool, pixels: int
) -> Layer | str:
    """The layer of a convolution without groups, filters [O, KH, KW, I]; or why there is none.

    folded: the bias holds the zero point's share already. pixels: of a row of the output, made at a time.
    """
    found = operands(bound, window, activation, filters, folded=folded)
    if isinstance(found, str):
        return found
    flat, bias, scale, clamp, kind = found
    out, kernel_h, kernel_w, depth = filters.shape
    span = Span(pixels, kernel_w * depth, window.stride_w * depth)
    if bound.output.shape[2] < pixels:
        return f"less than {pixels} pixels in a row"
    if window.stride_w >= kernel_w:
        return "its windows do not overlap along the row"
    if span.words > MOST_WORDS:
        return f"more than {2 * MOST_WORDS} values in a row of the window"
    x = bound.input(0)
    values, words = paired_weights(flat.reshape(out, kernel_h, span.run), in_order(span.run))
    kind = kind.extended(f"_{span.name}", window=span.name)
    params = window_params(bound, window, kernel_h, kernel_w)
    tail = (
        Param("words", "int32_t", words, "of the weights of two channels"),
        Param("zero_point", "int32_t", x.zero_point, "of the input"),
        *output_numbers(bound, scale, clamp),
    )
    return Layer(
        "convolution/conv_2d_span_dsp",
        "dsp", (0,), (*weight_tables(values, filters.shape, bias, pixels_per_load=4), *scaling_tables(scale, kind)),
        params + tail, scratch=(Scratch("windows", span.size_bytes(kernel_h)),), macs=flat.size * (bound.output.elements // out),
        spec=kind, overlaps=window_overlap(bound, params, None), by_rows=ByRows(window=True, fitted=True), headers=HEADERS,
    )  # fmt: skip


def against_four(bound: BoundNode, window: Window, pixels: int) -> float:
    """Instructions of such a convolution against those of `dsp_int8.convolution`, which widens every window by itself.

    Counted in the loops of both: of a word of two channels' weights, of a row of a window, and of a pair of channels.
    """
    kernel_h, kernel_w = bound.input(WEIGHTS).shape[1:3]
    depth = bound.input(0).shape[3]
    _, out_h, out_w, out_c = bound.output.shape
    span, pairs = Span(pixels, kernel_w * depth, window.stride_w * depth), (out_c + 1) // 2
    word = (15 if pixels == 4 else 12) - (0 if span.step % 2 else 2 if pixels == 4 or span.step == 2 else 1)
    inside = kernel_h * (word * span.words + 4) + 14 * pixels + 24
    ours = -(-out_w // pixels) * out_h * (pairs * inside + kernel_h * (1.75 * span.values + 12) + 60)
    theirs = -(-out_w * out_h // 4) * (
        pairs * (13 * span.words * kernel_h + 110) + 4 * kernel_h * (2.5 * span.run + 18)
    )
    return ours / theirs
