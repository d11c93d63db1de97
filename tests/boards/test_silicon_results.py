"""Results of real boards that others contribute, and the page that says how each board is attached."""

from __future__ import annotations

import copy
import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.silicon.__main__ import HERE, main, milliseconds, new, problems
from emitc.boards.flash import _result
from emitc.boards.measurement import measurement
from emitc.boards.project import Case
from emitc.boards.protocol import parse
from emitc.boards.verify import expected, run_model
from emitc.compiler import compile_model
from emitc.report.run import run_text
from emitc.target import boards, load_board

PAGE = Path(__file__).resolve().parents[2] / "docs" / "real-boards.md"
REAL = [name for name in boards() if load_board(name).kind == "silicon"]


def proof(board: str, vectors: list[Case], ticks: int) -> str:
    """What a board prints that computes the expected outputs."""
    lines = [f"emitc begin 1 {board}", "emitc counter cycles", "emitc check 0 200010"]
    for number, (_, outputs) in enumerate(vectors):
        lines.append(f"emitc run {number} 312 {ticks + number}")
        for index, output in enumerate(outputs):
            lines += [f"emitc output {number} {index} 0 {output.hex()}", f"emitc differ {number} {index} 0"]
    return "\n".join([*lines, "emitc done", ""])


@pytest.fixture(scope="module")
def flashed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What `emitc flash --json` and `emitc flash` print for a proof that arrives over a line."""
    from emitc.verify.build import captured

    compiled = compile_model(tiny / "spotter.tflite", package="platformio", target="cortex-m4f")
    _, vectors = expected(compiled, "numpy", 2, 0)
    folder = tmp_path_factory.mktemp("image")
    (folder / "a.c").write_text("int data[2000] = {1}; int main(void) { return data[0]; }\n", encoding="ascii")
    assert captured(["gcc", "-o", "firmware.elf", "a.c"], cwd=folder).returncode == 0
    board = load_board("nucleo_f446re")
    transcript = parse(proof(board.name, vectors, 90_000))
    result = measurement(
        compiled, _result(run_model(compiled), board, transcript, vectors, folder / "firmware.elf"), "numpy"
    )
    return result.as_json(), run_text(compiled, result)


@pytest.fixture
def contributed(flashed: tuple[dict[str, Any], str]) -> dict[str, Any]:
    content = new(copy.deepcopy(flashed[0]), datetime.date(2026, 11, 26))
    return content | {"contributor": "A. Person", "board_revision": "MB1136 C-04", "compiler": "gcc 12.3.1"}


def test_what_flash_prints_is_a_result_once_a_person_has_filled_it_in(contributed: dict[str, Any]) -> None:
    assert problems(contributed) == []
    assert milliseconds(contributed["measurement"]) == pytest.approx(90_001 / 180e3)
    for name in ("contributor", "board_revision", "compiler"):
        assert [name in text for text in problems(contributed | {name: ""})] == [True]


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"match": False}, "match"),
    ({"differing": 3}, "differing"),
    ({"board": "qemu_m4"}, "not a real board"),
    ({"board": "../nucleo"}, "not a real board"),
    ({"target": "cortex-m7"}, "has a cortex-m4f"),
    ({"cycles": 0}, "cycles"),
    ({"microseconds": 500}, "valid under each"),
    ({"model_sha256": "x"}, "model_sha256"),
    ({"ram_bytes": 1}, "less than the arena"),
    ({"counter": "plugin"}, "counter"),
]


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_a_result_that_cannot_be_is_refused(change: dict[str, Any], why: str, contributed: dict[str, Any]) -> None:
    contributed["measurement"] |= change
    assert any(why in text for text in problems(contributed)), problems(contributed)


def test_the_command_names_each_wrong_file_and_shows_the_others(
    contributed: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], tmp_path) == 0
    assert "no result" in capsys.readouterr().out
    (tmp_path / "good.json").write_text(json.dumps(contributed), encoding="utf-8")
    assert main([], tmp_path) == 0
    shown = capsys.readouterr().out
    assert "nucleo_f446re" in shown
    assert "90 001" in shown
    (tmp_path / "bad.json").write_text('{"schema_version": 1}', encoding="utf-8")
    (tmp_path / "worse.json").write_text("[" * 100_000, encoding="utf-8")
    assert main([], tmp_path) == 1
    printed = capsys.readouterr()
    assert "bad.json: $" in printed.err
    assert "worse.json: " in printed.err
    assert "90 001" in printed.out


def test_every_file_of_the_folder_is_valid() -> None:
    assert main([], HERE) == 0


def test_the_page_has_a_section_for_each_board_with_its_own_settings() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = {found[2]: found[0] for found in re.finditer(r"## ([^\n]+)\n\n`(\w+)`\..*?(?=\n## )", text, re.DOTALL)}
    assert sorted(sections) == sorted(REAL)
    for name, section in sections.items():
        board = load_board(name)
        assert f"`upload_protocol = {board.platformio.upload_protocol}`" in section
        assert f"`framework = {board.platformio.framework}`" in section.replace("\n  ", " ")
        for part in ("- **Wiring.**", "- **First flash.**", "- **Expected.**"):
            assert part in section
        unit = "cycles" if "cycles" in board.measures else "microseconds"
        assert f"`{unit} (timer)`" in section
        assert ("and the stack" in section) == ("stack" in board.measures)


def test_the_page_shows_the_report_as_it_is_printed(flashed: tuple[dict[str, Any], str]) -> None:
    (shown,) = re.findall(r"```text\n(\S+ on BOARD.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rows = [line.split("  ")[0].strip() for line in shown.splitlines()[3:]]
    printed = [line.split("  ")[0].strip() for line in flashed[1].splitlines()[3:]]
    assert [row for row in printed if row in rows] == rows
