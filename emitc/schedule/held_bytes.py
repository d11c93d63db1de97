"""How many bytes buffers hold between two steps, for many pairs of steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from emitc.planner import Buffer
from emitc.planner.buffers import round_up


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """The bytes that buffers hold between two steps, from sums over all that start, and over all that end, before a step.

    starts, ends: steps in rising order; started, ended: bytes, rounded up to the alignment, of the first n of them.
    """

    by_name: Mapping[str, Buffer]
    alignment: int
    starts: tuple[int, ...]
    started: tuple[int, ...]
    ends: tuple[int, ...]
    ended: tuple[int, ...]

    @staticmethod
    def of(buffers: Sequence[Buffer], alignment: int) -> HeldBytes:
        """For buffers with different names. alignment: what a size is rounded up to."""
        sizes = [round_up(buffer.size_bytes, alignment) for buffer in buffers]
        starts = sorted((buffer.live.first, size) for buffer, size in zip(buffers, sizes, strict=True))
        ends = sorted((buffer.live.end, size) for buffer, size in zip(buffers, sizes, strict=True))
        return HeldBytes(
            {buffer.name: buffer for buffer in buffers},
            alignment,
            tuple(step for step, _ in starts),
            tuple(accumulate((size for _, size in starts), initial=0)),
            tuple(step for step, _ in ends),
            tuple(accumulate((size for _, size in ends), initial=0)),
        )

    def between(self, first: int, end: int, without: Collection[str]) -> int:
        """The bytes of all buffers alive at a step in [first, end), but of none named in `without`."""
        total = self.started[bisect_left(self.starts, end)] - self.ended[bisect_right(self.ends, first)]
        left_out = (self.by_name[name] for name in without if name in self.by_name)
        alive = (b for b in left_out if b.live.first < end and b.live.end > first)
        return total - sum(round_up(buffer.size_bytes, self.alignment) for buffer in alive)
