"""Facts about a kernel stand in its row or where its layer is made: nothing else of emitc knows a variant by its name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from emitc.kernels import registry
from emitc.kernels.costs import NOT_MEASURED, Cost, Costs
from emitc.target import FEATURES, boards

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


FEATURE_NAMES = {"target.py": set(FEATURES), "versions.py": {"dsp", "mve"}}
"""Modules that name features of cores, which variants are often called by: targets have them, and CMSIS-NN has its own sets."""


def _strings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _names() -> set[str]:
    """Every variant's name, and path and name of every template for an instruction set."""
    variants = {name for kernel in registry().values() for name in kernel.variant_names}
    folder = EMITC / "templates" / "kernels"
    paths = {path.relative_to(folder).as_posix().removesuffix(".c.j2") for path in folder.rglob("*.c.j2")}
    instructions = {path for path in paths if re.search(r"_(dsp|mve|fpu)$", path)}
    return variants | instructions | {path.rpartition("/")[2] for path in instructions}


def test_no_module_outside_of_the_kernels_names_a_variant_or_its_template() -> None:
    """What emitc needs to know of a kernel is in its row or in its layer."""
    names = _names()
    assert {"dsp", "mve", "convolution/conv_2d_dsp", "conv_2d_dsp"} <= names
    found = [
        f"{path.relative_to(EMITC)}:{line}: {text}"
        for path in sorted(EMITC.rglob("*.py"))
        if "kernels" not in path.relative_to(EMITC).parts
        for line, text in _strings(path.read_text(encoding="utf-8"))
        if text in names - FEATURE_NAMES.get(path.name, set())
    ]
    assert found == []


def test_rows_of_one_name_need_one_feature_and_the_last_one_alone_takes_everything() -> None:
    """A row without conditions in front of another one of its name would hide that."""
    for kernel in registry().values():
        for name in kernel.variant_names:
            rows = [row for row in kernel.variants if row.name == name]
            assert len({row.feature for row in rows}) == 1, f"{kernel.op.__name__} {name}"
            assert all(row.applies for row in rows[:-1]), f"{kernel.op.__name__} {name}"
        assert {row.yields_to for row in kernel.variants} <= {"", *kernel.variant_names}


def test_sources_of_costs_name_a_board_of_this_tree() -> None:
    kernels = registry().values()
    portable = [costs for kernel in kernels for costs in (kernel.cost, kernel.cost_with_vectors) if costs]
    sources = {costs.source for costs in portable} | {row.cost.source for kernel in kernels for row in kernel.variants}
    measured = {source.partition(" at ")[0] for source in sources - {NOT_MEASURED}}
    assert measured <= set(boards())
    assert {"qemu_m0", "qemu_m3", "qemu_m4", "qemu_m55"} <= measured


def test_costs_that_do_not_say_where_they_are_from_are_an_error() -> None:
    for source in ("", "measured", "qemu_m4", "qemu_m4 at 1183ada", "qemu_m4 at 1183ada, yesterday"):
        with pytest.raises(ValueError, match="write BOARD at COMMIT, DATE"):
            Costs(source, Cost(mac=1.0))
    assert Costs("qemu_m4 at 1183ada 97efdbb, 2026-11-22", Cost(mac=1.0)).cases == {}
