"""What `emitc compile` and `emitc run` print of a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emitc.report.tables import number, table

if TYPE_CHECKING:
    from emitc.explore.budget import Compared


def budget_text(rows: Sequence[Compared]) -> str:
    """Every limit with its value and excess; nothing where there is no limit."""
    if not rows:
        return ""
    cells = [
        (
            f"max-{row.name}",
            _value(row.limit),
            _value(row.value) + (" (estimate)" if row.estimated else ""),
            f"+{_value(row.over)}" if row.over else "-",
        )
        for row in rows
    ]
    over = sum(1 for row in rows if row.over)
    verdict = f"OVER BUDGET: {over} of {len(rows)} limits" if over else f"within budget: {len(rows)} limits"
    return f"\n{verdict}\n{table(('limit', 'allowed>', 'value>', 'excess>'), cells)}"


def _value(value: float) -> str:
    return number(int(value)) if value == int(value) else f"{value:.3f}"
