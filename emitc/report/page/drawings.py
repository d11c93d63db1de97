"""The drawings of a report: the arenas by address and step, and the graph from its inputs to its outputs."""

from collections.abc import Sequence
from html import escape

from emitc.report.page.view import Layer, View
from emitc.report.picture import Bar, Panel, Picture, StepLabel, plan_svg
from emitc.report.picture.model import shown_name

MOST_STEPS, MOST_BARS = 1200, 1500
"""Of a drawing of the arena: what is larger nobody reads, and a browser draws it slowly."""
MOST_NODES = 1500
_WIDTH, _HEIGHT, _GAP, _LEFT = 360, 26, 16, 24
_ARC, _MOST_ARC = 12, 420
_CHARACTERS = 46


def arena_svg(view: View) -> str:
    """The drawing of all arenas, with the names of the model's tensors; "" where it would be too large."""
    if len(view.stages) > MOST_STEPS or len(view.buffers) > MOST_BARS or not view.buffers:
        return ""
    regions = view.regions or (("", view.arena_bytes, ""),)
    panels = []
    for region, size, claim in regions:
        bars = tuple(
            Bar(b.name, b.size_bytes, b.offset_bytes, b.first, b.end, b.what, b.kind)
            for b in view.buffers
            if b.region == region
        )
        bound, peak = (0, -1) if region else (view.bound_bytes, view.peak_stage)
        panels.append(Panel(region or "arena", size, bars, bound, peak, 0, claim))
    steps = tuple(StepLabel(stage) for stage in view.stages)
    return plan_svg(Picture(view.file, view.proof, steps, tuple(panels)))


def graph_svg(
    layers: Sequence[Layer], inputs: Sequence[str], outputs: Sequence[str], ends: Sequence[int | None]
) -> str:
    """The layers in the order in which they run, one under another; what a layer reads from farther up is an arc.

    ends: what makes each output, as `Layer.inputs`.

    "" where there are too many layers, or where it is not known what reads what.
    """
    if not any(layer.inputs for layer in layers) or len(layers) + len(inputs) > MOST_NODES:
        return ""
    rows = {-1 - k: k for k in range(len(inputs))}
    rows |= {layer.index: len(inputs) + position for position, layer in enumerate(layers)}
    lines: list[str] = []
    edges: list[tuple[int, int]] = []
    for k, name in enumerate(inputs):
        lines.append(_node(k, f"input {shown_name(name, _CHARACTERS - 6)}", "port", "", name))
    for layer in layers:
        row = rows[layer.index]
        text = f"{layer.index} {layer.op}"
        label = f"{text} {shown_name(layer.name, max(6, _CHARACTERS - len(text)))}"
        what = f"{text} {layer.name}: {layer.macs} multiply-accumulates, {layer.output_bytes} bytes of output"
        lines.append(_node(row, label, "heavy" if layer.macs else "", f"#layer-{layer.index}", what))
        edges += [(rows[source], row) for source in dict.fromkeys(layer.inputs) if source in rows]
    edges += [(rows[end], len(rows) + k) for k, end in enumerate(ends) if end is not None and end in rows]
    farthest = max((row - source for source, row in edges), default=0)
    arcs = [_edge(source, row) for source, row in edges]
    height = (len(rows) + len(outputs)) * (_HEIGHT + _GAP) + 8
    for k, name in enumerate(outputs):
        lines.append(_node(len(rows) + k, f"output {shown_name(name, _CHARACTERS - 7)}", "port", "", name))
    width = _LEFT + _WIDTH + (_reach(farthest) if farthest > 1 else 0) + 16
    return (
        f'<svg class="graph" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="group" aria-label="The layers and what each reads">\n' + "\n".join([*arcs, *lines]) + "\n</svg>"
    )


def _reach(rows: int) -> int:
    """How far to the right an arc over so many rows goes, in pixels."""
    return min(_MOST_ARC, 20 + _ARC * rows)


def _top(row: int) -> int:
    return 4 + row * (_HEIGHT + _GAP)


def _edge(source: int, row: int) -> str:
    if row - source == 1:
        x = _LEFT + _WIDTH // 2
        return f'<line class="edge" x1="{x}" y1="{_top(source) + _HEIGHT}" x2="{x}" y2="{_top(row)}"/>'
    x, y, end = _LEFT + _WIDTH, _top(source) + _HEIGHT // 2, _top(row) + _HEIGHT // 2
    far = x + _reach(row - source)
    return f'<path class="edge" d="M{x} {y}C{far} {y} {far} {end} {x} {end}"/>'


def _node(row: int, label: str, kind: str, target: str, what: str) -> str:
    box = (
        f'<rect class="node {kind}" x="{_LEFT}" y="{_top(row)}" width="{_WIDTH}" height="{_HEIGHT}" rx="5"/>'
        f'<text x="{_LEFT + 8}" y="{_top(row) + 17}">{escape(label, quote=True)}</text>'
        f"<title>{escape(shown_name(what, 300), quote=True)}</title>"
    )
    return f'<a href="{target}">{box}</a>' if target else f"<g>{box}</g>"
