"""The operators: read-only registries of the `KERNELS` of every module in the folders of this package.

A module is loaded when an operator of it is looked up, and all of them when a registry is listed: a model has few of the
operators. Which module defines an operator is written nowhere but in that module.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeVar

from emitc.ir import BoundNode, Op
from emitc.kernels.contract import KernelDef

_Key = TypeVar("_Key")


@cache
def _modules() -> tuple[str, ...]:
    """The modules of this package and its folders, as `FOLDER.NAME`, in the order of their own names."""
    modules = pkgutil.walk_packages(__path__, f"{__name__}.")
    names = (info.name.removeprefix(f"{__name__}.") for info in modules)
    return tuple(sorted(names, key=lambda name: name.rpartition(".")[2]))


def _kernels(module: str) -> tuple[KernelDef, ...]:
    definitions: tuple[KernelDef, ...] = getattr(importlib.import_module(f"{__name__}.{module}"), "KERNELS", ())
    return definitions


def _loaded() -> Iterator[str]:
    """Modules that something has imported already."""
    return (module for module in _modules() if f"{__name__}.{module}" in sys.modules)


@cache
def _sources() -> Mapping[str, str]:
    """The source of every module; of none where the package is installed without it."""
    files = {module: Path(folder, f"{module.replace('.', '/')}.py") for folder in __path__ for module in _modules()}
    return {module: path.read_text(encoding="utf-8") for module, path in files.items() if path.is_file()}


def _home(op: type[Op]) -> Iterator[str]:
    """The module of an operator's class, which defines the operator too, with few exceptions."""
    package, _, module = op.__module__.partition(f"{__name__}.")
    return iter((module,) if module and not package else ())


def _naming(name: str) -> Iterator[str]:
    """Modules whose source has the name as a string."""
    return (module for module, source in _sources().items() if f'"{name}"' in source)


class _Registry(Mapping[_Key, KernelDef]):
    """Every operator by its keys.

    keys: those of an operator. likely: modules that may define the operator of a key. All others are loaded where none of
    them does.
    """

    def __init__(self, keys: Callable[[KernelDef], Iterable[_Key]], likely: Callable[[_Key], Iterable[str]]) -> None:
        self._keys = keys
        self._likely = likely
        self._known: dict[_Key, KernelDef] = {}
        self._listed: tuple[_Key, ...] | None = None

    def __getitem__(self, key: _Key) -> KernelDef:
        """Raises KeyError for a key that no operator has."""
        known = self._known.get(key)
        if known is not None:
            return known
        modules = chain(_loaded(), self._likely(key), _modules()) if self._listed is None else ()
        for kernel in chain.from_iterable(map(_kernels, modules)):
            if key in self._keys(kernel):
                return self._known.setdefault(key, kernel)
        raise KeyError(key)

    def _list(self) -> tuple[_Key, ...]:
        if self._listed is None:
            kernels = [(key, kernel) for name in _modules() for kernel in _kernels(name) for key in self._keys(kernel)]
            self._known.update(kernels)
            assert len(self._known) == len(kernels), "an operator is defined twice"
            self._listed = tuple(key for key, _ in kernels)
        return self._listed

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._list())

    def __len__(self) -> int:
        return len(self._list())


@cache
def registry() -> Mapping[type[Op], KernelDef]:
    """Every operator by its op class."""
    return _Registry(lambda kernel: (kernel.op,), _home)


@cache
def tflite_registry() -> Mapping[str, KernelDef]:
    """Every operator by the TFLite builtin names that it serves."""
    return _Registry(lambda kernel: kernel.tflite, _naming)


@cache
def onnx_registry() -> Mapping[str, KernelDef]:
    """Every operator by the ONNX kinds that it serves."""
    return _Registry(lambda kernel: kernel.onnx, _naming)


def registry_of(source_format: str) -> Mapping[str, KernelDef]:
    """Every operator by the names of a source format: tflite or onnx."""
    return onnx_registry() if source_format == "onnx" else tflite_registry()


def definition_of(op: Op) -> KernelDef:
    """The operator's definition: that of the registry, or the one that an operator of a plugin brings along."""
    own = type(op).definition
    return own if isinstance(own, KernelDef) else registry()[type(op)]


def kernel_of(bound: BoundNode) -> KernelDef:
    return definition_of(bound.node.op)
