"""Every operator and every tiny model as packages, once per session."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@dataclass(frozen=True, slots=True)
class Packages:
    """Written packages by the model's C name, and the operators and kernel templates that they hold."""

    folders: dict[str, Path]
    operators: frozenset[str]
    templates: frozenset[str]

    @property
    def sources(self) -> list[str]:
        """All C files; the runtime once."""
        first, *_ = self.folders.values()
        return [str(first / "emitc_runtime.c"), *(str(folder / f"{name}.c") for name, folder in self.folders.items())]

    @property
    def includes(self) -> list[str]:
        """-I options of all packages."""
        return [f"-I{folder}" for folder in self.folders.values()]


@pytest.fixture(scope="session")
def packages(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The tiny models and one model per family of operators, compiled and written."""
    from operator_families import families

    from emitc.compiler import compile_model

    folder = tmp_path_factory.mktemp("packages")
    models = [compile_model(tiny / f"{name}.tflite") for name in ("spotter", "branches", "wires")]
    models += families(folder)
    folders = {}
    for compiled in models:
        folders[compiled.program.name] = folder / compiled.program.name
        compiled.write(folder / compiled.program.name)
    operators = {node.op_type for compiled in models for node in compiled.source.nodes}
    templates = {template for compiled in models for template in compiled.program.templates}
    return Packages(folders, frozenset(operators), frozenset(templates))
