"""Random inputs for a graph: seeded, over the whole range of each input, with indices that name elements that are there."""

from collections.abc import Iterator

import numpy as np

from emitc.ir import Array, DType, Graph, Tensor
from emitc.kernels.movement.gather import EmbeddingLookup, Gather, GatherNd
from emitc.kernels.movement.joins import Concatenation, Split
from emitc.kernels.movement.pad import Pad
from emitc.kernels.movement.reshape import Reshape
from emitc.kernels.movement.slice import Slice
from emitc.kernels.movement.transpose import Transpose
from emitc.kernels.quantization.quantize import Cast, Quantize

Sample = tuple[Array, ...]

_MOVES = (Concatenation, Pad, Reshape, Slice, Split, Transpose)


def _quantized_as(graph: Graph, name: str) -> Iterator[Tensor]:
    """The quantized tensors that a float tensor becomes, directly or after it was only moved."""
    for alias in graph.aliases(name):
        yield from _quantized_as(graph, alias)
    for node in graph.consumers(name):
        if isinstance(node.op, Quantize):
            yield graph.tensor(node.outputs[0])
        elif isinstance(node.op, _MOVES):
            for output in node.outputs:
                yield from _quantized_as(graph, output)


def _quantized_range(graph: Graph, tensor: Tensor) -> tuple[float, float]:
    """The range that the Quantize nodes after a float input represent, a little wider; (-4, 4) without such a node."""
    ends: list[float] = []
    for quantized in _quantized_as(graph, tensor.name):
        least, most = quantized.dtype.range
        if quantized.quantization is not None:
            q = quantized.quantization
            for scale, zero_point in zip(q.scales, q.zero_points, strict=True):
                ends += [(least - 4 - zero_point) * scale, (most + 4 - zero_point) * scale]
    limit = float(np.finfo(np.float32).max)
    return (max(min(ends), -limit), min(max(ends), limit)) if ends else (-4.0, 4.0)


def _last_positions(graph: Graph, name: str) -> Iterator[int]:
    """Of each operator that chooses by a tensor, directly or after it was moved or cast: the last position that there is."""
    for alias in graph.aliases(name):
        yield from _last_positions(graph, alias)
    for node in graph.consumers(name):
        if isinstance(node.op, Gather | GatherNd) and name in node.inputs[1:]:
            shape = graph.tensor(node.inputs[0]).shape
            yield min((shape[node.op.axis],) if isinstance(node.op, Gather) else shape[: node.op.shape[-1]]) - 1
        elif isinstance(node.op, EmbeddingLookup) and name == node.inputs[0]:
            yield graph.tensor(node.inputs[1]).shape[0] - 1
        elif isinstance(node.op, (*_MOVES, Cast)):
            for output in node.outputs:
                yield from _last_positions(graph, output)


def _index_range(graph: Graph, tensor: Tensor) -> tuple[int, int]:
    """The positions that a tensor of indices can name; the type's range where it chooses nothing."""
    low, high = tensor.dtype.range
    last = list(_last_positions(graph, tensor.name))
    return (0, min(high, *last)) if last else (low, high)


def input_range(graph: Graph, tensor: Tensor) -> tuple[float, float]:
    """The least and the largest value that an input is given: what `random_samples` draws from."""
    if tensor.dtype in (DType.FLOAT32, DType.FLOAT64):
        return _quantized_range(graph, tensor)
    return (0, 1) if tensor.dtype is DType.BOOL else _index_range(graph, tensor)


def random_samples(graph: Graph, count: int, seed: int) -> list[Sample]:
    """`count` sets of inputs: uniform over the type's range, every third one a Gaussian around the zero point.

    Indices name elements that are there: what others choose is not defined.
    """
    rng = np.random.default_rng(seed)
    tensors = [graph.tensor(name) for name in graph.inputs]
    return [tuple(_drawn(graph, tensor, rng, case % 3 == 2) for tensor in tensors) for case in range(count)]


def _drawn(graph: Graph, tensor: Tensor, rng: np.random.Generator, gaussian: bool) -> Array:
    dtype, shape = tensor.dtype.value, tensor.shape
    if tensor.dtype in (DType.FLOAT32, DType.FLOAT64):
        return rng.uniform(*_quantized_range(graph, tensor), shape).astype(dtype)
    if tensor.dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    least, most = _index_range(graph, tensor)
    if gaussian and tensor.quantization:
        drawn = np.rint(rng.normal(tensor.quantization.zero_point, (most - least) / 8, shape))
        return np.clip(drawn, least, most).astype(dtype)
    values: Array = rng.integers(least, most, shape, dtype=dtype, endpoint=True)
    return values


def quiet(tensor: Tensor, values: Array, quieter: int) -> Array:
    """Drawn real values, or the codes of such, divided by a whole number; others, such as indices, as they are."""
    if values.dtype.name in ("float32", "float64"):
        divided: Array = np.divide(values, quieter).astype(values.dtype)
        return divided
    if tensor.quantization is None or not tensor.quantization.per_tensor:
        return values
    zero = tensor.quantization.zero_point
    codes: Array = (np.floor_divide(values.astype(np.int64) - zero, quieter) + zero).astype(values.dtype)
    return codes
