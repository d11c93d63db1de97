"""A Transpose in front of a fully connected layer moves into its weights: the columns take the order of what comes in.

Between the two there may be operators that only change the shape. Legal where nobody else reads the Transpose, and it
leaves the rows alone. The rows are the dimensions in front of those that a row is made of.
"""

import math
from dataclasses import replace

import numpy as np

from emitc.ir import Array, Graph, Node, Tensor, stored
from emitc.kernels import definition_of
from emitc.kernels.mac.accumulation import WEIGHTS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.movement.transpose import Transpose
from emitc.passes.rewriter import free_name, only_reader, with_nodes


def _transpose_before(graph: Graph, node: Node) -> tuple[list[Node], Node] | None:
    """The views in front of a node's first input, nearest first, and the Transpose that feeds them."""
    views: list[Node] = []
    name = node.inputs[0]
    while True:
        producer = graph.producer(name)
        if producer is None or only_reader(graph, name) is None:
            return None
        if isinstance(producer.op, Transpose):
            return views, producer
        if not definition_of(producer.op).view:
            return None
        views.append(producer)
        name = producer.inputs[0]


def _reordered(weights: Tensor, shape: tuple[int, ...], permutation: tuple[int, ...]) -> Array | None:
    """Weights [O, I] for rows in the order before `transpose(u, permutation)` of that shape; None where rows are cut."""
    depth = weights.shape[1]
    for first in range(len(shape)):
        if math.prod(shape[first:]) == depth and permutation[:first] == tuple(range(first)):
            inner = tuple(axis - first for axis in permutation[first:])
            blocks = weights.array().reshape(weights.shape[0], *shape[first:])
            order = (0, *(1 + int(i) for i in np.argsort(inner)))
            return np.ascontiguousarray(blocks.transpose(order)).reshape(weights.shape)
    return None


def _one_less(graph: Graph) -> Graph | None:
    """The graph without the first such Transpose; None where no Transpose is like that."""
    for node in graph.nodes:
        if not isinstance(node.op, FullyConnected) or not graph.tensor(node.inputs[WEIGHTS]).is_constant:
            continue
        weights = graph.tensor(node.inputs[WEIGHTS])
        before = _transpose_before(graph, node)
        if before is None or (weights.quantization and weights.quantization.axis != 0):
            continue
        views, transpose = before
        assert isinstance(transpose.op, Transpose)
        if not views and graph.tensor(transpose.inputs[0]).shape[-1] != weights.shape[1]:
            continue  # a column: only a view would make a row of it
        data = _reordered(weights, graph.tensor(transpose.outputs[0]).shape, transpose.op.permutation)
        if data is None:
            continue
        name = free_name(f"{weights.name}:{node.index}", {tensor.name for tensor in graph.tensors})
        turned = replace(weights, name=name, data=stored(data, weights.dtype))
        source = transpose.inputs[0]
        made = replace(node, inputs=(node.inputs[0] if views else source, name, *node.inputs[2:]))
        changed: dict[int, Node | None] = {node.index: made}
        if views:
            changed[views[-1].index] = replace(views[-1], inputs=(source, *views[-1].inputs[1:]))
        changed[transpose.index] = None
        return _renamed(with_nodes(graph, changed, (turned,)), [view.outputs[0] for view in views])
    return None


def _renamed(graph: Graph, names: list[str]) -> Graph:
    """The graph with other names for views whose elements now come in another order than the model's value of that name."""
    taken = {tensor.name for tensor in graph.tensors}
    fresh: dict[str, str] = {}
    for name in names:
        fresh[name] = free_name(f"{name}_unturned", taken)
        taken.add(fresh[name])
    nodes = tuple(
        replace(
            node,
            inputs=tuple(fresh.get(name, name) for name in node.inputs),
            outputs=tuple(fresh.get(name, name) for name in node.outputs),
        )
        for node in graph.nodes
    )
    tensors = tuple(
        replace(t, name=fresh[t.name], label=f"{t.label}_unturned" if t.label else "", source=-1)
        if t.name in fresh
        else t
        for t in graph.tensors
    )
    return replace(graph, tensors=tensors, nodes=nodes)


def absorb_transposes(graph: Graph) -> Graph:
    """The graph without Transposes in front of fully connected layers."""
    while (less := _one_less(graph)) is not None:
        graph = less
    return graph
