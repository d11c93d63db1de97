"""What `emitc diff` prints, as text and as Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emitc.errors import shown
from emitc.report.tables import number, table

if TYPE_CHECKING:
    from emitc.explore.difference import Change, Difference

_LAYERS = 30
"""Layers that are listed, those with the largest changes."""


def _value(value: float) -> str:
    return number(int(value)) if value == int(value) else f"{value:.3f}"


def _row(change: Change) -> tuple[str, ...]:
    share = f"{100 * change.share:+.1f} %" if math.isfinite(change.share) else "new"
    return shown(change.name, 80), _value(change.old), _value(change.new), share if change.share else "="


def _largest(found: Difference) -> list[Change]:
    return sorted(found.layers, key=lambda change: -abs(change.new - change.old))[:_LAYERS]


def diff_text(found: Difference, failed: tuple[str, ...]) -> str:
    """For a person."""
    lines = [f"BREAK OF THE INTERFACE: {shown(each, 200)}" for each in found.breaks]
    lines += [f"{name}: {shown(old, 200)} -> {shown(new, 200)}" for name, old, new in found.facts]
    lines += [table(("", "old>", "new>", "change>"), [_row(change) for change in found.figures])]
    if found.layers:
        lines += ["", table(("layer", "old>", "new>", "change>"), [_row(change) for change in _largest(found)])]
    if found.kernels:
        lines += ["", table(("layer", "kernel before", "kernel now"), found.kernels[:_LAYERS])]
    return "\n".join([*lines, *(f"FAILED: {shown(each, 200)}" for each in failed)])


def diff_markdown(found: Difference, failed: tuple[str, ...]) -> str:
    """For a comment on a change."""
    lines = [f"**Break of the interface:** {_cell(each)}\n" for each in found.breaks]
    lines += _markdown(("", "old", "new", "change"), [_row(change) for change in found.figures])
    if found.layers:
        lines += ["", *_markdown(("layer", "old", "new", "change"), [_row(change) for change in _largest(found)])]
    if found.kernels:
        lines += ["", *_markdown(("layer", "kernel before", "kernel now"), list(found.kernels[:_LAYERS]))]
    if found.facts:
        lines += ["", *_markdown(("", "old", "new"), list(found.facts))]
    return "\n".join([*lines, *(f"\n**Failed:** {_cell(each)}" for each in failed)])


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
