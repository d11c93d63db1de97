"""The schedule with the smallest arena, or with the cheapest one under a budget.

1. Layers one by one, in the graph's order.
2. Where the plan misses its bound, because tensors that trail their inputs run out of room below, some are moved up again:
   the fewest moves that give the smallest arena, and no more bytes than a share of the multiply-accumulates.
3. Under a budget that this does not meet, the fewest segments of layers are made row by row, of these the fewest layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emitc.ir import Graph
from emitc.memory import PinnedBuffer, arena_buffers, distances, pinned, pins_of
from emitc.planner import Buffer, Distance, Plan, held_bytes, plan, shared_bytes
from emitc.schedule import LoweredNode, Segment, Stage, one_by_one, with_moves, with_segments
from emitc.streaming import Choice, fewest, least_held, segments_of

MOVED_SHARE = 0.025
"""Bytes that may be moved for each multiply-accumulate: a move costs about half an instruction per byte, a
multiply-accumulate at least one, so moves cost little more than a hundredth of a run.
"""
TECHNIQUES = ("overlap", "moves")
"""What can be switched off by name: outputs that share memory with their inputs, and tensors that are moved for that."""
_MOST_MOVES = 24
"""Tensors that are looked at; each pair of them costs a plan."""
SMALLEST = 0
"""As the budget: the smallest arena, at whatever number of segments."""
_TRIES = 6
"""Limits tried for one budget; the packing may miss the estimate by a few grid steps."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A schedule and its memory. inside: buffers that lie in the scratch of others, which the plan does not list."""

    stages: tuple[Stage, ...]
    plan: Plan
    inside: tuple[PinnedBuffer, ...]


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans of schedules of one graph."""

    graph: Graph
    nodes: tuple[LoweredNode, ...]
    alignment: int
    without: frozenset[str] = frozenset()

    def pairs(self, stages: Sequence[Stage], buffers: Sequence[Buffer]) -> tuple[Distance, ...]:
        """Which buffers may share memory."""
        return () if "overlap" in self.without else distances(self.graph, stages, buffers)

    def planned(self, stages: tuple[Stage, ...], *, quick: bool = False) -> Arrangement:
        """The schedule with its plan; quick: without a search where first fit misses the bound."""
        buffers, inside = pinned(arena_buffers(self.graph, stages, self.alignment), pins_of(self.graph, self.nodes))
        pairs = self.pairs(stages, buffers)
        return Arrangement(stages, plan(buffers, pairs, alignment=self.alignment, search=not quick), inside)

    def movable(self, stages: Sequence[Stage]) -> list[tuple[int, str]]:
        """Tensors that trail one tensor and are trailed by the next, with the stage before which they could be moved."""
        buffers, _ = pinned(arena_buffers(self.graph, stages, self.alignment), pins_of(self.graph, self.nodes))
        pairs = self.pairs(stages, buffers)
        ends = {buffer.name: buffer.live.end for buffer in buffers}
        trailing = {pair.other for pair in pairs}
        kept = {self.graph.root(name).name for name in (*self.graph.outputs, *self.graph.inputs)}
        # Only bytes: the words in which they are moved may alias no other type.
        bytes_alone = {tensor.name for tensor in self.graph.tensors if tensor.dtype.bytes == 1}
        found = [pair.buffer for pair in pairs if pair.buffer in trailing and pair.buffer not in kept]
        return [(ends[name] - 1, name) for name in found if name in bytes_alone]

    def moving(self, base: Arrangement) -> Arrangement:
        """The schedule with the fewest moves that make the arena smallest; itself where none does."""
        moves = self.movable(base.stages)
        if base.plan.proven or not 0 < len(moves) <= _MOST_MOVES or "moves" in self.without:
            return base
        allowed = MOVED_SHARE * sum(node.layer.macs for node in self.nodes)
        best = self.planned(with_moves(base.stages, moves), quick=True)
        while moves:
            # Without each of them in turn: one that is not needed goes, and while they are too many the least needed one.
            tried = [
                (self.planned(with_moves(base.stages, [m for m in moves if m != move]), quick=True), move)
                for move in moves
            ]
            found, move = min(tried, key=lambda t: (t[0].plan.arena_bytes, -self.moved_bytes([t[1]]), t[1]))
            if found.plan.arena_bytes > best.plan.arena_bytes and self.moved_bytes(moves) <= allowed:
                break
            moves, best = [m for m in moves if m != move], found
        return best if best.plan.arena_bytes < base.plan.arena_bytes else base

    def moved_bytes(self, moves: Sequence[tuple[int, str]]) -> int:
        """Bytes of the tensors that are moved."""
        return sum(self.graph.tensor(name).size_bytes for _, name in moves)

    def best(self, stages: tuple[Stage, ...]) -> Arrangement:
        """The schedule, with moves where they help."""
        return self.moving(self.planned(stages))

    def choices(self) -> list[Choice]:
        """Every node alone and every segment, with the bytes that each needs with what else is alive."""
        stages = one_by_one(self.nodes)
        buffers, _ = pinned(arena_buffers(self.graph, stages, self.alignment), pins_of(self.graph, self.nodes))
        held = held_bytes(buffers, self.pairs(stages, buffers), self.alignment)
        found = [Choice(i, i + 1, held.get(i, 0), None) for i in range(len(self.nodes))]
        by_name = {buffer.name: buffer for buffer in buffers}
        outputs = {self.graph.root(name).name for name in self.graph.outputs}

        def grid(size: int) -> int:
            return -(-size // self.alignment) * self.alignment

        for segment in segments_of(self.graph, self.nodes):
            if segment.source not in by_name or segment.target not in by_name:
                continue
            source, target = by_name[segment.source], by_name[segment.target]
            total = grid(source.size_bytes) + grid(target.size_bytes) + sum(map(grid, segment.line_bytes))
            if "overlap" not in self.without and source.live.end <= segment.end and segment.source not in outputs:
                total -= shared_bytes(source.size_bytes, target.size_bytes, segment.distance_bytes, self.alignment)
            inside = {
                self.graph.root(t.name).name for n in self.nodes[segment.first : segment.end] for t in n.bound.outputs
            }
            total += sum(
                grid(b.size_bytes)
                for b in buffers
                if b.live.first < segment.end and b.live.end > segment.first and b.name not in inside | {segment.source}
            )
            found.append(Choice(segment.first, segment.end, total, segment))
        return found

    def streamed(self, budget: int) -> Arrangement:
        """The smallest number of segments that meets the budget; the smallest arena found where none does."""
        choices, count = self.choices(), len(self.nodes)
        least = least_held(choices, count)
        limits = sorted({c.held_bytes for c in choices if c.held_bytes >= least})
        limit = max(budget, least)
        best: Arrangement | None = None
        seen: set[tuple[Segment, ...]] = set()
        for attempt in range(_TRIES):
            segments = fewest(choices, count, limit)
            if segments is not None and segments not in seen:
                seen.add(segments)
                found = self.best(with_segments(self.nodes, segments))
                if best is None or found.plan.arena_bytes < best.plan.arena_bytes:
                    best = found
                if best.plan.arena_bytes <= budget:
                    return best
            # The packing needs more than the estimate: ask for less, or at the least there is, look around it.
            lower = [value for value in limits if value < limit]
            limit = lower[-1] if lower and budget > least else limits[min(attempt, len(limits) - 1)]
        assert best is not None, "the least limit leads through every graph"
        return best


def arranged(
    graph: Graph,
    nodes: tuple[LoweredNode, ...],
    alignment: int,
    budget: int | None,
    without: frozenset[str] = frozenset(),
) -> Arrangement:
    """The schedule of lowered nodes. budget: bytes of arena that row streaming is to meet, SMALLEST for as few as possible,
    None for no streaming. The result may miss the budget: then it is the smallest found. without: of TECHNIQUES.
    """
    planner = _Planner(graph, nodes, alignment, without)
    whole = planner.best(one_by_one(nodes))
    if budget is None or not nodes or whole.plan.arena_bytes <= budget:
        return whole
    rows = planner.streamed(budget)
    return rows if rows.plan.arena_bytes < whole.plan.arena_bytes else whole
