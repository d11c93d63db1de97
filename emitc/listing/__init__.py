"""Every level between the file and the C as JSON and as text that two runs can be compared by: `emitc dump`."""

import json
from collections.abc import Iterator
from typing import Any

from emitc.compiled import Compiled
from emitc.errors import EmitcError, Where, shown
from emitc.listing.graphs import graph_json, plan_json, program_json, schedule_json, source_json
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


_WIDEST = 4000
"""Characters of a name that are shown."""


def _value(value: Any) -> str:
    if isinstance(value, dict):
        if set(value) in ({"bytes", "sha256"}, {"values", "sha256"}):
            return " ".join(f"{key} {value[key]}" for key in value)
        return "{" + ", ".join(f"{shown(key, _WIDEST)}={_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f'"{shown(value, _WIDEST)}"' if isinstance(value, str) else repr(value)


def _nested(value: Any) -> bool:
    """Whether a value has lines of its own: a list of objects, or an object that has such a list."""
    if isinstance(value, dict):
        return any(map(_nested, value.values()))
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def lines_of(content: dict[str, Any], indent: str = "") -> Iterator[str]:
    """The lines of an object: its plain members, then each list of objects, an object a line."""
    for key, value in content.items():
        if not _nested(value):
            yield f"{indent}{shown(key)} {_value(value)}"
    for key, value in content.items():
        if isinstance(value, dict) and _nested(value):
            yield f"{indent}{shown(key)}:"
            yield from lines_of(value, indent + "  ")
        elif _nested(value):
            yield f"{indent}{shown(key)}: {len(value)}"
            for item in value:
                yield from _item(item, indent + "  ")


def _item(entry: dict[str, Any], indent: str) -> Iterator[str]:
    """An object of a list: one line, and lines for what is nested deeper."""
    deep = {key: value for key, value in entry.items() if key in _DEEP and _nested(value)}
    flat = " ".join(f"{shown(key)} {_value(value)}" for key, value in entry.items() if key not in deep)
    yield indent + flat
    yield from lines_of(deep, indent + "  ")


_DEEP = ("attributes", "layers", "parts", "nodes", "tensors", "subgraphs", "steps", "stages", "graphs")
"""Members that get lines of their own where they hold objects."""
