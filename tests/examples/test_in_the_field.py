"""The example of a firmware with two networks: self test, profile, steps and an update, on the host and on emulated boards."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.firmware import printed_by

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "in_the_field"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    ((?:emitc|python|cc|\./).*)$", README, re.MULTILINE)
STRICT = "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wundef -Wmissing-prototypes -Wvla -Werror"
CHECKS = ["self test", "init", "run", "steps", "first weights", "second weights", "damaged weights refused",
          "run with the second weights"]  # fmt: skip


def called(command: str, folder: Path) -> str:
    """What a command of the README prints; its exit code has to be 0."""
    text, _, output = command.partition(" > ")
    words = text.split()
    words = {"emitc": [sys.executable, "-m", "emitc"], "python": [sys.executable]}.get(words[0], words[:1]) + words[1:]
    words += STRICT.split() if words[0] == "cc" else []
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    if output:
        (folder / output).write_text(done.stdout, encoding="utf-8")
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLE, tmp_path / "examples" / "in_the_field")
    (tmp_path / "examples" / "models").symlink_to(EXAMPLE.parent / "models")
    return tmp_path / "examples" / "in_the_field"


def verdicts(printed: str) -> list[tuple[str, str]]:
    return re.findall(r"^([a-z ]+): (ok|FAILED)$", printed, re.MULTILINE)


def test_the_readmes_commands_run_the_application_on_this_machine(folder: Path) -> None:
    *_, table = [called(command, folder) for command in COMMANDS]
    assert verdicts((folder / "printed.txt").read_text(encoding="utf-8")) == [(check, "ok") for check in CHECKS]
    assert table.startswith("kws_ref_int8.tflite: 1 run, 1 000 000 ticks a second\n")
    assert "DEPTHWISE_CONV_2D" in table


@pytest.mark.board
@pytest.mark.parametrize(("board", "target"), [("qemu_m4", "cortex-m4f"), ("qemu_rv32", "rv32imac")])
def test_it_runs_on_emulated_boards(board: str, target: str, folder: Path) -> None:
    for command in COMMANDS[:4]:
        called(command + f" --target {target}" if "emitc compile" in command else command, folder)
    sources = [str(folder / name) for name in ("src/application.c", "kws/kws.c", "digits/digits.c")]
    includes = [f"-I{folder / name}" for name in (".", "src", "kws", "digits")]
    main = (folder / "src" / "board.c").read_text(encoding="ascii")
    printed = printed_by(main, board, ("-DEMITC_TRACE", *includes, *sources), folder)
    assert verdicts(printed) == [(check, "ok") for check in CHECKS]
    (folder / "printed.txt").write_text(printed, encoding="utf-8")
    assert "DEPTHWISE_CONV_2D" in called(COMMANDS[-1], folder)
