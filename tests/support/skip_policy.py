"""Which skips a run may have: allowed_skips.txt, read and applied. A test that never runs proves nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ALLOWED_SKIPS = Path(__file__).resolve().parents[1] / "allowed_skips.txt"
_WITHOUT = "without "


@dataclass(frozen=True, slots=True)
class AllowedSkip:
    """A line of allowed_skips.txt. absent: the line holds while this folder does not exist; None for always."""

    pattern: re.Pattern[str]
    why: str
    absent: Path | None

    def covers(self, reason: str) -> bool:
        """True where a test may skip for the reason."""
        return bool(self.pattern.search(reason)) and (self.absent is None or not self.absent.exists())


def read_allowed(text: str, checkout: Path) -> tuple[AllowedSkip, ...]:
    """The lines of the file. Raises ValueError for one that is not WHEN | PATTERN | WHY."""
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not all(fields) or not (fields[0] == "always" or fields[0].startswith(_WITHOUT)):
            raise ValueError(f"allowed skips, line {number}: {line!r} is not WHEN | PATTERN | WHY")
        when, pattern, why = fields
        absent = None if when == "always" else checkout / when.removeprefix(_WITHOUT)
        rules.append(AllowedSkip(re.compile(pattern), why, absent))
    return tuple(rules)


def unexpected(skips: Iterable[tuple[str, str]], allowed: Iterable[AllowedSkip]) -> list[tuple[str, str]]:
    """The (test, reason) pairs that no line covers, in order and once each."""
    lines = tuple(allowed)
    return [skip for skip in dict.fromkeys(skips) if not any(line.covers(skip[1]) for line in lines)]


class SkipPolicy:
    """The pytest plugin after --strict-skips: fails a run of which a test skipped for another reason than an allowed one."""

    def __init__(self, allowed: tuple[AllowedSkip, ...]) -> None:
        self.allowed = allowed
        self.skips: list[tuple[str, str]] = []

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skips.append((report.nodeid, reason))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that skipped, in this process or in a worker of xdist."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that skipped while it was imported."""
        self._note(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turns success into failure; a failure stays what it is."""
        if unexpected(self.skips, self.allowed) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names every test that should have run."""
        skips = unexpected(self.skips, self.allowed)
        if skips:
            terminalreporter.section("skipped, but should have run here (tests/allowed_skips.txt)", red=True)
            for test, reason in skips:
                terminalreporter.line(f"{test}: {reason}")
