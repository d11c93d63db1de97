"""The kernel of one node: the cheapest of those that the backends offer within a limit of scratch.

Every candidate is kept, so that the search over scratch chooses again without lowering the node again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emitc.backends.contract import PORTABLE, Candidate, Offer, costs_more
from emitc.errors import Reason
from emitc.ir import Node
from emitc.layer import Layer

AUTO = "auto"
"""The value of `--kernels` that takes the cheapest library for every node."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one node of the source model runs.

    kernel: template that prints it. reason: why there. cost: estimated cycles, 0 inside a region. refused: backend and
    reason, of every other candidate. region: index of the node that stands for its region, -1 outside of any.
    """

    index: int
    op_type: str
    label: str
    backend: str
    kernel: str
    reason: str
    macs: int
    cost: float
    refused: tuple[tuple[str, Reason], ...]
    region: int = -1


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that a node gets, and all that it could have.

    offers: by the library's name.  kernels: the value of `--kernels`. before: accelerators that do not take the node, and why.
    backend, candidate: the library and its kernel. reason: why it is this library's. refused: every other kernel, and why.
    flash: bytes of further constants that the kernel may have.
    """

    offers: Mapping[str, Offer]
    kernels: str
    before: tuple[tuple[str, Reason], ...]
    backend: str
    candidate: Candidate
    reason: str
    refused: tuple[tuple[str, Reason], ...]
    flash: int = 0

    def within(self, limit: int | None, flash: int | None = None) -> Choice:
        """The choice with at most `limit` bytes of scratch, None for any number. flash: the new value, None for the old one."""
        return choose(self.offers, self.kernels, self.before, limit, self.flash if flash is None else flash)

    def assignment(self, node: Node, layer: Layer) -> Assignment:
        """The row of the map for the node. layer: what the candidate makes of it."""
        return Assignment(
            index=node.index,
            op_type=node.op_type,
            label=node.label,
            backend=self.backend,
            kernel=layer.kernel_name,
            reason=self.reason,
            macs=layer.macs,
            cost=self.candidate.cost,
            refused=(*self.before, *self.refused),
        )


def choose(
    offers: Mapping[str, Offer],
    kernels: str,
    before: tuple[tuple[str, Reason], ...],
    limit: int | None = None,
    flash: int = 0,
) -> Choice:
    """The library for one node, and its kernel. Arguments are as in `Choice`; limit: bytes of scratch, None for any number."""
    taking = {name: offer.within(limit, flash) for name, offer in offers.items() if offer.candidates}
    best = {name: offer.cheapest() for name, offer in taking.items()}
    refused = tuple(reason for name, offer in offers.items() if name not in taking for reason in offer.refused)
    if kernels == AUTO:
        chosen = min(best, key=lambda name: (best[name].cost, name != PORTABLE))
        rest = [name for name in best if name != chosen]
        others = ", ".join(f"{name} {best[name].cost:.0f}" for name in rest)
        reason = f"cheapest: {best[chosen].cost:.0f} cycles, {others}" if rest else "the only one that takes it"
        refused += tuple((name, costs_more(best[name].cost)) for name in rest)
    else:
        chosen = kernels if kernels in best else PORTABLE
        reason = "asked for" if chosen == kernels else f"{kernels} does not take it"
    dearer = tuple((c.variant, costs_more(c.cost)) for c in taking[chosen].candidates if c is not best[chosen])
    refused += (*taking[chosen].refused, *dearer)
    return Choice(offers, kernels, before, chosen, best[chosen], reason, refused, flash)
