"""Depthwise convolutions on cores with Arm's DSP extension or MVE, by planes or tap by tap.

By planes channels are widened to int16, each by itself, then SMLAD takes two columns at a time. Neighbouring columns of a
channel share a word. So one instruction adds two products, and a load serves two outputs. The numbers of a channel stay in
registers while its plane is read. `emitc_dsp_planes.h` has the layout. The kernel takes bands of rows, and keeps the rows that
the next band needs. So working memory depends on the width only.

A value is read once, before an output of its band is stored. So the output may lie over the input at a distance of whole pixels.

Of several filters for each channel, or of int16, four outputs are made at a time, tap by tap. Output o reads input channel o //
multiplier. Four outputs gather their values from the channels that they share: by one instruction on cores with MVE, and one by
one on those with DSP instructions. Sums have 32 bits.

Source of the arithmetic: TFLite 8-bit and 16x8 quantization specifications, as the portable kernel has them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.ir import DType
from emitc.kernels.mac import accumulation, dsp_int8, int16_dsp_mve
from emitc.kernels.mac.accumulation import requantization
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADERS, fold
from emitc.kernels.mac.problem import FOUR_BITS, POINTER_BYTES, FoldedWeights, MacProblem, NoKernel, packed_table
from emitc.kernels.mac.weight_packing import shape_text
from emitc.layer import ByRows, ChannelOrder, Layer, Overlap, Param, Scratch, Table
from emitc.numerics.requantize import Int64, reduced_multiplier
from emitc.records import dataclass, replace

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


def dsp_planes(problem: MacProblem) -> Layer:
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


def planes_cost(problem: MacProblem) -> float:
    """Instructions of such a kernel for an output, counted in its loops."""
    planes, rows = _planes(problem), problem.bound.output.shape[1]
    return planes.instructions(rows) / (rows * planes.width * planes.channels) if planes.band > 1 else 1.0


_LANES = 4


def _filled(values: NDArray[np.int64]) -> tuple[int, ...]:
    """The values, and zeros up to a whole register."""
    return tuple(np.pad(values, (0, -len(values) % _LANES)).tolist())


def _ahead(problem: MacProblem, firsts: Sequence[int]) -> int | None:
    """Bytes ahead, as `WindowOrder` says. firsts: the first output of each group of four, in the order of the groups.

    A group's own input channels start above the window's first byte, which leaves that many bytes less.
    """
    in_bytes, out_bytes = problem.bound.input(0).dtype.bytes, problem.bound.output.dtype.bytes
    multiplier = _multiplier(problem)
    groups = list(enumerate(firsts))[1:]
    return max((_LANES * i * out_bytes - first // multiplier * in_bytes for i, first in groups), default=None)


def _multiplier(problem: MacProblem) -> int:
    return problem.channels // problem.bound.input(0).shape[3]


def mve_multiplied(problem: MacProblem) -> Layer:
    bound, out = problem.bound, problem.channels
    x, y = bound.input(0), bound.output
    if bound.node.op.numerics.float_scale or x.dtype is not y.dtype or x.dtype not in (DType.INT8, DType.INT16):
        raise NoKernel(f"{x.dtype.value} to {y.dtype.value} by float32 factors: there is code for fixed point")
    if bound.input(1).dtype.packed or problem.filters.dtype != np.int8:
        raise NoKernel(FOUR_BITS)
    spec = accumulation.spec(bound, problem.matrix)
    if spec.acc != "int32_t":
        raise NoKernel("its sums need 64 bits")
    multiplier, scale, outputs = _multiplier(problem), requantization(bound), np.arange(out, dtype=np.int64)
    factors, shifts = (np.zeros(out, np.int64) + np.array(values) for values in (scale.q31, scale.shift))
    shift = Table("shift", "int8_t", _filled(shifts), "shift of the product, positive left")
    if spec.reduced:
        factors = np.array([reduced_multiplier(int(q)) << 16 for q in factors], np.int64)
        shift = Table("right", "int8_t", _filled(15 - shifts - 16), "right shift of the product")
    channels = outputs // multiplier - outputs // _LANES * _LANES // multiplier
    values = tuple(problem.filters.reshape(-1).tolist())
    folded = FoldedWeights(problem, problem.matrix.astype(np.int64), accumulation.bias_of(bound, out), scale, spec)
    tables = (
        Table("weights", "int8_t", values, shape_text(problem.filters.shape), pixels_per_load=1),
        Table("bias", "int32_t", _filled(folded.bias), "bias per output channel", alignment=4),
        Table("multiplier", "int32_t", _filled(factors), "multiplier per output channel"),
        shift,
        Table(
            "channels", "int8_t", _filled(channels), "input channel of each output, from that of the first of four on"
        ),
    )
    params = (
        *problem.window_params,
        Param("depth_multiplier", "int32_t", multiplier),
        accumulation.input_offset(bound, folded=problem.folded),
        *problem.output_limits,
    )
    ahead = _ahead(problem, range(0, out, _LANES))
    return folded.layer(
        "convolution/depthwise_conv_2d_multiplier_mve", tables, params, ahead=ahead, headers=("emitc_mve.h",)
    )


def dsp_multiplied(problem: MacProblem) -> Layer:
    """The layer for DSP instructions; raises NoKernel where there is none.

    The kernel lists where the taps of a window read, pixel by pixel of the output; outside of the input they read a pixel of zero
    points. Of a number of outputs that is no multiple of four, the last four are computed at the end, some of them again.
    """
    bound, out, x = problem.bound, problem.channels, problem.bound.input(0)
    is_int16, (kernel_h, kernel_w) = int16_dsp_mve.applies(bound), problem.kernel
    if out < _LANES:
        raise NoKernel("it has fewer than four output channels")
    folded = int16_dsp_mve.fold(problem) if is_int16 else dsp_int8.fold(problem)
    multiplier = _multiplier(problem)
    form = "one" if multiplier == 1 else "even" if multiplier % 2 == 0 else ""
    firsts = [*range(0, out - _LANES, _LANES), out - _LANES]
    order = np.add.outer(firsts, np.arange(_LANES))
    packed = folded.filters[order].transpose(0, 2, 1).reshape(-1)
    weights = packed_table(packed, bound.input(1).shape, "four channels after the other", 0)
    tables = (weights, *int16_dsp_mve.number_tables(folded)) if is_int16 else folded.tables(weights)
    multiplied = (Param("depth_multiplier", "int32_t", multiplier),) if multiplier > 1 else ()
    outputs = problem.output_params if is_int16 else problem.output_limits
    suffix = f"{folded.spec.suffix}_{form}" if form else folded.spec.suffix
    return replace(folded, spec=replace(folded.spec, suffix=suffix, window=form)).layer(
        "convolution/depthwise_conv_2d_multiplier_dsp",
        tables,
        (*problem.window_params, problem.zero_point, *multiplied, *outputs),
        scratch=(
            Scratch("padding_pixel", x.shape[3] * x.dtype.bytes),
            Scratch("taps", POINTER_BYTES * kernel_h * kernel_w),
        ),
        ahead=_ahead(problem, firsts),
        headers=(dsp_int8.HEADER, int16_dsp_mve.DSP_HEADER, "emitc_dsp_depthwise.h"),
    )
