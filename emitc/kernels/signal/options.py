"""Options of the signal operators that decide how much an operator keeps between runs."""

from __future__ import annotations

from emitc.source import SourceNode

LARGEST = 1 << 15
"""Of values, frames or channels; the frontend makes no state for more."""


def option(node: SourceNode, name: str, low: int = 1) -> int:
    """A number of values, frames or channels."""
    return node.integer(name, low=low, high=LARGEST)
