"""Convolutions and matrix products on RISC-V cores with vectors of integers (Zve32x): layers of int8.

A vector has the sums of neighbouring output channels. One instruction multiplies a value by the weights of all of them and adds
the products. Weights lie value by value, so that no kernel depends on the length of the registers. A tile is four pixels, which
share each load of weights. Windows are copied to scratch; where one reaches outside the input it has the zero point, so that one
bias holds its term for all pixels.

Source of the arithmetic: TFLite 8-bit quantization specification. VSMUL rounds the doubled product to its upper half, halves
up, as the specification has it; VSSRA rounds the shift to the right so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.ir import BoundNode
from emitc.kernels.mac.problem import (
    DILATED,
    SEVERAL_FILTERS,
    FoldedWeights,
    MacProblem,
    NoKernel,
    packed_table,
    rounding,
)
from emitc.kernels.shared.windows import whole_window
from emitc.layer import PLAIN, ByRows, Layer, Param, Scratch, Table, WindowOrder, by_channel

HEADERS = ("emitc_rvv.h",)
PIXELS = 4
"""Output pixels of a tile, which share the weights that are read."""
_FLOAT_FACTORS = Reason("its factors are float32", "TFLite's fixed-point factors")
_LANES = 16
_ORDER = "value by value"


def fold(problem: MacProblem) -> FoldedWeights:
    """The numbers of the kernels, with a factor for each channel; raises NoKernel where there are none."""
    folded = problem.fold()
    scale = folded.scale
    if not scale.q31:
        raise NoKernel(_FLOAT_FACTORS)
    short = rounding(problem) if max(scale.shift) < 0 else "any"
    return replace(folded, spec=replace(PLAIN, suffix=f"_{short}", rounding=short))


def tables(folded: FoldedWeights, weights: Table) -> tuple[Table, ...]:
    """Weights, bias, multipliers, and shifts: to the right, or to either side where the rounding is `any`."""
    channels, scale = folded.problem.channels, folded.scale
    q31, shift = (tuple(np.broadcast_to(np.array(v), channels).tolist()) for v in (scale.q31, scale.shift))
    places = (
        Table("shift", "int8_t", shift, "shift of the product per output channel, positive left")
        if folded.spec.rounding == "any"
        else Table("right", "int8_t", tuple(-s for s in shift), "right shift of the product per output channel")
    )
    return weights, folded.bias_table, Table("multiplier", "int32_t", q31, "multiplier per output channel"), places


def convolution(problem: MacProblem) -> Layer:
    """The layer of a convolution without groups or of a fully connected layer; raises NoKernel where there is none."""
    if problem.is_dilated:
        raise NoKernel(DILATED)
    folded = fold(problem)
    channels, size = folded.filters.shape
    pixels = 1 if problem.pixels < PIXELS else PIXELS
    weights = packed_table(folded.filters.T.reshape(-1), problem.filters.shape, _ORDER, pixels)
    size_param = Param("size", "int32_t", size, "bytes of a window")
    if problem.is_matrix_product and _in_tiles(problem):
        rows, _, out = problem.size_params
        layer = folded.layer(
            "mac/matrix_rvv",
            tables(folded, weights),
            (rows, out, size_param, *problem.output_limits),
            ahead=whole_window(channels, 1, 1),
            by_rows=ByRows(counted="rows"),
            headers=HEADERS,
        )
        return _tiled(layer) if pixels > 1 else layer
    return folded.layer(
        "mac/conv_2d_rvv",
        tables(folded, weights),
        (*problem.window_params, size_param, problem.zero_point, *problem.output_limits),
        scratch=(Scratch("windows", PIXELS * size),),
        headers=HEADERS,
    )


def depthwise(problem: MacProblem) -> Layer:
    """The layer of a depthwise convolution with one filter per channel; raises NoKernel where there is none.

    Channels are made as many at a time as there are lanes; each reads its own input channel only.
    """
    channels = problem.channels
    if channels != problem.bound.input(0).shape[3]:
        raise NoKernel(SEVERAL_FILTERS)
    folded = fold(problem)
    return folded.layer(
        "mac/depthwise_conv_2d_rvv",
        tables(folded, packed_table(folded.filters.T.reshape(-1), problem.filters.shape, "tap by tap", 1)),
        (*problem.window_params, problem.zero_point, *problem.output_limits),
        ahead=by_channel(channels, channels, 1, 1, 1),
        headers=HEADERS,
    )


def share_of_lanes(bound: BoundNode) -> float:
    """Lanes that registers of 128 bits have for a pixel's output channels, by the channels.

    A cost per product of full registers times this is that of a product.
    """
    channels = bound.output.shape[-1]
    return -(-channels // _LANES) * _LANES / channels


def _in_tiles(problem: MacProblem) -> bool:
    """Whether no tile of a matrix product has pixels of two images."""
    images = 1 if problem.window is None else problem.bound.output.shape[0]
    return images == 1 or problem.pixels // images % PIXELS == 0


def _tiled(layer: Layer) -> Layer:
    """The layer of a kernel that makes four pixels at a time."""
    orders = (overlap.order for overlap in layer.overlaps)
    tiled = [replace(order, tile=PIXELS) for order in orders if isinstance(order, WindowOrder)]
    return replace(layer, overlaps=tuple(replace(o, order=t) for o, t in zip(layer.overlaps, tiled, strict=True)))
