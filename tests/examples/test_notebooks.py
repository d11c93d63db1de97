"""The notebooks: every cell runs, and its output is the stored one. `--update-golden` stores what they print now."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def printed(notebook: Any) -> list[list[str]]:
    """What each cell of code has printed, or has as its value."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[output.get("text") or output["data"]["text/plain"] for output in cell.outputs] for cell in cells]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_it_shows(
    path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the extra emitc[examples] is not installed")
    pytest.importorskip("ipykernel", reason="the extra emitc[examples] is not installed")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")]))
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    fresh = nbformat.read(path, as_version=4)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    where = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(fresh, timeout=300, kernel_name="python3", resources=where).execute()
    if request.config.getoption("--update-golden"):
        for cell in fresh.cells:
            cell.metadata.pop("execution", None)
        fresh.metadata.language_info = stored.metadata.language_info
        nbformat.write(fresh, path)
    else:
        assert printed(fresh) == printed(stored), "pytest tests/examples --update-golden"


def test_there_is_a_notebook_and_all_of_it_was_executed() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
