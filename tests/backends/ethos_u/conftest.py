"""Skips what needs vela where it is not installed."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture
def vela() -> None:
    """vela is there."""
    if importlib.util.find_spec("ethosu") is None:
        pytest.skip("ethos-u-vela, which compiles for the NPU, is not installed")
