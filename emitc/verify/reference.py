"""The proof's inputs, and the graph executed by its operators' numpy references: an oracle that shares no line with the C."""

import re
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from emitc.errors import EmitcError, Where
from emitc.ir import Array, Graph
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.drawn_inputs import Sample, input_range, random_samples
from emitc.kernels.shared.subgraph_reference import executed

__all__ = ["Sample", "input_range", "may_not_end", "random_samples", "read_vectors", "run_reference"]


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


def read_vectors(path: Path, graph: Graph) -> list[tuple[Sample, Sample]]:
    """The cases of an .npz file with keys in{i}_{k} and out{j}_{k}: inputs and expected outputs (none if absent).

    Other keys are left alone. Raises EmitcError when the file cannot be read or does not fit the model. It also raises
    that for a case with too few or too many inputs, or with some of the outputs. A gap in the numbers of cases is refused too.
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
