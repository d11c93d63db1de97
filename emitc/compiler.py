"""The pipeline as code: file -> SourceModel -> Graph -> passes -> Program -> package."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emitc._version import __version__
from emitc.arrange import SMALLEST, TECHNIQUES
from emitc.backends import kernel_choices
from emitc.backends import options as backend_options
from emitc.backends.contract import PORTABLE, Backend, HostHook, Made, Settings
from emitc.backends.partition import Partition, Policy, open_backends, partition, require_expected
from emitc.backends.portable.other_targets import FasterTarget, faster_targets
from emitc.control import with_parts
from emitc.emit.licence import LICENSE
from emitc.emit.manifest import partitions
from emitc.emit.names import identifier, is_model_name
from emitc.emit.package import PACKAGES, package_files, write_package
from emitc.emit.stack import StackBound
from emitc.errors import EmitcError, Where, unknown_choice, with_model
from emitc.frontends.build import build_graph
from emitc.frontends.empty_parts import without_empty_parts
from emitc.frontends.onnx_layout import channels_last
from emitc.frontends.onnx_quantization import quantization_on_tensors
from emitc.frontends.source import SourceModel
from emitc.frontends.subgraphs import rewritten
from emitc.frontends.tflite import known_shapes, read_tflite
from emitc.frontends.tflite_npu import with_npu_operands
from emitc.ir import Graph, Shape
from emitc.lower import lower
from emitc.passes import BUILT, CUT, INTERFACE, LATE_PASSES, PASSES, ROWS, GraphStep, PassReport, run_passes
from emitc.passes.input_rows import with_input_rows
from emitc.passes.interface import INTERFACES, with_interface
from emitc.planner.regions import Region
from emitc.plugins import Plugins, load_plugins
from emitc.program import Origin, Program
from emitc.regions import Regions, check_regions
from emitc.spending import require_budget, spent
from emitc.target import BuildSupport, load_target

MAX_FILE_BYTES = 256 << 20
NO_PLUGINS = Plugins()


_RARE = ("regions", "places", "plugins", "variants", "input_rows")
"""Options that the manifest names only where they are given."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `emitc compile` takes, with its defaults.

    name: C name, "" for one made from the file name. shapes: open dimensions by tensor name. disabled: passes and
    memory techniques to skip.
    ram_budget: largest arena in bytes, None for any, "min" for the smallest. keep_on_cpu: operators, by type or index, that
    no accelerator gets. expect_partition: file with a partition map that must come out. backends: options of the backends, by
    name. regions: memories that each get an arena, none for a single arena; places: pairs of a tensor, by its name or that of
    its buffer, or "weights", and the region that it is to lie in. variants: pairs of a node's index and the variant of
    emitc's own kernels that it is to get. plugins: Python files with operators of the user's own. input_rows: the model asks for
    the rows of its input while it runs.
    """

    name: str = ""
    target: str = "generic32"
    kernels: str = "portable"
    optimize: str = "speed"
    io: str = "keep"
    package: str = "plain"
    ram_budget: int | str | None = None
    fallback: str = "cpu"
    shapes: dict[str, Shape] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()
    keep_on_cpu: tuple[str, ...] = ()
    expect_partition: Path | None = None
    backends: dict[str, str] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    variants: tuple[tuple[int, str], ...] = ()
    plugins: tuple[Path, ...] = ()
    input_rows: bool = False

    @property
    def arena_budget(self) -> int | None:
        """The budget as the arrangement of layers takes it."""
        return SMALLEST if isinstance(self.ram_budget, str) else self.ram_budget

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _RARE}
        if self.input_rows:
            plain["input_rows"] = True
        if self.variants:
            plain["variants"] = [list(pair) for pair in self.variants]
        if self.regions:
            plain["regions"] = [{"name": r.name, "bytes": r.size_bytes, "cost": r.cost} for r in self.regions]
            plain["places"] = [list(place) for place in self.places]
        return plain | {
            "shapes": {k: list(v) for k, v in self.shapes.items()},
            "disabled": sorted(self.disabled),
            "keep_on_cpu": list(self.keep_on_cpu),
            "expect_partition": self.expect_partition.name if self.expect_partition else None,
            "backends": self._stated(),
        }

    def _stated(self) -> dict[str, str]:
        """The options of backends that differ from their defaults; of a path the name alone, which is the same everywhere."""
        known = {option.name: option for option in backend_options()}
        return {
            name: Path(value).name if known[name].metavar == "PATH" else value
            for name, value in sorted(self.backends.items())
            if value != known[name].default
        }

    def arguments(self) -> str:
        """The options that differ from the defaults as command-line text, with a leading blank."""
        default, parts = Options(), []
        for name in ("name", "target", "kernels", "optimize", "io", "package", "ram_budget", "fallback"):
            value = getattr(self, name)
            if value != getattr(default, name):
                parts.append(f"--{name.replace('_', '-')} {value}")
        parts += ["--input-rows"] if self.input_rows else []
        parts += [f"--shape {name}={','.join(map(str, shape))}" for name, shape in sorted(self.shapes.items())]
        parts += [f"--without {name}" for name in sorted(self.disabled)]
        parts += [f"--keep-on cpu {what}" for what in self.keep_on_cpu]
        parts += [f"--{name} {value}".removesuffix(" yes") for name, value in self._stated().items()]
        if self.regions:
            parts.append("--regions " + ",".join(f"{r.name}={r.size_bytes}:{r.cost:g}" for r in self.regions))
        parts += [f"--place {what}={region}" for what, region in self.places]
        parts += [f"--kernel op{index}={variant}" for index, variant in self.variants]
        parts += [f"--plugin {Path(path).name}" for path in self.plugins]
        return "".join(f" {part}" for part in parts)


def _choice(value: str, choices: tuple[str, ...], option: str) -> None:
    if value not in choices:
        raise unknown_choice(option, value, choices)


def check_options(options: Options) -> None:
    """Refuses options that do not exist or have no code."""
    load_target(options.target)
    _choice(options.package, PACKAGES, "--package")
    _choice(options.io, INTERFACES, "--io")
    _choice(options.optimize, ("speed", "size"), "--optimize")
    _choice(options.kernels, kernel_choices(), "--kernels")
    for option in backend_options():
        if option.choices and (value := options.backends.get(option.name)):
            _choice(value, option.choices, f"--{option.name}")
    _choice(options.fallback, ("cpu", "fail"), "--fallback")
    if isinstance(options.ram_budget, str):
        _choice(options.ram_budget, ("min",), "--ram-budget")
    for name in sorted(options.disabled):
        _choice(name, (*(n for n, _ in (*PASSES, *LATE_PASSES)), *TECHNIQUES), "--without")
    check_regions(options.regions, options.places)
    if options.name and not is_model_name(options.name):
        raise EmitcError(
            f"{options.name} is no name for a model",
            Where(option="--name"),
            "it must be a C identifier of at most 63 characters, not a keyword and not a standard header",
            "use letters, digits and single underscores",
        )


def read_file(path: Path) -> bytes:
    """A model file's bytes; refused when it is absent, empty or over 256 MiB."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a device or a pipe may never end
            saved = (path / "saved_model.pb").exists() if path.is_dir() else False
            hint = "convert the SavedModel with tf.lite.TFLiteConverter.from_saved_model" if saved else "check the path"
            raise EmitcError(f"{path} is not a file", Where(model=str(path)), "a model is an ordinary file", hint)
        size = status.st_size
        if size > MAX_FILE_BYTES:
            raise EmitcError(
                f"{path.name} has {size} bytes",
                Where(model=path.name),
                f"the limit is {MAX_FILE_BYTES}",
                "pass a model for a microcontroller",
            )
        return path.read_bytes()
    except OSError as error:
        raise EmitcError(
            f"{path} cannot be read", Where(model=path.name), error.strerror or str(error), "check the path"
        ) from error


def is_onnx(path: Path, data: bytes) -> bool:
    """Whether a file is taken for ONNX, which has no mark of its own: by its name, unless it has TFLite's mark."""
    return path.suffix.lower() == ".onnx" and data[4:8] != b"TFL3"


def read_source(path: Path, data: bytes, shapes: dict[str, Shape], plugins: Plugins = NO_PLUGINS) -> SourceModel:
    """The source model of a file. Raises EmitcError for a format that has no frontend.

    plugins: their operators of ONNX are typed by their own rules.
    """
    try:
        if is_onnx(path, data):
            # Imported here: the package takes a third of a second, which a TFLite model need not pay.
            from emitc.frontends.onnx import read_onnx

            found = read_onnx(data, shapes, path.parent, plugins.custom("onnx"))
            return rewritten(found, lambda part: channels_last(quantization_on_tensors(without_empty_parts(part))))
        source = with_npu_operands(read_tflite(data, shapes), data)
        known_shapes(shapes, source)
    except EmitcError as error:
        raise with_model(error, path.name) from error
    return source


@dataclass(frozen=True, slots=True, repr=False)
class Compiled:
    """A model compiled: the graph that was partitioned, the program, and every file of the package.

    model_bytes: what was compiled as one file, with the constants of other files in it. brought: operators of the model that
    plugins have brought along. history: the graph as it was built, and after each step of the way to the graph that was lowered.
    stack: what the target's compiler found, where it was asked.
    """

    source: SourceModel
    graph: Graph
    partition: Partition
    program: Program
    passes: tuple[PassReport, ...]
    options: Options
    files: dict[str, bytes]
    seconds: float
    model_bytes: bytes
    brought: tuple[str, ...] = ()
    history: tuple[GraphStep, ...] = ()
    stack: StackBound | None = None

    def __repr__(self) -> str:
        """One line: a notebook prints what a line gives."""
        program = self.program
        return (
            f"<{type(self).__name__} {program.name} for {program.origin.target}: {len(program.steps)} layers, {program.macs}"
            f" multiply-accumulates, {program.constant_bytes} bytes of constants, arena of {program.plan.arena_bytes} bytes>"
        )

    def write(self, directory: str | Path) -> tuple[str, ...]:
        """Writes the package as `directory`, atomically; returns the paths of its files."""
        return write_package(self.files, Path(directory))

    def used_backends(self) -> tuple[Backend, ...]:
        """The backends that run some layer."""
        return tuple(self.partition.backends[name] for name, _, _ in self.program.backends)

    def support(self, target: str) -> BuildSupport:
        """What a build for a target on this machine needs besides the package, of all backends in use."""
        parts = [backend.support(self.program, load_target(target)) for backend in self.used_backends()]
        return BuildSupport(
            tuple(dict.fromkeys(path for part in parts for path in part.sources)),
            tuple(dict.fromkeys(path for part in parts for path in part.includes)),
            tuple(dict.fromkeys(define for part in parts for define in part.defines)),
            tuple(dict.fromkeys(header for part in parts for header in part.headers)),
        )

    def host_hooks(self) -> tuple[HostHook, ...]:
        """Functions of this process that a host build calls, of all backends in use."""
        return tuple(hook for backend in self.used_backends() for hook in backend.host_hooks())

    def faster_targets(self) -> tuple[FasterTarget, ...]:
        """What the kernels of other cores would bring a model that runs on the portable ones alone; nothing for others."""
        if self.options.target != Options().target or set(self.partition.backends) != {PORTABLE}:
            return ()
        return faster_targets(self.partition.graph.bound(), small=self.options.optimize == "size")

    def summary(self) -> dict[str, Any]:
        """What `emitc compile --json` prints."""
        program = self.program
        arenas = {"arenas": {name: plan.arena_bytes for name, plan in program.arenas}} if program.regions else {}
        return {
            "name": program.name,
            "target": program.origin.target,
            "arena_bytes": program.plan.arena_bytes,
            "lower_bound_bytes": program.plan.lower_bound_bytes,
            "proven": program.plan.proven,
            "state_bytes": program.state_bytes,
            "constant_bytes": program.constant_bytes,
            "macs": program.macs,
            "nodes": len(program.steps),
            "partitions": partitions(program),
            "files": sorted(self.files),
            "seconds": round(self.seconds, 3),
            "faster_targets": [target.to_json() for target in self.faster_targets()],
            **arenas,
            **({"stack_bytes": self.stack.size_bytes} if self.stack else {}),
        }


def compile_model(path: str | Path, options: Options | None = None, **changes: Any) -> Compiled:
    """Compiles the model file at `path`; keyword arguments are those of Options, and go before `options`.

    Raises EmitcError (the file or an option is refused), CannotCompile (there is no code for it, or it does not fit).
    """
    options = replace(options or Options(), **changes)
    path = Path(path)
    start = time.monotonic()
    check_options(options)
    data = read_file(path)
    plugins = load_plugins([Path(each) for each in options.plugins])
    source = read_source(path, data, options.shapes, plugins)
    return _compiled(path, source, source.whole or data, options, plugins, start)


def _compiled(
    path: Path, source: SourceModel, model_bytes: bytes, options: Options, plugins: Plugins, start: float
) -> Compiled:
    """A model that has been read. start: of the time that it takes, by the monotonic clock."""
    name = options.name or identifier(path.stem, "model")
    try:
        history: list[GraphStep] = []
        graph, passes = _graph(source, name, options, plugins, history)
        origin = Origin(
            __version__, path.name, source.sha256, source.format, source.producer, options.arguments(), options.target
        )
        late: list[PassReport] = []
        cut: list[GraphStep] = []
        divided, program = _lowered(graph, name, origin, options, late, cut)
        passes += tuple(late)
        program = replace(program, templates=plugins.templates)
    except EmitcError as error:
        raise with_model(error, path.name) from error
    require_budget(program, options.ram_budget, options.io)
    stated = options.to_json() | plugins.to_json()
    files = _files(divided, program, passes, options, stated)
    seconds = time.monotonic() - start
    brought, steps = plugins.used(source), (*history, *cut)
    return Compiled(source, graph, divided, program, passes, options, files, seconds, model_bytes, brought, steps)


def _files(
    divided: Partition,
    program: Program,
    passes: tuple[PassReport, ...],
    options: Options,
    stated: dict[str, Any],
    stack: StackBound | None = None,
) -> dict[str, bytes]:
    """Every file of the package. stated: the options as the manifest shows them."""
    optimize = {"speed": "-O2", "size": "-Os"}[options.optimize]
    more = package_extras(divided, program)
    return package_files(program, options.package, passes, stated, optimize=optimize, more=more, stack=stack)


def with_stack(compiled: Compiled, stack: StackBound) -> Compiled:
    """The same model with the stack that a compiler has found in its header and manifest."""
    origin = compiled.program.origin
    program = replace(compiled.program, origin=replace(origin, options=f"{origin.options} --stack"))
    stated = json.loads(compiled.files["manifest.json"])["options"]
    files = _files(compiled.partition, program, compiled.passes, compiled.options, stated, stack)
    return replace(compiled, program=program, files=files, stack=stack)


def _lowered(
    graph: Graph, name: str, origin: Origin, options: Options, late: list[PassReport], history: list[GraphStep]
) -> tuple[Partition, Program]:
    """The graph divided and lowered. late: gets the reports of the passes that follow the cutting of regions; history: gets
    the graph when they are cut and after each of these passes.
    """
    regions = Regions(options.regions, options.places) if options.regions else None
    # Rows take code: where that is to be small, only a budget makes them, or an input that comes in rows anyway.
    few = options.optimize == "size" and not options.input_rows
    without = options.disabled | ({"streaming"} if few else set())
    made: Made = {}
    programs: list[tuple[int | None, bool, Partition, Program]] = []

    def lowered(
        working: Mapping[int, int], budget: int | None = options.arena_budget, rough: bool = False
    ) -> tuple[Partition, Program]:
        late.clear()
        history.clear()
        divided, parts = with_parts(divide(graph, options, late, working, history, made), origin, without)
        # Limits of working memory that lead to the same kernels are the rule.
        for asked, roughly, known, program in programs:
            if (asked, roughly) == (budget, rough) and not parts and known.lowers_as(divided):
                return divided, program
        program = lower(divided, name, origin, budget, without, regions, parts, rough=rough)
        programs.append((budget, rough, divided, program))
        return divided, program

    by_rows = None if regions or "streaming" in without else lowered
    return spent(lowered, [node.index for node in graph.nodes], options.ram_budget, options.optimize, by_rows)


def with_budget(compiled: Compiled, ram_budget: int) -> tuple[Partition, Program]:
    """The graph of a compiled model lowered for another arena. Raises CannotCompile where the arena does not fit."""
    options, program = replace(compiled.options, ram_budget=ram_budget), compiled.program
    divided, program = _lowered(compiled.graph, program.name, program.origin, options, [], [])
    require_budget(program, ram_budget, options.io)
    return divided, program


def for_host(path: str | Path, compiled: Compiled) -> Compiled:
    """The model as this machine can run it: itself, or compiled again where a backend's buffers depend on the target.

    It is compiled from what was read before, so that a file which has changed meanwhile is not proven in its place.
    """
    host = load_target("host")
    if all(backend.runs_on(host) for backend in compiled.used_backends()):
        return compiled
    start = time.monotonic()
    options = replace(compiled.options, target=host.name)
    plugins = load_plugins([Path(each) for each in options.plugins])
    return _compiled(Path(path), compiled.source, compiled.model_bytes, options, plugins, start)


def _graph(
    source: SourceModel, name: str, options: Options, plugins: Plugins, history: list[GraphStep] | None = None
) -> tuple[Graph, tuple[PassReport, ...]]:
    """The graph of a source model, with everything done to it that does not depend on who runs it.

    history: gets the graph as it was built and after every step.
    """
    history = [] if history is None else history
    graph = build_graph(source, plugins.registry_of(source.format), name)
    history.append(GraphStep(BUILT, graph))
    graph = with_interface(graph, options.io)
    history.append(GraphStep(INTERFACE, graph))
    graph, passes = run_passes(graph, options.disabled, history=history)
    graph = with_interface(graph, options.io)  # again: a Transpose or a view may have stood in front
    history.append(GraphStep(INTERFACE, graph))
    if options.input_rows:
        graph = with_input_rows(graph)
        history.append(GraphStep(ROWS, graph))
    return graph, passes


def partition_model(path: str | Path, options: Options | None = None) -> Partition:
    """Who would run which operator of the model file at `path`. Raises what compile_model raises."""
    options, path = options or Options(), Path(path)
    check_options(options)
    plugins = load_plugins([Path(each) for each in options.plugins])
    source = read_source(path, read_file(path), options.shapes, plugins)
    try:
        graph, _ = _graph(source, options.name or identifier(path.stem, "model"), options, plugins)
        return divide(graph, options)
    except EmitcError as error:
        raise with_model(error, path.name) from error


def divide(
    graph: Graph,
    options: Options,
    reports: list[PassReport] | None = None,
    working: Mapping[int, int] = MappingProxyType({}),
    history: list[GraphStep] | None = None,
    made: Made | None = None,
) -> Partition:
    """The graph's nodes to backends, as the options ask. Raises EmitcError and CannotCompile as `partition` does.

    reports: gets those of the passes that follow the cutting of regions. working: bytes of working memory
    that a node's kernel may need, by its index. history: gets the graph when they are cut and after each of these passes.
    made: as in `Settings`.
    """
    unknown = sorted({index for index, _ in options.variants} - {node.index for node in graph.nodes})
    if unknown:
        raise EmitcError(
            f"the model has no operator {unknown[0]} to choose a kernel for",
            Where(option=f"--kernel op{unknown[0]}={dict(options.variants)[unknown[0]]}"),
            f"its operators are {', '.join(str(node.index) for node in graph.nodes)}",
            "`emitc partition` lists them",
        )

    def settle(cut: Graph) -> Graph:
        steps = [] if history is None else history
        steps.append(GraphStep(CUT, cut))
        settled, found = run_passes(cut, options.disabled, LATE_PASSES, steps)
        if reports is not None:
            reports.extend(found)
        return settled

    operators = frozenset(type(node.op) for node in graph.nodes)
    settings = Settings(
        load_target(options.target), options.kernels, options.backends, operators, dict(options.variants), working,
        small=options.optimize == "size", made={} if made is None else made,
    )  # fmt: skip
    backends = open_backends(settings)
    divided = partition(graph, backends, Policy(options.kernels, options.fallback, options.keep_on_cpu), settle)
    if options.expect_partition is not None:
        text = read_file(options.expect_partition).decode("utf-8", "replace")
        require_expected(divided.to_json(), text, options.expect_partition.name)
    return divided


def package_extras(divided: Partition, program: Program) -> dict[str, str]:
    """Files of the package that backends add; with the partition map where more than the portable kernels are asked for."""
    if set(divided.backends) == {PORTABLE}:
        return {}
    files = {"partition.json": json.dumps({**divided.to_json(), "license": LICENSE}, indent=2) + "\n"}
    for name, _, _ in program.backends:
        files |= divided.backends[name].files(program)
    return files
