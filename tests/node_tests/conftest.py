"""Lets the tests of this folder import the package `bench` of the checkout, which no wheel has."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
