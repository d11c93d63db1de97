"""What the report of `emitc compile` says of an inference in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import Note, NoteCode, shown
from emitc.report.tables import listed, number

if TYPE_CHECKING:
    from emitc.program import Program
    from emitc.program.stepping import SteppedStage

_SHOWN = 6
"""Stages of one reason that are named one by one."""


def step_lines(program: Program) -> list[str]:
    """How many steps an inference takes, and which one is the longest."""
    stepping = program.stepping
    if stepping is None:
        return []
    line = f"  steps       {number(stepping.calls)} for one inference"
    if stepping.longest is not None:
        cycles = number(stepping.longest.cycles)
        line += (
            f"; the longest takes about {cycles} cycles on {program.origin.target} ({shown(stepping.longest.label)})"
        )
    return [line]


def step_notes(program: Program) -> list[Note]:
    """What takes longer than a step may, with the reason."""
    reasons: dict[str, list[SteppedStage]] = {}
    for stage in program.stepping.stages if program.stepping else ():
        if stage.whole:
            reasons.setdefault(stage.whole, []).append(stage)
    notes = []
    for why, stages in reasons.items():
        longest = number(max(stage.cycles for stage in stages))
        names = listed([shown(stage.label) for stage in stages], _SHOWN, " and {} more")
        notes.append(Note(NoteCode.LONG_STEP, f"{names}: up to {longest} cycles in a step, because {why}"))
    return notes
