"""The values of a package's self test: inputs, and what every layer makes of them by the numpy references.

The references share no line with the C, and the host proof holds the C to their bits. So the values are known when the model is
compiled, without a C compiler. A float that is a sum, or a value of exp, may have other last bits on another core. Such a layer
is not checked, and no layer that depends on it is.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.ir import Array, Graph
from emitc.kernels.npu.npu_command import NpuCommand, Offloaded
from emitc.layer import Table
from emitc.options import Options
from emitc.program import Constant, Move, Program, RowSegment, Step
from emitc.program.self_test import Check, SelfTest
from emitc.verify.reference import Sample, may_not_end, random_samples, read_vectors, run_reference
from emitc.verify.tolerances import EXACT, Tolerance, rules

_SEED = 0
_WHERE = Where(option="--self-test")


def with_self_test(
    program: Program, graph: Graph, run: Graph, built: Graph | None, source_format: str, options: Options
) -> Program:
    """The program with the self test that the options ask for, or as it is where they ask for none.

    graph: the model's, whose inputs are drawn. run: the graph that the program runs. built: the one before the passes.
    Raises EmitcError for vectors that do not fit. Raises CannotCompile where no layer's bits are known, and for a loop that
    may not end.
    """
    if not options.self_test:
        return program
    if may_not_end(graph):
        why = "a loop goes on for as long as its data say so, and the values of the test are computed now"
        raise CannotCompile("this model cannot test itself", _WHERE, why, "leave --self-test out")
    sure = _sure(run, rules(run, source_format, built))
    samples = _samples(graph, options, sure)
    outputs = list(_outputs(program, run, sure))
    if not outputs:
        why = "no layer has an output whose bits are known: floats depend on the core, an accelerator is not the core"
        hint = "leave --self-test out, or quantize the model"
        raise CannotCompile("this model cannot test itself", _WHERE, why, hint)
    crcs = _crcs(run, samples, outputs)
    checks = tuple(replace(check, crcs=tuple(case[i] for case in crcs)) for i, (check, _) in enumerate(outputs))
    left = {check.layer for check in checks}
    ends = {t.step.index for t in program.traced}
    unchecked = [s.name for i, s in enumerate(program.steps) if i not in left and s.index in ends and s.outputs]
    test = SelfTest(len(samples), tuple(_stored(program, samples)), checks, tuple(unchecked))
    return replace(program, self_test=test)


def _sure(graph: Graph, rule_of: Mapping[str, Tolerance]) -> frozenset[str]:
    """The tensors whose bits are the same on every core: exact ones that depend on exact ones alone."""
    unsure = {graph.root(name).name for name, rule in rule_of.items() if rule != EXACT}
    before = -1
    while before < len(unsure):  # what a run leaves in a variable, the next one reads
        before = len(unsure)
        for node in graph.nodes:
            reads = {graph.root(name).name for name in node.inputs if name}
            if isinstance(node.op, NpuCommand | Offloaded) or reads & unsure:
                unsure |= {graph.root(name).name for name in node.outputs}
    return frozenset(t.name for t in graph.tensors if graph.root(t.name).name not in unsure)


def _samples(graph: Graph, options: Options, sure: frozenset[str]) -> list[Sample]:
    """The stored inputs: the first cases of the vectors, or random ones."""
    if options.self_test_vectors is None:
        return random_samples(graph, options.self_test, _SEED)
    cases = read_vectors(options.self_test_vectors, graph)
    if len(cases) < options.self_test:
        why = f"{options.self_test_vectors.name} has {len(cases)}"
        hint = f"--self-test {len(cases)}, or another file"
        raise EmitcError(f"there are no {options.self_test} cases", _WHERE, why, hint)
    cases = cases[: options.self_test]
    state: dict[str, Array] = {}
    for number, (inputs, stated) in enumerate(cases):
        values = run_reference(graph, inputs, state)
        for name, value in zip(graph.outputs, stated, strict=False):
            if name in sure and value.tobytes() != values[name].tobytes():
                why = f"case {number} states another value of {name!r} than the model computes"
                hint = "`emitc verify --vectors` compares them; take vectors of this model"
                raise EmitcError("the vectors are not of this model", _WHERE, why, hint)
    return [inputs for inputs, _ in cases]


def _outputs(program: Program, run: Graph, sure: frozenset[str]) -> Iterator[tuple[Check, str]]:
    """What is checked, without its CRCs, and the tensor, in the order of run()."""
    position = {step.index: i for i, step in enumerate(program.steps)}
    writers = [run.root(output.tensor).name for step in program.steps for output in step.outputs]
    for number, stage in enumerate(program.schedule):
        if isinstance(stage, Move):
            continue
        step: Step = stage.last.step if isinstance(stage, RowSegment) else stage
        for i, output in enumerate(step.outputs):
            # A layer that runs row by row makes no row that nobody reads.
            rows = stage.last.makes if isinstance(stage, RowSegment) else None
            size = rows.rows * rows.row_bytes if rows else output.size_bytes
            root = run.root(output.tensor).name
            if output.tensor in sure and size and writers.count(root) == 1:
                yield Check(number, i, position[step.index], size, ()), root


def _crcs(run: Graph, samples: Sequence[Sample], outputs: Sequence[tuple[Check, str]]) -> list[list[int]]:
    """By case, the CRC32 of each output. The cases are one sequence."""
    state: dict[str, Array] = {}
    crcs = []
    for inputs in samples:
        values = run_reference(run, inputs, state)
        data = [np.ascontiguousarray(values[name]).tobytes()[: check.size_bytes] for check, name in outputs]
        crcs.append([zlib.crc32(part) for part in data])
    return crcs


def _stored(program: Program, samples: Sequence[Sample]) -> Iterator[Constant]:
    for i, port in enumerate(program.inputs):
        values = tuple(np.concatenate([sample[i].reshape(-1) for sample in samples]).tolist())
        what = f"input {i} of the self test, {len(samples)} cases one after another"
        table = Table(f"self_test_input_{i}", port.c_type, values, what)
        yield Constant(f"self_test_input_{i}", table)
