"""Numbers and tables as text for a person: plain ASCII borders, and no color codes in a pipe."""

import io
from collections.abc import Sequence

from emitc.errors import shown

LISTED = 8
"""Operators and cases that a line names."""


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int = 118) -> str:
    """A table of at most `width` characters; columns whose name ends in > (to the right) or < (to the left) are never broken."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    view = Table(box=lines, pad_edge=False, show_edge=False)
    for column in columns:
        whole = column.endswith((">", "<"))
        view.add_column(
            column.rstrip("<>"),
            justify="right" if column.endswith(">") else "left",
            no_wrap=whole,
            min_width=None if whole else 12,
            overflow="fold",
        )
    for row in rows:
        view.add_row(*(Text(shown(number(cell) if isinstance(cell, int) else str(cell), 160)) for cell in row))
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(view)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def listed(items: Sequence[str], most: int = LISTED, more: str = ", ...") -> str:
    """The first items with commas between them, and `more` where there are others; {} in it is their number."""
    return ", ".join(items[:most]) + (more.format(len(items) - most) if len(items) > most else "")


def ratio(value: float, count: int) -> str:
    """So much of a value for each of `count`, "-" for none."""
    return f"{value / count:.2f}" if count else "-"


def number(value: int) -> str:
    """The number with its thousands separated by spaces."""
    return f"{value:,}".replace(",", " ")


def figure(value: float) -> str:
    """A whole number as such, any other with three decimals."""
    return number(int(value)) if value == int(value) else f"{value:.3f}"
