"""`--check` and `--no-check` of `emitc compile`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from emitc.cli_options import error_json

if TYPE_CHECKING:
    from emitc.compiler import Compiled
    from emitc.validation import Validation

Function = TypeVar("Function", bound=Callable[..., Any])


def check_option(function: Function) -> Function:
    """--check and --no-check; None where neither is given."""
    return click.option(
        "--check/--no-check",
        "check",
        default=None,
        help="Compare the graph after every pass with the graph as it was built; default: for models that are not large.",
    )(function)


def checked(compiled: Compiled, check: bool | None, as_json: bool) -> Validation | None:
    """The validation of a compilation, None where there was none. Leaves with exit code 1 where a step is wrong."""
    if check is False:
        return None
    from emitc.validation import validate, validate_unasked, wrong_step

    found = validate(compiled) if check else validate_unasked(compiled)
    if found is None or found.wrong is None:
        return found
    error = wrong_step(compiled, found.wrong)
    click.echo(str(error), err=True)
    if as_json:
        click.echo(json.dumps(error_json(error) | found.to_json()))
    raise SystemExit(error.exit_code)


def check_line(found: Validation | None, check: bool | None) -> str:
    """What the text of a compilation says of it: nothing where it was done unasked, or switched off."""
    if found is not None:
        return f"\n  check       {found.text()}" if check else ""
    return "" if check is False else "\n  check       left out, since the model is large: --check asks for it"
