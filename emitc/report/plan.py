"""What `emitc plan` prints: every buffer of the arena, arenas against cycles, and several models in one arena."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emitc.errors import first_name, shown
from emitc.report.tables import number, table

if TYPE_CHECKING:
    from emitc.compiled import Compiled
    from emitc.program import Program


_POINT = "arena_bytes estimated_cycles segments layers_by_rows moved_bytes"


def plan_text(compiled: Compiled) -> str:
    """The arena: proof, peak, and every buffer by offset; the variables of the state block."""
    from emitc.planner.proof_text import arena_map

    program = compiled.program
    lines: list[str] = []
    for (region, plan), proof in zip(program.arenas, program.proofs, strict=True):
        rows = [
            (slot.name, slot.size_bytes, slot.offset_bytes, f"[{slot.first}, {slot.end})", first_name(slot.what))
            for slot in sorted(program.slots, key=lambda s: (s.offset_bytes, s.first))
            if slot.region == region
        ]
        lines += [
            *([""] if lines else []),
            proof,
            *_region_lines(program, region),
            "",
            table(("buffer", "bytes>", "offset>", "live", "what"), rows),
            "",
            arena_map(plan).rstrip(),
        ]
    if program.states:
        kept = [(slot.name, slot.size_bytes, slot.offset_bytes, slot.what) for slot in program.states]
        lines += ["", f"state {program.state_bytes} B", "", table(("variable", "bytes>", "offset>", "what"), kept)]
    return "\n".join(lines)


def pareto_text(points: list[dict[str, int]]) -> str:
    """Arena against cycles, the largest arena first, each against that."""
    base = points[0]["estimated_cycles"]
    rows = []
    for point in points:
        arena, cycles, *others = (point[key] for key in _POINT.split())
        rows.append((arena, cycles, f"{100 * (cycles / base - 1):+.1f} %" if base else "-", *others))
    return table(("arena>", "estimated cycles>", "cost>", "segments>", "layers by rows>", "moved bytes>"), rows)


def _region_lines(program: Program, region: str) -> list[str]:
    total = sum(part.traffic_bytes for part in program.regions) or 1
    return [
        f"{part.name}: {number(part.limit_bytes)} bytes, {number(part.traffic_bytes)} read or written in a run (estimated), "
        f"{100 * part.traffic_bytes / total:.0f} %"
        for part in program.regions
        if part.name == region
    ]


def shared_arena_text(content: dict[str, Any]) -> str:
    """Several models in one arena: which kind, how large, and where each one's part is."""
    how = "and may run at the same time" if content["concurrent"] else "of which one runs at a time"
    rows = [
        (m["name"], shown(m["file"]), m["arena_bytes"], m["arena_offset"], m["state_bytes"], m["state_offset"])
        for m in content["models"]
    ]
    lines = [
        f"{len(rows)} models share one arena of {number(content['arena_bytes'])} bytes, {how}"
        f" (with an arena each: {number(content['separate_bytes'])} bytes)",
        "",
        table(("model", "file", "arena>", "offset>", "state>", "offset>"), rows),
    ]
    if "file" in content:
        lines += ["", f"header      {content['file']}"]
    return "\n".join(lines)
