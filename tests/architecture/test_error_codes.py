"""Every refusal has a code: each module that raises one has a line in the table, and each number stands for one thing."""

from __future__ import annotations

import ast
import copy
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
    Note,
    NoteCode,
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


def sources() -> str:
    """The text of every module."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "emitc").rglob("*.py")))


WARNINGS = {"W0901", "W1001", "W1002", *(f"W110{i}" for i in range(1, 7))}
"""Numbers of warnings, which are never used for anything else."""


def test_numbers_of_warnings_are_stable_and_each_is_used() -> None:
    numbers = [code.number for code in WarningCode]
    assert set(numbers) == WARNINGS and len(numbers) == len(set(numbers))
    assert {f"E{number[1:3]}" for number in numbers} <= set(CLASSES)
    assert [code.name for code in WarningCode if f"Warned(WarningCode.{code.name}, " not in sources()] == []


NOTES = {
    "N0301", "N0401", "N0402", "N0501", "N0601", "N0701", "N0702", "N0801", "N0901", "N0902", *(f"N100{i}" for i in range(1, 9)),
    "N1101",
}  # fmt: skip
"""Numbers of notes, which are never used for anything else."""


def test_numbers_of_notes_are_stable_and_each_is_used() -> None:
    numbers = [code.number for code in NoteCode]
    assert set(numbers) == NOTES and len(numbers) == len(set(numbers))
    assert {f"E{number[1:3]}" for number in numbers} <= set(CLASSES)
    assert all(code.meaning.endswith(".") for code in NoteCode)
    assert [code.name for code in NoteCode if f"Note(NoteCode.{code.name}, " not in sources()] == []


def test_every_list_of_notes_or_warnings_holds_values_with_codes() -> None:
    """The annotations say so, and mypy holds the code to them."""
    wanted = {"notes": "Note", "note": "Note", "warnings": "Warned", "doubts": "Warned"}
    stated = [
        (name, node.target, ast.unparse(node.annotation))
        for name, tree in module_trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and not name.startswith(("emitc.report.", "emitc.target"))
    ]
    known = [
        (name, what, annotation)
        for name, target, annotation in stated
        if (what := getattr(target, "attr", getattr(target, "id", ""))) in wanted
    ]
    assert len(known) > 10
    assert [place for place in known if not re.search(rf"\b{wanted[place[1]]}\b", place[2])] == []


_LINES = re.compile(r"""f?"(?:\\n)?  +(note|warning|doubt|slow|smaller|target|disputed|unjudged) +(?![ {])""")
"""A line of a report that says more than a figure."""


def test_no_report_prints_a_note_without_its_code() -> None:
    assert _LINES.search('lines.append(f"  note        the batch is 1")')
    assert not _LINES.search('lines.append(f"  note        {note.line()}")')
    assert _LINES.findall(sources()) == []


def test_a_note_keeps_its_code() -> None:
    note = Note(NoteCode.BATCH, "made 1").of("input")
    assert (note, note.code, note.line()) == ("input: made 1", NoteCode.BATCH, "input: made 1 (N0501)")
    for copied in (pickle.loads(pickle.dumps(note)), copy.deepcopy(note)):
        assert (copied, copied.code) == (note, note.code)


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
