"""The rows that are finished: a file to which every row is appended as soon as it is known, and the tables made of it.

A process may be killed at any time. A line that was cut off is no row, and its job runs again.
"""

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from emitc.emit.output_file import staging
from emitc.errors import EmitcError, Where, writing
from emitc.sweep.run_job import STATUSES

JOURNAL = "journal"
_MOST_LINE = 1 << 20
MOST_BYTES = 1 << 30
"""Of a file of rows that is read: 100 000 rows have a tenth of it."""
TABLE, CSV, PAGE = "results.jsonl", "results.csv", "index.html"
_REQUIRED = ("key", "model", "status", "seconds")
Row = dict[str, Any]


class Journal:
    """The journals in one folder. shard: "" or the part that this process computes, whose rows go to a file of their own."""

    def __init__(self, folder: Path, shard: str = "") -> None:
        self.folder = folder
        self._path = folder / f"{JOURNAL}{shard}.jsonl"
        self._descriptor = -1
        with writing(f"{folder} cannot be made", "-o"):
            folder.mkdir(parents=True, exist_ok=True)

    def rows(self) -> dict[str, Row]:
        """All finished rows of all journals in the folder, by their keys. Lines that are no rows are left out."""
        rows: dict[str, Row] = {}
        for path in sorted(self.folder.glob(f"{JOURNAL}*.jsonl")):
            if path.is_file():
                rows |= {row["key"]: row for row in read_rows(path)}
        return rows

    def add(self, row: Row) -> None:
        """Appends a row, in one write. Raises EmitcError where that fails."""
        with writing(f"{self._path} cannot be written", "-o"):
            if self._descriptor < 0:
                self._descriptor = self._opened()
            data = memoryview(_line(row).encode("ascii"))
            while data:
                data = data[os.write(self._descriptor, data) :]

    def _opened(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        size = os.fstat(descriptor).st_size
        if size:
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":  # the end of a line is missing: the process was killed
                os.write(descriptor, b"\n")
        return descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n"


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines. Lines that are no rows of a sweep are left out. Raises EmitcError for no file."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            where, why = Where(option=str(path)), f"it has {size} bytes, and at most {MOST_BYTES} are read"
            raise EmitcError("the rows of a sweep are too many", where, why, "use another folder")
        with path.open("rb") as file:
            while line := file.readline(_MOST_LINE):
                row: object = None
                with contextlib.suppress(ValueError, RecursionError):
                    row = json.loads(line, parse_constant=_no_number)
                if _is_row(row):
                    assert isinstance(row, dict)
                    yield row
    except OSError as error:
        why = error.strerror or str(error)
        what = "the rows of a sweep cannot be read"
        raise EmitcError(what, Where(option=str(path)), why, "check the path") from error


def _no_number(name: str) -> None:
    """NaN and the infinities are no JSON, and no row has them."""
    raise ValueError(f"{name} is no number")


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or any(name not in row for name in _REQUIRED):
        return False
    return isinstance(row["key"], str) and isinstance(row["model"], str) and row["status"] in STATUSES


def write_tables(folder: Path, rows: Sequence[Row], page: str) -> None:
    """Writes the rows as JSON lines and as CSV, and the page; each file is replaced in one step. Raises EmitcError."""
    files = {TABLE: "".join(map(_line, rows)), CSV: csv_text(rows), PAGE: page}
    with writing(f"the tables cannot be written to {folder}", "-o"), staging(folder / TABLE) as stage:
        for name, text in files.items():
            (stage / name).write_bytes(text.encode("utf-8"))
        for name in files:
            os.replace(stage / name, folder / name)


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as CSV, with the error in four columns. A cell that a spreadsheet would execute begins with an apostrophe.

    >>> csv_text([{"model": "=1+1", "arena_bytes": None, "error": {"what": "no"}}]).splitlines()
    ['model,arena_bytes,error_code,error', "'=1+1,,,no"]
    """
    if not rows:
        return ""
    names = [name for name in rows[0] if name != "error"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "error_code", "error"])
    for row in rows:
        error = row.get("error") or {}
        writer.writerow(_safe(value) for value in (*(row.get(n) for n in names), error.get("code"), error.get("what")))
    return out.getvalue()


def _safe(value: object) -> object:
    if isinstance(value, str) and value[:1] in "=+-@\t\r" and value:
        return f"'{value}"
    return "" if value is None else value
