"""Weights in a serial flash with a cache, against weights that are copied to RAM before their layer runs.

    python -m bench.staging --models ../shared/models/tflite --rtl ../shared/rtl/hazard3/hdl --json bench/results_staging.json

The cycles are those of the RTL of Hazard3, with code and constants in the memory `xip-16k` of boards/rtl/memories.toml: a read of
8 bytes that the cache of 16 KiB does not hold takes 40 cycles. The copies are those of `--stage-weights`, whose estimate is told
the cost of a byte and the bytes of the cache.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.output import write_json
from bench.rtl import measure
from emitc.boards.run import Simulation
from emitc.planner.region_assignment import Region
from emitc.report.tables import table

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


def main() -> int:
    """The command; 1 where an output differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.staging", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--rtl", type=Path, required=True, help="sources of Hazard3")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    options = parser.parse_args()
    rows = [row_of(options.models / f"{net}.tflite", options.rtl) for net in options.nets]
    print(table(COLUMNS, lines(rows)))
    write_json(options.json, {"what": "cycles of one inference on Hazard3 with a serial flash", "rows": rows})
    return 0 if all(row["match"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
