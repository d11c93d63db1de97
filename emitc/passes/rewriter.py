"""A Graph in parts, for a pass that rewrites it from front to back: nodes are emitted one by one, tensors added by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from emitc.errors import Note
from emitc.ir import BoundNode, DType, Graph, Node, Op, Quantization, Shape, Tensor
from emitc.records import dataclass, field, replace


def free_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, with as many primes as it takes for a name that is not taken."""
    while wanted in taken:
        wanted += "'"
    return wanted


def only_reader(graph: Graph, name: str) -> Node | None:
    """The only node that reads a tensor, which has no other name and is no output; None where there is no such node."""
    readers = graph.consumers(name)
    return readers[0] if len(readers) == 1 and not graph.aliases(name) and name not in graph.outputs else None


def same_scale(a: Tensor, b: Tensor) -> bool:
    """Whether both are quantized, with equal scales and zero points."""
    x, y = a.quantization, b.quantization
    return x is not None and y is not None and (x.scales, x.zero_points) == (y.scales, y.zero_points)


def views_of(graph: Graph, name: str) -> tuple[str, ...]:
    """All tensors that share a tensor's bytes, also through each other."""
    direct = graph.aliases(name)
    return direct + tuple(view for alias in direct for view in views_of(graph, alias))


def with_nodes(graph: Graph, changed: Mapping[int, Node | None], added: Iterable[Tensor] = ()) -> Graph:
    """The graph with other nodes in place of some, by index; None leaves a node out, with what is written by no node then."""
    nodes = tuple(replacement for node in graph.nodes if (replacement := changed.get(node.index, node)) is not None)
    written = {name for node in nodes for name in node.outputs}
    gone = {name for node in graph.nodes for name in node.outputs if name not in written}
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name not in gone)
    return replace(graph, nodes=nodes, tensors=(*tensors, *added))


@dataclass(slots=True)
class GraphRewriter:
    """The new graph as far as it is written. same: tensors that turned out to be another one."""

    graph: Graph
    tensors: dict[str, Tensor] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    same: dict[str, str] = field(default_factory=dict)
    next_index: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph) -> GraphRewriter:
        last = max((node.index for node in graph.nodes), default=-1)
        return GraphRewriter(graph, {t.name: t for t in graph.tensors}, next_index=last + 1)

    def current(self, name: str) -> str:
        """What a name of the old graph is called now."""
        while name in self.same:
            name = self.same[name]
        return name

    def tensor(
        self,
        like: Tensor,
        suffix: str,
        shape: Shape,
        dtype: DType | None = None,
        quantization: Quantization | None = None,
        data: bytes | None = None,
        order: Shape = (),
    ) -> Tensor:
        """A new tensor named and labelled after another one."""
        wanted = name = like.name + suffix
        while name in self.tensors:
            self._numbers[wanted] = self._numbers.get(wanted, 0) + 1
            name = f"{wanted}.{self._numbers[wanted]}"
        made = Tensor(name, dtype or like.dtype, shape, quantization, data, like.label, order=order)
        self.tensors[name] = made
        return made

    def emit(self, op: Op, op_type: str, inputs: tuple[str, ...], outputs: tuple[str, ...], label: str) -> Node:
        """Adds a node of the pass's own."""
        node = Node(op, op_type, inputs, outputs, self.next_index, label)
        self.next_index += 1
        self.nodes.append(node)
        return node

    def keep(self, node: Node) -> Node:
        """Adds a node of the old graph, its inputs under their new names."""
        kept = replace(node, inputs=tuple(self.current(name) if name else "" for name in node.inputs))
        self.nodes.append(kept)
        return kept

    def bind(self, node: Node) -> BoundNode:
        return BoundNode(
            node,
            tuple(self.tensors[self.current(name)] if name else None for name in node.inputs),
            tuple(self.tensors[name] for name in node.outputs),
        )

    def finish(self, notes: tuple[Note, ...] = ()) -> Graph:
        """The new graph: tensors that nothing refers to any more are left out."""
        used = {name for node in self.nodes for name in (*node.inputs, *node.outputs) if name}
        outputs = tuple(self.current(name) for name in self.graph.outputs)
        used |= {*self.graph.inputs, *outputs}
        used |= {t.alias_of for t in self.tensors.values() if t.alias_of and t.name in used}
        tensors = tuple(t for t in self.tensors.values() if t.name in used)
        return replace(
            self.graph, tensors=tensors, nodes=tuple(self.nodes), outputs=outputs, notes=self.graph.notes + notes
        )
