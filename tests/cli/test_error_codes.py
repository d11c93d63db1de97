"""The code of a refusal in the message and under --json, for one refusal of each common kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_call import Emitc

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "digits_int8.tflite"


@pytest.mark.parametrize(
    ("number", "arguments"),
    [
        ("E0102", ["compile", MODEL, "-o", "out", "--io", "bool"]),
        ("E0103", ["compile", "absent.tflite", "-o", "out"]),
        ("E0201", ["compile", "page.html", "-o", "out"]),
        ("E0202", ["compile", "cut.tflite", "-o", "out"]),
        ("E0701", ["compile", MODEL, "-o", "out", "--ram-budget", "16"]),
        ("E0702", ["compile", MODEL, "-o", "out", "--flash-budget", "16"]),
        ("E0801", ["compile", MODEL, "-o", "out", "--target", "cortex-m9"]),
        ("E0802", ["run", MODEL, "--board", "nucleo_f446re"]),
        ("E1101", ["evaluate", MODEL, "--data", "absent.npz"]),
        ("E1102", ["compile", MODEL, "-o", "out", "--max-stack", "1"]),
    ],
)
def test_a_refusal_says_its_code(number: str, arguments: list[object], emitc: Emitc, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!DOCTYPE html><html></html>", encoding="utf-8")
    (tmp_path / "cut.tflite").write_bytes(MODEL.read_bytes()[:3000])
    called = emitc(*arguments, "--json")
    assert {each["code"] for each in called.json["error"]} == {number}, called.err
    assert f"\n  code:  {number}\n" in called.err


def test_coverage_is_a_gate(emitc: Emitc, tiny: Path) -> None:
    model = tiny / "unsupported.tflite"
    found = emitc("inspect", model, "--json").json
    assert 0 < found["coverage"] == found["supported"] / len(found["operators"]) < 1
    assert [row["codes"] for row in found["operators"] if not row["supported"]] == [["E0301"], ["E0301"]]
    assert emitc("inspect", model, "--min-coverage", found["coverage"]).code == 0
    assert emitc("inspect", model, "--min-coverage", "1.0").code == 1
    assert emitc("inspect", MODEL, "--min-coverage", "1.0").code == 0
