"""Several models as packages on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emitc.compiled import Compiled


@dataclass(frozen=True, slots=True)
class Packages:
    """Written packages by the model's C name, and the operators, kernel templates and formulas that they hold."""

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


def written(models: Sequence[Compiled], folder: Path) -> Packages:
    """The models written below `folder`."""
    folders = {compiled.program.name: folder / compiled.program.name for compiled in models}
    for compiled in models:
        compiled.write(folders[compiled.program.name])
    operators = {name for compiled in models for node in compiled.source.nodes for name in (node.op_type, node.kind)}
    kernels = [step for compiled in models for step in compiled.program.kernels]
    templates = {name for step in kernels for name in (step.template.rpartition("/")[2], step.kernel_name)}
    return Packages(folders, frozenset(operators), frozenset(templates))
