"""The trees that the tests of this folder compile against: a stand-in, and ESP-NN where `ESP_NN_PATH` names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.esp_nn.library import REAL, SKIPPED, stand_in


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in."""
    return stand_in(tmp_path_factory.mktemp("stand_in"))


@pytest.fixture(params=["stand-in", "esp-nn"])
def library(request: pytest.FixtureRequest, own: Path) -> Path:
    """Each of the two."""
    if request.param == "stand-in":
        return own
    if REAL is None:
        pytest.skip(SKIPPED)
    return REAL
