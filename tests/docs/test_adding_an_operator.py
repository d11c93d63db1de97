"""The page on adding an operator, followed word for word in a copy of the tree: an operator and a DSP variant, in four files.

Nothing else of the copy knows them: what weight staging, row streaming, costs, headers and reports need comes from the module.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding-an-operator.md"
_FILE = re.compile(r"<!-- file: (?P<path>\S+) -->\n```\w+\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_COPIED = ("emitc", "c_runtime", "boards", "tests/support")
_SINGLE = ("pyproject.toml", "tests/conftest.py", "tests/allowed_skips.txt", "LICENSE", "LICENSE-0BSD")
_NUMBERS = {"three": 3, "four": 4, "five": 5, "six": 6}

USE = """
import json
from pathlib import Path
import numpy as np
from emitc.compiler import compile_model
from emitc.planner.region_assignment import Region
from emitc.report import inspection
from emitc.report.compile import compile_text
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

sides = {"x": 24, "a": 24, "b": 24, "c": 24, "y": 12}
image = [TensorSpec(name, "int8", (1, side, side, 8), None, (0.05,), (3,)) for name, side in sides.items()]
gains = [np.linspace(-100 + i, 90 + i, 8).astype(np.int8) for i in range(3)]
weights = [TensorSpec(f"g{i}", "int8", (8,), g.tobytes(), (1 / 128,), (0,)) for i, g in enumerate(gains)]
steps = [OperatorSpec("CUSTOM", (i, 5 + i), (i + 1,), {}, 1, "ChannelGain") for i in range(3)]
pool = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
steps.append(OperatorSpec("MAX_POOL_2D", (3,), (4,), pool))
model = Path("gains.tflite")
model.write_bytes(write_tflite(ModelSpec((*image, *weights), tuple(steps), (0,), (4,))))

found = {}
plain = compile_model(model, target="cortex-m4f")
found["variants"] = [step.variant for step in plain.program.steps[:3]]
found["costs"] = [a.cost for a in plain.partition.assignments[:3]]
found["portable_costs"] = [a.cost for a in compile_model(model).partition.assignments[:3]]
found["headers"] = [list(step.headers) for step in plain.program.steps[:3]]
found["files"] = sorted(plain.files)
found["report"] = compile_text(plain, Path("out"))
found["match"] = [verify(plain, samples=3, layers=True, sanitize=True, reference="numpy").match]
regions = (Region("FAST", 64, 1.0), Region("SLOW", 1 << 16, 3.0), Region("FLASH", 0, 9.0))
copied = compile_model(model, target="cortex-m4f", regions=regions, places=(("weights", "FLASH"),), stage_weights="FAST")
found["copied"] = [step.index for step in copied.program.steps if step.staged]
found["match"].append(verify(copied, samples=2, layers=True, reference="numpy").match)
rows = compile_model(model, target="cortex-m4f", input_rows=True, ram_budget="min")
found["rows"] = [call.step.variant for segment in rows.program.segments for call in segment.calls if call.step.macs]
found["match"].append(verify(rows, samples=2, reference="numpy").match)
leaner = compile_model(model, target="cortex-m4f", variants=((1, "portable"),))
found["asked"] = [step.variant for step in leaner.program.steps[:3]]
row = next(row for row in inspection.operator_list()["operators"] if row["op"] == "CUSTOM:ChannelGain")
found["matrix"] = row["matrix"]
print(json.dumps(found))
"""


def _files() -> dict[str, str]:
    return {match["path"]: match["text"] for match in _FILE.finditer(PAGE.read_text(encoding="utf-8"))}


def _run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is needed of the tree, with the files of the page."""
    copy = tmp_path_factory.mktemp("stranger")
    for folder in _COPIED:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in _SINGLE:
        shutil.copy(ROOT / file, copy / file)
    for path, text in _files().items():
        assert not (copy / path).exists(), f"{path} exists already"
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text, encoding="utf-8")
    return copy


def test_the_page_says_how_many_files_it_takes() -> None:
    (said,) = re.findall(r"in \*\*(\w+) files\*\*", PAGE.read_text(encoding="utf-8"))
    assert _NUMBERS[said] == len(_files())


def test_the_test_of_the_page_passes(tree: Path) -> None:
    (test,) = (path for path in _files() if path.startswith("tests/"))
    done = _run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", test)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"\b4 passed", done.stdout)


def test_nothing_else_has_to_know_operator_or_variant(tree: Path) -> None:
    done = _run(tree, "-c", USE)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["variants"] == ["dsp"] * 3
    assert found["costs"] == [4.0 * 24 * 24 * 8] * 3
    assert found["portable_costs"] == [8.0 * 24 * 24 * 8] * 3
    assert found["headers"] == [["emitc_dsp.h"]] * 3
    assert "emitc_dsp.h" in found["files"]
    assert "4 dsp" in found["report"]
    assert found["copied"] == [0, 1, 2]
    assert found["rows"] == ["dsp"] * 3
    assert found["asked"] == ["dsp", "portable", "dsp"]
    assert found["matrix"] == [{"dtype": "int8", "variants": ["portable", "dsp"]}]
    assert found["match"] == [True] * 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    UNKNOWN_PAIRS,\n    applies", "    applies", "missing 1 required positional argument: 'cost'"),
        ("    UNKNOWN_PAIRS,\n", "    None,\n", "the variant dsp has no cost: give Costs with their source"),
        ('    "dsp",\n    lower', '    "dps",\n    lower', "the variant dsp needs 'dps'; targets have dsp, fpu, mve"),
    ],
    ids=["left_out", "none", "feature"],
)
def test_a_row_that_says_too_little_is_an_error(old: str, new: str, message: str, tree: Path, tmp_path: Path) -> None:
    (module,) = (path for path in _files() if path.startswith("emitc/kernels/"))
    text = _files()[module]
    assert text.count(old) == 1
    (tmp_path / "wrong.py").write_text(text.replace(old, new), encoding="utf-8")
    done = _run(tree, str(tmp_path / "wrong.py"))
    assert done.returncode != 0
    assert message in done.stderr
