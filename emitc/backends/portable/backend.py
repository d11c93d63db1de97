"""emitc's own kernels: C that every core runs, and variants for cores that have more. Takes every node that the graph can hold.

A node's kernel is the cheapest of those that the target can run, by `cost`; `--kernel opN=VARIANT` asks for another one.
"""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, Self

from emitc.backends.contract import PORTABLE, Backend, Candidate, Offer, Settings, costs_more
from emitc.errors import EmitcError, Reason, RefusalKind, Where
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.contract import KernelDef, Variant
from emitc.kernels.shared.pointwise import lookup_row
from emitc.layer import Layer
from emitc.program.weights import stream_of
from emitc.records import dataclass, field, replace
from emitc.target import MVE, Target, load_target, targets

_KEPT_BYTES = 1 << 17
"""Constants of the largest layer that is kept for other targets and limits: Python's numbers take eight times as much."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the nodes of a model, whatever the target: filled by the first `Portable` that needs it.

    layers: by a node's index and the name of a variant, what the variant makes of the node, or why it makes nothing. kept_bytes:
    constants of the largest layer among them, None for any.
    rows: by a node's index, the rows that its operator offers it. costs: by a node's index and the name of a variant, its cycles.
    Each entry has the node that it was computed for.
    """

    layers: MutableMapping[tuple[int, str], tuple[BoundNode, Layer | str]] = field(default_factory=dict)
    rows: MutableMapping[int, tuple[BoundNode, tuple[Variant, ...]]] = field(default_factory=dict)
    costs: MutableMapping[tuple[int, str], tuple[BoundNode, float]] = field(default_factory=dict)
    kept_bytes: int | None = _KEPT_BYTES

    def of(self, index: int) -> Self:
        """What is known of one node, whose layers are all kept from here on."""
        bound, rows = self.rows.get(index, (None, ()))
        keys = [(index, name) for name in (PORTABLE, *(row.name for row in rows))]
        layers = {key: self.layers[key] for key in keys if key in self.layers}
        return replace(self, layers=layers, rows={index: (bound, rows)} if bound else {}, costs={}, kept_bytes=None)


def cost_of(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    """Estimated cycles of one run of the node on the target by a variant; by the portable kernel where there is none."""
    kernel = kernel_of(bound)
    if row is not None:
        return kernel.cycles(bound, row.cost)
    costs = kernel.cost_with_vectors if MVE in target.features else None
    return kernel.cycles(bound, costs or kernel.cost)


class Portable(Backend):
    """The kernels under emitc/kernels, with their costs on one target. known: shared by several targets for the same nodes."""

    name = PORTABLE

    def __init__(self, settings: Settings, known: Known | None = None) -> None:
        self._settings, self._target, self._wanted = settings, settings.target, settings.variants
        self.known, self._recent = known or Known(), Known()

    def supports(self, bound: BoundNode) -> str:
        return ""

    def cost(self, bound: BoundNode) -> float:
        """The cost of the kernel that the node gets without a limit of scratch, by the costs in each kernel's row."""
        return self.offer(bound).within(None).cheapest().cost

    def least_cost(self, bound: BoundNode) -> float:
        """`cost`, without lowering the node for kernels that cost more, which takes most of the time.

        It is only for nodes for which `--kernel` names no variant.
        """
        rows = (row for row in self._rows(bound) if not row.spare)
        offered = {row.name: row for row in rows if row.feature in self._target.features}
        costs = {name: self._cost(bound, row) for name, row in offered.items()}
        costs = {PORTABLE: cost_of(bound, self._target), **costs}
        stronger = {row.yields_to for row in offered.values()}
        able = {name for name in stronger & offered.keys() if self._lean(bound, offered[name])}
        taken = (
            name
            for name in sorted(costs, key=lambda name: costs[name])
            if name not in offered or (offered[name].yields_to not in able and self._lean(bound, offered[name]))
        )
        return costs[next(taken)]

    def _lean(self, bound: BoundNode, variant: Variant) -> bool:
        """Whether the variant runs the node without further constants."""
        made = self._variant(bound, variant)
        return isinstance(made, Candidate) and not made.flash_bytes and not made.spare

    def lower(self, bound: BoundNode) -> Layer:
        """The operator's own lowering, or that of the variant that costs least."""
        return self.offer(bound).within(None).cheapest().make()

    def offer(self, bound: BoundNode) -> Offer:
        """The kernel for every core and the variants for this target; with `--kernel` only the kernel that it names."""
        kernel = kernel_of(bound)
        wanted = self._wanted.get(bound.node.index)
        candidates = [Candidate(PORTABLE, cost_of(bound, self._target), lambda: self._plain(bound, kernel))]
        refused: list[tuple[str, Reason]] = []
        for variant in self._rows(bound):
            if variant.feature not in self._target.features and variant.name != wanted:
                continue
            made = self._variant(bound, variant)
            if isinstance(made, Candidate):
                candidates.append(made)
            else:
                refused.append((variant.name, made))
        if wanted is None:
            return Offer(tuple(candidates), tuple(refused))
        requested = [
            replace(candidate, scratch_bytes=0, flash_bytes=0, slower_than="", spare=False)
            for candidate in candidates
            if candidate.variant == wanted
        ]
        if not requested:
            raise self._absent(bound, wanted, refused)
        rest = [(row.variant, costs_more(row.cost)) for row in candidates if row.variant != wanted]
        return Offer(tuple(requested), (*refused, *rest))

    def _variant(self, bound: BoundNode, variant: Variant) -> Candidate | Reason:
        """A variant's kernel for a node; or why the node does not get it, unless `--kernel` asks for it."""
        wanted = variant.name == self._wanted.get(bound.node.index)
        if variant.fitted and self._settings.small and not wanted:
            text = "is printed for one layer, which --optimize size does without"
            return Reason(text, "", RefusalKind.CODE_SIZE)
        layer = self._layer(bound, variant.name, variant.lower)
        if isinstance(layer, str):
            return layer if isinstance(layer, Reason) else Reason(layer)
        if self._settings.external and (why := self._not_in_file(layer)):
            return Reason(why)
        if layer.larger and self._settings.small and not wanted:
            return Reason("takes more code than the portable kernel", "", RefusalKind.CODE_SIZE)

        def make() -> Layer:
            again = self._layer(bound, variant.name, variant.lower)
            assert isinstance(again, Layer)
            return variant.on(again, self._target.features)

        return Candidate(
            variant.name,
            self._cost(bound, variant),
            make,
            scratch_bytes=sum(scratch.size_bytes for scratch in layer.scratch),
            flash_bytes=layer.flash_bytes,
            slower_than=variant.yields_to,
            spare=variant.spare,
        )

    def _not_in_file(self, layer: Layer) -> str:
        """Why a file cannot hold the weights of a layer, "" where it can."""
        stream = stream_of(layer.spec, layer.params)
        if stream is None:
            return ""
        if self._settings.loaded:
            return "lays weights out by their values, which nothing checks after the application has loaded them"
        needed = max(table.size_bytes for table in layer.tables if table.role == "weights")
        if needed <= stream.room_bytes:
            return ""
        return f"its weights take {needed} bytes, and a file of weights has room for {stream.room_bytes}"

    def _rows(self, bound: BoundNode) -> tuple[Variant, ...]:
        """The row of each variant that the node's operator offers it."""
        known = self.known.rows.get(bound.node.index)
        if known is not None and known[0] == bound:
            return known[1]
        kernel = kernel_of(bound)
        rows = kernel.offered(bound)
        lookup = lookup_row(lambda node: self._plain(node, kernel))
        if kernel.elementwise and lookup.name not in kernel.variant_names:
            rows = (*rows, lookup)
        self.known.rows[bound.node.index] = bound, rows
        return rows

    def _cost(self, bound: BoundNode, row: Variant) -> float:
        """`cost_of` a variant, which does not depend on the target."""
        key = bound.node.index, row.name
        known = self.known.costs.get(key)
        if known is None or known[0] != bound:
            known = self.known.costs[key] = bound, cost_of(bound, self._target, row)
        return known[1]

    def _plain(self, bound: BoundNode, kernel: KernelDef) -> Layer:
        layer = self._layer(bound, PORTABLE, kernel.lower)
        assert isinstance(layer, Layer)
        return layer

    def _layer(self, bound: BoundNode, name: str, lower: Callable[[BoundNode], Layer | str]) -> Layer | str:
        """What a variant makes of a node; looked up where it was made before. Large layers are kept for one node only."""
        key = bound.node.index, name
        known = self.known.layers.get(key) or self._recent.layers.get(key)
        if known is not None and known[0] == bound:
            return known[1]
        layer = lower(bound)
        most = self.known.kept_bytes
        if most is None or isinstance(layer, str) or sum(table.size_bytes for table in layer.tables) <= most:
            self.known.layers[key] = bound, layer
            return layer
        self._recent = Known({at: known for at, known in self._recent.layers.items() if at[0] == bound.node.index})
        self._recent.layers[key] = bound, layer
        return layer

    def _absent(self, bound: BoundNode, wanted: str, others: Sequence[tuple[str, str]]) -> EmitcError:
        known = f"it has {', '.join((PORTABLE, *kernel_of(bound).variant_names))}"
        why = next((reason for name, reason in others if name == wanted), known)
        where = Where(op=bound.node.describe(), option=f"--kernel op{bound.node.index}={wanted}")
        hint = "`emitc partition` shows what each operator gets, and why"
        return EmitcError(f"there is no kernel {wanted} for this operator", where, why, hint)


LEAST_FACTOR = 1.1
"""What a core's kernels must bring to be named."""


_COUNTED = {
    **dict.fromkeys(("cortex-m0", "cortex-m0-small-multiply", "cortex-m0plus", "cortex-m0plus-small-multiply"), 1.33),
    "cortex-m3": 1.04,
    **dict.fromkeys(("cortex-m33", "cortex-m4", "cortex-m4f", "cortex-m7"), 0.97),
    **dict.fromkeys(("cortex-m55", "cortex-m85"), 0.95),
    **dict.fromkeys(("rv32imac", "rv32imafc", "esp32c3", "esp32c6", "esp32p4"), 0.85),
}
"""By target: the factor that QEMU counted over the factor that the costs give, the mean of four int8 nets with convolutions.

The costs rank the kernels of one core, so that all of them may be off by the same share. With this the factors of a Cortex-M4
come within 7 % of what was counted on 2026-11-27, those of the other cores within 11 % of what was counted before that day. A
small network can be farther off: the factor of digits_int8 is 3.3 instead of 2.3, since its own kernels get less working memory.
"""


@dataclass(frozen=True, slots=True)
class FasterTarget:
    """A target whose kernels need fewer instructions on its core.

    factor: instructions of the portable kernels over those of the target's, estimated for one inference on that core.
    """

    name: str
    title: str
    factor: float

    def to_json(self) -> dict[str, Any]:
        return {"target": self.name, "title": self.title, "estimated_factor": round(self.factor, 1)}


def _alike(nodes: Iterable[BoundNode]) -> list[list[BoundNode]]:
    """The nodes by operator and by types and shapes of tensors: those of a group differ in their values alone.

    The steps of an unrolled network are such nodes.
    """
    groups: dict[tuple[object, ...], list[list[BoundNode]]] = {}
    for bound in nodes:
        tensors = (*bound.inputs, *bound.outputs)
        shapes = (t and (t.dtype, t.shape, t.is_constant, t.quantization is None) for t in tensors)
        rows = groups.setdefault((type(bound.node.op), *shapes), [])
        row = next((row for row in rows if row[0].node.op == bound.node.op), None)
        if row is None:
            rows.append([bound])
        else:
            row.append(bound)
    return [row for rows in groups.values() for row in rows]


def faster_targets(nodes: Iterable[BoundNode], known: Known, *, small: bool) -> tuple[FasterTarget, ...]:
    """The targets that bring at least LEAST_FACTOR, the largest factor first. small: as in `Settings`.

    Of nodes that differ in their values alone, the first is looked at and counts for all of them.
    """
    by_features: dict[tuple[str, ...], list[Target]] = {}
    for target in map(load_target, targets()):
        by_features.setdefault(tuple(sorted(target.features)), []).append(target)
    by_features.pop((), None)
    costs: dict[tuple[str, ...], list[tuple[float, float]]] = {features: [] for features in by_features}
    for bound, *others in _alike(nodes):
        own_known = known.of(bound.node.index)  # variants of a node share most of what they compute
        count = 1 + len(others)
        for features, (target, *_) in by_features.items():
            own = Portable(Settings(target, small=small), own_known)
            costs[features].append((count * cost_of(bound, target), count * own.least_cost(bound)))
    faster = []
    for features, alike in by_features.items():
        portable, instructions = map(sum, zip((0, 0), *costs[features], strict=True))
        for target in alike:
            factor = _COUNTED.get(target.name, 1.0) * portable / instructions if instructions else 1.0
            if portable > instructions and factor >= LEAST_FACTOR:
                faster.append(FasterTarget(target.name, target.title, factor))
    return tuple(sorted(faster, key=lambda other: (-other.factor, other.name)))
