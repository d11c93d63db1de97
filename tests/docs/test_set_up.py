"""The README's lines for a fresh machine: they are what continuous integration runs, and they set up what they need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = ("make verify", "make test")
PYTHON_STAND_IN = """#!/bin/sh
echo "$0 $@" >> "$LOG"
case "$*" in
"-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/emitc ;;
esac
"""


def test_each_line_stands_alone_in_the_readme() -> None:
    """Nothing has to be run before: each is a code block of its own."""
    for line in LINES:
        assert f"```sh\n{line}\n```" in README


def test_continuous_integration_runs_the_lines() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^check verify make verify$", script, re.M)
    assert len(re.findall(r"^ +tests=\((?:timeout .+ )?make test OPTIONS=\"[^\"]+\"\)$", script, re.M)) == 2
    assert re.search(r'^check tests "\$\{tests\[@\]\}"$', script, re.M)
    assert "pip install" not in script, "the lines install what they need"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, and with a stand-in for Python that writes down how it was called."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    stand_in = tmp_path / "python3"
    stand_in.write_text(PYTHON_STAND_IN, encoding="utf-8")
    stand_in.chmod(0o755)
    return tmp_path


def called(folder: Path, line: str) -> list[str]:
    """The commands that a line runs, paths without the folder."""
    log = folder / "log"
    log.unlink(missing_ok=True)
    env = {"PATH": os.environ["PATH"], "LOG": str(log)}
    subprocess.run(
        [*line.split(), f"PYTHON={folder / 'python3'}"], cwd=folder, env=env, check=True, capture_output=True
    )
    return [entry.replace(f"{folder}/", "") for entry in log.read_text(encoding="utf-8").splitlines()]


VENV = "python3 -m venv --clear .venv"
VERIFY = ".venv/bin/emitc verify examples/models/kws_ref_int8.tflite"
TEST = ".venv/bin/python -m pytest -n 2"


def installed(extra: str) -> str:
    """The call of pip for an extra."""
    return f".venv/bin/python -m pip install --quiet --editable .[{extra}]"


def test_a_line_makes_the_environment_once(checkout: Path) -> None:
    assert called(checkout, "make verify") == [VENV, installed("verify"), VERIFY]
    assert called(checkout, "make verify") == [VERIFY]
    assert called(checkout, "make test") == [installed("all"), TEST]
    assert called(checkout, "make test") == [TEST]


def test_the_environment_of_the_tests_serves_the_proof(checkout: Path) -> None:
    assert called(checkout, "make test") == [VENV, installed("all"), TEST]
    assert called(checkout, "make verify") == [VERIFY]


def test_a_change_of_the_dependencies_renews_the_environment(checkout: Path) -> None:
    called(checkout, "make verify")
    stamp = checkout / ".venv" / "installed-verify"
    os.utime(checkout / "pyproject.toml", (stamp.stat().st_mtime + 10, stamp.stat().st_mtime + 10))
    assert called(checkout, "make verify") == [installed("verify"), VERIFY]


def pins() -> dict[str, str]:
    """The version of each distribution that constraints.txt names."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines), "an address or a path"
    return {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines}


def test_every_dependency_has_a_pin_within_its_bounds_and_no_host_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for each in map(Requirement, wanted):
        if each.name != "emitc":
            assert each.specifier.contains(pins()[canonicalize_name(each.name)], prereleases=True), each
