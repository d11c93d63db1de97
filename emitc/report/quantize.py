"""What `emitc quantize` prints."""

from __future__ import annotations

from typing import Any

from emitc.errors import shown
from emitc.report.tables import number


def quantize_text(made: dict[str, Any]) -> str:
    """The file that was written, and its size."""
    output = shown(str(made["output"]), 200)
    return (
        f"{output}: int8, quantized on {number(made['samples'])} samples, {number(made['bytes_before'])} bytes before, "
        f"{number(made['bytes_after'])} after\n  next      emitc verify {output}"
    )
