"""What `emitc diff` prints, as text and as Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emitc.errors import shown
from emitc.report.tables import figure, table

if TYPE_CHECKING:
    from emitc.explore.difference import Change, Difference

_LAYERS = 30
"""Layers that are listed, those with the largest changes."""


def _row(change: Change) -> tuple[str, ...]:
    share = f"{100 * change.share:+.1f} %" if math.isfinite(change.share) else "new"
    return shown(change.name, 80), figure(change.old), figure(change.new), share if change.share else "="


def _largest(difference: Difference) -> list[Change]:
    return sorted(difference.layers, key=lambda change: -abs(change.new - change.old))[:_LAYERS]


def diff_text(difference: Difference, failed: tuple[str, ...]) -> str:
    lines = [f"BREAK OF THE INTERFACE: {shown(change, 200)}" for change in difference.breaks]
    lines += [f"{name}: {shown(old, 200)} -> {shown(new, 200)}" for name, old, new in difference.facts]
    lines += [table(("", "old>", "new>", "change>"), [_row(change) for change in difference.figures])]
    if difference.layers:
        lines += ["", table(("layer", "old>", "new>", "change>"), [_row(change) for change in _largest(difference)])]
    if difference.kernels:
        lines += ["", table(("layer", "kernel before", "kernel now"), difference.kernels[:_LAYERS])]
    return "\n".join([*lines, *(f"FAILED: {shown(failure, 200)}" for failure in failed)])


def diff_markdown(difference: Difference, failed: tuple[str, ...]) -> str:
    lines = [f"**Break of the interface:** {_cell(change)}\n" for change in difference.breaks]
    lines += _markdown(("", "old", "new", "change"), [_row(change) for change in difference.figures])
    if difference.layers:
        lines += ["", *_markdown(("layer", "old", "new", "change"), [_row(change) for change in _largest(difference)])]
    if difference.kernels:
        lines += ["", *_markdown(("layer", "kernel before", "kernel now"), list(difference.kernels[:_LAYERS]))]
    if difference.facts:
        lines += ["", *_markdown(("", "old", "new"), list(difference.facts))]
    return "\n".join([*lines, *(f"\n**Failed:** {_cell(failure)}" for failure in failed)])


def _cell(text: str) -> str:
    """Text of a file that changes nothing of a table or a page around it."""
    plain = shown(text, 200)
    for mark in "\\`*_[]<>|":
        plain = plain.replace(mark, f"\\{mark}" if mark not in "<>" else {"<": "&lt;", ">": "&gt;"}[mark])
    return plain


def _markdown(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    numbers = ["---:" if column in ("old", "new", "change") else "---" for column in columns]
    cells = [columns, numbers, *(tuple(map(_cell, row)) for row in rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]
