"""Transfers of weights that the application makes while layers run: which stage starts which, and which it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emitc.layer import Layer, Table
from emitc.program.rows import Move, RowSegment

if TYPE_CHECKING:
    from emitc.program import Staged, Step

ROLE = "weights"
"""Of the array of a layer that can be copied."""


@dataclass(frozen=True, slots=True)
class StageTransfers:
    """What one stage of run() does for transfers before its layers run, in this order. steps: these layers.

    late: starts those of its own weights that no earlier stage has started. waits: whether it waits for its weights; left: how
    many transfers may still be under way afterwards, all of them for later stages. early: starts transfers for later stages.
    """

    steps: tuple[Step, ...] = ()
    late: tuple[Staged, ...] = ()
    waits: bool = False
    left: int = 0
    early: tuple[Staged, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfers:
    """The transfers of a run, stage by stage. ahead: by how many stages one starts before the one that needs it, at most.

    most: that are under way at once.
    """

    stages: tuple[StageTransfers, ...]
    ahead: int
    most: int


def transfers_of(schedule: Sequence[Step | Move | RowSegment]) -> Transfers | None:
    """The transfers of a run, None where there are none. They end in the order in which they start.

    That is the order of the stages that need them.
    """
    needed = [() if isinstance(stage, Move) else tuple(s for s in stage.staged if s.start >= 0) for stage in schedule]
    if not any(needed):
        return None
    stages: list[StageTransfers] = []
    under_way = most = 0
    for position, own in enumerate(needed):
        late = tuple(staged for staged in own if staged.start == position)
        early = tuple(s for later in needed[position + 1 :] for s in later if s.start == position)
        most = max(most, under_way + len(late))
        under_way += len(late) - len(own)
        stages.append(StageTransfers(_steps(schedule[position]), late, bool(own), under_way, early))
        under_way += len(early)
        most = max(most, under_way)
    ahead = max(position - staged.start for position, own in enumerate(needed) for staged in own)
    return Transfers(tuple(stages), ahead, most)


def _steps(stage: Step | Move | RowSegment) -> tuple[Step, ...]:
    if isinstance(stage, Move):
        return ()
    return tuple(call.step for call in stage.calls) if isinstance(stage, RowSegment) else (stage,)


def weights_of(layer: Layer) -> Table | None:
    """The array of weights that the layer function takes from its caller, if it has one."""
    return next((table for table in layer.tables if table.role == ROLE and table.pixels_per_load), None)


def loads_of(layer: Layer) -> int:
    """Bytes of its weights that a layer loads in one run, about; 0 where its function does not take them from its caller."""
    table = weights_of(layer)
    if table is None:
        return 0
    return layer.macs * max(1, table.size_bytes // len(table.values)) // table.pixels_per_load
