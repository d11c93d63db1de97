"""What the tool knows, as text for a person: boards, targets, operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emitc.report import table

_ALL_TYPES = 11
"""Element types that tensors in memory can have."""


def boards_text(content: dict[str, Any]) -> str:
    """The boards."""
    rows = [
        (b["name"], b["kind"], b["target"], b["flash_bytes"], b["ram_bytes"], b["title"]) for b in content["boards"]
    ]
    return table(("board", "kind", "target", "flash>", "RAM>", "what"), rows)


def targets_text(content: dict[str, Any]) -> str:
    """The targets."""
    return table(
        ("target", "features", "what"), [(t["name"], " ".join(t["features"]), t["title"]) for t in content["targets"]]
    )


def ops_text(content: dict[str, Any]) -> str:
    """The operators, with the types that the variants of each column have code for."""
    columns = content["columns"]
    rows = [
        (o["op"], o["format"], *(types_of(o, column["variants"]) for column in columns), o["summary"])
        for o in content["operators"]
    ]
    return table(
        ("operator<", "format<", *(column["name"] for column in columns), "what"), rows, width=140 + 8 * len(columns)
    )


def types_of(operator: dict[str, Any], variants: Sequence[str]) -> str:
    """The types that one of the variants has code for; "-" for none, and for an operator that needs no code."""
    found = [cell["dtype"] for cell in operator["matrix"] if not set(variants).isdisjoint(cell["variants"])]
    return ("any" if len(found) >= _ALL_TYPES else " ".join(found)) or "-"
