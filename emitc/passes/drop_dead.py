"""Nodes that no output depends on are dropped."""

from __future__ import annotations

from dataclasses import replace

from emitc.ir import Graph


def drop_dead(graph: Graph) -> Graph:
    """The graph with only the nodes and tensors that its outputs need; inputs stay, they are the interface."""
    needed = {graph.root(name).name for name in graph.outputs} | set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        nodes.append(node)
        for name in node.inputs:
            if name:
                needed.update((name, graph.root(name).name))
    kept = needed | set(graph.inputs) | {name for node in nodes for name in node.outputs}
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in kept)
    if len(nodes) == len(graph.nodes) and len(tensors) == len(graph.tensors):
        return graph
    return replace(graph, nodes=tuple(reversed(nodes)), tensors=tensors)
