"""Copies and operations run at the same time until the stream waits, and must not touch the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emitc.ethosu.commands import Accelerator, Command, Dma, Operation, Part, Span, Wait
from emitc.ethosu.memory import AccessFault, table_place

_MOST_OPERATIONS = 2


@dataclass(frozen=True, slots=True)
class _Touched:
    """Bytes [first, end) of a region."""

    region: int | None
    first: int
    end: int
    written: bool

    def collides(self, other: _Touched) -> bool:
        """Whether both touch a byte that one of them writes."""
        common = self.region == other.region and self.first < other.end and other.first < self.end
        return common and (self.written or other.written)


def _extents(part: Part) -> Iterator[tuple[int, int]]:
    """The first byte and the byte after the last, of a tensor's tiles or of other bytes."""
    if isinstance(part, Span):
        yield part.offset, part.offset + part.size
        return
    fm, element = part, part.element_bytes
    left, right = min(fm.width0, fm.width), fm.width - fm.width0
    sizes = (
        (min(fm.height0, fm.height), left),
        (min(fm.height1, fm.height), right),
        (fm.height - fm.height0, left),
        (fm.height - fm.height1, right),
    )
    for base, (height, width) in zip(fm.bases, sizes, strict=True):
        if height > 0 and width > 0:
            if fm.bricks:
                steps = [((fm.depth - 1) // 16, fm.stride_c), (width - 1, 16 * element), (15, element)]
            else:
                steps = [(width - 1, fm.stride_x), (fm.depth - 1, element)]
            reach = [n * s for n, s in (*steps, (height - 1, fm.stride_y))]
            yield base + sum(min(r, 0) for r in reach), base + sum(max(r, 0) for r in reach) + element


def _touched(command: Operation | Dma, internal_bytes: int) -> tuple[_Touched, ...]:
    parts = [(part, False) for part in command.reads] + [(part, True) for part in command.writes]
    if isinstance(command, Operation) and command.output.table is not None:
        place = table_place(command.output.table, command.output.feature_map.element_bytes, internal_bytes)
        parts.append((Span(None, *place), False))
    return tuple(_Touched(part.region, *extent, written) for part, written in parts for extent in _extents(part))


class Pending:
    """Copies and operations that the stream has started and not waited for, oldest first.

    As vela assumes, the NPU holds two operations and one copy (two on Ethos-U65) at a time: the next one starts when the
    oldest has ended.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._internal_bytes = accelerator.shram_bytes
        self._most_copies = 1 if accelerator.name.startswith("ethos-u55") else 2
        self._copies: list[tuple[Command, tuple[_Touched, ...]]] = []
        self._operations: list[tuple[Command, tuple[_Touched, ...]]] = []

    def check(self, command: Command) -> None:
        """Notes a command. Raises AccessFault where it touches bytes of what runs at the same time.

        A copy runs at the same time as operations; operations keep their own order by BLOCKDEP, copies theirs.
        """
        if isinstance(command, Wait):
            waiting = self._copies if command.dma else self._operations
            del waiting[: max(0, len(waiting) - command.outstanding)]
            return
        touched = _touched(command, self._internal_bytes)
        others, own = (self._operations, self._copies) if isinstance(command, Dma) else (self._copies, self._operations)
        for other, bytes_of_other in others:
            for a in touched:
                for b in bytes_of_other:
                    if a.collides(b):
                        place = "the internal memory" if a.region is None else f"region {a.region}"
                        raise AccessFault(
                            f"it touches bytes {max(a.first, b.first)} to {min(a.end, b.end) - 1} of {place} at the same time"
                            f" as {other.place}, which nothing waits for"
                        )
        own.append((command, touched))
        del own[: max(0, len(own) - (self._most_copies if isinstance(command, Dma) else _MOST_OPERATIONS))]
