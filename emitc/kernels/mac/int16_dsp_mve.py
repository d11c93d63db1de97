"""Convolutions and matrix products of int16 activations with int8 weights: layers for cores with DSP instructions or MVE.

Pairs of int16 lie in memory as SMLAD takes them, so that only weights are widened. Such activations are symmetric: where a window
reaches outside the input there are zeros, and no sum has a term of a zero point. Sums have 32 bits; layers whose sums need
64 have the portable kernels. The requantization is that of the portable kernels, output by output.

Source of the arithmetic: TFLite 16x8 quantization specification (int16x8.py); ONNX's float32 factor (accumulation.py).
"""

import numpy as np

from emitc.ir import BoundNode, DType
from emitc.kernels.mac import accumulation, dsp_int8
from emitc.kernels.mac.accumulation import requantization
from emitc.kernels.mac.problem import FOUR_BITS, ONE_CHANNEL, FoldedWeights, MacProblem, NoKernel, packed_table
from emitc.kernels.mac.weight_packing import BLOCK, adjacent_order, pack_filter_pairs, pack_filter_quads
from emitc.kernels.shared.windows import BY_ROWS, whole_window
from emitc.layer import ByRows, Layer, Param, Scratch, Table

DSP_HEADER = "emitc_dsp_int16.h"
MVE_HEADERS = ("emitc_mve.h", "emitc_mve_int16.h")
_BYTES = 2
"""Of a value."""
_FEW_ROWS = 4
"""A matrix product of fewer rows has them computed one by one."""


def applies(bound: BoundNode) -> bool:
    """Whether inputs and outputs are int16."""
    return bound.input(0).dtype is DType.INT16 and bound.output.dtype is DType.INT16


def fold(problem: MacProblem) -> FoldedWeights:
    """The numbers of the kernels; raises NoKernel where there are none. There is no zero point to fold."""
    bound, filters = problem.bound, problem.matrix
    if bound.input(1).dtype.packed:
        raise NoKernel(FOUR_BITS)
    if filters.dtype != np.int8:
        raise NoKernel("weights with zero points")
    quantization = bound.input(0).quantization
    if not problem.folded and quantization and any(quantization.zero_points):
        raise NoKernel("its int16 values have a zero point")
    spec = accumulation.spec(bound, filters)
    if spec.acc != "int32_t":
        raise NoKernel("sums of 64 bits")
    bias = accumulation.bias_of(bound, problem.channels)
    return FoldedWeights(problem, filters.astype(np.int64), bias, requantization(bound), spec)


def number_tables(folded: FoldedWeights) -> tuple[Table, ...]:
    bias = Table("bias", "int32_t", tuple(folded.bias.tolist()), "bias per output channel")
    return (bias, *folded.scaling_tables)


def dsp_convolution(problem: MacProblem) -> Layer:
    """The DSP layer of a convolution without groups, or of a fully connected layer: four pixels and two channels at a time."""
    folded, out = fold(problem), problem.channels
    problem.require_runs()
    few = problem.pixels < _FEW_ROWS or (problem.window is None and out < 2)
    if problem.is_matrix_product and few:
        return _rows(folded)
    if out == 1:
        raise NoKernel(ONE_CHANNEL)
    runs = folded.filters.reshape(out, problem.kernel[0], -1)
    values, words = pack_filter_pairs(runs, adjacent_order(runs.shape[2]))
    weights = packed_table(values, problem.bound.input(1).shape, dsp_int8.CHANNEL_PAIRS, dsp_int8.PIXELS)
    of_pair = Param("words", "int32_t", words, "of the weights of two channels")
    return folded.layer(
        "convolution/conv_2d_s16_dsp",
        (weights, *number_tables(folded)),
        (*problem.window_params, of_pair, *problem.output_params),
        scratch=(Scratch("windows", 4 * dsp_int8.PIXELS * words),),
        by_rows=None if problem.window is None else BY_ROWS,
        headers=(*dsp_int8.HEADERS, DSP_HEADER),
    )


def _rows(folded: FoldedWeights) -> Layer:
    """The DSP layer of a matrix product of few rows, four channels at a time."""
    problem, (out, depth) = folded.problem, folded.filters.shape
    whole = out // BLOCK * BLOCK
    blocks = np.zeros(0, np.int8)
    if whole:
        blocks, _ = pack_filter_quads(folded.filters[:whole].reshape(whole, 1, depth), adjacent_order(depth))
    values = np.concatenate([blocks, folded.filters[whole:].reshape(-1)])
    weights = packed_table(values, problem.bound.input(1).shape, "four channels at a time", 1)
    return folded.layer(
        "matrix/row_s16_dsp",
        (weights, *number_tables(folded)),
        (*problem.size_params, *problem.output_params),
        ahead=whole_window(out, BLOCK, _BYTES),
        by_rows=ByRows(counted="rows", outputs=BLOCK),
        headers=(dsp_int8.HEADER, DSP_HEADER),
    )


def mve_convolution(problem: MacProblem) -> Layer:
    """The MVE layer of a convolution without groups, or of a fully connected layer: four channels at a time."""
    folded = fold(problem)
    problem.require_runs()
    weights = packed_table(folded.filters.reshape(-1), problem.bound.input(1).shape, "filter by filter", 1)
    return folded.layer(
        "convolution/conv_2d_s16_mve",
        (weights, *number_tables(folded)),
        (*problem.window_params, *problem.output_params),
        ahead=whole_window(problem.channels, BLOCK, _BYTES),
        by_rows=None if problem.window is None else BY_ROWS,
        headers=MVE_HEADERS,
    )
