"""The proof: generated C against the golden engine and the numpy reference, element by element, layer by layer.

An element differs when its bits do (a NaN equals a NaN of the same bits). Only floats that operators on floats have computed are
allowed a tolerance (`tolerances`). The operators of a QDQ model are judged one by one (`operator_checks`). The proof names the
rule that decided. The arena is filled with two complementary patterns. Every byte that a run writes shows in one of them, so that
the bytes that are planned can be compared with those that are used.

A model with state runs the samples as a sequence, in the engine and in the C; given vectors and random inputs are a sequence
each. Nothing but the state block may last from one run to the next, so the arena is overwritten in between; and after a reset
the model must give its first answer again.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.errors import EmitcError, Where, unknown_choice
from emitc.ir import Array, Graph
from emitc.kernels.npu.npu_command import NpuCommand
from emitc.kernels.npu.npu_region import Offloaded
from emitc.verify.build import HostModel, Interface, MemoryFault, build_shared
from emitc.verify.engines.run import (
    ENGINES,
    NO_ENGINE,
    TRY_NUMPY,
    EngineRefused,
    missing_engines,
    run_isolated,
)
from emitc.verify.engines.tensor_names import by_tensor
from emitc.verify.layers import PATTERNS, Divergence, LayerProof, filled_bytes, finite, observed_bytes
from emitc.verify.operator_checks import Group, OperatorCheck, has_operator_checks, quantizes_inexact, rounded_otherwise
from emitc.verify.reference import may_not_end, run_reference
from emitc.verify.samples import Sample, random_samples, read_vectors
from emitc.verify.sanitize import run_sanitized
from emitc.verify.subgraph_checks import InnerCheck, judged
from emitc.verify.tally import Tally, difference
from emitc.verify.tflm_limits import (
    in_pieces,
    leaves_rows_unset,
    not_of_tflm,
    require_sizes,
    run_otherwise,
    unset_detections,
)
from emitc.verify.tolerances import rules, tolerances_of

REFERENCES = ("auto", *(engine for engines in ENGINES.values() for engine in engines), "mixed", "numpy")
NPU_RULE = "npu"
COMMANDS_RULE = "npu-commands"
_NUMPY_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class ArenaUse:
    """The arena of one of several regions: bytes planned, observed, and filled as `Proof` has them."""

    region: str
    planned: int
    observed: int
    filled: int

    def to_json(self) -> dict[str, Any]:
        """For `emitc verify --json`."""
        return {"region": self.region, "planned": self.planned, "observed": self.observed}


@dataclass(frozen=True, slots=True)
class Proof:
    """What `emitc verify` found.

    differing: elements of the outputs that break their rule.
    rule: "exact"; "tolerance" where an output is a float32 tensor that is computed from floats; "groups" where operators
        decide one by one, each on the engine's own inputs (`operator_checks`), with the numpy reference on every sample; "npu"
        where an accelerator rounds otherwise than the model, so that the numpy reference of its arithmetic decides and
        `differing` counts deviations from the engine; "npu-commands" where vela has compiled the file and its host model decides.
    tolerance: the factor of `tolerances`. tolerated: elements whose bits differ within it.
    groups: the operators by type, for a QDQ model, for a TFLite model that LiteRT alone runs and rounds otherwise than TFLite
        Micro, and for floats outside of the tolerance.
    unjudged: operators that cannot be compared by themselves. The outputs decide too if there are any.
    arena_filled: bytes that a run is sure to touch; less than arena_planned if a library need not use all of its working memory.
    arenas: the bytes of every region if there are several. The other numbers are then sums.
    no_engine: operators of plugins for which no engine runs the model, and what the engines said; or one entry if no engine is
        installed. The numpy references of all operators decide then.
    given_elements, given_differing: how many of `elements` and of `differing` are from outputs that the vectors state.
    given_cases: the cases of the vectors whose stated outputs differ.
    disputes: operators on which TFLite Micro and LiteRT differ, with the number of elements, of a model that is run operator by
        operator. TFLite Micro decides about them.
    """

    reference: str
    samples: int
    elements: int
    differing: int
    max_abs_diff: float
    numpy_samples: int
    numpy_differing: int
    layers_checked: int
    first_divergence: Divergence | None
    arena_planned: int
    arena_observed: int
    sanitized: bool
    memory_errors: tuple[str, ...] = field(default=())
    rule: str = "exact"
    tolerance: float = 0.0
    tolerated: int = 0
    groups: tuple[Group, ...] = field(default=())
    arena_filled: int = 0
    arenas: tuple[ArenaUse, ...] = field(default=())
    no_engine: tuple[str, ...] = field(default=())
    unjudged: int = 0
    given_elements: int = 0
    given_differing: int = 0
    given_cases: tuple[int, ...] = field(default=())
    disputes: tuple[str, ...] = field(default=())

    @property
    def match(self) -> bool:
        """Whether everything agrees and the arena is used as planned."""
        used = self.arenas or (ArenaUse("", self.arena_planned, self.arena_observed, self.arena_filled),)
        clean = not self.memory_errors and all(each.filled <= each.observed <= each.planned for each in used)
        if self.rule == NPU_RULE:
            return self.numpy_differing == 0 and clean
        if self.groups:
            judged = self.unjudged == 0 or self.differing == 0
            return self.numpy_differing == 0 and all(group.holds for group in self.groups) and judged and clean
        return self.differing == 0 and self.numpy_differing == 0 and self.first_divergence is None and clean

    @property
    def rounding(self) -> str:
        """Why the operators of a model that LiteRT runs decide one by one; "" where they do not."""
        if not self.groups or self.reference != "litert":
            return ""
        disputed = sorted({group.op_type for group in self.groups if group.kind == "word"})
        if disputed:
            rounded = f"LiteRT rounds {' and '.join(disputed)} otherwise than TFLite Micro"
            return f"{rounded}, which does not run this model and whose rule the C follows"
        return "layers quantize floats while they run, where the last bit of an exponential may become a step"

    def to_json(self) -> dict[str, Any]:
        """For `emitc verify --json`."""
        return {
            "reference": self.reference,
            "samples": self.samples,
            "elements": self.elements,
            "differing": self.differing,
            "max_abs_diff": finite(self.max_abs_diff),
            "rule": self.rule,
            "tolerance": self.tolerance,
            "tolerated": self.tolerated,
            "given_elements": self.given_elements,
            "given_differing": self.given_differing,
            "given_cases": list(self.given_cases),
            "numpy_samples": self.numpy_samples,
            "numpy_differing": self.numpy_differing,
            "layers_checked": self.layers_checked,
            "first_divergence": self.first_divergence.to_json() if self.first_divergence else None,
            "arena_planned": self.arena_planned,
            "arena_observed": self.arena_observed,
            "sanitized": self.sanitized,
            "groups": [group.to_json() for group in self.groups],
            "unjudged": self.unjudged,
            "memory_errors": list(self.memory_errors),
            "match": self.match,
            **({"disputes": list(self.disputes)} if self.disputes else {}),
            **({"arenas": [use.to_json() for use in self.arenas]} if self.arenas else {}),
            **({"no_engine": {"operators": self.no_engine[:-1], "why": self.no_engine[-1]}} if self.no_engine else {}),
        }


def interface_of(compiled: Compiled) -> Interface:
    """The package's interface."""
    program = compiled.program
    return Interface(
        program.name,
        program.plan.arena_bytes,
        program.plan.alignment,
        tuple((p.dtype, p.shape) for p in program.inputs),
        tuple((p.dtype, p.shape) for p in program.outputs),
        program.state_bytes,
        tuple((region.name, region.plan.arena_bytes) for region in program.regions),
        program.pulled is not None,
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


def _numpy_run(compiled: Compiled, cases: Sequence[Sample], resets: Sequence[int]) -> GoldenRun:
    """The numpy reference in the place of an engine."""
    graph = compiled.partition.graph
    outputs, tensors = [], []
    state: dict[str, Array] = {}
    for number, inputs in enumerate(cases):
        if number in resets:
            state.clear()
        values = run_reference(graph, inputs, state)
        outputs.append(tuple(values[name] for name in graph.outputs))
        tensors.append(values)
    return GoldenRun("numpy", tuple(outputs), tuple(tensors))


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
    if has_npu_commands(compiled.graph):
        raise EmitcError(
            "no engine runs a model that is compiled for an NPU",
            Where(option=f"--reference {reference}"),
            "its operators ethos-u are command streams",
            "verify with --reference numpy, and `emitc npu-check` with --original against the model that vela has read",
        )
    if compiled.options.io != "keep" and _has_other_types(compiled):
        raise EmitcError(
            "the engine runs the model with its own interface",
            Where(option=f"--io {compiled.options.io}"),
            "inputs and outputs have other types than the file's",
            "verify with --io keep, or with --reference numpy",
        )
    if may_not_end(compiled.graph):
        _numpy_run(compiled, cases, resets)
    stale = not_of_tflm(compiled) if reference in ("auto", "tflm") else None
    if stale is not None and reference == "tflm":
        raise stale
    engine = "litert" if stale is not None else reference
    asked: dict[str, Any] = {
        "source_format": compiled.source.format,
        "preserve": preserve or leaves_rows_unset(compiled),
        "reset_between": not compiled.program.states,
        "resets": resets,
    }
    try:
        run = (
            in_pieces(compiled, cases, asked)
            if reference == "mixed"
            else run_isolated(compiled.model_bytes, cases, engine=engine, **asked)  # type: ignore[arg-type]
        )
        require_sizes(compiled, run, reference)
    except EngineRefused as error:
        if stale is not None:
            error = EngineRefused(
                NO_ENGINE, Where(option="--reference auto"), f"tflm: {stale.why}; litert: {error.why}", TRY_NUMPY
            )
        if reference != "auto":
            raise error
        if compiled.brought:
            return replace(
                _numpy_run(compiled, cases, resets), refused=(*compiled.brought, " ".join(error.why.split()))
            )
        run = run_otherwise(compiled, cases, asked, error)
    tensors = tuple(by_tensor(compiled.graph, compiled.source.format, values) for values in run.tensors)
    if unset := unset_detections(compiled, tensors):
        if reference != "auto":
            raise EngineRefused(
                f"{run.engine} cannot be the reference of this model",
                Where(option=f"--reference {reference}"),
                unset,
                "verify with --reference numpy, where those rows are zeros, or with inputs that have more detections",
            )
        return replace(_numpy_run(compiled, cases, resets), refused=(unset,))
    return GoldenRun(run.engine, run.outputs, tensors, disputes=run.disputes)


def _has_other_types(compiled: Compiled) -> bool:
    """Whether an input or output has another type than the file states."""
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
        found = []
        for number, inputs in enumerate(samples):
            if number in resets:
                proof.model.reset()
            proof.model.write_inputs(inputs)
            proof.start()
            proof.model.invoke()
            found.append(proof.values(compiled.partition.graph, inputs))
    return found


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


def is_foreign(graph: Graph) -> bool:
    """Whether a region runs under another arithmetic than the model's, which the user has allowed."""
    return any(isinstance(node.op, Offloaded) and node.op.foreign for node in graph.nodes)


def _handed_over(graph: Graph, written: Mapping[str, Array], outputs: Sequence[Array]) -> list[str]:
    """Outputs of a run that are not what a layer has written there: operators that are right say nothing of those."""
    wrong = []
    for name, found in zip(graph.outputs, outputs, strict=True):
        value = written.get(name, written.get(graph.root(name).name))
        if value is not None and value.tobytes() != found.tobytes():
            wrong.append(f"the output {name!r} is not what its last layer has written")
    return wrong


def verify(
    compiled: Compiled,
    *,
    reference: str = "auto",
    samples: int = 20,
    seed: int = 0,
    vectors: Path | None = None,
    layers: bool = False,
    sanitize: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Proof:
    """Proves a compiled model on this machine. progress: called with samples done and in all.

    Where floats of an ONNX model are outside of the tolerance, errors may have added up or sums cancelled: operators decide. They
    do for TFLite too where the numpy references stand for an engine, since these round floats in another order than the C.
    Where LiteRT alone runs a TFLite model and disagrees, TFLite Micro decides about every operator that it has by itself.

    Raises EmitcError for vectors that do not fit, CannotCompile when compiler or engine fail.
    """
    given = (samples, seed, vectors, layers, sanitize, progress)
    proof = _verified(compiled, reference, *given, floats=False)
    graph = compiled.graph
    steps = proof.rule == "exact" and quantizes_inexact(graph, rules(graph, compiled.source.format))
    doubtful = (proof.rule in ("tolerance", "groups") or steps) and not proof.match and not proof.memory_errors
    one_by_one = compiled.source.format == "onnx" or proof.reference == "numpy"
    if doubtful and one_by_one and not compiled.program.states:
        proof = _verified(compiled, reference, *given, floats=True)
    if not proof.match and reference == "auto" and proof.reference == "litert":
        with contextlib.suppress(EngineRefused):
            proof = _verified(compiled, "mixed", *given, floats=False)
    return proof


def _verified(
    compiled: Compiled, reference: str, samples: int, seed: int, vectors: Path | None, layers: bool, sanitize: bool,
    progress: Callable[[int, int], None] | None, *, floats: bool,
) -> Proof:  # fmt: skip
    """One proof. floats: operators on floats decide one by one."""
    graph, program = compiled.graph, compiled.program
    missing = missing_engines(compiled.source.format) if reference == "auto" and not has_npu_commands(graph) else ""
    reference = "numpy" if missing else reference
    given = read_vectors(vectors, graph) if vectors else []
    cases: list[tuple[Sample, Sample]] = [*given, *((s, ()) for s in random_samples(graph, samples, seed))]
    foreign = is_foreign(compiled.partition.graph)
    inner = InnerCheck(compiled, reference, floats=floats)
    inner.add([inputs for inputs, _ in cases])
    grouped = (has_operator_checks(graph) or inner.judged or floats) and not foreign
    stateful = bool(program.states)
    resets = (len(given),) if stateful and 0 < len(given) < len(cases) else ()
    golden = golden_run(compiled, reference, [inputs for inputs, _ in cases], preserve=layers or grouped, resets=resets)
    rule_of = tolerances_of(compiled)
    one_by_one = rounded_otherwise(graph, golden.engine) or quantizes_inexact(graph, rule_of)
    if reference in ("auto", "mixed") and not stateful and one_by_one:
        grouped = True
        if not layers:
            golden = golden_run(compiled, golden.engine, [inputs for inputs, _ in cases], preserve=True)
    local = grouped or foreign
    numpy_samples = len(cases) if local else _NUMPY_SAMPLES
    output_rules = [rule_of[name] for name in graph.outputs]
    exact = all(rule.exact for rule in output_rules)
    run = compiled.partition.graph
    given_tally, given_cases = Tally(), list[int]()
    tally, numpy_tally, numpy_groups = (
        Tally(),
        Tally(),
        OperatorCheck(run, rules(run, compiled.source.format), own=True),
    )
    checked, first = 0, None
    errors: list[str] = []
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        package = workdir / "package"
        compiled.write(package)
        interface = interface_of(compiled)
        support, hooks = compiled.support("host"), compiled.host_hooks()
        model = HostModel(build_shared(package, workdir, trace=False, support=support), interface, hooks)
        traced = HostModel(build_shared(package, workdir, trace=True, support=support), interface, hooks)
        proof = LayerProof(traced, compiled)
        results: list[list[Array]] = []
        state: dict[str, Array] = {}
        for done, (inputs, expected) in enumerate(cases):
            if done in resets:
                model.reset()
                traced.reset()
                state.clear()
            if stateful:
                model.fill(PATTERNS[done % 2])
            try:
                outputs = model.run(inputs)
            except MemoryFault as fault:
                errors.append(str(fault))
                break
            results.append(outputs)
            for found, value, rule in zip(outputs, golden.outputs[done], output_rules, strict=True):
                tally.add(found, value.reshape(found.shape), rule)
            if sum(given_tally.add(f, v, r) for f, v, r in zip(outputs, expected, output_rules, strict=False)):
                given_cases.append(done)
            if layers or local or stateful or done == 0:
                traced.write_inputs(inputs)
                proof.start()
                pairs = zip(traced.invoke(), outputs, strict=True)
                if any(difference(found, value)[0] for found, value in pairs):
                    errors.append("built with the layer hook, the model computes other outputs")
            if layers and first is None and not foreign:
                count, first = proof.first_divergence(golden.tensors[done])
                checked += count
            if local:
                written = proof.values(run, inputs)
                numpy_groups.add(written)
                errors += _handed_over(run, written, outputs)
            elif done < numpy_samples:
                values = run_reference(graph, inputs, state)
                for name, found, rule in zip(graph.outputs, outputs, output_rules, strict=True):
                    numpy_tally.add(found, values[name], rule)
            if progress:
                progress(done + 1, len(cases))
        if stateful and results:
            model.reset()
            again = model.run(cases[0][0])
            if any(difference(found, value)[0] for found, value in zip(again, results[0], strict=True)):
                errors.append("after a reset the model does not give its first answer again")
        errors += proof.errors
        library = workdir / "plain.so"
        observed = observed_bytes(
            lambda: HostModel(library, interface, hooks), [c[0] for c in cases[:2]], interface.alignment
        )
        if sanitize:
            given_inputs = [inputs for inputs, _ in cases[: len(results)]]
            if hooks:
                play_back(compiled, package, given_inputs, resets)
            errors += run_sanitized(package, workdir, interface, given_inputs, results, support, resets)
    groups, unjudged = (
        judged(
            compiled, golden.tensors[: len(results)], inner, seed,
            lambda drawn: golden_run(compiled, reference, drawn, preserve=True).tensors, floats=floats,
        )
        if grouped
        else ((), 0)
    )  # fmt: skip
    filled = filled_bytes(compiled)
    uses = [
        ArenaUse(region, plan.arena_bytes, seen, sure)
        for (region, plan), seen, sure in zip(program.arenas, observed, filled, strict=True)
    ]
    # Where only a step could make operators decide and none did, the outputs themselves are as they should be.
    agree = (
        compiled.source.format == "onnx"
        and not (has_operator_checks(graph) or inner.judged or floats)
        and not tally.differing
    )
    deciding = NPU_RULE if foreign else "groups" if groups and not agree else "exact" if exact else "tolerance"
    both = tally.with_those_of(given_tally)
    return Proof(
        golden.engine,
        len(results),
        both.elements,
        both.differing,
        both.max_abs_diff,
        min(len(results), numpy_samples),
        numpy_tally.differing + sum(group.broken for group in numpy_groups.found()),
        checked,
        first,
        program.plan.arena_bytes,
        sum(observed),
        sanitize,
        tuple(dict.fromkeys(errors)),
        COMMANDS_RULE if has_npu_commands(graph) else deciding,
        max(rule.absolute for rule in output_rules) if output_rules else 0.0,
        both.tolerated,
        groups,
        sum(filled),
        tuple(uses) if program.regions else (),
        golden.refused or ((missing,) if missing else ()),
        unjudged,
        given_tally.elements,
        given_tally.differing,
        tuple(given_cases),
        golden.disputes,
    )
