"""Convolutions and matrix products in float32 for blocks of four output channels, by a float unit or by MVE.

The sums are those of the portable kernels, in their order. Only the order of the weights differs.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode
from emitc.kernels.mac.problem import DILATED
from emitc.kernels.mac.weight_packing import blocks_of_four
from emitc.kernels.shared.windows import whole_window, window_overlap
from emitc.layer import Layer, by_channel
from emitc.numerics.requantize import Float32

TOGETHER = 4
HEADERS: Mapping[str, tuple[str, ...]] = {
    "fpu": ("emitc_fpu_dot.h",),
    "mve": ("emitc_fpu_dot.h", "emitc_mve.h", "emitc_mve_float32.h", "emitc_mve_dot_float.h"),
}
COMPUTED = "computed weights"


def convolution(bound: BoundNode, layer: Layer, instructions: str) -> Layer | str:
    """The portable float `layer` of a convolution without groups, its filters in blocks of four; or why there is none."""
    channels, filters = _value(layer, "out_c"), _filters(layer)
    if filters is None:
        return COMPUTED
    if _value(layer, "dilation_w") != 1:
        return DILATED
    weights, ahead = blocks_of_four(filters), whole_window(channels, TOGETHER, 4)
    return _laid_out(bound, layer, "convolution/conv_2d_float", weights, "four by four", instructions, ahead)


def product(bound: BoundNode, layer: Layer, instructions: str) -> Layer | str:
    """The same of a matrix product, whose portable `layer` has its rows as images of one pixel each."""
    fours = convolution(bound, layer, instructions)
    if isinstance(fours, str):
        return fours
    values = {param.name: param for param in fours.params}
    names = {"batches": "rows", "in_c": "depth", "out_c": "out_c", "low": "low", "high": "high"}
    params = tuple(replace(values[old], name=new) for old, new in names.items() if old in values)
    return replace(fours, template=f"matrix/fully_connected_float_{instructions}", params=params)


def depthwise(bound: BoundNode, layer: Layer, instructions: str) -> Layer | str:
    """The same where each channel has its own filter, whose weights lie tap by tap."""
    channels, filters = _value(layer, "out_c"), _filters(layer)
    if filters is None:
        return COMPUTED
    if channels != _value(layer, "groups") or channels % TOGETHER:
        return "there is code for one filter for each of whole fours of channels"
    # A block of four channels is read and stored as one channel of four numbers.
    ahead = by_channel(channels // TOGETHER, channels // TOGETHER, 1, 4 * TOGETHER, 4 * TOGETHER)
    template, weights = "convolution/depthwise_conv_2d_float", filters.T.reshape(-1)
    return _laid_out(bound, layer, template, weights, "tap by tap", instructions, ahead)


def _value(layer: Layer, name: str) -> int:
    return next(int(param.value) for param in layer.params if param.name == name)


def _filters(layer: Layer) -> Float32 | None:
    """[O, values of a filter]; None where they are no constants."""
    values = next((table.values for table in layer.tables if table.role == "weights"), None)
    return None if values is None else np.array(values, np.float32).reshape(_value(layer, "out_c"), -1)


def _laid_out(
    bound: BoundNode, layer: Layer, template: str, weights: Array, order: str, instructions: str, ahead: int | None
) -> Layer:
    """The layer by another template, which has no groups and its weights in another order."""
    tables = tuple(
        replace(table, values=tuple(weights.tolist()), comment=f"{table.comment}, {order}", pixels_per_load=0)
        if table.role == "weights"
        else table
        for table in layer.tables
    )
    params = tuple(param for param in layer.params if param.name != "groups")
    overlaps = window_overlap(bound, params, ahead)
    return replace(
        layer, template=f"{template}_{instructions}", tables=tables, params=params, overlaps=overlaps,
        headers=HEADERS[instructions],
    )  # fmt: skip
