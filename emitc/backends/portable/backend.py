"""emitc's own kernels: C that every core runs, and variants for cores that have more. Takes every node that the graph can hold.

A node's kernel is the cheapest of those that the target can run, by `cost`; `--kernel opN=VARIANT` asks for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emitc.backends.contract import PORTABLE, Backend, Made
from emitc.backends.portable.cost import cost_of
from emitc.errors import EmitcError, Where
from emitc.ir import BoundNode, Node
from emitc.kernels import kernel_of
from emitc.kernels.contract import KernelDef, Variant
from emitc.kernels.shared.lookup_and_binary import by_vectors
from emitc.layer import Layer
from emitc.target import Target

_VECTORS = "mve"
_KEPT_BYTES = 1 << 17
"""Constants of the largest layer that is kept for other targets and limits: Python's numbers take eight times as much."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """One node's kernel. others: variants that were not taken, and why."""

    node: Node
    layer: Layer
    cost: float
    others: tuple[tuple[str, str], ...]


class Portable(Backend):
    """The kernels under emitc/kernels, with their costs on one target."""

    name = PORTABLE

    def __init__(
        self,
        target: Target,
        wanted: Mapping[int, str] | None = None,
        working: Mapping[int, int] | None = None,
        *,
        small: bool = False,
        made: Made | None = None,
    ) -> None:
        """made: shared by several targets and limits of working memory for the same nodes, on which no layer depends."""
        self._target = target
        self._wanted = wanted or {}
        self._working = working or {}
        self._small = small
        self._made: Made = {} if made is None else made
        self._chosen: dict[int, _Choice] = {}

    def supports(self, bound: BoundNode) -> str:
        """Everything: `check` has refused the rest."""
        return ""

    def cost(self, bound: BoundNode) -> float:
        """Of the kernel that the node gets, by the table of `cost`."""
        return self._choice(bound).cost

    def least_cost(self, bound: BoundNode) -> float:
        """`cost`, without lowering the node for kernels that cost more, which takes most of the time. No variant is asked for."""
        kernel = kernel_of(bound)
        offered = {each.name: each for each in kernel.variants if each.feature in self._target.features}
        costs = {name: cost_of(bound, self._target, name) for name in (PORTABLE, *offered)}
        if _VECTORS in offered:
            vectors = isinstance(self._offer(bound, offered[_VECTORS]), Layer)
        elif vectors := self._tables(bound, kernel) is not None:
            costs[_VECTORS] = cost_of(bound, self._target, _VECTORS)
        taken = (
            name
            for name in sorted(costs, key=lambda name: costs[name])
            if name not in offered
            or (not (vectors and offered[name].fitted) and isinstance(self._offer(bound, offered[name]), Layer))
        )
        return costs[next(taken)]

    def lower(self, bound: BoundNode) -> Layer:
        """The operator's own lowering, or that of the variant that costs least."""
        return self._choice(bound).layer

    def others(self, bound: BoundNode) -> tuple[tuple[str, str], ...]:
        """Variants that the target could run and the node does not get."""
        return self._choice(bound).others

    def _choice(self, bound: BoundNode) -> _Choice:
        known = self._chosen.get(bound.node.index)
        if known is None or known.node is not bound.node:
            known = self._chosen[bound.node.index] = self._choose(bound)
        return known

    def _choose(self, bound: BoundNode) -> _Choice:
        kernel = kernel_of(bound)
        wanted = self._wanted.get(bound.node.index)
        costs = {PORTABLE: cost_of(bound, self._target, PORTABLE)}
        layers: dict[str, Layer] = {}
        others: list[tuple[str, str]] = []
        for variant in kernel.variants:
            if variant.feature not in self._target.features and variant.name != wanted:
                continue
            layer = self._offer(bound, variant)
            if isinstance(layer, str):
                others.append((variant.name, layer))
                continue
            layers[variant.name] = layer
            costs[variant.name] = cost_of(bound, self._target, variant.name)
        if tables := self._tables(bound, kernel):
            layers[_VECTORS] = tables
            costs[_VECTORS] = cost_of(bound, self._target, _VECTORS)
        if wanted is not None and wanted not in costs:
            raise self._absent(bound, wanted, others)
        # Beside a kernel of vectors one of pairs that is printed for its layer is not faster: 1.5 times as dear in person_detect.
        fitted = {variant.name for variant in kernel.variants if variant.fitted}
        able = [name for name in costs if _VECTORS not in costs or name not in fitted]
        name = wanted or min(able, key=lambda name: costs[name])
        others += [(other, f"costs {costs[other]:.0f} cycles") for other in costs if other != name]
        layer = layers[name] if name in layers else self._plain(bound, kernel)
        return _Choice(bound.node, layer, costs[name], tuple(others))

    def _offer(self, bound: BoundNode, variant: Variant) -> Layer | str:
        """What a variant makes of a node; or why it does not get the node, which one that was asked for gets where it can."""
        wanted = variant.name == self._wanted.get(bound.node.index)
        if variant.fitted and self._small and not wanted:
            return "is printed for one layer, which --optimize size does without"
        layer = self._layer(bound, variant.name, variant.lower)
        if isinstance(layer, str) or wanted:
            return layer
        if layer.larger and self._small:
            return "takes more code than the portable kernel"
        needed = sum(scratch.size_bytes for scratch in layer.scratch)
        fits = needed <= self._working.get(bound.node.index, needed)
        return layer if fits else f"needs {needed} bytes of working memory"

    def _tables(self, bound: BoundNode, kernel: KernelDef) -> Layer | None:
        """An elementwise kernel with vectors, made of the portable one where the operator has no variant for them."""
        asked = _VECTORS in (self._wanted.get(bound.node.index), *self._target.features)
        if not asked or not kernel.elementwise or _VECTORS in {variant.name for variant in kernel.variants}:
            return None
        tables = by_vectors(self._plain(bound, kernel))
        return tables if isinstance(tables, Layer) else None

    def _plain(self, bound: BoundNode, kernel: KernelDef) -> Layer:
        """What the operator's own lowering makes of a node."""
        layer = self._layer(bound, PORTABLE, kernel.lower)
        assert isinstance(layer, Layer)
        return layer

    def _layer(self, bound: BoundNode, name: str, lower: Callable[[BoundNode], Layer | str]) -> Layer | str:
        """What a variant makes of a node; looked up where it was made before."""
        known = self._made.get((bound.node.index, name))
        if known is not None and known[0] == bound:
            return known[1]
        layer = lower(bound)
        if isinstance(layer, str) or sum(table.size_bytes for table in layer.tables) <= _KEPT_BYTES:
            self._made[bound.node.index, name] = bound, layer
        return layer

    def _absent(self, bound: BoundNode, wanted: str, others: Sequence[tuple[str, str]]) -> EmitcError:
        known = (PORTABLE, *(variant.name for variant in kernel_of(bound).variants))
        reasons = [reason for name, reason in others if name == wanted]
        return EmitcError(
            f"there is no kernel {wanted} for this operator",
            Where(op=bound.node.describe(), option=f"--kernel op{bound.node.index}={wanted}"),
            reasons[0] if reasons else f"it has {', '.join(known)}",
            "`emitc partition` shows what each operator gets, and why",
        )
