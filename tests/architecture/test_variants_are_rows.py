"""Facts about a kernel stand where its layer is made: what weight staging and row streaming need of it is never looked up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

EMITC = Path(__file__).resolve().parents[2] / "emitc"
_POSITION = 5
"""Of `pixels_per_load` among the fields of `Table`."""


def _weight_tables(source: str) -> Iterator[ast.Call]:
    """The calls that make an array with the role `weights`."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Table":
            role = call.args[0] if call.args else None
            if isinstance(role, ast.Constant) and role.value == "weights":
                yield call


def _states_its_loads(call: ast.Call) -> bool:
    return len(call.args) > _POSITION or any(keyword.arg == "pixels_per_load" for keyword in call.keywords)


def test_every_array_of_weights_states_how_often_it_is_loaded() -> None:
    """Weight staging would leave out a layer that does not."""
    files = [*(EMITC / "kernels").rglob("*.py"), *(EMITC / "backends").rglob("*.py")]
    found = [(path.name, call) for path in files for call in _weight_tables(path.read_text(encoding="utf-8"))]
    assert len(found) > 10
    assert [f"{name}:{call.lineno}" for name, call in found if not _states_its_loads(call)] == []


def test_an_array_of_weights_that_does_not_is_found() -> None:
    (call,) = _weight_tables('Table("weights", "int8_t", values, "weights 3x3", alignment=4)')
    assert not _states_its_loads(call)
    (call,) = _weight_tables('Table("weights", "int8_t", values, "weights 3x3", 4, 2)')
    assert _states_its_loads(call)
