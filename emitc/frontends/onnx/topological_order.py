"""Nodes of a .onnx file in an order in which each follows those whose results it reads.

The format asks for that and its checker insists; files of some exporters have another one, and ONNX Runtime takes it.
"""

import heapq

import onnx


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [graph for a in node.attribute for graph in (*([a.g] if a.HasField("g") else ()), *a.graphs)]


def _read(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those of the graphs that it runs included: some of these may be their own."""
    names = {name for name in node.input if name}
    graphs = graphs_of(node)
    while graphs:
        graph = graphs.pop()
        names |= {value.name for value in graph.output}
        for inner in graph.node:
            names.update(name for name in inner.input if name)
            graphs += graphs_of(inner)
    return names


def _order(nodes: list[onnx.NodeProto]) -> list[int]:
    """The nodes' positions in that order, otherwise unchanged; fewer where nodes read each other in a cycle."""
    made: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            made.setdefault(name, position)
    missing = []
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        needed = {made[name] for name in _read(node) if name in made}
        missing.append(len(needed))
        for other in needed:
            readers[other].append(position)
    ready = [position for position, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def sort_nodes(model: onnx.ModelProto) -> None:
    """Puts the nodes of the main graph into such an order, where there is one; ONNX Runtime leaves those inside alone, too."""
    nodes = list(model.graph.node)
    order = _order(nodes)
    if len(order) == len(nodes) and order != sorted(order):
        copies = [onnx.NodeProto.FromString(nodes[position].SerializeToString()) for position in order]
        del model.graph.node[:]
        model.graph.node.extend(copies)
