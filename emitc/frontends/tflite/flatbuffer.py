"""FlatBuffers that are not trusted: every offset, vtable, vector and string is checked before a byte is read through it.

The generated accessors of a schema work on a `flatbuffers.table.Table`, which takes every offset at its word. `opened`
puts a checked table under them. What a damaged file makes them do is then a `Damaged`, and nothing else can happen.
Source: the FlatBuffers binary format (tables, vtables, vectors and strings, little-endian, offsets relative to where
they stand).

The options of custom operators are a FlexBuffers map. Only the map at the root is looked at, one level deep and up to a number of
entries. So neither lengths nor references in the file decide how much is read; whatever does not decode is damage.
"""

import struct
from typing import Any, TypeVar

import flatbuffers.encode
import flatbuffers.table
import numpy as np
from flatbuffers import flexbuffers, number_types

from emitc.errors import DAMAGED, EmitcError, Where
from emitc.source import Attribute

_SLACK_BYTES = 1 << 16
_READS = 4
_Accessor = TypeVar("_Accessor")


class Damaged(Exception):
    """The bytes are no FlatBuffer; the text says what is wrong, in a few words without anything from the file's names."""


class Budget:
    """Bytes of vectors and strings that may still be read.

    Offsets may point anywhere, so that thousands of tables can share one long vector and a small file ask for endless
    work. A file that is what its writer meant is read about once; four times and 64 KiB is the limit.
    """

    def __init__(self, size: int) -> None:
        self._left = _READS * size + _SLACK_BYTES

    def spend(self, count: int) -> None:
        """Raises Damaged when the budget is used up."""
        self._left -= count
        if self._left < 0:
            raise Damaged("its parts overlap: read through, it is many times larger than the file")


class CheckedTable(flatbuffers.table.Table):  # type: ignore[misc]
    """A table whose position, vtable and fields lie inside the buffer, with checked access."""

    __slots__ = ("_budget", "_fields")

    def __init__(self, data: bytes, position: int, budget: Budget) -> None:
        """Raises Damaged unless a whole table lies at `position`."""
        if position % 4 or not 4 <= position <= len(data) - 4:
            raise Damaged(f"a table is said to lie at byte {position} of {len(data)}")
        super().__init__(data, position)
        self._budget = budget
        vtable = position - struct.unpack_from("<i", data, position)[0]
        if vtable % 2 or not 4 <= vtable <= len(data) - 4:
            raise Damaged(f"the table at byte {position} has its field list outside the file")
        size, inline = struct.unpack_from("<HH", data, vtable)
        if size < 4 or size % 2 or vtable + size > len(data):
            raise Damaged(f"the table at byte {position} has a field list of {size} bytes")
        if inline < 4 or position + inline > len(data):
            raise Damaged(f"the table at byte {position} has {inline} bytes, which the file does not hold")
        self._fields: tuple[int, ...] = struct.unpack_from(f"<{size // 2 - 2}H", data, vtable + 4)
        if any(field != 0 and not 4 <= field < inline for field in self._fields):
            raise Damaged(f"the table at byte {position} has a field outside itself")

    def _word(self, at: int) -> int:
        """The 4-byte number at `at`."""
        if not 4 <= at <= len(self.Bytes) - 4:
            raise Damaged(f"an offset points at byte {at} of {len(self.Bytes)}")
        return int(struct.unpack_from("<I", self.Bytes, at)[0])

    def _vector(self, at: int, width: int) -> tuple[int, int]:
        """(position of the first element, number of elements) of the vector whose offset stands at `at`."""
        start = at + self._word(at)
        count = self._word(start)
        if start % 4 or start + 4 + count * width > len(self.Bytes):
            raise Damaged(
                f"a vector at byte {start} claims {count} elements of {width} bytes; the file ends at {len(self.Bytes)}"
            )
        return start + 4, count

    def Offset(self, vtableOffset: int) -> int:
        """Where the field of a vtable slot lies in the table, 0 where it is absent."""
        slot = (vtableOffset - 4) // 2
        return self._fields[slot] if slot < len(self._fields) else 0

    def Get(self, flags: Any, off: int) -> Any:
        if not 4 <= off <= len(self.Bytes) - flags.bytewidth:
            raise Damaged(f"a field at byte {off} reaches over the end of the file")
        return flags.py_type(flatbuffers.encode.Get(flags.packer_type, self.Bytes, off))

    def Indirect(self, off: int) -> int:
        """The position that the offset at `off` leads to."""
        target = off + self._word(off)
        if target > len(self.Bytes) - 4:
            raise Damaged(f"an offset leads to byte {target} of {len(self.Bytes)}")
        return target

    def String(self, off: int) -> bytes:
        """The text whose offset stands at `off`."""
        start, count = self._vector(off, 1)
        self._budget.spend(count)
        return bytes(self.Bytes[start : start + count])

    def VectorLen(self, off: int) -> int:
        """Number of elements of the vector in field `off`; they are known to fit at one byte each."""
        return self._vector(self.Pos + off, 1)[1]

    def Vector(self, off: int) -> int:
        """Position of the first element of the vector in field `off`."""
        return self._vector(self.Pos + off, 1)[0]

    def Union(self, t2: Any, off: int) -> None:
        """Makes `t2` the table in the union field `off`."""
        t2.Bytes, t2.Pos = self.Bytes, self.Indirect(self.Pos + off)

    def GetVectorAsNumpy(self, flags: Any, off: int) -> Any:
        """The vector of numbers in field `off`."""
        start, count = self._vector(self.Pos + off, flags.bytewidth)
        self._budget.spend(count * flags.bytewidth)
        return np.frombuffer(self.Bytes, number_types.to_numpy_type(flags), count, start)


def opened(accessor: _Accessor, data: bytes, position: int, budget: Budget) -> _Accessor:
    """`accessor`, an object of a generated class, reading the table at `position` with checks. Raises Damaged."""
    accessor._tab = CheckedTable(data, position, budget)  # type: ignore[attr-defined]
    return accessor


def root_position(data: bytes) -> int:
    """Where the root table lies. Raises Damaged for a file that is too short to say."""
    if len(data) < 8:
        raise Damaged("it is too short")
    return int(struct.unpack_from("<I", data)[0])


# ---- options of custom operators ----


_MAX_ENTRIES = 64
_MAX_BYTES = 1 << 12


def numbers(data: bytes, where: Where) -> dict[str, Attribute]:
    """The integers, reals and truth values of the map in `data`, by key; entries of other types are left out.

    No bytes are an empty map. Raises EmitcError where the bytes are no map, or lead outside of themselves.
    """
    if not data:
        return {}
    try:
        return _entries(data)
    except Exception as error:
        why = f"its {len(data)} bytes are no FlexBuffers map of at most {_MAX_ENTRIES} entries"
        raise EmitcError("the options of a custom operator are damaged", where, why, DAMAGED) from error


def any_options(data: bytes) -> dict[str, Attribute]:
    """What is known of the options of a custom operator that emitc does not know: its bytes under "custom_options", unless they
    are more than 4096, and the entries of the map that they may be.
    """
    if len(data) > _MAX_BYTES:
        return {}
    try:
        entries = _entries(data)
    except Exception:  # the bytes are the operator's own affair, and need not be a map
        entries = {}
    return entries | {"custom_options": tuple(data)}


def _entries(data: bytes) -> dict[str, Attribute]:
    """Raises whatever the package raises on damaged bytes: struct.error, AssertionError, ValueError and others."""
    if len(data) > _MAX_BYTES or len(data) < 3 or data[-1] not in (1, 2, 4, 8):
        raise ValueError(len(data))
    root = flexbuffers.GetRoot(data)
    if not root.IsMap:
        raise TypeError(root)
    table = root.AsMap
    keys, values = table.Keys, table.Values
    if not len(keys) == len(values) <= _MAX_ENTRIES:
        raise ValueError(len(values))
    options: dict[str, Attribute] = {}
    for i in range(len(values)):
        value = values[i]
        if value.IsBool:
            options[keys[i].AsKey] = bool(value.AsBool)
        elif value.IsInt:
            options[keys[i].AsKey] = int(value.AsInt)
        elif value.IsFloat:
            options[keys[i].AsKey] = float(value.AsFloat)
    return options
