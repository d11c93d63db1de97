"""Depthwise convolutions by planes: channels are widened to int16, each by itself, then SMLAD takes two columns at a time.

Neighbouring columns of a channel share a word. So one instruction adds two products, and a load serves two outputs. The numbers
of a channel stay in registers while its plane is read. `emitc_dsp_planes.h` has the layout. The kernel takes bands of rows, and
keeps the rows that the next band needs. So working memory depends on the width only.

A value is read once, before an output of its band is stored. So the output may lie over the input at a distance of whole pixels.
"""

from dataclasses import dataclass, replace

import numpy as np

from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADERS, fold
from emitc.kernels.mac.problem import MacProblem, NoKernel, packed_table
from emitc.layer import ByRows, ChannelOrder, Layer, Overlap, Param, Scratch
from emitc.numerics.requantize import Int64

_ROWS = 8
"""EMITC_PLANE_ROWS."""
_STRIP_BYTES = 4 * _ROWS
_BEYOND_BYTES = 8
"""Words after the last strip that the sums of rows which no output has may read."""
_FOUR_BYTES = 2048
"""Working memory up to which four channels are widened at a time, which takes less time than two by two."""


@dataclass(frozen=True, slots=True)
class Planes:
    """A window and the bands in which its outputs are made. Heights and widths are those of the window and of the output."""

    kernel_h: int
    kernel_w: int
    width: int
    channels: int

    @property
    def fast(self) -> bool:
        """Whether all weights of a channel stay in registers."""
        return (self.kernel_h, self.kernel_w) == (3, 3)

    @property
    def band(self) -> int:
        return _ROWS - self.kernel_h + 1

    @property
    def words(self) -> int:
        """Of weights, for a row of the window."""
        return (self.kernel_w + 2) // 2

    @property
    def columns(self) -> int:
        """Pairs of columns that the outputs read."""
        return (self.width + 1) // 2 + self.words - 1

    def packed(self, filters: Int64) -> Int64:
        """Weights [C, KH, KW] as the kernel reads them."""
        if self.fast:
            return filters.reshape(-1)
        first = 2 * np.arange(self.words)
        padded = np.pad(filters, ((0, 0), (0, 0), (1, 3)))
        pairs = np.stack(
            [padded[:, :, first + at] for at in (1, 0, 2, 1)], axis=-1
        )  # the odd bytes are those of the second output
        return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(-1)

    def instructions(self, rows: int) -> float:
        """Of so many output rows: counted for two rows of one or two columns, a channel's band, and a widened word."""
        bands, pairs, odd = -(-rows // self.band), (self.width + 1) // 2, self.width % 2
        row_pairs = rows // self.band * ((self.band + 1) // 2) + (rows % self.band + 1) // 2
        tiles = (60 * (self.width // 2) + 37 * odd) if self.fast else (54 + 13 * self.kernel_h * self.words) * pairs
        band = 85 + 30 * odd if self.fast else 176
        return self.channels * (tiles * row_pairs + band * bands + 4 * (rows + self.kernel_h - 1) * self.columns)


def _planes(problem: MacProblem) -> Planes:
    return Planes(*problem.kernel, problem.bound.output.shape[2], problem.channels)


def depthwise(problem: MacProblem) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none."""
    window, bound = problem.window, problem.bound
    assert window is not None
    if (window.stride_h, window.stride_w, window.dilation_h, window.dilation_w) != (1, 1, 1, 1):
        raise NoKernel("it has a stride or a dilation")
    planes = _planes(problem)
    if planes.band < 2:
        raise NoKernel(f"its window has more than {_ROWS - 1} rows")
    if problem.channels < 4 and not planes.fast:
        raise NoKernel("it has fewer than four channels")
    folded = fold(problem)
    (batches, in_h, in_w, channels), (_, out_h, out_w, _) = bound.input(0).shape, bound.output.shape
    pairs = max((window.padding.left + in_w + 1) // 2, planes.columns)
    group = 2 if planes.fast and (channels < 4 or 4 * _STRIP_BYTES * pairs > _FOUR_BYTES) else 4
    form = "3x3" if planes.fast else "any"
    order, shrinks = ChannelOrder(batches, in_h * in_w, out_h * out_w, channels), out_h <= in_h and out_w <= in_w
    weights = planes.packed(folded.filters.reshape(-1, channels, *problem.kernel)[0]).astype(np.int8)
    size = _STRIP_BYTES * group * pairs + (0 if planes.fast else _BEYOND_BYTES)
    params = (
        Param("group", "int32_t", group, "channels that are widened at a time"),
        Param("strips", "int32_t", group * pairs, "of working memory, one for a channel and two columns"),
        Param("band", "int32_t", planes.band, "rows that are made at a time"),
        Param("words", "int32_t", planes.words, "of the weights in a row of the window"),
    )
    layer = replace(folded, spec=folded.spec.extended(f"_{form}", window=form)).layer(
        "convolution/depthwise_planes_dsp",
        packed_table(
            weights, problem.filters.shape, "in pairs of neighbours or row by row, channel by channel", planes.band
        ),
        (*problem.window_params, *params, problem.zero_point, *problem.output_limits),
        scratch=(Scratch("planes", size),),
        by_rows=ByRows(window=True, alone=out_h * planes.instructions(1) / planes.instructions(out_h) - 1),
        headers=(*HEADERS, BYTES_HEADER, "emitc_dsp_planes.h"),
    )
    return replace(layer, overlaps=(Overlap(0, 0, order),) if shrinks else ())


def each_output(problem: MacProblem) -> float:
    """Instructions of such a kernel for an output, counted in its loops."""
    planes, rows = _planes(problem), problem.bound.output.shape[1]
    return planes.instructions(rows) / (rows * planes.width * planes.channels) if planes.band > 1 else 1.0
