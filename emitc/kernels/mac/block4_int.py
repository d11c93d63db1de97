"""Kernels that sum up four filters at a time, as DSP instructions or vectors do it: their layers, made of the portable one.

Such a variant has the portable kernel's loops, parameters and sums of 32 bits, in another order of adding, and its weights
in the order in which they are read: for pairs four filters together (`pair_products.quartered_weights`), for vectors one
behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import Variant
from emitc.kernels.costs import Costs
from emitc.kernels.mac import dsp_int8, mve_int8
from emitc.layer import Layer, Table

Filters = Callable[[BoundNode], Mapping[str, Array] | str]
"""A node's filters [O, K] by the role of their table, or why there is no such kernel for it."""


def _arranged(layer: Layer, values: Mapping[str, Array], how: str) -> tuple[Table, ...]:
    """The layer's tables with these values in the place of their own, by role; they begin at a whole word."""
    return tuple(
        replace(
            table,
            values=tuple(values[table.role].reshape(-1).tolist()),
            comment=f"{table.comment}, {how}",
            alignment=4,
        )
        if table.role in values
        else table
        for table in layer.tables
    )


def _paired(layer: Layer, filters: Mapping[str, Array]) -> Layer:
    values = {role: dsp_int8.quartered_weights(array) for role, array in filters.items()}
    return replace(
        layer,
        template=f"{layer.template}_dsp",
        variant="dsp",
        tables=_arranged(layer, values, "arranged for pairs"),
        headers=(dsp_int8.HEADER, dsp_int8.BYTES_HEADER),
    )


def _vectors(layer: Layer, filters: Mapping[str, Array]) -> Layer:
    values = {role: np.asarray(array, np.int8) for role, array in filters.items()}
    return replace(
        layer,
        template=f"{layer.template}_mve",
        variant="mve",
        tables=_arranged(layer, values, "filter by filter"),
        headers=mve_int8.HEADERS,
    )


def variants(
    lower: Callable[[BoundNode], Layer], filters: Filters, vectors: Costs, pairs: Costs
) -> tuple[Variant, ...]:
    """The variants of a kernel of int8 activations whose portable layer `lower` gives. vectors, pairs: what they cost."""

    def maker(made: Callable[[Layer, Mapping[str, Array]], Layer]) -> Callable[[BoundNode], Layer | str]:
        def make(bound: BoundNode) -> Layer | str:
            found = filters(bound)
            return found if isinstance(found, str) else made(lower(bound), found)

        return make

    return (
        Variant("mve", "mve", maker(_vectors), vectors, applies=(_of_bytes,)),
        Variant("dsp", "dsp", maker(_paired), pairs, applies=(_of_bytes,)),
    )


def _of_bytes(bound: BoundNode) -> str:
    dtype = bound.input(0).dtype
    return "" if dtype is DType.INT8 else f"{dtype.value}: there is code for int8"
