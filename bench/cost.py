"""How close `emitc.cost` comes to what boards count, how long it takes, and the counts that it is made from.

    python -m bench.cost [--boards qemu_m4] [--json FILE]   the errors of every model that was counted
    python -m bench.cost --measure qemu_m4 MODEL...         counts models, adds them to the stored counts
    python -m bench.cost --renew qemu_m4 --kernels 'matrix_dsp|row_' --fit
                                                            counts models with such a kernel, or with other kernels than before
    python -m bench.cost --fit                              writes emitc/explore/kernel_counts.json

bench/results_kernel_counts.json has the counts: of each model the instructions and layers, and the sizes of its image.
Models are of the corpus next to the checkout (../shared/models), or `drawn_SEED` of `bench.networks.cost`; every third of
the drawn ones from seed 60 on is kept out of the fit, so that its error is that of a network which the counts do not
have. A model NAME+flash is NAME with a budget of flash for all faster kernels. A model with layers that run by rows is
counted twice, the second time without, for its layers. Seconds are of CPU time.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from bench.corpus import CORPUS
from bench.least_squares import anchored_fit, relative_fit, weighted_fit
from bench.networks.cost import draw
from emitc.backends.partition import Partition
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model, plan_model
from emitc.errors import EmitcError
from emitc.explore.cost import cost, overhead_of
from emitc.explore.kernel_counts import FILE, code_parts, constant_parts, family, stem
from emitc.explore.layer_cycles import Work, layer_works
from emitc.program import Program
from emitc.report.tables import table
from emitc.target import load_board, load_target
from emitc.writers.tflite import write_tflite

COUNTS = Path(__file__).resolve().parent / "results_kernel_counts.json"
RESULTS = Path(__file__).resolve().parent / "results_cost.json"
TARGETS = {
    "qemu_m4": ("cortex-m4f", "cortex-m4", "cortex-m33", "cortex-m7"),
    "qemu_m55": ("cortex-m55", "cortex-m85"),
    "qemu_m0_big": ("cortex-m0", "cortex-m0plus"),
    "qemu_m3": ("cortex-m3",),
    "qemu_rv32": ("rv32imac",),
}
"""Targets with the same kernels and nearly the same instructions, by the board that counts. The first is the board's
own."""
_LIKE = {"qemu_m55": "qemu_m4", "qemu_m3": "qemu_m0_big", "qemu_m0_big": "qemu_m3", "qemu_rv32": "qemu_m3"}
"""The board whose counts are taken for kernels that a board has not counted."""
_PRIORS = (1e-3, 0.03, 0.1)
"""Weights of the prior of stems, families and kernels: 0.1 is that of a tenth of a count."""
FLASH = "+flash"
"""At the end of a model that is counted with all the flash that its kernels take."""
_TRACED = 4
"""Instructions around a layer where layers are counted, which a model has not otherwise."""
_ROUNDS = 6
"""Fits with the counts of segments, each split as the fit before it says."""
_LEAST = 1000
"""Instructions of a model from which its cycles are taken."""
_CODE_PRIOR = {"kernel": 1.0, "family": 0.5, "stem": 0.2, "alone": 0.3, "shared": 0.3, "more": 0.3}
"""How dear bytes of code are that one kernel has alone, against those that many share."""
_CONSTANT_ANCHORS = {"params": (1.0, 8.0), "tables": (0.0, 3.0)}
"""Parameters are kept mostly, and most kernels have no table of the runtime; see `anchored_fit`."""
Row = dict[str, Any]
Layers = list[tuple[str, dict[str, float], float]]
Segment = tuple[list[Work], float]
Counts = list[tuple[dict[str, float], float, float]]
"""Of a kernel: work, count, and the count that an error is a share of."""


def options_of(model: str) -> dict[str, Any]:
    """What a model is compiled with."""
    return {"flash_budget": 1 << 24} if model.endswith(FLASH) else {}


def drawn(model: str) -> int:
    """The seed of a network of `bench.networks.cost`, -1 for other models."""
    return int(model.removeprefix("drawn_")) if model.startswith("drawn_") else -1


def held_out(model: str) -> bool:
    """Whether a model is kept out of the fit."""
    return drawn(model) >= 60 and drawn(model) % 3 == 0


@dataclass(frozen=True, slots=True)
class Places:
    """corpus: the folder of models. drawn: a folder for those of `bench.networks.cost`."""

    corpus: Path
    drawn: Path

    def file_of(self, model: str) -> Path:
        """The model's file; a drawn one is written first."""
        if drawn(model) < 0:
            return self.corpus / model.removesuffix(FLASH)
        path = self.drawn / f"{model}.tflite"
        if not path.is_file():
            path.write_bytes(write_tflite(draw(drawn(model))))
        return path


def measured(model: str, board: str, places: Places) -> Row:
    """What a board counts of a model."""
    target, path, more = load_board(board).target, places.file_of(model), options_of(model)
    compiled = compile_model(path, target=target, package="platformio", **more)
    row: Row = {"model": model, "board": board, "plan": plan_of(compiled.program)}
    by_rows = bool(compiled.program.segments)
    settings: dict[str, Any] = {"reference": "numpy", "samples": 1, "seed": 0, "workdir": None}
    try:
        run = layered = on_emulator(compiled, board, layers=True, **settings)
        if by_rows:
            whole = compile_model(path, target=target, package="platformio", disabled=frozenset({"streaming"}), **more)
            layered = on_emulator(whole, board, layers=True, **settings)
    except EmitcError as error:
        return row | {"refused": error.what}
    row |= {
        "instructions": run.count,
        "whole": layered.count,
        "cycles": round(run.estimate.zero_wait.cycles) if run.estimate else 0,
        "code": run.code_bytes,
        "constants": run.constant_bytes,
        "layers": [[layer.index, layer.count] for layer in layered.layers or ()],
    }
    return row | {"stages": [[layer.index, layer.count] for layer in run.layers or ()]} if by_rows else row


def plan_of(program: Program) -> str:
    """What tells programs of other kernels or schedules apart."""
    row_calls = sum(len(segment.calls) for segment in program.segments)
    text = json.dumps([[step.kernel for step in program.every_step], row_calls])
    return sha256(text.encode()).hexdigest()[:8]


def outdated(rows: Sequence[Row], pattern: str, places: Places) -> Iterator[str]:
    """Models that have other kernels than when they were counted, or a kernel that `pattern` is found in."""
    for row in rows:
        target, more = load_board(row["board"]).target, options_of(row["model"])
        _, program = plan_model(places.file_of(row["model"]), target=target, **more)
        named = pattern and any(re.search(pattern, step.kernel) for step in program.every_step)
        if named or row.get("plan", "") != plan_of(program):
            yield row["model"]


def stored() -> list[Row]:
    """The counts."""
    rows: list[Row] = json.loads(COUNTS.read_text(encoding="utf-8"))["rows"] if COUNTS.is_file() else []
    return rows


def write_counts(rows: Sequence[Row]) -> None:
    """Writes the counts."""
    ordered = sorted(rows, key=lambda row: (row["board"], row["model"]))
    write_rows(COUNTS, "instructions, layers and sizes of models on emulated boards", ordered)


def write_rows(path: Path, what: str, rows: Sequence[Row]) -> None:
    """Writes a file of results, one row a line."""
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text(f'{{"what":"{what}","rows":[\n{lines}\n]}}\n', encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Counted:
    """A counted model. layers: kernels with their work and count. segments: layers that run by rows, with the count of all
    together. kernels, params: of the default plan's layers, how many parameters each has. row_calls: layers that run by
    rows. tables: bytes of its own constants."""

    layers: Layers
    segments: list[Segment]
    kernels: list[str]
    params: list[int]
    row_calls: int
    tables: int


def works(row: Row, places: Places) -> Counted:
    """What the fit needs to know of a counted model."""
    target, path, more = load_board(row["board"]).target, places.file_of(row["model"]), options_of(row["model"])
    partition, default = plan_model(path, target=target, **more)
    by_rows = {call.step.index for segment in default.segments for call in segment.calls}
    row_calls = sum(len(segment.calls) for segment in default.segments)
    layers: Layers = []
    segments = []
    if by_rows:
        stages = dict(row.get("stages", ()))
        alone = {index: count - _TRACED for index, count in stages.items() if index not in by_rows and count > _TRACED}
        layers += _counted(partition, default, alone)
        segments = _segments(partition, default, stages)
        partition, whole = plan_model(path, target=target, disabled=frozenset({"streaming"}), **more)
        layers += _counted(partition, whole, _untraced(row))
    else:
        layers += _counted(partition, default, _untraced(row))
    steps = list(default.every_step)
    params = [len(step.params) for step in steps]
    return Counted(layers, segments, [step.kernel for step in steps], params, row_calls, default.constant_bytes)


def _untraced(row: Row) -> dict[int, float]:
    """The layers' counts as parts of the count of all: a compiler may inline otherwise where layers are counted one by one."""
    counts = {index: count - _TRACED for index, count in row["layers"] if count > _TRACED}
    return {index: count * row["whole"] / sum(counts.values()) for index, count in counts.items()}


def _counted(partition: Partition, program: Program, counts: Mapping[int, float]) -> Layers:
    """The layers of a program with their work, as far as they have a count."""
    known = layer_works(partition, program)
    return [(*known[index], count) for index, count in counts.items() if index in known]


def _segments(partition: Partition, program: Program, counts: Mapping[int, int]) -> list[Segment]:
    """The segments of a program with what their layers take together. The overhead of the schedule is taken off."""
    known = layer_works(partition, program)
    members = [[call.step.index for call in segment.calls] for segment in program.segments]
    total = sum(counts.get(indices[-1], 0) for indices in members)
    share = 1 - min(0.5, overhead_of(partition, program) / total) if total else 0.0
    return [
        ([known[index] for index in indices], counts[indices[-1]] * share)
        for indices in members
        if indices[-1] in counts and all(index in known for index in indices)
    ]


class Coefficients:
    """The fit of counted layers: coefficients by kernels, by families and by stems.

    segments: layers with a count of all together. before: the fit of the round before, which says what part of it a kernel has.
    """

    def __init__(self, layers: Layers, segments: Sequence[Segment] = (), before: Coefficients | None = None) -> None:
        groups: tuple[dict[str, Counts], ...] = (defaultdict(list), defaultdict(list), defaultdict(list))
        for kernel, work, count in layers:
            for group, name in zip(groups, _names(kernel), strict=True):
                group[name].append((work, count, count))
        self.layers = {name: len(counts) for name, counts in sorted(groups[2].items())}
        if before is not None:
            for (members, whole), (level, group) in product(segments, enumerate(groups)):
                for name, part in before.shares(members, whole, level):
                    group[name].append((*part, whole))
        self.stems = {name: relative_fit(rows, {}, _PRIORS[0]) for name, rows in groups[0].items()}
        self.families = {
            name: relative_fit(rows, self.stems[stem(name)], _PRIORS[1]) for name, rows in groups[1].items()
        }
        self.kernels = {
            name: relative_fit(rows, self.families[family(name)], _PRIORS[2]) for name, rows in groups[2].items()
        }

    def of(self, kernel: str, work: Mapping[str, float]) -> float:
        """Instructions of a layer, 0 where none of its kind was counted."""
        coefficients = (
            self.kernels.get(kernel) or self.families.get(family(kernel)) or self.stems.get(stem(kernel)) or {}
        )
        return sum(value * work.get(name, 0.0) for name, value in coefficients.items())

    def shares(
        self, members: list[Work], count: float, level: int
    ) -> Iterator[tuple[str, tuple[dict[str, float], float]]]:
        """By the names of a level, the work of a segment's layers and their part of its count, which is that of the estimate."""
        works: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        estimates: dict[str, float] = defaultdict(float)
        for kernel, work in members:
            name = _names(kernel)[level]
            for term, value in work.items():
                works[name][term] += value
            estimates[name] += self.of(kernel, work)
        for name, work in works.items():
            yield name, (dict(work), count * estimates[name] / max(1.0, sum(estimates.values())))


def _names(kernel: str) -> tuple[str, str, str]:
    return stem(kernel), family(kernel), kernel


def fitted(rows: Sequence[Row], board: str, places: Places) -> Row:
    """What `kernel_counts.json` has for a board."""
    layers, segments, sizes, constants, cycles, ratios = [], [], [], [], [], []
    for row in rows:
        counted = works(row, places)
        layers += counted.layers
        segments += counted.segments
        sizes.append((code_parts(counted.kernels, counted.row_calls), row["code"]))
        constants.append((constant_parts(counted.kernels, counted.params), row["constants"] - counted.tables))
        if row["cycles"] and row["instructions"] > _LEAST and row["whole"] == row["instructions"]:
            parts: dict[str, float] = defaultdict(float)
            for kernel, _, count in counted.layers:
                parts[stem(kernel)] += count
            cycles.append((dict(parts), row["cycles"], row["cycles"]))
            ratios.append(row["cycles"] / row["instructions"])
    fit = Coefficients(layers)
    for _ in range(_ROUNDS):
        fit = Coefficients(layers, segments, fit)
    mean = statistics.mean(ratios) if ratios else 0.0
    return {
        "targets": TARGETS[board],
        "like": _LIKE.get(board, ""),
        "models": len(rows),
        "layers": fit.layers,
        "cycles_per_instruction": round(mean, 4),
        "cycles": relative_fit(cycles, dict.fromkeys(fit.stems, mean), _PRIORS[1]) if cycles else {},
        "kernels": dict(sorted(fit.kernels.items())),
        "families": {name: fit.families[name] for name in sorted(fit.families) if name not in fit.kernels},
        "stems": {name: fit.stems[name] for name in sorted(fit.stems) if name not in fit.families},
        "code": weighted_fit(sizes, lambda name: _CODE_PRIOR.get(name.partition(" ")[0], 0.0)),
        "constants": anchored_fit(constants, lambda name: _CONSTANT_ANCHORS.get(name.partition(" ")[0], (0.0, 0.0))),
    }


def fit(rows: Sequence[Row], places: Places) -> None:
    """Writes kernel_counts.json from the counts of every board."""
    content: dict[str, Any] = {
        "what": "instructions of a turn by kernel, bytes of code: python -m bench.cost --fit",
        "source": "bench/results_kernel_counts.json, counted by QEMU on the boards named here",
        "boards": {},
    }
    for board in dict.fromkeys(row["board"] for row in rows):
        own = [row for row in rows if row["board"] == board and "code" in row and not held_out(row["model"])]
        content["boards"][board] = fitted(own, board, places)
    FILE.write_text(json.dumps(content, indent=0, sort_keys=False) + "\n", encoding="utf-8")


def errors(rows: Sequence[Row], places: Places) -> Iterator[Row]:
    """What `emitc.cost` says of each counted model, and how far that is from the count."""
    for row in rows:
        if "code" not in row:
            continue
        path = places.file_of(row["model"])
        target = load_board(row["board"]).target
        start = time.process_time()
        estimate = cost(path, target, **options_of(row["model"]))
        seconds = time.process_time() - start
        yield {
            "model": row["model"],
            "board": row["board"],
            "held_out": held_out(row["model"]),
            "instructions": row["instructions"],
            "error": round(estimate.instructions / max(1, row["instructions"]) - 1, 4),
            "cycles_error": round(estimate.cycles / row["cycles"] - 1, 4) if row["cycles"] else 0.0,
            "counted": round(estimate.counted, 3),
            "code_error": round(estimate.code_bytes / max(1, row["code"]) - 1, 4),
            "constants_error_bytes": estimate.constant_bytes - row["constants"],
            "flash_error": round(estimate.flash_bytes / max(1, row["code"] + row["constants"]) - 1, 4),
            "seconds": round(seconds, 3),
        }


def spread(rows: Sequence[Row], key: str) -> tuple[str, str, str]:
    """Median, ninth decile and maximum of absolute values, in percent."""
    values = sorted(abs(row[key]) for row in rows)
    return tuple(
        f"{100 * value:.1f} %" for value in (statistics.median(values), values[len(values) * 9 // 10], values[-1])
    )  # type: ignore[return-value]


def groups_of(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Networks of the corpus, its files of one operator or layer, and drawn networks that are in the fit and that are
    not."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = row["model"]
        if drawn(name) >= 0:
            kind = "drawn, not in the fit" if row["held_out"] else "drawn"
        else:
            kind = (
                "single layers"
                if any(part in name for part in ("/layers/", "/float_ops/", "/seanet_int16/"))
                else "networks"
            )
        groups.setdefault(f"{row['board']}: {kind}", []).append(row)
    return groups


def text(rows: Sequence[Row]) -> str:
    """The table of errors."""
    lines = []
    for name, group in groups_of(rows).items():
        seconds = sorted(row["seconds"] for row in group)
        times = f"{statistics.median(seconds):.3f}", f"{seconds[-1]:.2f}"
        lines.append(
            (
                name,
                len(group),
                *spread(group, "error"),
                *spread(group, "flash_error"),
                spread(group, "cycles_error")[0],
                *times,
            )
        )
    columns = ("models", "n>", "instr.>", "90 %>", "worst>", "flash>", "90 %>", "worst>", "cycles>", "s>", "worst>")
    return table(columns, lines, width=150)


def counted_again(rows: Sequence[Row], board: str, models: Sequence[str], places: Places) -> list[Row]:
    """The rows with new counts of models, which are written one by one."""
    load_target(load_board(board).target)
    rows = list(rows)
    for number, model in enumerate(models, 1):
        row = measured(model, board, places)
        rows = [old for old in rows if (old["board"], old["model"]) != (board, model)] + [row]
        write_counts(rows)
        print(f"{number}/{len(models)}", model, row.get("instructions", row.get("refused")), file=sys.stderr)
    return rows


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--boards", nargs="*", default=list(TARGETS), help="boards of the table")
    parser.add_argument("--json", type=Path, help="write the errors here")
    parser.add_argument("--measure", nargs="+", metavar=("BOARD", "MODEL"), help="count models on a board")
    parser.add_argument("--renew", metavar="BOARD", help="count again what has other kernels than when it was counted")
    parser.add_argument(
        "--kernels", default="", metavar="REGEX", help="of --renew: and what has a kernel of such a name"
    )
    parser.add_argument("--fit", action="store_true", help="fit the counts of kernels to the stored counts")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of the models")
    arguments = parser.parse_args()
    rows = stored()
    with tempfile.TemporaryDirectory() as folder:
        places = Places(arguments.corpus, Path(folder))
        if arguments.measure:
            rows = counted_again(rows, arguments.measure[0], arguments.measure[1:], places)
        if arguments.renew:
            own = [row for row in rows if row["board"] == arguments.renew]
            rows = counted_again(rows, arguments.renew, list(outdated(own, arguments.kernels, places)), places)
        if arguments.fit:
            fit(rows, places)
        if arguments.measure or arguments.renew or arguments.fit:
            return
        error_rows = list(errors([row for row in rows if row["board"] in arguments.boards], places))
    print(text(error_rows))
    if arguments.json:
        write_rows(arguments.json, "errors of emitc.cost against counts of emulated boards", error_rows)


if __name__ == "__main__":
    main()
