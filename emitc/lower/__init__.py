"""Graph to Program: the last decisions, all sizes and all constants. After this no graph object is in sight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from emitc.backends.partition import Partition
from emitc.lower.arenas import ArenaOptions, arenas_of, peak_label
from emitc.lower.interface import ports, state_slots
from emitc.lower.layers import Steps, lower_nodes
from emitc.lower.row_segments import schedule_of
from emitc.planner.proof_text import proof_line
from emitc.program import Origin, Program, arena_variable
from emitc.schedule.check import check_schedule
from emitc.schedule.slots import Slots

__all__ = ["ALIGNMENT", "ArenaOptions", "lower", "lower_nodes"]

ALIGNMENT = 16
"""Of the arena and every buffer in it; a backend may need more."""


def lower(
    partition: Partition,
    name: str,
    origin: Origin,
    options: ArenaOptions,
    parts: Mapping[int, tuple[Program, ...]] = MappingProxyType({}),
    *,
    prefix: str = "",
    held: Mapping[str, int] = MappingProxyType({}),
) -> Program:
    """The program of a partitioned graph: layers, constants, schedule, arena plan and interface under the model's C name.

    parts: the programs inside of operators, by index. prefix: of names that would be those of the model's own interface, for
    such a program. held: its variables, by name, each as the number of the operator's output that it is.
    """
    graph = partition.graph
    nodes = lower_nodes(partition)
    used = {node.backend for node in nodes}
    alignment = max([ALIGNMENT, *(partition.backends[name].alignment for name in used)])
    arenas = arenas_of(partition, nodes, alignment, options)
    stages, plan = arenas.arrangement.stages, arenas.plan
    slots = Slots(graph, stages, arenas.arrangement.vanished, prefix, held)
    slots.arenas = {slots.named[buffer].name: arena_variable(region) for buffer, region in arenas.region_of.items()}
    check_schedule(graph, stages, arenas.offsets(), arenas.arrangement.hosts, plan.arena_bytes)
    weights, copied_to = (options.regions.weights, options.regions.staged) if options.regions else ("", "")
    section = f"{name.upper()}_SECTION_WEIGHTS" if weights else ""
    steps = Steps(graph, slots, section, copied_to, parts).of_stages(stages)
    schedule = schedule_of(graph, stages, steps, slots)
    regions = arenas.regions(schedule)
    inputs, _ = ports(graph, graph.inputs, slots, output=False)
    outputs, output_constants = ports(graph, graph.outputs, slots, output=True, prefix=prefix.lower())
    states = () if held else state_slots(graph, slots, alignment)
    peak = peak_label(stages, plan)
    program = Program(
        name=name,
        upper=name.upper(),
        origin=origin,
        inputs=inputs,
        outputs=outputs,
        slots=arenas.buffers(slots),
        steps=steps,
        output_constants=output_constants,
        plan=plan,
        proof="; ".join(region.proof for region in regions) or proof_line(plan, peak),
        peak_op=peak,
        states=states,
        schedule=schedule,
        state_bytes=max((-(-(s.offset_bytes + s.size_bytes) // alignment) * alignment for s in states), default=0),
        notes=(*graph.notes, *partition.notes),
        pins=arenas.inside(slots),
        regions=regions,
        weights=weights,
        held=tuple(held.values()),
    )
    needed = [partition.backends[backend].requirement(program) for backend, _, _ in program.backends]
    return replace(program, requirements=tuple(requirement for requirement in needed if requirement is not None))
