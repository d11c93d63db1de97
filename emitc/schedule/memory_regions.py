"""Which region of memory holds which buffer of a schedule: what a run reads and writes of each, where the user wants it.

An estimate ranks the buffers, no measurement: every buffer is written once and read once by each reader, and by layers with
multiply-accumulates as often as the portable kernels load an element. Caches are not known here; the costs per byte are the
user's.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from emitc.errors import CannotCompile, EmitcError, Where, shown
from emitc.ir import Graph, Tensor
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.planner import Plan, plan
from emitc.planner.buffers import round_up
from emitc.planner.region_assignment import Assignment, Region, RegionProblem, assign
from emitc.program.c_names import is_model_name
from emitc.program.rows import ROLE, loads_of
from emitc.records import dataclass, field, replace
from emitc.schedule.buffers import Hosts
from emitc.schedule.search import MemorySchedule, best_schedule
from emitc.schedule.slots import Slots
from emitc.schedule.stages import (
    OUTSIDE,
    LoweredNode,
    Stage,
    buffer_name,
    in_arena,
    lines_name,
    place_of,
    placed,
    scratch_name,
    shared_scratch_name,
    staged_name,
)
from emitc.schedule.weight_staging import Candidate, Overlap, candidates, with_copies

WEIGHTS = "weights"
"""Instead of a tensor's name: all constants."""
_TAKEN = ("weights", "align", "bytes")
"""Words that stand in the same places of macros and options."""
_FILTERS_AT_ONCE = 4
"""Filters that the portable kernels compute with one pass over a window; a depthwise one has one filter to a channel."""


def check_regions(regions: Sequence[Region], places: Sequence[tuple[str, str]], stage_weights: str) -> None:
    """Raises EmitcError for names that are no C names, for two that give one C name, and for places without regions."""
    if (places or stage_weights) and not regions:
        option = "--place {}={}".format(*places[0]) if places else f"--stage-weights {stage_weights}"
        why = "it says which of several regions holds a tensor"
        raise EmitcError("there are no regions", Where(option=option), why, "name them with --regions NAME=BYTES,...")
    seen: dict[str, str] = {}
    for region in regions:
        lower = region.name.lower()
        if not is_model_name(lower) or lower in _TAKEN or lower in seen or lower.endswith("_bytes"):
            what, hint = f"{shown(region.name)} is no name for a region", "use a word such as DTCM"
            why = "it becomes part of names in C"
            if lower in seen:
                what, hint = f"two regions are named {shown(region.name)}", "rename one of them"
                why = f"{seen[lower]} and {region.name} are the same in C"
            raise EmitcError(what, Where(option="--regions"), why, hint)
        seen[lower] = region.name


@dataclass(frozen=True, slots=True)
class Regions:
    """What the user asks for. places: where some tensors are to lie, as pairs of a tensor's name and a region's.

    stage_weights: the region that weights are copied to, in any case of letters; "" for none. load_ahead: cycles in which a DMA
    copies a byte while other layers run, 0 where the core copies. cycles: of each layer by its index, for that.
    """

    regions: tuple[Region, ...]
    places: tuple[tuple[str, str], ...] = ()
    stage_weights: str = ""
    load_ahead: float = 0.0
    cycles: Mapping[int, float] = field(default_factory=dict)

    @property
    def weights(self) -> str:
        """The region that constants are to lie in, "" for none."""
        return self._named(next((place for what, place in self.places if what == WEIGHTS), ""))

    @property
    def staged(self) -> str:
        """The region that weights are copied to, "" for none."""
        return self._named(self.stage_weights)

    def _named(self, name: str) -> str:
        return next((region.name for region in self.regions if region.name.lower() == name.lower()), name)

    @property
    def home(self) -> Region:
        """Where constants lie: their region, or the only one without room for an arena.

        Without such a region a byte of them costs twice that of the dearest one.
        """
        named = [region for region in self.regions if region.name == self.weights]
        empty = [region for region in self.regions if region.size_bytes == 0]
        if named or len(empty) == 1:
            return (named or empty)[0]
        return Region("", 0, 2 * max(region.cost for region in self.regions))


@dataclass(frozen=True, slots=True)
class RegionSchedule:
    """A schedule whose buffers are divided among regions, with the bytes that a run reads and writes of each buffer.

    waits: what weights cost beyond loads from fast memory, with their copies; 0 where none are to be copied.
    """

    schedule: MemorySchedule
    assignment: Assignment
    traffic: Mapping[str, int]
    waits: float = 0.0

    def whole(self) -> Plan:
        """All arenas one after another as one plan. Its bound and peak hold for this assignment to regions."""
        parts = [part.plan for part in self.assignment.regions]
        starts = self.starts()
        where = {
            p.name: replace(p, offset_bytes=p.offset_bytes + starts[part.region.name])
            for part in self.assignment.regions
            for p in part.plan.placements
        }
        largest = max(parts, key=lambda one: one.arena_bytes)
        alive = [
            p for p in where.values() if p.live.first <= largest.peak_step < p.live.end
        ]  # in every region, as the peak of one arena names all that is alive
        return Plan(
            arena_bytes=sum(one.arena_bytes for one in parts),
            alignment=max(one.alignment for one in parts),
            placements=tuple(where[buffer.name] for buffer in self.schedule.buffers),
            lower_bound_bytes=sum(one.lower_bound_bytes for one in parts),
            proven=all(one.proven for one in parts),
            peak_step=largest.peak_step,
            peak_buffers=tuple(p.name for p in sorted(alive, key=lambda p: (-p.size_bytes, p.name))),
        )

    def region_of(self) -> dict[str, str]:
        """The region of every buffer by its name, those that lie inside others included."""
        names = {p.name: part.region.name for part in self.assignment.regions for p in part.plan.placements}
        return names | {pin.buffer.name: names[pin.inside] for pin in self.schedule.inside}

    def starts(self) -> dict[str, int]:
        """Where each region's arena starts when the arenas lie one after another."""
        parts = self.assignment.regions
        starts = accumulate((part.plan.arena_bytes for part in parts), initial=0)
        return {part.region.name: start for part, start in zip(parts, starts, strict=False)}


def _reads(node: LoweredNode, position: int, size_bytes: int) -> int:
    """Bytes that a layer loads of its operand at `position`."""
    if position or not node.layer.macs:
        return size_bytes
    loads = node.layer.macs if isinstance(node.bound.node.op, DepthwiseConv2D) else node.layer.macs // _FILTERS_AT_ONCE
    return max(size_bytes, loads * node.inputs[0].dtype.bytes)


def traffic_of(graph: Graph, schedule: MemorySchedule) -> dict[str, int]:
    """Bytes read and written of each buffer of the plan in one run, an estimate; by name.

    Inputs are written by the caller, outputs read by it. What lies inside another buffer counts for that one.
    """
    traffic = {buffer.name: 0 for buffer in schedule.buffers}
    outer = {pin.buffer.name: pin.inside for pin in schedule.inside}
    touched = [
        (graph.root(name).name, graph.tensor(name).size_bytes) for name in (*graph.written_inputs, *graph.outputs)
    ]
    for stage, moved in placed(schedule.stages):
        touched += _touched(graph, schedule.hosts, stage, moved)
    for buffer, size_bytes in touched:
        buffer = outer.get(buffer, buffer)
        if buffer in traffic:
            traffic[buffer] += size_bytes
    return traffic


def _touched(graph: Graph, hosts: Hosts, stage: Stage, moved: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The buffers that a stage reads or writes, each time with the bytes."""
    segment = stage.segment

    def whole(tensor: Tensor) -> str:
        root, _ = place_of(hosts, graph.root(tensor.name).name)
        return buffer_name(root, moved.get(root, 0))

    def made_by(position: int) -> str:
        """The buffer that holds the rows that a layer of the segment makes."""
        assert segment is not None
        place = segment.in_place_of[position]
        last = place == len(stage.nodes) - 1
        return segment.target if last else lines_name(stage.nodes[place])

    if stage.moved:
        count = moved.get(stage.moved, 0)
        for number in (count, count + 1):
            yield buffer_name(stage.moved, number), graph.tensor(stage.moved).size_bytes
    for number, node in enumerate(stage.nodes):
        for position, tensor in enumerate(node.inputs):
            if in_arena(graph, tensor.name):
                source = OUTSIDE if segment is None else segment.layers[number].reads[position].source
                buffer = whole(tensor) if source == OUTSIDE else made_by(source)
                yield buffer, _reads(node, position, tensor.size_bytes)
        for tensor in node.bound.outputs:
            yield whole(tensor) if segment is None else made_by(number), tensor.size_bytes
        for role in node.staged:
            copied = next(table.size_bytes for table in node.layer.tables if table.role == role)
            yield staged_name(node, role), copied + loads_of(node.layer)
        for i, scratch in enumerate(node.layer.scratch):
            name = scratch_name(node, scratch.role) if segment is None else shared_scratch_name(stage.nodes[0], i)
            yield name, 2 * scratch.size_bytes


def assign_regions(
    graph: Graph,
    nodes: tuple[LoweredNode, ...],
    alignment: int,
    budget: int | None,
    without: frozenset[str],
    wanted: Regions,
    constant_bytes: int,
) -> RegionSchedule:
    """The schedule and the division of its buffers that costs least.

    nodes, alignment, budget, without: as `best_schedule` has them. constant_bytes: taken from the region that holds constants.
    Tensors are moved only where that is cheaper.
    Raises EmitcError for places that name no tensor or no region, CannotCompile where the regions are too small.
    """
    regions = _without_constants(wanted, constant_bytes)
    techniques = (without | {"moves"}, without) if budget is None else (without,)
    choices = [best_schedule(graph, nodes, alignment, budget, left_out) for left_out in techniques]
    best: RegionSchedule | None = None
    for number, choice in enumerate(choices):
        if any(choice.stages == other.stages for other in choices[:number]):
            continue
        made = _assigned(graph, choice, wanted, regions, alignment)
        if made is not None and (best is None or made.assignment.cost < best.assignment.cost):
            best = made
    if best is None:
        raise _too_small(wanted, choices[-1], budget, constant_bytes)
    return _with_copies(graph, best, regions, wanted, alignment) if wanted.staged else best


def _assigned(
    graph: Graph, schedule: MemorySchedule, wanted: Regions, regions: Sequence[Region], alignment: int,
    copied: Sequence[Candidate] = (),
) -> RegionSchedule | None:  # fmt: skip
    """The schedule with its buffers divided among regions, None where they do not fit. copied: layers with copies of weights."""
    pins = _pins(graph, schedule, wanted) | {staged_name(c.node, ROLE): wanted.staged for c in copied}
    problem = RegionProblem(schedule.buffers, schedule.pairs, traffic_of(graph, schedule), regions, pins, alignment)
    made = assign(problem, lambda buffers, distances, grid: plan(buffers, distances, alignment=grid))
    return None if made is None else RegionSchedule(schedule, made, problem.traffic)


def _with_copies(
    graph: Graph, best: RegionSchedule, regions: Sequence[Region], wanted: Regions, alignment: int
) -> RegionSchedule:
    """The schedule with the copies of weights that make the run cheapest: all that pay, or as many as fit."""
    region = next(region for region in regions if region.name == wanted.staged)
    if not region.size_bytes:
        what = f"there is no room for copies in {region.name}"
        where = Where(option=f"--stage-weights {region.name}")
        hint = "name one that weights are to be copied to, not the one that they lie in"
        raise EmitcError(what, where, "the region has no bytes for an arena", hint)
    home = wanted.home.cost
    (plan_there,) = (part.plan for part in best.assignment.regions if part.region.name == region.name)

    def left(candidate: Candidate) -> int:
        alive = [p for p in plan_there.placements if p.live.first <= candidate.position < p.live.end]
        return region.size_bytes - sum(round_up(p.size_bytes, alignment) for p in alive)

    def gain(candidate: Candidate) -> float:
        return candidate.gain(home, region.cost, wanted.home.cache_bytes)

    every = candidates(best.schedule)
    able = [c for c in every if gain(c) > 0 and c.size_bytes <= region.size_bytes]
    if wanted.load_ahead:
        return _with_transfers(graph, best, regions, wanted, alignment)
    able.sort(key=lambda c: (-gain(c) / c.size_bytes, c.position))
    fitting: list[Candidate] = []
    for c in able:
        with_it = [c.size_bytes, *(other.size_bytes for other in fitting if other.position == c.position)]
        if sum(round_up(size, alignment) for size in with_it) <= left(c):
            fitting.append(c)
    loads = sum(c.loads_bytes for c in able)
    waits = sum(c.waits(home, region.cost, wanted.home.cache_bytes) for c in every)
    cheapest, least = replace(best, waits=waits), best.assignment.cost + home * loads
    for chosen in (able, *(fitting[: len(fitting) >> n] for n in range(len(fitting).bit_length()))):
        made = _assigned(graph, with_copies(best.schedule, chosen), wanted, regions, alignment, chosen)
        if made is None:
            continue
        cost = made.assignment.cost + home * (loads + sum(c.size_bytes - c.loads_bytes for c in chosen))
        if cost < least:
            cheapest, least = replace(made, waits=waits - sum(map(gain, chosen))), cost
        if chosen is not able:
            break
    return cheapest


def _with_transfers(
    graph: Graph, best: RegionSchedule, regions: Sequence[Region], wanted: Regions, alignment: int
) -> RegionSchedule:
    """The schedule with the transfers of weights that make the run cheapest, of those that fit into the region."""
    region = next(region for region in regions if region.name == wanted.staged)
    home, cache = wanted.home.cost, wanted.home.cache_bytes

    def saved(candidate: Candidate) -> float:
        return candidate.waits(home, region.cost, cache)

    every = candidates(best.schedule)
    able = [c for c in every if saved(c) > 0 and c.size_bytes <= region.size_bytes]
    # Without those of relocated tensors.
    stages = best.schedule.stages
    cycles = [sum(wanted.cycles.get(node.bound.node.index, 0.0) for node in stage.nodes) for stage in stages]
    waits, loads = sum(map(saved, every)), sum(c.loads_bytes for c in able)
    cheapest, least = replace(best, waits=waits), best.assignment.cost + home * loads
    for offers in Overlap(cycles, wanted.load_ahead, saved, every).offers(able):
        for made in offers:
            schedule = with_copies(best.schedule, made.chosen, made.starts)
            assigned = _assigned(graph, schedule, wanted, regions, alignment, made.chosen)
            if assigned is None:
                continue
            # The DMA writes the copies: the core only waits for it.
            written = region.cost * sum(c.size_bytes for c in made.chosen)
            read = home * (loads - sum(c.loads_bytes for c in made.chosen))
            cost = assigned.assignment.cost - written + read + made.waits
            if cost < least:
                cheapest, least = replace(assigned, waits=waits - made.gain), cost
            break
        if cheapest.schedule is not best.schedule and not made.waits:
            break
    return cheapest


def _without_constants(wanted: Regions, constant_bytes: int) -> tuple[Region, ...]:
    """The regions without the bytes that constants take: the rest is free for arenas."""
    remaining = []
    for region in wanted.regions:
        if region.name != wanted.weights or not region.size_bytes:
            remaining.append(region)
            continue
        left = region.size_bytes - constant_bytes
        if left < 0:
            where = Where(option=f"--place {WEIGHTS}={region.name}")
            why = f"they have {constant_bytes} bytes, the region has {region.size_bytes}"
            hint = "leave them where the linker puts them, or choose a larger region"
            raise CannotCompile(f"the constants do not fit {region.name}", where, why, hint)
        remaining.append(replace(region, size_bytes=left))
    return tuple(remaining)


def _too_small(wanted: Regions, choice: MemorySchedule, budget: int | None, constant_bytes: int) -> CannotCompile:
    hint = "--ram-budget min runs layers row by row; or larger regions" if budget is None else "larger regions"
    sizes = ", ".join(f"{region.name} {region.size_bytes}" for region in wanted.regions)
    pinned = any(what != WEIGHTS for what, _ in wanted.places)
    largest = max(choice.buffers, key=lambda buffer: buffer.size_bytes)
    taken = f", and {constant_bytes} bytes of constants lie in {wanted.weights}" if wanted.weights else ""
    return CannotCompile(
        "the tensors do not fit the regions",
        Where(option="--regions"),
        f"in one region the arena would have {choice.plan.arena_bytes} bytes, and its largest buffer has {largest.size_bytes};"
        f" the regions have {sizes}{taken}",
        "take back some --place" if pinned else hint,
    )


def _require_region(name: str, wanted: Regions, option: str) -> None:
    """Raises EmitcError where no region has the name."""
    if name.lower() not in {region.name.lower() for region in wanted.regions}:
        why = f"the regions are {', '.join(region.name for region in wanted.regions)}"
        raise EmitcError(f"there is no region {shown(name)}", Where(option=option), why, "name one of them")


def _pins(graph: Graph, choice: MemorySchedule, wanted: Regions) -> dict[str, str]:
    """The region of each buffer for which the user names one. It holds for all buffers of a moved tensor."""
    known = {region.name.lower(): region for region in wanted.regions}
    slots = Slots(graph, choice.stages, choice.vanished)
    outer = {pin.buffer.name: pin.inside for pin in choice.inside}
    names = {buffer.name for buffer in choice.buffers} | set(outer)
    called: dict[str, list[str]] = {}
    for tensor in graph.tensors:
        root = graph.root(tensor.name).name
        own = [name for name in sorted(names) if name == root or name.startswith(f"{root}:moved:")]
        for text in dict.fromkeys((tensor.label, tensor.name)):
            if text and own:
                called.setdefault(text, []).extend(own)
    for buffer, slot in slots.named.items():
        if buffer in names:
            called[slot.name] = [buffer]
    pins: dict[str, str] = {}
    if wanted.stage_weights:
        _require_region(wanted.stage_weights, wanted, f"--stage-weights {wanted.stage_weights}")
    for what, name in wanted.places:
        option = f"--place {what}={name}"
        _require_region(name, wanted, option)
        if what == WEIGHTS:
            continue
        if what not in called:
            near = difflib.get_close_matches(what, sorted(called), n=1)
            hint = f"did you mean {shown(near[0])}?" if near else "`emitc plan` lists the buffers"
            why = "neither the model nor `emitc plan` has that name; or it is a constant, state, or has no memory of its own"
            raise EmitcError(f"there is no tensor {shown(what)} in the arena", Where(option=option), why, hint)
        region = known[name.lower()]
        for buffer in called[what]:
            buffer = outer.get(buffer, buffer)
            if pins.setdefault(buffer, region.name) != region.name:
                why, hint = f"another --place puts its bytes into {pins[buffer]}", "keep one of the two"
                raise EmitcError(f"{shown(what)} is to lie in two regions", Where(option=option), why, hint)
    return pins
