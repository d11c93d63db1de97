"""How close `emitc.cost` comes to what boards count, how long it takes, and the counts that it is made from.

    python -m bench.cost [--boards qemu_m4] [--json FILE]   the errors of every model that was counted
    python -m bench.cost --measure qemu_m4 MODEL...         counts models, adds them to the stored counts
    python -m bench.cost --fit                              writes emitc/explore/kernel_counts.json

bench/results_kernel_counts.json has the counts: of each model the instructions and layers, and the sizes of its image.
Models are of the corpus next to the checkout (../shared/models), or `drawn_SEED` of `bench.networks.cost`; every third of
the drawn ones from seed 60 on is kept out of the fit, so that its error is that of a network which the counts do not
have. A model with layers that run by rows is counted twice, the second time without, for its layers. Seconds are
of CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.corpus import CORPUS
from bench.least_squares import relative_fit, weighted_fit
from bench.networks.cost import draw
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model, plan_model
from emitc.errors import EmitcError
from emitc.explore.cost import cost
from emitc.explore.kernel_counts import FILE, code_parts, family, kernel_name, stem
from emitc.explore.layer_work import work_of
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
_PRIORS = (1e-3, 0.03, 0.1)
"""Weights of the prior of stems, families and kernels: 0.1 is that of a tenth of a count."""
_LEAST = 1000
"""Instructions of a model from which its cycles are taken."""
_CODE_PRIOR = {"kernel": 1.0, "family": 0.5, "stem": 0.2, "more": 0.3}
"""How dear bytes of code are that one kernel has alone, against those that many share."""
Row = dict[str, Any]
Layers = list[tuple[str, dict[str, float], int]]


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
            return self.corpus / model
        path = self.drawn / f"{model}.tflite"
        if not path.is_file():
            path.write_bytes(write_tflite(draw(drawn(model))))
        return path


def measured(model: str, board: str, places: Places) -> Row:
    """What a board counts of a model."""
    target, path = load_board(board).target, places.file_of(model)
    row: Row = {"model": model, "board": board}
    compiled = compile_model(path, target=target, package="platformio")
    by_rows = bool(compiled.program.segments)
    settings: dict[str, Any] = {"reference": "numpy", "samples": 1, "seed": 0, "workdir": None}
    try:
        run = layered = on_emulator(compiled, board, layers=not by_rows, **settings)
        if by_rows:
            whole = compile_model(path, target=target, package="platformio", disabled=frozenset({"streaming"}))
            layered = on_emulator(whole, board, layers=True, **settings)
    except EmitcError as error:
        return row | {"refused": error.what}
    return row | {
        "instructions": run.count,
        "whole": layered.count,
        "cycles": round(run.estimate.zero_wait.cycles) if run.estimate else 0,
        "code": run.code_bytes,
        "constants": run.constant_bytes,
        "layers": [[layer.index, layer.count] for layer in layered.layers or ()],
    }


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


def works(row: Row, places: Places) -> tuple[Layers, list[str], int]:
    """The layers of a counted model with their work and count; the kernels of its layers and those that run by rows."""
    target, path = load_board(row["board"]).target, places.file_of(row["model"])
    _, default = plan_model(path, target=target)
    row_calls = sum(len(segment.calls) for segment in default.segments)
    without = frozenset({"streaming"} if row_calls else ())
    partition, _ = plan_model(path, target=target, disabled=without)
    nodes = {bound.node.index: bound for bound in partition.graph.bound()}
    layers = [
        (kernel_name(partition.layers[index]), work_of(nodes[index], partition.layers[index]), count)
        for index, count in row["layers"]
        if count > 0 and index in nodes
    ]
    return layers, [step.kernel for step in default.every_step], row_calls


def fitted(rows: Sequence[Row], board: str, places: Places) -> Row:
    """What `kernel_counts.json` has for a board."""
    groups: tuple[dict[str, list[Any]], ...] = (defaultdict(list), defaultdict(list), defaultdict(list))
    sizes, cycles, ratios = [], [], []
    for row in rows:
        layers, kernels, row_calls = works(row, places)
        for kernel, work, count in layers:
            for group, name in zip(groups, (stem(kernel), family(kernel), kernel), strict=True):
                group[name].append((work, count))
        sizes.append((code_parts(kernels, row_calls), row["code"]))
        if row["cycles"] and row["instructions"] > _LEAST and row["whole"] == row["instructions"]:
            parts: Counter[str] = Counter()
            for kernel, _, count in layers:
                parts[stem(kernel)] += count
            cycles.append((dict(parts), row["cycles"]))
            ratios.append(row["cycles"] / row["instructions"])
    stems = {name: relative_fit(counts, {}, _PRIORS[0]) for name, counts in groups[0].items()}
    families = {name: relative_fit(counts, stems[stem(name)], _PRIORS[1]) for name, counts in groups[1].items()}
    kernels_of = {name: relative_fit(counts, families[family(name)], _PRIORS[2]) for name, counts in groups[2].items()}
    mean = statistics.mean(ratios) if ratios else 0.0
    return {
        "targets": TARGETS[board],
        "models": len(rows),
        "layers": {name: len(counts) for name, counts in sorted(groups[2].items())},
        "cycles_per_instruction": round(mean, 4),
        "cycles": relative_fit(cycles, dict.fromkeys(stems, mean), _PRIORS[1]) if cycles else {},
        "kernels": dict(sorted(kernels_of.items())),
        "families": {name: families[name] for name in sorted(families) if name not in kernels_of},
        "stems": {name: stems[name] for name in sorted(stems) if name not in families},
        "code": weighted_fit(sizes, lambda name: _CODE_PRIOR.get(name.partition(" ")[0], 0.0)),
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
        estimate = cost(path, target)
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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--boards", nargs="*", default=list(TARGETS), help="boards of the table")
    parser.add_argument("--json", type=Path, help="write the errors here")
    parser.add_argument("--measure", nargs="+", metavar=("BOARD", "MODEL"), help="count models on a board")
    parser.add_argument("--fit", action="store_true", help="fit the counts of kernels to the stored counts")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder of the models")
    arguments = parser.parse_args()
    rows = stored()
    with tempfile.TemporaryDirectory() as folder:
        places = Places(arguments.corpus, Path(folder))
        if arguments.measure:
            board, *models = arguments.measure
            load_target(load_board(board).target)
            for model in models:
                rows = [row for row in rows if (row["board"], row["model"]) != (board, model)]
                rows.append(measured(model, board, places))
                print(model, rows[-1].get("instructions", rows[-1].get("refused")), file=sys.stderr)
            write_counts(rows)
        if arguments.fit:
            fit(rows, places)
        if arguments.measure or arguments.fit:
            return
        error_rows = list(errors([row for row in rows if row["board"] in arguments.boards], places))
    print(text(error_rows))
    if arguments.json:
        write_rows(arguments.json, "errors of emitc.cost against counts of emulated boards", error_rows)


if __name__ == "__main__":
    main()
