"""What a picture shows, without a coordinate: panels with bars, and what runs at each step."""

from __future__ import annotations

from dataclasses import dataclass


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


def partners(panel: Panel) -> dict[int, list[tuple[int, Shared]]]:
    """By index of each bar that shares bytes: the other bar's index, and what they share."""
    found: dict[int, list[tuple[int, Shared]]] = {}
    for shared in shared_bytes(panel):
        found.setdefault(shared.one, []).append((shared.other, shared))
        found.setdefault(shared.other, []).append((shared.one, shared))
    return found


def shown_name(name: str, longest: int = 60) -> str:
    """`name` as one line of printable characters, at most `longest` of them.

    >>> shown_name("a\\u202eb\\n<c>")
    'a?b?<c>'
    """
    text = "".join(character if character.isprintable() else "?" for character in name)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
