"""`emitc plan` with pictures and with several models: what is written, what is printed, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from emitc.compiler import compile_model
from emitc.emit import output_file
from emitc.report.picture import SVG_MARK
from tests.support.cli_call import Emitc


def test_pictures_are_written_together_the_plan(emitc: Emitc, tiny: Path) -> None:
    plain = emitc("plan", tiny / "spotter.tflite", "--json")
    drawn = emitc("plan", tiny / "spotter.tflite", "--json", "--svg", "a/plan.svg", "--html", "plan.html")
    assert (drawn.code, drawn.json) == (0, plain.json)
    text = Path("a/plan.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert text in Path("plan.html").read_text(encoding="utf-8")
    assert plain.json["proof"] in text
    assert text.count('<rect class="bar') == len(plain.json["buffers"])


def test_layers_that_run_row_by_row_are_one_step_of_the_picture(emitc: Emitc, tiny: Path) -> None:
    called = emitc("plan", tiny / "spotter.tflite", "--ram-budget", "min", "--json", "--svg", "plan.svg")
    segments = compile_model(tiny / "spotter.tflite", ram_budget="min").program.segments
    text = Path("plan.svg").read_text(encoding="utf-8")
    assert called.code == 0 and segments
    assert text.count('<rect class="rows"') == len(segments)
    for segment in segments:
        first, last = segment.calls[0].step, segment.last.step
        assert f"ops {first.index} to {last.index} = row by row" in text


def test_a_picture_replaces_an_older_one_in_one_step(emitc: Emitc, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("plan.svg").write_text(older := f"older {SVG_MARK}", encoding="utf-8")

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(output_file.os, "replace", full)
        failed = emitc("plan", tiny / "spotter.tflite", "--svg", "plan.svg")
    assert failed.code == 2
    assert "error: plan.svg cannot be written\n  at:    --svg\n  why:   No space left on device\n" in failed.err
    assert Path("plan.svg").read_text(encoding="utf-8") == older
    assert [path.name for path in Path(".").iterdir()] == ["plan.svg"]
    assert emitc("plan", tiny / "spotter.tflite", "--svg", "plan.svg").code == 0
    assert Path("plan.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert [path.name for path in Path(".").iterdir()] == ["plan.svg"]


def test_several_models_in_one_arena(emitc: Emitc, tiny: Path) -> None:
    models = [tiny / "spotter.tflite", tiny / "branches.tflite"]
    sizes = [compile_model(model).program.plan.arena_bytes for model in models]
    turns = emitc("plan", "--together", *models, "-o", "out", "--json")
    together = emitc("plan", "--together", "--concurrent", *models, "--name", "both", "-o", "out", "--json")
    assert (turns.code, together.code) == (0, 0)
    assert turns.json["arena_bytes"] == max(sizes)
    assert together.json["arena_bytes"] == together.json["separate_bytes"] == sum(sizes)
    assert [m["arena_offset"] for m in together.json["models"]] == [0, sizes[0]]
    assert sorted(path.name for path in Path("out").iterdir()) == ["both_together.h", "spotter_branches_together.h"]
    assert turns.json["file"] == "spotter_branches_together.h"
    for name, how in (("both", "CONCURRENT: "), ("spotter_branches", "TAKING TURNS: ")):
        assert f" * {how}" in Path(f"out/{name}_together.h").read_text(encoding="ascii")
    shown = emitc("plan", "--together", *models)
    assert shown.out.startswith(f"2 models share one arena of {max(sizes)} bytes, of which one runs at a time")
    assert json.loads(emitc("plan", "--together", *models, "--json").out).keys() == turns.json.keys() - {"file"}


@pytest.mark.parametrize(
    ("arguments", "option", "why"),
    [
        pytest.param(["{a}", "{b}"], "MODEL...", "several models have several arenas", id="several"),
        pytest.param(["{a}", "--concurrent"], "--concurrent", "it says how several models share an arena", id="alone"),
        pytest.param(["{a}", "-o", "out"], "-o", "it is where the header of --together goes", id="output"),
        pytest.param(
            ["{a}", "{b}", "--together", "--svg", "x.svg"], "--svg", "a picture shows the arena of one model", id="svg"
        ),
        pytest.param(
            ["{a}", "{b}", "--together", "--html", "x"], "--html", "a picture shows the arena of one model", id="html"
        ),
    ],
)
def test_arguments_that_do_not_go_together(
    emitc: Emitc, tiny: Path, arguments: list[str], option: str, why: str
) -> None:
    models = {"a": str(tiny / "spotter.tflite"), "b": str(tiny / "branches.tflite")}
    refused = emitc("plan", *(argument.format(**models) for argument in arguments))
    assert refused.code == 2
    assert refused.err.startswith(
        f"error: {option} does not go with the other arguments\n  at:    {option}\n  why:   {why}\n"
    )
    assert list(Path(".").iterdir()) == []


def test_a_single_model_and_the_same_twice_are_refused(emitc: Emitc, tiny: Path) -> None:
    model = tiny / "spotter.tflite"
    assert "error: there is one model only\n" in emitc("plan", "--together", model).err
    assert "error: two models are named spotter\n" in emitc("plan", "--together", model, model).err


def test_no_model_is_a_usage_error(emitc: Emitc) -> None:
    assert emitc("plan").code == 2
