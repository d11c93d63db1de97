"""Flash against cycles: what more or fewer bytes of constants buy on the Cortex-M4F, as a Pareto front for each network.

    python -m bench.pareto --models ../shared/models/tflite --json bench/results_pareto.json

Each network is compiled for size, by default, and with budgets of flash that are shares of its constants by default. The
flash is that of the model in the linked image: code, constants, runtime and library routines. The cycles are those of the
timing of the core (emitc/boards/cycle_model.py), without wait states. Every row is proven on the emulated board.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.output import write_json
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

HERE = Path(__file__).resolve().parent
NETS = ("ic_resnet_int8", "vww_96_int8", "mobilenet_v1_0.25_128_uint8")
BOARD = "qemu_m4"
SHARES = (1.0, 1.25, 1.5, 2.0, 3.0)
"""Budgets of constants, as shares of those of the model for size."""
Row = dict[str, Any]


def measure(model: Path, name: str, options: Options) -> Row:
    """A compiled network on the board: its flash in bytes, its cycles, its arena in bytes."""
    compiled = compile_model(model, options)
    with tempfile.TemporaryDirectory(prefix="emitc-pareto-") as folder:
        result = on_emulator(compiled, BOARD, reference="auto", samples=1, seed=0, layers=False, workdir=Path(folder))
    assert result.match
    assert result.estimate is not None
    return {
        "model": model.stem,
        "options": name,
        "flash_bytes": result.model_flash_bytes,
        "constant_bytes": compiled.program.constant_bytes,
        "arena_bytes": result.arena_bytes,
        "cycles": round(result.estimate.zero_wait.cycles),
    }


def rows_of(model: Path) -> list[Row]:
    """The network in all ways; a budget that changes nothing is left out, and so is one that no kernels meet."""
    target = load_board(BOARD).target
    plain = Options(target=target, package="platformio")
    rows = [
        measure(model, "--optimize size", Options(target=target, package="platformio", optimize="size")),
        measure(model, "", plain),
    ]
    for share in SHARES:
        budget = round(rows[0]["constant_bytes"] * share)
        try:
            row = measure(
                model, f"--flash-budget {budget}", Options(target=target, package="platformio", flash_budget=budget)
            )
        except EmitcError as error:
            print(f"{model.stem}, {budget} bytes: {error}", file=sys.stderr)
            continue
        if all((row["flash_bytes"], row["cycles"]) != (known["flash_bytes"], known["cycles"]) for known in rows):
            rows.append(row)
    return rows


def on_front(row: Row, rows: list[Row]) -> bool:
    """Whether no other row of the network has less flash and no more cycles, or fewer cycles and no more flash."""
    own = (row["flash_bytes"], row["cycles"])
    others = [(other["flash_bytes"], other["cycles"]) for other in rows if other["model"] == row["model"]]
    return not any(other != own and other[0] <= own[0] and other[1] <= own[1] for other in others)


COLUMNS = ("network", "options", "flash, bytes>", "arena, bytes>", "cycles>", "on the front")


def lines(rows: list[Row]) -> list[tuple[str, ...]]:
    """The rows of the table, by network and flash."""
    ordered = sorted(rows, key=lambda row: (NETS.index(row["model"]), row["flash_bytes"], row["cycles"]))
    return [
        (
            row["model"],
            row["options"] or "default",
            *(f"{row[name]:,}".replace(",", " ") for name in ("flash_bytes", "arena_bytes", "cycles")),
            "yes" if on_front(row, rows) else "no",
        )
        for row in ordered
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.pareto", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    rows = [row for net in NETS for row in rows_of(arguments.models / f"{net}.tflite")]
    print(table(COLUMNS, lines(rows)))
    write_json(arguments.json, {"what": "flash and estimated cycles of one inference on a Cortex-M4F", "rows": rows})


if __name__ == "__main__":
    main()
