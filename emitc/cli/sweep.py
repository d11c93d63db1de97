"""`emitc sweep`: models by targets, boards, kernels, budgets, options and data, as one table."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from emitc.cli import options as shared

_MOST_SHARDS = 10_000


def _shard(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[int, int]:
    """PART/PARTS, the first part is 1."""
    if text is None:
        return 1, 1
    match = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text, re.ASCII)
    part, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part <= parts <= _MOST_SHARDS:
        raise click.BadParameter(f"{text!r} is not PART/PARTS, for example 3/16", ctx, param)
    return part, parts


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """On a terminal a bar with count, jobs in a minute and the time that is left; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as shown
    from rich.console import Console

    columns = (
        shown.TextColumn("sweep"),
        shown.BarColumn(),
        shown.MofNCompleteColumn(),
        shown.TextColumn("{task.fields[rate]}"),
        shown.TextColumn("left"),
        shown.TimeRemainingColumn(),
    )
    with shown.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sweep", total=None, rate="")
        first = [0]

        def update(done: int, total: int) -> None:
            if bar.tasks[0].total is None:
                # What earlier runs have found says nothing about how fast this one is.
                first[0] = done
                bar.update(task, total=total - done)
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = f"{60 * (done - first[0]) / elapsed:.0f}/min" if elapsed > 1 else ""
            bar.update(task, completed=done - first[0], rate=rate)

        yield update


@click.command("sweep", short_help="Compile and measure many models, targets and options as one table.")
@click.argument("spec", type=click.Path(path_type=Path))
@shared.path_option("-o", "--output", required=True, help="Directory of the tables; a sweep that was stopped goes on.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes of this machine.")
@click.option("--scheduler", default="", metavar="ADDRESS", help="Run on a Dask scheduler, such as tcp://host:8786.")
@click.option(
    "--shard", callback=_shard, metavar="PART/PARTS", help="Only every PARTS-th job, from the PART-th on: 3/16."
)
@shared.path_option("--root", help="Folder of the files that SPEC names; default: the folder of SPEC.")
@shared.json_option
def sweep(
    spec: Path,
    output: Path,
    workers: int,
    scheduler: str,
    shard: tuple[int, int],
    root: Path | None,
    as_json: bool,
) -> None:
    """Compile, prove and measure every combination that the TOML file SPEC describes, and write one table of it."""
    with shared.reported(as_json):
        from emitc.report.sweep import sweep_page, sweep_text
        from emitc.sweep.spec import read_spec
        from emitc.sweep.sweep import SweepOptions, run_sweep

        described = read_spec(spec, root)
        with _progress() as progress:
            title = spec.stem
            options = SweepOptions(output, workers, scheduler, shard, progress, lambda rows: sweep_page(title, rows))
            result = run_sweep(described, options)
        content = result.summary() | {"output": str(output)}
        shared.print_result(content, as_json, lambda: sweep_text(result, output))
    raise SystemExit(0 if result.good else 1)
