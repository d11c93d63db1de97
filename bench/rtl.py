"""Exact cycles of one inference on the RTL of RISC-V cores, for the seven nets.

    python -m bench.rtl --models ../shared/models/tflite --rtl ../shared/rtl/hazard3/hdl --json bench/results_rtl.json

The cycles are those of the cores' hardware descriptions, the same on every machine. `--rtl` names the sources of Hazard3,
which no package carries; without it that core is left out. `--memories` adds timings of the flash (boards/rtl/memories.toml).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.boards import NETS
from bench.output import write_json
from emitc.boards.run import Simulation
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

HERE = Path(__file__).resolve().parent
CORES = ("rtl_hazard3", "rtl_cv32e40p", "rtl_cv32e40p_xpulp", "rtl_ibex", "rtl_vexriscv")


def measure(model: Path, board: str, simulation: Simulation, **options: Any) -> dict[str, Any]:
    """One model on one core. options: of the compiler, by the names of `Options`.

    Raises EmitcError where a tool, a source or the memory for the model is missing.
    """
    described = load_board(board)
    compiled = compile_model(model, Options(target=described.target, package="platformio", **options))
    result = on_emulator(
        compiled, board, reference="auto", samples=1, seed=0, layers=False, workdir=None, simulation=simulation
    )
    assert result.simulation is not None
    return {
        "model": model.stem,
        "board": board,
        "memory": simulation.memory,
        "match": result.match,
        "cycles": result.count,
        "instructions": result.simulation.instructions,
        "cycles_per_mac": round(result.count / compiled.program.macs, 2),
        "milliseconds": round(result.count / described.clock_hz * 1e3, 2),
        "stalls": dict(result.simulation.stalls),
        "misses": result.simulation.misses,
        "arena_bytes": result.arena_bytes,
        "staged_bytes": compiled.program.staged_bytes,
    }


def main() -> int:
    """The command; 1 where an output differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.rtl", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--cores", nargs="*", default=list(CORES), help="boards of kind rtl")
    parser.add_argument("--memories", nargs="*", default=["zero-wait"])
    parser.add_argument("--rtl", type=Path, help="sources of a core that no package carries")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    rows = []
    for board in options.cores:
        if board == "rtl_hazard3" and options.rtl is None:
            continue
        for memory in options.memories:
            for net in options.nets:
                print(f"{net} on {board}, {memory}", file=sys.stderr)
                rows.append(measure(options.models / f"{net}.tflite", board, Simulation(memory, options.rtl)))
    shown = [
        (row["model"], row["board"], row["memory"], row["cycles"], f"{row['cycles'] / row['instructions']:.3f}",
         f"{row['cycles_per_mac']:.2f}", f"{row['milliseconds']:.2f}", "yes" if row["match"] else "NO")
        for row in rows
    ]  # fmt: skip
    columns = ("model", "board", "memory", "cycles>", "per instruction>", "per MAC>", "ms>", "match")
    print(table(columns, shown))
    write_json(options.json, {"rows": rows})
    return 0 if all(row["match"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
