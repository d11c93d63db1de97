"""The report of one model: everything that is known of it on one page."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from emitc.compiled import Compiled
from emitc.errors import first_name
from emitc.records import dataclass, field, replace
from emitc.report.page import page
from emitc.report.page.view import Layer, View
from emitc.report.picture import Panel, Picture, StepLabel, plan_svg
from emitc.report.picture.model import shown_name
from emitc.report.tables import number
from emitc.target import Board

_LONGEST = 160
_PROVEN = ("reference", "samples", "elements", "differing", "rule", "max_abs_diff")


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known in addition to the manifest.

    edges: by index of each layer, what it reads, as `Layer.inputs`. ends: what makes each output. estimated: cycles of each layer
    by the estimate that ranks kernels. run, proof: the objects of `emitc run --json` and `emitc verify --json`. reasons: by
    index, why the backend runs the layer, and why others do not. skipped: why there is no proof.
    """

    board: Board | None = None
    edges: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    ends: tuple[int | None, ...] = ()
    estimated: Mapping[int, int] = field(default_factory=dict)
    reasons: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    run: Mapping[str, Any] | None = None
    proof: Mapping[str, Any] | None = None
    skipped: str = ""


def findings_of(compiled: Compiled) -> Findings:
    """What a compiled model says in addition to its manifest."""
    program = compiled.program
    makers = {port.tensor: -1 - k for k, port in enumerate(program.inputs)}
    # A view has another name than its tensor, and the same bytes: who wrote them last is its maker.
    writers = {port.address: -1 - k for k, port in enumerate(program.inputs) if port.address is not None}
    edges: dict[int, tuple[int, ...]] = {}
    for step in program.steps:
        sources = [makers.get(operand.tensor, writers.get(operand.address)) for operand in step.inputs]
        edges[step.index] = tuple(maker for maker in sources if maker is not None)
        makers |= {operand.tensor: step.index for operand in step.outputs}
        writers |= {operand.address: step.index for operand in step.outputs}
    ends = tuple(
        makers.get(port.tensor, writers.get(port.address) if port.address else None) for port in program.outputs
    )
    nodes = compiled.partition.to_json()["nodes"]
    reasons = {
        node["index"]: (node["reason"], "; ".join(f"{r['backend']}: {r['reason']}" for r in node["refused"]))
        for node in nodes
    }
    return Findings(
        edges=edges, ends=ends, estimated={n["index"]: n["estimated_cycles"] for n in nodes}, reasons=reasons
    )


def model_page(view: View, findings: Findings) -> str:
    layers = [replace(layer, inputs=findings.edges.get(layer.index, ())) for layer in view.layers]
    counted, unit = _counted(findings.run)
    return page(
        "model.html.j2",
        title=shown_name(view.name, _LONGEST),
        subtitle=f"{shown_name(view.file, _LONGEST)} for {view.target}, compiled by emitc {shown_name(view.emitc, 40)}",
        tiles=_tiles(view, findings),
        ports=[_port("input", p) for p in view.inputs] + [_port("output", p) for p in view.outputs],
        layers=_rows(layers, findings, counted),
        unit=unit,
        estimated=bool(findings.estimated),
        graph=graph_svg(layers, [p.name for p in view.inputs], [p.name for p in view.outputs], findings.ends),
        arena=arena_svg(view),
        proofs=[f"{name}: {claim}" for name, _, claim in view.regions] or [view.proof],
        gauges=_gauges(view, findings),
        board=findings.board,
        backends=_backends(view),
        reasons=[
            {"index": layer.index, "op": layer.op, "backend": layer.backend, "why": why, "refused": refused}
            for layer in layers
            for why, refused in [findings.reasons.get(layer.index, ("", ""))]
        ]
        if findings.reasons
        else [],
        proof=findings.proof and {name: findings.proof.get(name) for name in _PROVEN},
        skipped=findings.skipped or "It was not asked for: emitc verify proves a model.",
        facts=_facts(view, findings),
        notes=[shown_name(note, 400) for note in view.notes],
        passes=[row for row in view.passes if row[1]],
    )


def _tiles(view: View, findings: Findings) -> list[dict[str, str]]:
    run, proof = findings.run or {}, findings.proof
    tiles = [
        ("arena, bytes", number(view.arena_bytes), "good" if view.proven else ""),
        ("lower bound, bytes", number(view.bound_bytes), ""),
        ("constants, bytes", number(view.constant_bytes), ""),
        ("multiply-accumulates", number(view.macs), ""),
        ("layers", number(len(view.layers)), ""),
    ]
    if view.state_bytes:
        tiles.append(("state, bytes", number(view.state_bytes), ""))
    if findings.estimated and not run:
        tiles.append(("cycles, estimated", number(sum(findings.estimated.values())), ""))
    known = (("instructions", "instructions"), ("cycles", "cycles"), ("ms, estimated", "ms_estimated"))
    known += (("flash of the model, bytes", "model_flash_bytes"), ("stack, bytes", "stack_bytes"))  # type: ignore[assignment]
    tiles += [
        (name, number(run[key]) if isinstance(run[key], int) else f"{run[key]:g}", "")
        for name, key in known
        if isinstance(run.get(key), int | float)
    ]
    if proof is not None or run:
        match = (proof is None or proof["match"]) and run.get("match", True)
        tiles.append(("proof", "MATCH" if match else "MISMATCH", "good" if match else "bad"))
    return [{"name": name, "value": value, "kind": kind} for name, value, kind in tiles]


def _port(kind: str, port: Any) -> dict[str, Any]:
    shape = ", ".join(map(str, port.shape))
    quantized = "" if port.scale is None else f"{port.scale:.6g}, {port.zero_point}"
    text = f"{port.dtype}[{shape}]"
    return {"kind": kind, "name": shown_name(port.name), "type": text, "bytes": port.size_bytes, "quantized": quantized}


def _counted(run: Mapping[str, Any] | None) -> tuple[dict[int, int], str]:
    """What was counted of each layer, and in which unit."""
    rows: Sequence[Mapping[str, Any]] = (run or {}).get("layers") or ()
    unit = next((name for name in ("instructions", "cycles", "microseconds") if rows and name in rows[0]), "")
    return {row["index"]: row[unit] for row in rows}, unit


def _rows(layers: Sequence[Layer], findings: Findings, counted: Mapping[int, int]) -> list[dict[str, Any]]:
    """The rows of the table. Bars are percent of the largest value of their column."""
    costs = counted or findings.estimated
    most = {
        "macs": max((layer.macs for layer in layers), default=0),
        "cost": max((costs.get(layer.index, 0) for layer in layers), default=0),
        "arena": max((layer.arena_bytes for layer in layers), default=0),
    }

    def percent(value: int, of: str) -> int:
        return round(100 * value / most[of]) if most[of] else 0

    return [
        {
            "index": layer.index,
            "op": layer.op,
            "name": shown_name(first_name(layer.name), _LONGEST),
            "macs": layer.macs,
            "macs_percent": percent(layer.macs, "macs"),
            "constants": layer.constant_bytes,
            "output": layer.output_bytes,
            "kernel": layer.kernel,
            "variant": layer.variant,
            "backend": layer.backend,
            "estimated": findings.estimated.get(layer.index),
            "counted": counted.get(layer.index),
            "cost_percent": percent(costs.get(layer.index, 0), "cost"),
            "arena": layer.arena_bytes,
            "arena_percent": percent(layer.arena_bytes, "arena"),
        }
        for layer in layers
    ]


def _gauges(view: View, findings: Findings) -> list[dict[str, Any]]:
    """What the model takes of the board's memories."""
    if findings.board is None:
        return []
    flash = (findings.run or {}).get("model_flash_bytes") or view.constant_bytes
    stack = (findings.run or {}).get("stack_bytes") or 0
    what = "code and constants" if (findings.run or {}).get("model_flash_bytes") else "constants, without code"
    of_ram = "arena, state and stack" if stack else "arena and state"
    rows = [
        (f"flash: {what}", flash, findings.board.flash_bytes),
        (f"RAM: {of_ram}", view.arena_bytes + view.state_bytes + stack, findings.board.ram_bytes),
    ]
    return [
        {"name": name, "used": used, "of": of, "percent": min(100, round(100 * used / of, 1)), "over": used > of}
        for name, used, of in rows
        if of
    ]


def _backends(view: View) -> list[dict[str, Any]]:
    names = dict.fromkeys(layer.backend for layer in view.layers)
    own = {name: [layer for layer in view.layers if layer.backend == name] for name in names}
    return [
        {
            "backend": name,
            "layers": len(part),
            "macs": sum(layer.macs for layer in part),
            "percent": round(100 * sum(layer.macs for layer in part) / view.macs, 1) if view.macs else 0.0,
        }
        for name, part in own.items()
    ]


def _facts(view: View, findings: Findings) -> list[tuple[str, str]]:
    options = {key: value for key, value in view.options.items() if value not in (None, "", [], {}, False)}
    facts = [
        ("SHA-256 of the model", view.sha256),
        ("written by", shown_name(view.producer, _LONGEST) or "not stated"),
        ("options", ", ".join(f"{key}={shown_name(str(value), 80)}" for key, value in options.items())),
    ]
    if findings.run:
        facts.append(
            ("measured on", f"{findings.run.get('board')}; expected outputs from {findings.run.get('reference')}")
        )
    return facts


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
        bars = tuple(bar for place, bar in view.buffers if place == region)
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
        f'<text x="{_LEFT + 8}" y="{_top(row) + 17}">{escape(label)}</text>'
        f"<title>{escape(shown_name(what, 300))}</title>"
    )
    return f'<a href="{target}">{box}</a>' if target else f"<g>{box}</g>"
