"""Which layers of a run share a record of its profile, so that recording takes less than 2 % of the run's instructions."""

from emitc.backends.partition import Partition
from emitc.explore.layer_cycles import layer_cycles
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
