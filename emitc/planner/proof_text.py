"""A plan for people and for programs: one line of proof, a map, a JSON object."""

from typing import Any

from emitc.planner.buffers import Plan

_MARKS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_FREE, _SEVERAL = ".", "*"


def proof_line(plan: Plan, peak_label: str) -> str:
    """How large the arena is, and whether it is proven minimal; `peak_label` says what the peak step runs.

    The gap is (arena - bound) / bound, rounded up to a tenth of a percent, so that it is never shown as 0.
    """
    if not plan.placements:
        return "arena 0 B = lower bound 0 B (nothing to place)"
    if plan.proven and plan.held_bytes is not None:
        return (
            f"arena {plan.arena_bytes} B, no packing is lower: all were searched ({plan.held_bytes} B are held at {peak_label}; "
            f"optimal for this operator order, alignment {plan.alignment}, these kernels)"
        )
    if plan.proven:
        return (
            f"arena {plan.arena_bytes} B = lower bound {plan.lower_bound_bytes} B at {peak_label} "
            f"(optimal for this operator order, alignment {plan.alignment}, these kernels)"
        )
    per_mille = -(-1000 * (plan.arena_bytes - plan.lower_bound_bytes) // plan.lower_bound_bytes)
    return (
        f"arena {plan.arena_bytes} B, lower bound {plan.lower_bound_bytes} B at {peak_label} "
        f"(gap {per_mille // 10}.{per_mille % 10} %), not proven"
    )


def arena_map(plan: Plan, rows: int = 16, columns: int = 64) -> str:
    """The arena as text: addresses upwards, steps to the right, newline at the end; '' for an empty arena.

    A cell stands for a slice of bytes and one or more steps, and shows the mark of the buffer in it: '.' when it is
    free, '*' when several buffers share it. Marks repeat after 62 buffers.
    """
    if plan.arena_bytes == 0:
        return ""
    steps = max(placement.live.end for placement in plan.placements)
    columns = min(columns, steps)
    units = -(-plan.arena_bytes // plan.alignment)
    rows = min(rows, units)
    marks = {placement.name: _MARKS[i % len(_MARKS)] for i, placement in enumerate(plan.placements)}
    cells = [[_FREE] * columns for _ in range(rows)]
    for placement in plan.placements:
        if placement.size_bytes == 0:
            continue
        top = placement.offset_bytes + placement.size_bytes - 1
        for row in range(placement.offset_bytes * rows // plan.arena_bytes, top * rows // plan.arena_bytes + 1):
            for column in range(
                placement.live.first * columns // steps, (placement.live.end - 1) * columns // steps + 1
            ):
                free = cells[row][column] == _FREE
                cells[row][column] = marks[placement.name] if free else _SEVERAL
    width = len(str(plan.arena_bytes))
    lines = [f"{-(-row * plan.arena_bytes // rows):>{width}} |{''.join(cells[row])}|" for row in reversed(range(rows))]
    return "\n".join(lines) + "\n"


def to_json(plan: Plan) -> dict[str, Any]:
    """`plan` as JSON values. Live ranges are half open and in steps; buffers come in the plan's order.

    The caller, who knows what the peak step runs, adds `op` to the peak.
    """
    return {
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "proven": plan.proven,
        "peak": {"step": plan.peak_step, "tensors": list(plan.peak_buffers)},
        "buffers": [
            {"name": p.name, "bytes": p.size_bytes, "offset": p.offset_bytes, "first": p.live.first, "end": p.live.end}
            for p in plan.placements
        ],
    }
