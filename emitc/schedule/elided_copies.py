"""Layers that only copy, and vanish where one tensor is laid inside another: parts of a concatenation are written in place,
slices and splits are read where they lie.

A part lies in its host at an offset, so both live as long as either of them does. Whether that makes the arena smaller is
for the search of a schedule to find out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emitc.backends.contract import PORTABLE
from emitc.ir import Graph
from emitc.schedule.stages import LoweredNode, in_arena


@dataclass(frozen=True, slots=True)
class ElidedCopy:
    """A layer that vanishes. node: its index. host: the tensor (root) that holds the others; parts: these, with offsets."""

    node: int
    host: str
    parts: tuple[tuple[str, int], ...]


def elidable_copies(graph: Graph, nodes: Sequence[LoweredNode]) -> tuple[ElidedCopy, ...]:
    """Every layer that could vanish, in order of execution; no tensor is a part twice."""
    interface = {graph.root(name).name for name in (*graph.inputs, *graph.outputs)}
    library_owned = _library_owned(graph, nodes)
    taken: set[str] = set()
    copies: list[ElidedCopy] = []
    for node in nodes:
        inside = node.layer.inside
        if not inside or node.backend != PORTABLE:
            continue
        outer = node.bound.input(0) if inside[0].output else node.bound.output
        inner = [node.bound.outputs[i.position] if i.output else node.bound.input(i.position) for i in inside]
        host, roots = graph.root(outer.name), [graph.root(t.name) for t in inner]
        names = [root.name for root in roots]
        if len({host.name, *names}) <= len(names) or interface & set(names) or library_owned & {host.name, *names}:
            continue
        if not all(in_arena(graph, name) for name in (host.name, *names)) or taken & set(names):
            continue
        parts = tuple(zip(names, (i.offset_bytes for i in inside), strict=True))
        whole = all(root.size_bytes == t.size_bytes for root, t in zip(roots, inner, strict=True))
        if not whole or any(offset % t.dtype.bytes for (_, offset), t in zip(parts, inner, strict=True)):
            continue
        taken |= set(names)
        copies.append(ElidedCopy(node.bound.node.index, host.name, parts))
    return tuple(copies)


def _library_owned(graph: Graph, nodes: Sequence[LoweredNode]) -> set[str]:
    """Tensors (roots) that a library or an accelerator touches, or that have a place: those may ask for aligned places."""
    touched = {
        graph.root(t.name).name
        for node in nodes
        if node.backend != PORTABLE or node.layer.pins
        for t in (*node.inputs, *node.bound.outputs)
    }
    return touched | {place.tensor for node in nodes for place in node.layer.places}


def hosts_of(copies: Sequence[ElidedCopy]) -> dict[str, tuple[str, int]]:
    """By part: the tensor at the end of the chain of hosts, and the offset in it."""
    direct = {part: (copy.host, offset) for copy in copies for part, offset in copy.parts}
    hosts: dict[str, tuple[str, int]] = {}
    for part in direct:
        host, offset, seen = part, 0, set[str]()
        while host in direct and host not in seen:
            seen.add(host)
            host, step = direct[host]
            offset += step
        if host not in direct:
            hosts[part] = host, offset
    return hosts


def place_of(hosts: Mapping[str, tuple[str, int]], name: str) -> tuple[str, int]:
    """The buffer that holds a tensor (root), and the tensor's offset in it."""
    return hosts.get(name, (name, 0))
