"""How large folders may be: what a reader has to look through to find something."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("emitc", "c_runtime", "boards", "bench", "tests")
MOST_FILES = 30
"""Of one kind in one folder; JSON is data."""
EXEMPT: dict[str, str] = {
    "boards": "data: a file for each board",
    "boards/targets": "data: a file for each core",
    "tests/regression/random_graphs": "data: two files for each graph that failed once",
}


def test_the_root_holds_the_values_and_the_pipeline() -> None:
    assert len(list((ROOT / "emitc").glob("*.py"))) <= 14


@pytest.mark.parametrize("top", FOLDERS)
def test_no_folder_is_too_large_to_look_through(top: str) -> None:
    files = [path for path in (ROOT / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    counts = Counter((path.parent.relative_to(ROOT).as_posix(), path.suffix) for path in files)
    found = {folder for (folder, kind), count in counts.items() if count > MOST_FILES and kind != ".json"}
    assert found - EXEMPT.keys() == set()


def test_every_exemption_is_needed() -> None:
    for folder in EXEMPT:
        counts = Counter(path.suffix for path in (ROOT / folder).iterdir() if path.is_file())
        assert max(counts.values()) > MOST_FILES or "data" in EXEMPT[folder], f"{folder} is small enough now"


def test_no_file_has_marks_of_a_merge() -> None:
    marks = re.compile(rb"^(?:<{7}|>{7}|\|{7}) ", re.M)
    text = (
        path for folder in ("emitc", "c_runtime", "boards", "bench", "docs") for path in (ROOT / folder).rglob("*.*")
    )
    marked = [
        path
        for path in text
        if path.suffix in (".py", ".j2", ".h", ".c", ".toml", ".md") and marks.search(path.read_bytes())
    ]
    assert marked == []
