"""What a package says and offers beyond the functions of the model: classes, a C++ class, a licence, a profile and an example."""

import math
from typing import Any

from emitc.records import dataclass


@dataclass(frozen=True, slots=True)
class Profiling:
    """records: the layers of each record by their indices, in the order of the layer hook. interval: one run of so many is
    recorded.
    """

    records: tuple[tuple[int, ...], ...]
    interval: int = 1

    @property
    def hooked(self) -> tuple[int, ...]:
        """The layers after which the layer hook is called. A single record needs no call: it is the whole run."""
        return tuple(record[-1] for record in self.records) if len(self.records) > 1 else ()

    @property
    def shared(self) -> tuple[str, ...]:
        """The records that several layers share, for people: `0 to 2`."""
        return tuple(f"{record[0]} to {record[-1]}" for record in self.records if len(record) > 1)

    def to_json(self) -> dict[str, Any]:
        return {"interval": self.interval, "records": [list(record) for record in self.records]}


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


@dataclass(frozen=True, slots=True)
class Classes:
    """An output whose elements are scores of classes. output: its number. count: of classes. labels: their names, () for none."""

    output: int
    count: int
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extras:
    """classes: outputs that get functions for their best classes. cpp: the package has a header with a C++ class. model_licence:
    SPDX expression of the model, "" where it is not stated. commit: of the emitc that writes the package, "" where it is not
    known. profiling: what the package records of a run, None where it has no profile.
    """

    classes: tuple[Classes, ...] = ()
    cpp: bool = False
    model_licence: str = ""
    commit: str = ""
    profiling: Profiling | None = None

    def to_json(self) -> dict[str, Any]:
        """For reports: what is stated, and nothing else."""
        classes = [{"output": c.output, "count": c.count, "labels": list(c.labels)} for c in self.classes]
        stated = {"emitc_commit": self.commit, "model_licence": self.model_licence, "classes": classes}
        return {name: value for name, value in stated.items() if value}


NOTHING_MORE = Extras()


def score_counts(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """For each output the number of its classes: of one row of at least two elements, otherwise 0.

    >>> score_counts(((1, 12), (4, 4), (1, 1), ()))
    (12, 0, 0, 0)
    """
    rows = ((shape[-1], math.prod(shape)) if shape else (0, 1) for shape in shapes)
    return tuple(last if last == whole and last > 1 else 0 for last, whole in rows)
