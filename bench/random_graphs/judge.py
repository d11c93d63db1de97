"""One graph's way to a verdict: compiled, run by the engine and by the numpy references, and compared with the C.

The rules are those of `emitc verify`. Where the outputs of the C break them, the whole proof of `emitc verify` decides
on the same inputs. It judges some models operator by operator.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from bench.random_graphs.case import Case
from bench.random_graphs.inputs import draw_inputs
from bench.random_graphs.modes import Mode, options_of, with_variants
from bench.random_graphs.native import Builds, Item
from bench.random_graphs.onnx.engine_faults import limited_reduction, rounded_softmax, rounded_sums
from bench.random_graphs.tflite.engine_faults import undefined_power, undefined_rounding
from emitc.boards.verify import on_emulator, require_fit
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import Array
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.engines.run import run_isolated
from emitc.verify.golden_run import golden_run
from emitc.verify.reference import run_reference
from emitc.verify.tolerances import compared, tolerances_of
from emitc.verify.verification import verify

CASES = 4
SECONDS = 60
"""Processor time for one graph in this process."""
PATIENCE = 20
"""The clock may show so many times as much, since a campaign gets what other work leaves of the processor."""
FAILURES = ("wrong", "reference", "sanitizer", "build", "run", "crash", "slow", "reset", "board")
"""Verdicts that are faults of emitc until shown otherwise.

wrong: the C differs from the engine. reference: a numpy reference does. reset: the first answer changes after a reset. crash: a
traceback. slow: no end within the time. board: the emulated board differs, or the image cannot be built or run.
"""


@dataclass
class Trial:
    """A case on its way. verdict: "" while it is open. engine: the one that ran it. detail: one line for the record.

    image: the package for an emulated board, where the mode asks for one.
    """

    case: Case
    mode: dict[str, Any]
    inputs: list[tuple[Array, ...]]
    verdict: str = ""
    detail: str = ""
    engine: str = ""
    refused_by_engine: str = ""
    compiled: Compiled | None = None
    image: Compiled | None = None
    expected: tuple[tuple[Array, ...], ...] = ()
    item: Item | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def close(self, verdict: str, detail: str = "") -> None:
        """The first verdict stays."""
        if not self.verdict:
            self.verdict, self.detail = verdict, " ".join(detail.split())[:600]


class OutOfTime(Exception):
    """A graph took too long."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises OutOfTime in the main thread after that many seconds of processor time, or PATIENCE times as many by the clock."""

    def late(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE * seconds))
    before = [signal.signal(number, late) for number, _, _ in timers]
    try:
        for _, timer, limit in timers:
            signal.setitimer(timer, limit)
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def prepared(case: Case, mode: Mode, folder: Path) -> Trial:
    """The case compiled and run by engine and references; open where only the C is missing."""
    rng = np.random.default_rng([case.seed, case.index, 17])
    trial = Trial(case, dict(mode), draw_inputs(case.description, rng, CASES))
    try:
        with limited(SECONDS):
            _compile(trial, folder)
            if not trial.verdict:
                _expect(trial)
    except OutOfTime:
        trial.close("slow", f"more than {SECONDS} s of processor time")
    except MemoryError:
        trial.close("crash", "out of memory")
    except Exception:
        trial.close("crash", traceback.format_exc()[-1500:])
    return trial


def _compile(trial: Trial, folder: Path) -> None:
    """Compiles; a mode that the graph cannot have (a budget, rows of an input) is left, and the record says so."""
    name = f"g{trial.case.index}"
    path = folder / f"{name}.{trial.case.format}"
    path.write_bytes(trial.case.model)
    try:
        while trial.compiled is None:
            try:
                trial.compiled = compile_model(path, options_of(trial.mode, name))
            except EmitcError as error:
                refused = [o for o, key in _OPTIONAL.items() if key in trial.mode and o in error.where.option]
                if not refused:
                    raise
                trial.facts.setdefault("modes refused", []).append(f"{refused[0]}: {error.why}")
                del trial.mode[_OPTIONAL[refused[0]]]
        if "variant" in trial.mode:
            chosen = with_variants(options_of(trial.mode, name), trial.compiled, trial.mode)
            trial.facts["variants"] = [f"op{index}={variant}" for index, variant in chosen.variants]
            with contextlib.suppress(EmitcError):  # the variant does not take this operator: the cheapest kernel it is
                trial.compiled = compile_model(path, chosen)
        if "board" in trial.mode:
            trial.image = compile_model(path, dataclasses.replace(trial.compiled.options, package="platformio"))
    except EmitcError as error:
        _refused(trial, error)
    finally:
        path.unlink()


_OPTIONAL = {
    "--ram-budget": "ram_budget",
    "--flash-budget": "flash_budget",
    "--input-rows": "input_rows",
    "--place": "places",
    "--regions": "places",
    "--io": "io",
}
"""Options that not every graph can have, and their names in a mode."""


def _refused(trial: Trial, error: EmitcError) -> None:
    """A refusal is true or not: the record says whether an engine runs the graph."""
    try:
        trial.engine = run_isolated(trial.case.model, trial.inputs, source_format=trial.case.format).engine
    except EmitcError as refusal:
        trial.refused_by_engine = refusal.why
    if not trial.engine and trial.case.format == "tflite":
        try:
            trial.engine = run_isolated(trial.case.model, trial.inputs, engine="mixed").engine
            trial.refused_by_engine = ""
        except EmitcError as refusal:
            trial.refused_by_engine = refusal.why
    trial.close("refused", f"{error.what}: {error.why}")


def _expect(trial: Trial) -> None:
    """What the outputs have to be: the engine's, or those of the references where no engine runs the graph."""
    compiled = trial.compiled
    assert compiled is not None
    same_interface = trial.mode.get("io", "keep") == "keep"
    state: dict[str, Array] = {}
    if not same_interface:
        trial.inputs = _fitted(trial, compiled)
    own = []
    for inputs in trial.inputs:
        values = run_reference(compiled.partition.graph, inputs, state if compiled.program.states else None)
        own.append(tuple(values[name] for name in compiled.graph.outputs))
    if same_interface:
        try:
            run = golden_run(compiled, "auto", trial.inputs, preserve=False)
            trial.engine, trial.expected = run.engine, run.outputs
            trial.facts["disputes"] = run.disputes
        except EngineRefused as refusal:
            trial.refused_by_engine = refusal.why
    if not trial.expected:
        trial.engine, trial.expected = "numpy", tuple(own)
    trial.facts["numpy"] = own


def _fitted(trial: Trial, compiled: Compiled) -> list[tuple[Array, ...]]:
    """Inputs for an interface that is not the file's."""
    rng = np.random.default_rng([trial.case.seed, trial.case.index, 18])
    fitted = []
    for number in range(CASES):
        drawn = []
        for position, name in enumerate(compiled.graph.inputs):
            tensor = compiled.graph.tensor(name)
            if tensor.dtype.value == trial.inputs[number][position].dtype.name:
                drawn.append(trial.inputs[number][position])
            else:
                info = np.iinfo(tensor.dtype.value)
                drawn.append(rng.integers(info.min, info.max, tensor.shape, dtype=tensor.dtype.value, endpoint=True))
        fitted.append(tuple(drawn))
    return fitted


def conclude(trial: Trial, folder: Path) -> None:
    """Gives a trial whose item has run its verdict; an exception in the comparison is a crash of this graph only."""
    try:
        _compare(trial, folder)
    except Exception:
        trial.close("crash", "in the comparison: " + traceback.format_exc()[-1200:])


def _compare(trial: Trial, folder: Path) -> None:
    item, compiled = trial.item, trial.compiled
    assert item is not None and compiled is not None
    if item.fault is not None:
        trial.close(*item.fault)
        return
    *outputs, again = item.outputs
    wrong = broken_rule(compiled, outputs, trial.expected)
    # Where a tolerance applies, sums over what is within it may leave it in the references: the engine decides.
    numpy_wrong = broken_rule(compiled, outputs, trial.facts.pop("numpy"), only_exact=trial.engine != "numpy")
    if any(a.tobytes() != b.tobytes() for a, b in zip(again, outputs[0], strict=True)):
        trial.close("reset", "after a reset the first answer is another one")
    if not wrong and not numpy_wrong:
        if "board" in trial.mode:
            _on_board(trial)
        trial.close("match" if trial.engine != "numpy" else "numpy only")
        return
    detail = wrong or numpy_wrong
    if trial.engine == "numpy":
        _decide(trial, folder, "reference", f"no engine; the C differs from the references: {detail}")
        return
    _decide(trial, folder, "wrong" if wrong else "reference", detail)


def _on_board(trial: Trial) -> None:
    """Builds the package for an emulated board, and runs it there. A graph that does not fit leaves the mode.

    The board draws inputs of its own. Where the engine refuses those, the numpy references say what the outputs are.
    """
    assert trial.image is not None
    try:
        with limited(4 * SECONDS):
            require_fit(trial.image, trial.mode["board"])
    except EmitcError as error:
        trial.facts.setdefault("modes refused", []).append(f"--board: {error.why}")
        del trial.mode["board"]
        return
    run = partial(
        on_emulator, trial.image, trial.mode["board"], samples=3, seed=trial.case.index, layers=False, workdir=None
    )
    try:
        with limited(4 * SECONDS):
            try:
                result = run(reference="numpy" if trial.engine == "numpy" else "auto")
            except EngineRefused:
                result = run(reference="numpy")
    except (EmitcError, OutOfTime) as error:
        trial.close("board", f"{trial.mode['board']}: {error}")
        return
    if not result.match:
        trial.close("board", f"{trial.mode['board']}: {result.differing_bytes} bytes differ")


def proven(trial: Trial, folder: Path) -> None:
    """The verdict of a trial whose C calls hardware, for which the host has a model: `emitc verify` runs it."""
    trial.facts["npu"] = True
    _decide(trial, folder, "wrong", "on the host model of the NPU")


def calls_hardware(trial: Trial) -> bool:
    """Whether the C calls what no batch can link."""
    return trial.compiled is not None and bool(trial.compiled.host_hooks())


def broken_rule(
    compiled: Compiled, actual: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], only_exact: bool = False
) -> str:
    """The first output that breaks its rule; "" where none does. only_exact: look at those alone that have no tolerance."""
    rule_of = tolerances_of(compiled)
    for number, (case, wanted) in enumerate(zip(actual, expected, strict=True)):
        for name, value, want in zip(compiled.graph.outputs, case, wanted, strict=True):
            if only_exact and not rule_of[name].exact:
                continue
            if np.size(want) != value.size:
                return f"case {number}: {compiled.graph.tensor(name).describe()} has {np.size(want)} elements in the engine"
            result = compared(value, np.asarray(want).reshape(value.shape), rule_of[name])
            if result.differing:
                many = f"{result.differing} of {value.size} elements of {compiled.graph.tensor(name).describe()}"
                return f"case {number}: {many} differ, by {result.largest:g} at most"
    return ""


def _decide(trial: Trial, folder: Path, kind: str, detail: str) -> None:
    """What `emitc verify` says of the graph on these inputs."""
    compiled = trial.compiled
    assert compiled is not None
    try:
        with limited(4 * SECONDS), tempfile.TemporaryDirectory(dir=folder) as scratch:
            vectors = Path(scratch) / "vectors.npz"
            named = {f"in{i}_{k}": value for k, case in enumerate(trial.inputs) for i, value in enumerate(case)}
            np.savez(vectors, allow_pickle=False, **named)
            reference = "numpy" if trial.engine == "numpy" else "auto"
            proof = verify(compiled, reference=reference, vectors=vectors, samples=0, layers=True)
    except OutOfTime:
        trial.close("slow", "the proof")
        return
    except EngineRefused as refusal:
        trial.close("wrong", f"{detail}; the proof: {refusal.why}")
        return
    except Exception:
        trial.close("crash", "in the proof: " + traceback.format_exc()[-1200:])
        return
    if proof.match and proof.reference == "mixed" and trial.engine == "litert":
        trial.facts["disputes"] = proof.disputes
        trial.close("engine fault", f"{'; '.join(proof.disputes)}; {detail}")
        return
    if proof.match:
        trial.close("numpy only" if proof.reference == "numpy" else "match", "judged operator by operator")
        trial.facts["groups"] = True
        return
    first = proof.first_divergence
    if trial.engine == "onnxruntime" and first is not None:
        fault = limited_reduction(compiled, trial.inputs, first.index) or rounded_sums(compiled, trial.inputs, proof)
        fault = fault or rounded_softmax(compiled, trial.inputs, proof)
        if fault:
            trial.facts["disputes"] = [f"op {first.index} {first.op}"]
            trial.close("engine fault", f"{fault}; {detail}")
            return
    if trial.engine == "litert" and first is not None:
        fault = undefined_power(compiled, trial.inputs, trial.expected)
        fault = fault or undefined_rounding(compiled, trial.inputs, trial.expected)
        if fault:
            trial.facts["disputes"] = [f"op {first.index} {first.op}"]
            trial.close("engine fault", f"{fault}; {detail}")
            return
    where = f"; first at op {json.dumps(first.to_json())}" if first is not None else ""
    broken = "; ".join(str(group) for group in proof.groups if not group.holds)
    trial.close(kind, detail + where + (f"; groups: {broken}" if broken else ""))


def tried(case: Case, mode: Mode, builds: Builds) -> Trial:
    """A single case from its bytes to its verdict."""
    trial = prepared(case, mode, builds.folder)
    if not trial.verdict and calls_hardware(trial):
        proven(trial, builds.folder)
    if not trial.verdict:
        assert trial.compiled is not None
        trial.item = Item(trial.compiled, trial.inputs)
        builds.run([trial.item])
        conclude(trial, builds.folder)
    return trial


def key_of(mapping: Mapping[str, Any]) -> str:
    """A mode as text."""
    return json.dumps(mapping, sort_keys=True)
