"""Tables of docs/benchmarks.md and docs/arena.md, made from the figures that the benchmarks have stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[2] / "bench"
PEERS = {"qemu_m4": "m4", "qemu_m55": "m55", "qemu_m3": "m3", "qemu_m0_big": "m0"}
Columns = tuple[str, ...]
Rows = list[tuple[str, ...]]


def _rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((BENCH / name).read_text(encoding="utf-8"))["rows"]
    return found


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}".replace(",", " ")


def _tflm() -> dict[tuple[str, str, str], dict[str, int]]:
    return {(row["model"], row["core"], row["kernels"]): row for row in _rows("tflite_micro.json")}


def arena() -> tuple[Columns, Rows]:
    """bench/results_arena.json: one row for each model, one pair of columns for each mode."""
    found = {(row["model"], row["mode"]): row for row in _rows("results_arena.json")}
    rows: Rows = []
    for model in dict.fromkeys(model for model, _ in found):
        apart, default, least = (found[model, mode] for mode in ("apart", "default", "min"))
        base = apart["instructions"]
        cells = [model, _number(apart["tflm_head_bytes"]), _number(apart["arena_bytes"])]
        for row in (default, least):
            cells += [_number(row["arena_bytes"]), f"{100 * (row['instructions'] / base - 1):+.1f} %"]
        rows.append((*cells, str(least["layers_by_rows"] or "-"), _number(default["moved_bytes"] or None)))
    columns = (
        "model", "TFLM: head", "apart", "default", "instructions", "`--ram-budget min`", "instructions", "layers by rows",
        "bytes moved by default",
    )  # fmt: skip
    return columns, rows


def instructions() -> tuple[Columns, Rows]:
    """bench/results_boards.json, Cortex-M4: emitc beside TensorFlow Lite Micro."""
    peers, rows = _tflm(), []
    for row in _rows("results_boards.json"):
        if row["board"] == "qemu_m4":
            reference, library = (
                peers[row["model"], "m4", kernels]["instructions"] for kernels in ("reference", "cmsis-nn")
            )
            count = row["instructions"]
            rows.append(
                (
                    row["model"], _number(row["macs"]), _number(count), f"{count / row['macs']:.2f}", _number(reference),
                    f"{count / reference:.2f}", _number(library), f"{count / library:.2f}",
                )
            )  # fmt: skip
    columns = (
        "model", "MACs", "emitc: instructions", "per MAC", "TFLM M4, reference: instructions", "emitc / reference",
        "TFLM M4, CMSIS-NN: instructions", "emitc / CMSIS-NN",
    )  # fmt: skip
    return columns, rows


def memory() -> tuple[Columns, Rows]:
    """bench/results_boards.json, Cortex-M4: flash, arena and stack."""
    peers, rows = _tflm(), []
    for row in _rows("results_boards.json"):
        if row["board"] == "qemu_m4":
            tflm = peers[row["model"], "m4", "reference"]
            pairs = [
                (_number(row[f"{what}_bytes"]), _number(tflm[f"{what}_bytes"])) for what in ("flash", "arena", "stack")
            ]
            (flash, flash_tflm), *rest = pairs
            code = _number(row["code_bytes"])
            rows.append((row["model"], flash, code, flash_tflm, *(cell for pair in rest for cell in pair)))
    columns = (
        "model", "emitc: flash", "of which code", "TFLM M4, reference: flash", "emitc: arena", "TFLM M4, reference: arena",
        "emitc: stack", "TFLM M4, reference: stack",
    )  # fmt: skip
    return columns, rows


def cores() -> tuple[Columns, Rows]:
    """bench/results_boards.json, the other cores, beside TensorFlow Lite Micro with CMSIS-NN where that is known."""
    peers, found = _tflm(), {(row["model"], row["board"]): row for row in _rows("results_boards.json")}
    boards = {"qemu_m55": "M55", "qemu_m3": "M3", "qemu_m0_big": "M0", "qemu_rv32": "RV32IMAC"}
    columns: list[str] = ["model"]
    for board, name in boards.items():
        columns += [f"emitc: {name}", f"TFLM {name}, CMSIS-NN", "emitc / it"] if board in PEERS else [f"emitc: {name}"]
    rows: Rows = []
    for model in dict.fromkeys(model for model, _ in found):
        cells = [model]
        for board in boards:
            count = found[model, board].get("instructions")
            cells.append(_number(count))
            if board in PEERS:
                tflm = peers[model, PEERS[board], "cmsis-nn"]["instructions"]
                cells += [_number(tflm), f"{count / tflm:.2f}" if count else "-"]
        rows.append(tuple(cells))
    return tuple(columns), rows


def library() -> tuple[Columns, Rows]:
    """bench/results_cmsis_nn.json: every choice of kernels on both cores."""
    peers = _tflm()
    found = {(row["model"], row["board"], row["kernels"]): row for row in _rows("results_cmsis_nn.json")}
    rows: Rows = []
    for board in ("qemu_m4", "qemu_m55"):
        for model in dict.fromkeys(model for model, _, _ in found):
            counts = [found[model, board, kernels]["instructions"] for kernels in ("portable", "cmsis-nn", "auto")]
            tflm = peers[model, PEERS[board], "cmsis-nn"]["instructions"]
            share = f"{counts[-1] / tflm:.2f}"
            rows.append((model, PEERS[board].upper(), *map(_number, counts), _number(tflm), share))
    return ("model", "core", "emitc's own", "cmsis-nn", "auto", "TFLM with CMSIS-NN", "auto / TFLM"), rows


def wake_words() -> tuple[Columns, Rows]:
    """bench/results_wake_words.json: instructions of a frame by kernels, and the memory of emitc's own."""
    peers = _tflm()
    found = {(row["model"], row["board"], row["kernels"]): row for row in _rows("results_wake_words.json")}
    rows: Rows = []
    for board in ("qemu_m4", "qemu_m55"):
        for model in dict.fromkeys(model for model, _, _ in found):
            ours = {kernels: found[model, board, kernels] for kernels in ("portable", "cmsis-nn")}
            tflm, portable = peers[model, PEERS[board], "cmsis-nn"], ours["portable"]
            counts = [row["instructions"] for row in ours.values()]
            rows.append(
                (
                    model, PEERS[board].upper(), *map(_number, counts), _number(tflm["instructions"]),
                    f"{min(counts) / tflm['instructions']:.2f}", _number(portable["arena_bytes"] + portable["state_bytes"]),
                    _number(tflm["arena_bytes"]),
                )
            )  # fmt: skip
    columns = (
        "model", "core", "emitc's own", "cmsis-nn", "TFLM with CMSIS-NN", "the better / TFLM", "emitc's own: arena and state",
        "TFLM: arena",
    )  # fmt: skip
    return columns, rows


TABLES = {
    "arena": arena,
    "instructions": instructions,
    "memory": memory,
    "cores": cores,
    "library": library,
    "wake_words": wake_words,
}
"""By the name that a page asks for."""
