"""The first value of a state variable where an initialisation computes it: its operators' references, while compiling."""

from collections.abc import Mapping
from dataclasses import replace

from emitc.errors import CannotCompile, EmitcError, Refusals, Where
from emitc.frontends.limits import MAX_OPERATORS
from emitc.ir import Graph
from emitc.kernels.contract import KernelDef
from emitc.source import SourceModel, SourceNode, SourceSubgraph, SourceTensor


def computation(
    tensors: tuple[SourceTensor, ...], made_by: Mapping[int, SourceNode], value: SourceTensor
) -> SourceSubgraph:
    """What computes a tensor. made_by: the operator that writes it, by the index of a tensor."""
    needed: dict[int, SourceNode] = {}
    left = [value.index]
    while left:
        node = made_by.get(left.pop())
        if node is not None and node.index not in needed:
            needed[node.index] = node
            left += [tensor.index for tensor in node.inputs if tensor is not None]
    return SourceSubgraph(tensors, tuple(needed[index] for index in sorted(needed)), (), (value.index,))


def model_of(source: SourceModel, start: SourceSubgraph, first_index: int) -> SourceModel:
    """A computation as a model. first_index: of its first operator. Raises CannotCompile beyond the limit of operators."""
    if first_index + len(start.nodes) > MAX_OPERATORS:
        why = f"the limit is {MAX_OPERATORS} operators"
        hint = "export the model with constant initial states"
        raise CannotCompile("initialisations compute too much", Where(), why, hint)
    nodes = tuple(replace(node, index=first_index + place) for place, node in enumerate(start.nodes))
    return replace(
        source, tensors=start.tensors, nodes=nodes, inputs=(), outputs=start.outputs, notes=(), blockers=(), folded=(),
        subgraphs=(), unread=(),
    )  # fmt: skip


def computed(graph: Graph, kernels: Mapping[str, KernelDef]) -> bytes:
    """The only output of a graph without inputs."""
    definitions = {kernel.op: kernel for kernel in kernels.values()}
    values = {tensor.name: tensor.array() for tensor in graph.tensors if tensor.is_constant}
    for bound in graph.bound():
        operands = [None if tensor is None else values[tensor.name] for tensor in bound.inputs]
        results = definitions[type(bound.node.op)].reference(bound, operands)
        values |= {tensor.name: result for tensor, result in zip(bound.outputs, results, strict=True)}
    return values[graph.outputs[0]].tobytes()


def placed(error: EmitcError, variable: SourceTensor) -> Refusals:
    """The errors of a computation, each saying whose it is."""
    place = f'(in the initialisation of the variable "{variable.name}")'
    return Refusals(tuple(part.at(why=f"{part.why} {place}") for part in error.parts()))
