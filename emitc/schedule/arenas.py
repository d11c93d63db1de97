"""The memory of one schedule: in one arena, or in those of several regions."""

from collections.abc import Iterator, Mapping

from emitc.backends.partition import Partition
from emitc.planner import Plan
from emitc.records import dataclass, field, replace
from emitc.schedule.memory_regions import Regions, RegionSchedule, assign_regions
from emitc.schedule.row_streaming import PER_BYTE, segment_overhead, sole_users
from emitc.schedule.search import MemorySchedule, best_schedule
from emitc.schedule.stages import LoweredNode, constant_bytes

ALIGNMENT = 16
"""Of the arena and every buffer in it; a backend may need more."""


@dataclass(frozen=True, slots=True)
class ArenaOptions:
    """What the user asks of the arena. budget, without, accept_first_fit: as `best_schedule` takes them. regions: those that the
    buffers are divided among, None for a single arena.
    """

    budget: int | None = None
    without: frozenset[str] = frozenset()
    regions: Regions | None = None
    accept_first_fit: bool = False


@dataclass(frozen=True, slots=True)
class Arenas:
    """The layers of a partition in their schedule, with its memory plan, which counts several arenas one after another.

    in_regions: the division among regions, None for a single arena. region_of: the region of each buffer where there are
    several; starts: the offset of each region's arena in the plan.
    """

    partition: Partition
    alignment: int
    schedule: MemorySchedule
    plan: Plan
    in_regions: RegionSchedule | None = None
    region_of: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)

    def offsets(self) -> dict[str, int]:
        """The offset of every buffer in the plan, including the buffers that lie inside others."""
        offsets = {p.name: p.offset_bytes for p in self.plan.placements}
        return offsets | {p.buffer.name: offsets[p.inside] + p.offset_bytes for p in self.schedule.inside}

    def nodes(self) -> Iterator[LoweredNode]:
        """The layers in the order in which they run."""
        return (node for stage in self.schedule.stages for node in stage.nodes)

    def cycles(self) -> float:
        """The estimated cycles of one inference: layers, as their backends say, row streaming and moved tensors."""
        graph, stages = self.partition.graph, self.schedule.stages
        costs = {assignment.index: assignment.cost for assignment in self.partition.assignments}
        single = sole_users(
            {node.bound.node.index: node.layer.kernel_name + node.layer.spec.suffix for node in self.nodes()}
        )
        rows = sum(segment_overhead(s.nodes, s.segment, costs, single) for s in stages if s.segment is not None)
        return sum(costs.values()) + rows + PER_BYTE * sum(graph.tensor(s.moved).size_bytes for s in stages if s.moved)

    def cycles_with_waits(self) -> float:
        """The same with what weights wait for where they are copied: a byte of the memory of copies counts as a cycle."""
        return self.cycles() + (self.in_regions.waits if self.in_regions else 0.0)


def arenas_of(partition: Partition, nodes: tuple[LoweredNode, ...], options: ArenaOptions) -> Arenas:
    """The schedule of lowered nodes and its memory plan. Raises what `best_schedule` and `assign_regions` raise."""
    graph, budget, without = partition.graph, options.budget, options.without
    alignment = max([ALIGNMENT, *(partition.backends[node.backend].alignment for node in nodes)])
    if options.regions is None:
        costs = {assignment.index: assignment.cost for assignment in partition.assignments}
        first_fit = options.accept_first_fit
        schedule = best_schedule(graph, nodes, alignment, budget, without, costs, accept_first_fit=first_fit)
        return Arenas(partition, alignment, schedule, schedule.plan)
    wanted = replace(options.regions, cycles={one.index: one.cost for one in partition.assignments})
    assigned = assign_regions(graph, nodes, alignment, budget, without, wanted, constant_bytes(nodes))
    return Arenas(
        partition, alignment, assigned.schedule, assigned.whole(), assigned, assigned.region_of(), assigned.starts()
    )
