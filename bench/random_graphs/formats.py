"""The formats that graphs are drawn in. Their modules are imported on first use, since each needs a package of its own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np

from bench.random_graphs.case import Case, Description


class Format(Protocol):
    """What a format's module offers; see the package."""

    def draw(self, rng: np.random.Generator) -> Description: ...

    def write(self, description: Description) -> bytes: ...


FORMATS: Mapping[str, str] = {"tflite": "bench.random_graphs.tflite", "onnx": "bench.random_graphs.onnx"}
"""Module by format."""


def format_named(name: str) -> Format:
    """A format's module. Raises KeyError for another name, ImportError where its packages are missing."""
    return cast(Format, importlib.import_module(FORMATS[name]))


def generate(name: str, seed: int, index: int) -> Case:
    """The case of a campaign's seed and a number; equal arguments give equal bytes."""
    described = format_named(name).draw(np.random.default_rng([seed, index, sorted(FORMATS).index(name)]))
    return rebuilt(name, seed, index, described)


def rebuilt(name: str, seed: int, index: int, description: Description) -> Case:
    """A case of another description. Raises ValueError where the format cannot express it."""
    return Case(name, seed, index, description, format_named(name).write(description))
