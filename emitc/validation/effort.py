"""What a validation costs, by an estimate that is the same on every machine, and whether a compilation does it unasked."""

from emitc.ir import Graph
from emitc.kernels import kernel_of
from emitc.validation.inputs import BOUNDARIES
from emitc.verify.reference import may_not_end

_PER_ELEMENT, _PER_NODE = 60, 100_000
"""Of the reference, in steps of an operator's `work`: fitted to the time that the corpus takes."""
_ALL, _SOME = 10_000_000, 60_000_000
"""Effort of one set of inputs up to which all kinds are taken by default, and up to which two are."""

FEW: tuple[tuple[str, ...], int] = (BOUNDARIES[-1:], 1)
"""The kinds of inputs at the ends of their ranges, and the number of random ones, that a large graph gets."""


def effort(graph: Graph) -> int:
    """Steps that the references take for one set of inputs, about."""
    bound = list(graph.bound())
    elements = sum(tensor.elements for node in bound for tensor in node.outputs)
    return (
        sum(kernel_of(operator).work(operator) for operator in bound) + _PER_ELEMENT * elements + _PER_NODE * len(bound)
    )


def default_inputs(graph: Graph) -> tuple[tuple[str, ...], int] | None:
    """What a compilation takes unasked. None for a graph that takes too long for that, or has a loop that may not end."""
    products = effort(graph)
    if products > _SOME or may_not_end(graph):
        return None
    return (BOUNDARIES, 2) if products <= _ALL else FEW


def thorough_inputs(graph: Graph) -> tuple[tuple[str, ...], int]:
    """What a proof takes, and a compilation that is asked for it."""
    return (BOUNDARIES, 6) if effort(graph) <= _SOME else FEW
