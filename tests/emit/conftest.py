"""Every operator and every tiny model as packages, once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from tests.support.emit.operator_families import families
from tests.support.emit.package_set import Packages, written


@pytest.fixture(scope="session")
def tiny_compiled(tiny: Path) -> list[Compiled]:
    """The tiny models that compile, one of them also with its view as a copy, one with the rows of its input asked for."""
    models = [compile_model(tiny / f"{name}.tflite") for name in ("spotter", "branches", "wires", "edges")]
    models.append(compile_model(tiny / "wires.tflite", name="copied", disabled=frozenset({"alias-views"})))
    frames = tiny / "camera.tflite"
    models.append(compile_model(frames, name="pulled", input_rows=True))
    models.append(compile_model(frames, name="filled", input_rows=True, disabled=frozenset({"streaming"})))
    return models


@pytest.fixture(scope="session")
def tiny_packages(tiny_compiled: list[Compiled], tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The tiny models as packages."""
    return written(tiny_compiled, tmp_path_factory.mktemp("tiny_packages"))


@pytest.fixture(scope="session")
def every_family(tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    """One model per family of operators."""
    return list(families(tmp_path_factory.mktemp("families")))


@pytest.fixture(scope="session")
def packages(
    tiny_compiled: list[Compiled], every_family: list[Compiled], tmp_path_factory: pytest.TempPathFactory
) -> Packages:
    """The tiny models and one model per family of operators as packages."""
    return written([*tiny_compiled, *every_family], tmp_path_factory.mktemp("packages"))
