"""Depthwise convolutions by planes: channels are widened to int16, each by itself, then SMLAD takes two columns at a time.

Neighbouring columns of a channel share a word. So one instruction adds two products, and a load serves two outputs. The numbers
of a channel stay in registers while its plane is read. `emitc_dsp_planes.h` has the layout. The kernel takes bands of six rows,
and keeps the rows that the next band needs. So working memory depends on the width only.

A value is read once, before an output of its band is stored. So the output may lie over the input at a distance of whole pixels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.ir import BoundNode
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADERS, fold
from emitc.kernels.mac.problem import MacProblem, packed_table
from emitc.layer import ByRows, ChannelOrder, Layer, Overlap, Param, Scratch

_STRIP_BYTES = 32
"""EMITC_PLANE_ROWS words."""
_BAND = 6
"""Output rows of a band."""
_FOUR_BYTES = 2048
"""Working memory up to which four channels are widened at a time, which takes less time than two by two."""


def depthwise(problem: MacProblem) -> Layer | str:
    """The layer of a depthwise convolution with one filter per channel; or why there is none."""
    window, channels, x = problem.window, problem.channels, problem.bound.input(0)
    assert window is not None
    if problem.kernel != (3, 3) or (window.stride_h, window.stride_w) != (1, 1):
        return "its window is not 3x3 with stride 1"
    if (window.dilation_h, window.dilation_w) != (1, 1):
        return "it is dilated"
    folded = fold(problem)
    if isinstance(folded, str):
        return folded
    (batches, in_h, in_w, _), (_, out_h, out_w, _) = x.shape, problem.bound.output.shape
    pairs = max((window.padding.left + in_w + 1) // 2, (out_w + 1) // 2 + 1)
    group = 4 if channels >= 4 and 4 * _STRIP_BYTES * pairs <= _FOUR_BYTES else 2
    order, shrinks = ChannelOrder(batches, in_h * in_w, out_h * out_w, channels), out_h <= in_h and out_w <= in_w
    weights = folded.filters.reshape(channels, 3, 3)[:, :, [0, 1, 1, 2]].reshape(-1).astype(np.int8)
    strips = Param("strips", "int32_t", group * pairs, "of working memory, one for a channel and two columns")
    layer = replace(folded, spec=folded.spec.extended(f"_{group}", window=f"{group}")).layer(
        "convolution/depthwise_planes_dsp",
        packed_table(weights, problem.filters.shape, "0, 1, 1 and 2 of each row, channel by channel", _BAND),
        (*problem.window_params, strips, problem.zero_point, *problem.output_limits),
        scratch=(Scratch("planes", _STRIP_BYTES * group * pairs),),
        by_rows=ByRows(window=True, alone=_row_by_row(problem.bound)),
        headers=(*HEADERS, BYTES_HEADER, "emitc_dsp_planes.h"),
    )
    return replace(layer, overlaps=(Overlap(0, 0, order),) if shrinks else ())


def _instructions(bound: BoundNode, rows: int) -> float:
    """Of so many output rows of an image: for two rows and columns, for a channel's band, for two columns of two channels."""
    _, _, columns, channels = bound.output.shape
    bands, pairs = -(-rows // _BAND), (columns + 1) // 2
    tiles = (rows // _BAND * (_BAND // 2) + (rows % _BAND + 1) // 2) * pairs
    return channels * (64 * tiles + 176 * bands + 4 * (rows + 2) * (pairs + 1))


def each_output(bound: BoundNode) -> float:
    """Instructions of such a kernel for an output, counted in its loops."""
    _, rows, columns, channels = bound.output.shape
    return _instructions(bound, rows) / (rows * columns * channels)


def _row_by_row(bound: BoundNode) -> float:
    """What rows that are made one by one cost more, as a share."""
    rows = bound.output.shape[1]
    return rows * _instructions(bound, 1) / _instructions(bound, rows) - 1
