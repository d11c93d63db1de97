"""`emitc diff`: what differs between two packages, manifests or measurements."""

import re
from pathlib import Path

import click

from emitc.cli import options as shared

_SHARE = re.compile(r"\+?(\d{1,6}(?:\.\d{1,6})?) ?%", re.ASCII)


def share(text: str) -> float:
    """+2% as a share."""
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
@click.option("--markdown", is_flag=True, help="Tables for a comment on a change.")
@shared.json_option
def diff(old: Path, new: Path, fail_on: float | None, markdown: bool, as_json: bool) -> None:
    """Show what differs between OLD and NEW: packages, manifests, or what `emitc run --json` has printed."""
    with shared.reported(as_json):
        from emitc.explore.difference import difference, read_side
        from emitc.report.difference import diff_markdown, diff_text

        changes = difference(read_side(old), read_side(new))
        failed = changes.failed(fail_on) if fail_on is not None else ()
        content = changes.to_json() | {"failed": list(failed)}
        printed = diff_markdown if markdown else diff_text
        shared.print_result(content, as_json, lambda: printed(changes, failed))
    raise SystemExit(1 if failed else 0)
