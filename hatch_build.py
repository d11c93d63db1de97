"""Writes the commit into a wheel, where EMITC_COMMIT names one: packages of that emitc then state it.

A wheel that is built without it gives the same packages as a checkout does.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the file that emitc/_version.py reads. version: kind of the wheel, which does not matter here."""
        commit = os.environ.get("EMITC_COMMIT", "")
        if not commit:
            return
        if re.fullmatch(r"[0-9a-f]{7,64}", commit) is None:
            raise ValueError(f"EMITC_COMMIT={commit!r} is no commit")
        stamp = Path(tempfile.mkdtemp(prefix="emitc-commit-")) / "commit"
        stamp.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(stamp)] = "emitc/_data/commit"
