"""How long functions and modules may be, and how many parameters a function may take.

The three tables list what is above the limits, with its size and the reason why it stays so. A size in a table may only become
smaller, and what has come below the limit leaves the table.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES, MOST_PARAMETERS, MOST_LINES_OF_A_MODULE = 60, 7, 500

Table = Mapping[str, tuple[int, str]]

LONG: Table = {}
"""Functions by module and name, with their lines."""
WIDE: Table = {
    "emitc/boards/verify.py:on_emulator": (
        8,
        "a public function whose settings are keywords, as the command line has them",
    ),
}
"""Functions with their parameters, without self."""
MODULES: Table = {}
"""Modules with their lines."""


def measured() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Everything above a limit, as the tables have it: functions by lines, functions by parameters, modules by lines."""
    long: dict[str, int] = {}
    wide: dict[str, int] = {}
    modules: dict[str, int] = {}
    for path in sorted(path for top in ("emitc", "bench") for path in (ROOT / top).rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        if (count := text.count("\n")) > MOST_LINES_OF_A_MODULE:
            modules[name] = count
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                key, given = f"{name}:{node.name}", node.args
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                parameters = [
                    a for a in (*given.posonlyargs, *given.args, *given.kwonlyargs) if a.arg not in ("self", "cls")
                ]
                if lines > MOST_LINES:
                    long[key] = max(lines, long.get(key, 0))
                if len(parameters) > MOST_PARAMETERS:
                    wide[key] = max(len(parameters), wide.get(key, 0))
    return long, wide, modules


@pytest.mark.parametrize(
    ("position", "table"), [(0, LONG), (1, WIDE), (2, MODULES)], ids=["lines", "parameters", "modules"]
)
def test_nothing_grows_beyond_a_limit(position: int, table: Table) -> None:
    found = measured()[position]
    assert {name: size for name, size in found.items() if name not in table or size > table[name][0]} == {}
    assert {name: size for name, (size, _) in table.items() if size != found.get(name)} == {}, (
        "it has shrunk: correct the table"
    )


@pytest.mark.parametrize("table", [LONG, WIDE, MODULES], ids=["lines", "parameters", "modules"])
def test_whatever_is_above_a_limit_has_a_reason(table: Table) -> None:
    assert [name for name, (_, reason) in table.items() if len(reason.split()) < 5] == []
