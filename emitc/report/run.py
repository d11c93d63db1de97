"""What `emitc run` prints: the proof on a board, what was measured there, budgets and the search for a difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from emitc.errors import first_name, shown
from emitc.report.tables import figure, number, ratio, table

if TYPE_CHECKING:
    from emitc.boards.divergence import Search
    from emitc.boards.profile import Profile, Run
    from emitc.boards.result import RunResult
    from emitc.compiled import Compiled
    from emitc.explore.budget import Compared


def run_text(compiled: Compiled, result: RunResult) -> str:
    macs = compiled.program.macs
    rows: list[tuple[str, object]] = [("cases", result.cases)]
    if result.reference:
        rows.append(("expected outputs of", result.reference))
    rows.append(("differing bytes", result.differing_bytes))
    if not result.bound.exact:
        rows += [
            (f"floats beyond {result.bound}", result.differing),
            ("floats of other bits within it", result.tolerated),
            ("largest difference", f"{result.max_abs_diff:g}"),
        ]
    rows += [
        (f"{result.unit} ({result.counter})", result.count),
        *_simulation_rows(result),
        *_estimate_rows(result),
        ("per multiply-accumulate", ratio(result.count, macs)),
        ("stack bytes", result.stack_bytes),
        ("flash bytes of the model", result.model_flash_bytes),
        ("  code", result.code_bytes),
        ("  constants", result.constant_bytes),
        ("flash bytes of the image", result.flash_bytes),
        ("arena bytes", result.arena_bytes),
        *_self_test_rows(result),
    ]
    lines = [
        f"{shown(compiled.program.origin.model_file)} on {result.board}: {'MATCH' if result.match else 'MISMATCH'}",
        table(("", "value>"), [(what, "-" if value is None else value) for what, value in rows]),
    ]
    if compiled.host_hooks():
        lines.append(
            "the board has no such accelerator: its results are played back from the host model, its time is not counted"
        )
    if result.layers:
        layers = [
            (layer.index, layer.op, first_name(layer.name), layer.count, layer.macs, ratio(layer.count, layer.macs))
            for layer in result.layers
        ]
        lines += ["", table(("op>", "type", "name", f"{result.unit}>", "MACs>", "per MAC>"), layers)]
        lines += _function_lines(result)
    return "\n".join(lines)


def _self_test_rows(result: RunResult) -> list[tuple[str, object]]:
    test = result.self_test
    if test is None:
        return []
    return [
        ("self test", "passed" if test.passed else f"status {test.status}, op {test.index}"),
        (f"  {result.unit}", test.count),
        ("  stack bytes", test.stack_bytes),
        ("  flash bytes", test.flash_bytes),
        ("  flash bytes of its inputs", test.input_bytes),
    ]


def _simulation_rows(result: RunResult) -> list[tuple[str, object]]:
    simulation = result.simulation
    if simulation is None:
        return []
    return [
        ("  memory", simulation.memory),
        ("  instructions", simulation.instructions),
        ("  cycles per instruction", f"{simulation.cycles_per_instruction:.3f}"),
        *((f"  stalled: {name}", cycles) for name, cycles in simulation.stalls),
        *((f"  {name}", count) for name, count in simulation.events),
        *([("  lines read from slow memory", simulation.misses)] if simulation.misses else []),
    ]


def _estimate_rows(result: RunResult) -> list[tuple[str, object]]:
    estimate = result.estimate
    if estimate is None:
        return []
    rows: list[tuple[str, object]] = []
    for e in filter(None, (estimate, result.estimate_for)):
        rows += [
            ("cycles, estimated" if e is estimate else f"cycles, estimated for {e.board}", round(e.cycles)),
            ("  error band", f"+-{e.error_percent} %" if e.error_percent else "not known"),
            ("  constant bytes read", e.zero_wait.constant_bytes) if e is estimate else ("  memory", e.memory),
            ("  cycles per instruction", f"{e.cycles / max(1, e.zero_wait.instructions):.2f}"),
            (f"  ms at {e.clock_hz / 1e6:g} MHz", f"{e.milliseconds:.2f}"),
        ]
        if e.energy_nj_per_cycle:
            rows.append((f"  uJ at {e.energy_nj_per_cycle:g} nJ a cycle", f"{e.microjoules:.0f}"))
    return rows


def _function_lines(result: RunResult) -> list[str]:
    """The functions that took at least a hundredth of the cycles."""
    simulation = result.simulation
    if simulation is None:
        return []
    total = simulation.cycles
    rows = [
        (f.name, f.cycles, f"{f.cycles / total:.1%}", f"{f.cycles / max(1, f.instructions):.2f}")
        for f in simulation.functions
        if f.cycles * 100 >= total
    ]
    return ["", table(("function", "cycles>", "share>", "per instruction>"), rows)]


def divergence_text(model_file: str, search: Search) -> str:
    """The first layer that differs with its first wrong element, or that none does."""
    title = f"{shown(model_file)} on {search.board}"
    noise = f"\n{number(search.unreadable)} damaged lines were read again" if search.unreadable else ""
    first = search.divergence
    if first is None:
        runs = "1 run" if search.cases == 1 else f"{number(search.cases)} runs"
        return f"{title}: EQUAL\n{number(search.calls)} outputs of layers in {runs} are those of this machine{noise}"
    layer = first.layer
    wrong = f"{number(first.differing)} of {number(layer.elements)}, by {first.largest:g} at most"
    lines = [
        f"{title}: DIFFERS",
        f"first wrong layer   op {layer.index} {layer.op} {shown(first_name(layer.tensor), 100)}, case {first.case}",
        f"first wrong element {list(first.first)}: {first.got}, and {first.expected} on this machine",
        f"wrong elements      {wrong}: {first.pattern}",
        f"before it           {number(first.equal)} outputs of layers are equal",
    ]
    return "\n".join(lines) + noise


def budget_text(rows: Sequence[Compared]) -> str:
    """Every limit with its value and excess; nothing where there is no limit."""
    if not rows:
        return ""
    cells = []
    for row in rows:
        value = figure(row.value) + (" (estimate)" if row.estimated else "")
        cells.append((f"max-{row.name}", figure(row.limit), value, f"+{figure(row.over)}" if row.over else "-"))
    over = sum(1 for row in rows if row.over)
    verdict = f"OVER BUDGET: {over} of {len(rows)} limits" if over else f"within budget: {len(rows)} limits"
    return f"\n{verdict}\n{table(('limit', 'allowed>', 'value>', 'excess>'), cells)}"


TRACE_MARK = '"emitc profile"'
"""Near the start of every trace."""
_SHOWN_PROBLEMS = 20


def profile_text(profile: Profile) -> str:
    """The layers with their ticks, the mean of all runs, and what was wrong with other runs."""
    totals = [run.total for run in profile.runs]
    runs = "1 run" if len(totals) == 1 else f"{number(len(totals))} runs"
    rate = f", {number(profile.rate)} ticks a second" if profile.rate else ", ticks of unknown length"
    lines = [f"{shown(profile.model.file)}: {runs}{rate}"]
    mean = sum(totals) / len(totals)
    rows = [
        _row((layer.label, layer.op, first_name(layer.name)), ticks, layer.macs, mean, profile)
        for layer, ticks in profile.by_layer
    ]
    rows.append(_row(("", "run", ""), totals, sum(layer.macs for layer in profile.model.layers), mean, profile))
    columns = ("op>", "type", "name", "ticks>", "least>", "most>", "share>", "us>", "per MAC>")
    lines.append(table(columns, rows))
    if not profile.by_layer:
        lines.append("no layers: the application was built without EMITC_TRACE")
    lines += [f"warning: {warning}" for warning in profile.warnings[:_SHOWN_PROBLEMS]]
    if len(profile.warnings) > _SHOWN_PROBLEMS:
        lines.append(f"{number(len(profile.warnings) - _SHOWN_PROBLEMS)} more warnings; --json lists them")
    return "\n".join(lines)


def _row(
    what: tuple[object, ...], ticks: tuple[int, ...] | list[int], macs: int, whole: float, profile: Profile
) -> tuple[object, ...]:
    mean = sum(ticks) / len(ticks)
    micros = profile.microseconds(mean)
    return (
        *what,
        round(mean),
        min(ticks),
        max(ticks),
        f"{mean / whole:.1%}" if whole else "-",
        "-" if micros is None else f"{micros:.1f}",
        _ratio(mean / macs) if macs else "-",
    )


def _ratio(value: float) -> str:
    """Two decimals, or two digits where those would be lost: a slow counter has a fraction of a tick for each product."""
    return f"{value:.2f}" if value >= 0.1 or not value else f"{value:.2g}"


def trace_json(profile: Profile) -> str:
    """The runs as events of Chrome's trace format: a bar for each run, and under it one for each layer.

    Times are microseconds; where the ticks of a second are not known, a tick stands for a microsecond.
    """
    unit = "us" if profile.rate else "ticks"
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"{profile.model.name} ({unit})"}}
    ]
    for run in profile.runs:
        events.append(_event(profile, run, f"run of {profile.model.name}", (run.start, run.total), {}))
        events += _layer_events(profile, run)
    content = {
        "otherData": {"made_by": "emitc profile", "model": profile.model.file, "unit": unit},
        "displayTimeUnit": "ms",
        "traceEvents": events,
    }
    return json.dumps(content, indent=1) + "\n"


def _layer_events(profile: Profile, run: Run) -> list[dict[str, Any]]:
    events, at = [], run.start
    for layer, ticks in zip(profile.model.layers, run.layers, strict=False):
        more = {"name": layer.name, "macs": layer.macs}
        events.append(_event(profile, run, f"op {layer.label} {layer.op}", (at, ticks), more))
        at += ticks
    return events


def _event(profile: Profile, run: Run, name: str, span: tuple[int, int], more: dict[str, Any]) -> dict[str, Any]:
    """span: its start and its length in ticks. The runs of each block are a thread of their own."""

    def time(count: int) -> float:
        micros = profile.microseconds(count)
        return count if micros is None else round(micros, 3)

    start, ticks = span
    place = {"ph": "X", "cat": "emitc", "pid": 1, "tid": run.block + 1}
    return {"name": name, **place, "ts": time(start), "dur": time(ticks), "args": {"ticks": ticks, **more}}
