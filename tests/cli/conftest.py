"""The command line called in this process, with its exit code and its two streams apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from emitc.cli.main import cli
from tests.support.cli_call import Called, Emitc


@pytest.fixture
def emitc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emitc:
    """`emitc("compile", model, "-o", "out")` in an empty working directory; an exception that escapes fails the test."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Called:
        result = CliRunner().invoke(cli, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Called(result.exit_code, result.stdout, result.stderr)

    return call
