"""What `emitc cost` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import first_name
from emitc.report.tables import number, ratio, table

if TYPE_CHECKING:
    from emitc.explore.cost import Cost


def cost_text(cost: Cost) -> str:
    basis = (
        f"counts of kernels on {cost.source}"
        if cost.source
        else "the kernels' rough costs; no board has counted this code"
    )
    code = f"{number(cost.code_bytes)} of code by estimate" if cost.code_bytes else "code not estimated"
    if cost.linked_by:
        code = f"{number(cost.code_bytes)} of code, linked by {cost.linked_by}"
    lines = [
        f"{cost.model} on {cost.target}",
        f"  arena         {number(cost.arena_bytes)} bytes, state {number(cost.state_bytes)}",
        f"  flash         {number(cost.flash_bytes)} bytes: {number(cost.constant_bytes)} of constants, {code}",
        f"  instructions  {number(cost.instructions)} by estimate, from {basis}",
        f"  cycles        {number(cost.cycles)} by estimate, from memory without wait states",
    ]
    lines += [f"  warning       {warning}" for warning in cost.warnings]
    rows = [
        (
            layer.index,
            layer.op,
            first_name(layer.name),
            layer.kernel,
            layer.macs,
            layer.instructions,
            ratio(layer.instructions, layer.macs),
        )
        for layer in cost.layers
    ]
    return "\n".join([*lines, "", table(("op>", "type", "name", "kernel", "MACs>", "instructions>", "per MAC>"), rows)])
