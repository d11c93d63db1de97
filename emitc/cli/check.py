"""`--check` and `--no-check` of `emitc compile`, and `emitc dump`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli import options as shared
from emitc.errors import Note, NoteCode, unknown_choice

if TYPE_CHECKING:
    from emitc.compiled import Compiled
    from emitc.validation import Validation


check_option = click.option(
    "--check/--no-check",
    "check",
    default=None,
    help="Compare the graph after every pass with the graph as it was built; default: for models that are not large.",
)
"""--check and --no-check; None where neither is given."""


def checked(compiled: Compiled, check: bool | None, as_json: bool) -> Validation | None:
    """The validation of a compilation, None where there was none. Leaves with exit code 1 where a step is wrong."""
    if check is False:
        return None
    from emitc.validation import validate, validate_unasked, wrong_step

    validation = validate(compiled) if check else validate_unasked(compiled)
    if validation is None or validation.wrong is None:
        return validation
    error = wrong_step(compiled, validation.wrong)
    click.echo(str(error), err=True)
    if as_json:
        click.echo(json.dumps(shared.error_json(error) | validation.to_json()))
    raise SystemExit(error.exit_code)


def check_line(validation: Validation | None, check: bool | None) -> str:
    """What the text of a compilation says of it: nothing where it was not asked for."""
    return f"\n  check       {validation.text()}" if validation is not None and check else ""


UNCHECKED = Note(NoteCode.UNCHECKED, "left out for a large model, or for a loop that may not end: --check asks for it")
"""For a compilation without a check, where nobody has switched it off."""


@click.command("dump", cls=shared.CompilingCommand, short_help="Print MODEL as it is after a step of the compilation.")
@shared.compile_options
@click.option(
    "--after",
    "level",
    required=True,
    help="source | graph | the name of a pass, --io or --input-rows | partition | schedule | plan | program",
)
@shared.path_option("-o", "--output", help="Write to this file.")
@shared.force_option
@shared.json_option
def dump(level: str, output: Path | None, force: bool, as_json: bool, **values: Any) -> None:
    """Print MODEL as it is after a step of the compilation: one line for each tensor, operator and buffer."""
    with shared.reported(as_json):
        from emitc import listing
        from emitc.emit.output_file import OutputFile

        if level not in listing.LEVELS:
            raise unknown_choice("--after", level, listing.LEVELS)
        file = OutputFile(output, "-o", b"emitc_dump", shared.input_files(values), force) if output else None
        if file is not None:
            file.check()
        content = listing.dump_json(shared.compiled_model(values), level)
        if file is None:
            click.echo(json.dumps(content, allow_nan=False) if as_json else listing.dump_text(content), nl=as_json)
            return
        file.write((listing.as_json(content) if as_json else listing.dump_text(content)).encode("ascii"))
        if as_json:
            click.echo(json.dumps({"level": level, "file": str(output)}))
