"""Recurrent layers and matrix products in float32, four sums at a time, by a float unit or by MVE.

The sums are those of the portable kernels, in their order. Only the order of the weights differs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from emitc.ir import BoundNode, DType
from emitc.kernels.contract import Variant, requires
from emitc.kernels.costs import Costs
from emitc.kernels.mac.block4_float_conv import COMPUTED, HEADERS
from emitc.layer import Layer

Lower = Callable[[BoundNode], Layer | str]


def laid_out(layer: Layer, sizes: Mapping[str, tuple[int, ...]], order: tuple[int, ...]) -> Layer | str:
    """The portable `layer` with its weights in another order; or why it has none to lay out.

    sizes: by the role of their table, what the weights' dimensions are taken for. order: that of these dimensions in the new
    table.
    """
    tables = {table.role: table for table in layer.tables}
    if not sizes.keys() <= tables.keys():
        return COMPUTED
    for role, shape in sizes.items():
        values = np.array(tables[role].values, np.float32).reshape(shape).transpose(order)
        comment = f"{tables[role].comment}, four by four"
        tables[role] = replace(tables[role], values=tuple(values.reshape(-1).tolist()), comment=comment)
    return replace(layer, tables=tuple(tables.values()))


def variants(lower: Lower, unit: Costs, vectors: Costs) -> tuple[Variant, ...]:
    """Those of an operator in float32, whose portable layers `lower` gives as the variants have them, or why there is none.

    unit, vectors: what they cost by the float unit and by vectors.
    """

    def variant(name: str, cost: Costs) -> Variant:
        def make(bound: BoundNode) -> Layer | str:
            layer = lower(bound)
            return layer if isinstance(layer, str) else replace(layer, template=f"{layer.template}_{name}")

        return Variant(name, name, make, cost, (DType.FLOAT32,), (_OF_FLOATS,), headers=HEADERS[name])

    return variant("fpu", unit), variant("mve", vectors)


_OF_FLOATS = requires(lambda bound: bound.input(0).dtype is DType.FLOAT32, "its values are integers")
