"""The architecture search finds a network that beats its seed network on images that decided nothing, with no more RAM."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "architecture_search" / "search.py"
LINE = re.compile(r"^(front|seed|best) +([\d.]+)%  arena +(\d+) B  constants +(\d+) B  (.+)$", re.MULTILINE)


def test_the_search_beats_its_seed_network_at_its_ram() -> None:
    for package in ("optuna", "sklearn"):
        pytest.importorskip(package, reason="the extra emitc[examples] is not installed")
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    # With this seed the first candidate that the sampler draws is a good one: two trials take seconds.
    command = [sys.executable, str(SCRIPT), "--trials", "2", "--seed", "112"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 of 2 candidates fit")
    found = [(what, float(a), int(arena), int(flash)) for what, a, arena, flash, _ in LINE.findall(done.stdout)]
    (_, before, ram, _), (_, after, best_ram, best_flash) = (row for row in found if row[0] in ("seed", "best"))
    assert before > 90 and after > before
    assert best_ram <= ram <= 32 << 10 and best_flash <= 1 << 20
    front = [row for row in found if row[0] == "front"]
    assert front == sorted(front, key=lambda row: row[2]) and len(front) >= 1
