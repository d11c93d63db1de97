"""What `emitc run` prints: the proof on a board, and what was measured there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import first_name, shown
from emitc.report.tables import ratio, table

if TYPE_CHECKING:
    from emitc.boards.result import RunResult
    from emitc.compiled import Compiled


def run_text(compiled: Compiled, result: RunResult) -> str:
    """A proof on a board and its numbers."""
    macs = compiled.program.macs
    rows: list[tuple[str, object]] = [("cases", result.cases)]
    if result.reference:
        rows.append(("expected outputs of", result.reference))
    rows.append(("differing bytes", result.differing_bytes))
    if not result.bound.exact:
        rows += [
            (f"floats beyond {result.bound}", result.differing),
            ("floats of other bits within it", result.tolerated),
            ("largest difference", f"{result.max_abs_diff:g}"),
        ]
    rows += [
        (f"{result.unit} ({result.counter})", result.count),
        ("per multiply-accumulate", ratio(result.count, macs)),
        ("stack bytes", result.stack_bytes),
        ("flash bytes of the model", result.model_flash_bytes),
        ("  code", result.code_bytes),
        ("  constants", result.constant_bytes),
        ("flash bytes of the image", result.flash_bytes),
        ("arena bytes", result.arena_bytes),
    ]
    lines = [
        f"{shown(compiled.program.origin.model_file)} on {result.board}: {'MATCH' if result.match else 'MISMATCH'}",
        table(("", "value>"), [(what, "-" if value is None else value) for what, value in rows]),
    ]
    if compiled.host_hooks():
        lines.append(
            "the board has no such accelerator: its results are played back from the host model, its time is not counted"
        )
    if result.layers:
        layers = [
            (each.index, each.op, first_name(each.name), each.count, each.macs, ratio(each.count, each.macs))
            for each in result.layers
        ]
        lines += ["", table(("op>", "type", "name", f"{result.unit}>", "MACs>", "per MAC>"), layers)]
    return "\n".join(lines)
