"""A value is named after what it is: `found`, `each` and `given` say nothing about it, and are no names in emitc and bench."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEANINGLESS = frozenset({"found", "each", "given"})
ALLOWED = {
    "bench/random_graphs/regressions.py": ["found"],  # the key of the stored regressions, which keep their format
}


def _bound(node: ast.AST) -> Iterator[str | None]:
    """Names that a node of the syntax tree gives to a value, and string keys of dicts."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.keyword(arg=name) | ast.alias(asname=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            yield name
        case ast.MatchMapping(rest=name):
            yield name
        case ast.Dict(keys=keys):
            yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Store()):
            yield key


def meaningless(source: str) -> list[str]:
    """The meaningless names that a module binds, as often as it does."""
    return [name for node in ast.walk(ast.parse(source)) for name in _bound(node) if name in MEANINGLESS]


def test_names_say_what_a_value_is() -> None:
    paths = sorted(path for folder in ("emitc", "bench") for path in (ROOT / folder).rglob("*.py"))
    bound = {path.relative_to(ROOT).as_posix(): meaningless(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: names for path, names in bound.items() if names} == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "found: int",
        "a, *given = b",
        "if found := a: pass",
        "a.found = 1",
        "a['found'] = 1",
        "a = {'found': 1}",
        "a = dict(found=1)",
        "for each in a: pass",
        "a = [each for each in b]",
        "def each(): pass",
        "def a(*given): pass",
        "a = lambda given: 1",
        "with a as given: pass",
        "import a as found",
        "try: pass\nexcept a as found: pass",
        "match a:\n case [*found]: pass",
        "match a:\n case {**found}: pass",
        "match a:\n case found: pass",
    ],
)
def test_every_way_to_bind_a_name_is_seen(source: str) -> None:
    assert len(meaningless(source)) == 1


def test_words_and_names_of_others_are_no_names_of_ours() -> None:
    assert meaningless('"""Each found."""\na = b.found["given"]  # each\nfound_rows = "found"') == []
