"""State read where it lies, and buffers of the last rows kept in one piece: done when every node has its backend.

A READ_VARIABLE becomes another name for the variable, where nothing writes the variable before the last use of what was read.

A streaming layer keeps its last rows: it joins them with the new ones, computes on both, and assigns all but the oldest rows to
the variable again. Either the variable has the rows without the new ones,

    READ -> CONCATENATION with new rows -> SLICE of the last ones -> ASSIGN

or the rows with them,

    READ -> SLICE of the last ones -> CONCATENATION with new rows -> ASSIGN

In both the joined rows become the state variable, and an Append moves it on by the new rows, instead of CONCATENATION.
Its readers follow the Append and see what they saw before; the other three operators vanish, with the arena's bytes for them.
"""

import math
from collections.abc import Iterator

from emitc.ir import Graph, Node, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.movement.joins import Concatenation
from emitc.kernels.movement.slice import Slice
from emitc.kernels.state.state_variables import Append, AssignVariable, ReadVariable
from emitc.passes.rewriter import only_reader
from emitc.records import dataclass, replace


def state_in_place(graph: Graph) -> Graph:
    """The graph with as little copying of state as its order allows."""
    for state in graph.states:
        if state.name in graph.inputs:
            continue  # it belongs to the operator round this graph, which says how large it is
        rolled = _rolled(graph, state)
        if rolled is not None:
            graph = rolled
    while (node := next(_free_reads(graph), None)) is not None:
        read, value = node.inputs[0], node.outputs[0]
        tensors = tuple(replace(t, alias_of=read) if t.name == value else t for t in graph.tensors)
        graph = replace(graph, tensors=tensors, nodes=tuple(n for n in graph.nodes if n is not node))
    return graph


# ---- the last rows in one piece ----


@dataclass(frozen=True, slots=True)
class _Rows:
    """The operators of one buffer. joins: the CONCATENATION. old, new: its inputs. gone: nodes that the Append stands for."""

    joins: Node
    new: str
    gone: tuple[Node, ...]


def _rolled(graph: Graph, state: Tensor) -> Graph | None:
    """The graph with the variable kept together with its new rows, None where it is not used so."""
    readers = graph.consumers(state.name)
    writers = [node for node in graph.nodes if state.name in node.outputs]
    if len(readers) != 1 or len(writers) != 1 or graph.aliases(state.name):
        return None
    read, assign = readers[0], writers[0]
    if not isinstance(read.op, ReadVariable) or not isinstance(assign.op, AssignVariable):
        return None
    rows = _without_new(graph, state, read, assign) or _with_new(graph, state, read, assign)
    if rows is None:
        return None
    joined, new = graph.tensor(rows.joins.outputs[0]), graph.tensor(rows.new)
    assert state.initial is not None
    front = state.initial[: joined.dtype.bytes] * (joined.elements - state.elements)  # moved out before it is ever read
    kept = replace(joined, initial=front + state.initial, label=state.label)
    append = replace(rows.joins, op=Append(), inputs=(new.name, joined.name))
    gone = {node.index for node in rows.gone}
    nodes = tuple(append if node is rows.joins else node for node in graph.nodes if node.index not in gone)
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)} | set(graph.outputs)
    unused = {name for node in rows.gone for name in (*node.inputs, *node.outputs) if name not in used}
    tensors = tuple(kept if t is joined else t for t in graph.tensors if t.name not in unused)
    return replace(graph, nodes=nodes, tensors=tensors)


def _without_new(graph: Graph, state: Tensor, read: Node, assign: Node) -> _Rows | None:
    """The variable holds the rows to which the new ones are appended."""
    joins = _only_reader(graph, read.outputs[0])
    cuts = graph.producer(assign.inputs[0])
    if joins is None or cuts is None or not _joins_rows(graph, joins, read.outputs[0]):
        return None
    if cuts.inputs[0] != joins.outputs[0] or not _keeps_end(graph, cuts, state.size_bytes):
        return None
    only = _only_reader(graph, cuts.outputs[0]) is assign
    return _Rows(joins, joins.inputs[1], (read, assign, cuts) if only else (read, assign))


def _with_new(graph: Graph, state: Tensor, read: Node, assign: Node) -> _Rows | None:
    """The variable holds the new rows too, the oldest ones are left out first."""
    cuts = _only_reader(graph, read.outputs[0])
    joins = graph.producer(assign.inputs[0])
    if cuts is None or joins is None or _only_reader(graph, cuts.outputs[0]) is not joins:
        return None
    if not _joins_rows(graph, joins, cuts.outputs[0]) or graph.tensor(joins.outputs[0]).size_bytes != state.size_bytes:
        return None
    if not _keeps_end(graph, cuts, graph.tensor(cuts.outputs[0]).size_bytes):
        return None
    return _Rows(joins, joins.inputs[1], (read, cuts, assign))


def _only_reader(graph: Graph, name: str) -> Node | None:
    """The only node that uses a tensor, and uses it once."""
    reader = only_reader(graph, name)
    return reader if reader is not None and reader.inputs.count(name) == 1 else None


def _joins_rows(graph: Graph, node: Node, old: str) -> bool:
    """Whether a node appends the bytes of one tensor to those of `old`, unchanged."""
    if not isinstance(node.op, Concatenation) or len(node.inputs) != 2 or node.inputs[0] != old or node.op.rescales:
        return False
    tensors = [graph.tensor(name) for name in (*node.inputs, *node.outputs)]
    same = len({(t.dtype, t.quantization) for t in tensors}) == 1
    return same and not tensors[1].is_state and math.prod(tensors[2].shape[: node.op.axis]) == 1


def _keeps_end(graph: Graph, node: Node, size_bytes: int) -> bool:
    """Whether a node copies the last bytes of its input, in one piece."""
    if not isinstance(node.op, Slice):
        return False
    bound = graph.bind(node)
    layer = kernel_of(bound).lower(bound)
    values = {param.name: param.value for param in layer.params}
    start = bound.input(0).size_bytes - size_bytes
    return layer.template == "movement/copy_run" and values == {"x_start": start, "run_bytes": size_bytes}


# ---- reads ----


def _free_reads(graph: Graph) -> Iterator[Node]:
    """The READ_VARIABLEs whose value is used for the last time before the variable is written next."""
    for place, node in enumerate(graph.nodes):
        if not isinstance(node.op, ReadVariable):
            continue
        value = node.outputs[0]
        reads = ((i, name) for i, reader in enumerate(graph.nodes) for name in reader.inputs if name)
        last = max((i for i, name in reads if _stands_for(graph, name, value)), default=place)
        if any(_stands_for(graph, name, value) for name in graph.outputs):
            last = len(graph.nodes)
        state = node.inputs[0]
        if not any(state in n.outputs for n in graph.nodes[place + 1 : last + 1]):
            yield node


def _stands_for(graph: Graph, name: str, value: str) -> bool:
    """Whether a tensor is `value` or another name of it."""
    while name != value:
        name = graph.tensor(name).alias_of
        if not name:
            return False
    return True
