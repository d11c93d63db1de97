"""What `emitc run` prints: the proof on a board, and what was measured there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.errors import first_name, shown
from emitc.report.tables import table

if TYPE_CHECKING:
    from emitc.boards.result import RunResult
    from emitc.compiled import Compiled


def run_text(compiled: Compiled, result: RunResult) -> str:
    """A proof on a board and its numbers."""
    lines = [
        f"{shown(compiled.program.origin.model_file)} on {result.board}: {'MATCH' if result.match else 'MISMATCH'}"
    ]
    rows: list[tuple[str, object]] = [
        ("cases", result.cases),
        *([("expected outputs of", result.reference)] if result.reference else []),
        ("differing bytes", result.differing_bytes),
        *(
            [
                (f"floats beyond {result.bound}", result.differing),
                ("floats of other bits within it", result.tolerated),
                ("largest difference", f"{result.max_abs_diff:g}"),
            ]
            if not result.bound.exact
            else []
        ),
        (f"{result.unit} ({result.counter})", result.count),
        ("per multiply-accumulate", f"{result.count / compiled.program.macs:.2f}" if compiled.program.macs else "-"),
        ("stack bytes", "-" if result.stack_bytes is None else result.stack_bytes),
        ("flash bytes of the model", "-" if result.model_flash_bytes is None else result.model_flash_bytes),
        ("  code", "-" if result.code_bytes is None else result.code_bytes),
        ("  constants", "-" if result.constant_bytes is None else result.constant_bytes),
        ("flash bytes of the image", result.flash_bytes),
        ("arena bytes", result.arena_bytes),
    ]
    lines.append(table(("", "value>"), rows))
    if compiled.host_hooks():
        lines.append(
            "the board has no such accelerator: its results are played back from the host model, its time is not counted"
        )
    if result.layers:
        layers = [
            (
                layer.index,
                layer.op,
                first_name(layer.name),
                layer.count,
                layer.macs,
                f"{layer.count / layer.macs:.2f}" if layer.macs else "-",
            )
            for layer in result.layers
        ]
        lines += ["", table(("op>", "type", "name", f"{result.unit}>", "MACs>", "per MAC>"), layers)]
    return "\n".join(lines)
