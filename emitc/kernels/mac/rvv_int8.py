"""Convolutions and matrix products on RISC-V cores with vectors of integers (Zve32x): layers of int8.

A vector has the sums of neighbouring output channels. One instruction multiplies a value by the weights of all of them and adds
the products. Weights lie value by value, so that no kernel depends on the length of the registers.

Source of the arithmetic: TFLite 8-bit quantization specification. VSMUL rounds the doubled product to its upper half, halves
up, as the specification has it; VSSRA rounds the shift to the right so.
"""

from dataclasses import replace

import numpy as np

from emitc.errors import Reason
from emitc.ir import BoundNode
from emitc.kernels.mac import four_pixels
from emitc.kernels.mac.four_pixels import PIXELS, matrix, reads_rows_in_place, tiled
from emitc.kernels.mac.problem import (
    DILATED,
    SEVERAL_FILTERS,
    FoldedWeights,
    MacProblem,
    NoKernel,
    packed_table,
    rounding,
)
from emitc.layer import PLAIN, Layer, Table, by_channel

HEADERS = ("emitc_rvv.h",)
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
    size = folded.filters.shape[1]
    pixels = 1 if problem.pixels < PIXELS else PIXELS
    weights = packed_table(folded.filters.T.reshape(-1), problem.filters.shape, _ORDER, pixels)
    if reads_rows_in_place(problem):
        layer = matrix(folded, "mac/matrix_rvv", tables(folded, weights), size, 1, HEADERS)
        return tiled(layer) if pixels > 1 else layer
    return four_pixels.convolution(folded, "mac/conv_2d_rvv", tables(folded, weights), size, HEADERS)


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
