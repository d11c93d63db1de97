"""Translation validation: whether the graph that is lowered still computes what the graph computed as it was built.

The numpy reference of every operator is evaluated on the graph as it was built, and again after every step that changes the
graph: passes, `--io`, `--input-rows`, the cutting of regions for accelerators, the passes after that, and all of these inside of
operators that run graphs. A step that changes a bit of a tensor that was there before it is named, with the operators concerned.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from emitc.compiled import Compiled
from emitc.errors import CannotCompile, Where, shown
from emitc.ir import Array, DType, Graph, GraphStep, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.shared.subgraph_reference import watched
from emitc.passes import BUILT, INTERFACE, LATE_PASSES, PASSES
from emitc.records import dataclass, field
from emitc.schedule.search import TECHNIQUES as OPTIONAL_TECHNIQUES
from emitc.validation.program import TECHNIQUES, execute_program
from emitc.validation.tolerance import Judge
from emitc.validation.values import Comparison, Executed, Faulty, Wrong, executed
from emitc.verify.reference import Sample, input_range, may_not_end, random_samples


@dataclass(slots=True)
class Chain:
    """Steps of one graph, the first of which is the graph as it was built. states: of each step, the variables' values."""

    steps: tuple[GraphStep, ...]
    states: list[dict[str, Array]] = field(default_factory=list)
    judges: dict[int, Judge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = [{} for _ in self.steps]

    @property
    def built(self) -> Graph:
        return self.steps[0].graph

    def run(self, inputs: Sample, source_format: str) -> list[Executed]:
        """One run of every graph of the chain, the next one of a sequence where there is state. Raises Faulty."""
        runs = [executed(self.built, inputs, self.states[0])]
        for place in range(1, len(self.steps)):
            before, step = self.steps[place - 1], self.steps[place]
            if step.graph is before.graph or step.graph == before.graph:
                self.states[place] = self.states[place - 1]
                runs.append(runs[-1])
                continue
            if place not in self.judges:
                self.judges[place] = Judge(step.name, before.graph, source_format)
            comparing = _Interface if step.name == INTERFACE else Comparison
            comparison = comparing(step.name, runs[-1], step.graph, self.states[place], self.judges[place])
            runs.append(comparison.compare())
        return runs


class _Interface(Comparison):
    """`--io`: an input or output may be the quantized tensor instead of the float one, if it has the same real values."""

    def ends(self) -> None:
        """Compares real values where the interface has another tensor than before."""
        pairs = list(zip(self.graph.inputs, self.old.graph.inputs, strict=True))
        pairs += list(zip(self.graph.outputs, self.old.graph.outputs, strict=True))
        for name, old in pairs:
            tensor, before = self.graph.tensor(name), self.old.graph.tensor(old)
            if name == old:
                continue
            if before.dtype is not DType.FLOAT32 or tensor.quantization is None or name not in self.known:
                self.fault(self._behind(name), tensor, -1, f"it is instead of {before.describe()}")
            count = tensor.elements - int(_stands_for(tensor, self.known[name], self.old.values[old]).sum())
            if count:
                self.fault(self._behind(name), tensor, count, f"it has other values than {before.describe()}")


def _stands_for(tensor: Tensor, stored_values: Array, real: Array) -> Array:
    """Which quantized elements are the nearest ones to real values."""
    q, (least, most) = tensor.quantization, tensor.dtype.range
    assert q is not None
    scales, zeros = (values.astype(np.float64) for values in q.spread(len(tensor.shape)))
    stored = stored_values.astype(np.float64).reshape(tensor.shape)
    exact = real.astype(np.float64).reshape(tensor.shape) / scales + zeros
    near = np.abs(stored - np.clip(exact, least, most)) <= 0.5 + 1e-3
    return np.asarray(near | ~np.isfinite(exact))


def chains(history: Sequence[GraphStep]) -> tuple[Chain, ...]:
    """The main graph's steps, and those of every graph inside of an operator, each under its own first graph."""
    main = tuple(step for step in history if not step.inside)
    parts: list[list[GraphStep]] = []
    latest: dict[
        tuple[str, ...], list[GraphStep]
    ] = {}  # of an inner graph; others are inside of it and come in between
    for step in (step for step in history if step.inside):
        if step.name == BUILT:
            latest[step.inside] = []
            parts.append(latest[step.inside])
        latest[step.inside].append(step)
    return (Chain(main), *(Chain(tuple(part)) for part in parts))


def compared_steps(chain: Chain) -> Iterator[GraphStep]:
    for before, step in zip(chain.steps, chain.steps[1:], strict=False):
        if step.graph is not before.graph and step.graph != before.graph:
            yield step


__all__ = ["Validation", "Wrong", "validate", "validate_steps", "validate_unasked", "wrong_step"]

_RANDOM = 4
"""Random inputs of a graph inside of an operator that never runs."""
PROGRAM_RUNS = 1
"""Runs of the program on bytes, which are random ones: its faults do not depend on the values."""
_OPTIONAL = frozenset((*(name for name, _ in (*PASSES, *LATE_PASSES)), *OPTIONAL_TECHNIQUES))
"""What `--without` switches off."""
_CAPTURED = 8
"""Runs of a graph inside of an operator that are repeated after every pass inside."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What was found. passes_checked: steps that were enabled, whether they changed the graph or not. changed: names of those
    that did, whose values were compared. runs: sets of inputs. wrong: the first step that is wrong.
    """

    passes_checked: int
    changed: tuple[str, ...]
    runs: int
    wrong: Wrong | None = None

    @property
    def right(self) -> bool:
        return self.wrong is None

    def to_json(self) -> dict[str, Any]:
        return {
            "passes_checked": self.passes_checked,
            "first_wrong_pass": None if self.wrong is None else self.wrong.to_json(),
        }

    def text(self) -> str:
        """One line for a person."""
        if self.wrong is not None:
            ops = ", ".join(shown(op) for op in self.wrong.ops)
            return f"wrong: {self.wrong.step} at {ops or 'the interface'}, {shown(self.wrong.tensor)}"
        return f"{self.passes_checked} steps give what the graph gave as it was built ({self.runs} inputs)"


class _Captured:
    """The inputs that graphs inside of operators have got, by the graph's identity."""

    def __init__(self, wanted: Sequence[Graph]) -> None:
        self._runs: dict[int, list[Sample]] = {id(graph): [] for graph in wanted}

    def __call__(self, graph: Graph, inputs: Sequence[Array | None]) -> None:
        runs = self._runs.get(id(graph))
        if runs is not None and len(runs) < _CAPTURED and all(value is not None for value in inputs):
            runs.append(tuple(value for value in inputs if value is not None))

    def of(self, graph: Graph) -> list[Sample]:
        return self._runs[id(graph)]


@dataclass(slots=True)
class _First:
    """The first wrong step so far: where it stands in its chain, and what is wrong."""

    place: int = 0
    wrong: Wrong | None = None

    def note(self, wrong: Wrong, order: Sequence[str]) -> None:
        """Takes a fault, if no step before it is wrong."""
        place = order.index(wrong.step)
        if self.wrong is None or place < self.place:
            self.place, self.wrong = place, wrong


def validate(compiled: Compiled, kinds: Sequence[str] | None = None, samples: int = 0, seed: int = 0) -> Validation:
    """Evaluates every step of a compilation on inputs at the ends of their ranges (`kinds`) and on `samples` random ones.

    kinds: None for as many inputs as a proof takes. Raises CannotCompile where no input ends the loops of the graph as it was
    built.
    """
    if kinds is None:
        kinds, samples = thorough_inputs(compiled.history[0].graph)
    cases = validation_inputs(compiled.history[0].graph, samples, seed, kinds)
    return validate_steps(compiled.history, compiled.source.format, cases, partial(execute_program, compiled))


def validate_steps(
    history: Sequence[GraphStep],
    source_format: str,
    cases: Sequence[Sample],
    execute: Callable[[Executed], None] | None = None,
) -> Validation:
    """The same for a list of steps and given inputs. execute: what is done with the first runs of the last graph."""
    every = chains(history)
    main, inner = every[0], every[1:]
    order = [step.name for chain in every for step in chain.steps] + list(TECHNIQUES)
    captured = _Captured([chain.built for chain in inner])
    first, runs = _First(), 0
    endless: CannotCompile | None = None
    for inputs in cases:
        try:
            with watched(captured):
                values = main.run(inputs, source_format)
            runs += 1
            if execute is not None and runs <= PROGRAM_RUNS:
                execute(values[-1])
        except Faulty as fault:
            runs += 1
            first.note(fault.wrong, order)
        except CannotCompile as error:
            endless = error
    if not runs and endless is not None:
        raise endless
    for chain in inner:
        _inside(chain, captured.of(chain.built), source_format, first, order)
    changed = tuple(dict.fromkeys(step.name for chain in every for step in compared_steps(chain)))
    return Validation(len(main.steps) - 1, changed, runs, first.wrong)


def _inside(chain: Chain, cases: Sequence[Sample], source_format: str, first: _First, order: Sequence[str]) -> None:
    """Validates the steps of a graph inside of an operator: on what it has got, or where it never ran, on inputs of its own."""
    if not any(compared_steps(chain)):
        return
    for inputs in cases or validation_inputs(chain.built, _RANDOM):
        try:
            chain.run(inputs, source_format)
        except Faulty as fault:
            first.note(fault.wrong, order)
        except (CannotCompile, IndexError):
            if cases:
                raise
            # Inputs that were made up may ask for an element that is not there, or for a loop without end.


def validate_unasked(compiled: Compiled) -> Validation | None:
    """What a compilation checks of itself; None for a model that takes too long for that."""
    chosen = default_inputs(compiled.history[0].graph)
    return None if chosen is None else validate(compiled, *chosen)


def wrong_step(compiled: Compiled, wrong: Wrong) -> CannotCompile:
    """An error that names the step, operators, tensor and number of differing elements."""
    ops = ", ".join(wrong.ops)
    extent = f"{wrong.differing} elements of its output differ" if wrong.differing >= 0 else "the interface differs"
    option = f"--without {wrong.step}" if wrong.step in _OPTIONAL else "another option"
    return CannotCompile(
        f"{wrong.step} has changed what the model computes",
        Where(model=compiled.program.origin.model_file, op=ops, tensor=wrong.tensor),
        f"{extent} from those of the graph as it was built: {wrong.why}",
        f"compile with {option}, and report the model: this is a fault of emitc",
    )


BOUNDARIES = ("least", "largest", "zero", "alternating")
_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-3, -1e-3, 1e-30, -1e-30, 1e-40, -1e-40)
"""Floats at which functions and roundings turn; the last two are denormal."""


def _boundary(graph: Graph, tensor: Tensor, kind: str) -> Array:
    least, largest = input_range(graph, tensor)
    if kind == "zero":
        zero: float = tensor.quantization.zero_point if tensor.quantization else 0
        if tensor.dtype in _FLOATS:
            values = np.resize(np.array([v for v in _EDGES if least <= v <= largest] or [least]), tensor.elements)
        else:
            values = np.full(tensor.elements, min(max(zero, least), largest))
    elif kind == "alternating":
        values = np.resize(np.array([least, largest]), tensor.elements)
    else:
        values = np.full(tensor.elements, least if kind == "least" else largest)
    return values.reshape(tensor.shape).astype(tensor.dtype.value)


def validation_inputs(graph: Graph, count: int, seed: int = 0, kinds: Sequence[str] = BOUNDARIES) -> list[Sample]:
    ports = [graph.tensor(name) for name in graph.inputs]
    boundaries = [tuple(_boundary(graph, tensor, kind) for tensor in ports) for kind in kinds]
    return [*boundaries, *random_samples(graph, count, seed)]


_PER_ELEMENT, _PER_NODE = 60, 100_000
"""Of the reference, in steps of an operator's `work`: fitted to the time that the corpus takes."""
_ALL, _SOME = 10_000_000, 60_000_000
"""Effort of one set of inputs up to which all kinds are taken by default, and up to which two are."""

FEW: tuple[tuple[str, ...], int] = (BOUNDARIES[-1:], 1)
"""The kinds of inputs at the ends of their ranges, and the number of random ones, that a large graph gets."""


def effort(graph: Graph) -> int:
    """Steps that the references take for one set of inputs, about."""
    bound = list(graph.bound())
    elements = sum(tensor.elements for node in bound for tensor in node.outputs)
    return (
        sum(kernel_of(operator).work(operator) for operator in bound) + _PER_ELEMENT * elements + _PER_NODE * len(bound)
    )


def default_inputs(graph: Graph) -> tuple[tuple[str, ...], int] | None:
    """What a compilation takes unasked. None for a graph that takes too long for that, or has a loop that may not end."""
    products = effort(graph)
    if products > _SOME or may_not_end(graph):
        return None
    return (BOUNDARIES, 2) if products <= _ALL else FEW


def thorough_inputs(graph: Graph) -> tuple[tuple[str, ...], int]:
    """What a proof takes, and a compilation that is asked for it."""
    return (BOUNDARIES, 6) if effort(graph) <= _SOME else FEW
