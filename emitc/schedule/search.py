"""The schedule with the smallest arena, or with the cheapest one under a budget.

1. Layers one by one, in the graph's order or in the one in which least has to be held at once.
2. Layers that only copy vanish where the arena does not grow by it: their tensors are laid inside one another.
3. Where the plan misses its bound, because tensors that trail their inputs run out of room below, some are moved up again:
   the fewest moves that give the smallest arena, and no more bytes than a share of the multiply-accumulates.
4. Under a budget that this does not meet, the fewest segments of layers are made row by row, of these the fewest layers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice
from types import MappingProxyType

from emitc.ir import Graph
from emitc.planner import Buffer, Distance, OrderProblem, Plan, best_order, first_fit_bytes, held_bytes, plan
from emitc.planner.buffers import round_up
from emitc.records import dataclass, field, replace
from emitc.schedule.buffers import PinnedBuffer, buffers_to_plan, step_distances, step_of
from emitc.schedule.row_overlap import near, saved
from emitc.schedule.row_streaming import (
    Choice,
    Path,
    best_path,
    number_of_segments,
    overhead_of_segments,
    possible_limits,
    segment_overhead,
    segments_of,
    sole_users,
)
from emitc.schedule.stages import (
    ElidedCopy,
    LoweredNode,
    Segment,
    Stage,
    elidable_copies,
    hosts_of,
    in_arena,
    one_by_one,
    placed,
    scratch_name,
    scratch_of,
    with_moves,
    with_segments,
)


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


MOVED_SHARE = 0.025
"""Bytes that may be moved for each multiply-accumulate: a move costs about half an instruction per byte, a
multiply-accumulate at least one, so moves cost little more than a hundredth of a run.
"""
STREAMED_SHARE = 0.015
"""Cycles that layers row by row may cost by default, as a share of all: an estimate, which is to stay below 2 % in truth."""
STREAMED_GAIN = 0.1
"""Of the arena: what they have to save."""
STREAMED_INPUT_SHARE = 0.12
STREAMED_INPUT_GAIN = 0.02
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
_FEW = 32
"""Layers up to which the first choice of segments may be taken for the smallest without a search: plans are cheap then."""
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


@dataclass(frozen=True)
class _ScheduleSearch:
    """Plans of schedules of one graph. every: its nodes in order of execution; elided: the copies among them that vanish; costs:
    cycles by a node's index; target_bytes: an arena that is small enough, so that none below is searched for.
    """

    graph: Graph
    every: tuple[LoweredNode, ...]
    alignment: int
    without: frozenset[str] = frozenset()
    elided: tuple[ElidedCopy, ...] = ()
    costs: Mapping[int, float] = field(default_factory=dict)
    target_bytes: int = 0

    @cached_property
    def hosts(self) -> dict[str, tuple[str, int]]:
        return hosts_of(self.elided)

    @cached_property
    def nodes(self) -> tuple[LoweredNode, ...]:
        """The nodes that do not vanish."""
        gone = {copy.node for copy in self.elided}
        return tuple(node for node in self.every if node.bound.node.index not in gone)

    def buffers(
        self, stages: Sequence[Stage]
    ) -> tuple[tuple[Buffer, ...], tuple[PinnedBuffer, ...], tuple[Distance, ...]]:
        """The buffers to plan, the buffers that lie inside them, and which of the former may share memory."""
        overlaps = "overlap" not in self.without
        return buffers_to_plan(self.graph, stages, self.nodes, self.hosts, self.alignment, overlaps=overlaps)

    def planned(
        self, stages: tuple[Stage, ...], *, effort: float = _EFFORT, useful_bytes: int | None = None
    ) -> MemorySchedule:
        """The schedule with its plan. effort: 0 for no search where first fit misses the bound. useful_bytes: as in `plan`."""
        buffers, inside, pairs = self.buffers(stages)
        result = plan(
            buffers,
            pairs,
            alignment=self.alignment,
            effort=effort,
            target_bytes=self.target_bytes,
            useful_bytes=useful_bytes,
        )
        gone = {copy.node for copy in self.elided}
        vanished = tuple(node for node in self.every if node.bound.node.index in gone)
        return MemorySchedule(stages, result, inside, buffers, pairs, vanished, self.hosts)

    def movable(self, stages: Sequence[Stage]) -> list[tuple[int, str]]:
        """Tensors that trail one tensor and are trailed by the next, with the stage before which they could be moved."""
        buffers, _, pairs = self.buffers(stages)
        ends = {buffer.name: buffer.live.end for buffer in buffers}
        trailing = {pair.other for pair in pairs}
        kept = {self.graph.root(name).name for name in (*self.graph.outputs, *self.graph.inputs)}
        kept |= {host for host, _ in self.hosts.values()}
        # Only bytes: the words in which they are moved may alias no other type.
        bytes_alone = {tensor.name for tensor in self.graph.tensors if tensor.dtype.bytes == 1}
        names = [pair.buffer for pair in pairs if pair.buffer in trailing and pair.buffer not in kept]
        return [(ends[name] - 1, name) for name in names if name in bytes_alone]

    def moving(self, base: MemorySchedule, upper_bytes: int | None = None) -> MemorySchedule:
        """The schedule with the fewest moves that make the arena smallest; the schedule itself where no move helps.

        upper_bytes: what the arena has to stay under for the search to be of use.
        """
        moves = self.movable(base.stages)
        at_bound = base.plan.proven and base.plan.held_bytes is None
        affordable = 0 < len(moves) ** 2 * len(self.nodes) <= _WORK
        if at_bound or not affordable or "moves" in self.without:
            return base
        allowed = MOVED_SHARE * sum(node.layer.macs for node in self.nodes)
        best = self.planned(with_moves(base.stages, moves), effort=0.0)
        limit = min(base.plan.arena_bytes, base.plan.arena_bytes if upper_bytes is None else upper_bytes)
        if best.plan.arena_bytes >= limit:  # all of them together help most
            return base

        def without(move: tuple[int, str]) -> MemorySchedule:
            return self.planned(with_moves(base.stages, [m for m in moves if m != move]), effort=0.0)

        # Moves that are not needed are dropped, the largest first. A needed move stays needed after others are dropped.
        for move in sorted(moves, key=lambda m: (-self.moved_bytes([m]), m)):
            candidate = without(move)
            if candidate.plan.arena_bytes <= best.plan.arena_bytes:
                moves, best = [m for m in moves if m != move], candidate
        while self.moved_bytes(moves) > allowed:  # drops the least needed move until few enough bytes move
            tried = [(without(move), move) for move in moves]
            best, gone = min(tried, key=lambda t: (t[0].plan.arena_bytes, -self.moved_bytes([t[1]]), t[1]))
            moves = [m for m in moves if m != gone]
        return best if best.plan.arena_bytes < base.plan.arena_bytes else base

    def moved_bytes(self, moves: Sequence[tuple[int, str]]) -> int:
        return sum(self.graph.tensor(name).size_bytes for _, name in moves)

    def choices(self, target_bytes: int | None = None) -> list[Choice]:
        """Every node by itself and every segment, with the bytes that each needs with what else is alive, by their first nodes.

        target_bytes: only segments that are not too long and have nodes in them that need more than so much.
        """
        nodes = self.nodes
        stages = one_by_one(nodes)
        buffers, _, pairs = self.buffers(stages)
        bytes_at = held_bytes(buffers, pairs, self.alignment)
        choices = [Choice(i, i + 1, bytes_at.get(i, 0), None) for i in range(len(nodes))]
        shared = {name for part, (host, _) in self.hosts.items() for name in (part, host)}
        if target_bytes is None:
            segments = segments_of(self.graph, nodes, shared=shared)
        else:
            full = {choice.first for choice in choices if choice.held_bytes > target_bytes}
            segments = segments_of(self.graph, nodes, full, STREAMED_LENGTH, shared)
        sole = sole_users({n.bound.node.index: n.layer.kernel_name + n.layer.spec.suffix for n in nodes})
        held = HeldBytes.of(buffers, self.alignment)
        names = {"", *held.by_name}
        for segment in segments:
            if {segment.source, segment.target} <= names:
                members = segment.members(nodes)
                overhead = segment_overhead(members, segment, self.costs, sole)
                total = self.bytes_of(Stage(members, segment), segment, held)
                choices.append(Choice(segment.first, segment.end, total, segment, overhead))
        return sorted(choices, key=lambda choice: (choice.first, choice.end, choice.held_bytes))

    def bytes_of(self, stage: Stage, segment: Segment, held: HeldBytes) -> int:
        """The bytes that a segment, which is the stage's, needs with what else is alive. held: of the layers one by one."""
        source = held.by_name.get(segment.source)
        source_bytes = source.size_bytes if source else 0
        outputs = {self.graph.root(name).name for name in self.graph.outputs}
        dies = source is not None and source.live.end <= segment.end and segment.source not in outputs
        own = (held.by_name[segment.target].size_bytes, *segment.line_bytes, source_bytes)
        total = sum(round_up(size, self.alignment) for size in (*own, *(size for _, size in scratch_of(stage))))
        if "overlap" not in self.without:
            total -= saved(near(stage, source_bytes), self.alignment, source=dies)
        inside = {self.graph.root(t.name).name for n in stage.nodes for t in n.bound.outputs} | {segment.source}
        # The segment's own scratch replaces that of its layers.
        inside |= {scratch_name(node, scratch.role) for node in stage.nodes for scratch in node.layer.scratch}
        return total + held.between(segment.first, segment.end, inside)

    def ordered(self) -> _ScheduleSearch:
        """The schedule in an order of layers that makes the arena smaller; else itself, in the graph's order."""
        stages = one_by_one(self.nodes)
        if "order" in self.without or any(node.layer.pins or node.layer.places for node in self.nodes):
            return self
        steps = [step_of(self.graph, stage, moved, {}) for stage, moved in placed(stages)]
        overlaps = {} if "overlap" in self.without else step_distances(self.graph, stages)
        outputs = [self.graph.root(name).name for name in self.graph.outputs if in_arena(self.graph, name)]
        sizes, inputs = self.graph.sizes, self.graph.written_inputs
        names, precedes = tuple(dict.fromkeys(outputs)), self.graph.state_order()
        order = best_order(OrderProblem(steps, sizes, inputs, names, precedes, overlaps, self.alignment))
        if order == tuple(range(len(steps))):
            return self
        other = replace(self, every=tuple(self.nodes[i] for i in order))
        return self if other.size_within(self.size - 1) is None else other

    @cached_property
    def size(self) -> int:
        """Bytes of the arena for the layers one by one, by a quick plan."""
        size = self.size_within(None)
        assert size is not None, "nothing is above no limit"
        return size

    def size_within(self, limit: int | None) -> int | None:
        """`size`, or None where it is above `limit` bytes."""
        buffers, _, pairs = self.buffers(one_by_one(self.nodes))
        return first_fit_bytes(buffers, pairs, self.alignment, limit)

    def eliding(self) -> _ScheduleSearch:
        """The schedule without the copies that the arena does not need: without all, or else half by half.

        Where a half makes the arena larger, its halves are tried, the earlier one first, down to single copies.
        """
        copies = () if "views" in self.without else elidable_copies(self.graph, self.every)
        if not copies:
            return self
        best, limit = self, self.size
        untried = [copies]
        while untried:
            tried = untried.pop()
            other = replace(self, elided=(*best.elided, *tried))
            if (size := other.size_within(limit)) is not None:
                best, limit = other, size
            elif len(tried) > 1 and len(copies) * len(self.every) <= _WORK:
                half = len(tried) // 2
                untried += [tried[half:], tried[:half]]
        return best

    def distinct(self, paths: Iterable[Path | None], seen: set[tuple[Segment, ...]]) -> Iterator[tuple[Stage, ...]]:
        """The stages with the segments of paths: those of the first _TRIES paths that have other segments than those seen."""
        new = (path[1] for path in paths if path is not None and path[1] not in seen)
        for segments in islice(new, _TRIES):
            seen.add(segments)
            yield with_segments(self.nodes, segments)

    def streamed(self, budget: int) -> MemorySchedule:
        """The smallest number of segments that meets the budget; the smallest arena found where none does."""
        choices, count = self.choices(), len(self.nodes)
        limits, seen = possible_limits(choices, count), set[tuple[Segment, ...]]()
        # The packing may need more than the estimate, or less. Under a budget then ask for less, as long as that gives other
        # segments, and after that for more; for the smallest arena look at a few limits from the least on.
        below, above = [n for n in reversed(limits) if n <= budget], [n for n in limits if n > budget]
        best: MemorySchedule | None = None
        for tried in (below, above):
            rows: Iterable[tuple[Stage, ...]] = self.distinct(
                (best_path(choices, count, n, number_of_segments) for n in tried), seen
            )
            if budget == SMALLEST and count <= _FEW and (every := tuple(rows)):
                if self.first_is_smallest(every):
                    return self.moving(self.planned(every[0]))
                rows = every
            for stages in rows:
                less = None if best is None else best.plan.arena_bytes - 1
                candidate = self.planned(stages, effort=_LITTLE_EFFORT, useful_bytes=less)
                if best is None or candidate.plan.arena_bytes < best.plan.arena_bytes:
                    best = candidate
                if best.plan.arena_bytes <= budget:
                    return best
        assert best is not None, "the least limit leads through every graph"
        best = self.planned(best.stages)
        return best if best.plan.arena_bytes <= budget else self.moving(best)

    def first_is_smallest(self, rows: Sequence[tuple[Stage, ...]]) -> bool:
        """Whether no other one needs less than the first one does by first fit alone. Its own search is not made for that."""
        least, *others = (self.planned(stages, effort=0.0).plan.arena_bytes for stages in rows)
        if min(others, default=least) < least:
            return False
        searched = (self.planned(stages, effort=_LITTLE_EFFORT, useful_bytes=least - 1) for stages in rows[1:])
        return all(other.plan.arena_bytes >= least for other in searched)

    def nearly_free(self, whole: MemorySchedule) -> MemorySchedule:
        """Layers row by row where that costs next to nothing and saves much against `whole`, otherwise that."""
        if "streaming" in self.without or not self.costs or len(self.nodes) > STREAMED_LAYERS:
            return whole
        by_input = bool(self.graph.streamed_inputs)
        share, gain = (STREAMED_INPUT_SHARE, STREAMED_INPUT_GAIN) if by_input else (STREAMED_SHARE, STREAMED_GAIN)
        target_bytes = int((1 - gain) * whole.plan.arena_bytes)
        choices, allowed = self.choices(target_bytes), share * sum(self.costs.values())
        limits = (limit for limit in possible_limits(choices, len(self.nodes)) if limit <= target_bytes)
        paths = (best_path(choices, len(self.nodes), limit, overhead_of_segments) for limit in limits)
        rows = self.distinct((path for path in paths if path is not None and path[0][0] <= allowed), set())
        candidates = (self.planned(stages, effort=_LITTLE_EFFORT, useful_bytes=target_bytes) for stages in rows)
        return next((planned for planned in candidates if planned.plan.arena_bytes <= target_bytes), whole)


def best_schedule(
    graph: Graph,
    nodes: tuple[LoweredNode, ...],
    alignment: int,
    budget: int | None,
    without: frozenset[str] = frozenset(),
    costs: Mapping[int, float] = MappingProxyType({}),
    *,
    accept_first_fit: bool = False,
) -> MemorySchedule:
    """The schedule of lowered nodes. budget: bytes of arena that row streaming is to meet, SMALLEST for as few as possible,
    None where it is to be nearly free. The result may miss the budget: then it is the smallest found. without: of TECHNIQUES.
    costs: cycles of the nodes run whole, by index; without them there is no streaming except for a budget. accept_first_fit: an
    arena that meets the budget is not searched for a smaller one.
    """
    target_bytes = budget if accept_first_fit and budget else 0
    search = _ScheduleSearch(graph, nodes, alignment, without, costs=costs, target_bytes=target_bytes)
    search = search.ordered().eliding()
    whole = search.planned(one_by_one(search.nodes))
    if budget is None or not nodes:
        whole = search.moving(whole)
        return search.nearly_free(whole) if nodes else whole
    if whole.plan.arena_bytes <= budget:
        return whole
    if budget != SMALLEST:
        whole = search.moving(whole)
        if whole.plan.arena_bytes <= budget:
            return whole
    rows = search.streamed(budget)
    if budget == SMALLEST:
        whole = search.moving(whole, rows.plan.arena_bytes)
    return rows if rows.plan.arena_bytes < whole.plan.arena_bytes else whole
