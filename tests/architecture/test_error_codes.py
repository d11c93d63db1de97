"""Every refusal has a code: each module that raises one has a line in the table, and each number stands for one thing."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from emitc.errors import (
    _OF_MODULE,
    CLASSES,
    CannotCompile,
    Code,
    EmitcError,
    Refusals,
    WarningCode,
    Where,
    code_of_module,
)  # fmt: skip
from tests.support.module_trees import module_trees

ROOT = Path(__file__).resolve().parents[2]
RAISERS = frozenset({"EmitcError", "CannotCompile", "illegal", "unsupported", "damaged"})
NUMBERS = {
    "E0101", "E0102", "E0103", "E0104", "E0105", "E0106", "E0201", "E0202", "E0203", "E0204", "E0205", "E0301", "E0302",
    "E0401", "E0402", "E0501", "E0601", "E0602", "E0701", "E0702", "E0703", "E0801", "E0802", "E0803", "E0901", "E0902",
    "E1001", "E1002", "E1003", "E1101", "E1102",
}  # fmt: skip
"""Those that were ever released: none may go."""


def _raises(tree: ast.Module) -> bool:
    """Whether a module makes an error."""
    names = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return bool(names & RAISERS)


def test_every_module_that_refuses_has_codes() -> None:
    raising = [name for name, tree in module_trees().items() if name != "emitc.errors" and _raises(tree)]
    assert len(raising) > 100
    for module in raising:
        assert code_of_module(module, 1) and code_of_module(module, 2)


def test_the_table_names_modules_that_exist() -> None:
    places = {
        f"emitc.{'.'.join(p.relative_to(ROOT / 'emitc').with_suffix('').parts)}" for p in (ROOT / "emitc").rglob("*.py")
    }
    places |= {place.rpartition(".")[0] for place in places}
    assert sorted(set(_OF_MODULE) - places) == []


def test_every_code_is_given_to_something() -> None:
    named = {code for pair in _OF_MODULE.values() for code in pair}
    named |= {
        Code[n.attr]
        for tree in module_trees().values()
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and isinstance(n.value, ast.Name)
        and n.value.id == "Code"
        and n.attr in Code.__members__
    }
    assert sorted(code.number for code in set(Code) - named) == []


def test_numbers_are_stable_and_of_a_class() -> None:
    numbers = [code.number for code in Code]
    assert set(numbers) == NUMBERS and len(numbers) == len(set(numbers))
    assert {number[:3] for number in numbers} == set(CLASSES)
    assert all(re.fullmatch(r"E\d{4}", number) for number in numbers)
    assert all(code.meaning.endswith(".") for code in Code)


WARNINGS = {"W0901", "W1001", "W1002", *(f"W110{i}" for i in range(1, 6))}
"""Numbers of warnings, which are never used for anything else."""


def test_numbers_of_warnings_are_stable_and_each_is_used() -> None:
    numbers = [code.number for code in WarningCode]
    assert set(numbers) == WARNINGS and len(numbers) == len(set(numbers))
    assert {f"E{number[1:3]}" for number in numbers} <= set(CLASSES)
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "emitc").rglob("*.py")))
    assert [code.name for code in WarningCode if f"Warned(WarningCode.{code.name}, " not in sources] == []


def test_an_error_keeps_its_code() -> None:
    error = CannotCompile("what", Where(option="o"), "why", "hint", Code.TYPE)
    assert error.at(hint="other").code is Code.TYPE
    assert pickle.loads(pickle.dumps(error)).code is Code.TYPE
    both = Refusals((error, EmitcError("b", Where(option="o"), "w", "h", Code.SHAPE)))
    assert both.code is Code.TYPE
    assert re.findall(r"code:  (E\d+)", both.message()) == ["E0401", "E0501"]
    assert str(error) == "error: what\n  at:    o\n  why:   why\n  try:   hint"


@pytest.mark.parametrize(
    ("module", "exit_code", "number"),
    [
        ("emitc.kernels.convolution.conv_2d", 1, "E0302"),
        ("emitc.kernels.convolution.conv_2d", 2, "E0204"),
        ("emitc.frontends.tflite.reader", 2, "E0202"),
        ("emitc.target", 2, "E0801"),
    ],
)
def test_a_module_has_the_code_of_its_folder(module: str, exit_code: int, number: str) -> None:
    found = code_of_module(module, exit_code)
    assert found is not None and found.number == number
    assert code_of_module("somewhere.else", exit_code) is None
