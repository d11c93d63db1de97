"""One table of a sweep's TOML file with checked access: every value has its type, and no key is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from emitc.errors import EmitcError, Where, shown

_MOST_VALUES = 10_000
"""Values of one list."""


class TomlTable:
    """file: name of the file, for messages. name: of the table, "" for the outermost one."""

    def __init__(self, file: str, name: str, content: dict[str, Any], known: Sequence[str]) -> None:
        self.file, self.name, self.content = file, name, content
        for key in sorted(set(content) - set(known)):
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "remove it"
            raise self.refusal(key, f"the key is unknown; known are {', '.join(known)}", hint)

    def refusal(self, key: str, why: str, hint: str = "see docs/sweep.md") -> EmitcError:
        """The error that names file, table and key."""
        place = f"{self.name}.{key}" if self.name else key
        return EmitcError("the sweep is not valid", Where(option=f"{self.file}: {shown(place)}"), why, hint)

    def _wrong(self, key: str, expected: str) -> EmitcError:
        return self.refusal(key, f"expected {expected}, and {shown(repr(self.content.get(key)), 80)} is given")

    def has(self, key: str) -> bool:
        return key in self.content

    def text(self, key: str, default: str | None = None) -> str:
        """A text that is not empty. default: None where the key is required."""
        value = self.content.get(key, default)
        if not isinstance(value, str) or not value or "\0" in value:
            raise self._wrong(key, "a text")
        return value

    def texts(self, key: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of texts, none twice."""
        value = self.content.get(key, list(default))
        if not isinstance(value, list) or len(value) > _MOST_VALUES:
            raise self._wrong(key, "a list of texts")
        if not all(isinstance(text, str) and text and "\0" not in text for text in value):
            raise self._wrong(key, "a list of texts")
        if len(set(value)) != len(value):
            raise self.refusal(key, "a value stands there twice", "name it once")
        return tuple(value)

    def whole(self, key: str, least: int, most: int, default: int) -> int:
        """A whole number in [least, most]."""
        value = self.content.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, f"a whole number from {least} to {most}")
        return value

    def truth(self, key: str, default: bool) -> bool:
        value = self.content.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str) -> float | None:
        """A number, or a text with a fraction such as 1/255; None where the key is not stated."""
        value = self.content.get(key)
        if value is None:
            return None
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(Fraction(value)) if isinstance(value, int | float | str) else float("nan")
        except (ValueError, ZeroDivisionError, OverflowError):
            number = float("nan")
        if number != number or number in (float("inf"), float("-inf")):
            raise self._wrong(key, 'a number, or a fraction such as "1/255"')
        return number

    def tables(self, key: str, known: Sequence[str]) -> tuple[TomlTable, ...]:
        rows = self.content.get(key, [])
        if not isinstance(rows, list) or len(rows) > _MOST_VALUES or not all(isinstance(row, dict) for row in rows):
            raise self._wrong(key, f"tables [[{key}]]")
        return tuple(TomlTable(self.file, f"{key}[{number}]", row, known) for number, row in enumerate(rows))

    def strings(self, key: str) -> dict[str, str]:
        value = self.content.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) and text for text in value.values()):
            raise self._wrong(key, "a table of texts")
        return dict(value)

    def shapes(self, key: str) -> dict[str, tuple[int, ...]]:
        """A table of shapes: one to eight sizes each."""
        value = self.content.get(key, {})
        if not isinstance(value, dict) or not all(map(_is_shape, value.values())):
            raise self._wrong(key, "a table of shapes, such as {x = [1, 49, 10]}")
        return {name: tuple(shape) for name, shape in value.items()}


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= 8:
        return False
    return all(isinstance(d, int) and not isinstance(d, bool) and 1 <= d < 2**31 for d in value)
