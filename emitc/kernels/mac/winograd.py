"""Convolutions with fewer products: Winograd's minimal filtering along a row, exact in integers.

F(4, 3) makes four neighbouring outputs of six columns. For each row of the window and each channel it takes six products, where
the sum has twelve. Windows have three columns and a stride of one column; rows, strides and dilations down the image are free,
so that rows can be made one by one. There are kernels by SMLAD, and for cores with 31 registers that multiply one by one.

Source  A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015, 4.2; the points are 0, 1, -1, 2, -2 and
infinity. The factors 1/4, -1/6, 1/24 and 1 of the weights' transform stand in the outputs' one, times 24. So every number before
the last is an integer: y = A ((G g) * (B d)) / 24 without a remainder.
"""

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.ir import BoundNode
from emitc.kernels.mac import scalar_int8
from emitc.kernels.mac.dsp_int8 import CHANNEL_PAIRS, HEADERS, fold_windows
from emitc.kernels.mac.problem import FoldedWeights, MacProblem, NoKernel, packed_table
from emitc.kernels.mac.weight_packing import filter_groups, widening_order
from emitc.layer import ByRows, Layer, Param, Scratch, Table
from emitc.numerics.requantize import INT32_MAX, Int64

_HEADERS = (*HEADERS, "emitc_dsp_winograd.h")
_SCALAR_HEADERS = (*scalar_int8.HEADERS, "emitc_scalar_winograd.h")
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


_SCALAR_TOGETHER = {False: (4, 4), True: (2, 8)}
"""The same of cores with 31 registers, where the second form has half of the working memory."""
_AT_ONCE = 3
"""Weights of a filter in one place that a round of their loop takes there."""
_SUMS = 48
"""Sums that are made at a time, which working memory holds; twice as many on cores with 31 registers."""
_MOST_CHANNELS = 4096
"""Of outputs whose 16 pixels have their places in 16 bits."""


def convolution(problem: MacProblem, *, run_time: bool = False) -> Layer:
    """The layer of a convolution without groups; raises NoKernel where there is none.

    run_time: the weights are transformed in working memory for every 16 pixels. Otherwise they are constants, which take four
    times the bytes of the model's.
    """
    _require_windows(problem)
    depth = problem.filters.shape[3]
    if depth % 4:
        raise NoKernel(Reason("its input's channels are no multiple of four", "a multiple of four"))
    folded = fold_windows(problem)
    tiles, together = _TOGETHER[run_time]
    filters = _filters(folded, together)
    words = filters.shape[1] * depth // 2
    pairs = _pairs(filters, together)
    if run_time:
        folded = replace(folded, spec=folded.spec.extended("_scratch", window="scratch"))
        values, what = pairs.transpose(0, 2, 4, 3, 5, 1).astype(np.int8), CHANNEL_PAIRS
    else:
        folded = replace(folded, spec=folded.spec.extended("_flash", w="int32_t"))
        transformed = np.einsum("pk,nchkxw->nhxpcw", FILTERS, pairs).astype(np.int16)
        values, what = np.ascontiguousarray(transformed).view(np.int32), "transformed, four channels at a time"
    table = packed_table(values.reshape(-1), problem.filters.shape, what, OUTPUTS * tiles, c_type=folded.spec.w)
    layer = _layer(folded, "convolution/conv_2d_winograd_dsp", table, words, tiles, _HEADERS)
    scratch = Scratch("windows", 4 * (PLACES * words * (6 if run_time else 2) + _SUMS))
    return replace(layer, scratch=(scratch,), flash_bytes=0 if run_time else table.size_bytes - problem.filters.size)


def scalar_convolution(problem: MacProblem, *, lean: bool = False) -> Layer:
    """The same for cores with 31 registers and products of 32 bits. The weights are constants of four times the bytes.

    lean: with half of the working memory.
    """
    _require_windows(problem)
    problem.require_runs()
    folded = scalar_int8.fold(problem, mul32=False)
    tiles, together = _SCALAR_TOGETHER[lean]
    filters = _filters(folded, together)[filter_groups(problem.channels, together)]
    values = np.einsum("pk,ohki->ohip", FILTERS, filters).reshape(-1, together, filters[0].size // 3, PLACES)
    padded = np.pad(values, ((0, 0), (0, 0), (0, -values.shape[2] % _AT_ONCE), (0, 0))).transpose(0, 2, 3, 1)
    folded = replace(folded, spec=folded.spec.extended("_flash", w="int16_t"))
    if lean:
        folded = replace(folded, spec=folded.spec.extended("_lean", window="two"))
    what = f"transformed, {together} channels at a time"
    table = packed_table(padded.reshape(-1), problem.filters.shape, what, OUTPUTS * tiles, c_type="int16_t")
    rounds = padded.shape[1] // _AT_ONCE
    layer = _layer(folded, "convolution/conv_2d_winograd_gpr31", table, rounds, tiles, _SCALAR_HEADERS)
    sums = max(2 * _SUMS, -(-problem.filters.shape[3] // 4))
    scratch = Scratch("windows", 2 * PLACES * tiles * padded.shape[1] + 4 * sums)
    return replace(layer, scratch=(scratch,), flash_bytes=table.size_bytes - problem.filters.size)


def _require_windows(problem: MacProblem) -> None:
    window = problem.window
    if window is None or problem.kernel[1] != 3 or window.stride_w != 1:
        raise NoKernel(
            Reason("its windows do not have three columns and a stride of one", "a window of 3x3 and a stride of 1")
        )


def _filters(folded: FoldedWeights, together: int) -> Int64:
    """The filters [O, KH, 3, I]; raises NoKernel where their sums are too large, or they are not as many as they should be."""
    problem = folded.problem
    filters = folded.filters.reshape(problem.filters.shape)
    if _largest(filters) > INT32_MAX or folded.largest_sum > INT32_MAX // 8:
        raise NoKernel("sums of transformed products could overflow int32")
    if problem.channels < together:
        raise NoKernel(f"it has less than {together} output channels")
    if problem.channels > _MOST_CHANNELS:
        raise NoKernel(f"it has more than {_MOST_CHANNELS} output channels")
    return filters


def _layer(
    folded: FoldedWeights, template: str, weights: Table, words: int, tiles: int, headers: tuple[str, ...]
) -> Layer:
    problem = folded.problem
    of_words = Param("words", "int32_t", words, "of a filter's row in one place")
    params = (*problem.window_params, of_words, problem.zero_point, *problem.output_limits)
    return folded.layer(template, weights, params, by_rows=ByRows(window=True, tile=OUTPUTS * tiles), headers=headers)


def computed_share(bound: BoundNode, *, run_time: bool) -> float:
    """Pixels that are computed for an output [N, H, W, C], divided by those that it has."""
    return _computed_pixels(bound, _TOGETHER[run_time][0])


def scalar_computed_share(bound: BoundNode, *, lean: bool) -> float:
    """The same of the elements that `scalar_convolution` computes."""
    channels, (tiles, together) = bound.output.shape[3], _SCALAR_TOGETHER[lean]
    return _computed_pixels(bound, tiles) * -(-channels // together) * together / channels


def _computed_pixels(bound: BoundNode, tiles: int) -> float:
    _, rows, columns, _ = bound.output.shape
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
