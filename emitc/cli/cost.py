"""What models cost: `emitc cost`, `emitc diff`, and the options of a budget, with exit code 1 where a limit is exceeded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli import options as shared

if TYPE_CHECKING:
    from emitc.boards.measurement import Measurement
    from emitc.compiled import Compiled
    from emitc.explore.budget import Compared, Figure


@click.command("cost", cls=shared.CompilingCommand, short_help="Estimate what MODEL costs, without a C compiler.")
@shared.compile_options
@shared.flag("--link", "Compile and link the C with the target's compiler, so that flash is exact too.")
@shared.json_option
def cost(as_json: bool, link: bool, **values: Any) -> None:
    """Arena, flash, instructions and cycles of MODEL on a target, without a C compiler. The arena is exact."""
    with shared.reported(as_json):
        from emitc.report.cost import cost_text

        options = shared.options_of(values, "plain")
        if link:
            from emitc.boards.target_build import linked_cost

            estimate = linked_cost(values["model"], options)
        else:
            from emitc.explore.cost import cost as cost_of_file

            estimate = cost_of_file(values["model"], options=options)
        shared.print_result(estimate.to_json(), as_json, lambda: cost_text(estimate))


_SHARE = re.compile(r"\+?(\d{1,6}(?:\.\d{1,6})?) ?%", re.ASCII)


def share(text: str) -> float:
    match = _SHARE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is no share such as +2%")
    return float(match[1]) / 100


@click.command("diff", short_help="Show what differs between two packages or measurements.")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--fail-on",
    type=share,
    metavar="+PERCENT",
    help="Exit code 1 where a figure grew by more, such as +2%, where the interface changed, or where a proof failed.",
)
@shared.flag("--markdown", "Tables for a comment on a change.")
@shared.json_option
def diff(old: Path, new: Path, fail_on: float | None, markdown: bool, as_json: bool) -> None:
    """Show what differs between OLD and NEW: packages, manifests, or what `emitc run --json` has printed."""
    with shared.reported(as_json):
        from emitc.explore.difference import difference, read_side
        from emitc.report.cost import diff_markdown, diff_text

        changes = difference(read_side(old), read_side(new))
        failed = changes.failed(fail_on) if fail_on is not None else ()
        content = changes.to_json() | {"failed": list(failed)}
        printed = diff_markdown if markdown else diff_text
        shared.print_result(content, as_json, lambda: printed(changes, failed))
    raise SystemExit(1 if failed else 0)


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


budget_options = shared.together(_OPTIONS)
"""--max-... and --budget."""


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
