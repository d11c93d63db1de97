"""The operators: a read-only registry, computed by reading `KERNELS` of every module in this package in name order."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from emitc.ir import BoundNode, Op
from emitc.kernels.contract import KernelDef


@cache
def registry() -> Mapping[type[Op], KernelDef]:
    """Every operator by its op class."""
    found: dict[type[Op], KernelDef] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        for kernel in getattr(importlib.import_module(f"{__name__}.{module}"), "KERNELS", ()):
            assert kernel.op not in found, f"{kernel.op.__name__} is defined twice"
            found[kernel.op] = kernel
    return MappingProxyType(found)


@cache
def tflite_registry() -> Mapping[str, KernelDef]:
    """Every operator by the TFLite builtin names that it serves."""
    return MappingProxyType({name: kernel for kernel in registry().values() for name in kernel.tflite})


@cache
def onnx_registry() -> Mapping[str, KernelDef]:
    """Every operator by the ONNX kinds that it serves."""
    return MappingProxyType({name: kernel for kernel in registry().values() for name in kernel.onnx})


def registry_of(source_format: str) -> Mapping[str, KernelDef]:
    """Every operator by the names of a source format: tflite or onnx."""
    return onnx_registry() if source_format == "onnx" else tflite_registry()


def definition_of(op: Op) -> KernelDef:
    """The operator's definition: that of the registry, or the one that an operator of a plugin brings along."""
    own = type(op).definition
    return own if isinstance(own, KernelDef) else registry()[type(op)]


def kernel_of(bound: BoundNode) -> KernelDef:
    """The operator's definition."""
    return definition_of(bound.node.op)
