"""What a picture shows, without a coordinate: panels with bars, and what runs at each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emitc.planner import Plan

KINDS = ("tensor", "input", "output", "scratch", "state")
"""What a buffer is for; the picture colours them differently."""


@dataclass(frozen=True, slots=True)
class StepLabel:
    """What a step runs. stands_for: operators that it runs row by row, "" for an ordinary step."""

    text: str
    stands_for: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """A buffer: `size_bytes` from `offset_bytes` on, alive in the steps [first, end). name: short, what: the rest."""

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
        """Title and bytes in a line."""
        of = f" of {self.limit_bytes}" if self.limit_bytes else ""
        return f"{self.title}: {self.size_bytes}{of} bytes"


@dataclass(frozen=True, slots=True)
class Picture:
    """The panels of one model, one above the other over the same steps. subtitle: such as the line of proof."""

    title: str
    subtitle: str
    steps: tuple[StepLabel, ...]
    panels: tuple[Panel, ...]


def panel_of(
    plan: Plan, labels: Mapping[str, str], title: str = "arena", kinds: Mapping[str, str] | None = None
) -> Panel:
    """The panel of `plan`. labels: by buffer name, how it is called in the picture; kinds: by buffer name, one of KINDS."""
    known = kinds or {}
    return Panel(
        title,
        plan.arena_bytes,
        tuple(
            Bar(
                labels.get(p.name, p.name),
                p.size_bytes,
                p.offset_bytes,
                p.live.first,
                p.live.end,
                p.name if labels.get(p.name, p.name) != p.name else "",
                known.get(p.name, "tensor"),
            )
            for p in plan.placements
        ),
        plan.lower_bound_bytes,
        plan.peak_step if plan.placements else -1,
    )


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
    found = []
    for j, right in enumerate(panel.bars):
        for i, left in enumerate(panel.bars[:j]):
            low = max(left.offset_bytes, right.offset_bytes)
            high = min(left.offset_bytes + left.size_bytes, right.offset_bytes + right.size_bytes)
            first, end = max(left.first, right.first), min(left.end, right.end)
            if low < high and first < end:
                found.append(Shared(i, j, low, high, first, end))
    return tuple(found)


def shown_name(name: str, longest: int = 60) -> str:
    """`name` as one line of printable characters, at most `longest` of them.

    >>> shown_name("a\\u202eb\\n<c>")
    'a?b?<c>'
    """
    text = "".join(character if character.isprintable() else "?" for character in name)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
