"""The command line for the tests of what it explores."""

from __future__ import annotations

from tests.cli.conftest import emitc

__all__ = ["emitc"]
