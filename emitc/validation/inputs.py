"""Inputs of a validation: the ends of every input's range, its zero point, alternating values, and random ones."""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, DType, Graph, Tensor
from emitc.verify.samples import Sample, input_range, random_samples

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
    """One set of inputs of each kind, and `count` random ones."""
    ports = [graph.tensor(name) for name in graph.inputs]
    boundaries = [tuple(_boundary(graph, tensor, kind) for tensor in ports) for kind in kinds]
    return [*boundaries, *random_samples(graph, count, seed)]
