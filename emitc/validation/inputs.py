"""Inputs of a validation: the ends of every input's range, its zero point, alternating values, and random ones."""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, DType, Graph, Tensor
from emitc.kernels import kernel_of
from emitc.verify.reference import Sample, input_range, may_not_end, random_samples

BOUNDARIES = ("least", "largest", "zero", "alternating")
_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-3, -1e-3, 1e-30, -1e-30, 1e-40, -1e-40)
"""Floats at which functions and roundings turn; the last two are denormal."""


def _boundary(graph: Graph, tensor: Tensor, kind: str) -> Array:
    least, largest = input_range(graph, tensor)
    if kind == "zero":
        zero: float = tensor.quantization.zero_point if tensor.quantization else 0
        if tensor.dtype in _FLOATS:
            values = np.resize(np.array([v for v in _EDGES if least <= v <= largest] or [least]), tensor.elements)
        else:
            values = np.full(tensor.elements, min(max(zero, least), largest))
    elif kind == "alternating":
        values = np.resize(np.array([least, largest]), tensor.elements)
    else:
        values = np.full(tensor.elements, least if kind == "least" else largest)
    return values.reshape(tensor.shape).astype(tensor.dtype.value)


def validation_inputs(graph: Graph, count: int, seed: int = 0, kinds: Sequence[str] = BOUNDARIES) -> list[Sample]:
    ports = [graph.tensor(name) for name in graph.inputs]
    boundaries = [tuple(_boundary(graph, tensor, kind) for tensor in ports) for kind in kinds]
    return [*boundaries, *random_samples(graph, count, seed)]


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
