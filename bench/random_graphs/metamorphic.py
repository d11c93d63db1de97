"""Properties that need no engine: no option changes a bit, and neither do operators that change nothing.

    python -m bench.random_graphs.metamorphic --count N --seed S [--format tflite|onnx|both] [--out DIR]

Each graph is compiled with the default options, with several changed ones, and with identities inserted. The C of all of them is
built together with the sanitizers, and their outputs are compared bit by bit with those of the first. Graphs that differ are cut
down and kept in the folder.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.random_graphs.case import Case
from bench.random_graphs.formats import FORMATS, generate, rebuilt
from bench.random_graphs.identities import with_identities
from bench.random_graphs.inputs import draw_inputs
from bench.random_graphs.native import Builds, Item
from bench.random_graphs.shrink import shrink
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import Array
from emitc.kernels import registry
from emitc.options import Options
from emitc.passes import LATE_PASSES, PASSES
from emitc.planner.region_assignment import Region
from emitc.schedule.search import TECHNIQUES
from emitc.verify.operator_checks import has_operator_checks
from emitc.verify.tolerances import EXACT, Tolerance, compared, rules

IDENTITIES = "identities"
TARGET_OF = {"mve": "cortex-m55", "dsp": "cortex-m4", "fpu": "cortex-m4f"}
"""A core that has a feature, by the feature that variants of kernels ask for; generic32 for any other."""
BY_RULE = frozenset(("without tabulate-functions", "without fold-constants"))
"""Changes that move a function from a table or a constant to the core's math library, whose last bits are its own: floats that
come of it are compared by the rules of `emitc verify`."""
_CASES = 3
_CHUNK = 12


@dataclass(frozen=True, slots=True)
class Change:
    """Other options than the defaults. kind: for the count, as `without cancel-transposes`."""

    kind: str
    options: Options


def changes(compiled: Compiled) -> Iterator[Change]:
    """Every single option that changes what is printed for a model."""
    plain = Options()
    for name in (*(name for name, _ in (*PASSES, *LATE_PASSES)), *TECHNIQUES):
        if name == "recognise-qdq" and has_operator_checks(compiled.graph):
            continue  # float32 instead of integers is another rounding; the engine is what both are compared with
        yield Change(f"without {name}", replace(plain, disabled=frozenset({name})))
    known = registry()
    for node in compiled.graph.nodes:
        kernel = known.get(type(node.op))
        features = {variant.name: variant.feature for variant in kernel.variants} if kernel else {}
        for name, feature in features.items():
            target = TARGET_OF.get(feature, "generic32")
            for small in (False, True):
                options = replace(plain, target=target, variants=((node.index, name),))
                yield Change(f"kernel {name}", replace(options, optimize="size") if small else options)
    yield Change("ram-budget min", replace(plain, ram_budget="min"))
    for share in (25, 50, 75, 90):
        budget = max(1, compiled.program.plan.arena_bytes * share // 100)
        yield Change(f"ram-budget {share} %", replace(plain, ram_budget=budget))
    yield Change("optimize size", replace(plain, optimize="size"))
    half = max(64, compiled.program.plan.arena_bytes // 2)
    regions = (Region("FAST", half, 1.0), Region("SLOW", 16 << 20, 4.0))
    yield Change("regions", replace(plain, regions=regions))
    copied = replace(plain, regions=regions, stage_weights="FAST")
    yield Change("regions for weights", copied)
    yield Change("regions for weights, transfers", replace(copied, load_ahead=2.0))
    for target in ("cortex-m0", "cortex-m3", "cortex-m4", "cortex-m4f", "cortex-m33", "cortex-m55", "rv32imac"):
        yield Change(f"target {target}", replace(plain, target=target))
        yield Change(f"steps on {target}", replace(plain, target=target, max_step_cycles=1))
        yield Change(f"external weights on {target}", replace(plain, target=target, weights="external"))
    yield Change("steps", replace(plain, steps=True))
    yield Change("steps, ram-budget min", replace(plain, ram_budget="min", max_step_cycles=1))
    yield Change("steps, regions", replace(copied, max_step_cycles=1))
    yield Change("steps, transfers", replace(copied, load_ahead=2.0, max_step_cycles=1))
    for cycles in (1, 300, 5000):
        yield Change(f"steps of {cycles} cycles", replace(plain, max_step_cycles=cycles))


@dataclass
class Variation:
    """One more way to compile a graph, and what came of it. fault: "" for the same bits."""

    kind: str
    compiled: Compiled
    item: Item
    fault: str = ""


@dataclass
class Experiment:
    """A graph with its variations; the first one is the default. refused: kinds that it cannot have."""

    name: str
    inputs: list[tuple[Array, ...]]
    variations: list[Variation] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, kind: str, path: Path, options: Options) -> Compiled | None:
        """Compiles one more way; None where emitc refuses it."""
        name = f"{self.name}_{len(self.variations)}"
        try:
            compiled = compile_model(path, replace(options, name=name))
        except EmitcError as error:
            self.refused.append(f"{kind}: {re.sub('[0-9]+', 'N', error.what)}")
            return None
        self.variations.append(Variation(kind, compiled, Item(compiled, self.inputs)))
        return compiled

    def judge(self) -> list[Variation]:
        """Those that do not have the bits of the first."""
        first = self.variations[0].item
        for variation in self.variations:
            item = variation.item
            if item.fault is not None:
                variation.fault = f"{item.fault[0]}: {item.fault[1][:300]}"
            elif first.fault is None:
                graph, source_format = item.compiled.graph, item.compiled.source.format
                tolerances = rules(graph, source_format) if variation.kind in BY_RULE else {}
                by_output = [tolerances.get(name, EXACT) for name in graph.outputs]
                variation.fault = _difference(first.outputs, item.outputs, by_output)
        return [variation for variation in self.variations if variation.fault]


def _difference(
    expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]], by_output: Sequence[Tolerance]
) -> str:
    for number, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        for position, (a, b, rule) in enumerate(zip(wanted, got, by_output, strict=True)):
            if a.tobytes() != b.tobytes() and (rule.exact or compared(b, a, rule).differing):
                unequal = np.count_nonzero(a.view(np.uint8) != b.view(np.uint8)) if a.shape else 1
                return f"run {number}, output {position}: {unequal} of {a.nbytes} bytes differ"
    return ""


def drawn(candidates: Sequence[Change], rng: np.random.Generator, count: int) -> list[Change]:
    """Some of the changes, each kind as likely as any other."""
    kinds = sorted({change.kind for change in candidates})
    picked = [kinds[i] for i in rng.permutation(len(kinds))[:count]]
    return [
        [c for c in candidates if c.kind == kind][int(rng.integers(1 << 20)) % sum(c.kind == kind for c in candidates)]
        for kind in picked
    ]


def experiment(case: Case, folder: Path, count: int = 4, only: str = "") -> Experiment | None:
    """A random graph with the default options, some changed ones, and identities; None where emitc has no code for it.

    only: the one kind of change to make; "" for a random choice.
    """
    rng = np.random.default_rng([case.seed, case.index, 23])
    made = Experiment(f"g{case.index}", draw_inputs(case.description, rng, _CASES))
    path = folder / f"g{case.index}.{case.format}"
    path.write_bytes(case.model)
    compiled = made.add("default", path, Options())
    if compiled is None:
        return None
    candidates = list(changes(compiled))
    wanted = drawn(candidates, rng, count) if not only else [c for c in candidates if c.kind == only]
    for change in wanted:
        made.add(change.kind, path, change.options)
    if only in ("", IDENTITIES):
        changed = rebuilt(case.format, case.seed, case.index, with_identities(case.description, rng, case.format))
        path.write_bytes(changed.model)
        made.add(IDENTITIES, path, Options())
    return made


def run(experiments: Sequence[Experiment], builds: Builds) -> list[tuple[Experiment, Variation]]:
    """Builds and runs all variations; those at fault."""
    builds.run([variation.item for tried in experiments for variation in tried.variations])
    return [(tried, variation) for tried in experiments for variation in tried.judge()]


def shrunk(case: Case, kind: str, folder: Path) -> Case:
    """The smallest graph found that a change of this kind makes give other bits."""

    def fails(candidate: Case) -> bool:
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            try:
                made = experiment(candidate, Path(scratch), only=kind)
            except Exception:
                return False
            return made is not None and any(v.kind == kind for _, v in run([made], Builds(Path(scratch))))

    return shrink(case, fails, 60)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a graph gave other bits."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.random_graphs.metamorphic", description="No option changes a bit."
    )
    parser.add_argument("--count", type=int, default=200, help="graphs of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=(*FORMATS, "both"), default="both")
    parser.add_argument("--changes", type=int, default=4, help="changed options of each graph")
    parser.add_argument("--out", type=Path, help="folder for graphs that give other bits")
    options = parser.parse_args(arguments)
    counted: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    faults = 0
    began = time.monotonic()
    names = sorted(FORMATS) if options.format == "both" else [options.format]
    with tempfile.TemporaryDirectory(prefix="metamorphic-") as scratch:
        folder = Path(scratch)
        builds = Builds(folder)
        for name in names:
            for start in range(0, options.count, _CHUNK):
                cases = {
                    f"g{i}": generate(name, options.seed, i) for i in range(start, min(start + _CHUNK, options.count))
                }
                tried = [experiment(case, folder, options.changes) for case in cases.values()]
                made = [entry for entry in tried if entry is not None]
                wrong = run(made, builds)
                counted.update(v.kind for entry in made for v in entry.variations)
                refused.update(text for entry in made for text in entry.refused)
                for entry, variation in wrong:
                    faults += 1
                    print(f"{cases[entry.name].name}: {variation.kind}: {variation.fault}", flush=True)
                    if options.out:
                        options.out.mkdir(parents=True, exist_ok=True)
                        small = shrunk(cases[entry.name], variation.kind, folder)
                        base = f"{small.name.replace(':', '-')}-{variation.kind.replace(' ', '-')}"
                        (options.out / f"{base}.{name}").write_bytes(small.model)
                        print("   ", [node.op for node in small.description.nodes], flush=True)
    for kind, number in sorted(counted.items()):
        print(f"{number:6d} {kind}")
    for text, number in refused.most_common(12):
        print(f"{number:6d} refused: {text}")
    print(f"{counted['default']} graphs, {faults} at fault, {time.monotonic() - began:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
