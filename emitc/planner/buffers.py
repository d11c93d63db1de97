"""The planner's values: what has to be placed, how close it may lie, and where it was placed.

Units: every size, offset, distance and alignment is in bytes; every live range is half open and in steps.
A step is one entry of the schedule that runs on the target; the planner does not know what it computes.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def offset_of(self, name: str) -> int:
        """The offset of the buffer `name` in bytes. Errors: KeyError when the plan has no such buffer."""
        for placement in self.placements:
            if placement.name == name:
                return placement.offset_bytes
        raise KeyError(name)
