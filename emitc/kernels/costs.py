"""What a kernel costs in cycles, estimated from a node's shape: coefficients with their source, which stand in its row.

cycles = mac * multiply-accumulates + output * elements written + gathered * input values that the windows gather
+ sums * rows of the windows of all elements written + once.
The costs rank the kernels of one core and are never shown as a measurement. Method of those that were measured: least squares
over instructions per layer, each taken for a cycle. They were counted for the seven nets and for three with int16 activations,
on the emulated board that the source names (`python -m bench.boards --layers`, `emitc run --layers`).
"""

import re
from collections.abc import Callable, Mapping, Sequence

from emitc.ir import BoundNode, DType
from emitc.records import dataclass, field

NOT_MEASURED = "not measured"
_SOURCE = re.compile(rf"{NOT_MEASURED}|[a-z][a-z0-9_]* at [0-9a-f]{{7}}( [0-9a-f]{{7}})*, \d{{4}}-\d\d-\d\d", re.ASCII)
_WEIGHTS = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Coefficients. gathered: per input value that a window meets, once per window; sums: per row of a window and element, for
    kernels that add up a window row by row.
    """

    mac: float = 0.0
    output: float = 0.0
    gathered: float = 0.0
    once: float = 0.0
    sums: float = 0.0

    def cycles(self, bound: BoundNode, work: int) -> float:
        """Of one run of a node. work: its multiply-accumulates, or what its operator counts instead."""
        outputs = sum(tensor.elements for tensor in bound.outputs)
        channels = max(1, bound.output.shape[-1] if bound.output.shape else 1)
        rows = outputs * bound.input(_WEIGHTS).shape[1] if self.sums else 0
        return (
            self.mac * work + self.output * outputs + self.gathered * (work / channels) + self.sums * rows + self.once
        )


@dataclass(frozen=True, slots=True)
class Costs:
    """The coefficients of one kernel.

    source: the board, the commits and the day of the measurements, as `qemu_m4 at 1183ada, 2026-11-22`, or NOT_MEASURED.
    general: of what `cases` does not list. cases: finer, by the operator's own names of cases (`KernelDef.cases`) and the type
    of the activations where it is int16 or float32: `1x1`, `int16`, `1x1 int16`. factor: by which the cycles are multiplied,
    for kernels whose loops were counted. Raises ValueError for a source that does not say where the numbers are from.
    """

    source: str
    general: Cost
    cases: Mapping[str, Cost] = field(default_factory=dict)
    factor: Callable[[BoundNode], float] | None = None

    def __post_init__(self) -> None:
        if not _SOURCE.fullmatch(self.source):
            raise ValueError(f"costs with the source {self.source!r}: write BOARD at COMMIT, DATE, or {NOT_MEASURED!r}")

    def cycles(self, bound: BoundNode, work: int, cases: Sequence[str]) -> float:
        """Of one run of a node. work: as in `Cost.cycles`; cases: names of what it is, the most exact one first."""
        names = case_names(bound, cases)
        cost = next((self.cases[name] for name in names if name in self.cases), self.general)
        return cost.cycles(bound, work) * (self.factor(bound) if self.factor else 1.0)


def case_names(bound: BoundNode, cases: Sequence[str]) -> tuple[str, ...]:
    """Keys of a node in a table of costs, the most exact one first; "" is that of every node of int8."""
    names = (*cases, "")
    dtype = DType.INT8 if bound.optional(0) is None else bound.input(0).dtype
    if dtype not in (DType.INT16, DType.FLOAT32):
        return names
    typed = tuple(f"{name} {dtype.value}".strip() for name in names)
    return (*typed, *names) if dtype is DType.FLOAT32 else typed


UNKNOWN = Costs(NOT_MEASURED, Cost(mac=8.0))
"""Of a portable kernel that nobody has measured."""
UNKNOWN_PAIRS = Costs(NOT_MEASURED, Cost(mac=4.0))
"""Of a kernel of pairs, or of the float unit, that nobody has measured: half of the portable one's."""
UNKNOWN_VECTORS = Costs(NOT_MEASURED, Cost(mac=1.0, once=20))
"""Of a kernel of vectors that nobody has measured."""
