"""From the steps of a schedule to buffers with live ranges.

Steps are numbered 0..n-1; a schedule without steps counts as one. Who has to keep its bytes, and when:

    graph input                       from step 0 (the caller fills it before the run) to its last reader
    input that nobody reads           [0, 1)
    written at s, last read at t      [s, t + 1)
    written at s, never read          [s, s + 1)
    graph output                      to the end: the caller reads it after the run
    scratch of step s                 [s, s + 1)

Names that alias one another share one buffer: the hull of their ranges and the largest of their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from emitc.planner.buffers import DEFAULT_ALIGNMENT, Buffer, LiveRange


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


@dataclass(slots=True)
class _Range:
    """A live range while it grows, and the size of the buffer under it."""

    first: int
    end: int
    size_bytes: int = 0


def buffers_of(
    steps: Sequence[Step],
    sizes: Mapping[str, int],
    aliases: Mapping[str, str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    alignment: int = DEFAULT_ALIGNMENT,
) -> tuple[Buffer, ...]:
    """The buffers of a schedule, in the order of their first use (inputs, then step by step).

    `sizes` gives the bytes of every name that is used. `aliases` maps a name to the one whose bytes it shares
    (chains are followed); the buffer has the name at the end of the chain, and a write to any of the names
    counts for all of them. `alignment` is given to every buffer but scratch, which brings its own.

    Errors  ValueError, always a mistake of the caller: a name read, or returned as an output, before it is
    written; a name without a size; aliases in a circle; a scratch name that is used twice.
    """
    step_count = max(1, len(steps))
    ranges: dict[str, _Range] = {}
    scratch: dict[str, Buffer] = {}
    in_order: list[str] = []

    def touch(name: str, at: int, written: bool, user: str) -> None:
        root = root_of(name, aliases)
        if name not in sizes:
            raise ValueError(f"{user}: {name!r} has no size")
        if root not in ranges:
            if not written:
                raise ValueError(f"{user}: {name!r} is read before it is written")
            ranges[root] = _Range(at, at + 1, sizes.get(root, 0))
            in_order.append(root)
        span = ranges[root]
        span.end = at + 1  # uses come in the order of the steps
        span.size_bytes = max(span.size_bytes, sizes[name])

    for name in inputs:
        touch(name, 0, written=True, user="graph input")
    for index, step in enumerate(steps):
        for name in step.reads:
            touch(name, index, written=False, user=f"step {index}")
        for name in step.writes:
            touch(name, index, written=True, user=f"step {index}")
        for request in step.scratch:
            if request.name in scratch:
                raise ValueError(f"step {index}: scratch name {request.name!r} is used twice")
            live = LiveRange(index, index + 1)
            scratch[request.name] = Buffer(request.name, request.size_bytes, live, request.alignment)
            in_order.append(request.name)
    for name in outputs:
        touch(name, step_count - 1, written=False, user="graph output")

    _require_distinct(scratch, ranges)
    return tuple(
        scratch[name]
        if name in scratch
        else Buffer(name, ranges[name].size_bytes, LiveRange(ranges[name].first, ranges[name].end), alignment)
        for name in in_order
    )


def root_of(name: str, aliases: Mapping[str, str]) -> str:
    """The name at the end of the alias chain of `name`."""
    seen = [name]
    while (target := aliases.get(seen[-1], seen[-1])) != seen[-1]:
        if target in seen:
            raise ValueError(f"aliases run in a circle: {' -> '.join([*seen, target])}")
        seen.append(target)
    return seen[-1]


def _require_distinct(scratch: Iterable[str], ranges: Mapping[str, _Range]) -> None:
    for name in scratch:
        if name in ranges:
            raise ValueError(f"scratch name {name!r} is also the name of a buffer that steps read or write")
