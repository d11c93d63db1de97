"""A graph is slow when it takes processor time, and not when other work keeps the processor from it."""

from __future__ import annotations

import time

import pytest

from bench.random_graphs import judge
from bench.random_graphs.judge import OutOfTime, limited


def test_processor_time_counts() -> None:
    def busy() -> None:
        with limited(1):
            while True:
                pass

    with pytest.raises(OutOfTime):
        busy()


def test_waiting_does_not_count() -> None:
    with limited(1):
        time.sleep(1.3)
    time.sleep(0.1)  # no timer is left


def test_the_clock_has_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "PATIENCE", 1)
    with pytest.raises(OutOfTime), limited(1):
        time.sleep(30)
