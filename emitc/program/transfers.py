"""Transfers of weights that the application makes while layers run: which stage starts which, and which it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emitc.program.rows import Move, RowSegment

if TYPE_CHECKING:
    from emitc.program import Staged, Step


@dataclass(frozen=True, slots=True)
class StageTransfers:
    """What one stage of run() does for transfers before its layers run, in this order.

    late: starts those of its own weights that no earlier stage has started. waits: whether it waits for its weights; left: how
    many transfers may still be under way afterwards, all of them for later stages. early: starts transfers for later stages.
    """

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
        stages.append(StageTransfers(late, bool(own), under_way, early))
        under_way += len(early)
        most = max(most, under_way)
    ahead = max(position - staged.start for position, own in enumerate(needed) for staged in own)
    return Transfers(tuple(stages), ahead, most)
