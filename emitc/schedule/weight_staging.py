"""Weights in fast memory: which layers' are copied there before the layer runs, and the buffers that this takes.

A copy pays where a layer loads its weights many times, as convolutions do: once for every pixel, or for every few. How often is
an estimate from the multiply-accumulates and from `Table.pixels_per_load`, as the traffic of buffers is. Layers that run row by
row take turns: their copies are made before the first row, and stay until the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from emitc.planner import Buffer, LiveRange
from emitc.program.transfers import ROLE, loads_of, weights_of
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


def loads_bytes(node: LoweredNode) -> int:
    """Bytes of its weights that a layer loads in one run, about."""
    return loads_of(node.layer)


def candidates(schedule: MemorySchedule) -> tuple[Candidate, ...]:
    """Every layer whose weights could be copied, in order of execution."""
    result = []
    for position, stage in enumerate(schedule.stages):
        tables = [(node, table) for node in stage.nodes if (table := weights_of(node.layer))]
        together = sum(table.size_bytes for _, table in tables)
        result += [Candidate(position, node, table.size_bytes, loads_bytes(node), together) for node, table in tables]
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
