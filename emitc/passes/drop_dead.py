"""Nodes that no output depends on are dropped: in this run, or through a state variable in a later one."""

from dataclasses import replace

from emitc.ir import Graph


def drop_dead(graph: Graph) -> Graph:
    """The graph with only the nodes and tensors that its outputs need; inputs stay, they are the interface."""
    needed = {graph.root(name).name for name in graph.outputs} | set(graph.outputs)
    states: set[str] = set()
    while True:
        nodes = []
        for node in reversed(graph.nodes):
            if needed.isdisjoint(node.outputs):
                continue
            nodes.append(node)
            for name in node.inputs:
                if name:
                    needed.update((name, graph.root(name).name))
        live = {tensor.name for tensor in graph.states if tensor.name in needed}
        if live == states:  # otherwise a node further back may write what one further ahead reads in the next run
            break
        states = live
    kept = needed | set(graph.inputs) | {name for node in nodes for name in node.outputs}
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in kept)
    if len(nodes) == len(graph.nodes) and len(tensors) == len(graph.tensors):
        return graph
    return replace(graph, nodes=tuple(reversed(nodes)), tensors=tensors)
