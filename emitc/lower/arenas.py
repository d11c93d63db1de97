"""The memory plan as the slots that the C names, in one arena or in those of several regions."""

from collections.abc import Sequence
from dataclasses import replace

from emitc.planner import LiveRange, Plan
from emitc.planner.proof_text import proof_line
from emitc.program import Address, ArenaRegion, Block, Move, RowSegment, Slot, Step, arena_variable
from emitc.schedule.arenas import Arenas
from emitc.schedule.slots import Slots
from emitc.schedule.stages import Stage


def buffers(arenas: Arenas, slots: Slots) -> tuple[Slot, ...]:
    return tuple(_slot(arenas, slots, p.name, p.offset_bytes, p.size_bytes, p.live) for p in arenas.plan.placements)


def inside(arenas: Arenas, slots: Slots) -> tuple[Slot, ...]:
    """The tensors that lie in buffers of others."""
    offsets = arenas.offsets()
    return tuple(
        _slot(arenas, slots, p.buffer.name, offsets[p.buffer.name], p.buffer.size_bytes, p.buffer.live)
        for p in arenas.schedule.inside
    )


def _slot(arenas: Arenas, slots: Slots, buffer: str, offset: int, size: int, live: LiveRange) -> Slot:
    region = arenas.region_of.get(buffer, "")
    offset -= arenas.starts.get(region, 0)
    return replace(
        slots.named[buffer], offset_bytes=offset, size_bytes=size, first=live.first, end=live.end, region=region
    )


def region_arenas(arenas: Arenas, schedule: Sequence[Step | Move | RowSegment]) -> tuple[ArenaRegion, ...]:
    """The arena of every region, in the user's order; none where there is a single arena."""
    if arenas.in_regions is None:
        return ()
    used = _variables(schedule)
    result = []
    for part in arenas.in_regions.assignment.regions:
        region, plan = part.region, part.plan
        label = peak_label(arenas.schedule.stages, plan)
        result.append(
            ArenaRegion(
                name=region.name,
                plan=plan,
                claim=proof_line(plan, label),
                peak_op=label,
                start_bytes=arenas.starts[region.name],
                limit_bytes=region.size_bytes,
                traffic_bytes=sum(arenas.in_regions.traffic[p.name] for p in plan.placements),
                used=arena_variable(region.name) in used,
            )
        )
    return tuple(result)


def _variables(schedule: Sequence[Step | Move | RowSegment]) -> set[str]:
    """The C variables of the arenas that a run touches."""
    names: set[str] = set()
    for stage in schedule:
        if isinstance(stage, RowSegment):
            names |= set(stage.arenas)
            continue
        addresses: tuple[Address, ...]
        addresses = (stage.destination, stage.source) if isinstance(stage, Move) else stage.addresses
        names |= {address.variable for address in addresses if address.block is Block.ARENA}
    return names


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
