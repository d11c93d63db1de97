"""`emitc plan`: the arena of one model as text, JSON or a picture, and the memory of several models together."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emitc.cli.options import (
    CompilingCommand,
    compiled_model,
    force_option,
    input_files,
    json_option,
    model_options,
    options_of,
    path_option,
    print_result,
    reported,
)
from emitc.errors import EmitcError, Where

if TYPE_CHECKING:
    from emitc.compiled import Compiled
    from emitc.emit.output_file import OutputFile
    from emitc.program import Move, RowSegment, Step
    from emitc.report.picture import Picture, StepLabel


@click.command("plan", cls=CompilingCommand, short_help="Show the arena of MODEL, as text or drawn.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path(path_type=Path))
@model_options
@path_option("--svg", help="Draw the arena, steps by addresses, to this file.")
@path_option("--html", help="The same drawing with a table, as one page.")
@click.option("--pareto", is_flag=True, help="Show what smaller arenas cost, by estimate, instead of one plan.")
@click.option("--together", is_flag=True, help="Plan several models in one arena; they never run at the same time.")
@click.option("--concurrent", is_flag=True, help="With --together: they may run at the same time.")
@path_option("-o", "--output", help="With --together: write the header NAME_together.h into this directory.")
@force_option
@json_option
def plan(
    models: tuple[Path, ...],
    svg: Path | None,
    html: Path | None,
    pareto: bool,
    together: bool,
    concurrent: bool,
    output: Path | None,
    force: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Show the arena of MODEL: every buffer, its offset and lifetime, and the proof."""
    drawing = "--svg" if svg else "--html"
    with reported(as_json):
        if together:
            _refuse(svg or html, drawing, "a picture shows the arena of one model", "plan it alone")
            _together(models, values, concurrent, output, force, as_json)
            return
        alone = "plan them alone, or with --together"
        _refuse(len(models) > 1, "MODEL...", "several models have several arenas", alone)
        _refuse(concurrent, "--concurrent", "it says how several models share an arena", "add --together")
        _refuse(output, "-o", "it is where the header of --together goes", "use --svg or --html, or emitc compile -o")
        if pareto:
            _refuse(svg or html, drawing, "--pareto shows several plans", "draw one of them alone")
            _pareto({**values, "model": models[0]}, as_json)
            return
        pictures = _picture_files(svg, html, input_files({**values, "models": models}), force)
        compiled = compiled_model({**values, "model": models[0]})
        _draw(compiled, *pictures)
        from emitc.emit.manifest import memory_plan
        from emitc.report.plan import plan_text

        print_result(memory_plan(compiled.program), as_json, lambda: plan_text(compiled))


def _pareto(values: dict[str, Any], as_json: bool) -> None:
    """Prints arena against cycles."""
    from emitc.explore.pareto import front
    from emitc.report.plan import pareto_text

    points = [asdict(point) for point in front(values["model"], options_of(values, "plain"))]
    print_result({"pareto": points}, as_json, lambda: pareto_text(points))


def _refuse(wrong: object, option: str, why: str, hint: str) -> None:
    if wrong:
        raise EmitcError(f"{option} does not go with the other arguments", Where(option=option), why, hint)


def _picture_files(
    svg: Path | None, html: Path | None, inputs: tuple[Path, ...], force: bool
) -> tuple[OutputFile | None, OutputFile | None]:
    """Where the drawing and the page go, checked before the model is compiled; None for what is not asked for."""
    from emitc.emit.output_file import OutputFile
    from emitc.report.picture import HTML_MARK, SVG_MARK

    _refuse(svg is not None and svg == html, "--html", "the drawing has the same name", "give each file its own name")
    files = (
        OutputFile(svg, "--svg", SVG_MARK.encode("ascii"), inputs, force) if svg else None,
        OutputFile(html, "--html", HTML_MARK.encode("ascii"), inputs, force) if html else None,
    )
    for file in files:
        if file is not None:
            file.check()
    return files


def _draw(compiled: Compiled, svg: OutputFile | None, html: OutputFile | None) -> None:
    """Writes the pictures that are asked for."""
    if svg is None and html is None:
        return
    from emitc.report.picture import html_page, plan_svg

    picture = arena_picture(compiled)
    if svg is not None:
        svg.write(plan_svg(picture).encode("utf-8"))
    if html is not None:
        html.write(html_page(picture).encode("utf-8"))


def arena_picture(compiled: Compiled) -> Picture:
    """The picture of a compiled model's arenas, a panel each, with the buffers under their names in the C source."""
    from emitc.program import SlotKind
    from emitc.report.picture import Bar, Panel, Picture

    program = compiled.program
    ends = {port.tensor: "input" for port in program.inputs} | {port.tensor: "output" for port in program.outputs}
    panels = []
    regions = {region.name: region for region in program.regions}
    for region, plan in program.arenas:
        bars = tuple(
            Bar(
                slot.name.removeprefix("AT_").lower(),
                slot.size_bytes,
                slot.offset_bytes,
                slot.first,
                slot.end,
                slot.what,
                "scratch" if slot.kind in (SlotKind.SCRATCH, SlotKind.STAGED) else ends.get(placement.name, "tensor"),
            )
            for slot, placement in zip(program.slots, program.plan.placements, strict=True)
            if slot.region == region
        )
        if bars or not region:
            limit, claim = (regions[region].limit_bytes, regions[region].claim) if region else (0, "")
            title = region or "arena"
            panels.append(Panel(title, plan.arena_bytes, bars, plan.lower_bound_bytes, plan.peak_step, limit, claim))
    steps = tuple(_stage_label(stage) for stage in program.schedule)
    said = f"arenas in {len(program.regions)} regions, {program.plan.arena_bytes} bytes" if regions else program.proof
    return Picture(program.origin.model_file, said, steps, tuple(panels))


def _stage_label(stage: Step | Move | RowSegment) -> StepLabel:
    """What a stage of the memory plan runs: a layer, a move, or several layers row by row."""
    from emitc.program import Move, RowSegment
    from emitc.report.picture import StepLabel

    if isinstance(stage, Move):
        return StepLabel("move")
    if isinstance(stage, RowSegment):
        last = stage.last.step
        return StepLabel(f"ops {stage.calls[0].step.index} to {last.index}", "row by row")
    return StepLabel(f"{stage.index} {stage.op_type}")


def _together(
    models: tuple[Path, ...],
    values: dict[str, Any],
    concurrent: bool,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Plans the models in one arena; --name is the header's, the models keep theirs."""
    from emitc.emit.output_file import OutputFile
    from emitc.explore.shared_arena import HEADER_MARK, together, together_header
    from emitc.report.plan import shared_arena_text

    programs = [compiled_model({**values, "model": model, "name": ""}).program for model in models]
    memory = together(programs, concurrent=concurrent, name=values["name"])
    content = memory.to_json()
    if output is not None:
        inputs = input_files({**values, "models": models})
        file = OutputFile(output / memory.header_name, "-o", HEADER_MARK, inputs, force)
        file.write(together_header(memory).encode("ascii"))
        content |= {"file": memory.header_name}
    print_result(content, as_json, lambda: shared_arena_text(content))
