"""Convolutions by SMLAD with fewer products: Winograd's minimal filtering along a row, exact in integers.

F(4, 3) makes four neighbouring outputs of six columns. For each row of the window and each channel it takes six products, where
the sum has twelve. Windows have three columns and a stride of one column; rows, strides and dilations down the image are free,
so that rows can be made one by one.

Source  A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015, 4.2; the points are 0, 1, -1, 2, -2 and
infinity. The factors 1/4, -1/6, 1/24 and 1 of the weights' transform stand in the outputs' one, times 24. So every number before
the last is an integer: y = A ((G g) * (B d)) / 24 without a remainder.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.ir import Shape
from emitc.kernels.mac.dsp_int8 import CHANNEL_PAIRS, HEADERS, fold_windows
from emitc.kernels.mac.problem import MacProblem, NoKernel, packed_table
from emitc.kernels.mac.weight_packing import filter_groups, widening_order
from emitc.layer import ByRows, Layer, Param, Scratch
from emitc.numerics.requantize import INT32_MAX, Int64

_HEADERS = (*HEADERS, "emitc_dsp_winograd.h")
OUTPUTS = 4
"""Neighbouring pixels that six columns make."""
PLACES = 6
"""Products of a row of the window, for each channel."""
_TOGETHER = {False: (2, 4), True: (4, 2)}
"""Sixes of columns and output channels at a time: transformed weights of few channels take less working memory."""
FILTERS = np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [1, 2, 4], [1, -2, 4], [0, 0, 1]])
"""G: what the three weights of a row become, times 4, -6, -6, 24, 24 and 1."""
VALUES = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
"""B: what the six columns become."""


_SUMS = 48
"""Sums that are made at a time, which working memory holds."""
_MOST_CHANNELS = 4096
"""Of outputs whose 16 pixels have their places in 16 bits."""


def convolution(problem: MacProblem, *, run_time: bool = False) -> Layer:
    """The layer of a convolution without groups; raises NoKernel where there is none.

    run_time: the weights are transformed in working memory for every 16 pixels. Otherwise they are constants, which take four
    times the bytes of the model's.
    """
    window, (kernel_h, kernel_w) = problem.window, problem.kernel
    depth = problem.filters.shape[3]
    if window is None or kernel_w != 3 or window.stride_w != 1:
        raise NoKernel(
            Reason("its windows do not have three columns and a stride of one", "a window of 3x3 and a stride of 1")
        )
    if depth % 4:
        raise NoKernel(Reason("its input's channels are no multiple of four", "a multiple of four"))
    folded = fold_windows(problem)
    filters = folded.filters.reshape(problem.channels, kernel_h, kernel_w, depth)
    if _largest(filters) > INT32_MAX or folded.largest_sum > INT32_MAX // 8:
        raise NoKernel("sums of transformed products could overflow int32")
    tiles, together = _TOGETHER[run_time]
    if problem.channels < together:
        raise NoKernel(f"it has less than {together} output channels")
    if problem.channels > _MOST_CHANNELS:
        raise NoKernel(f"it has more than {_MOST_CHANNELS} output channels")
    words = kernel_h * depth // 2
    pairs = _pairs(filters, together)
    if run_time:
        folded = replace(folded, spec=folded.spec.extended("_scratch", window="scratch"))
        values, what = pairs.transpose(0, 2, 4, 3, 5, 1).astype(np.int8), CHANNEL_PAIRS
    else:
        folded = replace(folded, spec=folded.spec.extended("_flash", w="int32_t"))
        transformed = np.einsum("pk,nchkxw->nhxpcw", FILTERS, pairs).astype(np.int16)
        values, what = np.ascontiguousarray(transformed).view(np.int32), "transformed, four channels at a time"
    table = packed_table(values.reshape(-1), problem.filters.shape, what, OUTPUTS * tiles, c_type=folded.spec.w)
    layer = folded.layer(
        "convolution/conv_2d_winograd_dsp",
        table,
        (
            *problem.window_params,
            Param("words", "int32_t", words, "of a filter's row in one place"),
            problem.zero_point,
            *problem.output_limits,
        ),
        scratch=(Scratch("windows", 4 * (PLACES * words * (6 if run_time else 2) + _SUMS)),),
        by_rows=ByRows(window=True, tile=OUTPUTS * tiles),
        headers=_HEADERS,
    )
    return replace(layer, flash_bytes=0 if run_time else table.size_bytes - problem.filters.size)


def computed_share(shape: Shape, *, run_time: bool) -> float:
    """Pixels that are computed for an output [N, H, W, C], divided by those that it has."""
    (_, rows, columns, _), (tiles, _) = shape, _TOGETHER[run_time]
    sixes = -(-columns // OUTPUTS) * rows
    return -(-sixes // tiles) * tiles * OUTPUTS / (rows * columns)


def _pairs(filters: Int64, together: int) -> Int64:
    """Filters [O, KH, 3, I] in groups, and their values in pairs: [groups, together, KH, 3, I / 2, 2]."""
    out, kernel_h, kernel_w, depth = filters.shape
    pairs = filters[filter_groups(out, together)].reshape(-1, together, kernel_h, kernel_w, depth)
    words: Int64 = pairs[..., widening_order(depth)]
    return words


def _largest(filters: Int64) -> int:
    """Bound on every sum of products of transformed int8 values and transformed filters [O, KH, 3, I]."""
    values = 128 * np.abs(VALUES).sum(axis=1)
    weights = np.abs(np.einsum("pk,ohki->ophi", FILTERS, filters)).sum(axis=(2, 3))
    return int((weights * values).max())
