"""The graph executed by its operators' numpy references: an oracle that shares no line with the C."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from emitc.ir import Array, Graph
from emitc.kernels import kernel_of
from emitc.kernels.control_flow.control_flow import ControlFlow


def run_reference(
    graph: Graph, inputs: Sequence[Array], state: MutableMapping[str, Array] | None = None
) -> dict[str, Array]:
    """Every tensor's value by name, for one set of inputs.

    state: the state variables by name, which the run updates; what is not in it has its initial value. Without it the run is
    the first one of a sequence.
    """
    values: dict[str, Array] = {t.name: t.array() for t in graph.tensors if t.is_constant}
    kept = {} if state is None else state
    values.update((t.name, kept.get(t.name, t.initial_array())) for t in graph.states)
    values.update(zip(graph.inputs, inputs, strict=True))

    def value(name: str) -> Array:
        tensor = graph.tensor(name)
        if name not in values:
            values[name] = value(tensor.alias_of).reshape(tensor.shape)
        return values[name]

    for bound in graph.bound():
        operands = [None if t is None else value(t.name) for t in bound.inputs]
        for tensor, result in zip(bound.outputs, kernel_of(bound).reference(bound, operands), strict=True):
            assert result.shape == tensor.shape and result.dtype.name == tensor.dtype.value, tensor.describe()
            values[tensor.name] = result
    for name in graph.outputs:
        value(name)
    kept.update((t.name, values[t.name]) for t in graph.states)
    return values


def may_not_end(graph: Graph) -> bool:
    """Whether there is a loop that goes on for as long as its data say so."""
    found = [node.op for node in graph.nodes if isinstance(node.op, ControlFlow)]
    return any(op.may_not_end or any(map(may_not_end, op.graphs)) for op in found)
