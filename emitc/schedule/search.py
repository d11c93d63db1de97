"""The schedule with the smallest arena, or with the cheapest one under a budget.

1. Layers one by one, in the graph's order or in the one in which least has to be held at once.
2. Layers that only copy vanish where the arena does not grow by it: their tensors are laid inside one another.
3. Where the plan misses its bound, because tensors that trail their inputs run out of room below, some are moved up again:
   the fewest moves that give the smallest arena, and no more bytes than a share of the multiply-accumulates.
4. Under a budget that this does not meet, the fewest segments of layers are made row by row, of these the fewest layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from emitc.ir import Graph
from emitc.planner import Buffer, Distance, OrderProblem, Plan, best_order, held_bytes, plan
from emitc.schedule.buffers import (
    PinnedBuffer,
    arena_buffers,
    distances,
    parts_in,
    pinned,
    pins_of,
    step_distances,
    step_of,
)
from emitc.schedule.elided_copies import View, hosts_of, views_of
from emitc.schedule.row_costs import alone, segment_overhead
from emitc.schedule.row_overlap import near, saved
from emitc.schedule.row_streaming import Choice, cheapest, fewest, least_held, segments_of
from emitc.schedule.stages import (
    LoweredNode,
    Segment,
    Stage,
    in_arena,
    one_by_one,
    placed,
    scratch_of,
    with_moves,
    with_segments,
)

MOVED_SHARE = 0.025
"""Bytes that may be moved for each multiply-accumulate: a move costs about half an instruction per byte, a
multiply-accumulate at least one, so moves cost little more than a hundredth of a run.
"""
STREAMED_SHARE = 0.015
"""Cycles that layers row by row may cost by default, as a share of all: an estimate, which is to stay below 2 % in truth."""
STREAMED_GAIN = 0.1
"""Of the arena: what they have to save."""
PULLED_SHARE = 0.12
PULLED_GAIN = 0.02
"""The same for a model that asks for the rows of its input, which is done for a small arena."""
STREAMED_LAYERS = 150
"""Layers of a model up to which that is tried."""
STREAMED_LENGTH = 10
"""Layers of a segment up to which that is tried."""
TECHNIQUES = ("order", "views", "overlap", "moves", "streaming")
"""What can be switched off by name: another order of the layers, tensors inside others, outputs that share memory with their
inputs, tensors that are moved for that, and layers row by row where no budget asks for them.
"""
_WORK = 40_000
"""Layers times plans that one technique may cost: a plan for each pair of moves, one for each view."""
SMALLEST = 0
"""As the budget: the smallest arena, at whatever number of segments."""
_EFFORT = 0.3
"""Of the planner, on each schedule: compiling is to take less than a second."""
_LITTLE_EFFORT = 0.05
"""The same on schedules that nobody has asked for."""
_TRIES = 6
"""Limits tried for one budget; the packing may miss the estimate by a few grid steps."""


@dataclass(frozen=True, slots=True)
class MemorySchedule:
    """A schedule and its memory. inside: buffers that lie in others, which the plan does not list.

    buffers, pairs: what was planned, and how close they may lie. vanished: layers that the schedule leaves out; hosts: by
    tensor (root) that lies in another one, that one and the offset in it.
    """

    stages: tuple[Stage, ...]
    plan: Plan
    inside: tuple[PinnedBuffer, ...]
    buffers: tuple[Buffer, ...]
    pairs: tuple[Distance, ...]
    vanished: tuple[LoweredNode, ...] = ()
    hosts: Mapping[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ScheduleSearch:
    """Plans of schedules of one graph. every: its nodes in order of execution; views: of those that vanish; costs: cycles by a
    node's index; enough: bytes below which no plan needs a search.
    """

    graph: Graph
    every: tuple[LoweredNode, ...]
    alignment: int
    without: frozenset[str] = frozenset()
    views: tuple[View, ...] = ()
    costs: Mapping[int, float] = field(default_factory=dict)
    enough: int = 0

    @property
    def hosts(self) -> dict[str, tuple[str, int]]:
        """The tensors that lie inside others."""
        return hosts_of(self.views)

    @property
    def nodes(self) -> tuple[LoweredNode, ...]:
        """The nodes that do not vanish."""
        gone = {view.node for view in self.views}
        return tuple(node for node in self.every if node.bound.node.index not in gone)

    @property
    def vanished(self) -> tuple[LoweredNode, ...]:
        """Those that do."""
        gone = {view.node for view in self.views}
        return tuple(node for node in self.every if node.bound.node.index in gone)

    def buffers(self, stages: Sequence[Stage]) -> tuple[tuple[Buffer, ...], tuple[PinnedBuffer, ...]]:
        """What is to be planned, and what lies inside that."""
        found = arena_buffers(self.graph, stages, self.alignment, self.hosts)
        outer, inner = pinned(found, pins_of(self.graph, self.nodes))
        return outer, (*inner, *parts_in(self.graph, outer, self.hosts))

    def pairs(self, stages: Sequence[Stage], buffers: Sequence[Buffer]) -> tuple[Distance, ...]:
        """Which buffers may share memory."""
        return () if "overlap" in self.without else distances(self.graph, stages, buffers, self.hosts)

    def planned(self, stages: tuple[Stage, ...], *, quick: bool = False, effort: float = _EFFORT) -> MemorySchedule:
        """The schedule with its plan; quick: without a search where first fit misses the bound."""
        buffers, inside = self.buffers(stages)
        pairs = self.pairs(stages, buffers)
        found = plan(buffers, pairs, alignment=self.alignment, effort=0.0 if quick else effort, enough=self.enough)
        return MemorySchedule(stages, found, inside, buffers, pairs, self.vanished, self.hosts)

    def movable(self, stages: Sequence[Stage]) -> list[tuple[int, str]]:
        """Tensors that trail one tensor and are trailed by the next, with the stage before which they could be moved."""
        buffers, _ = self.buffers(stages)
        pairs = self.pairs(stages, buffers)
        ends = {buffer.name: buffer.live.end for buffer in buffers}
        trailing = {pair.other for pair in pairs}
        kept = {self.graph.root(name).name for name in (*self.graph.outputs, *self.graph.inputs)}
        kept |= {host for host, _ in self.hosts.values()}
        # Only bytes: the words in which they are moved may alias no other type.
        bytes_alone = {tensor.name for tensor in self.graph.tensors if tensor.dtype.bytes == 1}
        found = [pair.buffer for pair in pairs if pair.buffer in trailing and pair.buffer not in kept]
        return [(ends[name] - 1, name) for name in found if name in bytes_alone]

    def moving(self, base: MemorySchedule, below: int | None = None) -> MemorySchedule:
        """The schedule with the fewest moves that make the arena smallest; itself where none does.

        below: bytes that the arena has to stay under for the search to be of use.
        """
        moves = self.movable(base.stages)
        at_bound = base.plan.proven and base.plan.held_bytes is None
        affordable = 0 < len(moves) ** 2 * len(self.nodes) <= _WORK
        if at_bound or not affordable or "moves" in self.without:
            return base
        allowed = MOVED_SHARE * sum(node.layer.macs for node in self.nodes)
        best = self.planned(with_moves(base.stages, moves), quick=True)
        limit = base.plan.arena_bytes if below is None else min(base.plan.arena_bytes, below)
        if best.plan.arena_bytes >= limit:  # all of them together help most
            return base

        def without(move: tuple[int, str]) -> MemorySchedule:
            return self.planned(with_moves(base.stages, [m for m in moves if m != move]), quick=True)

        # The largest first, those that are not needed go; one that is needed stays so when others are gone.
        for move in sorted(moves, key=lambda m: (-self.moved_bytes([m]), m)):
            found = without(move)
            if found.plan.arena_bytes <= best.plan.arena_bytes:
                moves, best = [m for m in moves if m != move], found
        while self.moved_bytes(moves) > allowed:  # the least needed one, as often as they are too many
            tried = [(without(move), move) for move in moves]
            best, gone = min(tried, key=lambda t: (t[0].plan.arena_bytes, -self.moved_bytes([t[1]]), t[1]))
            moves = [m for m in moves if m != gone]
        return best if best.plan.arena_bytes < base.plan.arena_bytes else base

    def moved_bytes(self, moves: Sequence[tuple[int, str]]) -> int:
        """Bytes of the tensors that are moved."""
        return sum(self.graph.tensor(name).size_bytes for _, name in moves)

    def best(self, stages: tuple[Stage, ...]) -> MemorySchedule:
        """The schedule, with moves where they help."""
        return self.moving(self.planned(stages))

    def choices(self, below: int | None = None) -> list[Choice]:
        """Every node alone and every segment, with the bytes that each needs with what else is alive.

        below: only segments that are not too long and have nodes in them that need more than so much.
        """
        stages = one_by_one(self.nodes)
        buffers, _ = self.buffers(stages)
        held = held_bytes(buffers, self.pairs(stages, buffers), self.alignment)
        found = [Choice(i, i + 1, held.get(i, 0), None) for i in range(len(self.nodes))]
        by_name = {buffer.name: buffer for buffer in buffers}
        outputs = {self.graph.root(name).name for name in self.graph.outputs}

        def grid(size: int) -> int:
            return -(-size // self.alignment) * self.alignment

        kernels = {n.bound.node.index: n.layer.kernel_name + n.layer.spec.suffix for n in self.nodes}
        single = alone(kernels)
        shared = {name for part, (host, _) in self.hosts.items() for name in (part, host)}
        if below is None:
            segments = segments_of(self.graph, self.nodes, shared=shared)
        else:
            full = {choice.first for choice in found if choice.held_bytes > below}
            segments = segments_of(self.graph, self.nodes, full, STREAMED_LENGTH, shared)
        for segment in segments:
            if {segment.source, segment.target} - {"", *by_name}:
                continue
            source, target = by_name.get(segment.source), by_name[segment.target]
            stage = Stage(segment.members(self.nodes), segment)
            dies = source is not None and source.live.end <= segment.end and segment.source not in outputs
            total = grid(target.size_bytes) + sum(map(grid, segment.line_bytes))
            total += sum(grid(size) for _, size in scratch_of(stage)) + (grid(source.size_bytes) if source else 0)
            if "overlap" not in self.without:
                total -= saved(near(stage, source.size_bytes if source else 0), self.alignment, source=dies)
            inside = {self.graph.root(t.name).name for n in stage.nodes for t in n.bound.outputs}
            inside |= {
                name for name, _ in scratch_of(replace(stage, segment=None))
            }  # in its place is that of the segment
            total += sum(
                grid(b.size_bytes)
                for b in buffers
                if b.live.first < segment.end and b.live.end > segment.first and b.name not in inside | {segment.source}
            )
            overhead = segment_overhead(stage.nodes, segment, self.costs, single)
            found.append(Choice(segment.first, segment.end, total, segment, overhead))
        return found

    def ordered(self) -> _ScheduleSearch:
        """With the order of layers that makes the arena smaller; itself, in the graph's order, where none is found."""
        stages = one_by_one(self.nodes)
        if "order" in self.without or any(node.layer.pins or node.layer.places for node in self.nodes):
            return self
        steps = [step_of(self.graph, stage, moved, {}) for stage, moved in placed(stages)]
        overlaps = {} if "overlap" in self.without else step_distances(self.graph, stages)
        outputs = [self.graph.root(name).name for name in self.graph.outputs if in_arena(self.graph, name)]
        sizes, inputs = {t.name: t.size_bytes for t in self.graph.tensors}, self.graph.written_inputs
        names, precedes = tuple(dict.fromkeys(outputs)), self.graph.state_order()
        order = best_order(OrderProblem(steps, sizes, inputs, names, precedes, overlaps, self.alignment))
        if order == tuple(range(len(steps))):
            return self
        other = replace(self, every=tuple(self.nodes[i] for i in order))
        return other if other.size() < self.size() else self

    def size(self) -> int:
        """Bytes of the arena for the layers one by one, by a quick plan."""
        return self.planned(one_by_one(self.nodes), quick=True).plan.arena_bytes

    def viewing(self) -> _ScheduleSearch:
        """With the layers gone that the arena does not need: all of them, or one after the other where that is too many."""
        views = () if "views" in self.without else views_of(self.graph, self.every)
        if not views:
            return self
        best, limit = self, self.size()
        single = views if len(views) * len(self.every) <= _WORK else ()
        for tried in (views, *((view,) for view in single)):
            other = replace(self, views=tuple(dict.fromkeys((*best.views, *tried))))
            if (size := other.size()) <= limit:
                best, limit = other, size
            if len(best.views) == len(views):
                break
        return best

    def streamed(self, budget: int) -> MemorySchedule:
        """The smallest number of segments that meets the budget; the smallest arena found where none does."""
        choices, count = self.choices(), len(self.nodes)
        least = least_held(choices, count)
        limits = sorted({c.held_bytes for c in choices if c.held_bytes >= least})
        # The packing may need more than the estimate, or less. Under a budget then ask for less, as long as that gives other
        # segments, and after that for more; for the smallest arena look at a few limits from the least on.
        below = [limit for limit in reversed(limits) if limit <= budget]
        best: MemorySchedule | None = None
        seen: set[tuple[Segment, ...]] = set()
        for tried in (below, [limit for limit in limits if limit > budget]):
            most = len(seen) + _TRIES
            for limit in tried:
                if len(seen) >= most or (best is not None and best.plan.arena_bytes <= budget):
                    break
                segments = fewest(choices, count, limit)
                if segments is None or segments in seen:
                    continue
                seen.add(segments)
                found = self.planned(with_segments(self.nodes, segments), effort=_LITTLE_EFFORT)
                if best is None or found.plan.arena_bytes < best.plan.arena_bytes:
                    best = found
        assert best is not None, "the least limit leads through every graph"
        if best.plan.arena_bytes > budget:
            best = self.planned(best.stages)
        return best if best.plan.arena_bytes <= budget else self.moving(best)

    def nearly_free(self, whole: MemorySchedule) -> MemorySchedule:
        """Layers row by row where that costs next to nothing and saves much against `whole`, otherwise that."""
        if "streaming" in self.without or not self.costs or len(self.nodes) > STREAMED_LAYERS:
            return whole
        share, gain = (PULLED_SHARE, PULLED_GAIN) if self.graph.pulled else (STREAMED_SHARE, STREAMED_GAIN)
        enough = int((1 - gain) * whole.plan.arena_bytes)
        choices, count = self.choices(enough), len(self.nodes)
        allowed = share * sum(self.costs.values())
        least = least_held(choices, count)
        limits = sorted({c.held_bytes for c in choices if least <= c.held_bytes <= enough})
        seen: set[tuple[Segment, ...]] = set()
        for limit in limits:
            way = cheapest(choices, count, limit)
            if way is None or way[0] > allowed or way[1] in seen:
                continue
            seen.add(way[1])
            found = self.planned(with_segments(self.nodes, way[1]), effort=_LITTLE_EFFORT)
            if found.plan.arena_bytes <= enough:
                return found
            if len(seen) >= _TRIES:
                break
        return whole


def best_schedule(
    graph: Graph,
    nodes: tuple[LoweredNode, ...],
    alignment: int,
    budget: int | None,
    without: frozenset[str] = frozenset(),
    costs: Mapping[int, float] = MappingProxyType({}),
    *,
    rough: bool = False,
) -> MemorySchedule:
    """The schedule of lowered nodes. budget: bytes of arena that row streaming is to meet, SMALLEST for as few as possible,
    None where it is to be nearly free. The result may miss the budget: then it is the smallest found. without: of TECHNIQUES.
    costs: cycles of the nodes run whole, by index; without them there is no streaming but for a budget. rough: an arena that
    meets the budget is not searched for a smaller one.
    """
    enough = budget if rough and budget else 0
    planner = _ScheduleSearch(graph, nodes, alignment, without, costs=costs, enough=enough).ordered().viewing()
    whole = planner.planned(one_by_one(planner.nodes))
    if budget is None or not nodes:
        whole = planner.moving(whole)
        return planner.nearly_free(whole) if nodes else whole
    if whole.plan.arena_bytes <= budget:
        return whole
    if budget != SMALLEST:
        whole = planner.moving(whole)
        if whole.plan.arena_bytes <= budget:
            return whole
    rows = planner.streamed(budget)
    if budget == SMALLEST:
        whole = planner.moving(whole, rows.plan.arena_bytes)
    return rows if rows.plan.arena_bytes < whole.plan.arena_bytes else whole
