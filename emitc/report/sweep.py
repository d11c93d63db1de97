"""What `emitc sweep` prints, and its page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emitc.errors import shown
from emitc.report.page import page
from emitc.report.tables import number, table
from emitc.sweep.run_job import CRASHED, MISMATCH, OK, STATUSES
from emitc.sweep.sweep import Result

_NAMES = ("model", "target", "board", "kernels", "ram_budget", "options", "data")
_FILTERS = ("status", *_NAMES[1:], "metric", "proven", "match")
_NUMBERS = (
    "arena_bytes", "bound_bytes", "constant_bytes", "flash_bytes", "stack_bytes", "macs", "instructions", "cycles",
    "estimated_cycles", "estimated_ms", "accuracy", "seconds",
)  # fmt: skip
_COLUMNS = ("status", *_NAMES, "metric", *_NUMBERS, "proven", "match", "error_code", "error")
_BETTER_LOW = "mse"
_SHOWN = 20


def sweep_text(result: Result, output: Path) -> str:
    """How many jobs ended how, which of them gave wrong bits or crashed, and where the tables are."""
    counts = result.summary()["status"]
    lines = [
        f"{number(len(result.rows))} jobs, {number(result.computed)} of them computed now in {result.seconds:.1f} s",
        *(f"  {status:<15}{number(counts[status])}" for status in STATUSES if counts.get(status)),
    ]
    wrong = [row for row in result.rows if row["status"] in (MISMATCH, CRASHED)]
    if wrong:
        rows = [(row["status"], row["model"], row["target"], row["options"], _error(row)) for row in wrong[:_SHOWN]]
        lines += ["", table(("status", "model", "target", "options", "what"), rows)]
        lines += [f"and {number(len(wrong) - _SHOWN)} more"] if len(wrong) > _SHOWN else []
    lines.append(f"  tables         {shown(str(output))}: index.html, results.csv, results.jsonl")
    return "\n".join(lines)


def _error(row: dict[str, Any]) -> str:
    error = row.get("error")
    return str(error.get("what", "")) if isinstance(error, dict) else ""


def sweep_page(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a page with filters, Pareto fronts and a table; complete in itself."""
    used = [name for name in _COLUMNS if name == "status" or any(_value(row, name) not in (None, "") for row in rows)]
    counts = {status: sum(row["status"] == status for row in rows) for status in STATUSES}
    kinds = {OK: "good", MISMATCH: "bad", CRASHED: "bad"}
    tiles = [{"name": "rows", "value": number(len(rows)), "kind": ""}]
    tiles += [{"name": s, "value": number(n), "kind": kinds.get(s, "")} for s, n in counts.items() if n]
    tiles.append({"name": "models", "value": number(len({row["model"] for row in rows})), "kind": ""})
    numbers = [name for name in _NUMBERS if name in used]
    cost = next((name for name in ("cycles", "instructions", "estimated_cycles") if name in numbers), "seconds")
    data = {
        "columns": used,
        "rows": [[_value(row, name) for name in used] for row in rows],
        "filters": [name for name in _FILTERS if name in used],
        "names": [name for name in _NAMES if name in used],
        "numbers": numbers,
        "axes": ["arena_bytes" if "arena_bytes" in numbers else "seconds", cost],
        "lower_accuracy": all(row.get("metric") in (_BETTER_LOW, "") for row in rows),
    }
    subtitle = f"A sweep of {number(len(rows))} jobs: models by targets, kernels, budgets, options and data."
    return page("sweep.html.j2", title=title, subtitle=subtitle, tiles=tiles, data=data)


def _value(row: dict[str, Any], name: str) -> Any:
    """The value of a column: a text, a number, a truth, or None."""
    error = row.get("error")
    if name == "error":
        return _error(row)[:200] or None
    if name == "error_code":
        return error.get("code") if isinstance(error, dict) else None
    value = row.get(name)
    if name in _NUMBERS:
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return value if value is None or isinstance(value, bool) else str(value)
