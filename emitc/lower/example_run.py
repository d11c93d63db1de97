"""The run that a package's example repeats: drawn inputs, and what the operators' numpy references make of them."""

import math

from emitc.errors import EmitcError
from emitc.ir import Array, Graph
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.drawn_inputs import Sample, quiet, random_samples
from emitc.kernels.npu.npu_command import NpuCommand
from emitc.kernels.quantization.quantize import Dequantize
from emitc.kernels.shared.subgraph_reference import executed
from emitc.program.example import Example, ExampleTensor

_SEED = 1
_QUIETER = (1, 4, 16, 64)
"""What drawn inputs are divided by."""
_SEVERAL_MACS = 20_000_000
"""Multiply-accumulates above which one run has to do: the references take about a second for 50 million."""
_WITHIN = 1e-5
"""The tolerance of the proof for floats that an operator on floats has computed, as in `emitc.verify.tolerances`."""


def example_run(graph: Graph, macs: int) -> Example | None:
    """The first run of a sequence, of the graph as it is lowered; the same on every machine. macs: of the whole graph.

    Of several inputs, from loud to quiet, those are taken whose outputs have the most different bytes: noise over the whole
    range saturates many networks. None where no reference says what comes out: of a model with a loop that the data end, of
    commands for an NPU, and of an operator whose reference refuses the drawn inputs.
    """
    if _unbounded(graph) or any(isinstance(node.op, NpuCommand) for node in graph.nodes):
        return None
    initial = {tensor.name: tensor.initial_array() for tensor in graph.states}
    best, most = None, -1
    for quieter in _QUIETER if macs <= _SEVERAL_MACS else _QUIETER[:1]:
        inputs = [quiet(graph.tensor(n), x, quieter) for n, x in zip(graph.inputs, _drawn(graph), strict=True)]
        try:
            values = executed(graph, initial | dict(zip(graph.inputs, inputs, strict=True)))
        except EmitcError:
            return None
        outputs = [
            ExampleTensor(i, _data(values[n]), _within(graph, n, values[n])) for i, n in enumerate(graph.outputs)
        ]
        different = sum(len(set(output.data)) for output in outputs)
        if different > most:
            most = different
            best = Example(tuple(ExampleTensor(i, _data(value)) for i, value in enumerate(inputs)), tuple(outputs))
    return best


def _drawn(graph: Graph) -> Sample:
    return random_samples(graph, 1, _SEED)[0]


def _unbounded(graph: Graph) -> bool:
    """Whether the data decide how often a loop runs."""
    loops = [node.op for node in graph.nodes if isinstance(node.op, ControlFlow)]
    return any(op.may_not_end or any(map(_unbounded, op.graphs)) for op in loops)


def _data(value: Array) -> bytes:
    return value.astype(value.dtype.newbyteorder("<")).tobytes()


def _within(graph: Graph, name: str, value: Array) -> float | None:
    """By how much an output may differ: not at all, unless an operator on floats computes it."""
    root = graph.root(name).name
    exact = any(root in node.outputs and isinstance(node.op, Dequantize) for node in graph.nodes)
    if exact or value.dtype.name not in ("float32", "float64"):
        return None
    largest = max((abs(x) for x in value.reshape(-1).tolist() if math.isfinite(x)), default=0.0)
    return float(_WITHIN + _WITHIN * largest)
