"""What `emitc partition` prints: which backend and kernel runs each operator, and why no other does."""

from __future__ import annotations

from typing import Any

from emitc.errors import shown
from emitc.report.tables import number, table


def partition_text(found: dict[str, Any]) -> str:
    """Who runs what, and why no other."""
    share = (
        f"{100 * found['fallback_share']:.1f} % of the multiply-accumulates fell back"
        if found["fallback_share"]
        else ""
    )
    lines = [
        f"{b['backend']:<12} {number(b['nodes'])} operators, {number(b['macs'])} multiply-accumulates,"
        f" {number(b['estimated_cycles'])} cycles estimated"
        for b in found["backends"]
    ]
    lines += [
        f"  region at op {p['index']} on {p['backend']}: {len(p['nodes'])} operators, {number(p['edge_bytes'])} bytes cross,"
        f" {p['waits']} waits, {p['cache_operations']} cache operations"
        for p in found["partitions"]
    ]
    lines += [share] if share else []
    told = any(n["reason"] != "asked for" for n in found["nodes"])
    rows = [
        (
            str(n["index"]),
            shown(n["op"]),
            n["backend"],
            n["kernel"],
            number(n["estimated_cycles"]),
            f"{n['estimated_cycles'] / n['macs']:.2f}" if n["macs"] else "-",
            *([shown(n["reason"], 60)] if told else []),
        )
        for n in found["nodes"]
    ]
    columns = ("op", "type", "backend", "kernel", "cycles>", "per MAC>", *(["why"] if told else []))
    lines += ["", table(columns, rows)]
    refused: dict[tuple[str, str], list[int]] = {}
    for node in found["nodes"]:
        for refusal in node["refused"]:
            refused.setdefault((refusal["backend"], refusal["reason"]), []).append(node["index"])
    if refused:
        lines += ["", "not taken:"]
    for (backend, reason), indices in refused.items():
        where = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
        lines.append(f"  {backend}: op {where}: {shown(reason, 160)}")
    return "\n".join(lines)
