"""What `--find-divergence` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import first_name, shown
from emitc.report.tables import number

if TYPE_CHECKING:
    from emitc.boards.divergence import Search


def divergence_text(model_file: str, search: Search) -> str:
    """The first layer that differs with its first wrong element, or that none does."""
    title = f"{shown(model_file)} on {search.board}"
    noise = f"\n{number(search.unreadable)} damaged lines were read again" if search.unreadable else ""
    first = search.divergence
    if first is None:
        runs = "1 run" if search.cases == 1 else f"{number(search.cases)} runs"
        return f"{title}: EQUAL\n{number(search.calls)} outputs of layers in {runs} are those of this machine{noise}"
    layer = first.layer
    wrong = f"{number(first.differing)} of {number(layer.elements)}, by {first.largest:g} at most"
    lines = [
        f"{title}: DIFFERS",
        f"first wrong layer   op {layer.index} {layer.op} {shown(first_name(layer.tensor), 100)}, case {first.case}",
        f"first wrong element {list(first.first)}: {first.got}, and {first.expected} on this machine",
        f"wrong elements      {wrong}: {first.pattern}",
        f"before it           {number(first.equal)} outputs of layers are equal",
    ]
    return "\n".join(lines) + noise
