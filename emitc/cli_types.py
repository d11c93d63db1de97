"""Types of command-line options."""

from __future__ import annotations

from typing import Any

import click


class ShapeType(click.ParamType):  # type: ignore[type-arg]
    """NAME=1,49,10,1; the name may itself contain an equals sign."""

    name = "NAME=DIMS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        """Refuses anything else than positive sizes."""
        name, equals, dims = str(value).rpartition("=")
        try:
            shape = tuple(int(d) for d in dims.split(","))
        except ValueError:
            shape = ()
        if not equals or not name or not shape or any(not 1 <= d < 2**31 for d in shape) or len(shape) > 8:
            self.fail(f"{value!r} is not NAME=DIMS, for example input_1=1,49,10,1", param, ctx)
        return name, shape


class BudgetType(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, or `min`."""

    name = "BYTES|min"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Refuses anything else."""
        text = str(value)
        if text == "min":
            return text
        if not text.isascii() or not text.isdigit() or len(text) > 12:
            self.fail(f"{text!r} is neither a number of bytes nor min", param, ctx)
        return int(text)
