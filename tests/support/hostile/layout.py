"""Where the fields lie in an intact .tflite file: what an attacker aims at. An own walk, independent of emitc's reader."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

# Slots of the tables that matter, with what each field is: t table, v<n> vector of n-byte elements, s text,
# l vector of tables of the named kind, i inline number.
_SCHEMA: dict[str, dict[int, str]] = {
    "Model": {0: "i4", 1: "lOperatorCode", 2: "lSubGraph", 3: "s", 4: "lBuffer", 6: "lMetadata"},
    "OperatorCode": {0: "i1", 1: "s", 2: "i4", 3: "i4"},
    "SubGraph": {0: "lTensor", 1: "v4", 2: "v4", 3: "lOperator", 4: "s"},
    "Tensor": {0: "v4", 1: "i1", 2: "i4", 3: "s", 4: "tQuantization", 5: "i1", 7: "v4", 8: "i1"},
    "Quantization": {0: "v4", 1: "v4", 2: "v4", 3: "v8", 4: "i1", 6: "i4"},
    "Operator": {0: "i4", 1: "v4", 2: "v4", 3: "i1", 4: "tOptions"},
    "Options": dict.fromkeys(range(8), "i4"),
    "Buffer": {0: "v1"},
    "Metadata": {0: "s", 1: "i4"},
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte positions by what stands there.

    lengths: 4-byte vector lengths. offsets: 4-byte relative offsets. vtables: 2-byte entries of vtables. numbers: inline
    numbers of tables, (position, bytes). elements: words of vectors of numbers. constants: (start, end) of large constants.
    """

    size: int
    lengths: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    vtables: list[int] = field(default_factory=list)
    numbers: list[tuple[int, int]] = field(default_factory=list)
    elements: list[int] = field(default_factory=list)
    constants: list[tuple[int, int]] = field(default_factory=list)

    def structure(self) -> list[int]:
        """Every byte position outside the large constants."""
        spared = set()
        for start, end in self.constants:
            spared.update(range(start, end))
        return [i for i in range(self.size) if i not in spared]


def layout_of(data: bytes) -> Layout:
    """The layout of an intact file."""
    layout = Layout(len(data))
    seen: set[int] = set()

    def u16(at: int) -> int:
        return int(struct.unpack_from("<H", data, at)[0])

    def u32(at: int) -> int:
        return int(struct.unpack_from("<I", data, at)[0])

    def vector(at: int, width: int, large: int) -> None:
        start = at + u32(at)
        count = u32(start)
        layout.lengths.append(start)
        if count * width > large:
            layout.constants.append((start + 4, start + 4 + count * width))
        elif width >= 4:
            layout.elements.extend(range(start + 4, start + 4 + count * width, 4))

    def table(at: int, kind: str) -> None:
        if at in seen:
            return
        seen.add(at)
        layout.offsets.append(at)
        vtable = at - int(struct.unpack_from("<i", data, at)[0])
        entries = range(vtable, vtable + u16(vtable), 2)
        if vtable not in seen:
            seen.add(vtable)
            layout.vtables.extend(entries)
        for slot, what in _SCHEMA[kind].items():
            entry = vtable + 4 + 2 * slot
            if entry not in entries or u16(entry) == 0:
                continue
            position = at + u16(entry)
            if what[0] == "i":
                layout.numbers.append((position, int(what[1:])))
                continue
            layout.offsets.append(position)
            if what[0] == "t":
                table(position + u32(position), what[1:])
            elif what[0] == "l":
                start = position + u32(position)
                layout.lengths.append(start)
                for i in range(u32(start)):
                    element = start + 4 + 4 * i
                    layout.offsets.append(element)
                    table(element + u32(element), what[1:])
            else:
                vector(position, 1 if what == "s" else int(what[1:]), 128)

    layout.offsets.append(0)
    table(u32(0), "Model")
    return layout
