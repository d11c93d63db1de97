"""The version, in one place."""

from pathlib import Path

__version__ = "0.1.0"


def commit() -> str:
    """The commit that a wheel was built from, where its build was told (hatch_build.py); "" elsewhere."""
    stamp = Path(__file__).resolve().parent / "_data" / "commit"
    return stamp.read_text(encoding="ascii").strip() if stamp.is_file() else ""
