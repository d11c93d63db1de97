"""Operators that only change a shape vanish: their output becomes another name for their input's bytes."""

from dataclasses import replace

from emitc.ir import Graph
from emitc.kernels import kernel_of


def alias_views(graph: Graph) -> Graph:
    """The graph without views. A view of a constant is left to constant folding."""
    views = {}
    for bound in graph.bound():
        if kernel_of(bound).view and not graph.root(bound.input(0).name).is_constant:
            views[bound.output.name] = bound.input(0).name
    if not views:
        return graph
    tensors = tuple(replace(t, alias_of=views[t.name]) if t.name in views else t for t in graph.tensors)
    nodes = tuple(node for node in graph.nodes if node.outputs[0] not in views)
    return replace(graph, tensors=tensors, nodes=nodes)
