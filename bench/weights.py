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
from bench.output import add_sweep_options, swept, write_json
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.report.tables import table
from emitc.verify.weights_attack import attack


def costs(models: list[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Instructions of one inference with weights in the C and in a file."""
    variants = {weights: Options(weights=weights) for weights in ("built-in", "external")}
    rows = swept(models, arguments.boards, variants, arguments)
    made = []
    for row, other in zip(rows[::2], rows[1::2], strict=True):
        assert row["match"] and other["match"], f"{row['model']} on {row['board']}"
        counts = {one["options"]: one["instructions"] for one in (row, other)}
        more = round(100 * (counts["external"] / counts["built-in"] - 1), 2)
        made.append({"model": Path(row["model"]).stem, "board": row["board"], **counts, "more": more})
    return sorted(made, key=lambda row: arguments.boards.index(row["board"]))


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
    add_sweep_options(parser)
    values = parser.parse_args()
    paths = [values.models / f"{net}.tflite" for net in values.nets]
    rows = costs(paths, values) if values.boards else []
    if values.mutants or values.hostile:
        rows += [offered(path, target, values.mutants, values.hostile) for target in values.targets for path in paths]
    for group in ([row for row in rows if "more" in row], [row for row in rows if "more" not in row]):
        if group:
            print(table(tuple(group[0]), [tuple(str(value) for value in row.values()) for row in group]))
    write_json(values.json, {"rows": rows})


if __name__ == "__main__":
    main()
