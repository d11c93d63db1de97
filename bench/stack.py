"""The stack that `emitc compile --stack` states against the stack that a run takes on an emulated board.

    python -m bench.stack --json bench/results_stack.json               every model of the corpus on five boards
    python -m bench.stack --sample 40 --seed 1 --json FILE              some of them
    python -m bench.stack --json FILE                                   goes on: rows that FILE has are not made again

The stated bytes are the deepest path in the call graph of the target's compiler (emitc/boards/stack.py). The measured bytes
are the painted ones below the caller of `<m>_run`. A bound must never be less. The exit code is 1 where one is.
It is no `emitc sweep`, which has one figure of the stack for each job, and boots no model without an engine.
The corpus lies next to the checkout (../shared/models); without it there is nothing to do, and the command says so.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from bench.corpus import CORPUS, format_of
from bench.corpus import models as models_of
from emitc.boards.project import Case
from emitc.boards.stack import measured
from emitc.boards.verify import require_fit, run_cases
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.report.tables import table
from emitc.target import load_board
from emitc.verify.reference import random_samples

BOARDS = ("qemu_m0_big", "qemu_m3", "qemu_m4", "qemu_m55", "qemu_rv32")
Row = dict[str, Any]


def one(model: str, board: str) -> Row:
    """A model on a board: the stated bytes, the measured ones, and why there are none."""
    row: Row = {"model": model, "board": board, "bound_bytes": None, "peak_bytes": None, "outside": [], "why": ""}
    try:
        compiled = measured(compile_model(CORPUS / model, package="platformio", target=load_board(board).target))
        if compiled.stack is not None:
            row["bound_bytes"] = compiled.stack.size_bytes
            row["outside"] = list(compiled.stack.outside)
        require_fit(compiled, board)
        with tempfile.TemporaryDirectory(prefix="emitc-stack-") as folder:
            package = Path(folder) / "package"
            compiled.write(package)
            (sample,) = random_samples(compiled.graph, 1, 0)
            # The outputs are proven elsewhere: here any bytes of their sizes will do.
            outputs = tuple(bytes(port.size_bytes) for port in compiled.program.outputs)
            case: Case = (tuple(value.tobytes() for value in sample), outputs)
            row["peak_bytes"] = run_cases(compiled, board, package, ("", [case])).stack_bytes
    except EmitcError as error:
        row["why"] = str(error).splitlines()[0]
    return row


def summary(rows: list[Row]) -> tuple[str, list[Row]]:
    """The table by board, and the rows whose bound is less than what a run took."""
    lines = []
    for board in BOARDS:
        own = [row for row in rows if row["board"] == board]
        both = [row for row in own if row["bound_bytes"] is not None and row["peak_bytes"] is not None]
        over = [row["bound_bytes"] - row["peak_bytes"] for row in both]
        stated = sum(row["bound_bytes"] is not None for row in own)
        figures = (statistics.median(over), max(over), min(over)) if over else ("-", "-", "-")
        lines.append((board, len(own), stated, len(both), *figures))
    columns = ("board", "models>", "bounds>", "peaks>", "median of bound - peak>", "largest>", "least>")
    wrong = [row for row in rows if row["peak_bytes"] is not None and (row["bound_bytes"] or 0) < row["peak_bytes"]]
    return table(columns, lines), wrong


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="bench.stack", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="the rows; those that it has are not made again")
    parser.add_argument("--sample", type=int, help="so many models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    models = [f"{format_of(model)}/{model}" for model in models_of(CORPUS)]
    if not models:
        print("../shared/models is not there: nothing to do")
        return 0
    if chosen.sample is not None:
        models = sorted(random.Random(chosen.seed).sample(models, chosen.sample))
    rows: list[Row] = json.loads(chosen.json.read_text(encoding="utf-8")) if chosen.json.is_file() else []
    known = {(row["model"], row["board"]) for row in rows}
    wanted = [(model, board) for model in models for board in BOARDS if (model, board) not in known]
    random.Random(0).shuffle(wanted)  # what an interrupted command has made is a fair sample
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for number, done in enumerate(as_completed([pool.submit(one, *pair) for pair in wanted])):
            rows.append(done.result())
            if number % 20 == 19:
                write_rows(rows, chosen.json)
    write_rows(rows, chosen.json)
    text, wrong = summary(rows)
    print(text)
    for row in wrong:
        print(
            f"{row['model']} on {row['board']}: {row['bound_bytes']} stated, {row['peak_bytes']} taken", file=sys.stderr
        )
    return 1 if wrong else 0


def write_rows(rows: list[Row], path: Path) -> None:
    """Writes the rows, in a fixed order."""
    ordered = sorted(rows, key=lambda row: (row["model"], row["board"]))
    lines = ",\n".join(json.dumps(row) for row in ordered)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
