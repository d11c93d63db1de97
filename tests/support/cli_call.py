"""What a call of the command line left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Called:
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Stdout as the one JSON object that it must be: one line, nothing round it, no NaN."""
        assert self.out.count("\n") == 1
        assert self.out.endswith("}\n")
        content = json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert isinstance(content, dict)
        return content


Emitc = Callable[..., Called]
