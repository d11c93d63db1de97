"""What run() does beyond calls of whole layers: it moves tensors, runs layers row by row, and waits for transfers of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emitc.layer import Layer, Table
from emitc.program.memory import Address, cast
from emitc.records import dataclass

if TYPE_CHECKING:
    from emitc.program import Staged, Step


@dataclass(frozen=True, slots=True)
class Move:
    """A tensor moved within the arena."""

    destination: Address
    source: Address
    size_bytes: int
    what: str


@dataclass(frozen=True, slots=True)
class RowTensor:
    """A tensor as its rows, in a segment. name: of the C variable. start: where its first row lies at the start, None where
    there is memory for no row. rows: of the whole tensor; capacity: those that there is memory for; made: those that are there
    before the segment.
    """

    name: str
    start: Address | None
    row_bytes: int
    rows: int
    capacity: int
    made: int
    what: str

    @property
    def pointer(self) -> str:
        """The C expression of where its first row lies at the start."""
        return self.start.text if self.start is not None else "NULL"

    @property
    def whole(self) -> bool:
        """Whether there is memory for all of its rows, so that none gives way to another one."""
        return self.capacity == self.rows


@dataclass(frozen=True, slots=True)
class RowUse:
    """A layer's use of a tensor's rows: row r reads rows [r * stride - pad, r * stride - pad + extent). waits: they are not
    there from the start. c_type: of the elements. in_place: the row lies where the layer's own row is made.
    """

    tensor: RowTensor
    stride: int
    pad: int
    extent: int
    waits: bool
    c_type: str
    in_place: bool

    @property
    def cast(self) -> str:
        """C text that makes a pointer to elements of a pointer to a row."""
        return cast(self.c_type, const=True)

    @property
    def one_to_one(self) -> bool:
        return (self.stride, self.pad, self.extent) == (1, 0, 1)


@dataclass(frozen=True, slots=True)
class RowCall:
    """A layer of a segment. in_place_of: the tensor whose next row is where this layer's row goes, mostly its own. readers: what
    is made from that tensor, each with how it is read. on_demand: the layer makes a row only when one of them reads it next.
    c_type: of the elements that it makes.
    """

    step: Step
    uses: tuple[RowUse, ...]
    makes: RowTensor
    in_place_of: RowTensor
    c_type: str
    readers: tuple[tuple[RowTensor, RowUse], ...]
    on_demand: bool = False

    @property
    def cast(self) -> str:
        """C text that makes a pointer to the elements that the layer makes of a pointer to a row."""
        return cast(self.c_type, const=False)


@dataclass(frozen=True, slots=True)
class RowSegment:
    """Layers that run row by row. name: of the C function. source: the tensor that is whole before, None where the first layer
    asks the application for its rows; calls: in the order of the segment; the last one makes the segment's output. arenas: the C
    variables of the arenas that hold them. turns: positions of the layers in the order in which they make their rows. in_parts:
    its function can stop after some rows, and go on from there.
    """

    name: str
    source: RowTensor | None
    calls: tuple[RowCall, ...]
    arenas: tuple[str, ...]
    turns: tuple[int, ...]
    in_parts: bool = False

    @property
    def leading(self) -> str:
        """What its function takes first, as those of its layers do."""
        return next((call.step.leading for call in self.calls if call.step.leading), "")

    @property
    def passed(self) -> str:
        """The argument that `leading` declares."""
        return next((call.step.passed for call in self.calls if call.step.passed), "")

    @property
    def last(self) -> RowCall:
        return self.calls[-1]

    @property
    def staged(self) -> tuple[Staged, ...]:
        return tuple(staged for call in self.calls for staged in call.step.staged)

    @property
    def reads_rows(self) -> bool:
        """Whether a layer asks the application for its rows, so that the function returns a status."""
        return any(call.step.reads_rows for call in self.calls)

    @property
    def rolls(self) -> bool:
        return not all(call.in_place_of.whole for call in self.calls)


# ---- transfers of weights that the application makes while layers run ----


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
        stages.append(StageTransfers(layers_of(schedule[position]), late, bool(own), under_way, early))
        under_way += len(early)
        most = max(most, under_way)
    ahead = max(position - staged.start for position, own in enumerate(needed) for staged in own)
    return Transfers(tuple(stages), ahead, most)


def layers_of(stage: Step | Move | RowSegment) -> tuple[Step, ...]:
    """The layers that a stage of run() runs, none where a tensor is moved."""
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
