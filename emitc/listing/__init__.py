"""Every level between the file and the C as JSON and as text that two runs can be compared by: `emitc dump`."""

import json
from typing import Any

from emitc.compiled import Compiled
from emitc.errors import EmitcError, Where
from emitc.listing.graphs import graph_json, source_json
from emitc.listing.programs import plan_json, program_json, schedule_json
from emitc.listing.text import lines_of
from emitc.passes import BUILT, CUT, INTERFACE, LATE_PASSES, PASSES, ROWS

SOURCE, SCHEDULE, PLAN, PROGRAM = "source", "schedule", "plan", "program"
_BEFORE, _AFTER = ([name for name, _ in passes] for passes in (PASSES, LATE_PASSES))
LEVELS = (SOURCE, BUILT, INTERFACE, *_BEFORE, ROWS, CUT, *_AFTER, SCHEDULE, PLAN, PROGRAM)
"""In the order of the compilation. `--io` and `--input-rows` are steps only where these options are given."""

_OF_PROGRAMS = {SCHEDULE: schedule_json, PLAN: plan_json, PROGRAM: program_json}

__all__ = ["LEVELS", "dump_json", "dump_text"]


def dump_json(compiled: Compiled, level: str) -> dict[str, Any]:
    """A level of a compilation. Raises EmitcError for one that this compilation did not have."""
    dump: dict[str, Any] = {"emitc_dump": 1, "level": level, "model": compiled.program.origin.model_file}
    if level == SOURCE:
        return dump | source_json(compiled.source)
    if level in _OF_PROGRAMS:
        return dump | _OF_PROGRAMS[level](compiled.program)
    main = [step.graph for step in compiled.history if step.name == level and not step.inside]
    if not main:
        why = "this compilation leaves the step out"
        hint = "leave --without out, or ask for another level"
        raise EmitcError(f"there is no graph after {level}", Where(option=f"--after {level}"), why, hint)
    inner = [step for step in compiled.history if step.name == level and step.inside and level != BUILT]
    dump |= graph_json(main[-1])
    if level == CUT:
        dump |= {"partition": compiled.partition.to_json()}
    if inner:
        dump["inside"] = [{"inside": list(step.inside), **graph_json(step.graph)} for step in inner]
    return dump


def dump_text(content: dict[str, Any]) -> str:
    """A level as lines: one for each tensor, operator, step or buffer."""
    return "\n".join(lines_of(content)) + "\n"


def as_json(content: dict[str, Any]) -> str:
    """A level as JSON on several lines, ASCII throughout."""
    return json.dumps(content, indent=1, allow_nan=False) + "\n"
