"""Inputs for the proof: seeded random values over the whole range of each input, and given vectors."""

import re
from pathlib import Path

from emitc.errors import EmitcError, Where
from emitc.ir import Graph
from emitc.kernels.drawn_inputs import Sample, input_range, random_samples

__all__ = ["Sample", "input_range", "random_samples", "read_vectors"]


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
