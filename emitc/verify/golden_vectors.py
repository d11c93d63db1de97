"""Golden vectors that a package carries: random inputs, and the outputs that the numpy references give for them."""

import numpy as np

from emitc.ir import Array, Graph
from emitc.program.golden import Golden, GoldenRun
from emitc.verify.reference import run_reference
from emitc.verify.samples import random_samples
from emitc.verify.tolerances import EXACT, rules

SEED = 25
"""Of the inputs, so that the same model gets the same vectors."""
_RUNS = 2
"""One to start with and one that reads the state that the first has left."""
_SMALL = 1 << 18
"""Bytes of inputs and outputs of one run above which a model without state has one run only."""


def _bytes(array: Array) -> bytes:
    """Row-major and little-endian."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def golden_vectors(graph: Graph, source_format: str) -> Golden:
    """Two runs of a sequence; one where the model keeps no state and a run has more than 256 KiB of inputs and outputs.

    The tolerances are those of the proof. source_format: "tflite" or "onnx". Raises EmitcError where the references do.
    """
    ports = [graph.tensor(name) for name in (*graph.inputs, *graph.outputs)]
    large = sum(port.size_bytes for port in ports) > _SMALL
    count = 1 if large and not graph.states else _RUNS
    state: dict[str, Array] = {}
    runs = []
    for sample in random_samples(graph, count, SEED):
        values = run_reference(graph, sample, state)
        outputs = tuple(_bytes(values[name]) for name in graph.outputs)
        runs.append(GoldenRun(tuple(map(_bytes, sample)), outputs))
    of_outputs = [rules(graph, source_format)[name] for name in graph.outputs]
    return Golden(tuple(runs), tuple(None if rule == EXACT else (rule.absolute, rule.relative) for rule in of_outputs))
