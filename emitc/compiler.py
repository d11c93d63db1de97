"""The pipeline: a model file is read, built into a graph, rewritten, partitioned, lowered and emitted."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from emitc._version import __version__, commit
from emitc.backends.partition import Partition
from emitc.compiled import Compiled, package_of
from emitc.emit.external_weights import read_members, with_structure
from emitc.emit.package import runtime_texts
from emitc.emit.package_kinds import KINDS
from emitc.errors import EmitcError, with_model
from emitc.explore.layer_timing import in_steps, profiling_of
from emitc.frontends.build import build_graph
from emitc.frontends.read import read_file, read_source
from emitc.ir import Graph, GraphStep
from emitc.lower.external_weights import with_external_test, with_external_weights
from emitc.lower.within_budget import lower_within_budget, partition_graph, require_budget
from emitc.options import EXTERNAL, Options, check_options
from emitc.passes import BUILT, INTERFACE, ROWS, run_passes
from emitc.passes.interface import with_input_rows, with_interface
from emitc.plugins import Plugins, load_plugins
from emitc.program import Origin, PassReport, Program
from emitc.program.c_names import identifier
from emitc.program.extras import Classes, ExampleRun, Extras, score_counts
from emitc.source import SourceModel
from emitc.target import load_target
from emitc.verify.example import example_run, example_sequence


def compile_model(path: str | Path, options: Options | None = None, **changes: Any) -> Compiled:
    """Compiles the model file at `path`; keyword arguments are those of Options, and go before `options`.

    Raises EmitcError (the file or an option is refused), CannotCompile (there is no code for it, or it does not fit).
    """
    options, path, start = replace(options or Options(), **changes), Path(path), time.monotonic()
    plugins, source, data = _read(path, options)
    return _compiled(path, source, source.whole or data, options, plugins, start)


def _read(path: Path, options: Options) -> tuple[Plugins, SourceModel, bytes]:
    """The plugins, the model file as they read it, and its bytes. Raises EmitcError for options and a file that are refused."""
    check_options(options)
    data = read_file(path)
    plugins = load_plugins([Path(plugin) for plugin in options.plugins])
    return plugins, read_source(path, data, options.shapes, plugins.custom("onnx")), data


def _compiled(
    path: Path, source: SourceModel, model_bytes: bytes, options: Options, plugins: Plugins, start: float
) -> Compiled:
    """A model that has been read. start: of the time that it takes, in seconds of the monotonic clock."""
    graph, passes, steps, partition, program = _lowered(path, source, options, plugins)
    passes += partition.passes
    if options.self_test:
        from emitc.verify.self_test import with_self_test

        try:
            program = with_self_test(program, graph, partition.graph, steps[0].graph, source.format, options)
        except EmitcError as error:
            raise with_model(error, path.name) from error
    if program.external:
        program = with_external_test(program) if program.self_test else program
        program = with_structure(program, runtime_texts(program))
    program = _with_extras(program, partition, model_bytes, options)
    example = _example(partition, program, options)
    stated = options.to_json() | plugins.to_json()
    files = package_of(partition, program, passes, options, stated, example=example)
    return Compiled(
        source,
        graph,
        partition,
        program,
        passes,
        options,
        files,
        time.monotonic() - start,
        model_bytes,
        plugins.used(source),
        (*steps, *partition.steps),
        example=example,
    )


def _example(partition: Partition, program: Program, options: Options) -> tuple[ExampleRun, ...]:
    """The runs that the package's example repeats, none for a package without one.

    Raises EmitcError where the kind of package cannot hold the program.
    """
    kind = KINDS[options.package]
    kind.require(program, options.package)
    if kind.sequence:
        return example_sequence(partition.graph, program.origin.format)
    return example_run(partition.graph, program.macs) if options.has_example else ()


def _with_extras(program: Program, partition: Partition, model_bytes: bytes, options: Options) -> Program:
    """The program with what the options ask for in addition to the model's functions."""
    classes: tuple[Classes, ...] = ()
    if options.labels:
        from emitc.frontends.labels import read_labels

        counts = score_counts(tuple(port.shape for port in program.outputs))
        names = read_labels(options.labels, model_bytes, counts)
        outputs = (Classes(i, count, own) for i, (count, own) in enumerate(zip(counts, names, strict=True)) if count)
        classes = tuple(outputs)
    profiling = profiling_of(partition, program, options) if options.profile else None
    return replace(program, extras=Extras(classes, options.cpp, options.model_licence, commit(), profiling))


def _lowered(
    path: Path, source: SourceModel, options: Options, plugins: Plugins
) -> tuple[Graph, tuple[PassReport, ...], list[GraphStep], Partition, Program]:
    """The graph as it is partitioned, what the passes did, the graph after each, the partition and the program."""
    name = options.name or identifier(path.stem, "model")
    origin = Origin(
        __version__, path.name, source.sha256, source.format, source.producer, options.arguments(), options.target
    )
    try:
        graph, passes, steps = _graph(source, name, options, plugins)
        partition, program = lower_within_budget(graph, name, origin, options)
    except EmitcError as error:
        raise with_model(error, path.name) from error
    program = replace(program, templates=plugins.templates)
    require_budget(program, options.ram_budget, options.io)
    if options.in_steps:
        partition, program = in_steps(graph, partition, program, options)
    if options.weights == EXTERNAL:
        program = with_external_weights(program, read_members)
    return graph, passes, steps, partition, program


def plan_model(path: str | Path, options: Options | None = None, **changes: Any) -> tuple[Partition, Program]:
    """The partition and the program of the model file at `path`, without the C. Arguments and errors as of `compile_model`."""
    options, path = replace(options or Options(), **changes), Path(path)
    plugins, source, _ = _read(path, options)
    *_, partition, program = _lowered(path, source, options, plugins)
    return partition, program


def recompiled(compiled: Compiled, **changes: Any) -> Compiled:
    """A compiled model with other options, from what was read before. Raises what compile_model raises."""
    start = time.monotonic()
    options = replace(compiled.options, **changes)
    check_options(options)
    plugins = load_plugins([Path(plugin) for plugin in options.plugins])
    path = Path(compiled.program.origin.model_file)
    return _compiled(path, compiled.source, compiled.model_bytes, options, plugins, start)


def _graph(
    source: SourceModel, name: str, options: Options, plugins: Plugins
) -> tuple[Graph, tuple[PassReport, ...], list[GraphStep]]:
    """The graph of a source model after the passes that do not depend on who runs it, with the graph after every step."""
    graph = build_graph(source, plugins.registry_of(source.format), name)
    steps = [GraphStep(BUILT, graph)]
    graph = with_interface(graph, options.io)
    steps.append(GraphStep(INTERFACE, graph))
    graph, reports = run_passes(graph, options.disabled, history=steps)
    # A Transpose or a view may have stood between the interface and its Quantize before the passes.
    graph = with_interface(graph, options.io)
    steps.append(GraphStep(INTERFACE, graph))
    if options.input_rows:
        graph = with_input_rows(graph)
        steps.append(GraphStep(ROWS, graph))
    return graph, reports, steps


def partition_model(path: str | Path, options: Options | None = None) -> Partition:
    """Who would run which operator of the model file at `path`. Raises what compile_model raises."""
    options, path = options or Options(), Path(path)
    plugins, source, _ = _read(path, options)
    try:
        graph, _, _ = _graph(source, options.name or identifier(path.stem, "model"), options, plugins)
        return partition_graph(graph, options)
    except EmitcError as error:
        raise with_model(error, path.name) from error


def with_budget(compiled: Compiled, ram_budget: int) -> tuple[Partition, Program]:
    """The graph of a compiled model lowered for another arena, in bytes. Raises CannotCompile where the arena does not fit."""
    options, program = replace(compiled.options, ram_budget=ram_budget), compiled.program
    partition, program = lower_within_budget(compiled.graph, program.name, program.origin, options)
    require_budget(program, ram_budget, options.io)
    return partition, program


def for_host(path: str | Path, compiled: Compiled) -> Compiled:
    """The model as this machine can run it: itself, or compiled again where a backend's buffers depend on the target.

    It is compiled from what was read before, so that a file which has changed meanwhile is not proven in its place.
    """
    host = load_target("host")
    if all(backend.runs_on(host) for backend in compiled.used_backends()):
        return compiled
    start = time.monotonic()
    options = replace(compiled.options, target=host.name)
    plugins = load_plugins([Path(plugin) for plugin in options.plugins])
    return _compiled(Path(path), compiled.source, compiled.model_bytes, options, plugins, start)
