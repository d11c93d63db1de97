"""Kernels of int8 that sum up four filters at a time, by DSP instructions or by vectors: variants made of the portable layer.

Such a variant has the portable kernel's loops, parameters and sums of 32 bits, which it adds in another order. Its weights lie
in the order in which it reads them: for DSP instructions in blocks of four filters (`pack_dsp_blocks`), for vectors filter by
filter.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import Variant
from emitc.kernels.costs import Costs
from emitc.kernels.mac import dsp_int8, mve_int8
from emitc.kernels.mac.weight_packing import pack_dsp_blocks
from emitc.layer import Layer

Filters = Callable[[BoundNode], Mapping[str, Array] | str]
"""A node's filters [O, K] by the role of their table, or why there is no such kernel for it."""
_PACKINGS: Mapping[str, tuple[Callable[[Array], Array], str, tuple[str, ...]]] = {
    "mve": (lambda filters: np.asarray(filters, np.int8), "filter by filter", mve_int8.HEADERS),
    "dsp": (pack_dsp_blocks, "arranged for pairs", (dsp_int8.HEADER, dsp_int8.BYTES_HEADER)),
}
"""By instruction set: how a table's weights are packed, what the comment says of that, and the headers."""


def variants(
    lower: Callable[[BoundNode], Layer], filters: Filters, vectors: Costs, pairs: Costs
) -> tuple[Variant, ...]:
    """The variants of a kernel of int8 activations whose portable layer `lower` gives. vectors, pairs: what they cost."""

    def maker(name: str) -> Callable[[BoundNode], Layer | str]:
        pack, how, headers = _PACKINGS[name]

        def make(bound: BoundNode) -> Layer | str:
            arrays = filters(bound)
            if isinstance(arrays, str):
                return arrays
            layer = lower(bound)
            # Packed tables begin at a whole word.
            tables = tuple(
                replace(
                    table,
                    values=tuple(pack(arrays[table.role]).reshape(-1).tolist()),
                    comment=f"{table.comment}, {how}",
                    alignment=4,
                )
                if table.role in arrays
                else table
                for table in layer.tables
            )
            return replace(layer, template=f"{layer.template}_{name}", tables=tables, headers=headers)

        return make

    costs = {"mve": vectors, "dsp": pairs}
    return tuple(Variant(name, name, maker(name), cost, applies=(_of_bytes,)) for name, cost in costs.items())


def _of_bytes(bound: BoundNode) -> str:
    dtype = bound.input(0).dtype
    return "" if dtype is DType.INT8 else f"{dtype.value}: there is code for int8"
