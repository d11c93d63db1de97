"""The model's outputs by its golden engine, by the numpy references instead of one, and by the C on this machine."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.errors import EmitcError, Where, unknown_choice
from emitc.ir import Array, Graph
from emitc.kernels.npu.npu_command import NpuCommand, Offloaded
from emitc.verify import tflm_limits
from emitc.verify.build import HostModel, Interface, build_shared
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.engines.run import ENGINES, NO_ENGINE, TRY_NUMPY, IsolatedRun, run_isolated
from emitc.verify.engines.tensor_names import by_tensor
from emitc.verify.layers import LayerProof
from emitc.verify.operator_checks import has_int8_memory
from emitc.verify.reference import may_not_end, run_reference
from emitc.verify.samples import Sample

REFERENCES = ("auto", *(engine for engines in ENGINES.values() for engine in engines), "mixed", "numpy")


def interface_of(compiled: Compiled) -> Interface:
    program = compiled.program
    return Interface(
        program.name,
        program.plan.arena_bytes,
        program.plan.alignment,
        tuple((p.dtype, p.shape) for p in program.inputs),
        tuple((p.dtype, p.shape) for p in program.outputs),
        program.state_bytes,
        tuple((region.name, region.plan.arena_bytes) for region in program.regions),
        program.streamed_input is not None,
        program.self_test is not None,
        program.stepping is not None,
        program.stepping.kept if program.stepping is not None else 0,
        program.external.file() if program.external else b"",
        program.transfers is not None,
    )


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """What the golden engine computed: its name, and for each case the outputs and (if asked for) emitc's tensors by name.

    refused: why the numpy references decide; where no engine runs operators of plugins, these come first.
    disputes: operators that LiteRT computes otherwise than TFLite Micro, of a model that was run operator by operator.
    """

    engine: str
    outputs: tuple[tuple[Array, ...], ...]
    tensors: tuple[Mapping[str, Array], ...]
    refused: tuple[str, ...] = ()
    disputes: tuple[str, ...] = ()


def _numpy_run(
    compiled: Compiled, cases: Sequence[Sample], resets: Sequence[int], refused: tuple[str, ...] = ()
) -> GoldenRun:
    """The numpy reference instead of an engine. refused: as GoldenRun has it."""
    graph = compiled.partition.graph
    outputs, tensors = [], []
    state: dict[str, Array] = {}
    for number, inputs in enumerate(cases):
        if number in resets:
            state.clear()
        values = run_reference(graph, inputs, state)
        outputs.append(tuple(values[name] for name in graph.outputs))
        tensors.append(values)
    return GoldenRun("numpy", tuple(outputs), tuple(tensors), refused)


def golden_run(
    compiled: Compiled, reference: str, cases: Sequence[Sample], *, preserve: bool, resets: Sequence[int] = ()
) -> GoldenRun:
    """The cases on the golden engine, in a process of its own, since interpreters crash on models that they dislike.

    The engine runs the model's own file, so the interface must be the model's. preserve: keep every tensor. resets: the
    cases that start a sequence anew, for a model with state; other models start anew for each. Where a loop may have no end,
    the numpy references run first: they give up after a while, neither engines nor C do.
    """
    if reference not in REFERENCES:
        raise unknown_choice("--reference", reference, REFERENCES)
    if reference == "numpy" or (reference == "auto" and has_npu_commands(compiled.graph)):
        return _numpy_run(compiled, cases, resets)
    _require_engine_fits(compiled, reference)
    if may_not_end(compiled.graph):
        _numpy_run(compiled, cases, resets)
    stale = tflm_limits.not_of_tflm(compiled) if reference in ("auto", "tflm") else None
    if stale is not None and reference == "tflm":
        raise stale
    keywords: dict[str, Any] = {
        "source_format": compiled.source.format,
        "preserve": preserve or tflm_limits.leaves_rows_unset(compiled),
        "resets": resets if compiled.program.states else range(1, len(cases)),
    }
    if reference == "auto" and has_int8_memory(compiled.graph):
        return _without_litert(compiled, cases, keywords, stale)
    try:
        run = _engine_run(compiled, cases, reference if stale is None else "litert", reference, keywords)
    except EngineRefused as error:
        if stale is not None:
            why = f"tflm: {stale.why}; litert: {error.why}"
            error = EngineRefused(NO_ENGINE, Where(option="--reference auto"), why, TRY_NUMPY)
        if reference != "auto":
            raise error
        if compiled.plugin_ops:
            return _numpy_run(compiled, cases, resets, (*compiled.plugin_ops, " ".join(error.why.split())))
        run = _with_tensors(compiled, tflm_limits.run_otherwise(compiled, cases, keywords, error))
    if unset := tflm_limits.unset_detections(compiled, run.tensors):
        if reference != "auto":
            what = f"{run.engine} cannot be the reference of this model"
            hint = "verify with --reference numpy, where those rows are zeros, or with inputs that have more detections"
            raise EngineRefused(what, Where(option=f"--reference {reference}"), unset, hint)
        return _numpy_run(compiled, cases, resets, (unset,))
    return run


def _engine_run(
    compiled: Compiled, cases: Sequence[Sample], engine: str, reference: str, keywords: dict[str, Any]
) -> GoldenRun:
    """The cases on one engine. reference: what the user has named. Raises EngineRefused for outputs of other sizes too."""
    if engine == "mixed":
        run = tflm_limits.in_pieces(compiled, cases, keywords)
    else:
        run = run_isolated(compiled.model_bytes, cases, engine=engine, **keywords)  # type: ignore[arg-type]
    tflm_limits.require_sizes(compiled, run, reference)
    return _with_tensors(compiled, run)


def _with_tensors(compiled: Compiled, run: IsolatedRun) -> GoldenRun:
    tensors = tuple(by_tensor(compiled.graph, compiled.source.format, values) for values in run.tensors)
    return GoldenRun(run.engine, run.outputs, tensors, disputes=run.disputes)


def _without_litert(
    compiled: Compiled, cases: Sequence[Sample], keywords: dict[str, Any], stale: EngineRefused | None
) -> GoldenRun:
    """TFLite Micro, as a whole or operator by operator, else the numpy references: LiteRT would read out of bounds.

    stale: why TFLite Micro cannot run the whole model.
    """
    why = "" if stale is None else stale.why
    for engine in ("tflm", "mixed") if stale is None else ("mixed",):
        try:
            return _engine_run(compiled, cases, engine, "auto", keywords)
        except EngineRefused as error:
            why = error.why
    return _numpy_run(compiled, cases, keywords["resets"], (" ".join(why.split()),))


def _require_engine_fits(compiled: Compiled, reference: str) -> None:
    """Raises EmitcError where an engine cannot run what was compiled: a command stream, or another interface than the file's."""
    if has_npu_commands(compiled.graph):
        raise EmitcError(
            "no engine runs a model that is compiled for an NPU",
            Where(option=f"--reference {reference}"),
            "its operators ethos-u are command streams",
            "verify with --reference numpy, and `emitc npu-check` with --original against the model that vela has read",
        )
    if compiled.options.io != "keep" and _has_other_types(compiled):
        what = "the engine runs the model with its own interface"
        why = "inputs and outputs have other types than the file's"
        hint = "verify with --io keep, or with --reference numpy"
        raise EmitcError(what, Where(option=f"--io {compiled.options.io}"), why, hint)


def _has_other_types(compiled: Compiled) -> bool:
    source, graph = compiled.source, compiled.graph
    stated = [source.tensors[index].dtype for index in (*source.inputs, *source.outputs)]
    return stated != [graph.tensor(name).dtype.value for name in (*graph.inputs, *graph.outputs)]


def layer_values(
    compiled: Compiled, samples: Sequence[Sample], resets: Sequence[int] = ()
) -> list[Mapping[str, Array]]:
    """Every tensor of the C on this machine by name, for each sample; before those at the positions `resets`, a reset."""
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        compiled.write(workdir / "package")
        library = build_shared(workdir / "package", workdir, trace=True, support=compiled.support("host"))
        proof = LayerProof(HostModel(library, interface_of(compiled), compiled.host_hooks()), compiled)
        values = []
        for number, inputs in enumerate(samples):
            if number in resets:
                proof.model.reset()
            proof.model.write_inputs(inputs)
            proof.start()
            proof.model.invoke()
            values.append(proof.values(compiled.partition.graph, inputs))
    return values


def play_back(compiled: Compiled, package: Path, samples: Sequence[Sample], resets: Sequence[int] = ()) -> None:
    """Replaces, in a written package, what calls hardware that is not there by what the host computes for these samples."""
    runs = [{name: value.tobytes() for name, value in run.items()} for run in layer_values(compiled, samples, resets)]
    for backend in compiled.used_backends():
        for name, text in backend.recorded(compiled.program, runs).items():
            folder = package / "src" if (package / "src").is_dir() else package
            (folder / name).write_text(text, encoding="ascii")


def has_npu_commands(graph: Graph) -> bool:
    """Whether the model's file brings command streams along, which no engine runs."""
    return any(isinstance(node.op, NpuCommand) for node in graph.nodes)


def has_other_arithmetic(graph: Graph) -> bool:
    """Whether a region runs under another arithmetic than the model's, which the user has allowed."""
    return any(isinstance(node.op, Offloaded) and node.op.foreign for node in graph.nodes)
