"""Operators that vanish: nobody needs them, their value is known, or they only give bytes another shape."""

import sys
from dataclasses import replace

from emitc.ir import Graph, Node, Tensor
from emitc.kernels import definition_of, kernel_of
from emitc.kernels.control_flow.control_flow import If
from emitc.passes.rewriter import free_name


def drop_dead(graph: Graph) -> Graph:
    """The graph with only the nodes and tensors that its outputs need: in this run, or through a state variable in a later one.

    Inputs stay, they are the interface.
    """
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


def alias_views(graph: Graph) -> Graph:
    """The graph without views, whose outputs become other names for the bytes. One of a constant is left to constant folding."""
    views = {}
    for bound in graph.bound():
        if kernel_of(bound).view and not graph.root(bound.input(0).name).is_constant:
            views[bound.output.name] = bound.input(0).name
    if not views:
        return graph
    tensors = tuple(replace(t, alias_of=views[t.name]) if t.name in views else t for t in graph.tensors)
    nodes = tuple(node for node in graph.nodes if node.outputs[0] not in views)
    return replace(graph, tensors=tensors, nodes=nodes)


def fold_constants(graph: Graph) -> Graph:
    """The graph without nodes of constants alone; their outputs become constants, which their references compute."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    nodes = []
    for node in graph.nodes:
        operands = [tensors[name] if name else None for name in node.inputs]
        known = all(operand is None or operand.is_constant for operand in operands)
        known = known and (any(operands) or not operands)  # an operator without operands is its own constant
        if not known or graph.writes_state(node) or definition_of(node.op).subgraphs:
            nodes.append(node)
            continue
        bound = replace(graph.bind(node), inputs=tuple(operands))
        values = kernel_of(bound).reference(bound, [None if t is None else t.array() for t in operands])
        for tensor, value in zip(bound.outputs, values, strict=True):
            tensors[tensor.name] = replace(tensor, data=value.astype(tensor.dtype.value).tobytes())
    if len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, tensors=tuple(tensors.values()), nodes=tuple(nodes))


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
