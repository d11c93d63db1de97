"""Numbers and tables as exact C text."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emitc.layer import Table

_PER_LINE = {
    "int8_t": 20,
    "uint8_t": 20,
    "int16_t": 16,
    "uint16_t": 16,
    "int32_t": 9,
    "uint32_t": 9,
    "int64_t": 5,
    "uint64_t": 5,
    "float": 7,
    "double": 5,
}


def integer(value: int) -> str:
    """A decimal literal of at most 64 bits; the smallest values, which C cannot write directly, as a difference.

    >>> integer(-5), integer(-2**31), integer(2**40), integer(2**63)
    ('-5', '(-2147483647 - 1)', 'INT64_C(1099511627776)', 'UINT64_C(9223372036854775808)')
    """
    if value == -(2**31):
        return "(-2147483647 - 1)"
    if -(2**31) < value < 2**31:
        return str(value)
    if value == -(2**63):
        return "(-INT64_C(9223372036854775807) - 1)"
    return f"INT64_C({value})" if value < 2**63 else f"UINT64_C({value})"


def real(value: float) -> str:
    """The shortest decimal that reads back as the same float32, with suffix f; INFINITY and NAN by their names.

    >>> real(0.1), real(1e-8), real(3.0), real(float("-inf"))
    ('0.1f', '1e-08f', '3.0f', '-INFINITY')
    """
    return _real(np.float32(value))


def _real(value: Any) -> str:
    # Every finite float32 is written with a point or an exponent, as a literal with a suffix must be.
    return f"{value!s}f" if math.isfinite(value) else _not_finite(value)


def double(value: float) -> str:
    """The shortest decimal that reads back as the same float64; INFINITY and NAN by their names.

    >>> double(0.1), double(1e300), double(3.0), double(float("nan"))
    ('0.1', '1e+300', '3.0', '(double)NAN')
    """
    return repr(float(value)) if math.isfinite(value) else f"(double){_not_finite(value)}"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NAN"
    return "INFINITY" if value > 0 else "-INFINITY"


def _whole(value: float) -> str:
    return integer(int(value))


_TEXT: dict[str, Callable[[float], str]] = {
    "float": real,
    "double": double,
    "int32_t": _whole,
    "uint32_t": _whole,
    "int64_t": _whole,
    "uint64_t": _whole,
}


def number(value: float, c_type: str) -> str:
    """A literal of the C type."""
    return _TEXT.get(c_type, _whole)(value)


def elements(values: Sequence[float], c_type: str) -> str:
    """The initialiser's lines of an array, indented, each ending with a comma.

    Line by line: the text of one element at a time is all that is kept in addition to the lines.
    """
    text, step = _TEXT.get(c_type), _PER_LINE[c_type]
    numbers: Any = values
    finite = False
    if text is real:
        text, numbers = _real, np.array(values, np.float32)
        finite = bool(np.isfinite(numbers).all())

    def line(part: Sequence[float]) -> str:
        if finite:  # as `_real` writes them, several at once
            return f"{'f, '.join(map(str, part))}f"
        # Small integers, and truth values as 0 or 1, are most of a model.
        return ", ".join(map(text, part) if text else map(str, map(int, part)))

    return "\n".join(f"    {line(numbers[i : i + step])}," for i in range(0, len(values), step))


def rows(table: Table) -> str:
    return elements(table.values, table.c_type)


_DTYPES = {"float": "<f4", "double": "<f8"}


def packed(values: Sequence[float], c_type: str) -> bytes:
    """The bytes that an array of the C type has on a little-endian core.

    >>> packed((1, -2), "int16_t").hex()
    '0100feff'
    """
    # numpy names integers as C does, without the suffix _t.
    return np.asarray(values, _DTYPES.get(c_type) or np.dtype(c_type.removesuffix("_t")).newbyteorder("<")).tobytes()


_PIECE = 24
"""Characters of a piece of a string literal, which may become four of C each."""


def text(value: str) -> str:
    """A C string literal with the UTF-8 bytes of a text, on several lines where it is long.

    >>> print(text('a "b"?'))
    "a \\042b\\042\\077"
    """
    data = value.encode("utf-8")
    pieces = [data[i : i + _PIECE] for i in range(0, len(data), _PIECE)] or [b""]
    return "\n            ".join('"' + "".join(map(_character, piece)) + '"' for piece in pieces)


def _character(byte: int) -> str:
    plain = 0x20 <= byte < 0x7F and byte not in b'"\\?'
    return chr(byte) if plain else f"\\{byte:03o}"
