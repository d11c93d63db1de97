"""What a command stream does to the scratch memory, byte by byte, without running it.

Streams of one file share that memory: one may read what an earlier one has left there, and may write parts of a tensor
that another one has begun. The file's operators do not say so; the streams do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.errors import CannotCompile, Where
from emitc.ethosu.commands import NpuUnsupported, Wait, fault
from emitc.ethosu.memory import AccessFault, Marks
from emitc.ethosu.simulator import decoded

Mask = NDArray[np.bool_]

_SCRATCH, _FAST = 1, 2
_MOST_BYTES = 1 << 32
"""Of all streams of a file together: several times what the largest networks for these NPUs touch."""
_MOST_RUNS = 1 << 18
"""Of one stream: pieces of memory that do not touch each other."""


class Allowance:
    """How many bytes the streams of one file may touch, so that a small file cannot ask for endless work."""

    def __init__(self) -> None:
        self._left = _MOST_BYTES

    def spend(self, count: int) -> None:
        """Raises CannotCompile when it is used up."""
        self._left -= count
        if self._left < 0:
            what = "the command streams touch more memory than emitc follows"
            why = f"the limit is {_MOST_BYTES} bytes for the streams of a file"
            hint = "the file is damaged, or the model is not meant for a microcontroller"
            raise CannotCompile(what, Where(op="payload"), why, hint)


@dataclass(frozen=True, slots=True)
class Effects:
    """reads, writes: of the scratch memory, before the stream has written it, and what it writes.

    First byte and the byte after the last of each run, in turn.

    uses_fast: whether the region of the fast scratch memory is used, where it is a memory of its own. carries_fast: whether
    bytes of it are read that the stream has not written.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    uses_fast: bool
    carries_fast: bool

    @property
    def end(self) -> int:
        """The byte after the last one of the scratch memory that is used."""
        return max((*self.reads[-1:], *self.writes[-1:]), default=0)


def scratch_effects(
    payload: bytes, scratch_bytes: int, fast_bytes: int, allowance: Allowance | None = None
) -> Effects | None:
    """What a payload does to its scratch memories; None for a stream with operations that the decoder does not know.

    fast_bytes: 0 where the scratch memory serves as the fast one. Raises NpuFault for a damaged payload and for an access
    that leaves the memory, CannotCompile for streams that touch too much.
    """
    allowance = allowance or Allowance()
    allowance.spend(scratch_bytes + fast_bytes)
    try:
        stream = decoded(payload)
    except NpuUnsupported:
        return None
    scratch = Marks(scratch_bytes)
    fast = Marks(fast_bytes) if fast_bytes else scratch
    regions: dict[int | None, Marks] = {_SCRATCH: scratch, _FAST: fast}
    for command in stream.commands:
        if isinstance(command, Wait):
            continue
        allowance.spend(sum(part.size for part in (*command.reads, *command.writes)))
        try:
            # Reads come before writes: an operation may write over what it reads.
            for part in command.reads:
                if part.region in regions:
                    regions[part.region].read(part)
            for part in command.writes:
                if part.region in regions:
                    regions[part.region].write(part)
        except AccessFault as error:
            raise fault("the NPU would make a wrong access", str(error), command.place) from error
    own = fast is not scratch
    reads, writes = spans(scratch.reads), spans(scratch.writes)
    if len(reads) + len(writes) > 2 * _MOST_RUNS:
        raise fault("a command stream touches too many pieces of memory", f"the limit is {_MOST_RUNS}")
    carries_fast = own and bool(fast.reads.any())
    return Effects(reads, writes, carries_fast or (own and bool(fast.writes.any())), carries_fast)


def spans(mask: Mask) -> tuple[int, ...]:
    """The runs of a mask: first, end, first, end and so on."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return tuple(int(edge) for edge in edges)


def mask(runs: Sequence[int], size: int) -> Mask:
    """The other way round, for a memory of so many bytes."""
    result = np.zeros(size, bool)
    for first, end in zip(runs[::2], runs[1::2], strict=True):
        result[first:end] = True
    return result
