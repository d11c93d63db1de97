"""Kernels that sum up four filters at a time: variants made of the portable layer, for a float unit, DSP instructions or MVE.

The sums are those of the portable kernels: of floats in the same order. Only the order of the weights differs, which lie as the
kernel reads them. Those of int8 lie in blocks of four filters for DSP instructions (`pack_dsp_blocks`), filter by filter for MVE.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import Variant, requires
from emitc.kernels.costs import Costs
from emitc.kernels.mac import dsp_int8, mve_int8
from emitc.kernels.mac.problem import DILATED
from emitc.kernels.mac.weight_packing import blocks_of_four, pack_dsp_blocks
from emitc.kernels.shared.windows import whole_window, window_overlap
from emitc.layer import Layer, Table, by_channel
from emitc.numerics.requantize import Float32

TOGETHER = 4
HEADERS: Mapping[str, tuple[str, ...]] = {
    "fpu": ("emitc_fpu_dot.h",),
    "mve": ("emitc_fpu_dot.h", "emitc_mve.h", "emitc_mve_float32.h", "emitc_mve_dot_float.h"),
}
COMPUTED = "computed weights"


def float_convolution(bound: BoundNode, layer: Layer, instructions: str) -> Layer | str:
    """The portable float `layer` of a convolution without groups, its filters in blocks of four; or why there is none."""
    channels, filters = _value(layer, "out_c"), _filters(layer)
    if filters is None:
        return COMPUTED
    if _value(layer, "dilation_w") != 1:
        return DILATED
    weights, ahead = blocks_of_four(filters), whole_window(channels, TOGETHER, 4)
    return _in_order(bound, layer, "convolution/conv_2d_float", weights, "four by four", instructions, ahead)


def float_product(bound: BoundNode, layer: Layer, instructions: str) -> Layer | str:
    """The same of a matrix product, whose portable `layer` has its rows as images of one pixel each."""
    fours = float_convolution(bound, layer, instructions)
    if isinstance(fours, str):
        return fours
    values = {param.name: param for param in fours.params}
    names = {"batches": "rows", "in_c": "depth", "out_c": "out_c", "low": "low", "high": "high"}
    params = tuple(replace(values[old], name=new) for old, new in names.items() if old in values)
    return replace(fours, template=f"matrix/fully_connected_float_{instructions}", params=params)


def float_depthwise(bound: BoundNode, layer: Layer, instructions: str) -> Layer | str:
    """The same where each channel has its own filter, whose weights lie tap by tap."""
    channels, filters = _value(layer, "out_c"), _filters(layer)
    if filters is None:
        return COMPUTED
    if channels != _value(layer, "groups") or channels % TOGETHER:
        return "there is code for one filter for each of whole fours of channels"
    # A block of four channels is read and stored as one channel of four numbers.
    ahead = by_channel(channels // TOGETHER, channels // TOGETHER, 1, 4 * TOGETHER, 4 * TOGETHER)
    template, weights = "convolution/depthwise_conv_2d_float", filters.T.reshape(-1)
    return _in_order(bound, layer, template, weights, "tap by tap", instructions, ahead)


def _value(layer: Layer, name: str) -> int:
    return next(int(param.value) for param in layer.params if param.name == name)


def _filters(layer: Layer) -> Float32 | None:
    """[O, values of a filter]; None where they are no constants."""
    values = next((table.values for table in layer.tables if table.role == "weights"), None)
    return None if values is None else np.array(values, np.float32).reshape(_value(layer, "out_c"), -1)


def _reordered(tables: tuple[Table, ...], arrays: Mapping[str, Array], how: str, **changes: Any) -> tuple[Table, ...]:
    """The tables with the values of `arrays`, by their roles. how: the values' order. changes: to those tables' other fields."""

    def changed(table: Table) -> Table:
        values = tuple(arrays[table.role].reshape(-1).tolist())
        return replace(table, values=values, comment=f"{table.comment}, {how}", **changes)

    return tuple(changed(table) if table.role in arrays else table for table in tables)


def _in_order(
    bound: BoundNode, layer: Layer, template: str, weights: Array, order: str, instructions: str, ahead: int | None
) -> Layer:
    """The layer by another template, which has no groups and its weights in another order."""
    tables = _reordered(layer.tables, {"weights": weights}, order, pixels_per_load=0)
    params = tuple(param for param in layer.params if param.name != "groups")
    overlaps = window_overlap(bound, params, ahead)
    return replace(
        layer, template=f"{template}_{instructions}", tables=tables, params=params, overlaps=overlaps,
        headers=HEADERS[instructions],
    )  # fmt: skip


Lower = Callable[[BoundNode], Layer | str]


def laid_out(layer: Layer, sizes: Mapping[str, tuple[int, ...]], order: tuple[int, ...]) -> Layer | str:
    """The portable `layer` with its weights in another order; or why it has none to lay out.

    sizes: by the role of their table, what the weights' dimensions are taken for. order: that of these dimensions in the new
    table.
    """
    tables = {table.role: table for table in layer.tables}
    if not sizes.keys() <= tables.keys():
        return COMPUTED
    arrays = {k: np.array(tables[k].values, np.float32).reshape(v).transpose(order) for k, v in sizes.items()}
    return replace(layer, tables=_reordered(layer.tables, arrays, "four by four"))


def float_variants(lower: Lower, unit: Costs, vectors: Costs) -> tuple[Variant, ...]:
    """Those of an operator in float32, whose portable layers `lower` gives as the variants have them, or why there is none.

    unit, vectors: what they cost by the float unit and by vectors.
    """
    costs = {"fpu": unit, "mve": vectors}
    return tuple(
        Variant(name, name, lower, cost, (DType.FLOAT32,), (_OF_FLOATS,), f"_{name}", HEADERS[name])
        for name, cost in costs.items()
    )


_OF_FLOATS = requires(lambda bound: bound.input(0).dtype is DType.FLOAT32, "its values are integers")


Filters = Callable[[BoundNode], Mapping[str, Array] | str]
"""A node's filters [O, K] by the role of their table, or why there is no such kernel for it."""
_PACKINGS: Mapping[str, tuple[Callable[[Array], Array], str, tuple[str, ...]]] = {
    "mve": (lambda filters: np.asarray(filters, np.int8), "filter by filter", mve_int8.HEADERS),
    "dsp": (pack_dsp_blocks, "arranged for pairs", (dsp_int8.HEADER, dsp_int8.BYTES_HEADER)),
}
"""By instruction set: how a table's weights are packed, what the comment says of that, and the headers."""


def int8_variants(
    lower: Callable[[BoundNode], Layer], filters: Filters, vectors: Costs, pairs: Costs
) -> tuple[Variant, ...]:
    """The variants of a kernel of int8 activations whose portable layer `lower` gives. vectors, pairs: what they cost."""

    def make(bound: BoundNode, name: str) -> Layer | str:
        pack, how, headers = _PACKINGS[name]
        arrays = filters(bound)
        if isinstance(arrays, str):
            return arrays
        layer = lower(bound)
        packed = {role: pack(values) for role, values in arrays.items()}
        # Packed tables begin at a whole word.
        return replace(layer, tables=_reordered(layer.tables, packed, how, alignment=4), headers=headers)

    costs = {"mve": vectors, "dsp": pairs}
    return tuple(
        Variant(name, name, partial(make, name=name), cost, applies=(_of_bytes,), template=f"_{name}")
        for name, cost in costs.items()
    )


def _of_bytes(bound: BoundNode) -> str:
    dtype = bound.input(0).dtype
    return "" if dtype is DType.INT8 else f"{dtype.value}: there is code for int8"
