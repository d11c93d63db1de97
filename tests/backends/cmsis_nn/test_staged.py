"""Weights of layers that call CMSIS-NN are copied to fast memory like those of emitc's own kernels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.definition import NAME
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.planner.region_assignment import Region
from emitc.verify import verification
from tests.support.cmsis.library import SKIPPED, trees

MODELS = Path(__file__).resolve().parents[3] / "examples" / "models"
TREES = {str(tree.version): tree for tree in trees()}
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)
REGIONS = (Region("DTCM", 6 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0))


def _compiled(version: str, load_ahead: float = 0.0) -> Compiled:
    return compile_model(
        MODELS / "digits_int8.tflite",
        kernels=NAME,
        backends={NAME: str(TREES[version].root)},
        regions=REGIONS,
        places=(("weights", "QSPI"),),
        stage_weights="DTCM",
        load_ahead=load_ahead,
    )


@pytest.mark.parametrize("load_ahead", [0.0, 2.0])
@pytest.mark.parametrize("version", TREES)
def test_the_functions_read_the_copies(version: str, load_ahead: float) -> None:
    made = _compiled(version, load_ahead)
    assert (made.program.transfers is not None) == bool(load_ahead)
    staged = [step for step in made.program.steps if step.staged]
    assert {step.backend for step in staged} == {NAME}
    assert {step.op_type for step in staged} >= {"CONV_2D", "DEPTHWISE_CONV_2D"}
    proof = verification.verify(made, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert all(use.planned == use.observed for use in proof.arenas)


def test_a_copy_that_is_too_short_is_found() -> None:
    made = _compiled(list(TREES)[-1])
    text = made.files["digits_int8.c"].decode("ascii")
    wrong, count = re.subn(r"(memcpy\(arena_dtcm \+ \w+, \w+_weights, )\d+u\);", r"\g<1>1u);", text)
    assert count == len(made.program.staged)
    broken = replace(made, files=made.files | {"digits_int8.c": wrong.encode("ascii")})
    assert not verification.verify(broken, samples=2, layers=True).match
