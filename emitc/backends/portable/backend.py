"""emitc's own kernels: C that every core runs. Takes every node that the graph can hold."""

from __future__ import annotations

from emitc.backends.contract import PORTABLE, Backend, BackendDef, Settings
from emitc.backends.portable.cost import cost_of
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.contract import Layer
from emitc.target import Target


class Portable(Backend):
    """The kernels under emitc/kernels, with their costs on one target."""

    name = PORTABLE

    def __init__(self, target: Target) -> None:
        self._target = target

    def supports(self, bound: BoundNode) -> str:
        """Everything: `check` has refused the rest."""
        return ""

    def cost(self, bound: BoundNode) -> float:
        """By the table of `cost`."""
        return cost_of(bound, self._target)

    def lower(self, bound: BoundNode) -> Layer:
        """The operator's own lowering."""
        return kernel_of(bound).lower(bound)


def _open(settings: Settings) -> Backend:
    return Portable(settings.target)


BACKEND = BackendDef(PORTABLE, "emitc's own kernels, for every core", _open, kernels=True)
