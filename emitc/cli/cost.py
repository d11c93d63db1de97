"""`emitc cost`: what MODEL costs on a target, without compiling the C unless asked to."""

from typing import Any

import click

from emitc.cli import options as shared


@click.command("cost", cls=shared.CompilingCommand, short_help="Estimate what MODEL costs, without a C compiler.")
@shared.compile_options
@click.option(
    "--link", is_flag=True, help="Compile and link the C with the target's compiler, so that flash is exact too."
)
@shared.json_option
def cost(as_json: bool, link: bool, **values: Any) -> None:
    """Arena, flash, instructions and cycles of MODEL on a target, without a C compiler. The arena is exact."""
    with shared.reported(as_json):
        from emitc.report.cost import cost_text

        options = shared.options_of(values, "plain")
        if link:
            from emitc.boards.linked_cost import linked_cost

            estimate = linked_cost(values["model"], options)
        else:
            from emitc.explore.cost import cost as cost_of_file

            estimate = cost_of_file(values["model"], options=options)
        shared.print_result(estimate.to_json(), as_json, lambda: cost_text(estimate))
