"""Results that others have measured on real boards: checks the files of this folder, and prints them as a table.

    python -m bench.silicon                          the table of all results, and whether each file is valid
    python -m bench.silicon --new MEASUREMENT.json   a file to contribute, from what `emitc flash --json` printed

See bench/silicon/README.md. The exit code is 1 where a file is not valid.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema

from emitc import _version
from emitc.errors import EmitcError
from emitc.report.tables import table
from emitc.target import boards, load_board

HERE = Path(__file__).resolve().parent
SCHEMA = HERE / "schema.json"
ASKED = ("contributor", "board_revision", "compiler")
"""What only the person at the board knows; `--new` leaves them empty, which the schema refuses."""


def problems(content: Any) -> list[str]:
    """What is wrong with the content of a result file, in words; empty where it is valid."""
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    wrong = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]
    if wrong:
        return wrong
    measured = content["measurement"]
    if measured["board"] not in boards() or load_board(measured["board"]).kind != "silicon":
        return [f"$.measurement.board: {measured['board']} is not a real board of `emitc boards`"]
    board = load_board(measured["board"])
    if measured["target"] != board.target:
        wrong.append(f"$.measurement.target: it is {measured['target']}, and {board.name} has a {board.target}")
    if not {"cycles", "microseconds"} & set(measured) & set(board.measures):
        wrong.append(f"$.measurement: {board.name} measures {', '.join(board.measures)}")
    if measured["arena_bytes"] + measured["state_bytes"] > measured["ram_bytes"]:
        wrong.append("$.measurement.ram_bytes: it is less than the arena and the state")
    return wrong


def milliseconds(measured: dict[str, Any]) -> float:
    """The time of a run at the board's clock."""
    if "microseconds" in measured:
        return float(measured["microseconds"]) / 1e3
    return float(measured["cycles"]) / load_board(measured["board"]).clock_hz * 1e3


def row(content: dict[str, Any]) -> tuple[str, ...]:
    """A line of the table."""
    measured = content["measurement"]
    cycles = f"{measured['cycles']:,}".replace(",", " ") if "cycles" in measured else "-"
    stack = "-" if measured["stack_bytes"] is None else str(measured["stack_bytes"])
    return (
        measured["board"],
        measured["model"],
        cycles,
        f"{milliseconds(measured):.3f}",
        str(measured["arena_bytes"]),
        stack,
        content["date"],
        content["contributor"],
    )


def new(measurement: dict[str, Any], today: datetime.date) -> dict[str, Any]:
    """The content of a file to contribute, with empty texts where a person has to write."""
    return {
        "schema_version": 1,
        "contributor": "",
        "date": today.isoformat(),
        "board_revision": "",
        "compiler": "",
        "emitc_version": _version.__version__,
        "emitc_commit": "",
        "measurement": measurement,
    }


def read(path: Path) -> tuple[Any, list[str]]:
    """The content of a file, and what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content, problems(content)
    except (OSError, ValueError, RecursionError, EmitcError) as error:
        return None, [str(error)]


def main(arguments: list[str] | None = None, folder: Path = HERE) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="bench.silicon", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--new", type=Path, metavar="MEASUREMENT", help="what `emitc flash --json` printed, as a file")
    chosen = parser.parse_args(arguments)
    if chosen.new is not None:
        try:
            measurement = json.loads(chosen.new.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            print(f"{chosen.new}: {error}", file=sys.stderr)
            return 1
        print(json.dumps(new(measurement, datetime.datetime.now(datetime.UTC).date()), indent=2))
        print(f"fill in: {', '.join(ASKED)}", file=sys.stderr)
        return 0
    lines, failed = [], False
    for path in sorted(path for path in folder.glob("*.json") if path.name != SCHEMA.name):
        content, wrong = read(path)
        for problem in wrong:
            print(f"{path.name}: {problem}", file=sys.stderr)
        failed = failed or bool(wrong)
        if not wrong:
            lines.append(row(content))
    columns = ("board", "model", "cycles", "ms", "arena", "stack", "date", "contributor")
    print(table(columns, lines) if lines else "no result has been contributed yet")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
