"""Whether translation validation names the pass or technique that is wrong, for deliberate faults of each.

    python -m bench.mutants                                 ten faults of each pass and technique; fails where one is missed
    python -m bench.mutants --only=fold-pad,views           of some of them
    python -m bench.mutants --json bench/results_mutants.json --markdown bench/mutants.md

A fault of a pass is its graph with one thing wrong where the pass has changed something (`graph_mutants`). The graph has to be
one that `verify_graph` accepts, and the passes that follow run on it. Faults that change no bit of an output on 40 sets of
inputs are replaced by others: `without_effect` counts them. A fault of a technique is the finished program with one offset,
pointer, moment, size or row wrong (`program_mutants`). Faults are taken in turn from each kind, in a fixed order.

`named`: validation finds the fault and names the step. `misnamed`: it names another one. `missed`: it finds nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.graph_mutants import GraphMutant, mutants_of
from bench.mutant_models import written
from bench.output import write_json
from bench.program_mutants import TECHNIQUE_MODELS, program_mutants
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import Array, Graph, GraphStep
from emitc.passes import CUT, INNER, INTERFACE, LATE_PASSES, PASSES, ROWS
from emitc.passes.verify_graph import verify_graph
from emitc.validation import Validation, validate, validate_steps, validation_inputs
from emitc.verify.reference import Sample, random_samples, run_reference

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "models"
COUNT = 10
_ORACLE = 40
_TRIED = 400
"""Faults of a pass in one graph that are looked at."""

_NPU: dict[str, Any] = {
    "target": "cortex-m55",
    "cpu_only": ("ADD",),
    "backends": {"npu": "ethos-u55-128", "npu-always": "yes"},
}

PASS_MODELS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "cancel-transposes": (("digits_qdq.onnx", {}), ("digits_qoperator.onnx", {})),
    "recognise-qdq": (("digits_qdq.onnx", {}),),
    "absorb-transposes": (("digits_qdq.onnx", {}), ("digits_qoperator.onnx", {})),
    "fold-constants": (("layers.tflite", {}),),
    "inline-branches": (("layers.tflite", {}),),
    "tabulate-functions": (("floats.onnx", {}),),
    "drop-dead": (("layers.tflite", {}), ("mww_hey_jarvis_v2.tflite", {})),
    "alias-views": (("layers.tflite", {}), ("mww_hey_jarvis_v2.tflite", {})),
    "fold-bias": (("floats.onnx", {}),),
    "fuse-activation": (("layers.tflite", {}), ("floats.onnx", {})),
    "fold-pad": (("layers.tflite", {}),),
    "drop-constant-channels": (("layers.tflite", {}),),
    "fold-zero-point": (("layers.tflite", {}), ("digits_int8.tflite", {})),
    "state-in-place": (("mww_hey_jarvis_v2.tflite", {}),),
    INTERFACE: (("digits_qdq.onnx", {"io": "int8"}), ("digits_qoperator.onnx", {"io": "int8"})),
    ROWS: (("digits_int8.tflite", {"input_rows": True}),),
    INNER: (("branches.tflite", {}),),
    CUT: (("digits_int8.tflite", _NPU), ("parts.tflite", _NPU)),
}
"""Models, with options, on which a pass does something."""


@dataclass(slots=True)
class Result:
    """What became of the faults of one pass or technique."""

    name: str
    named: int = 0
    misnamed: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    without_effect: int = 0
    kinds: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Faults that were tried."""
        return self.named + len(self.misnamed) + len(self.missed)

    def note(self, what: str, kind: str, validation: Validation) -> None:
        """Counts a fault."""
        self.kinds.append(kind)
        if validation.wrong is None:
            self.missed.append(what)
        elif validation.wrong.step != self.name:
            self.misnamed.append(f"{validation.wrong.step} named ({validation.wrong.why}): {what}")
        else:
            self.named += 1

    def to_json(self) -> dict[str, Any]:
        """For the results file."""
        return {
            "faults": self.count,
            "named": self.named,
            "misnamed": self.misnamed,
            "missed": self.missed,
            "without_effect": self.without_effect,
            "kinds": sorted(set(self.kinds)),
        }


def in_turn(mutants: Sequence[Any]) -> Iterator[Any]:
    """Faults of all kinds in turn, each kind in its order; within a kind those far from each other first."""
    kinds: dict[str, list[Any]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.kind, []).append(mutant)
    for members in kinds.values():
        np.random.default_rng(len(members)).shuffle(members)
    while kinds:
        for kind in list(kinds):
            yield kinds[kind].pop()
            if not kinds[kind]:
                del kinds[kind]


def _outputs(graph: Graph, cases: Sequence[Sample]) -> list[bytes]:
    state: dict[str, Array] = {}
    outputs = []
    for inputs in cases:
        with np.errstate(all="ignore"):
            values = run_reference(graph, inputs, state)
        outputs.append(b"".join(np.ascontiguousarray(values[name]).tobytes() for name in graph.outputs))
    return outputs


def _is_legal(graph: Graph) -> bool:
    try:
        verify_graph(graph)
    except (AssertionError, EmitcError, ValueError, IndexError, KeyError, TypeError, ZeroDivisionError):
        return False
    return True


def _continued(compiled: Compiled, name: str, mutant: Graph) -> tuple[GraphStep, ...] | None:
    """The steps with the fault in the one of that name, and the passes that follow done anew; None where one does not take it."""
    steps = [step for step in compiled.history if not step.inside]
    place = _place(compiled, name)
    later = dict((*PASSES, *LATE_PASSES))
    made, graph = [*steps[:place], replace(steps[place], graph=mutant)], mutant
    try:
        for before, step in zip(steps[place:], steps[place + 1 :], strict=False):
            if step.graph is not before.graph and step.name in later:
                graph = later[step.name](graph)
                verify_graph(graph)
            elif step.graph is not before.graph:
                break  # a step that options ask for: the fault is in front of it
            made.append(replace(step, graph=graph))
    except (AssertionError, EmitcError, ValueError, IndexError, KeyError):
        return None
    return tuple(made)


def _place(compiled: Compiled, name: str) -> int:
    """Where the step of that name changes the main graph."""
    steps = [step for step in compiled.history if not step.inside]
    pairs = enumerate(pairwise(steps), 1)
    return next(i for i, (before, step) in pairs if step.name == name and step.graph is not before.graph)


def faults_of(compiled: Compiled, name: str, result: Result, most: int) -> None:
    """Tries faults of one pass in one model until there are `most`."""
    steps = [step for step in compiled.history if not step.inside]
    place = _place(compiled, name)
    before, after = steps[place - 1].graph, steps[place].graph
    pairs = _inner(before, after) if name == INNER else [(before, after, lambda graph: graph)]
    tried: list[GraphMutant] = []
    for old, new, outer in pairs:
        tried += [replace(m, graph=outer(m.graph)) for m in mutants_of(old, new) if name != INNER or _is_legal(m.graph)]
    cases = random_samples(after, _ORACLE, 77)
    expected = _outputs(after, cases)
    inputs = validation_inputs(compiled.history[0].graph, 6)
    seen = 0
    for mutant in in_turn(tried):
        seen += 1
        if result.count >= most or seen > _TRIED:
            return
        if not _is_legal(mutant.graph):
            continue
        history = _continued(compiled, name, mutant.graph)
        if history is None:
            continue
        try:
            if name != INTERFACE and _outputs(mutant.graph, cases) == expected:
                result.without_effect += 1
                continue
        except (AssertionError, ValueError, IndexError, EmitcError):
            pass  # it cannot even be evaluated
        result.note(
            f"{mutant.kind}: {mutant.what}", mutant.kind, validate_steps(history, compiled.source.format, inputs)
        )


def _inner(before: Graph, after: Graph) -> list[tuple[Graph, Graph, Callable[[Graph], Graph]]]:
    """The graphs inside of operators, before and after, and how one of them gets into the whole."""
    steps: list[tuple[Graph, Graph, Callable[[Graph], Graph]]] = []
    for old, new in zip(before.nodes, after.nodes, strict=True):
        for number, (a, b) in enumerate(zip(getattr(old.op, "graphs", ()), getattr(new.op, "graphs", ()), strict=True)):
            if a == b:
                continue

            def outer(graph: Graph, new: Any = new, number: int = number) -> Graph:
                graphs = (*new.op.graphs[:number], graph, *new.op.graphs[number + 1 :])
                node = replace(new, op=replace(new.op, graphs=graphs))
                return replace(after, nodes=tuple(node if member is new else member for member in after.nodes))

            steps.append((a, b, outer))
    return steps


def pass_result(name: str, models: dict[str, Path], most: int = COUNT) -> Result:
    """The faults of one pass, shared among its models."""
    result = Result(name)
    for number, (model, options) in enumerate(PASS_MODELS[name], 1):
        share = most * number // len(PASS_MODELS[name])
        faults_of(_compiled(models[model], tuple(sorted(options.items(), key=lambda kv: kv[0]))), name, result, share)
    return result


def _compiled(path: Path, options: tuple[tuple[str, Any], ...]) -> Compiled:
    return compile_model(path, **dict(options))


def technique_result(name: str, models: dict[str, Path], most: int = COUNT) -> Result:
    """The faults of one technique, shared among its models."""
    result = Result(name)
    wanted = TECHNIQUE_MODELS[name]
    for number, (model, options) in enumerate(wanted, 1):
        compiled = _compiled(models[model], tuple(options.items()))
        assert validate(compiled, ("alternating",), 1).right
        for mutant in in_turn(list(program_mutants(name, compiled.program))):
            if result.count >= most * number // len(wanted):
                break
            validation = validate(replace(compiled, program=mutant.program), ("alternating",), 1)
            result.note(f"{model}: {mutant.kind}: {mutant.what}", mutant.kind, validation)
    return result


def all_models(folder: Path) -> dict[str, Path]:
    """Made and shipped models by name."""
    shipped = {path.name: path for path in EXAMPLES.iterdir() if path.suffix in (".tflite", ".onnx")}
    return shipped | written(folder)


def names() -> tuple[str, ...]:
    """Passes, steps and techniques."""
    return (*PASS_MODELS, *TECHNIQUE_MODELS)


def run(wanted: Sequence[str], most: int = COUNT) -> list[Result]:
    """The results of the passes and techniques of these names."""
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        models = all_models(Path(folder))
        return [
            pass_result(name, models, most) if name in PASS_MODELS else technique_result(name, models, most)
            for name in wanted
        ]


def markdown(results: Sequence[Result]) -> str:
    """A table of the results."""
    rows = [
        (
            r.name,
            str(r.count),
            str(r.named),
            str(len(r.misnamed)),
            str(len(r.missed)),
            str(r.without_effect),
            ", ".join(sorted(set(r.kinds))),
        )
        for r in results
    ]
    columns = ("pass or technique", "faults", "named", "misnamed", "missed", "without effect, replaced", "kinds")
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(names()), help="names with commas between them")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := set(wanted) - set(names()):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(names())}")
    results = run(wanted, arguments.count)
    print(markdown(results))
    for result in results:
        for what in (*result.misnamed, *result.missed):
            print(f"{result.name}: {what}")
    write_json(arguments.json, {r.name: r.to_json() for r in results})
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results), encoding="utf-8")
    return 0 if all(r.named == r.count >= arguments.count for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
