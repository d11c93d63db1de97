"""What recording a profile costs: instructions of an application with and without emitc_profile.h, on emulated boards.

    python -m bench.profile_overhead --models ../shared/models/tflite --json bench/results_profile.json

Counted is an application's loop that writes the input and runs the model. Where one run of several is recorded, so many are
counted, and the mean is stated. A record is made by a clock that takes
about 20 instructions to read; a cycle counter of a real core takes one or two.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.boards import HERE, NETS
from bench.output import write_json
from emitc.boards import counter
from emitc.boards.build import build
from emitc.boards.profile import ProfileReader, profile_of, read_model
from emitc.boards.project import PLAIN, TRACED, Firmware, write_qemu_project
from emitc.boards.run import boot, emulator
from emitc.boards.verify import expected, run_model
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.report.tables import table
from emitc.target import load_board

BOARDS = ("qemu_m0_big", "qemu_m3", "qemu_m4", "qemu_m55", "qemu_rv32")
RECORDS = 128


def firmware_of(model: Path, board: str, folder: Path, **options: Any) -> Firmware:
    """The model's package with emitc_profile.h, written into the folder, and one case for it."""
    target = load_board(board).target
    compiled = compile_model(model, Options(target=target, package="platformio", profile=True, **options))
    compiled.write(folder / "package")
    return Firmware(folder / "package", run_model(compiled), expected(compiled, "auto", 1, 0)[1])


def profile_images(
    firmware: Firmware, board: str, folder: Path, environments: tuple[str, ...] = (TRACED,), loops: int = 1
) -> list[Path]:
    """Images that run the model so often that `loops` runs are recorded, and write their profile; PLAIN records none."""
    manifest = json.loads((firmware.package / "manifest.json").read_text(encoding="utf-8"))
    described, project = load_board(board), folder / "project"
    write_qemu_project(firmware, described, project, with_timer=False)
    text = (HERE / "profile_main.c").read_text(encoding="ascii")
    values = {"name": firmware.model.name, "NAME": firmware.model.macro, "records": RECORDS}
    values |= {"runs": loops, "interval": manifest["profile"]["interval"]}
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    (project / "src" / "proof.c").write_text(text, encoding="ascii")
    measure = project / "src" / "emitc_measure.c"  # its own layer hook counts layers for the proof
    measure.write_text(f"#undef EMITC_TRACE\n{measure.read_text(encoding='ascii')}", encoding="ascii")
    return build(project, environments, described, core_dir=folder / "pio-core", log=folder / "build.log")


def measure(model: Path, board: str) -> dict[str, Any]:
    """Instructions of one inference without and with a profile, and the layers that the profile has."""
    with tempfile.TemporaryDirectory(prefix="emitc-profile-") as temporary:
        folder = Path(temporary)
        firmware = firmware_of(model, board, folder)
        totals, printed = [], ""
        for image in profile_images(firmware, board, folder, (PLAIN, TRACED)):
            total, printed = counted(image, board, folder)
            totals.append(total)
        reader = ProfileReader()
        profile = profile_of(read_model(firmware.package), list(reader.read(printed.splitlines())), reader.problems)
        assert not profile.problems and len(profile.runs) == 1, profile.problems
        interval = json.loads((firmware.package / "manifest.json").read_text(encoding="utf-8"))["profile"]["interval"]
    return {
        "model": model.stem,
        "board": board,
        "instructions": round(totals[0] / interval, 1),
        "profiled": round(totals[1] / interval, 1),
        "records": len(profile.by_layer),
        "interval": interval,
    }


def counted(image: Path, board: str, folder: Path) -> tuple[int, str]:
    """The instructions of the runs of an image, and what it printed."""
    described, counts = load_board(board), folder / "counts.txt"
    library = counter.plugin(emulator(described), folder / "cache")
    assert library is not None, "the plugin that counts instructions cannot be built"
    printed = boot(described, image, counter.arguments(library, image, counts), timeout=600)
    assert "differs" not in printed and "failed" not in printed, printed
    loop, runs = counter.windows(counts)
    assert loop.total == counter.KNOWN_LOOP
    return runs.total, printed


def text(rows: list[dict[str, Any]]) -> str:
    """The table: what recording adds, in instructions, by layer and as a share."""
    lines = []
    for row in rows:
        added = row["profiled"] - row["instructions"]
        share = f"{100 * added / row['instructions']:.3f} %"
        figures = (row["instructions"], f"{added:.1f}", row["records"], row["interval"], share)
        lines.append((row["model"], row["board"], *figures))
    return table(("model", "board", "instructions>", "added>", "records>", "of runs>", "share>"), lines)


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
    write_json(arguments.json, {"what": "instructions of one inference that emitc_profile.h adds", "rows": rows})


if __name__ == "__main__":
    main()
