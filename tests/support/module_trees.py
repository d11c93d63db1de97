"""The modules of emitc and their syntax trees: parsed once, and only in a test that reads them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


@cache
def module_paths() -> dict[str, Path]:
    """Each module's file, by the dotted name."""
    paths = {}
    for path in sorted((_ROOT / "emitc").rglob("*.py")):
        parts = path.relative_to(_ROOT).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


@cache
def module_trees() -> dict[str, ast.Module]:
    """Each module's syntax tree, by the dotted name."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in module_paths().items()}
