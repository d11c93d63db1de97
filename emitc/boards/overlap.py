"""Cycles of a run whose weights a DMA copies while layers run, from a run in which the core has copied them.

An emulator has no DMA: there `memcpy` makes the copies. Its cycles, and what it read of the flash, are taken out. The other cycles
are divided among the stages by the estimates of their layers, and the bytes read of the flash by the weights that they load from it.

Then one copy at a time runs with the stages. Both slow each other down. A read of the flash waits for half a read of the other, as
often as the other keeps the flash. A word that the DMA writes takes a cycle of the core as often as the core uses the RAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emitc.boards.cycle_model import Estimate
from emitc.compiled import Compiled
from emitc.program import Move, RowSegment
from emitc.schedule.weight_staging import loads_of
from emitc.target import DmaTiming, FlashTiming

COPY = "memcpy"
"""The function that makes the copies in the emulator."""
_WORD_BYTES = 4
_DATA = ("load", "load two", "load several", "store", "store two", "store several")
"""Kinds of instructions that use the RAM, by `cycle_model.kind_of`."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """One stage of a run: its share of the cycles, and of the constant bytes that are read without copies.

    late, early: bytes of the transfers that start before it waits, and after that. waits: whether it waits for transfers, until
    at most `left` are under way.
    """

    cycles: float
    constants: float
    late: tuple[int, ...] = ()
    waits: bool = False
    left: int = 0
    early: tuple[int, ...] = ()


def stages_of(compiled: Compiled) -> tuple[StageWork, ...]:
    """The stages of a program with transfers; none where it has none."""
    program = compiled.program
    if program.transfers is None:
        return ()
    costs = {assignment.index: assignment.cost for assignment in compiled.partition.assignments}
    works = []
    for stage, transfers in zip(program.schedule, program.transfers.stages, strict=True):
        calls = () if isinstance(stage, Move) else stage.calls if isinstance(stage, RowSegment) else ()
        steps = [call.step for call in calls] or ([] if isinstance(stage, Move | RowSegment) else [stage])
        loads = [loads_of(compiled.partition.layers[step.index]) for step in steps if not step.staged]
        works.append(
            StageWork(
                sum(costs.get(step.index, 0.0) for step in steps),
                float(sum(loads)),
                tuple(staged.size_bytes for staged in transfers.late),
                transfers.waits,
                transfers.left,
                tuple(staged.size_bytes for staged in transfers.early),
            )
        )
    cycles, constants = sum(work.cycles for work in works), sum(work.constants for work in works)
    return tuple(
        StageWork(
            work.cycles / (cycles or 1.0),
            work.constants / (constants or 1.0),
            work.late,
            work.waits,
            work.left,
            work.early,
        )
        for work in works
    )


@dataclass(slots=True)
class _Queue:
    """Copies that are under way, first the bytes that are left of the one that is made now."""

    bytes_left: list[float]

    def total(self) -> float:
        return sum(self.bytes_left)

    def make(self, count: float) -> None:
        """Makes so many bytes of them."""
        while count > 0 and self.bytes_left:
            first = min(count, self.bytes_left[0])
            count -= first
            self.bytes_left[0] -= first
            if self.bytes_left[0] <= 0:
                self.bytes_left.pop(0)


def overlapped(run: Estimate, stages: Sequence[StageWork], flash: FlashTiming, dma: DmaTiming) -> float:
    """Cycles of a run. run: of the emulator, with copies by the core."""
    copied = sum(sum(work.late) + sum(work.early) for work in stages)
    functions: Mapping[str, float] = dict(run.functions)
    core = run.cycles - functions.get(COPY, 0.0)
    constants = max(0, run.constant_bytes - copied)
    uses_ram = sum(cycles for kind, cycles in run.kinds if kind in _DATA) / run.cycles
    queue, total = _Queue([]), 0.0
    for work in stages:
        queue.bytes_left += map(float, work.late)
        total += dma.cycles_per_transfer * (len(work.late) + len(work.early))
        if work.waits:
            needed = sum(queue.bytes_left[: len(queue.bytes_left) - work.left])
            total += needed * dma.cycles_per_byte
            queue.make(needed)
        queue.bytes_left += map(float, work.early)
        alone = flash.cycles(core * work.cycles, round(constants * work.constants))
        total += _together(alone, alone - core * work.cycles, queue, dma, uses_ram)
    return total


def _together(alone: float, waits: float, queue: _Queue, dma: DmaTiming, uses_ram: float) -> float:
    """Cycles of a stage with the copies that are under way, of which it makes some.

    alone: its cycles without copies; waits: those of them in which the core waits for the flash.
    """
    if not queue.total() or not alone:
        return alone
    reads = waits / (dma.line_cycles - 1)
    kept_by_core = reads * dma.line_cycles / alone
    per_byte = dma.cycles_per_byte + kept_by_core * dma.line_cycles / 2 / dma.line_bytes
    kept_by_dma = dma.line_cycles / (per_byte * dma.line_bytes)
    slower = 1 + reads * kept_by_dma * dma.line_cycles / 2 / alone + uses_ram / (per_byte * _WORD_BYTES)
    busy = min(queue.total() * per_byte, alone * slower)
    queue.make(busy / per_byte)
    return busy + max(0.0, alone - busy / slower)
