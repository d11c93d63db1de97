"""What every bench does with its figures in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_json(path: Path | None, content: Any) -> None:
    """Writes the figures as JSON, one value a line, where a file is asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
