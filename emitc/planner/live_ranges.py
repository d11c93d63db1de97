"""From the steps of a schedule to buffers with live ranges.

Steps are numbered 0..n-1; a schedule without steps counts as one. Who has to keep its bytes, and when:

    graph input                       from step 0 (the caller fills it before the run) to its last reader
    input that nobody reads           [0, 1)
    written at s, last read at t      [s, t + 1)
    written at s, never read          [s, s + 1)
    graph output                      to the end: the caller reads it after the run
    scratch of step s                 [s, s + 1)
"""

from collections.abc import Mapping, Sequence
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
