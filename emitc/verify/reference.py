"""The graph executed by its operators' numpy references: an oracle that shares no line with the C."""

from collections.abc import MutableMapping, Sequence

from emitc.ir import Array, Graph
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.shared.subgraph_reference import executed


def run_reference(
    graph: Graph, inputs: Sequence[Array], state: MutableMapping[str, Array] | None = None
) -> dict[str, Array]:
    """Every tensor's value by name, for one set of inputs.

    state: the state variables by name, which the run updates; what is not in it has its initial value. Without it the run is
    the first one of a sequence.
    """
    kept = {} if state is None else state
    before = {t.name: kept.get(t.name, t.initial_array()) for t in graph.states}
    values = executed(graph, before | dict(zip(graph.inputs, inputs, strict=True)))
    kept.update((t.name, values[t.name]) for t in graph.states)
    return values


def may_not_end(graph: Graph) -> bool:
    """Whether there is a loop that goes on for as long as its data say so."""
    loops = [node.op for node in graph.nodes if isinstance(node.op, ControlFlow)]
    return any(op.may_not_end or any(map(may_not_end, op.graphs)) for op in loops)
