"""What recording a profile costs: instructions of one inference with and without emitc_profile.h, on emulated boards.

    python -m bench.profile_overhead --models ../shared/models/tflite --json bench/results_profile.json

A record is made by a clock that takes about 20 instructions to read; a cycle counter of a real core takes one or two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.boards import HERE, NETS
from emitc.boards import counter
from emitc.boards.boot import boot, emulator
from emitc.boards.build import build
from emitc.boards.profile import profile_of, read_model
from emitc.boards.profile_lines import ProfileReader
from emitc.boards.project import TRACED, write_qemu_project
from emitc.boards.run import run_on_board
from emitc.boards.run_model import Firmware
from emitc.boards.verify import expected, run_model
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

BOARDS = ("qemu_m4", "qemu_m0_big", "qemu_rv32")
RECORDS = 128


def firmware_of(model: Path, board: str, folder: Path, **options: Any) -> Firmware:
    """The model's package with emitc_profile.h, written into the folder, and one case for it."""
    target = load_board(board).target
    compiled = compile_model(model, Options(target=target, package="platformio", profile=True, **options))
    compiled.write(folder / "package")
    return Firmware(folder / "package", run_model(compiled), expected(compiled, "auto", 1, 0)[1])


def profile_image(firmware: Firmware, board: str, folder: Path, runs: int = 1, records: int = RECORDS) -> Path:
    """An image that runs the model so often, and writes its profile."""
    described, project = load_board(board), folder / "project"
    write_qemu_project(firmware, described, project, with_timer=False)
    text = (HERE / "profile_main.c").read_text(encoding="ascii")
    values = {"name": firmware.model.name, "NAME": firmware.model.macro, "records": records, "runs": runs}
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    (project / "src" / "proof.c").write_text(text, encoding="ascii")
    measure = project / "src" / "emitc_measure.c"  # its own layer hook counts layers for the proof
    measure.write_text(f"#undef EMITC_TRACE\n{measure.read_text(encoding='ascii')}", encoding="ascii")
    return build(project, (TRACED,), described, core_dir=folder / "pio-core", log=folder / "build.log")[0]


def measure(model: Path, board: str) -> dict[str, Any]:
    """Instructions of one inference without and with a profile, and the layers that the profile has."""
    with tempfile.TemporaryDirectory(prefix="emitc-profile-") as temporary:
        folder = Path(temporary)
        firmware = firmware_of(model, board, folder)
        described = load_board(board)
        plain = run_on_board(firmware, described, layers=False, workdir=folder / "plain")
        image = profile_image(firmware, board, folder)
        library = counter.plugin(emulator(described), folder / "cache")
        assert library is not None, "the plugin that counts instructions cannot be built"
        counts = folder / "counts.txt"
        printed = boot(described, image, counter.arguments(library, image, counts), timeout=600)
        assert "differs" not in printed and "failed" not in printed, printed
        loop, run = counter.windows(counts)
        assert loop.total == counter.KNOWN_LOOP
        reader = ProfileReader()
        profile = profile_of(read_model(firmware.package), list(reader.read(printed.splitlines())), reader.problems)
        assert not profile.problems, profile.problems
    return {
        "model": model.stem,
        "board": board,
        "match": plain.match,
        "instructions": plain.count,
        "profiled": run.total,
        "layers": len(profile.by_layer),
    }


def text(rows: list[dict[str, Any]]) -> str:
    """The table: what recording adds, in instructions, by layer and as a share."""
    lines = []
    for row in rows:
        added = row["profiled"] - row["instructions"]
        share = f"{100 * added / row['instructions']:.3f} %"
        lines.append((row["model"], row["board"], row["instructions"], added, row["layers"], share))
    return table(("model", "board", "instructions>", "added>", "layers>", "share>"), lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile_overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--boards", nargs="*", default=list(BOARDS))
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    rows = []
    for board in arguments.boards:
        for net in arguments.nets:
            print(f"{net} on {board}", file=sys.stderr)
            rows.append(measure(arguments.models / f"{net}.tflite", board))
    print(text(rows))
    if arguments.json:
        content = {"what": "instructions of one inference that emitc_profile.h adds", "rows": rows}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
