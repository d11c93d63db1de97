"""Which tests of a parallel run stay together in one process, so that what they share is made once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]


@cache
def shares_fixtures(folder: Path) -> bool:
    """Whether the folder's conftest.py makes fixtures for a whole session: each process would make them again."""
    conftest = folder / "conftest.py"
    return conftest.is_file() and 'scope="session"' in conftest.read_text(encoding="utf-8")


def scope_of(nodeid: str) -> str:
    """The unit that one process runs whole: the test's folder where it shares fixtures, else its file."""
    path = nodeid.split("::", 1)[0]
    folder = path.rpartition("/")[0]
    return folder if folder != "tests" and shares_fixtures(ROOT / folder) else path


class FolderScheduling(LoadFileScheduling):
    """xdist's distribution of files, with the folders of shared fixtures kept whole."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
