"""Arena against instructions: what each budget between the default and the smallest arena costs, by an estimate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emitc.compiler import Compiled, Options, compile_model
from emitc.spending import estimated

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


def _point(compiled: Compiled) -> Point:
    program = compiled.program
    return Point(
        program.plan.arena_bytes,
        round(estimated(compiled.partition, program)),
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
    default = compile_model(model, replace(options, ram_budget=None))
    whole = compile_model(model, replace(options, ram_budget=None, disabled=options.disabled | {"streaming"}))
    least = compile_model(model, replace(options, ram_budget="min"))
    top, bottom = whole.program.plan.arena_bytes, least.program.plan.arena_bytes
    budgets = {bottom + (top - bottom) * step // _STEPS for step in range(1, _STEPS)} if bottom < top else set()
    between = [compile_model(model, replace(options, ram_budget=budget)) for budget in sorted(budgets)]
    return undominated(map(_point, (whole, default, least, *between)))
