"""`emitc plan`: the arena of one model as text, JSON or a picture, and the memory of several models together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli import options as shared
from emitc.errors import EmitcError, Where

if TYPE_CHECKING:
    from emitc.emit.output_file import OutputFile
    from emitc.report.picture import Picture


@click.command("plan", cls=shared.CompilingCommand, short_help="Show the arena of MODEL, as text or drawn.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path(path_type=Path))
@shared.model_options
@shared.path_option("--svg", help="Draw the arena, steps by addresses, to this file.")
@shared.path_option("--html", help="The same drawing with a table, as one page.")
@shared.flag("--pareto", "Show what smaller arenas cost, by estimate, instead of one plan.")
@shared.flag("--together", "Plan several models in one arena; they never run at the same time.")
@shared.flag("--concurrent", "With --together: they may run at the same time.")
@shared.path_option("-o", "--output", help="With --together: write the header NAME_together.h into this directory.")
@shared.force_option
@shared.json_option
def plan(models: tuple[Path, ...], pareto: bool, together: bool, as_json: bool, **values: Any) -> None:
    """Show the arena of MODEL: every buffer, its offset and lifetime, and the proof."""
    drawn = "--svg" if values["svg"] else "--html" if values["html"] else ""
    with shared.reported(as_json):
        if together:
            _refuse(drawn, drawn, "a picture shows the arena of one model", "plan it alone")
            _together({**values, "models": models}, as_json)
            return
        alone = "plan them alone, or with --together"
        _refuse(len(models) > 1, "MODEL...", "several models have several arenas", alone)
        _refuse(values["concurrent"], "--concurrent", "it says how several models share an arena", "add --together")
        other = "use --svg or --html, or emitc compile -o"
        _refuse(values["output"], "-o", "it is where the header of --together goes", other)
        values["model"] = models[0]
        if pareto:
            _refuse(drawn, drawn, "--pareto shows several plans", "draw one of them alone")
            _pareto(values, as_json)
            return
        pictures = _pictures(values)
        compiled = shared.compiled_model(values)
        from emitc.emit.manifest import memory_plan
        from emitc.report.plan import plan_text

        if pictures:
            from emitc.report.picture import arena_picture

            picture = arena_picture(compiled)
            for file, draw in pictures:
                file.write(draw(picture).encode("utf-8"))
        shared.print_result(memory_plan(compiled.program), as_json, lambda: plan_text(compiled))


def _pareto(values: dict[str, Any], as_json: bool) -> None:
    from emitc.explore.pareto import front
    from emitc.report.plan import pareto_text

    points = [asdict(point) for point in front(values["model"], shared.options_of(values, "plain"))]
    shared.print_result({"pareto": points}, as_json, lambda: pareto_text(points))


def _refuse(wrong: object, option: str, why: str, hint: str) -> None:
    if wrong:
        raise EmitcError(f"{option} does not go with the other arguments", Where(option=option), why, hint)


def _pictures(values: dict[str, Any]) -> list[tuple[OutputFile, Callable[[Picture], str]]]:
    """The files of the drawing and the page, checked before the model is compiled, and what makes their text."""
    svg, html = values["svg"], values["html"]
    _refuse(svg is not None and svg == html, "--html", "the drawing has the same name", "give each file its own name")
    from emitc.emit.output_file import OutputFile
    from emitc.report.picture import HTML_MARK, SVG_MARK, html_page, plan_svg

    files: list[tuple[OutputFile, Callable[[Picture], str]]] = []
    for path, option, mark, draw in ((svg, "--svg", SVG_MARK, plan_svg), (html, "--html", HTML_MARK, html_page)):
        if path:
            file = OutputFile(path, option, mark.encode("ascii"), shared.input_files(values), values["force"])
            file.check()
            files.append((file, draw))
    return files


def _together(values: dict[str, Any], as_json: bool) -> None:
    """Plans the models in one arena; --name is the header's, the models keep theirs."""
    from emitc.emit.output_file import OutputFile
    from emitc.explore.shared_arena import HEADER_MARK, together, together_header
    from emitc.report.plan import shared_arena_text

    programs = [shared.compiled_model({**values, "model": model, "name": ""}).program for model in values["models"]]
    memory = together(programs, concurrent=values["concurrent"], name=values["name"])
    content = memory.to_json()
    if values["output"] is not None:
        path = values["output"] / memory.header_name
        file = OutputFile(path, "-o", HEADER_MARK, shared.input_files(values), values["force"])
        file.write(together_header(memory).encode("ascii"))
        content |= {"file": memory.header_name}
    shared.print_result(content, as_json, lambda: shared_arena_text(content))
