"""Weights that are read from flash, against weights that are copied to RAM before their layer runs.

    python -m bench.staging --models ../shared/models/tflite --rtl ../shared/rtl/hazard3/hdl --json bench/results_staging.json
    python -m bench.staging --nucleo --json bench/results_copies.json    estimates for NUCLEO-L4R5ZI

The cycles are those of the RTL of Hazard3, with code and constants in the memory `xip-16k` of boards/rtl/memories.toml: a read of
8 bytes that the cache of 16 KiB does not hold takes 40 cycles. The copies are those of `--stage-weights`, whose estimate is told
the cost of a byte and the bytes of the cache. NUCLEO-L4R5ZI is estimated as in bench.cycles, with the regions of its board file.
It is no `emitc sweep`, which runs no RTL.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench import cycles as timing
from bench.output import write_json
from bench.rtl import measure
from emitc.boards.run import Simulation
from emitc.boards.verify import on_emulator
from emitc.cli.options import known_regions
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.planner.region_assignment import Region
from emitc.report.tables import table
from emitc.target import load_board

HERE = Path(__file__).resolve().parent
NETS = (
    "kws_ref_int8",
    "vww_96_int8",
    "ic_resnet_int8",
    "ad01_int8",
    "person_detect_int8",
    "mobilenet_v1_0.25_128_uint8",
)
BOARD, MEMORY = "rtl_hazard3", "xip-16k"
STAGED: dict[str, Any] = {
    "regions": (Region("SRAM", 520 << 10, 1.0), Region("FLASH", 0, 5.0, 16 << 10)),
    "stage_weights": "SRAM",
}


def row_of(model: Path, sources: Path) -> dict[str, Any]:
    """A network in both ways. bytes: copied in a run; arenas in bytes."""
    simulation = Simulation(MEMORY, sources)
    plain, staged = (measure(model, BOARD, simulation, **options) for options in ({}, STAGED))
    return {
        "model": model.stem,
        "match": plain["match"] and staged["match"],
        "cycles": plain["cycles"],
        "cycles_staged": staged["cycles"],
        "bytes": staged["staged_bytes"],
        "arena_bytes": plain["arena_bytes"],
        "arena_bytes_staged": staged["arena_bytes"],
    }


COLUMNS = ("network", "cycles>", "with copies>", "change>", "bytes copied>", "arena, bytes>", "with copies>", "match")


def lines(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of the table."""
    return [
        (
            row["model"],
            *(f"{row[name]:,}".replace(",", " ") for name in ("cycles", "cycles_staged")),
            f"{100 * (row['cycles_staged'] / row['cycles'] - 1):+.1f} %",
            *(f"{row[name]:,}".replace(",", " ") for name in ("bytes", "arena_bytes", "arena_bytes_staged")),
            "yes" if row["match"] else "NO",
        )
        for row in rows
    ]


NUCLEO, EMULATED, COPIES = "NUCLEO-L4R5ZI", "qemu_m4", "SRAM1"
NO_COPIES, BY_CORE, BY_DMA, IN_RAM = "", "core", "dma", "ram"
NUCLEO_ROWS: tuple[tuple[str, int | None, str], ...] = (
    *((net, None, copied) for net in timing.NETS for copied in (NO_COPIES, BY_CORE, BY_DMA, IN_RAM)),
    *(
        ("ic_resnet_int8", budget, copied)
        for budget, copied in ((162_644, NO_COPIES), (162_644, BY_CORE), (280_000, BY_CORE), (280_000, BY_DMA))
    ),
)
"""Networks, each with its `--flash-budget` and who copies its weights: in each run, or all of them once at the start."""

_WITH_CONSTANTS = (Region("SRAM1", 192 << 10, 1.0), Region("SRAM3", 384 << 10, 1.0))
"""Two of the board's three RAMs."""


def nucleo_row(model: Path, budget: int | None, *, copied: str) -> dict[str, Any]:
    """A network as NUCLEO-L4R5ZI is estimated to run it. bytes: copied in a run; ms: with the wait states of the flash.

    cycles: without wait states, and with copies by the core where a DMA makes them. The startup code places constants in RAM.
    """
    board = load_board(timing.WITH_FLASH[NUCLEO])
    staged: dict[str, Any] = {}
    words = [f"--flash-budget {budget}"] if budget else []
    if copied == IN_RAM:
        staged = {"regions": _WITH_CONSTANTS, "places": (("weights", "SRAM3"),)}
        words += [f"--regions {','.join(map(str, _WITH_CONSTANTS))}", "--place weights=SRAM3"]
    elif copied:
        staged = {"regions": known_regions(board.name), "stage_weights": COPIES}
        words.append(f"--stage-weights {COPIES}")
    if copied == BY_DMA:
        assert board.dma_timing is not None
        staged["load_ahead"] = board.dma_timing.cycles_per_byte
        words.append(f"--load-ahead {board.dma_timing.cycles_per_byte}")
    options = Options(target=load_board(EMULATED).target, package="platformio", flash_budget=budget, **staged)
    compiled = compile_model(model, options)
    result = on_emulator(compiled, EMULATED, reference="auto", samples=1, seed=0, layers=False, workdir=None)
    assert result.estimate is not None
    zero_wait = result.estimate.zero_wait
    return {
        "model": model.stem,
        "options": " ".join(words),
        "match": result.match,
        "arena_bytes": result.arena_bytes,
        "flash_bytes": result.model_flash_bytes,
        "bytes": compiled.program.staged_bytes,
        "constant_bytes_read": zero_wait.constant_bytes,
        "cycles": round(zero_wait.cycles),
        "ms": round(result.estimate.on(board).milliseconds, 2),
    }


NUCLEO_COLUMNS = (
    "network", "options", "arena, bytes>", "flash, bytes>", "copied, bytes>", "read of flash>", "cycles>", "ms>", "match",
)  # fmt: skip


def nucleo_lines(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of that table."""
    names = ("arena_bytes", "flash_bytes", "bytes", "constant_bytes_read", "cycles")
    return [
        (
            row["model"],
            row["options"] or "default",
            *(f"{row[name]:,}".replace(",", " ") for name in names),
            f"{row['ms']:.1f}",
            "yes" if row["match"] else "NO",
        )
        for row in rows
    ]


def main() -> int:
    """The command; 1 where an output differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.staging", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--rtl", type=Path, help="sources of Hazard3")
    where.add_argument("--nucleo", action="store_true", help="estimates for NUCLEO-L4R5ZI")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    options = parser.parse_args()
    if options.nucleo:
        rows = [
            nucleo_row(options.models / f"{net}.tflite", budget, copied=copied) for net, budget, copied in NUCLEO_ROWS
        ]
        print(table(NUCLEO_COLUMNS, nucleo_lines(rows)))
        what = "estimated ms of one inference on NUCLEO-L4R5ZI"
    else:
        rows = [row_of(options.models / f"{net}.tflite", options.rtl) for net in options.nets]
        print(table(COLUMNS, lines(rows)))
        what = "cycles of one inference on Hazard3 with a serial flash"
    write_json(options.json, {"what": what, "rows": rows})
    return 0 if all(row["match"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
