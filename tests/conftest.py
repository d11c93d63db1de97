"""What all tests share: `--update-golden`, the tiny models as files, and the sibling folder of models where it exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "kernels"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/goldens with what is generated now")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every model of tiny_models.py as NAME.tflite."""
    from tiny_models import MODELS

    from emitc.writers.tflite import write_tflite

    folder = tmp_path_factory.mktemp("tiny")
    for name, make in MODELS.items():
        (folder / f"{name}.tflite").write_bytes(write_tflite(make()))
    return folder


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The corpus of models beside the checkout; the test is skipped where it is absent."""
    folder = HERE.parents[1] / "shared" / "models"
    if not (folder / "tflite").is_dir():
        pytest.skip("the corpus of models (../shared/models) is not beside this checkout")
    return folder
