"""The engine's values as the proof of single operators needs them: also those that only move on the way to one that it shows.

emitc's graph has tensors that the model does not state. A Transpose, a Split or a MaxPool of dequantized values moves
bytes there, for example. They follow from the engine's values, forwards and, where the move can be undone, backwards.
"""

from collections.abc import Mapping

import numpy as np

from emitc.ir import BoundNode, Graph
from emitc.kernels import definition_of, kernel_of
from emitc.kernels.movement.transpose import Transpose
from emitc.kernels.pooling.pool_ops import MaxPool2D
from emitc.kernels.quantization.quantize import Dequantize, ShiftSign
from emitc.verify.engines.contract import Array


def known_value(graph: Graph, values: Mapping[str, Array], name: str) -> Array | None:
    """The engine's value of a tensor, also through the tensor that it shares bytes with."""
    tensor = graph.tensor(name)
    if tensor.is_constant:
        return tensor.array()
    while tensor.name not in values and tensor.alias_of:
        tensor = graph.tensor(tensor.alias_of)
    value = values.get(tensor.name)
    return None if value is None else value.reshape(graph.tensor(name).shape)


def _moves(bound: BoundNode) -> bool:
    """Whether each output element is one of the first input's, and the others are constants."""
    moves = definition_of(bound.node.op).moves or isinstance(bound.node.op, Transpose | ShiftSign)
    return moves and all(t is None or t.is_constant for t in bound.inputs[1:])


def completed(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """The engine's values, and those of the tensors before and after them that have the same elements."""
    complete = dict(values)
    for tensor in graph.tensors:
        if tensor.alias_of and tensor.name in complete:
            owner = graph.tensor(tensor.alias_of)
            if owner.elements == tensor.elements and owner.dtype is tensor.dtype:
                complete.setdefault(owner.name, complete[tensor.name].reshape(owner.shape))
    for bound in reversed(list(graph.bound())):
        op = bound.node.op
        if isinstance(op, Transpose) and bound.output.name in complete and not bound.input(0).is_constant:
            back = np.argsort(op.permutation)
            complete.setdefault(bound.input(0).name, np.ascontiguousarray(complete[bound.output.name].transpose(back)))
    for bound in graph.bound():
        constant = None
        # What codes stand for follows from them in every bit, also where they have been moved instead of the reals.
        follows = _moves(bound) or isinstance(bound.node.op, Dequantize)
        if any(t.name not in complete for t in bound.outputs) and follows:
            constant = known_value(graph, complete, bound.input(0).name)
        if constant is not None:
            operands = [constant, *(None if t is None else t.array() for t in bound.inputs[1:])]
            for tensor, result in zip(bound.outputs, kernel_of(bound).reference(bound, operands), strict=True):
                complete.setdefault(tensor.name, result)
    return complete


def shown(
    graph: Graph, values: Mapping[str, Array], name: str, result: Array, *, selecting: bool = True
) -> tuple[str, Array] | None:
    """Where the engine shows an operator's result: in the tensor itself, or after operators that move its elements.

    result: the tensor as the reference has it. Returns the name of the tensor that has a value, and the result moved
    there; None where the engine shows neither. selecting: also through operators whose moves depend on the values.
    """
    while name not in values:
        (*readers,) = graph.consumers(name)
        aliases = graph.aliases(name)
        if len(aliases) == 1 and not readers:
            name, result = aliases[0], result.reshape(graph.tensor(aliases[0]).shape)
            continue
        if len(readers) != 1 or aliases:
            return None
        bound = graph.bind(readers[0])
        if not _moves(bound) or len(bound.outputs) != 1 or not (selecting or not isinstance(bound.node.op, MaxPool2D)):
            return None
        operands = [result, *(None if t is None else t.array() for t in bound.inputs[1:])]
        (result,) = kernel_of(bound).reference(bound, operands)
        name = bound.output.name
    return name, result
