"""Where the nets of the corpus spend their instructions on kernels that every core has.

    python -m bench.hot_operators                                  every net, both boards; writes bench/results_hot_operators.json
    python -m bench.hot_operators --boards qemu_m4 --nets kws_ref_int8.tflite --json FILE
    python -m bench.hot_operators --forced --nets NET ... --json FILE

A layer is hot when it takes more than 5 % of its net's instructions with the `portable` kernel on a core that has more: there a
variant for the core would tell. `--forced` also runs every layer with each other kernel that it could have. It lists
those that take fewer instructions than the chosen one: there an estimate of `emitc/backends/portable/backend.py` is
wrong.

Nets are counted whatever they compute in. Layers run whole (no row streaming), one inference each;
the shares are of the sum over the layers.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.corpus import CORPUS, format_of, models
from bench.output import write_json
from emitc.boards.verify import on_emulator
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, RefusalKind
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

HERE = Path(__file__).resolve().parent
JSON_FILE = HERE / "results_hot_operators.json"
BOARDS = ("qemu_m4", "qemu_m55")
SHARE = 0.05
"""Of a net's instructions: what is more than this is hot."""
SINGLE_LAYERS = ("layers/", "float_ops/", "seanet_int16/")
"""Folders of the corpus with models of one operator."""
PORTABLE = "portable"


@dataclass(frozen=True, slots=True)
class Cell:
    """One layer of a net on a board. types: of its first input and of its output. others: kernels that it could have had,
    each with its instructions where it was run.
    """

    index: int
    op: str
    types: str
    variant: str
    instructions: int
    others: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One net on one board."""

    model: str
    board: str
    layers: tuple[Cell, ...]

    @property
    def instructions(self) -> int:
        """Of all layers."""
        return sum(layer.instructions for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Hot:
    """The layers of one operator of a net that share a kernel. share: of the net's instructions."""

    model: str
    board: str
    op: str
    types: str
    variant: str
    layers: int
    instructions: int
    share: float


@dataclass(frozen=True, slots=True)
class Slower:
    """A layer whose kernel is not the one with the fewest instructions. share: of the net's instructions that it could save."""

    model: str
    board: str
    index: int
    op: str
    variant: str
    instructions: int
    better: str
    better_instructions: int
    share: float


def by_operator(run: Run) -> list[Hot]:
    """The net's instructions by operator, types and kernel, the largest first.

    >>> run = Run("net", "qemu_m4", (Cell(0, "ADD", "int8", "dsp", 60), Cell(1, "MEAN", "int8", "portable", 30),
    ...                              Cell(2, "ADD", "int8", "dsp", 10)))
    >>> [(hot.op, hot.layers, hot.instructions, hot.share) for hot in by_operator(run)]
    [('ADD', 2, 70, 0.7), ('MEAN', 1, 30, 0.3)]
    """
    instructions: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for layer in run.layers:
        instructions[layer.op, layer.types, layer.variant].append(layer.instructions)
    whole = max(1, run.instructions)
    rows = [
        Hot(run.model, run.board, *kind, len(counts), sum(counts), round(sum(counts) / whole, 4))
        for kind, counts in instructions.items()
    ]
    return sorted(rows, key=lambda hot: -hot.instructions)


def hot(runs: Iterable[Run], share: float = SHARE) -> list[Hot]:
    """What takes more than that share of a net with the portable kernel, the largest share first."""
    rows = [row for run in runs for row in by_operator(run) if row.variant == PORTABLE and row.share > share]
    return sorted(rows, key=lambda row: (-row.share, row.model, row.board, row.op))


def slower(runs: Iterable[Run]) -> list[Slower]:
    """Layers for which another kernel was run and took fewer instructions, the largest saving of a net first."""
    rows = []
    for run in runs:
        for layer in run.layers:
            name, count = min(layer.others, key=lambda other: other[1], default=("", layer.instructions))
            if count < layer.instructions:
                saved = round((layer.instructions - count) / max(1, run.instructions), 4)
                rows.append(
                    Slower(
                        run.model,
                        run.board,
                        layer.index,
                        layer.op,
                        layer.variant,
                        layer.instructions,
                        name,
                        count,
                        saved,
                    )
                )
    return sorted(rows, key=lambda row: (-row.share, row.model, row.board, row.index))


def rounds_of(others: Mapping[int, Sequence[str]]) -> list[tuple[tuple[int, str], ...]]:
    """Each layer's other kernels, one per layer and run, in as few runs as that takes.

    >>> rounds_of({0: ["mve", "dsp"], 3: ["dsp"]})
    [((0, 'mve'), (3, 'dsp')), ((0, 'dsp'),)]
    """
    most = max(map(len, others.values()), default=0)
    return [tuple((index, names[i]) for index, names in others.items() if i < len(names)) for i in range(most)]


def _compiled(model: Path, board: str, variants: tuple[tuple[int, str], ...] = ()) -> Compiled:
    target = load_board(board).target
    whole = frozenset({"streaming"})  # layers that take turns by rows cannot be distinguished
    return compile_model(model, Options(target=target, package="platformio", disabled=whole, variants=variants))


def _counts(compiled: Compiled, board: str) -> dict[int, int]:
    """Instructions by the layer's index; layers that share one count as one."""
    result = on_emulator(compiled, board, reference="numpy", samples=1, seed=0, layers=True, workdir=None)
    if not result.match:
        raise AssertionError(f"{compiled.program.name} on {board} gives other bits than the reference")
    counts: dict[int, int] = defaultdict(int)
    for layer in result.layers or ():
        counts[layer.index] += layer.count
    return counts


def _alternatives(compiled: Compiled) -> dict[int, list[str]]:
    """Kernels that a layer could have instead of the one it has, by its index: those whose cost was compared."""
    return {
        a.index: [name for name, reason in a.refused if reason.kind is RefusalKind.COST]
        for a in compiled.partition.assignments
        if a.backend == PORTABLE
    }


def measure(model: Path, name: str, board: str, *, forced: bool = False) -> Run:
    """One net on one board."""
    compiled = _compiled(model, board)
    counts = _counts(compiled, board)
    others: dict[int, list[tuple[str, int]]] = defaultdict(list)
    if forced:
        for variants in rounds_of(_alternatives(compiled)):
            by_layer = _counts(_compiled(model, board, variants), board)
            for index, variant in variants:
                others[index].append((variant, by_layer[index]))
    cells = []
    for step in compiled.program.every_step:
        if step.index in counts:
            shown = step.inputs or step.outputs
            types = f"{shown[0].text.split('[')[0]}>{step.outputs[0].text.split('[')[0]}" if step.outputs else ""
            kernel = step.variant if step.backend == PORTABLE else step.backend
            cells.append(
                Cell(step.index, step.op_type, types, kernel, counts.pop(step.index), tuple(others[step.index]))
            )
    return Run(name, board, tuple(cells))


def text(runs: Sequence[Run]) -> str:
    """Both tables."""
    rows = [
        (row.model, row.board, row.op, row.types, row.layers, row.instructions, f"{100 * row.share:.1f} %")
        for row in hot(runs)
    ]
    better = [
        (
            row.model, row.board, f"op{row.index} {row.op}", row.variant, row.instructions, row.better,
            row.better_instructions, f"{100 * row.share:.1f} %",
        )
        for row in slower(runs)
    ]  # fmt: skip
    first = table(("model", "board", "operator", "types", "layers>", "instr>", "share>"), rows, width=165)
    columns = ("model", "board", "layer", "kernel", "instr>", "fewer with", "instr>", "of the net>")
    return "\n\n".join([first, *([table(columns, better, width=165)] if better else [])])


def to_json(runs: Sequence[Run], refused: Mapping[str, str]) -> dict[str, Any]:
    """The file: hot operators, layers with a slower kernel, and what every net's instructions go to."""
    return {
        "what": "instructions of one inference by operator on emulated boards",
        "hot_share": SHARE,
        "hot": [asdict(row) for row in hot(runs)],
        "slower": [asdict(row) for row in slower(runs)],
        "nets": [
            {
                "model": run.model,
                "board": run.board,
                "instructions": run.instructions,
                "operators": [
                    [row.op, row.types, row.variant, row.layers, row.instructions] for row in by_operator(run)
                ],
            }
            for run in runs
        ],
        "refused": dict(refused),
    }


def nets(corpus: Path) -> list[str]:
    """The models of the corpus that are no single layer, as `tflite/...` and `onnx/...`."""
    return [f"{format_of(name)}/{name}" for name in models(corpus) if not name.startswith(SINGLE_LAYERS)]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot_operators", description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--nets", nargs="*", help="parts of the names of the nets; all by default")
    parser.add_argument("--boards", nargs="*", default=list(BOARDS))
    parser.add_argument("--forced", action="store_true", help="also every other kernel that a layer could have")
    parser.add_argument("--json", type=Path, help=f"write here; by default, of all nets, {JSON_FILE.name}")
    arguments = parser.parse_args()
    if not arguments.corpus.is_dir():
        parser.error(f"{arguments.corpus} is not there: pass --corpus DIR with the folders tflite and onnx")
    wanted = [n for n in nets(arguments.corpus) if not arguments.nets or any(part in n for part in arguments.nets)]
    runs: list[Run] = []
    refused: dict[str, str] = {}
    goal = arguments.json or (None if arguments.nets else JSON_FILE)
    for name in wanted:
        for board in arguments.boards:
            print(f"{name} on {board}", file=sys.stderr, flush=True)
            try:
                run = measure(arguments.corpus / name, name.split("/", 1)[1], board, forced=arguments.forced)
            except (CannotCompile, EmitcError) as error:
                refused[f"{name} on {board}"] = error.what
                continue
            runs.append(run)
        write_json(goal, to_json(runs, refused))
    print(text(runs))


if __name__ == "__main__":
    main()
