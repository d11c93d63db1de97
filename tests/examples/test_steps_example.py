"""The example of an inference in steps: a bare loop, and a task with the stand-in for FreeRTOS, by the commands of its README."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "steps"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
STRICT = "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wundef -Wmissing-prototypes -Wvla -Werror"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each program prints, built and run by the commands of the README."""
    folder = tmp_path_factory.mktemp("steps") / "examples"
    shutil.copytree(EXAMPLE, folder / "steps", ignore=shutil.ignore_patterns("generated"))
    (folder / "models").symlink_to(EXAMPLE.parent / "models")
    texts = []
    for command in re.findall(r"^    ((?:emitc|cc|\./).*)$", README, re.MULTILINE):
        words = command.split()
        if words[0] == "emitc":
            words = [sys.executable, "-m", *words]
        if words[0] == "cc":
            words += STRICT.split()
        done = subprocess.run(words, cwd=folder / "steps", capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if command.startswith("./"):
            texts.append(done.stdout)
    return texts


def test_the_bare_loop_feeds_the_watchdog_after_every_step(printed: list[str]) -> None:
    found = re.fullmatch(r"MATCH: (\d+) steps, and the watchdog was fed (\d+) times\n", printed[0])
    assert found and found[1] == found[2] and int(found[1]) > 100


def test_the_task_is_cancelled_and_then_runs_to_its_end(printed: list[str]) -> None:
    found = re.fullmatch(r"cancelled after 10 steps\nMATCH: (\d+) steps, and other tasks ran (\d+) times\n", printed[1])
    assert found and int(found[2]) == int(found[1]) - 1 > 100
