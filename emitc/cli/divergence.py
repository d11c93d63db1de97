"""--find-divergence of `emitc run` and `emitc flash`: the first layer that a board computes otherwise than this machine."""

import shlex
from pathlib import Path
from typing import Any

import click

from emitc.cli import options as shared
from emitc.errors import EmitcError, Where, shown

option = shared.flag(
    "--find-divergence",
    "Compare every layer with this machine's; name the first wrong layer and element, instead of measuring.",
)


def wanted(values: dict[str, Any], estimate_for: str | None = None) -> bool:
    """Whether a command line asks for a search. Raises click.UsageError for measurements together with it."""
    if values["find_divergence"] and (values["layers"] or estimate_for):
        raise click.UsageError("--find-divergence measures nothing: leave --layers and --estimate-for out")
    return bool(values["find_divergence"])


def on_emulators(boards: tuple[str, ...], workdir: Path | None, as_json: bool, values: dict[str, Any]) -> int:
    """Searches on one board after the other; the exit code."""
    with shared.reported(as_json):
        from emitc.boards.divergence_run import search_on_emulator
        from emitc.report.run import divergence_text
        from emitc.target import load_board

        searches, texts = [], []
        for board in dict.fromkeys(boards):
            compiled = shared.compiled_model(values, "platformio", load_board(board).target)
            folder = workdir / board if workdir else None
            search = search_on_emulator(compiled, board, samples=values["samples"], seed=values["seed"], workdir=folder)
            searches.append(search)
            texts.append(divergence_text(compiled.program.origin.model_file, search))
        match = all(search.divergence is None for search in searches)
        several = {"match": match, "runs": [search.to_json() for search in searches]}
        content = several if len(searches) > 1 else searches[0].to_json()
        shared.print_result(content, as_json, lambda: "\n\n".join(texts))
    return 0 if match else 1


def on_silicon(
    board: str, port: str | None, output: Path | None, as_json: bool, dry_run: bool, values: dict[str, Any]
) -> int:
    """Searches on a real board; the exit code."""
    with shared.reported(as_json):
        from emitc.boards.divergence_run import search_on_silicon, write_search_project
        from emitc.report.run import divergence_text
        from emitc.target import load_board

        described = load_board(board)
        if described.kind != "silicon":
            where, hint = Where(option=f"--board {board}"), f"emitc run --board {board} --find-divergence"
            raise EmitcError(f"{described.title} is emulated", where, "there is nothing to flash", hint)
        compiled = shared.compiled_model(values, "platformio", described.target)
        name = compiled.program.name
        project = output or Path(f"{name}-{board}")
        expected = write_search_project(compiled, board, project, samples=values["samples"], seed=values["seed"])
        if dry_run:
            content = {"board": board, "project": str(project), "dry_run": True}
            by_hand = f"pio run -d {shlex.quote(str(project))} -t upload"
            text = f"project for {board} written to {shown(str(project))}: {by_hand}"
            shared.print_result(content, as_json, lambda: text)
            return 0
        search = search_on_silicon(
            name, board, project, expected, port=port, say=lambda line: click.echo(line, err=True)
        )
        file = compiled.program.origin.model_file
        shared.print_result(search.to_json(), as_json, lambda: divergence_text(file, search))
    return 0 if search.divergence is None else 1
