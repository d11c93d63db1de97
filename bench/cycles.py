"""Estimated cycles of the nets of MLPerf Tiny, and the times that others have published for them.

    python -m bench.cycles --models ../shared/models/tflite --json bench/results_cycles.json

The cycles are those of `emitc run`: a core's timing, applied address by address (emitc/boards/cycle_model.py). They are
a model's, not a measurement. bench/published_times.json has the published times, and the model's cycles of one published
program.
It is no `emitc sweep`, which does not know the boards of published times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import FlashTiming, load_board

HERE = Path(__file__).resolve().parent
NETS = ("kws_ref_int8", "vww_96_int8", "ic_resnet_int8", "ad01_int8")
BOARDS = ("qemu_m4", "qemu_m33", "qemu_m7", "qemu_m55")
STANDS_FOR = {"Cortex-M4": "qemu_m4", "Cortex-M33": "qemu_m33", "Cortex-M7": "qemu_m7"}
"""The emulated board on which a core's cycles are estimated."""
WITH_FLASH = {"NUCLEO-L4R5ZI": "nucleo_l4r5zi", "NUCLEO-L4R5ZI-P": "nucleo_l4r5zi"}
"""Boards whose flash is modelled, by their published names."""
REBUILT_SOFTWARE = ("OctoML", "microTVM with CMSIS-NN")
NO_WAITS = FlashTiming("none", 0, 0.0, 0.0)
Row = dict[str, Any]


def published() -> dict[str, Any]:
    """The content of published_times.json."""
    content: dict[str, Any] = json.loads((HERE / "published_times.json").read_text(encoding="utf-8"))
    return content


def measured_cycles(board: str) -> dict[str, float]:
    """Cycles of the program that was compiled again, by net, from the times that its submitter measured on a board."""
    (row,) = [
        row
        for row in published()["rows"]
        if row["board"] == board and (row["submitter"], row["software"]) == REBUILT_SOFTWARE
    ]
    return {net: ms * row["mhz"] * 1e3 for net, ms in row["ms"].items()}


def modelled_cycles(board: str, flash: FlashTiming) -> dict[str, float]:
    """Cycles of the same program by the model, by net."""
    nets = published()["rebuilt"]["boards"][board]
    return {net: flash.cycles(row["cycles"], row["constant_bytes_read"]) for net, row in nets.items()}


def flash_of(board: str) -> FlashTiming:
    """What the flash of a board adds, by its published name; nothing where that is not modelled."""
    timing = load_board(WITH_FLASH[board]).flash_timing if board in WITH_FLASH else None
    return timing or NO_WAITS


def measure(model: Path, board: str) -> Row:
    """Estimated cycles of one inference on an emulated board, without wait states."""
    compiled = compile_model(model, Options(target=load_board(board).target, package="platformio"))
    with tempfile.TemporaryDirectory(prefix="emitc-cycles-") as folder:
        result = on_emulator(compiled, board, reference="auto", samples=1, seed=0, layers=False, workdir=Path(folder))
    assert result.match
    assert result.estimate is not None
    zero_wait = result.estimate.zero_wait
    return {
        "model": model.stem,
        "board": board,
        "instructions": result.count,
        "cycles": round(zero_wait.cycles),
        "constant_bytes_read": zero_wait.constant_bytes,
    }


def milliseconds(row: Row, board: str, mhz: int) -> float:
    """A stored row on a real board, by its published name."""
    return flash_of(board).cycles(row["cycles"], row["constant_bytes_read"]) / mhz / 1e3


def compared(stored: list[Row]) -> list[tuple[str, ...]]:
    """For each published row of a core that is modelled: what it is, its times, and the estimates for emitc."""
    ours = {(row["model"], row["board"]): row for row in stored}
    rows = []
    for row in published()["rows"]:
        if row["core"] not in STANDS_FOR or "accelerator" in row["software"]:
            continue
        cells = [row["board"], f"{row['mhz']}", f"{row['software']} ({row['submitter']}, {row['version']})"]
        for net in NETS:
            times = row["ms"]
            estimate = milliseconds(ours[net, STANDS_FOR[row["core"]]], row["board"], row["mhz"])
            cells += [f"{times[net]:.1f}" if net in times else "-", f"{estimate:.1f}"]
        rows.append(tuple(cells))
    return rows


COLUMNS = ("board", "MHz>", "software", *(column for net in NETS for column in (f"{net.split('_')[0]}>", "emitc>")))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.cycles", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--json", type=Path, default=HERE / "results_cycles.json")
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    rows = []
    for net in NETS:
        for board in BOARDS:
            print(net, board, file=sys.stderr)
            rows.append(measure(arguments.models / f"{net}.tflite", board))
    what = "estimated cycles of one inference without wait states, and bytes that loads read from flash"
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    text = f'{{\n "what": {json.dumps(what)},\n "rows": [\n{lines}\n ]\n}}\n'
    arguments.json.write_text(text, encoding="utf-8")
    print(table(COLUMNS, compared(rows)))


if __name__ == "__main__":
    main()
