"""Where the graph is cut: largest convex sets of nodes that the NPU may run.

A set is convex when no path leaves it and comes back: all its inputs can be there before it starts. Sets grow along the
order of execution. Two that meet at a node become one where that stays convex. Nodes that touch a state variable are in none,
and keep their order: a path leads from one to the next, although no tensor does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from emitc.ir import Graph, Node


@dataclass(slots=True)
class _Grown:
    """A set of nodes. ancestors: sets from which a path leads to it through nodes outside of both."""

    nodes: set[int]
    ancestors: set[int]


def convex_regions(graph: Graph, eligible: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """Disjoint convex sets of the eligible nodes, each with its indices in order of execution."""
    states = {tensor.name for tensor in graph.states}
    writers = {graph.root(name).name: node.index for node in graph.nodes for name in node.outputs if name not in states}
    grown: dict[int, _Grown] = {}
    member: dict[int, int] = {}
    reached: dict[int, set[int]] = {}  # sets from which some path leads to the node, its own left out
    waits = waits_for_state(graph)
    for node in graph.nodes:
        sources = {writers[root] for name in node.inputs if name and (root := graph.root(name).name) in writers}
        sources |= waits.get(node.index, set())
        reached[node.index] = _reached(sources, member, reached)
        if node.index not in eligible:
            continue
        chosen = _joined(node, sources, member, reached, grown)
        grown[chosen].nodes.add(node.index)
        member[node.index] = chosen
        reached[node.index] -= {chosen}
        grown[chosen].ancestors |= reached[node.index]
    order = {node.index: i for i, node in enumerate(graph.nodes)}
    return tuple(tuple(sorted(region.nodes, key=order.__getitem__)) for region in grown.values())


def waits_for_state(graph: Graph) -> dict[int, set[int]]:
    """By index of a node, the nodes that have to run before it because of a state variable."""
    writers: dict[int, set[int]] = {}
    for earlier, later in graph.state_order():
        writers.setdefault(graph.nodes[later].index, set()).add(graph.nodes[earlier].index)
    return writers


def _reached(sources: set[int], member: dict[int, int], reached: dict[int, set[int]]) -> set[int]:
    result: set[int] = set()
    for source in sources:
        result |= reached[source]
        if source in member:
            result.add(member[source])
    return result


def _ancestors(sets: set[int], grown: dict[int, _Grown]) -> set[int]:
    """The sets from which some chain of sets leads to one of these: none of them may need a result of these in turn."""
    ancestors: set[int] = set()
    waiting = list(sets)
    while waiting:
        for ancestor in grown[waiting.pop()].ancestors - ancestors:
            ancestors.add(ancestor)
            waiting.append(ancestor)
    return ancestors


def _joined(
    node: Node, sources: set[int], member: dict[int, int], reached: dict[int, set[int]], grown: dict[int, _Grown]
) -> int:
    """The set that the node joins: those of its operands where that is legal, merged; else a new one."""
    wanted = sorted({member[source] for source in sources if source in member})
    legal: list[int] = []
    for candidate in wanted:
        group = {*legal, candidate}
        outside = {s for s in sources if member.get(s) not in group}
        detour = any(group & reached[s] for s in outside)
        mixed = any(group & grown[number].ancestors for number in group)
        before = reached[node.index].union(*(grown[number].ancestors for number in group)) - group
        if not detour and not mixed and not group & _ancestors(before, grown):
            legal.append(candidate)
    if not legal:
        grown[node.index] = _Grown(set(), set())
        return node.index
    first, *rest = legal
    for other in rest:
        for index in grown[other].nodes:
            member[index] = first
        grown[first].nodes |= grown[other].nodes
        grown[first].ancestors |= grown[other].ancestors
        del grown[other]
        for closed in (*(g.ancestors for g in grown.values()), *reached.values()):
            if other in closed:
                closed.discard(other)
                closed.add(first)
    grown[first].ancestors.discard(first)
    return first


@dataclass(frozen=True, slots=True)
class Cut:
    """A region as a graph of its own, and what crosses its border. inputs, outputs: names in both graphs."""

    graph: Graph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def edge_bytes(self) -> int:
        """Bytes of everything that crosses."""
        return sum(self.graph.tensor(name).size_bytes for name in (*self.inputs, *self.outputs))


def cut(graph: Graph, indices: Sequence[int]) -> Cut:
    """The region of these nodes. Its inputs and outputs are tensors that own their bytes."""
    chosen = set(indices)
    nodes = tuple(node for node in graph.nodes if node.index in chosen)
    written = {graph.root(name).name for node in nodes for name in node.outputs}
    read = [graph.root(name) for node in nodes for name in node.inputs if name]
    inputs = tuple(dict.fromkeys(t.name for t in read if not t.is_constant and t.name not in written))
    others = [name for node in graph.nodes if node.index not in chosen for name in node.inputs if name]
    outside = {graph.root(name).name for name in (*others, *graph.outputs)}
    made = [graph.root(name).name for node in nodes for name in node.outputs]
    outputs = tuple(name for name in made if name in outside)
    names = {name for node in nodes for name in (*node.inputs, *node.outputs) if name}
    names |= shared_with(graph, names)
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in names)
    return Cut(Graph(graph.name, tensors, nodes, inputs, outputs), inputs, outputs)


def shared_with(graph: Graph, names: Iterable[str]) -> set[str]:
    """The tensors whose bytes the named ones share."""
    shared: set[str] = set()
    for name in names:
        tensor = graph.tensor(name)
        while tensor.alias_of:
            tensor = graph.tensor(tensor.alias_of)
            shared.add(tensor.name)
    return shared


def in_order(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes in an order in which each follows the nodes that it reads; otherwise the given order is kept.

    graph: as it was before regions were cut, with the order that state asks for.
    """
    waiting = list(nodes)
    ready = {tensor.name for tensor in graph.tensors if tensor.is_constant or tensor.is_state}
    ready |= {graph.root(name).name for name in graph.inputs}
    waits = waits_for_state(graph)
    ordered: list[Node] = []
    while waiting:
        left = {node.index for node in waiting}
        node = next(
            n
            for n in waiting
            if all(graph.root(name).name in ready for name in n.inputs if name) and not waits.get(n.index, set()) & left
        )
        waiting.remove(node)
        ready |= {graph.root(name).name for name in node.outputs}
        ordered.append(node)
    return tuple(ordered)
