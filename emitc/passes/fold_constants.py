"""Nodes whose operands are all constants are computed now, by their reference."""

from dataclasses import replace

from emitc.ir import Graph
from emitc.kernels import definition_of, kernel_of


def fold_constants(graph: Graph) -> Graph:
    """The graph without nodes whose value is known; their outputs become constants."""
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
