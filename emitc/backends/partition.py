"""Which backend runs which node, why, and why no other: decided between the passes and the lowering.

Accelerators come first and cut whole regions out of the graph. What is left goes node by node to the kernel library that
`--kernels` names, else to the portable kernels; under `auto` to the cheapest by the backends' own estimates. Every answer is
kept: the map is the same for the same input, and can be compared with one that was kept from an earlier release.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from emitc.backends import registry
from emitc.backends.contract import PORTABLE, Backend, Candidate, Offer, Region, Settings, costs_more
from emitc.errors import CannotCompile, EmitcError, Note, Reason, Where
from emitc.ir import BoundNode, Graph, GraphStep, Node
from emitc.layer import Layer
from emitc.program import PassReport
from emitc.program.members import members
from emitc.records import dataclass, field, replace

SCHEMA_VERSION = 1
_REGION = "index nodes macs edge_bytes estimated_cycles=cycles waits cache_operations"


@dataclass(frozen=True, slots=True)
class Policy:
    """keep: operators that stay on the core, by type or by index. fallback: `fail` refuses what an accelerator does not take."""

    kernels: str = PORTABLE
    fallback: str = "cpu"
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    """The graph with the regions of accelerators in it, and who runs each of its nodes.

    passes, steps: what the passes did that followed the cutting of regions, and the graph when they were cut and after each pass.
    choices: the kernels that each node could have, by its index; none for a region.
    """

    graph: Graph
    assignments: tuple[Assignment, ...]
    regions: tuple[tuple[str, Region], ...]
    backends: Mapping[str, Backend]
    layers: Mapping[int, Layer]
    notes: tuple[Note, ...] = ()
    passes: tuple[PassReport, ...] = ()
    steps: tuple[GraphStep, ...] = ()
    choices: Mapping[int, Choice] = field(default_factory=dict)

    def within(self, limits: Mapping[int, int], flash: Mapping[int, int] = MappingProxyType({})) -> Partition:
        """The partition whose kernels need no more scratch than the limits say, in bytes by a node's index.

        Nodes without a limit get the kernel that costs least. The cut into regions does not depend on scratch. flash: new values
        of `Choice.flash`, by a node's index.
        """
        nodes = {node.index: node for node in self.graph.nodes}
        layers, choices, rows = dict(self.layers), dict(self.choices), {a.index: a for a in self.assignments}
        for index, before in self.choices.items():
            choices[index] = chosen = before.within(limits.get(index), flash.get(index))
            if chosen.candidate is not before.candidate:
                layers[index] = chosen.candidate.make()
            rows[index] = chosen.assignment(nodes[index], layers[index])
        return replace(self, assignments=tuple(rows[a.index] for a in self.assignments), layers=layers, choices=choices)

    def backend_of(self) -> dict[int, str]:
        """Name of the backend that lowers a node of the graph, by the node's index."""
        names = {region.index: name for name, region in self.regions}
        return {a.index: a.backend for a in self.assignments if a.region < 0} | names

    def lowers_as(self, other: Partition) -> bool:
        """Whether another partition by the same backends is the same to `lower`: reasons and refusals may differ."""
        costs, others = ([(a.index, a.cost) for a in reason.assignments] for reason in (self, other))
        same = costs == others and self.notes == other.notes and self.backend_of() == other.backend_of()
        return same and self.layers == other.layers and self.graph == other.graph

    def to_json(self) -> dict[str, Any]:
        total = sum(a.macs for a in self.assignments)
        names = dict.fromkeys(a.backend for a in self.assignments)
        cycles = {
            name: round(
                sum(a.cost for a in self.assignments if a.backend == name)
                + sum(region.cycles for owner, region in self.regions if owner == name)
            )
            for name in names
        }
        # Kernels of emitc's own that were not taken are no backends.
        requested = set(self.backends) - {PORTABLE}
        fallback = sum(
            a.macs for a in self.assignments if a.region < 0 and any(name in requested for name, _ in a.refused)
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "backends": [
                {
                    "backend": name,
                    "nodes": sum(a.backend == name for a in self.assignments),
                    "macs": sum(a.macs for a in self.assignments if a.backend == name),
                    "estimated_cycles": cycles[name],
                }
                for name in names
            ],
            "fallback_share": round(fallback / total, 6) if total else 0.0,
            "partitions": [{"backend": name, **members(region, _REGION)} for name, region in self.regions],
            "nodes": [
                {
                    **members(a, "index op=op_type name=label backend kernel reason macs"),
                    "estimated_cycles": round(a.cost),
                    "partition": a.region if a.region >= 0 else None,
                    "refused": [{"backend": name, "reason": reason} for name, reason in a.refused],
                }
                for a in self.assignments
            ],
        }


Rewrite = Callable[[Graph], tuple[Graph, tuple[PassReport, ...], tuple[GraphStep, ...]]]
"""Passes that run when accelerators have taken their regions: the graph, a report of each, and the graph after each."""


def open_backends(settings: Settings) -> dict[str, Backend]:
    """The backends that the settings ask for, portable always among them. Raises EmitcError for wrong settings."""
    opened = {name: definition.open(settings) for name, definition in registry().items()}
    return {name: backend for name, backend in opened.items() if backend is not None}


def _kept(graph: Graph, keep: Sequence[str]) -> frozenset[int]:
    """Indices of the nodes that `--cpu-only` names. Raises EmitcError for one that names nothing."""
    kept: set[int] = set()
    for what in keep:
        named = {n.index for n in graph.nodes if str(n.index) == what or n.op_type.lower() == what.lower()}
        if not named:
            types = sorted({node.op_type for node in graph.nodes})
            why = f"the model has {len(graph.nodes)} operators of the types {', '.join(types)}"
            hint = "give a type of operator, or the index that `emitc partition` prints"
            raise EmitcError(f"no operator is {what}", Where(option=f"--cpu-only {what}"), why, hint)
        kept |= named
    return frozenset(kept)


def _offload(
    graph: Graph, backends: Mapping[str, Backend], policy: Policy, refused: Mapping[int, list[tuple[str, Reason]]]
) -> tuple[Graph, list[tuple[str, Region]], list[Note]]:
    """The graph with the regions of accelerators, these by the backend's name, and notes. refused: grows, by a node's index."""
    nodes = {node.index: node for node in graph.nodes}
    keep = _kept(graph, policy.keep)
    regions: list[tuple[str, Region]] = []
    notes: list[Note] = []
    for name, backend in backends.items():
        offload = backend.offload(graph, keep)
        graph = offload.graph
        regions += [(name, region) for region in offload.regions]
        notes += offload.notes
        for index, why in offload.refusals.items():
            refused[index].append((name, Reason(why)))
        if policy.fallback == "fail" and offload.refusals:
            (first, why), *_ = offload.refusals.items()
            what = f"{name} does not take {len(offload.refusals)} of the operators"
            where = Where(op=nodes[first].describe(), option="--fallback fail")
            hint = "`emitc partition` lists them all; --fallback cpu lets the core run them"
            raise CannotCompile(what, where, why, hint)
    return graph, regions, notes


def partition(
    graph: Graph, backends: Mapping[str, Backend], policy: Policy, rewrite: Rewrite = lambda graph: (graph, (), ())
) -> Partition:
    """Assigns every node. Raises EmitcError for a policy that cannot be followed, CannotCompile under `fallback` fail.

    rewrite: the passes that follow the cutting of regions, before the nodes that are left get their kernels. A node that they
    remove is in no row of the map.
    """
    original = {bound.node.index: bound for bound in graph.bound()}
    refused: dict[int, list[tuple[str, Reason]]] = {index: [] for index in original}
    graph, regions, notes = _offload(graph, backends, policy, refused)
    graph, passes, steps = rewrite(graph)
    inside = {index: (name, region) for name, region in regions for index in region.nodes}
    stand_ins = {region.index: name for name, region in regions}
    layers: dict[int, Layer] = {}
    choices: dict[int, Choice] = {}
    assigned: dict[int, Assignment] = {}
    for bound in graph.bound():
        index = bound.node.index
        if index in stand_ins:
            layers[index] = backends[stand_ins[index]].lower(bound)
            continue
        offers = _offers(bound, backends, policy.kernels)
        choices[index] = choice = choose(offers, policy.kernels, tuple(refused[index]))
        layers[index] = choice.candidate.make()
        assigned[index] = choice.assignment(bound.node, layers[index])
    for index, (name, region) in inside.items():
        bound = original[index]
        assigned[index] = Assignment(
            index=index,
            op_type=bound.node.op_type,
            label=bound.node.label,
            backend=name,
            kernel=layers[region.index].kernel_name,
            reason="taken",
            macs=backends[PORTABLE].lower(bound).macs,
            cost=0.0,
            refused=tuple(refused[index]),
            region=region.index,
        )
    rows = tuple(assigned[index] for index in original if index in assigned)
    return Partition(graph, rows, tuple(regions), backends, layers, tuple(notes), passes, steps, choices)


def _offers(bound: BoundNode, backends: Mapping[str, Backend], kernels: str) -> dict[str, Offer]:
    libraries = [name for name, definition in registry().items() if definition.kernels and name in backends]
    return {name: backends[name].offer(bound) for name in libraries if kernels in (name, AUTO) or name == PORTABLE}


# ---- a map that was kept ----


def _rows(content: Mapping[str, Any]) -> dict[int, tuple[str, str, str]]:
    """Index to type, backend and kernel: what a map has to agree in."""
    return {int(n["index"]): (str(n["op"]), str(n["backend"]), str(n["kernel"])) for n in content["nodes"]}


def require_expected(partition: Mapping[str, Any], text: str, file: str) -> None:
    """Compares a map with one that was kept. Raises CannotCompile that lists every node that runs elsewhere."""
    where = Where(option=f"--expect-partition {file}")
    try:
        expected = _rows(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why, hint = re.sub(r"\s+", " ", str(error))[:200], "`emitc partition MODEL --json` prints one"
        raise EmitcError(f"{file} is no partition map", where, why, hint) from error
    actual = _rows(partition)
    changes = []
    for index in sorted(expected.keys() | actual.keys()):
        old, new = expected.get(index), actual.get(index)
        if old == new:
            continue
        if old is None or new is None:
            op, backend, kernel = new or old or ("", "", "")
            changes.append(f"op {index} {op}: {'not expected' if old is None else 'missing'} ({backend}, {kernel})")
        else:
            changes.append(f"op {index} {new[0]}: {old[1]} ({old[2]}) expected, {new[1]} ({new[2]}) now")
    if changes:
        what = f"{len(changes)} operators run elsewhere than expected"
        why = "; ".join(changes[:20]) + ("; ..." if len(changes) > 20 else "")
        hint = "check the options, or write the map anew with `emitc partition MODEL --json`"
        raise CannotCompile(what, where, why, hint)


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


DEFAULT_SHARE = 0.05
"""Of the constants of all layers: what faster kernels may add to them by default."""
ANY = 1 << 62
"""More scratch than any kernel needs."""


def spend_flash(partition: Partition, constant_bytes: int, budget: int | None, *, small: bool) -> Partition:
    """The partition with faster kernels for some nodes.

    constant_bytes: of its layers. budget: the value of `--flash-budget`, which counts them too. small: code is to be small, so
    that only a budget spends anything.
    """
    default = 0 if small else int(DEFAULT_SHARE * constant_bytes)
    left = default if budget is None else budget - constant_bytes
    offers = []
    for index, choice in partition.choices.items():
        now, faster = (choice.within(ANY, flash).candidate for flash in (0, max(left, 0)))
        if faster.flash_bytes:
            offers.append(((now.cost - faster.cost) / faster.flash_bytes, -index, faster.flash_bytes))
    allowed = {}
    for _, index, size in sorted(offers, reverse=True):
        if size <= left:
            allowed[-index] = size
            left -= size
    return partition.within({}, allowed) if allowed else partition
