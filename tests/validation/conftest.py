"""Lets the tests of this folder import the small graphs of the tests of the passes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "passes"))
