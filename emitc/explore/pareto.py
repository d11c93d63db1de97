"""Arena against instructions: what each budget between the default and the smallest arena costs, by an estimate."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.compiler import compile_model, with_budget
from emitc.errors import CannotCompile, Note, NoteCode
from emitc.options import Options
from emitc.records import dataclass, replace

SMALLER, DEARER = 0.75, 1.1
"""Of the default's: the arena that is worth a line of the report, and the cycles that it may cost."""
HINT_LAYERS = 12
"""Layers of a model up to which `compile` looks for a smaller arena: the search compiles once more, and longer."""

LEAST_ARENA = 4096
"""Bytes of an arena of which a quarter matters to nobody."""
_STEPS = 8
"""Budgets tried between the two ends."""


@dataclass(frozen=True, slots=True)
class Point:
    """One arena that no other one is better than in both bytes and cycles of one inference, as `emitc plan --pareto` has it."""

    arena_bytes: int
    estimated_cycles: int
    segments: int
    layers_by_rows: int
    moved_bytes: int


def _point(compiled: Compiled) -> Point:
    program = compiled.program
    return Point(
        program.plan.arena_bytes,
        round(program.estimated_cycles),
        len(program.segments),
        sum(len(segment.calls) for segment in program.segments),
        sum(move.size_bytes for move in program.moves),
    )


def undominated(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points that no other one is better than in arena and cycles, the largest arena first."""
    best: list[Point] = []
    for point in sorted(set(points), key=lambda p: (p.arena_bytes, p.estimated_cycles)):
        if not best or point.estimated_cycles < best[-1].estimated_cycles:
            best.append(point)
    return tuple(reversed(best))


@dataclass(frozen=True, slots=True)
class SmallerArena:
    """What --ram-budget would make of a model. cost: estimated cycles over those of the default."""

    arena_bytes: int
    cost: float

    def to_json(self) -> dict[str, Any]:
        return {"arena_bytes": self.arena_bytes, "estimated_cost": round(self.cost, 3)}

    def note(self) -> Note:
        arena = f"{self.arena_bytes:,}".replace(",", " ")
        what = f"an arena of {arena} B takes {100 * (self.cost - 1):+.1f} % cycles by estimate"
        hint = f"--ram-budget {self.arena_bytes}; emitc plan --pareto shows others"
        return Note(NoteCode.SMALLER_ARENA, f"{what}: {hint}")


def smaller_arena(compiled: Compiled) -> SmallerArena | None:
    """An arena that is a quarter smaller, or more, for a tenth more cycles at most; None where none is found, or nobody looks.

    Nobody looks where the options say how large arenas are to be, or the layers are so many
    that the search would take longer than the compilation.
    """
    options, program = compiled.options, compiled.program
    stated = options.ram_budget is not None or options.regions or options.input_rows or "streaming" in options.disabled
    if stated or len(program.steps) > HINT_LAYERS or program.plan.arena_bytes < LEAST_ARENA:
        return None
    try:
        smaller = with_budget(compiled, int(SMALLER * program.plan.arena_bytes))
    except CannotCompile:
        return None
    cost = smaller[1].estimated_cycles / program.estimated_cycles
    return SmallerArena(smaller[1].plan.arena_bytes, cost) if cost <= DEARER else None


def front(model: Path, options: Options) -> tuple[Point, ...]:
    """The points of a model. Raises what compile_model raises."""
    default = compile_model(model, replace(options, ram_budget=None))
    whole = compile_model(model, replace(options, ram_budget=None, disabled=options.disabled | {"streaming"}))
    least = compile_model(model, replace(options, ram_budget="min"))
    top, bottom = whole.program.plan.arena_bytes, least.program.plan.arena_bytes
    budgets = {bottom + (top - bottom) * step // _STEPS for step in range(1, _STEPS)} if bottom < top else set()
    between = [compile_model(model, replace(options, ram_budget=budget)) for budget in sorted(budgets)]
    return undominated(map(_point, (whole, default, least, *between)))
