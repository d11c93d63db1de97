"""Weights in fast memory: which layers' are copied there before the layer runs, and the buffers that this takes.

A copy pays where a layer loads its weights many times, as convolutions do: once for every pixel, or for every few. How often is
an estimate from the multiply-accumulates and from `Table.pixels_per_load`, as the traffic of buffers is. Layers that run row by
row take turns: their copies are made before the first row, and stay until the last one.

A DMA brings weights while other layers run. One transfer runs at a time, in the order in which the layers need them. A layer
whose weights are not there yet waits. So the transfers cost the time that layers wait for them, and not more. A layer that loads
each weight once can gain by this too.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from emitc.planner import Buffer, LiveRange
from emitc.program.rows import ROLE, loads_of, weights_of
from emitc.records import dataclass, replace
from emitc.schedule.search import MemorySchedule
from emitc.schedule.stages import LoweredNode, staged_name


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layer whose weights could be copied. position: of its stage; size_bytes: of the weights; loads_bytes: of one run.

    together_bytes: of the weights of all layers of that stage, which take turns.
    """

    position: int
    node: LoweredNode
    size_bytes: int
    loads_bytes: int
    together_bytes: int

    def gain(self, home: float, fast: float, cache_bytes: int = 0) -> float:
        """What a copy saves. home, fast: cost of a byte where the weights lie, and where the copy is.

        cache_bytes: of the cache through which the weights are read. It keeps those that it has room for.

        >>> layer = Candidate(0, None, size_bytes=100, loads_bytes=1000, together_bytes=100)
        >>> layer.gain(5.0, 1.0), layer.gain(5.0, 1.0, cache_bytes=100)
        (3400.0, 0.0)
        """
        return self.waits(home, fast, cache_bytes) - self.waits(home, fast, cache_bytes, copied=True)

    def waits(self, home: float, fast: float, cache_bytes: int = 0, *, copied: bool = False) -> float:
        """What the weights cost beyond loads from fast memory, or (copied) their copy. The arguments are those of `gain`."""
        if self.together_bytes <= cache_bytes:
            return 0.0
        return self.size_bytes * (home + fast) if copied else self.loads_bytes * (home - fast)


def candidates(schedule: MemorySchedule) -> tuple[Candidate, ...]:
    """Every layer whose weights could be copied, in order of execution."""
    result = []
    for position, stage in enumerate(schedule.stages):
        tables = [(node, table) for node in stage.nodes if (table := weights_of(node.layer))]
        together = sum(table.size_bytes for _, table in tables)
        result += [
            Candidate(position, node, table.size_bytes, loads_of(node.layer), together) for node, table in tables
        ]
    return tuple(result)


def with_copies(
    schedule: MemorySchedule, chosen: Sequence[Candidate], starts: Sequence[int] | None = None
) -> MemorySchedule:
    """The schedule with a buffer for each of the chosen layers, alive for its stage.

    starts: for each of them the earlier stage at which its transfer starts, from which on it is alive; None for no transfers.
    """
    stages = list(schedule.stages)
    buffers = list(schedule.buffers)
    for candidate, start in zip(chosen, starts or [-1] * len(chosen), strict=True):
        stage = stages[candidate.position]
        nodes = tuple(
            replace(node, staged=(ROLE,), start=start) if node is candidate.node else node for node in stage.nodes
        )
        stages[candidate.position] = replace(stage, nodes=nodes)
        buffers.append(
            Buffer(
                staged_name(candidate.node, ROLE),
                candidate.size_bytes,
                LiveRange(candidate.position if start < 0 else start, candidate.position + 1),
            )
        )
    return replace(schedule, stages=tuple(stages), buffers=tuple(buffers))


# ---- transfers while other layers run ----


DEPTHS = (4, 2, 1, 0)
"""By how many stages a transfer may start before the layer that needs it, where memory is short. With 0 nothing overlaps."""
_LEEWAY = 1.5
"""A transfer starts so early that it may take so many times what is estimated."""
_TRIED = 12
"""Layers that a round tries to leave out, those with the least gain for a byte, and to add, those with the most gain."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies of weights that a DMA makes. chosen: the layers; starts: the stage at whose start each transfer starts.

    waits: cycles that the core waits for transfers. gain: what the copies save beyond that, in cycles. begins: when each stage
    runs, in cycles from the start of the run.
    """

    chosen: tuple[Candidate, ...] = ()
    starts: tuple[int, ...] = ()
    waits: float = 0.0
    gain: float = 0.0
    begins: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Overlap:
    """What is known of a schedule: the cycles of each stage, the cycles of a transfer for each byte, and what a copy saves.

    cycles: with copies of all weights. every: all layers that could have a copy; a stage takes longer where one has none.
    """

    cycles: Sequence[float]
    per_byte: float
    saved: Callable[[Candidate], float]
    every: Sequence[Candidate] = ()

    def timed(self, chosen: Sequence[Candidate], depth: int) -> Transfers:
        """When the transfers of these layers can start, and what they cost. depth: by how many stages they may start earlier.

        chosen: in the order in which they run. A transfer starts in the stage in which the DMA gets to it.

        >>> layers = [Candidate(1, None, 100, 100, 100), Candidate(2, None, 300, 300, 300)]
        >>> made = Overlap((200.0, 200.0, 50.0), 1.0, lambda c: 0.5 * c.loads_bytes).timed(layers, 9)
        >>> made.starts, made.waits, made.gain
        ((0, 0), 0.0, 200.0)
        """
        starts: list[int] = []
        ends: list[float] = []
        begins: list[float] = []
        now = ready = waits = 0.0

        def start(stage: int) -> None:
            nonlocal ready
            ready = max(ready, now) + self.per_byte * chosen[len(starts)].size_bytes
            starts.append(stage)
            ends.append(ready)

        needed = 0
        lengths = list(self.cycles)
        copied = {id(candidate) for candidate in chosen}
        for candidate in self.every:
            lengths[candidate.position] += self.saved(candidate) * (id(candidate) not in copied)
        for stage, cycles in enumerate(lengths):
            while len(starts) < len(chosen) and chosen[len(starts)].position == stage:
                start(stage)
            while needed < len(chosen) and chosen[needed].position == stage:
                waits += max(0.0, ends[needed] - now)
                now = max(now, ends[needed])
                needed += 1
            begins.append(now)
            end = now + cycles
            while len(starts) < len(chosen) and chosen[len(starts)].position <= stage + depth and ready < end:
                start(stage)
            now = end
        return Transfers(tuple(chosen), tuple(starts), waits, sum(map(self.saved, chosen)) - waits, tuple(begins))

    def delayed(self, made: Transfers) -> Transfers:
        """The same with each start in the last stage that leaves the transfer enough time: it takes memory for fewer stages.

        >>> layers = [Candidate(p, None, 100, 100, 100) for p in (2, 3)]
        >>> overlap = Overlap((200.0, 200.0, 200.0, 50.0), 1.0, lambda c: 1.0)
        >>> overlap.timed(layers, 9).starts, overlap.delayed(overlap.timed(layers, 9)).starts
        ((0, 0), (1, 2))
        """
        starts = list(made.starts)
        latest = math.inf
        for i in range(len(starts) - 1, -1, -1):
            position = made.chosen[i].position
            latest = min(latest, made.begins[position]) - _LEEWAY * self.per_byte * made.chosen[i].size_bytes
            able = [stage for stage in range(starts[i], position) if made.begins[stage] <= latest]
            starts[i] = max(able, default=starts[i])
        return replace(made, starts=tuple(starts))

    def best(self, able: Sequence[Candidate], depth: int) -> Transfers:
        """The layers among `able` whose copies save most: a climb from all of them, and one from none, by one layer at a time."""
        climbs = (self._climb(able, start, depth) for start in (able, ()))
        return self.delayed(max(climbs, key=attrgetter("gain")))

    def _climb(self, able: Sequence[Candidate], start: Sequence[Candidate], depth: int) -> Transfers:
        best = self.timed(_in_order(start), depth)
        while True:
            out = sorted(best.chosen, key=lambda c: self.saved(c) / c.size_bytes)[:_TRIED]
            inside = {id(c) for c in best.chosen}
            more = sorted((c for c in able if id(c) not in inside), key=lambda c: -self.saved(c))[:_TRIED]
            changed = [
                *([c for c in best.chosen if c is not one] for one in out),
                *([*best.chosen, one] for one in more),
            ]
            better = max(
                (self.timed(_in_order(layers), depth) for layers in changed), key=attrgetter("gain"), default=best
            )
            if better.gain <= best.gain:
                return best
            best = better

    def offers(self, able: Sequence[Candidate]) -> Iterator[Iterator[Transfers]]:
        """For each depth the best choice, and then choices that need less memory, the largest first."""
        for depth in (len(self.cycles), *DEPTHS):
            yield self._smaller(able, depth)

    def _smaller(self, able: Sequence[Candidate], depth: int) -> Iterator[Transfers]:
        best = self.best(able, depth)
        yield best
        by_gain = sorted(best.chosen, key=lambda c: -self.saved(c) / c.size_bytes)
        for n in range(1, len(by_gain).bit_length()):
            yield self.best(by_gain[: len(by_gain) >> n], depth)


def _in_order(layers: Sequence[Candidate]) -> list[Candidate]:
    return sorted(layers, key=lambda c: c.position)
