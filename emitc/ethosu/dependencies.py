"""Copies and operations run beside each other until the stream waits: which may not touch the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from emitc.ethosu.commands import Accelerator, Command, Convolution, Dma, Elementwise, FeatureMap, Wait
from emitc.ethosu.memory import AccessFault, table_place

_INTERNAL = -1
_MOST_OPERATIONS = 2


@dataclass(frozen=True, slots=True)
class _Touched:
    """Bytes [first, end) of a region."""

    region: int
    first: int
    end: int
    written: bool


def _extent(fm: FeatureMap, written: bool) -> Iterator[_Touched]:
    """The bytes between the first and the last of each tile."""
    element = np.dtype(fm.dtype).itemsize
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
            first, last = base + sum(min(r, 0) for r in reach), base + sum(max(r, 0) for r in reach)
            yield _Touched(fm.region, first, last + element, written)


def _touched(command: Command, internal_bytes: int) -> tuple[_Touched, ...]:
    if isinstance(command, Wait):
        return ()
    if isinstance(command, Dma):
        source = _INTERNAL if command.source_region is None else command.source_region
        target = _INTERNAL if command.destination_region is None else command.destination_region
        return (
            _Touched(source, command.source, command.source + command.size, False),
            _Touched(target, command.destination, command.destination + command.size, True),
        )
    found = [*_extent(command.ifm, False), *_extent(command.output.feature_map, True)]
    if isinstance(command, Elementwise) and isinstance(command.ifm2, FeatureMap):
        found += _extent(command.ifm2, False)
    if isinstance(command, Convolution):
        found += [
            _Touched(span.region, span.offset, span.offset + span.size, False)
            for span in (command.weights, command.scales)
        ]
    if command.output.table is not None:
        element = np.dtype(command.output.feature_map.dtype).itemsize
        offset, size = table_place(command.output.table, element, internal_bytes)
        found.append(_Touched(_INTERNAL, offset, offset + size, False))
    return tuple(found)


def _collide(a: _Touched, b: _Touched) -> bool:
    return a.region == b.region and a.first < b.end and b.first < a.end and (a.written or b.written)


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
        """Notes a command. Raises AccessFault where it touches bytes of what runs beside it.

        A copy runs beside operations, and the other way round; operations keep their own order by BLOCKDEP, copies theirs.
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
                    if _collide(a, b):
                        place = "the internal memory" if a.region == _INTERNAL else f"region {a.region}"
                        raise AccessFault(
                            f"it touches bytes {max(a.first, b.first)} to {min(a.end, b.end) - 1} of {place} at the same time"
                            f" as {other.place}, which nothing waits for"
                        )
        own.append((command, touched))
        del own[: max(0, len(own) - (self._most_copies if isinstance(command, Dma) else _MOST_OPERATIONS))]
