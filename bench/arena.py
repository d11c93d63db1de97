"""How small the arena is, and what that costs: without overlap, by default, and with the smallest budget.

    python -m bench.arena [--models DIR] [--board qemu_m4] [--json bench/results_arena.json]

Each model is compiled in every mode, run on the emulated board against the golden engine, and compared with TensorFlow Lite
Micro's head (its planned activations, of a 64-bit host; stored in this file with the study that they come from).
It is no `emitc sweep`, which records neither layers by rows nor relocated bytes, nor the time of the compilation alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.output import write_json
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

HERE = Path(__file__).resolve().parent
HEADS = {
    "ad01_int8": 768,
    "ic_resnet_int8": 49152,
    "kws_ref_int8": 16000,
    "micro_speech_int8": 5968,
    "person_detect_int8": 55296,
    "vww_96_int8": 73728,
    "tinymaix_vww96_int8": 73728,
    "mltk_image_classification_int8": 49152,
    "micro_kws_m_int8": 39040,
    "mnist_resnet_int8": 3552,
}
"""TensorFlow Lite Micro's planned activations, bytes; its arena holds the interpreter's structures as well."""
MODES: dict[str, dict[str, Any]] = {
    "no-overlap": {"disabled": frozenset({"overlap", "streaming"})},
    "no-overlap-same-kernels": {"disabled": frozenset({"overlap", "streaming"})},
    "default": {},
    "min": {"ram_budget": "min"},
    "input-rows": {"input_rows": True},
    "input-rows-min": {"input_rows": True, "ram_budget": "min"},
}
"""Options by the name of the row: no buffer overlaps another, with the kernels that are cheapest then, and with
the default's kernels; the default; the smallest arena; and these two with the input row by row from the application."""


def measure(model: Path, board: str, mode: str) -> dict[str, Any] | None:
    """One model in one mode: arena, bound, instructions of one inference, seconds of compiling; None where it is refused."""
    start = time.monotonic()
    options = Options(target=load_board(board).target, package="platformio", **MODES[mode])
    try:
        if mode == "no-overlap-same-kernels":
            steps = compile_model(model, replace(options, disabled=frozenset())).program.steps
            options = replace(options, variants=tuple((step.index, step.variant) for step in steps))
        compiled = compile_model(model, options)
    except EmitcError:
        return None
    seconds = time.monotonic() - start
    plan = compiled.program.plan
    row = {
        "model": model.stem,
        "board": board,
        "mode": mode,
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "tflm_head_bytes": HEADS.get(model.stem),
        "segments": len(compiled.program.segments),
        "layers_by_rows": sum(len(segment.calls) for segment in compiled.program.segments),
        "moved_bytes": sum(move.size_bytes for move in compiled.program.moves),
        "seconds": round(seconds, 2),
    }
    try:
        result = on_emulator(compiled, board, reference="auto", samples=1, seed=0, layers=False, workdir=None)
    except CannotCompile as error:
        return row | {"refused": error.what}
    return row | {"match": result.match, "instructions": result.count, "flash_bytes": result.model_flash_bytes}


def text(rows: list[dict[str, Any]]) -> str:
    """The table; cost: instructions against the same model without overlapping buffers."""
    disjoint = {row["model"]: row.get("instructions") for row in rows if row["mode"] == "no-overlap"}
    lines = []
    for row in rows:
        base, count = disjoint.get(row["model"]), row.get("instructions")
        head = row["tflm_head_bytes"]
        lines.append(
            (
                row["model"],
                row["mode"],
                row["arena_bytes"],
                "yes" if row["arena_bytes"] == row["lower_bound_bytes"] else f"no ({row['lower_bound_bytes']})",
                f"{row['arena_bytes'] / head:.2f}" if head else "-",
                row["layers_by_rows"] or "-",
                row["moved_bytes"] or "-",
                count or "-",
                f"{100 * (count / base - 1):+.1f} %" if base and count else "-",
                "refused" if "refused" in row else "yes" if row["match"] else "NO",
                f"{row['seconds']:.2f}",
            )
        )
    columns = (
        "model", "mode", "arena>", "at its bound", "/head>", "by rows>", "moved>", "instr>", "cost>", "ok", "s>",
    )  # fmt: skip
    return table(columns, lines, width=150)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.arena", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--nets", nargs="*", default=list(HEADS))
    parser.add_argument("--board", default="qemu_m4")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    rows = []
    for net in arguments.nets:
        for mode in MODES:
            print(f"{net}, {mode}", file=sys.stderr)
            row = measure(arguments.models / f"{net}.tflite", arguments.board, mode)
            rows += [row] if row is not None else []
    print(text(rows))
    write_json(arguments.json, {"what": "arena and instructions of one inference on an emulated board", "rows": rows})


if __name__ == "__main__":
    main()
