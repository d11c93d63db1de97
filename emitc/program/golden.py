"""Golden vectors: inputs and the outputs that they must give, for the example of a package."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """One run: the bytes of every input and of every output, in the model's order, row-major and little-endian."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Golden:
    """Runs of one sequence, from a fresh instance on.

    tolerances: how far an element of each output may be off, as (a, r) for a + r * the largest magnitude in the run's
    expected output; None where every bit counts.
    """

    runs: tuple[GoldenRun, ...]
    tolerances: tuple[tuple[float, float] | None, ...]
