"""Schedule to Program: the last decisions, all sizes and all constants. After this no graph object is in sight."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from emitc.lower.arenas import buffers, inside, peak_label, region_arenas
from emitc.lower.interface import ports, state_slots
from emitc.lower.layers import ConstantPlacement, Steps, with_shared_tails
from emitc.lower.row_segments import schedule_of
from emitc.planner.proof_text import proof_line
from emitc.program import Origin, Program, arena_variable
from emitc.schedule.arenas import Arenas
from emitc.schedule.check import check_schedule
from emitc.schedule.slots import Slots


def lower(
    arenas: Arenas,
    name: str,
    origin: Origin,
    placement: ConstantPlacement,
    parts: Mapping[int, tuple[Program, ...]] = MappingProxyType({}),
    *,
    prefix: str = "",
    state_args: Mapping[str, int] = MappingProxyType({}),
) -> Program:
    """The program of a schedule with its memory: layers, constants, arena plan and interface under the model's C name.

    placement: where the constants lie. parts: the programs inside of operators, by index.
    prefix: of names that would be those of the model's own interface, for such a program. state_args: the state
    variables that its function gets pointers to, each as the number of the operator's output that it is.
    """
    partition, stages, plan = arenas.partition, arenas.schedule.stages, arenas.plan
    graph = partition.graph
    slots = Slots(graph, stages, arenas.schedule.vanished, prefix, state_args)
    slots.arenas = {slots.named[buffer].name: arena_variable(region) for buffer, region in arenas.region_of.items()}
    check_schedule(graph, stages, arenas.offsets(), arenas.schedule.hosts, plan.arena_bytes)
    section = f"{name.upper()}_SECTION_WEIGHTS" if placement.weights else ""
    steps = with_shared_tails(Steps(graph, slots, section, placement, parts).of_stages(stages))
    schedule = schedule_of(graph, stages, steps, slots)
    regions = region_arenas(arenas, schedule)
    inputs, _ = ports(graph, graph.inputs, slots, output=False)
    outputs, output_constants = ports(graph, graph.outputs, slots, output=True, prefix=prefix.lower())
    states = () if state_args else state_slots(graph, slots, arenas.alignment)
    peak = peak_label(stages, plan)
    program = Program(
        name=name,
        upper=name.upper(),
        origin=origin,
        inputs=inputs,
        outputs=outputs,
        slots=buffers(arenas, slots),
        steps=steps,
        output_constants=output_constants,
        plan=plan,
        proof="; ".join(region.proof for region in regions) or proof_line(plan, peak),
        peak_op=peak,
        states=states,
        schedule=schedule,
        state_bytes=max(
            (-(-(s.offset_bytes + s.size_bytes) // arenas.alignment) * arenas.alignment for s in states), default=0
        ),
        notes=(*graph.notes, *partition.notes),
        pins=inside(arenas, slots),
        regions=regions,
        weights=placement.weights,
        state_args=tuple(state_args.values()),
        estimated_cycles=arenas.cycles(),
    )
    needed = [partition.backends[backend].requirement(program) for backend, _, _ in program.backends]
    return replace(program, requirements=tuple(requirement for requirement in needed if requirement is not None))
