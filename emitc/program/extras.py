"""What a package says and offers beyond the model's functions: names of classes, a C++ class, the model's own licence."""

import math
from dataclasses import dataclass
from typing import Any

from emitc.program.profiling import Profiling


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
