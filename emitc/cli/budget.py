"""The options of a budget: limits of what a model may take, and a file with limits; exit code 1 where one is exceeded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli import options as shared

if TYPE_CHECKING:
    from emitc.boards.measurement import Measurement
    from emitc.compiled import Compiled
    from emitc.explore.budget import Compared, Figure

Function = Callable[..., Any]
_OPTIONS = (
    click.option("--max-arena", type=shared.size_in_bytes, metavar="BYTES", help="Exit code 1 for a larger arena."),
    click.option(
        "--max-flash", type=shared.size_in_bytes, metavar="BYTES", help="The same for code and constants of the model."
    ),
    click.option("--max-stack", type=shared.size_in_bytes, metavar="BYTES", help="The same for the stack."),
    click.option("--max-instructions", type=click.IntRange(0), help="The same for the instructions of one inference."),
    click.option("--max-ms", type=click.FloatRange(0), help="The same for its time in ms, at the board's clock."),
    shared.path_option("--budget", help="A TOML file with such limits (docs/cli.md); options replace its limits."),
)


def budget_options(function: Function) -> Function:
    """--max-... and --budget."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def limits_of(values: Mapping[str, Any], model: str) -> dict[str, float]:
    """The limits that a command line and its file state for a model. Raises what `read_budget` raises."""
    from emitc.explore.budget import LIMITS, read_budget

    file: Path | None = values["budget"]
    limits = read_budget(file, model) if file is not None else {}
    return limits | {name: values[f"max_{name}"] for name in LIMITS if values[f"max_{name}"] is not None}


def of_compiled(compiled: Compiled, limits: Mapping[str, float], board: str | None) -> tuple[Compared, ...]:
    """The limits against what is known without a run: flash, instructions and time are estimates."""
    from emitc.explore.budget import Figure, compared

    if not limits:
        return ()
    from emitc.explore.cost import cost_of
    from emitc.target import load_board

    cost = cost_of(compiled.partition, compiled.program, compiled.options.optimize)
    clock = load_board(board).clock_hz if board else 0
    code = "only `emitc run` knows the code of this target"
    counted = cost.instructions if cost.source else None
    figures = {
        "arena": Figure(cost.arena_bytes),
        "flash": Figure(cost.flash_bytes if cost.code_bytes else None, code, estimated=True),
        "stack": Figure(compiled.stack.size_bytes if compiled.stack else None, "add --stack"),
        "instructions": Figure(counted, "only `emitc run` counts the instructions of this target", estimated=True),
        "ms": Figure(
            cost.milliseconds(clock) if clock and counted is not None else None,
            "add --board, whose clock it is at, with a core whose instructions were counted",
            estimated=True,
        ),
    }
    return compared(limits, figures)


def of_measurement(result: Measurement, limits: Mapping[str, float]) -> tuple[Compared, ...]:
    """The limits against a measurement."""
    from emitc.explore.budget import Figure, compared

    if not limits:
        return ()
    figures: dict[str, Figure] = {
        "arena": Figure(result.arena_bytes),
        "flash": Figure(result.model_flash_bytes, "choose a board whose image tells it"),
        "stack": Figure(result.stack_bytes, "choose a board where it is measured"),
        "instructions": Figure(result.instructions, "choose an emulated board, where they are counted"),
        "ms": Figure(result.milliseconds, "choose a board whose core's timing is known", estimated=True),
    }
    return compared(limits, figures)


def budget_json(rows: Sequence[Compared]) -> dict[str, Any]:
    """For --json; nothing where there is no limit."""
    return {"budget": [row.to_json() for row in rows]} if rows else {}
