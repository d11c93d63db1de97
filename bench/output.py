"""What benches share: models that are compiled and run on a board in several ways, and the file of the figures."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emitc.options import Options
from emitc.sweep.spec import Spec, Variant
from emitc.sweep.sweep import SweepOptions, run_sweep
from emitc.target import load_board


def write_json(path: Path | None, content: Any) -> None:
    """Writes the figures as JSON, one value a line, where a file is asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """Those of a bench that is a sweep."""
    parser.add_argument("--sweep", type=Path, help="keep the sweep here: a bench that was stopped goes on where it was")
    parser.add_argument("--workers", type=int, default=1, help="processes")


def swept(
    models: Sequence[Path], boards: Sequence[str], variants: dict[str, Options], arguments: argparse.Namespace
) -> tuple[dict[str, Any], ...]:
    """The rows of `emitc sweep` on emulated boards, each proven on one input: boards within models, variants within boards.

    models: of one folder. variants: by name.
    """
    spec = Spec(
        models[0].parent,
        tuple(models),
        tuple((load_board(board).target, board) for board in boards),
        variants=tuple(Variant(name, options) for name, options in variants.items()),
        verify=False,
        samples=1,
    )
    with tempfile.TemporaryDirectory(prefix="emitc-bench-") as folder:
        return run_sweep(spec, SweepOptions(arguments.sweep or Path(folder), arguments.workers)).rows
