"""What depends on how long layers take: the records of a profile, and the parts of an inference in steps.

Layers of a run share a record of its profile where recording would take 2 % of the run's instructions or more.
"""

from dataclasses import replace

from emitc.backends.partition import Partition
from emitc.errors import EmitcError
from emitc.explore.layer_cycles import layer_cycles
from emitc.ir import Graph
from emitc.lower.stepping import with_steps
from emitc.lower.within_budget import lower_within_budget
from emitc.options import Options
from emitc.program import Program
from emitc.program.extras import Profiling
from emitc.program.rows import layers_of

RECORD_CYCLES = 4096
"""Estimated cycles of a run for each of its records. On emulated boards it takes 40 to 50 instructions to make one."""
INTERVAL = 64
"""Of so many short runs one is recorded."""
_MARKS = 2
"""Records of the beginning and the end of a run."""


def profiling_of(partition: Partition, program: Program, options: Options) -> Profiling:
    """The records of one run: one for each layer, unless that would take too much of a short run.

    Then consecutive layers share a record until they have RECORD_CYCLES together. A run that is too short for those records too
    is one of INTERVAL that are recorded.
    """
    cycles = layer_cycles(partition, program, options.optimize)
    spent = {
        traced.step.index: sum(
            cycles[step.index] for stage in program.schedule[traced.first : traced.end] for step in layers_of(stage)
        )
        for traced in program.traced
    }
    total = sum(spent.values())
    if options.profile_layers or total >= RECORD_CYCLES * (len(spent) + _MARKS):
        return Profiling(tuple((index,) for index in spent))
    records = _shared(spent)
    return Profiling(records, INTERVAL if total < RECORD_CYCLES * (len(records) + _MARKS) else 1)


def _shared(spent: dict[int, float]) -> tuple[tuple[int, ...], ...]:
    """Layers in order, put together to records of RECORD_CYCLES at least. spent: cycles by layer."""
    records: list[tuple[int, ...]] = []
    current: tuple[int, ...] = ()
    for index in spent:
        current = (*current, index)
        if sum(map(spent.__getitem__, current)) >= RECORD_CYCLES:
            records.append(current)
            current = ()
    if current:  # what is left after the last long layer is part of its record
        last = records.pop() if records else ()
        records.append((*last, *current))
    return tuple(records)


_ROUNDS = 4
"""Memory plans that are made in search of one in which all long layers run in parts; a new plan may let others share bytes."""


def in_steps(graph: Graph, partition: Partition, program: Program, options: Options) -> tuple[Partition, Program]:
    """The program with an inference in steps.

    Long layers whose input and output share too many bytes to run in parts get more room, where the budget has it.
    """
    best = partition, _with_steps(partition, program, options)
    parted: frozenset[int] = frozenset()
    for _ in range(_ROUNDS):
        stages = best[1].stepping.stages if best[1].stepping is not None else ()
        sharing = {stage.layers[0].index for stage in stages if stage.shares}
        if sharing <= parted or options.ram_budget == "min":
            break
        parted |= sharing
        try:
            partition, larger = lower_within_budget(graph, program.name, program.origin, options, parted)
        except EmitcError:  # regions, mostly, which are full
            break
        if options.arena_budget is not None and larger.plan.arena_bytes > options.arena_budget:
            break
        best = partition, _with_steps(partition, replace(larger, templates=program.templates), options)
    return best


def _with_steps(partition: Partition, program: Program, options: Options) -> Program:
    cycles = layer_cycles(partition, program, options.optimize)
    return with_steps(program, partition, cycles, options.max_step_cycles)
