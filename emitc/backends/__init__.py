"""The backends: a read-only registry, computed by reading `BACKEND` of every package in this one in name order."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from emitc.backends.contract import BackendDef, BackendOption


@cache
def registry() -> Mapping[str, BackendDef]:
    """Every backend by its name."""
    found: dict[str, BackendDef] = {}
    for package in sorted(info.name for info in pkgutil.iter_modules(__path__) if info.ispkg):
        backend: BackendDef | None = getattr(importlib.import_module(f"{__name__}.{package}"), "BACKEND", None)
        if backend is not None:
            assert backend.name not in found, f"{backend.name} is defined twice"
            found[backend.name] = backend
    return MappingProxyType(found)


def kernel_choices() -> tuple[str, ...]:
    """What `--kernels` may be: every kernel library, and auto for the cheapest of them node by node."""
    return (*(name for name, backend in registry().items() if backend.kernels), "auto")


def options() -> tuple[BackendOption, ...]:
    """The options of all backends."""
    return tuple(option for backend in registry().values() for option in backend.options)
