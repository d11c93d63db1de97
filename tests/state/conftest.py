"""The streaming models as files, each compiled once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.writers.tflite import write_tflite
from tests.support.models.streaming import MODELS


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Compiled]:
    """A streaming model by name, compiled for the host."""
    folder = tmp_path_factory.mktemp("streaming")

    @cache
    def of(name: str) -> Compiled:
        path = folder / f"{name}.tflite"
        path.write_bytes(write_tflite(MODELS[name]()))
        return compile_model(path)

    return of


@pytest.fixture(scope="session")
def library(compiled: Callable[[str], Compiled], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A streaming model by name as a shared library."""

    @cache
    def of(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        compiled(name).write(folder / "package")
        return build_shared(folder / "package", folder, trace=False)

    return of


@pytest.fixture
def instance(compiled: Callable[[str], Compiled], library: Callable[[str], Path]) -> Callable[..., HostModel]:
    """A new instance of a streaming model; `sharing` as for HostModel."""

    def of(name: str, sharing: HostModel | None = None) -> HostModel:
        return HostModel(library(name), interface_of(compiled(name)), sharing=sharing)

    return of
