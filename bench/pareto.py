"""Flash against cycles: what more or fewer bytes of constants buy on the Cortex-M4F, as a Pareto front for each network.

    python -m bench.pareto --models ../shared/models/tflite --json bench/results_pareto.json

Each network is compiled for size, by default, and with budgets of flash that are shares of its constants by default. The
flash is that of the model in the linked image: code, constants, runtime and library routines. The cycles are those of the
timing of the core (emitc/boards/cycle_model.py), without wait states. Every row is proven on the emulated board.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.output import add_sweep_options, swept, write_json
from emitc.options import Options
from emitc.report.tables import table

HERE = Path(__file__).resolve().parent
NETS = ("ic_resnet_int8", "vww_96_int8", "mobilenet_v1_0.25_128_uint8")
BOARD = "qemu_m4"
SHARES = (1.0, 1.25, 1.5, 2.0, 3.0)
"""Budgets of constants, as shares of those of the model for size."""
Row = dict[str, Any]


def measured(model: Path, variants: dict[str, Options], arguments: argparse.Namespace) -> list[Row]:
    """A network on the board: its flash in bytes, its cycles, its arena in bytes; without budgets that no kernels meet."""
    rows = []
    for row in swept([model], [BOARD], variants, arguments):
        if row["error"]:
            print(f"{model.stem}, {row['options']}: {row['error']['what']}: {row['error']['why']}", file=sys.stderr)
            continue
        assert row["match"]
        figures = {name: row[name] for name in ("options", "flash_bytes", "constant_bytes", "arena_bytes")}
        rows.append({"model": model.stem, **figures, "cycles": row["estimated_cycles"]})
    return rows


def rows_of(model: Path, arguments: argparse.Namespace) -> list[Row]:
    """The network in all ways; a budget that changes nothing is left out, and so is one that no kernels meet."""
    rows = measured(model, {"--optimize size": Options(optimize="size"), "": Options()}, arguments)
    budgets = [round(rows[0]["constant_bytes"] * share) for share in SHARES]
    variants = {f"--flash-budget {budget}": Options(flash_budget=budget) for budget in budgets}
    for row in measured(model, variants, arguments):
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
    add_sweep_options(parser)
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    rows = [row for net in NETS for row in rows_of(arguments.models / f"{net}.tflite", arguments)]
    print(table(COLUMNS, lines(rows)))
    write_json(arguments.json, {"what": "flash and estimated cycles of one inference on a Cortex-M4F", "rows": rows})


if __name__ == "__main__":
    main()
