"""The runs that the example of a package repeats: drawn inputs, and what the operators' numpy references make of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from emitc.errors import EmitcError
from emitc.ir import Array, Graph
from emitc.kernels.drawn_inputs import quiet, random_samples
from emitc.kernels.npu.npu_command import NpuCommand
from emitc.kernels.quantization.quantize import Dequantize
from emitc.program.extras import ExampleRun, ExampleTensor, Limit
from emitc.verify.reference import may_not_end, run_reference
from emitc.verify.tolerances import EXACT, FLOAT_TOLERANCE, rules

_SEED, _SEED_OF_SEQUENCE = 1, 25
_QUIETER = (1, 4, 16, 64)
"""What drawn inputs are divided by."""
_SEVERAL_MACS = 20_000_000
"""Multiply-accumulates above which one run has to do: the references take about a second for 50 million."""
_SMALL = 1 << 18
"""Bytes of inputs and outputs of one run above which a sequence of a model without state has one run only."""


def example_run(graph: Graph, macs: int) -> tuple[ExampleRun, ...]:
    """The first run of a sequence, of the graph as it is lowered; the same on every machine. macs: of the whole graph.

    Of several inputs, from loud to quiet, those are taken whose outputs have the most different bytes: noise over the whole
    range saturates many networks. Nothing where no reference says what comes out: of a model with a loop that the data end, of
    commands for an NPU, and of an operator whose reference refuses the drawn inputs.
    """
    if may_not_end(graph) or any(isinstance(node.op, NpuCommand) for node in graph.nodes):
        return ()
    (drawn,) = random_samples(graph, 1, _SEED)
    best: tuple[ExampleRun, ...] = ()
    most = -1
    for quieter in _QUIETER if macs <= _SEVERAL_MACS else _QUIETER[:1]:
        inputs = [quiet(graph.tensor(n), x, quieter) for n, x in zip(graph.inputs, drawn, strict=True)]
        try:
            values = run_reference(graph, inputs)
        except EmitcError:
            return ()
        run = _stored(graph, inputs, values, [_limit(graph, name, values[name]) for name in graph.outputs])
        different = sum(len(set(output.data)) for output in run.outputs)
        if different > most:
            most, best = different, (run,)
    return best


def example_sequence(graph: Graph, source_format: str) -> tuple[ExampleRun, ...]:
    """Two runs of a sequence, the second of which reads the state that the first has left.

    It is one run where the model keeps no state and a run has more than 256 KiB of inputs and outputs. The limits are those of
    the proof. source_format: "tflite" or "onnx". Raises EmitcError where the references do.
    """
    ports = [graph.tensor(name) for name in (*graph.inputs, *graph.outputs)]
    large = sum(port.size_bytes for port in ports) > _SMALL
    of_outputs = [rules(graph, source_format)[name] for name in graph.outputs]
    limits = [None if rule == EXACT else (rule.absolute, rule.relative) for rule in of_outputs]
    state: dict[str, Array] = {}
    samples = random_samples(graph, 1 if large and not graph.states else 2, _SEED_OF_SEQUENCE)
    return tuple(_stored(graph, sample, run_reference(graph, sample, state), limits) for sample in samples)


def _stored(
    graph: Graph, inputs: Sequence[Array], values: Mapping[str, Array], limits: Sequence[Limit | None]
) -> ExampleRun:
    outputs = zip(graph.outputs, limits, strict=True)
    return ExampleRun(
        tuple(ExampleTensor(i, _bytes(value)) for i, value in enumerate(inputs)),
        tuple(ExampleTensor(i, _bytes(values[name]), limit) for i, (name, limit) in enumerate(outputs)),
    )


def _bytes(value: Array) -> bytes:
    """Row-major and little-endian."""
    return np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()


def _limit(graph: Graph, name: str, value: Array) -> Limit | None:
    """By how much an output may differ: not at all, unless an operator on floats computes it."""
    root = graph.root(name).name
    exact = any(root in node.outputs and isinstance(node.op, Dequantize) for node in graph.nodes)
    if exact or value.dtype.name not in ("float32", "float64"):
        return None
    largest = float(np.abs(value[np.isfinite(value)]).max(initial=0.0))
    return FLOAT_TOLERANCE + FLOAT_TOLERANCE * largest, 0.0
