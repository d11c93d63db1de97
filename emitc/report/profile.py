"""What `emitc profile` prints, and the same runs as a trace for chrome://tracing and Perfetto."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from emitc.errors import first_name, shown
from emitc.report.tables import number, table

if TYPE_CHECKING:
    from emitc.boards.profile import Profile, Run

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
