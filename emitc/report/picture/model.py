"""What a picture shows, without a coordinate: panels with bars, and what runs at each step."""

from emitc.compiled import Compiled
from emitc.program import Move, RowSegment, SlotKind, Step
from emitc.records import dataclass


@dataclass(frozen=True, slots=True)
class StepLabel:
    """What a step runs. stands_for: operators that it runs row by row, "" for an ordinary step."""

    text: str
    stands_for: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A buffer: `size_bytes` from `offset_bytes` on, alive in the steps [first, end). name: short, what: the rest.

    kind: "tensor", "input", "output", "scratch" or "state", which have colours of their own.
    """

    name: str
    size_bytes: int
    offset_bytes: int
    first: int
    end: int
    what: str = ""
    kind: str = "tensor"


@dataclass(frozen=True, slots=True)
class Panel:
    """One region of memory. bound_bytes: what no plan can go below, 0 where nothing is known of it.

    peak_step: the step that sets the bound, -1 for none. limit_bytes: that the region has, 0 where that is not known. note: a
    line of its own, such as its proof where there are several.
    """

    title: str
    size_bytes: int
    bars: tuple[Bar, ...]
    bound_bytes: int = 0
    peak_step: int = -1
    limit_bytes: int = 0
    note: str = ""

    @property
    def heading(self) -> str:
        of = f" of {self.limit_bytes}" if self.limit_bytes else ""
        return f"{self.title}: {self.size_bytes}{of} bytes"


@dataclass(frozen=True, slots=True)
class Picture:
    """The panels of one model, one above the other over the same steps. subtitle: such as the line of proof."""

    title: str
    subtitle: str
    steps: tuple[StepLabel, ...]
    panels: tuple[Panel, ...]


def arena_picture(compiled: Compiled) -> Picture:
    """The picture of a compiled model's arenas, a panel each, with the buffers under their names in the C source."""
    program = compiled.program
    ends = {port.tensor: "input" for port in program.inputs} | {port.tensor: "output" for port in program.outputs}
    panels = []
    regions = {region.name: region for region in program.regions}
    for region, plan in program.arenas:
        bars = tuple(
            Bar(
                slot.name.removeprefix("AT_").lower(),
                *(slot.size_bytes, slot.offset_bytes, slot.first, slot.end, slot.what),
                "scratch" if slot.kind in (SlotKind.SCRATCH, SlotKind.STAGED) else ends.get(placement.name, "tensor"),
            )
            for slot, placement in zip(program.slots, program.plan.placements, strict=True)
            if slot.region == region
        )
        if bars or not region:
            limit, claim = (regions[region].limit_bytes, regions[region].claim) if region else (0, "")
            title = region or "arena"
            panels.append(Panel(title, plan.arena_bytes, bars, plan.lower_bound_bytes, plan.peak_step, limit, claim))
    steps = tuple(_stage_label(stage) for stage in program.schedule)
    said = f"arenas in {len(program.regions)} regions, {program.plan.arena_bytes} bytes" if regions else program.proof
    return Picture(program.origin.model_file, said, steps, tuple(panels))


def _stage_label(stage: Step | Move | RowSegment) -> StepLabel:
    """What a stage of the memory plan runs: a layer, a move, or several layers row by row."""
    if isinstance(stage, Move):
        return StepLabel("move")
    if isinstance(stage, RowSegment):
        last = stage.last.step
        return StepLabel(f"ops {stage.calls[0].step.index} to {last.index}", "row by row")
    return StepLabel(f"{stage.index} {stage.op_type}")


@dataclass(frozen=True, slots=True)
class Shared:
    """Bytes [low, high) that two buffers, by index in their panel, hold at the same time, in the steps [first, end)."""

    one: int
    other: int
    low: int
    high: int
    first: int
    end: int


def shared_bytes(panel: Panel) -> tuple[Shared, ...]:
    """Where buffers that are alive together share addresses: an operator writes over its own input."""
    pairs = []
    for j, right in enumerate(panel.bars):
        for i, left in enumerate(panel.bars[:j]):
            low = max(left.offset_bytes, right.offset_bytes)
            high = min(left.offset_bytes + left.size_bytes, right.offset_bytes + right.size_bytes)
            first, end = max(left.first, right.first), min(left.end, right.end)
            if low < high and first < end:
                pairs.append(Shared(i, j, low, high, first, end))
    return tuple(pairs)


def partners(panel: Panel) -> dict[int, list[tuple[int, Shared]]]:
    """By index of each bar that shares bytes: the other bar's index, and what they share."""
    result: dict[int, list[tuple[int, Shared]]] = {}
    for shared in shared_bytes(panel):
        result.setdefault(shared.one, []).append((shared.other, shared))
        result.setdefault(shared.other, []).append((shared.one, shared))
    return result


def shown_name(name: str, longest: int = 60) -> str:
    """`name` as one line of printable characters, at most `longest` of them.

    >>> shown_name("a\\u202eb\\n<c>")
    'a?b?<c>'
    """
    text = "".join(character if character.isprintable() else "?" for character in name)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
