"""The benchmark of modes: which pairs it takes, what it remembers, and that its stored result is true for a few."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench import modes
from bench.corpus import CORPUS, format_of
from emitc.compiled import Compiled
from emitc.errors import CannotCompile, Where

STORED = modes.read_rows(modes.RESULTS)
SMALL = 30_000
"""Instructions of a run that a test may repeat."""
REPEATED = sorted(
    key
    for key, row in STORED.items()
    if row["verdict"] == "match" and 1000 < row["instructions"] < SMALL and "same_as" not in row
)[::7]


def test_nothing_in_the_stored_result_is_wrong() -> None:
    assert len(STORED) >= 150
    assert [key for key, row in STORED.items() if row["verdict"] in modes.BAD] == []
    assert {mode for _, mode in STORED} == set(modes.MODES)
    assert all(row["differing_bytes"] == 0 for row in STORED.values() if row["verdict"] == "match")
    assert sum(row["verdict"] == "match" for row in STORED.values()) > 0.9 * len(STORED)


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("pair", REPEATED, ids="-".join)
def test_a_stored_verdict_is_true(pair: tuple[str, str], shared_models: Path) -> None:
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    name, mode = pair
    compiled = modes.compiled_for(shared_models / format_of(name) / name, "qemu_m4", mode)
    row = modes.measure(compiled, "qemu_m4")
    assert row["verdict"] == "match", row


def test_a_sample_is_the_same_every_time_and_all_of_it_for_none() -> None:
    names, kinds = [f"m{i}" for i in range(9)], ["default", "min"]
    assert len(modes.pairs(names, kinds, None, 0)) == 18
    some = modes.pairs(names, kinds, 5, 3)
    assert some == modes.pairs(names, kinds, 5, 3) and len(set(some)) == 5
    assert some != modes.pairs(names, kinds, 5, 4)


def test_a_run_goes_on_where_it_was_and_tells_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus of models (../shared/models) is not next to this checkout")
    asked: list[tuple[str, str]] = []

    def measured(compiled: Compiled, board: str) -> dict[str, object]:
        mode = "min" if compiled.options.ram_budget == "min" else "default"
        asked.append((compiled.program.name, mode))
        code = {"code": modes.code_digest(compiled.files)}
        return code | {"verdict": "failed" if mode == "min" else "match", "why": "a test says so"}

    monkeypatch.setattr(modes, "measure", measured)
    monkeypatch.setattr(modes, "same_code", lambda *_: None)
    file = tmp_path / "rows.json"
    arguments = ["--models", "ad01_int8.tflite", "--json", str(file), "--modes", "default"]
    assert modes.main(arguments) == 0
    assert modes.main([*arguments, "min"]) == 1
    assert asked == [("ad01_int8", "default"), ("ad01_int8", "min")]
    assert "2 pairs: 1 match, 1 failed" in capsys.readouterr().out
    assert [row["mode"] for row in json.loads(file.read_text(encoding="utf-8"))["rows"]] == ["default", "min"]
    assert modes.main(["--again", *arguments]) == 0
    assert len(asked) == 3
    assert modes.main(["--changed", *arguments]) == 0
    assert len(asked) == 3, "its code is what it was"
    file.write_text(file.read_text(encoding="utf-8").replace('"code": "', '"code": "x'), encoding="utf-8")
    assert modes.main(["--changed", *arguments]) == 0
    assert len(asked) == 4


def test_the_same_code_is_booted_once(tiny: Path) -> None:
    default, without, size = (
        modes.compiled_for(tiny / "spotter.tflite", "qemu_m4", mode) for mode in ("default", "no-order", "size")
    )
    code = modes.code_digest(default.files)
    assert default.files != without.files, "the command in the comments differs"
    assert modes.code_digest(without.files) == code != modes.code_digest(size.files)
    rows = {("m", "default"): {"verdict": "match", "code": code, "arena_bytes": 8, "stack_bytes": 5}}
    assert modes.same_code(rows, "m", "no-order", code) == {"verdict": "match", "arena_bytes": 8, "same_as": "default"}
    assert modes.same_code(rows, "m", "default", code) is None, "not its own row"
    assert modes.same_code(rows, "other", "no-order", code) is modes.same_code(rows, "m", "size", code[:-1]) is None
    rows["m", "default"] |= {"same_as": "min"}
    assert modes.same_code(rows, "m", "no-order", code) is None, "it was not booted itself"


def test_what_goes_wrong_on_the_board_is_a_verdict(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise CannotCompile("the model wrote outside of its memory on the board", Where(), "guard bytes", "a bug")

    monkeypatch.setattr(modes, "on_emulator", broken)
    compiled = modes.compiled_for(tiny / "spotter.tflite", "qemu_m4", "default")
    row = modes.measure(compiled, "qemu_m4")
    assert (row["verdict"], row["why"]) == ("failed", "the model wrote outside of its memory on the board: guard bytes")
    monkeypatch.setattr(modes, "require_fit", broken)
    assert modes.measure(compiled, "qemu_m4")["verdict"] == "too large"
    file = tmp_path / "rows.json"
    arguments = ["--corpus", str(tmp_path), "--models", "unsupported.tflite", "--json", str(file), "--modes", "default"]
    (tmp_path / "tflite").mkdir()
    shutil.copy(tiny / "unsupported.tflite", tmp_path / "tflite")
    assert modes.main(arguments) == 0
    assert modes.read_rows(file)["unsupported.tflite", "default"]["verdict"] == "unsupported"
