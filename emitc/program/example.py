"""Runs of a model with their results: what the example of a package repeats on the device."""

from dataclasses import dataclass

Limit = tuple[float, float]
"""How far an element of an output may be off: (a, r) stands for a + r * the largest magnitude in the run's expected output."""


@dataclass(frozen=True, slots=True)
class ExampleTensor:
    """An input or output of a run. index: its position. data: little-endian bytes, row-major.

    limit: of an output, None where every bit counts.
    """

    index: int
    data: bytes
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """The inputs of a run, and the outputs that it must give. The first of several runs starts with a new instance."""

    inputs: tuple[ExampleTensor, ...]
    outputs: tuple[ExampleTensor, ...]
