"""The JSON of a level as lines. What belongs to one tensor, operator or step is one line, so that `diff` shows what changed."""

from collections.abc import Iterator
from typing import Any

from emitc.errors import shown

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


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _nested(value: Any) -> bool:
    """Whether a value has lines of its own: a list of objects, or an object that has such a list."""
    return _is_list_of_objects(value) or (isinstance(value, dict) and any(map(_nested, value.values())))


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
