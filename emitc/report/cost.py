"""What `emitc cost` and `emitc partition` print: estimates of a model, and which backend and kernel runs each operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emitc.errors import first_name, shown
from emitc.report.tables import listed, number, ratio, table

if TYPE_CHECKING:
    from emitc.explore.cost import Cost


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
