"""One run of a model with its result: what the example of a package repeats on the device."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExampleTensor:
    """An input or output of the run. index: its position. data: little-endian bytes, row-major.

    within: by how much an element may differ, as a float; None where every bit counts.
    """

    index: int
    data: bytes
    within: float | None = None

    @property
    def tolerance(self) -> str:
        """`within` as a literal of C, "" where every bit counts."""
        return "" if self.within is None else repr(self.within)


@dataclass(frozen=True, slots=True)
class Example:
    """The inputs of one run that starts with a new instance, and the outputs that it must give."""

    inputs: tuple[ExampleTensor, ...]
    outputs: tuple[ExampleTensor, ...]
