"""What emitc's own kernels cost on a target, by the coefficients that stand in their rows."""

from __future__ import annotations

from collections.abc import Callable

from emitc.backends.contract import PORTABLE
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.contract import KernelDef, Variant
from emitc.kernels.shared.lookup_and_binary import lookup_row
from emitc.layer import Layer
from emitc.target import MVE, Target


def rows_of(bound: BoundNode, kernel: KernelDef, portable: Callable[[BoundNode], Layer]) -> tuple[Variant, ...]:
    """The row of each variant that the operator offers the node. portable: gives the node's portable layer."""
    rows = kernel.offered(bound)
    lookup = lookup_row(portable)
    return (*rows, lookup) if kernel.elementwise and lookup.name not in kernel.variant_names else rows


def cost_of(bound: BoundNode, target: Target, variant: str) -> float:
    """Estimated cycles of one run of the node by a kernel of that name on the target."""
    kernel = kernel_of(bound)
    if variant == PORTABLE:
        costs = kernel.cost_with_vectors if MVE in target.features else None
        return kernel.cycles(bound, costs or kernel.cost)
    (row,) = (row for row in rows_of(bound, kernel, kernel.lower) if row.name == variant)
    return kernel.cycles(bound, row.cost)
