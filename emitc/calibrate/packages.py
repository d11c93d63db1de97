"""Packages of the extra `verify`, of which the quantizer is a part."""

import importlib
from typing import Any

from emitc.errors import EmitcError, Where, install_hint


def package(name: str) -> Any:
    """The package or module of that name. Raises EmitcError with the extra to install where it is absent."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = "quantizing needs the package onnxruntime"
        raise EmitcError(what, Where(), str(error), install_hint("verify")) from error
