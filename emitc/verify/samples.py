"""Inputs for the proof: seeded random values over the whole range of each input, and given vectors."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from emitc.errors import EmitcError, Where
from emitc.ir import Array, DType, Graph, Tensor
from emitc.kernels.movement.concatenation import Concatenation
from emitc.kernels.movement.gather import Gather
from emitc.kernels.movement.gather_nd import GatherNd
from emitc.kernels.movement.pad import Pad
from emitc.kernels.movement.reshape import Reshape
from emitc.kernels.movement.slice import Slice
from emitc.kernels.movement.split import Split
from emitc.kernels.movement.transpose import Transpose
from emitc.kernels.quantization.quantize import Quantize

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


def _index_range(graph: Graph, tensor: Tensor) -> tuple[int, int]:
    """The positions that a tensor of indices can name; the type's range where it chooses nothing."""
    ends = [tensor.dtype.range[1]]
    for node in graph.consumers(tensor.name):
        if isinstance(node.op, Gather | GatherNd) and tensor.name in node.inputs[1:]:
            shape = graph.tensor(node.inputs[0]).shape
            chosen = (shape[node.op.axis],) if isinstance(node.op, Gather) else shape[: node.op.shape[-1]]
            ends.append(min(chosen) - 1)
    return (tensor.dtype.range[0] if len(ends) == 1 else 0), min(ends)


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


def read_vectors(path: Path, graph: Graph) -> list[tuple[Sample, Sample]]:
    """The cases of an .npz file with keys in{i}_{k} and out{j}_{k}: inputs and expected outputs (none if absent).

    Other keys are left alone. Raises EmitcError when the file cannot be read or does not fit the model. It also raises
    that for a case with too few or too many inputs, or with some of the outputs, and for a gap in the numbers of cases.
    Outputs are skipped only if all are scalars while no output of the graph is one. An interpreter gives such outputs if it
    takes the shapes of a custom operator's outputs from a file without them. They are the first elements at best.
    """

    def refuse(why: str) -> EmitcError:
        what, hint = f"{path.name} cannot be used as vectors", "keys are in{i}_{k} and out{j}_{k}"
        return EmitcError(what, Where(option="--vectors"), why, hint)

    # Imported here: random inputs, which every compilation draws, need no archive.
    from emitc.calibrate.npz import read_arrays

    cases: list[tuple[Sample, Sample]] = []
    archive = read_arrays(path, refuse, re.compile(r"(in|out)\d+_\d+").fullmatch)
    keys = set(archive)
    while f"in0_{len(cases)}" in keys:
        k = len(cases)
        listed = [f"in{i}_{k}" for i in range(len(graph.inputs))]
        stated = [f"out{j}_{k}" for j in range(len(graph.outputs))]
        if keys.isdisjoint(stated):
            stated = []
        for name in (*listed, *stated):
            if name not in keys:
                raise refuse(f"case {k} has no {name}")
        keys.difference_update(listed, stated)
        if stated and not any(archive[n].shape for n in stated) and all(graph.tensor(n).shape for n in graph.outputs):
            stated = []
        cases.append((tuple(archive[n] for n in listed), tuple(archive[n] for n in stated)))
    if not cases:
        raise refuse("it has no case")
    if keys:
        raise refuse(f"{min(keys)} belongs to no case: cases are numbered from 0, and the model has no such port")
    for inputs, outputs in cases:
        for name, value in zip((*graph.inputs, *graph.outputs), (*inputs, *outputs), strict=False):
            tensor = graph.tensor(name)
            if value.dtype.name != tensor.dtype.value or value.shape != tensor.shape:
                raise refuse(f"{value.dtype}{list(value.shape)} found for {tensor.describe()}")
    return cases
