"""An inference in steps: how long layers are divided, and how much room they get for that."""

from dataclasses import replace

from emitc.backends.partition import Partition
from emitc.errors import EmitcError
from emitc.explore.layer_cycles import layer_cycles
from emitc.ir import Graph
from emitc.lower.stepping import with_steps
from emitc.lower.within_budget import lower_within_budget
from emitc.options import Options
from emitc.program import Program

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
