"""The backends: a read-only registry, computed by reading every package in this one in name order.

A backend's package has `definition.py`, which exports BACKEND, and, where it adds to the command line, `options.py`, which
exports OPTIONS. Neither imports what only a compilation with the backend needs.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from emitc.records import dataclass

if TYPE_CHECKING:
    from emitc.backends.contract import BackendDef


@dataclass(frozen=True, slots=True)
class BackendOption:
    """An option of the command line that belongs to a backend.

    name: without the dashes; also its key in `Settings.values`. metavar: what its value is called in the help; "" for
    a flag, whose value is "yes". choices: what it may be, () for anything.
    """

    name: str
    help: str
    metavar: str
    choices: tuple[str, ...] = ()
    default: str = ""


def _packages() -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg)


@cache
def registry() -> Mapping[str, BackendDef]:
    definitions: dict[str, BackendDef] = {}
    for package in _packages():
        backend: BackendDef = importlib.import_module(f"{__name__}.{package}.definition").BACKEND
        assert backend.name not in definitions, f"{backend.name} is defined twice"
        definitions[backend.name] = backend
    return MappingProxyType(definitions)


def kernel_choices() -> tuple[str, ...]:
    """What `--kernels` may be: every kernel library, and auto for the cheapest of them node by node."""
    return (*(name for name, backend in registry().items() if backend.kernels), "auto")


@cache
def options() -> tuple[BackendOption, ...]:
    folder = Path(__file__).resolve().parent
    with_options = [name for name in _packages() if (folder / name / "options.py").is_file()]
    return tuple(
        option for name in with_options for option in importlib.import_module(f"{__name__}.{name}.options").OPTIONS
    )
