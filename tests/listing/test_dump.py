"""`emitc dump`: every level of a shipped model as it was, hostile names as printable text, the same bytes every time."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from emitc.cli.main import cli
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.listing import LEVELS, dump_json, dump_text
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).resolve().parent / "expected"
MODEL = ROOT / "examples" / "models" / "digits_int8.tflite"
SHOWN = ("graph", "fold-zero-point", "schedule", "plan")
"""Levels whose text is kept whole; of the others there is a hash."""
LEFT_OUT = ("--input-rows",)


def called(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def dumped() -> dict[str, str]:
    compiled = compile_model(MODEL)
    return {level: dump_text(dump_json(compiled, level)) for level in LEVELS if level not in LEFT_OUT}


def test_every_level_of_a_shipped_model_is_as_it_was(request: pytest.FixtureRequest) -> None:
    found = dumped()
    hashes = {level: hashlib.sha256(text.encode()).hexdigest() for level, text in found.items()}
    if request.config.getoption("--update-golden"):
        for level in SHOWN:
            (EXPECTED / f"{level}.txt").write_text(found[level], encoding="ascii")
        (EXPECTED / "hashes.json").write_text(json.dumps(hashes, indent=1) + "\n", encoding="ascii")
    for level in SHOWN:
        assert found[level] == (EXPECTED / f"{level}.txt").read_text(encoding="ascii"), level
    assert hashes == json.loads((EXPECTED / "hashes.json").read_text(encoding="ascii"))
    assert dumped() == found


@pytest.mark.parametrize("level", [level for level in LEVELS if level not in LEFT_OUT])
def test_text_and_json_say_the_same(level: str, tmp_path: Path) -> None:
    text = called("dump", MODEL, "--after", level)
    content = json.loads(called("dump", MODEL, "--after", level, "--json"))
    assert text == dump_text(content)
    assert content["level"] == level
    called("dump", MODEL, "--after", level, "-o", tmp_path / "dump.txt")
    assert (tmp_path / "dump.txt").read_text(encoding="ascii") == text
    called("dump", MODEL, "--after", level, "-o", tmp_path / "dump.json", "--json")
    assert json.loads((tmp_path / "dump.json").read_text(encoding="ascii")) == content


def test_two_dumps_differ_in_the_lines_that_a_pass_has_changed() -> None:
    compiled = compile_model(MODEL)
    before, after = (
        dump_text(dump_json(compiled, level)).splitlines() for level in ("drop-constant-channels", "fold-zero-point")
    )
    new = [line for line in after if line not in before]
    assert any("zero_point_folded=yes" in line for line in new)
    assert any(':folded bias" dtype "int32"' in line for line in new)
    assert all("folded" in line or line.startswith(("level", "tensors:")) for line in new), new


def test_a_step_that_was_left_out_is_refused() -> None:
    compiled = compile_model(MODEL)
    with pytest.raises(EmitcError, match="no graph after --input-rows"):
        dump_json(compiled, "--input-rows")
    without = replace(compiled, history=tuple(s for s in compiled.history if s.name != "alias-views"))
    with pytest.raises(EmitcError, match="no graph after alias-views"):
        dump_json(without, "alias-views")
    result = CliRunner().invoke(cli, ["dump", str(MODEL), "--after", "fold-zero"])
    assert result.exit_code == 2
    assert "did you mean fold-zero-point?" in result.stderr


def test_hostile_names_are_printable(tmp_path: Path) -> None:
    name = 'a\n"index 0 op\x1b[31m \u202e\U0001f600'
    tensors = (
        TensorSpec(name, "int8", (1, 4), None, (0.1,), (0,)),
        TensorSpec(name + "2", "int8", (1, 4), None, (0.1,), (0,)),
    )
    model = ModelSpec(tensors, (OperatorSpec("RELU", (0,), (1,), {}),), (0,), (1,))
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(model))
    for level in LEVELS:
        if level in LEFT_OUT:
            continue
        text = called("dump", path, "--after", level)
        assert all(" " <= c <= "~" or c == "\n" for c in text), level
        assert not any(line.lstrip().startswith('"index 0') for line in text.splitlines())


def test_a_foreign_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    arguments = ["dump", str(MODEL), "--after", "plan", "-o", str(file)]
    assert CliRunner().invoke(cli, arguments).exit_code == 2
    assert file.read_text() == "mine"
    assert CliRunner().invoke(cli, [*arguments, "--force"]).exit_code == 0
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert CliRunner().invoke(cli, [*arguments[:-1], str(MODEL)]).exit_code == 2
