"""External weights: what they cost on emulated boards, and whether a package accepts changed files of them.

    python -m bench.weights --models ../shared/models/tflite --boards qemu_m4 qemu_rv32
    python -m bench.weights --models ../shared/models/tflite --mutants 10000 --hostile 100

Both are deterministic: instructions are counted exactly, and the files follow from a seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.boards import NETS
from bench.output import write_json
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.report.tables import table
from emitc.target import load_board
from emitc.verify.weights_attack import attack


def cost(model: Path, board: str) -> dict[str, Any]:
    """Instructions of one inference with weights in the C and in a file."""
    counts = {}
    for weights in ("built-in", "external"):
        made = compile_model(model, target=load_board(board).target, package="platformio", weights=weights)
        result = on_emulator(made, board, reference="auto", samples=1, seed=0, layers=False, workdir=None).as_json()
        assert result["match"], f"{model.stem} on {board} with {weights} weights"
        counts[weights] = result["instructions"]
    more = counts["external"] / counts["built-in"] - 1
    return {"model": model.stem, "board": board, **counts, "more": round(100 * more, 2)}


def offered(model: Path, target: str, mutants: int, hostile: int) -> dict[str, Any]:
    """What became of changed and of hostile files."""
    made = compile_model(model, target=target, weights="external")
    return {"model": model.stem, "target": target, "mutants": mutants, **attack(made, mutants, hostile).to_json()}


def main() -> None:
    """Prints a table, and writes it with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--boards", nargs="*", default=[])
    parser.add_argument("--targets", nargs="*", default=["generic32"])
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=0)
    parser.add_argument("--json", type=Path)
    values = parser.parse_args()
    paths = [values.models / f"{net}.tflite" for net in values.nets]
    rows = [cost(path, board) for board in values.boards for path in paths]
    if values.mutants or values.hostile:
        rows += [offered(path, target, values.mutants, values.hostile) for target in values.targets for path in paths]
    for group in ([row for row in rows if "more" in row], [row for row in rows if "more" not in row]):
        if group:
            print(table(tuple(group[0]), [tuple(str(value) for value in row.values()) for row in group]))
    write_json(values.json, {"rows": rows})


if __name__ == "__main__":
    main()
