"""An IF whose condition is known becomes the operators of the branch that it takes."""

import sys
from dataclasses import replace

from emitc.ir import Graph, Node, Tensor
from emitc.kernels.control_flow.control_flow import If
from emitc.passes.fold_constants import fold_constants
from emitc.passes.rewriter import free_name


def inline_branches(graph: Graph) -> Graph:
    """The graph without operators IF of a constant condition; what their branches make constant is computed."""
    while True:
        known = next((node for node in graph.nodes if _known(graph, node)), None)
        if known is None:
            return graph
        graph = fold_constants(_inlined(graph, known))


def _known(graph: Graph, node: Node) -> bool:
    """Whether a node's condition is known, and scales and zero points inside are those outside, since bytes are handed over."""
    if not isinstance(node.op, If) or not graph.tensor(node.inputs[0]).is_constant or graph.writes_state(node):
        return False
    outside = [graph.tensor(name).quantization for name in (*node.inputs[1:], *node.outputs)]
    branch = _taken(graph, node, node.op)
    return outside == [branch.tensor(name).quantization for name in (*branch.inputs, *branch.outputs)]


def _taken(graph: Graph, node: Node, op: If) -> Graph:
    return op.graphs[0 if graph.tensor(node.inputs[0]).array().reshape(-1)[0] else 1]


def _inlined(graph: Graph, node: Node) -> Graph:
    """The graph with the branch's tensors and operators instead of the node."""
    assert isinstance(node.op, If)
    branch = _taken(graph, node, node.op)
    names = dict(zip(branch.inputs, node.inputs[1:], strict=True))
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    for output, name in zip(node.outputs, branch.outputs, strict=True):
        inner = branch.tensor(name)
        if inner.data is not None:
            tensors[output] = replace(tensors[output], data=inner.data)
        elif name in names:  # an operand, or an output of the branch that the node gives twice
            tensors[output] = replace(tensors[output], alias_of=names[name])
        elif inner.alias_of:
            names[name] = output
            tensors[output] = replace(tensors[output], alias_of=inner.alias_of)  # renamed below
        else:
            names[name] = output
    results = set(node.outputs)
    for tensor in branch.tensors:
        if tensor.name not in names:
            fresh = free_name(f"{node.label}/{tensor.name}", tensors)
            names[tensor.name] = fresh
            tensors[fresh] = replace(tensor, name=fresh, source=-1)
    for fresh in [names[tensor.name] for tensor in branch.tensors]:
        made: Tensor = tensors[fresh]
        if made.alias_of in names and (made.source == -1 or fresh in results):
            tensors[fresh] = replace(made, alias_of=names[made.alias_of])
    # Passes before this one have numbered operators of their own without regard to those inside.
    taken = {other.index for other in graph.nodes if other is not node}
    numbers = iter(range(max((*taken, *(inner.index for inner in branch.nodes)), default=-1) + 1, sys.maxsize))
    inside = tuple(
        replace(
            inner,
            index=next(numbers) if inner.index in taken else inner.index,
            inputs=tuple(names[name] if name else "" for name in inner.inputs),
            outputs=tuple(names[name] for name in inner.outputs),
        )
        for inner in branch.nodes
    )
    place = graph.nodes.index(node)
    nodes = (*graph.nodes[:place], *inside, *graph.nodes[place + 1 :])
    return replace(graph, tensors=tuple(tensors.values()), nodes=nodes)
