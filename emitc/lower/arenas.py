"""The memory plan as the slots that the C names, in one arena or in those of several regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emitc.backends.partition import Partition
from emitc.lower.layers import constant_bytes
from emitc.planner import LiveRange, Plan
from emitc.planner.proof_text import proof_line
from emitc.program import Address, ArenaRegion, Block, Move, RowSegment, Slot, Step, arena_variable
from emitc.schedule.memory_regions import Regions, RegionSchedule, assign_regions
from emitc.schedule.search import MemorySchedule, best_schedule
from emitc.schedule.slots import Slots
from emitc.schedule.stages import LoweredNode, Stage


@dataclass(frozen=True, slots=True)
class ArenaOptions:
    """What the user asks of the arena. budget: its bytes; without: techniques to leave out; rough: all as `best_schedule` takes
    them. regions: those that the buffers are divided among, None for a single arena.
    """

    budget: int | None = None
    without: frozenset[str] = frozenset()
    regions: Regions | None = None
    rough: bool = False


@dataclass(frozen=True, slots=True)
class Arenas:
    """A schedule with its memory plan, which counts several arenas one behind the other. divided: among which regions.

    region_of: the region of each buffer where there are several; starts: the offset of each region's arena in the plan.
    """

    arrangement: MemorySchedule
    plan: Plan
    divided: RegionSchedule | None = None
    region_of: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)

    def buffers(self, slots: Slots) -> tuple[Slot, ...]:
        """Every buffer of the plan, in its order."""
        return tuple(self._slot(slots, p.name, p.offset_bytes, p.size_bytes, p.live) for p in self.plan.placements)

    def inside(self, slots: Slots) -> tuple[Slot, ...]:
        """The tensors that lie in buffers of others."""
        offsets = self.offsets()
        return tuple(
            self._slot(slots, p.buffer.name, offsets[p.buffer.name], p.buffer.size_bytes, p.buffer.live)
            for p in self.arrangement.inside
        )

    def _slot(self, slots: Slots, buffer: str, offset: int, size: int, live: LiveRange) -> Slot:
        named, region = slots.named[buffer], self.region_of.get(buffer, "")
        return Slot(
            name=named.name,
            offset_bytes=offset - self.starts.get(region, 0),
            size_bytes=size,
            first=live.first,
            end=live.end,
            what=named.what,
            region=region,
            kind=named.kind,
            op=named.op,
            moved_from=named.moved_from,
        )

    def offsets(self) -> dict[str, int]:
        """The offset of every buffer in the plan, those inside others included."""
        found = {p.name: p.offset_bytes for p in self.plan.placements}
        return found | {p.buffer.name: found[p.inside] + p.offset_bytes for p in self.arrangement.inside}

    def regions(self, schedule: Sequence[Step | Move | RowSegment]) -> tuple[ArenaRegion, ...]:
        """The arena of every region, in the user's order; none where there is a single arena."""
        if self.divided is None:
            return ()
        used = _variables(schedule)
        found = []
        for part in self.divided.assignment.regions:
            region, plan = part.region, part.plan
            label = peak_label(self.arrangement.stages, plan)
            found.append(
                ArenaRegion(
                    name=region.name,
                    plan=plan,
                    claim=proof_line(plan, label),
                    peak_op=label,
                    start_bytes=self.starts[region.name],
                    limit_bytes=region.size_bytes,
                    traffic_bytes=sum(self.divided.traffic[p.name] for p in plan.placements),
                    used=arena_variable(region.name) in used,
                )
            )
        return tuple(found)


def arenas_of(partition: Partition, nodes: tuple[LoweredNode, ...], alignment: int, options: ArenaOptions) -> Arenas:
    """The schedule of lowered nodes and its memory plan. Raises what `best_schedule` and `assign_regions` raise."""
    graph, budget, without = partition.graph, options.budget, options.without
    if options.regions is None:
        costs = {assignment.index: assignment.cost for assignment in partition.assignments}
        arrangement = best_schedule(graph, nodes, alignment, budget, without, costs, rough=options.rough)
        return Arenas(arrangement, arrangement.plan)
    chosen = assign_regions(graph, nodes, alignment, budget, without, options.regions, constant_bytes(nodes))
    return Arenas(chosen.arrangement, chosen.whole(), chosen, chosen.region_of(), chosen.starts())


def _variables(schedule: Sequence[Step | Move | RowSegment]) -> set[str]:
    """The C variables of the arenas that a run touches."""
    found: set[str] = set()
    for stage in schedule:
        if isinstance(stage, RowSegment):
            found |= set(stage.arenas)
            continue
        addresses: tuple[Address, ...]
        addresses = (stage.destination, stage.source) if isinstance(stage, Move) else stage.addresses
        found |= {address.variable for address in addresses if address.block is Block.ARENA}
    return found


def peak_label(stages: Sequence[Stage], result: Plan) -> str:
    if result.peak_step >= len(stages):
        return "the interface"
    stage = stages[result.peak_step]
    if not stage.nodes:
        return "a move"
    first, last = stage.nodes[0].bound.node, stage.nodes[-1].bound.node
    if len(stage.nodes) == 1:
        return f"op {first.index} {first.op_type}"
    return f"ops {first.index} to {last.index}, row by row"
