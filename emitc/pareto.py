"""Arena against instructions: what each budget between the default and the smallest arena costs, by estimate.

A segment that runs row by row has a call for every row and moves the rows that its line buffers keep; a tensor that is moved
costs its bytes. Weights are read again for every row, which costs no instruction. The base are the backends' estimates of cycles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emitc.compiler import Compiled, Options, compile_model

PER_ROW = 150
"""Instructions of one row's call beside its work: the schedule's conditions, the window's parameters, the kernel's set-up."""
WINDOW_SHARE = 0.07
"""What a layer costs more whose window's parameters are set row by row, as a share: its loops count to no constants. Measured on
an emulated Cortex-M4 with person_detect, where rows cost 0.49 million instructions (docs/arena.md).
"""
PER_BYTE = 0.5
"""Instructions for each byte that is moved."""
_STEPS = 8
"""Budgets tried between the two ends."""


@dataclass(frozen=True, slots=True)
class Point:
    """One arena that no other one beats in both numbers. cycles: estimated, of one inference."""

    arena_bytes: int
    cycles: int
    layers_by_rows: int
    segments: int
    moved_bytes: int

    def to_json(self) -> dict[str, Any]:
        """For `emitc plan --pareto --json`."""
        return {
            "arena_bytes": self.arena_bytes,
            "estimated_cycles": self.cycles,
            "segments": self.segments,
            "layers_by_rows": self.layers_by_rows,
            "moved_bytes": self.moved_bytes,
        }


def overhead(compiled: Compiled) -> float:
    """Instructions that a program's moves and rows cost, beside those of its layers run whole."""
    program = compiled.program
    costs = {assignment.index: assignment.cost for assignment in compiled.partition.assignments}
    slower = [call.step.index for segment in program.segments for call in segment.calls if call.step.window]
    moved = sum(move.size_bytes for move in program.moves)
    rows = slid = 0
    for segment in program.segments:
        for call in segment.calls:
            rows += call.makes.rows
            kept = max(0, call.makes.room - 1)
            slid += max(0, call.makes.rows - call.makes.room) * kept * call.makes.row_bytes
    windows = WINDOW_SHARE * sum(costs.get(index, 0.0) for index in slower)
    return windows + PER_ROW * rows + PER_BYTE * (moved + slid)


def _point(compiled: Compiled) -> Point:
    program = compiled.program
    layers = sum(assignment.cost for assignment in compiled.partition.assignments)
    return Point(
        program.plan.arena_bytes,
        round(layers + overhead(compiled)),
        sum(len(segment.calls) for segment in program.segments),
        len(program.segments),
        sum(move.size_bytes for move in program.moves),
    )


def undominated(points: Iterable[Point]) -> tuple[Point, ...]:
    """Those that no other one beats in arena and cycles, the largest arena first."""
    best: list[Point] = []
    for point in sorted(set(points), key=lambda p: (p.arena_bytes, p.cycles)):
        if not best or point.cycles < best[-1].cycles:
            best.append(point)
    return tuple(reversed(best))


def front(model: Path, options: Options) -> tuple[Point, ...]:
    """The points of a model. Raises what compile_model raises."""
    whole = compile_model(model, replace(options, ram_budget=None))
    least = compile_model(model, replace(options, ram_budget="min"))
    top, bottom = whole.program.plan.arena_bytes, least.program.plan.arena_bytes
    budgets = {bottom + (top - bottom) * step // _STEPS for step in range(1, _STEPS)} if bottom < top else set()
    between = [compile_model(model, replace(options, ram_budget=budget)) for budget in sorted(budgets)]
    return undominated(map(_point, (whole, least, *between)))
