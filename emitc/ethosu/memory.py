"""The memories that a command stream reaches: regions by number and the internal one, with every access checked.

An access must lie inside its region, be aligned as the NPU asks, and read no byte that nothing has written before. Copies and
operations run at the same time until the stream waits, and must not touch the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from emitc.ethosu.commands import Accelerator, Array, Command, Dma, FeatureMap, Operation, Part, Span, Wait
from emitc.records import dataclass

CONSTANTS = 0
"""The region of weights, scales and tables, which no stream may write."""

_BRICK = 16
_WORD_BYTES = 16
_MAX_ELEMENTS = 1 << 24

Ranges = Mapping[int, Sequence[tuple[int, int]]]
"""Bytes [first, end) by region."""

_TABLE_AREA_BYTES = 2048
_TABLE_BYTES = 256


def table_place(number: int, element: int, internal_bytes: int) -> tuple[int, int]:
    """(offset, size) of a lookup table in the internal memory's last 2 KB.

    256 entries of `element` bytes each; where these are 2 bytes, 512 pairs of a base and a slope.
    """
    size = _TABLE_AREA_BYTES if element == 2 else _TABLE_BYTES * element
    return internal_bytes - _TABLE_AREA_BYTES + number * _TABLE_BYTES, size


class AccessFault(Exception):
    """An access that the NPU may not make; the text says which and why."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a feature map that one array of bytes [h, w, groups, c, element bytes] shows: one tile, whole bricks or rest."""

    rows: slice
    columns: slice
    channels: slice
    base: int
    shape: tuple[int, int, int, int, int]
    strides: tuple[int, int, int, int, int]

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte and the byte after the last."""
        reach = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return self.base + sum(min(r, 0) for r in reach), self.base + sum(max(r, 0) for r in reach) + 1


def _pieces(fm: FeatureMap) -> Iterator[_Piece]:
    """The parts of a feature map. Raises AccessFault for one that is too large."""
    element = fm.element_bytes
    if fm.elements > _MAX_ELEMENTS:
        raise AccessFault(f"a tensor of {fm.elements} elements; the limit is {_MAX_ELEMENTS}")
    left, right = (0, min(fm.width0, fm.width)), (fm.width0, fm.width)
    parts = (
        (0, (0, min(fm.height0, fm.height)), left),
        (1, (0, min(fm.height1, fm.height)), right),
        (2, (fm.height0, fm.height), left),
        (3, (fm.height1, fm.height), right),
    )
    full = fm.depth // _BRICK * _BRICK if fm.bricks else 0
    for tile, rows, columns in parts:
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        if height <= 0 or width <= 0:
            continue
        step_x = _BRICK * element if fm.bricks else fm.stride_x
        groups = ((0, full, full // _BRICK, _BRICK), (full, fm.depth, 1, fm.depth - full))
        for first, end, count, channels in groups:
            if first < end:
                yield _Piece(
                    slice(*rows),
                    slice(*columns),
                    slice(first, end),
                    fm.bases[tile] + first // _BRICK * fm.stride_c,
                    (height, width, count, channels, element),
                    (fm.stride_y, step_x, fm.stride_c, element, 1),
                )


class Memory:
    """Regions 0 to 7, as far as there are, and the internal memory. Arrays are uint8 [bytes] and written in place."""

    def __init__(self, regions: Sequence[Array], internal_bytes: int, initialised: Ranges | None) -> None:
        """initialised: the bytes that hold something; None: all of them do. Region 0 always does."""
        self._regions = tuple(regions)
        self._internal = np.zeros(internal_bytes, np.uint8)
        self._internal_known = np.zeros(internal_bytes, bool)
        self._known = _known_bytes(self._regions, initialised)

    def _region(self, number: int | None) -> tuple[Array, Array, str]:
        """(bytes, which of them are known, name)."""
        if number is None:
            return self._internal, self._internal_known, "the internal memory"
        if number >= len(self._regions):
            raise AccessFault(f"region {number} is used, and {len(self._regions)} are given")
        return self._regions[number], self._known[number], f"region {number}"

    def _checked(self, fm: FeatureMap) -> tuple[Array, Array, str, list[_Piece]]:
        """(bytes, which of them are known, name of the region, pieces). Refuses a tensor that leaves the region."""
        pieces = list(_pieces(fm))
        memory, known, name = self._region(fm.region)
        alignment = _BRICK if fm.bricks else fm.element_bytes
        for number in (fm.stride_y, fm.stride_c if fm.bricks else fm.stride_x, *fm.bases):
            if number % alignment:
                raise AccessFault(f"an address or stride {number} is no multiple of {alignment}")
        for piece in pieces:
            first, end = piece.extent
            if first < 0 or end > len(memory):
                raise AccessFault(f"bytes {first} to {end - 1} of {name} are used, which has {len(memory)}")
        return memory, known, name, pieces

    def read(self, fm: FeatureMap) -> Array:
        """The tensor's values [H, W, C], in its type."""
        memory, known, name, pieces = self._checked(fm)
        values = np.empty((fm.height, fm.width, fm.depth), fm.dtype)
        for piece in pieces:
            if not _view(known, piece).all():
                raise AccessFault(
                    f"bytes of {name} are read that nothing has written, from {_unknown(known, piece)} on"
                )
            array = np.ascontiguousarray(_view(memory, piece)).view(fm.dtype)
            height, width, groups, channels, _ = piece.shape
            values[piece.rows, piece.columns, piece.channels] = array.reshape(height, width, groups * channels)
        return values

    def check_output(self, fm: FeatureMap) -> None:
        """Refuses what `write` would refuse of any values: asked before they are computed."""
        self._checked(fm)
        self._writable(fm.region)

    def write(self, fm: FeatureMap, values: Array) -> None:
        """Stores values [H, W, C], which are in the tensor's range."""
        memory, known, _, pieces = self._checked(fm)
        self._writable(fm.region)
        stored = np.ascontiguousarray(values.astype(fm.dtype))
        for piece in pieces:
            part = np.ascontiguousarray(stored[piece.rows, piece.columns, piece.channels])
            _view(memory, piece)[...] = part.view(np.uint8).reshape(piece.shape)
            _view(known, piece)[...] = True

    def bytes_of(self, span: Span, what: str) -> bytes:
        """The bytes of weights or scales, which lie at multiples of 16."""
        if span.offset % _WORD_BYTES:
            raise AccessFault(f"{what} at byte {span.offset}, no multiple of {_WORD_BYTES}")
        return self._slice(span, what).tobytes()

    def table(self, number: int, element: int) -> bytes:
        return self._slice(Span(None, *table_place(number, element, len(self._internal))), "a table").tobytes()

    def _slice(self, span: Span, what: str) -> Array:
        memory, known, name = self._region(span.region)
        first, end = span.offset, span.offset + span.size
        if end > len(memory):
            raise AccessFault(f"{what} takes bytes {first} to {end - 1} of {name}, which has {len(memory)}")
        unknown = np.flatnonzero(~known[first:end])
        if len(unknown):
            raise AccessFault(f"{what} reads byte {first + int(unknown[0])} of {name}, which nothing has written")
        part: Array = memory[first:end]
        return part

    def copy(self, dma: Dma) -> None:
        """One copy. The internal memory takes multiples of 16 bytes at multiples of 16."""
        target = dma.destination
        internal = [span for span in (dma.source, target) if span.region is None]
        for number in (*(span.offset for span in internal), *(span.size for span in internal[:1])):
            if number % _WORD_BYTES:
                raise AccessFault(f"an address or size {number} of the internal memory is no multiple of {_WORD_BYTES}")
        data = self._slice(dma.source, "a copy").copy()
        self._writable(target.region)
        memory, known, name = self._region(target.region)
        end = target.offset + target.size
        if end > len(memory):
            raise AccessFault(f"a copy writes bytes {target.offset} to {end - 1} of {name}, which has {len(memory)}")
        memory[target.offset : end] = data
        known[target.offset : end] = True

    def _writable(self, region: int | None) -> None:
        if region == CONSTANTS:
            raise AccessFault(f"region {CONSTANTS}, which holds the constants, is written")


def _extents(part: Part) -> list[tuple[int, int]]:
    """The first byte and the byte after the last, of a tensor's pieces or of other bytes."""
    if isinstance(part, Span):
        return [(part.offset, part.offset + part.size)]
    return [piece.extent for piece in _pieces(part)]


def _view(memory: Array, piece: _Piece) -> Array:
    view: Array = np.ndarray(piece.shape, memory.dtype, memory, piece.base, piece.strides)
    return view


def _unknown(known: Array, piece: _Piece) -> int:
    """Offset of the first byte of the piece that is not known."""
    index = np.argwhere(~_view(known, piece))[0]
    return piece.base + sum(int(i) * stride for i, stride in zip(index, piece.strides, strict=True))


def _known_bytes(regions: Sequence[Array], initialised: Ranges | None) -> tuple[Array, ...]:
    """Which bytes of each region hold something. Regions that share memory share the answer."""
    spans = [(region.ctypes.data, region.ctypes.data + len(region)) for region in regions]
    origin = min((first for first, _ in spans), default=0)
    groups: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if groups and first < groups[-1][1]:
            groups[-1] = (groups[-1][0], max(groups[-1][1], end))
        else:
            groups.append((first, end))
    masks = {first: np.full(end - first, initialised is None) for first, end in groups}
    pieces: list[Array] = []
    for number, (first, end) in enumerate(spans):
        start = max((g for g, _ in groups if g <= first), default=origin)
        mask = masks[start][first - start : end - start]
        if number == CONSTANTS:
            mask[:] = True
        for low, high in (initialised or {}).get(number, ()):
            mask[low:high] = True
        pieces.append(mask)
    return tuple(pieces)


class Marks:
    """Which bytes of one region a stream reads before it writes them, and which it writes.

    reads, writes: bool [bytes]; they hold what was marked so far. An access that leaves the region raises AccessFault.
    """

    def __init__(self, size: int) -> None:
        self.reads = np.zeros(size, bool)
        self.writes = np.zeros(size, bool)

    def read(self, part: Part) -> None:
        for reads, writes in zip(self._views(self.reads, part), self._views(self.writes, part), strict=True):
            reads[...] |= ~writes

    def write(self, part: Part) -> None:
        for writes in self._views(self.writes, part):
            writes[...] = True

    def _views(self, marks: Array, part: Part) -> list[Array]:
        """The marks of a tensor's pieces, or of other bytes."""
        for first, end in _extents(part):
            if first < 0 or end > len(marks):
                raise AccessFault(f"bytes {first} to {end - 1} of a memory of {len(marks)} are used")
        if isinstance(part, Span):
            return [marks[part.offset : part.offset + part.size]]
        return [_view(marks, piece) for piece in _pieces(part)]


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
