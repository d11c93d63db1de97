"""A small sweep: tiny models on several targets, without proofs, so that a job takes a fraction of a second."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emitc.sweep.spec import Spec, read_spec

SPEC = """
models = ["*.tflite"]
targets = ["generic32", "cortex-m4f", "rv32imac"]
ram_budgets = ["none", "min"]
verify = false
"""


@pytest.fixture
def small(tiny: Path, tmp_path: Path) -> Spec:
    """18 jobs in `tmp_path / "spec"`."""
    folder = tmp_path / "spec"
    folder.mkdir()
    for path in sorted(tiny.glob("*.tflite"))[:3]:
        shutil.copyfile(path, folder / path.name)
    (folder / "small.toml").write_text(SPEC, encoding="utf-8")
    return read_spec(folder / "small.toml")
