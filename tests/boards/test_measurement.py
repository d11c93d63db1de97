"""What a measurement says of itself: in JSON, in one line and in a notebook."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import emitc
from emitc.boards.measurement import html_table, measurement
from emitc.boards.result import LayerCount, RunResult

MODEL = Path(__file__).resolve().parents[2] / "examples" / "models" / "digits_int8.tflite"


@pytest.fixture(scope="module")
def digits() -> emitc.Model:
    return emitc.compile_model(MODEL, target="cortex-m4f", optimize="size")


def result(**changes: object) -> RunResult:
    values = {"board": "qemu_m4", "match": True, "cases": 1, "differing_bytes": 0, "unit": "instructions", "count": 123}
    more = {"counter": "plugin", "stack_bytes": 7, "flash_bytes": 9, "ram_bytes": 1, "arena_bytes": 5}
    return RunResult(**(values | more | changes))  # type: ignore[arg-type]


def test_it_names_what_ran(digits: emitc.Model) -> None:
    found = measurement(digits, result(), "tflm").as_json()
    assert found["model"] == "digits_int8" and found["model_file"] == "digits_int8.tflite"
    assert found["model_sha256"] == digits.source.sha256 and found["target"] == "cortex-m4f"
    assert found["options"] == "--target cortex-m4f --optimize size"
    assert found["instructions"] == 123 and found["reference"] == "tflm"


def test_one_line_and_tables(digits: emitc.Model) -> None:
    found = measurement(digits, result(match=False, layers=(LayerCount(0, "<b>", "x", 4, 0),)))
    assert repr(found) == (
        "<Measurement of digits_int8 on qemu_m4: MISMATCH, 123 instructions, 5 arena bytes, 7 stack bytes>"
    )
    page = found._repr_html_()
    assert page.count("<table>") == 2 and "&lt;b&gt;" in page and "<b>" not in page
    assert "<script>" not in html_table("<script>", ("<script>",), [("<script>",)])


def test_a_model_is_a_table_of_its_interface(digits: emitc.Model) -> None:
    page = digits._repr_html_()
    assert "digits_int8 for cortex-m4f" in page and page.count("<tr>") == 1 + len(digits.inputs + digits.outputs)


@pytest.mark.parametrize("call", [emitc.compile_model, emitc.cost])
def test_a_misspelt_keyword_names_the_right_one(call: object) -> None:
    with pytest.raises(emitc.EmitcError) as refused:
        call(MODEL, ram_buget=1)  # type: ignore[operator]
    assert refused.value.hint == "did you mean ram_budget?"


def test_a_misspelt_keyword_of_evaluate_is_refused(digits: emitc.Model) -> None:
    with pytest.raises(emitc.EmitcError, match="evaluate has no option metrik"):
        digits.evaluate("absent.npz", metrik="top1")


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_a_model_is_measured() -> None:
    model = emitc.compile_model(MODEL, target="cortex-m4f")
    found = model.measure("qemu_m4", layers=True, samples=1, reference="numpy")
    assert found.match and found.target == "cortex-m4f"
    assert len(found.layers or ()) == len(model.program.steps)
    assert model.cost().instructions == pytest.approx(found.instructions, rel=0.05)
