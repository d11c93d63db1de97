"""Instructions and code sizes of emitc's kernels, as they were counted on emulated boards.

`python -m bench.cost --fit` writes the file from bench/results_kernel_counts.json: least squares with coefficients of
at least 0, each count with the same weight. Kernels that differ in rounding, or in the numbers that they are printed
for, have prior coefficients in common. Few counts lead away from these less than many.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from emitc.layer import Layer
from emitc.records import dataclass, fields
from emitc.target import FEATURES, Target

FILE = Path(__file__).resolve().parent / "kernel_counts.json"
CONSTANT_ALIGNMENT = 16
"""Bytes to which the section of constants is filled up."""
PARAMETER_BYTES = 4
_ROUNDINGS = ("up", "away", "small")
"""Words of kernels by their rounding, and by sums that fit into 16 bits after it."""
Coefficients = Mapping[str, float]
"""By the names of `layer_work.work_of`."""


def kernel_name(layer: Layer) -> str:
    """The name of a layer's kernel with what it is printed for."""
    return layer.kernel_name + layer.spec.suffix


def family(kernel: str) -> str:
    """The kernels that differ in the numbers that they are printed for.

    >>> family("conv_2d_span_dsp_up_joined_4x9x6"), family("softmax_table_int8_int8")
    ('conv_2d_span_dsp_up_joined', 'softmax_table_int8_int8')
    """
    return re.sub(r"(?<=_)\d+(x\d+)*(_|$)", "", kernel).rstrip("_")


def stem(kernel: str) -> str:
    """The kernels that differ in their rounding too: the name up to the instruction set.

    >>> stem("conv_2d_span_dsp_up_joined_4x9x6"), stem("conv_2d_halves_away_small")
    ('conv_2d_span_dsp', 'conv_2d_halves')
    """
    words = family(kernel).split("_")
    ends = [number for number, word in enumerate(words) if word in FEATURES]
    return "_".join(words[: ends[0] + 1] if ends else (word for word in words if word not in _ROUNDINGS))


def code_parts(kernels: Iterable[str], row_calls: int) -> dict[str, float]:
    """What the bytes of code are a sum of: every model, its layers, those that run by rows, and its kernels. A kernel of one
    layer is compiled for its parameters.

    kernels: one for each layer. row_calls: layers that run by rows.
    """
    counts = Counter(kernels)
    parts: Counter[str] = Counter({"model": 1, "layers": counts.total(), "row calls": row_calls})
    parts["rows"] = int(row_calls > 0)
    for kernel, layers in counts.items():
        for part in (f"kernel {kernel}", f"family {family(kernel)}", f"stem {stem(kernel)}"):
            parts[part] = 1
        parts[f"{'shared' if layers > 1 else 'alone'} {stem(kernel)}"] += 1
        parts[f"more {stem(kernel)}"] += layers - 1
    return dict(parts)


def constant_parts(kernels: Iterable[str], params: Iterable[int]) -> dict[str, float]:
    """What the bytes of constants are a sum of, without the model's tables: parameters of layers that share a kernel, as
    far as the compiler keeps them, and tables of the runtime and of libraries.

    kernels: one for each layer. params: how many parameters each layer has.
    """
    names = list(kernels)
    layers = Counter(names)
    parts: Counter[str] = Counter({"model": 1})
    for kernel, count in zip(names, params, strict=True):
        if layers[kernel] > 1:
            parts[f"params {stem(kernel)}"] += PARAMETER_BYTES * count
        parts[f"tables {stem(kernel)}"] = 1
    return dict(parts)


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """What was counted on one board.

    board: its name. targets: of which the instructions are the same, except for some in a thousand. kernels, families,
    stems: coefficients by name; a family stands in for a kernel that was never counted, a stem for a family.
    cycles_per_instruction: the mean of the models, by the cycle model of the board's core, 0 where it has none. cycles:
    the same by stem. code: bytes by the names of `code_parts`. constants: by those of `constant_parts`.
    like: a board with nearly the same instructions, for kernels that were counted there alone; "" where there is none.
    """

    board: str
    targets: tuple[str, ...]
    kernels: Mapping[str, Coefficients]
    families: Mapping[str, Coefficients]
    stems: Mapping[str, Coefficients]
    cycles_per_instruction: float
    cycles: Mapping[str, float]
    code: Mapping[str, float]
    constants: Mapping[str, float]
    like: str = ""

    def has(self, kernel: str) -> bool:
        return kernel in self.kernels or family(kernel) in self.families or stem(kernel) in self.stems

    def instructions(self, kernel: str, work: Mapping[str, float]) -> float | None:
        """Of one run of a layer; None where neither it nor one like it was counted, on this board or the one `like` it."""
        coefficients = self.kernels.get(kernel) or self.families.get(family(kernel)) or self.stems.get(stem(kernel))
        if coefficients is None:
            other = next((counts for counts in _stored() if counts.board == self.like), None)
            return other.instructions(kernel, work) if other is not None and other.has(kernel) else None
        return _total(coefficients, work)

    def cycles_of(self, kernel: str) -> float:
        """Cycles of an instruction of a kernel; the mean of all for one whose stem was not counted."""
        return self.cycles.get(stem(kernel), self.cycles_per_instruction)

    def code_bytes(self, kernels: Iterable[str], row_calls: int) -> float:
        """Bytes of code of a model, runtime and library routines included. Arguments: as of `code_parts`."""
        return _total(self.code, code_parts(kernels, row_calls))

    def constant_bytes(self, kernels: Iterable[str], params: Iterable[int]) -> float:
        """Bytes of constants without the model's tables. Arguments: as of `constant_parts`."""
        return _total(self.constants, constant_parts(kernels, params))


def _total(coefficients: Mapping[str, float], parts: Mapping[str, float]) -> float:
    return sum(value * parts.get(name, 0.0) for name, value in coefficients.items())


@lru_cache(maxsize=1)
def _stored() -> tuple[KernelCounts, ...]:
    boards: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["boards"]
    names = [field.name for field in fields(KernelCounts) if field.name not in ("board", "targets")]
    return tuple(
        KernelCounts(board, tuple(row["targets"]), **{name: row[name] for name in names})
        for board, row in boards.items()
    )


def counts_for(target: Target) -> KernelCounts | None:
    """What was counted for a target, or for one that runs the same kernels in as many instructions; None where nothing
    was."""
    return next((counts for counts in _stored() if target.name in counts.targets), None)
