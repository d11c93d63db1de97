"""Budgets: limits from a file and from options, what exceeds them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.errors import EmitcError
from emitc.explore.budget import Figure, compared, read_budget
from emitc.report.run import budget_text
from tests.support.cli_call import Emitc

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


def written(folder: Path, text: str) -> Path:
    path = folder / "emitc-budget.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_limits_of_a_model_replace_those_of_all(tmp_path: Path) -> None:
    path = written(tmp_path, 'max-arena = "2K"\nmax-ms = 1.5\n[models.kws]\nmax-arena = 100\nmax-stack = 7\n')
    assert read_budget(path, "kws") == {"arena": 100, "ms": 1.5, "stack": 7}
    assert read_budget(path, "other") == {"arena": 2048, "ms": 1.5}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max-arena = 1\nmax-arena = 2", "is no TOML"),
        ("max-area = 1", "max-area is unknown"),
        ("arena = 1", "arena is unknown"),
        ("max-arena = -1", "max-arena is no limit"),
        ("max-arena = true", "max-arena is no limit"),
        ('max-arena = "2KB"', "max-arena is no limit"),
        ("max-ms = nan", "max-ms is no limit"),
        ("models = 3", "is not understood"),
        ("[models]\nkws = 3", "is not understood"),
        ("[models.kws]\nmax-area = 1", "max-area is unknown"),
        ("\0", "is no TOML"),
    ],
)
def test_what_is_no_budget_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(EmitcError) as refused:
        read_budget(written(tmp_path, text), "kws")
    assert says in refused.value.what


def test_a_misspelt_key_names_the_right_one(tmp_path: Path) -> None:
    with pytest.raises(EmitcError) as refused:
        read_budget(written(tmp_path, "max-area = 1"), "kws")
    assert refused.value.hint == "did you mean max-arena?"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="cannot be read"):
        read_budget(tmp_path / "absent.toml", "kws")


def test_a_limit_may_be_reached_and_not_exceeded() -> None:
    figures = {"arena": Figure(100), "ms": Figure(1.5, estimated=True)}
    rows = compared({"arena": 100, "ms": 1.25}, figures)
    assert [(row.name, row.over) for row in rows] == [("arena", 0), ("ms", 0.25)]
    text = budget_text(rows)
    assert "OVER BUDGET: 1 of 2 limits" in text and "1.500 (estimate)" in text and "+0.250" in text
    assert budget_text(()) == ""


def test_what_is_not_known_cannot_be_checked() -> None:
    with pytest.raises(EmitcError) as refused:
        compared({"stack": 1}, {"stack": Figure(None, "add --stack")})
    assert (refused.value.exit_code, refused.value.hint) == (2, "add --stack")


def test_compile_writes_nothing_over_its_budget(emitc: Emitc, tmp_path: Path) -> None:
    model, out = MODELS / "digits_int8.tflite", tmp_path / "out"
    budget = written(tmp_path, "max-arena = 10\n")
    command = ("compile", model, "-o", out, "--target", "cortex-m4f", "--budget", budget)
    called = emitc(*command, "--json")
    assert called.code == 1 and not out.exists()
    (row,) = called.json["budget"]
    assert (row["limit"], row["allowed"], row["unit"]) == ("max-arena", 10, "bytes")
    assert row["excess"] == row["value"] - 10 == called.json["arena_bytes"] - 10
    larger = emitc(*command, "--max-arena", "1M", "--max-flash", "1M", "--max-instructions", "100000000", "--json")
    assert larger.code == 0 and out.is_dir(), "an option replaces the limit of the file"
    assert [each["estimated"] for each in larger.json["budget"]] == [False, True, True]


def test_time_needs_a_board(emitc: Emitc, tmp_path: Path) -> None:
    command = ("compile", MODELS / "digits_int8.tflite", "-o", tmp_path / "out", "--max-ms", "1000")
    assert emitc(*command, "--target", "cortex-m4f").code == 2
    assert emitc(*command, "--board", "nucleo_f446re").code == 0
    assert emitc(*command[:-1], "0.001", "--board", "nucleo_f446re").code == 1
