"""What `emitc partition` prints: which backend and kernel runs each operator, and why no other does."""

from typing import Any

from emitc.errors import shown
from emitc.report.tables import listed, number, ratio, table


def partition_text(partition: dict[str, Any]) -> str:
    """Who runs what, and why no other."""
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
