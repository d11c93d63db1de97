"""The planner's values: what has to be placed, how close it may lie, and where it was placed.

Units: every size, offset, distance and alignment is in bytes; every live range is half open and in steps.
A step is one entry of the schedule that runs on the target; the planner does not know what it computes.

Steps of a schedule are numbered 0..n-1; a schedule without steps counts as one. Who has to keep its bytes, and when:

    graph input                       from step 0 (the caller fills it before the run) to its last reader
    input that nobody reads           [0, 1)
    written at s, last read at t      [s, t + 1)
    written at s, never read          [s, s + 1)
    graph output                      to the end: the caller reads it after the run
    scratch of step s                 [s, s + 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emitc.records import dataclass

DEFAULT_ALIGNMENT = 16
"""Bytes. Wide enough for every vector load of the supported cores; smaller grids save a few bytes per model."""


def round_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is not below `value`; both in bytes, `value` may be negative.

    >>> round_up(17, 16), round_up(-17, 16)
    (32, -16)
    """
    return -(-value // alignment) * alignment


def require_alignment(alignment: int, owner: str) -> None:
    """Raises ValueError unless `alignment` is a power of two of bytes; `owner` names what asked for it."""
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"{owner}: alignment {alignment} is not a power of two")


@dataclass(frozen=True, slots=True)
class LiveRange:
    """The steps `[first, end)` during which a buffer's bytes must be kept.

    Errors  ValueError unless 0 <= first < end.
    """

    first: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.end:
            raise ValueError(f"live range [{self.first}, {self.end}) is empty or starts before step 0")

    def overlaps(self, other: LiveRange) -> bool:
        """True when the two ranges share a step.

        >>> LiveRange(0, 2).overlaps(LiveRange(1, 3)), LiveRange(0, 2).overlaps(LiveRange(2, 3))
        (True, False)
        """
        return self.first < other.end and other.first < self.end


@dataclass(frozen=True, slots=True)
class Buffer:
    """One run of bytes of the arena, alive during `live`.

    `alignment` holds for this buffer's offset, on top of the alignment of the whole plan. The offset is a multiple of `multiple`
    bytes, too, which asks nothing of the arena's base: so the distance of two such buffers is a multiple of it.
    Errors  ValueError for a negative size and for an alignment that is not a power of two.
    """

    name: str
    size_bytes: int
    live: LiveRange
    alignment: int = DEFAULT_ALIGNMENT
    multiple: int = 1

    def __post_init__(self) -> None:
        if self.size_bytes < 0:
            raise ValueError(f"buffer {self.name!r}: size {self.size_bytes} is negative")
        require_alignment(self.alignment, f"buffer {self.name!r}")


@dataclass(frozen=True, slots=True)
class Distance:
    """How close two buffers that are alive together may lie when they need not be disjoint.

    A placement of the pair is legal when one of the two holds:

        offset(buffer) - offset(other) >= above      `buffer` lies above `other`, at least `above` bytes up
        offset(other) - offset(buffer) >= below      `buffer` lies below `other`, at least `below` bytes down

    `None` means that this direction is not relaxed: `above` is then the size of `other`, `below` the size of
    `buffer`. That is also the relation of every pair without a record. A distance may be 0 or negative, never
    more than disjoint asks for.

    The numbers come from the kernel that reads one buffer while it writes the other, and they must be safe at
    every step at which both are alive. A forward walk of an elementwise operator that reads `x` and writes `y`,
    elements of equal size, is Distance("x", "y", above=0, below=None): `y` trails `x`, so equal offsets are safe.
    """

    buffer: str
    other: str
    above: int | None = None
    below: int | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """A buffer at its offset from the start of the arena. `size_bytes` is the buffer's own size, not rounded."""

    name: str
    size_bytes: int
    offset_bytes: int
    live: LiveRange


@dataclass(frozen=True, slots=True)
class Plan:
    """An arena of `arena_bytes`, whose base is aligned to `alignment`, and the offsets of all buffers in it.

    `placements` are in the order of the planned buffers. `lower_bound_bytes` is what no plan of the same live
    ranges, distances and alignment can go below; `proven` says that this plan meets it. `peak_step` is the
    first step that holds the most bytes, `peak_buffers` are the names alive at it, largest first. That many bytes are the
    lower bound; where a search of all packings has shown a higher one, they are `held_bytes`. Without buffers the arena
    is 0 bytes and the peak is step 0 without buffers.
    """

    arena_bytes: int
    alignment: int
    placements: tuple[Placement, ...]
    lower_bound_bytes: int
    proven: bool
    peak_step: int
    peak_buffers: tuple[str, ...]
    held_bytes: int | None = None


# ---- from the steps of a schedule to buffers ----


@dataclass(frozen=True, slots=True)
class ScratchRequest:
    """Bytes that one step needs for itself. `name` is the buffer's name and differs from every other name."""

    name: str
    size_bytes: int
    alignment: int = DEFAULT_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of the schedule touches in the arena: names read, names written, scratch.

    Constants and whatever else lives outside the arena are not named here. A name in both `reads` and `writes`
    is updated in place.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    scratch: tuple[ScratchRequest, ...] = ()


def buffers_of(
    steps: Sequence[Step],
    sizes: Mapping[str, int],
    inputs: Sequence[str],
    outputs: Sequence[str],
    alignment: int = DEFAULT_ALIGNMENT,
) -> tuple[Buffer, ...]:
    """The buffers of a schedule, in the order of their first use (inputs, then step by step).

    `sizes` gives the bytes of every name that is used. `alignment` is given to every buffer but scratch, which brings its own.

    Errors  ValueError, always a mistake of the caller: a name read, or returned as an output, before it is
    written; a name without a size; a scratch name that is used twice.
    """
    ranges: dict[str, tuple[int, int]] = {}
    scratch: dict[str, Buffer] = {}
    in_order: list[str] = []

    def touch(names: Sequence[str], at: int, user: str, *, written: bool) -> None:
        for name in names:
            if name not in sizes:
                raise ValueError(f"{user}: {name!r} has no size")
            if name not in ranges:
                if not written:
                    raise ValueError(f"{user}: {name!r} is read before it is written")
                in_order.append(name)
            ranges[name] = ranges.get(name, (at, at))[0], at + 1  # uses come in the order of the steps

    touch(inputs, 0, "graph input", written=True)
    for index, step in enumerate(steps):
        touch(step.reads, index, f"step {index}", written=False)
        touch(step.writes, index, f"step {index}", written=True)
        for request in step.scratch:
            if request.name in scratch:
                raise ValueError(f"step {index}: scratch name {request.name!r} is used twice")
            live = LiveRange(index, index + 1)
            scratch[request.name] = Buffer(request.name, request.size_bytes, live, request.alignment)
            in_order.append(request.name)
    touch(outputs, max(len(steps) - 1, 0), "graph output", written=False)
    for name in scratch:
        if name in ranges:
            raise ValueError(f"scratch name {name!r} is also the name of a buffer that steps read or write")
    return tuple(
        scratch[name] if name in scratch else Buffer(name, sizes[name], LiveRange(*ranges[name]), alignment)
        for name in in_order
    )
