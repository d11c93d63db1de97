"""The model's outputs by its golden engine, by the numpy references instead of one, and by the C on this machine."""

import contextlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.compiled import Compiled
from emitc.errors import EmitcError, Where, unknown_choice
from emitc.ir import Array, Graph
from emitc.kernels.detection.detection_postprocess import DetectionPostprocess
from emitc.kernels.movement.pixel_blocks import pads_with
from emitc.kernels.npu.npu_command import NpuCommand, Offloaded
from emitc.records import dataclass
from emitc.verify.build import HostModel, Interface, build_shared
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.engines.run import CRASHED, ENGINES, NO_ENGINE, TRY_NUMPY, IsolatedRun, run_isolated
from emitc.verify.engines.tensor_names import by_tensor
from emitc.verify.layers import LayerProof
from emitc.verify.operator_checks import has_int8_memory
from emitc.verify.reference import Sample, may_not_end, run_reference
from emitc.verify.tolerances import EXACT, Tolerance, tolerances_of

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
    stale = stale_shape(compiled) or _unset_padding(compiled) if reference in ("auto", "tflm") else None
    if stale is not None and reference == "tflm":
        raise stale
    keywords: dict[str, Any] = {
        "source_format": compiled.source.format,
        "preserve": preserve or leaves_rows_unset(compiled),
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
        run = _with_tensors(compiled, run_otherwise(compiled, cases, keywords, error))
    if unset := unset_detections(compiled, run.tensors):
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
        run = in_pieces(compiled, cases, keywords)
    else:
        run = run_isolated(compiled.model_bytes, cases, engine=engine, **keywords)  # type: ignore[arg-type]
    require_sizes(compiled, run, reference)
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


@contextlib.contextmanager
def _traced(compiled: Compiled) -> Iterator[LayerProof]:
    """The model on this machine, built with the layer hook for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        workdir = Path(folder)
        compiled.write(workdir / "package")
        library = build_shared(workdir / "package", workdir, trace=True, support=compiled.support("host"))
        yield LayerProof(HostModel(library, interface_of(compiled), compiled.host_hooks()), compiled)


def layer_values(
    compiled: Compiled, samples: Sequence[Sample], resets: Sequence[int] = ()
) -> list[Mapping[str, Array]]:
    """Every tensor of the C on this machine by name, for each sample; before those at the positions `resets`, a reset."""
    with _traced(compiled) as proof:
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


_NOT_TFLM = "TFLite Micro cannot be the reference of this model"
_OTHERS = "verify with --reference litert or numpy"
_FOUND = 3
"""The output of a detection that counts what was found."""


def stale_shape(compiled: Compiled) -> EngineRefused | None:
    """Why TFLite Micro, which takes shapes from the file, runs another model than its operators describe; None where not so.

    Converters write 1 for an open batch, in whose place SPACE_TO_BATCH_ND and others have more.
    """
    if compiled.source.format != "tflite":
        return None
    written = {tensor.index: math.prod(abs(d) for d in tensor.shape) for tensor in compiled.source.tensors}
    own = set(compiled.graph.inputs)  # of these the user may have closed open dimensions
    for tensor in compiled.graph.tensors:
        stated = written.get(tensor.source, tensor.elements)
        if stated != tensor.elements and tensor.name not in own and not tensor.channels:
            where = Where(option="--reference tflm", tensor=f'tensor {tensor.source} "{tensor.label or tensor.name}"')
            why = f"it takes shapes from the file, which states {stated} elements instead of {tensor.elements}"
            return EngineRefused(_NOT_TFLM, where, why, f"{_OTHERS}, or export the model with a fixed batch")
    return None


def _unset_padding(compiled: Compiled) -> EngineRefused | None:
    """The refusal of a SPACE_TO_BATCH_ND that pads with a zero point: TFLite Micro never sets its padding value."""
    built = next((step.graph for step in compiled.history if not step.inside), compiled.graph)
    for bound in built.bound():
        if compiled.source.format == "tflite" and pads_with(bound):
            where = Where(option="--reference tflm", op=bound.node.describe())
            why = f"it pads with whatever lies in its memory, instead of the zero point {pads_with(bound)}"
            return EngineRefused(_NOT_TFLM, where, why, _OTHERS)
    return None


def leaves_rows_unset(compiled: Compiled) -> bool:
    """Whether an engine may leave rows of an output unset: of detections that are chosen by their best class."""
    return any(isinstance(node.op, DetectionPostprocess) and not node.op.per_class for node in compiled.graph.nodes)


def unset_detections(compiled: Compiled, tensors: Sequence[Mapping[str, Array]]) -> str:
    """Why an engine's run is no reference: in a case it found fewer detections than its outputs have rows; "" otherwise.

    tensors: every tensor of each case by name. Neither engine writes the other rows: they hold what lay in its memory.
    """
    for number, values in enumerate(tensors):
        for node in compiled.graph.nodes:
            if isinstance(node.op, DetectionPostprocess) and not node.op.per_class:
                count = values.get(node.outputs[_FOUND])
                if count is not None and not count.min() >= node.op.max_detections:
                    return (
                        f"the engine finds {count.item():g} of {node.op.max_detections} detections in case {number} and leaves"
                        f" the other rows of {node.describe()} unset"
                    )
    return ""


def run_otherwise(
    compiled: Compiled, cases: Sequence[Sample], keywords: Mapping[str, Any], error: EngineRefused
) -> IsolatedRun:
    """A TFLite model whose run has ended with `error`: on LiteRT where TFLite Micro has ended the process, or in pieces."""
    if compiled.source.format != "tflite":
        raise error
    if error.what == CRASHED:
        with contextlib.suppress(EngineRefused):
            run = run_isolated(compiled.model_bytes, cases, engine="litert", **keywords)
            require_sizes(compiled, run, "auto")
            return run
    try:
        return in_pieces(compiled, cases, keywords)
    except EngineRefused as refusal:
        why = f"{error.why}; operator by operator: {refusal.why}"
        raise EngineRefused(error.what, error.where, why, error.hint) from error


def in_pieces(compiled: Compiled, cases: Sequence[Sample], keywords: Mapping[str, Any]) -> IsolatedRun:
    """Operator by operator; without asking LiteRT about those of TFLite Micro too, where that ends the process."""
    stale = stale_shape(compiled)
    if stale is not None:
        raise stale
    try:
        return run_isolated(compiled.model_bytes, cases, engine="compared", **keywords)
    except EngineRefused:
        return run_isolated(compiled.model_bytes, cases, engine="mixed", **keywords)


def require_sizes(compiled: Compiled, run: IsolatedRun, reference: str) -> None:
    """Raises EngineRefused for outputs with other numbers of elements than the file states, which LiteRT may infer."""
    graph = compiled.graph
    for name, value in ((n, v) for outputs in run.outputs for n, v in zip(graph.outputs, outputs, strict=True)):
        if value.size != graph.tensor(name).elements:
            what = f"{run.engine} gives an output of another size"
            why = f"{graph.tensor(name).describe()} has {value.size} elements there"
            raise EngineRefused(what, Where(option=f"--reference {reference}"), why, TRY_NUMPY)


_JUNK = 0xA5
"""In the arena before each run, as on the board."""


@dataclass(frozen=True, slots=True)
class HostLayer:
    """One output of a layer. data: its bytes. shape: without the rows that nobody reads, which a layer by rows does not make."""

    index: int
    op: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    rule: Tolerance = EXACT

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def any_difference_counts(self) -> bool:
        """Whether other bits are always wrong; floats may be within a tolerance, and a NaN may have another sign."""
        return not self.dtype.startswith("float")


def host_layers(compiled: Compiled, samples: Sequence[Sample]) -> list[list[HostLayer]]:
    """The calls of the hook in each run of the samples, which are one sequence. A segment by rows is reported as its last layer.

    Raises CannotCompile where the host's compiler fails.
    """
    graph, rule_of = compiled.partition.graph, tolerances_of(compiled)
    runs: list[list[HostLayer]] = []
    with _traced(compiled) as proof:
        for sample in samples:
            proof.model.fill(_JUNK)
            proof.model.write_inputs(sample)
            proof.start()
            proof.model.invoke()
            runs.append([])
            for step in (traced.step for traced in compiled.program.traced):
                for output, data in zip(step.outputs, proof.written.get(step.index, []), strict=True):
                    tensor, rule = graph.tensor(output.tensor), rule_of.get(output.tensor, EXACT)
                    shape = _made(tensor.shape, len(data), tensor.size_bytes)
                    layer = HostLayer(step.index, step.op_type, step.label, tensor.dtype.value, shape, data, rule)
                    runs[-1].append(layer)
    return runs


def _made(shape: tuple[int, ...], made: int, whole: int) -> tuple[int, ...]:
    """The shape of a tensor of which so many bytes were made: fewer rows, the last ones being missing."""
    if made == whole or len(shape) < 2:
        return shape
    return (shape[0], shape[1] * made // whole, *shape[2:])


def differing_elements(
    layer: HostLayer, data: bytes
) -> tuple[int, tuple[int, ...], str, str, float, tuple[int, ...]] | None:
    """The elements of a board's tensor that break the layer's rule; None where there are none.

    Gives their number, the index of the first one, and its value on the board and on the host. Gives also the largest
    difference, and the channels along the last axis that have one.
    """
    dtype = np.dtype(layer.dtype)
    actual, expected = (np.frombuffer(raw, dtype) for raw in (data, layer.data))
    wrong = _wrong(actual, expected, layer.rule)
    if not wrong.any():
        return None
    # Packed elements have no shape of their own.
    shape = layer.shape if wrong.size == layer.elements else wrong.shape
    places = np.argwhere(wrong.reshape(shape))
    at = int(np.flatnonzero(wrong)[0])
    channels = tuple(int(channel) for channel in np.unique(places[:, -1])) if places.shape[1] else ()
    gap = np.abs(actual[wrong].astype(np.float64) - expected[wrong].astype(np.float64))
    first = tuple(int(i) for i in places[0])
    largest = float(np.nan_to_num(gap, nan=np.inf).max())
    return int(wrong.sum()), first, str(actual[at]), str(expected[at]), largest, channels


def _wrong(actual: Array, expected: Array, rule: Tolerance) -> NDArray[np.bool_]:
    """Which elements break the rule, by the definition of `tolerances.compared` with `any_nan`."""
    width = actual.dtype.itemsize
    unequal = np.asarray(actual.view(f"u{width}") != expected.view(f"u{width}"), np.bool_)
    if actual.dtype.kind != "f":
        return unequal
    x, y = actual.astype(np.float64), expected.astype(np.float64)
    unequal &= ~(np.isnan(x) & np.isnan(y))
    if rule.zeros or not rule.exact:
        unequal &= (x != 0) | (y != 0)
    if not rule.exact:
        limit = rule.absolute + rule.relative * float(np.abs(y[np.isfinite(y)]).max(initial=0.0))
        with np.errstate(invalid="ignore"):
            unequal &= ~(np.abs(x - y) <= limit)
    return unequal
