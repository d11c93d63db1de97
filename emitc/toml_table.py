"""One table of a TOML file with checked access: every value has its type, and no key is unknown."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from emitc.errors import EmitcError, Where, shown

MOST = (1 << 63) - 1
"""The largest number of a TOML file."""
_MOST_VALUES = 10_000
"""Values of one list."""


class TomlTable:
    """file: its name, for messages. name: of the table, "" for the outermost one. known: the keys that it may have; where
    they are not stated, `close` refuses keys that nobody has asked for. subject: what is not valid where a value is not.
    hint: what helps.
    """

    def __init__(
        self, file: str, name: str, content: dict[str, Any], known: Sequence[str] | None, subject: str, hint: str
    ) -> None:
        self.file, self.name, self.content = file, name, content
        self._subject, self._hint, self._asked = subject, hint, dict.fromkeys(known or ())
        if known is not None:
            self.close()

    def close(self) -> None:
        """Refuses the first key that is not known."""
        known = tuple(self._asked)
        for key in sorted(set(self.content) - set(known)):
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "remove it"
            raise self.refusal(key, f"the key is unknown; known are {', '.join(known)}", hint)

    def refusal(self, key: str, why: str, hint: str = "") -> EmitcError:
        """The error that names file, table and key. hint: "" for the table's own."""
        place = f"{self.name}.{key}" if self.name else key
        where = Where(option=f"{self.file}: {shown(place)}")
        return EmitcError(f"{self._subject} is not valid", where, why, hint or self._hint)

    def inner(self, name: str, content: dict[str, Any], known: Sequence[str] | None) -> TomlTable:
        """A table of the same file. Arguments are those of the class."""
        return TomlTable(self.file, name, content, known, self._subject, self._hint)

    def _value(self, key: str, default: object = None) -> Any:
        self._asked[key] = None
        return self.content.get(key, default)

    def _wrong(self, key: str, expected: str) -> EmitcError:
        return self.refusal(key, f"expected {expected}, and {shown(repr(self.content.get(key)), 80)} is given")

    def has(self, key: str) -> bool:
        return key in self.content

    def text(self, key: str, default: str | None = None, known: Sequence[str] = (), *, empty: bool = False) -> str:
        """A text. default: None where the key is required. known: what it may be, () for anything. empty: it may be empty."""
        value = self._value(key, default)
        if not isinstance(value, str) or not (value or empty or default == "") or "\0" in value:
            raise self._wrong(key, "a text")
        self._require_known(key, (value,), known)
        return value

    def texts(self, key: str, default: Sequence[str] | None = (), known: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of texts, none twice. default, known: as of `text`, for each."""
        value = self._value(key, None if default is None else list(default))
        few = isinstance(value, list) and len(value) <= _MOST_VALUES
        if not few or not all(isinstance(text, str) and text and "\0" not in text for text in value):
            raise self._wrong(key, "a list of texts")
        if len(set(value)) != len(value):
            raise self.refusal(key, "a value stands there twice", "name it once")
        self._require_known(key, value, known)
        return tuple(value)

    def _require_known(self, key: str, values: Sequence[str], known: Sequence[str]) -> None:
        for value in values:
            if known and value not in known:
                raise self.refusal(key, f"{value!r} is none of {', '.join(known)}")

    def whole(self, key: str, least: int = 0, most: int = MOST, default: int | None = None) -> int:
        """A whole number in [least, most]. default: as of `text`."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self._wrong(key, f"a whole number from {least} to {most}")
        return value

    def cycles(self, key: str, default: float | None = None, *, zero: bool = False) -> float:
        """A number below 1000, above 0 or with `zero` from 0 on. default: as of `text`."""
        value = self._value(key, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < 1000 or not (value or zero):
            raise self._wrong(key, "a number between 0 and 1000")
        return float(value)

    def truth(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def number(self, key: str) -> float | None:
        """A number, or a text with a fraction such as 1/255; None where the key is not stated."""
        value = self._value(key)
        if value is None:
            return None
        number = math.nan
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            with suppress(ValueError, ZeroDivisionError, OverflowError):
                number = float(Fraction(value))
        if not math.isfinite(number):
            raise self._wrong(key, 'a number, or a fraction such as "1/255"')
        return number

    def table(self, key: str) -> TomlTable:
        """A table of one, whose keys are those that are asked for."""
        value = self._value(key)
        if not isinstance(value, dict):
            raise self._wrong(key, "a table")
        return self.inner(key, value, None)

    def tables(self, key: str, known: Sequence[str] | None = None) -> tuple[TomlTable, ...]:
        """A list of tables. known: as of the class."""
        rows = self._value(key, [])
        if not isinstance(rows, list) or len(rows) > _MOST_VALUES or not all(isinstance(row, dict) for row in rows):
            raise self._wrong(key, f"tables [[{key}]]")
        return tuple(self.inner(f"{key}[{number}]", row, known) for number, row in enumerate(rows))

    def strings(self, key: str) -> dict[str, str]:
        value = self._value(key, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) and text for text in value.values()):
            raise self._wrong(key, "a table of texts")
        return dict(value)

    def shapes(self, key: str) -> dict[str, tuple[int, ...]]:
        """A table of shapes: one to eight sizes each."""
        value = self._value(key, {})
        if not isinstance(value, dict) or not all(map(_is_shape, value.values())):
            raise self._wrong(key, "a table of shapes, such as {x = [1, 49, 10]}")
        return {name: tuple(shape) for name, shape in value.items()}


def _is_shape(value: object) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= 8:
        return False
    return all(isinstance(d, int) and not isinstance(d, bool) and 1 <= d < 2**31 for d in value)
