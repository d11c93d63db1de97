"""The campaign sees what it looks for: how commands end, told apart."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.hostile import child
from tests.support.hostile.child import Ended, run_command, verdict

PART = {"what": "a", "where": "b", "why": "c", "hint": "d"}
TOLD = json.dumps({"error": [PART]})
ENDS = {
    "ok": (Ended(0, "{}", "", 0, 0), "ok"),
    "refused": (Ended(2, TOLD, "error: a", 0, 0), "refused"),
    "cannot": (Ended(1, TOLD, "error: a", 0, 0), "cannot"),
    "remark": (Ended(0, "{}", "RuntimeWarning: overflow", 0, 0), "bug"),
    "two objects": (Ended(0, "{}{}", "", 0, 0), "bug"),
    "silent": (Ended(2, "", "error: a", 0, 0), "bug"),
    "no hint": (Ended(2, json.dumps({"error": [PART | {"hint": ""}]}), "error: a", 0, 0), "bug"),
    "no error": (Ended(2, json.dumps({"error": []}), "error: a", 0, 0), "bug"),
    "escape": (Ended(2, TOLD, "error: \x1b[31m", 0, 0), "bug"),
    "traceback": (Ended(1, TOLD, "Traceback (most recent call last):", 0, 0), "bug"),
    "other code": (Ended(3, TOLD, "error: a", 0, 0), "bug"),
    "too long": (Ended(-signal.SIGXCPU, "", "", 0, 0), "hang"),
    "crash": (Ended(-signal.SIGSEGV, "", "", 0, 0), "died"),
}


@pytest.mark.parametrize("name", ENDS)
def test_verdicts(name: str) -> None:
    ended, outcome = ENDS[name]
    assert verdict(ended)[0] == outcome


def _fail() -> None:
    raise ValueError("of the test")


def _fill() -> None:
    bytearray(2 << 30)


def _spin() -> None:
    while True:
        pass


def _crash() -> None:
    faulthandler.disable()  # pytest's, which would write the stack of this crash into the report of all tests
    os.abort()


@pytest.mark.parametrize(
    ("command", "outcome"),
    [(_fail, "bug"), (_fill, "bug"), (_spin, "hang"), (_crash, "died")],
    ids=["traceback", "memory", "time", "crash"],
)
def test_commands_under_limits(command: object, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits hold in the process of a command, whose traceback arrives."""
    monkeypatch.setattr(child, "emitc_command", command)
    monkeypatch.setattr(child, "SECONDS", 1)
    monkeypatch.setattr(child, "MEMORY_BYTES", 2 << 30)
    found, message = verdict(run_command(["compile"], tmp_path))
    assert found == outcome
    assert ("Traceback" in message) == (outcome == "bug")
