"""Models with state as calls of CMSIS-NN: state stays with emitc's own code, and no bit differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.definition import NAME
from emitc.compiler import compile_model
from emitc.verify import verification
from emitc.writers.tflite import write_tflite
from tests.support.cmsis.library import SKIPPED, trees
from tests.support.models.streaming import MODELS

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "models" / "tflite"
TREES = {str(tree.version): tree for tree in trees()}
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)


def proven(path: Path, version: str) -> dict[str, str]:
    """The proof holds; the backend of each operator type."""
    made = compile_model(path, kernels=NAME, backends={NAME: str(TREES[version].root)})
    proof = verification.verify(made, samples=25, layers=True, sanitize=True)
    assert proof.match, proof
    for row in made.partition.assignments:
        assert row.backend == NAME or dict(row.refused)[NAME]
    return {row.op_type: row.backend for row in made.partition.assignments}


@pytest.mark.parametrize("version", TREES)
@pytest.mark.parametrize("name", ["rows", "window", "twice", "sum"])
def test_streaming_models(name: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(MODELS[name]()))
    backends = proven(path, version)
    assert name in ("twice", "sum") or NAME in backends.values()
    assert backends.get("ASSIGN_VARIABLE", "portable") == backends.get("CONCATENATION", "portable") == "portable"


@pytest.mark.parametrize("version", TREES)
@pytest.mark.parametrize("name", ["mww_hey_jarvis_v2", "mww_okay_nabu_v2", "mww_vad_v2", "mww_alexa_v1"])
def test_wake_words(name: str, version: str) -> None:
    path = CORPUS / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the model corpus ../shared/models is not next to the checkout")
    assert proven(path, version)["CONV_2D"] == NAME
