"""An inference in steps: what each call of the model's step function runs, and what the longest one costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emitc.program.memory import Block
from emitc.program.rows import Move, RowSegment, layers_of
from emitc.records import dataclass

if TYPE_CHECKING:
    from emitc.program import Operand, Step


@dataclass(frozen=True, slots=True)
class SplitOperand:
    """A tensor of a layer that runs some rows at a time. rows: of the whole tensor; elements: of one row.

    Row r of the output reads rows [r * stride - pad, r * stride - pad + extent) of an operand.
    """

    operand: Operand
    rows: int
    elements: int
    stride: int = 1
    pad: int = 0
    extent: int = 1

    @property
    def pointer(self) -> str:
        """The C expression of its first row."""
        return self.operand.pointer

    def first(self, row: int) -> int:
        """The first row that output row `row` and all later ones read."""
        return min(max(row * self.stride - self.pad, 0), self.rows)

    def end(self, row: int) -> int:
        """The row after the last one that output row `row` reads."""
        return min(max(row * self.stride - self.pad + self.extent, 0), self.rows)


@dataclass(frozen=True, slots=True)
class Split:
    """A layer of which each call runs some rows of the output. together: rows of one call; the last one may have fewer.

    counted: the kernel's parameter that counts what `per_row` of are in a row; "" for a window, whose parameters are those of
    the rows in sight. outputs: a row is `per_row` outputs of one row of a product, and the layer's function takes the first.
    """

    step: Step
    reads: tuple[SplitOperand, ...]
    makes: SplitOperand
    together: int
    counted: str = ""
    per_row: int = 1
    outputs: bool = False

    @property
    def rows(self) -> int:
        return self.makes.rows

    @property
    def calls(self) -> int:
        return -(-self.rows // self.together)

    @property
    def memory(self) -> tuple[str, ...]:
        """The C variables of the blocks of memory that the layer needs."""
        used = [address.variable for address in self.step.addresses if address.block is not Block.CONSTANT]
        return tuple(dict.fromkeys(used))


@dataclass(frozen=True, slots=True)
class SteppedStage:
    """A stage of run() in steps. split: how its layer runs some rows at a time, None where that is not so. rows_in_call: of all
    layers of a segment that stops after so many, 0 for any other stage.

    calls: of the step function. cycles: of the longest of them, an estimate. whole: why a call takes more cycles than it may,
    by the estimate, "" where that is not so. shares: that is because input and output share bytes.
    """

    stage: Step | Move | RowSegment
    split: Split | None
    calls: int
    cycles: int
    whole: str = ""
    shares: bool = False
    rows_in_call: int = 0

    @property
    def layers(self) -> tuple[Step, ...]:
        """The layers that it runs, none where a tensor is moved."""
        return layers_of(self.stage)

    @property
    def label(self) -> str:
        """What it runs, for people: `op 3 CONV_2D`."""
        layers = self.layers
        if not layers:
            return "a relocated tensor"
        if len(layers) > 1:
            return f"ops {layers[0].index} to {layers[-1].index}"
        return f"op {layers[0].index} {layers[0].op_type}"

    def to_json(self) -> dict[str, Any]:
        return {
            "layers": [step.index for step in self.layers],
            "calls": self.calls,
            "cycles": self.cycles,
            **({"rows": self.split.rows, "rows_together": self.split.together} if self.split else {}),
            **({"rows_together": self.rows_in_call} if self.rows_in_call else {}),
            **({"whole": self.whole} if self.whole else {}),
        }


@dataclass(frozen=True, slots=True)
class Stepping:
    """An inference in steps. max_cycles: that a call is to take at most, by the estimate; None where each stage is one call."""

    max_cycles: int | None
    stages: tuple[SteppedStage, ...]

    @property
    def calls(self) -> int:
        """Calls of the step function for one inference, of which there is one at least."""
        return max(1, sum(stage.calls for stage in self.stages))

    @property
    def longest(self) -> SteppedStage | None:
        """The stage with the longest call; None where there is no stage."""
        return max(self.stages, key=lambda stage: stage.cycles, default=None)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The layers that run some rows at a time."""
        return tuple(stage.split for stage in self.stages if stage.split is not None)

    @property
    def kept(self) -> int:
        """What the instance keeps of a segment in progress: of each layer the first row that is there, and the next one."""
        segments = [stage.stage for stage in self.stages if isinstance(stage.stage, RowSegment) and stage.rows_in_call]
        return max((2 * len(segment.calls) for segment in segments), default=0)

    @property
    def fallible(self) -> bool:
        """Whether the function of a stage may return a status."""
        return any(
            stage.rows_in_call or getattr(stage.stage, "fallible", False) or getattr(stage.stage, "reads_rows", False)
            for stage in self.stages
        )

    def to_json(self) -> dict[str, Any]:
        longest = self.longest
        return {
            "max_cycles": self.max_cycles,
            "calls": self.calls,
            "longest_cycles": longest.cycles if longest else 0,
            "longest": longest.label if longest else "",
            "stages": [stage.to_json() for stage in self.stages],
        }
