"""`emitc cost`: what MODEL costs on a target, without compiling the C."""

from __future__ import annotations

from typing import Any

import click

from emitc.cli import options as shared


@click.command("cost", cls=shared.CompilingCommand, short_help="Estimate what MODEL costs, without a C compiler.")
@shared.compile_options
@shared.json_option
def cost(as_json: bool, **values: Any) -> None:
    """Arena, flash, instructions and cycles of MODEL on a target, without a C compiler. The arena is exact."""
    with shared.reported(as_json):
        from emitc.explore.cost import cost as cost_of_file
        from emitc.report.cost import cost_text

        estimate = cost_of_file(values["model"], options=shared.options_of(values, "plain"))
        shared.print_result(estimate.to_json(), as_json, lambda: cost_text(estimate))
