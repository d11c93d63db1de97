"""What `emitc cost`, `emitc diff` and `emitc partition` print: estimates, changes, and which backend runs each operator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from emitc.errors import first_name, shown
from emitc.report.tables import figure, listed, number, ratio, table

if TYPE_CHECKING:
    from emitc.explore.cost import Cost
    from emitc.explore.difference import Change, Difference


def cost_text(cost: Cost) -> str:
    basis = (
        f"counts of kernels on {cost.source}"
        if cost.source
        else "the kernels' rough costs; no board has counted this code"
    )
    code = f"{number(cost.code_bytes)} of code by estimate" if cost.code_bytes else "code not estimated"
    if cost.linked_by:
        code = f"{number(cost.code_bytes)} of code, linked by {cost.linked_by}"
    lines = [
        f"{cost.model} on {cost.target}",
        f"  arena         {number(cost.arena_bytes)} bytes, state {number(cost.state_bytes)}",
        f"  flash         {number(cost.flash_bytes)} bytes: {number(cost.constant_bytes)} of constants, {code}",
        f"  instructions  {number(cost.instructions)} by estimate, from {basis}",
        f"  cycles        {number(cost.cycles)} by estimate, from memory without wait states",
    ]
    lines += [f"  warning       {warning}" for warning in cost.warnings]
    rows = [
        (o.index, o.op, first_name(o.name), o.kernel, o.macs, o.instructions, ratio(o.instructions, o.macs))
        for o in cost.layers
    ]
    return "\n".join([*lines, "", table(("op>", "type", "name", "kernel", "MACs>", "instructions>", "per MAC>"), rows)])


def partition_text(partition: dict[str, Any]) -> str:
    lines = [
        f"{b['backend']:<12} {number(b['nodes'])} operators, {number(b['macs'])} multiply-accumulates,"
        f" {number(b['estimated_cycles'])} cycles estimated"
        for b in partition["backends"]
    ]
    lines += [
        f"  region at op {p['index']} on {p['backend']}: {len(p['nodes'])} operators, {number(p['edge_bytes'])} bytes cross,"
        f" {p['waits']} waits, {p['cache_operations']} cache operations"
        for p in partition["partitions"]
    ]
    if partition["fallback_share"]:
        lines.append(f"{100 * partition['fallback_share']:.1f} % of the multiply-accumulates fell back")
    told = any(n["reason"] != "asked for" for n in partition["nodes"])
    rows = [
        (
            str(n["index"]),
            shown(n["op"]),
            n["backend"],
            n["kernel"],
            number(n["estimated_cycles"]),
            ratio(n["estimated_cycles"], n["macs"]),
            *([shown(n["reason"], 60)] if told else []),
        )
        for n in partition["nodes"]
    ]
    columns = ("op", "type", "backend", "kernel", "cycles>", "per MAC>", *(["why"] if told else []))
    lines += ["", table(columns, rows)]
    refused: dict[tuple[str, str], list[int]] = {}
    for node in partition["nodes"]:
        for refusal in node["refused"]:
            refused.setdefault((refusal["backend"], refusal["reason"]), []).append(node["index"])
    if refused:
        lines += ["", "not taken:"]
    for (backend, reason), indices in refused.items():
        lines.append(f"  {backend}: op {listed(list(map(str, indices)))}: {shown(reason, 160)}")
    return "\n".join(lines)


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
