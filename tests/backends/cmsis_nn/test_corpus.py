"""Layers of the model corpus as calls of CMSIS-NN, on the host and on boards with DSP and MVE: no bit differs, and what the
library can run it runs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.definition import NAME
from emitc.backends.cmsis_nn.lowering import RULES, SIXTEEN_BITS
from emitc.boards import verify
from emitc.compiler import compile_model
from emitc.ir import DType
from emitc.verify import verification
from tests.support.cmsis.library import SKIPPED, trees

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "models" / "tflite"
FOLDERS = ("layers", "seanet_int16")
LAYERS = sorted(str(path.relative_to(CORPUS)) for folder in FOLDERS for path in (CORPUS / folder).glob("*.tflite")) or [
    "layers/aww_layer0.tflite"
]
PLACES = {"host": "host", "qemu_m4": "cortex-m4", "qemu_m55": "cortex-m55"}
TREES = trees()
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("tree", range(len(TREES)), ids=[str(tree.version) for tree in TREES])
def test_layer(tree: int, place: str, layer: str, tmp_path: Path) -> None:
    path = CORPUS / layer
    if not path.is_file():
        pytest.skip("the model corpus ../shared is not there")
    if place != "host" and not (shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc")):
        pytest.skip("qemu-system-arm or arm-none-eabi-gcc is not installed")
    options = {"kernels": NAME, "target": PLACES[place], "backends": {NAME: str(TREES[tree].root)}}
    made = compile_model(path, package="plain" if place == "host" else "platformio", **options)
    for row, bound in zip(made.partition.assignments, made.graph.bound(), strict=True):
        can = type(bound.node.op) in (SIXTEEN_BITS if bound.output.dtype is DType.INT16 else RULES)
        reasons = dict(row.refused)
        excused = reasons.get(NAME, "").startswith(("CMSIS-NN ", "this copy of CMSIS-NN"))
        assert (row.backend == NAME) == (can and not reasons) or excused, (row.op_type, reasons)
    if place == "host":
        assert verification.verify(made, samples=5, layers=True).match
    else:
        result = verify.on_emulator(made, place, reference="auto", samples=3, seed=0, layers=False, workdir=tmp_path)
        assert result.match
