"""TRANSPOSE_CONV as a call of CMSIS-NN, and as part of an NPU's region: the bits of the interpreter, or a reason."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.backend import CmsisNn
from emitc.backends.cmsis_nn.definition import NAME
from emitc.compiler import compile_model
from emitc.target import load_target
from emitc.verify import verification
from emitc.writers.tflite import write_tflite
from tests.kernels.convolution.test_transpose_conv import CASES, SWEEP
from tests.support.cmsis.library import SKIPPED, trees
from tests.support.layer_cases import with_input
from tests.support.single_op import graph_of, model_of

TREES = trees()
FUNCTION = "arm_transpose_conv_s8"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases of one image side by side."""
    cases = [case for case in [*CASES, *SWEEP] if case.inputs[2] is not None and case.inputs[2].shape[0] == 1]
    path = tmp_path_factory.mktemp("transposed") / "cases.tflite"
    path.write_bytes(write_tflite(model_of(cases)))
    return path


@pytest.mark.skipif(not TREES, reason=SKIPPED)
@pytest.mark.parametrize("tree", range(len(TREES)), ids=[str(tree.version) for tree in TREES])
def test_what_the_library_takes_is_right(tree: int, model: Path) -> None:
    made = compile_model(model, kernels=NAME, backends={NAME: str(TREES[tree].root)})
    called = [row for row in made.partition.assignments if row.backend == NAME]
    assert len(called) >= 5 if FUNCTION in TREES[tree].functions else not called
    assert all(row.refused for row in made.partition.assignments if row.backend != NAME)
    if not called:
        reasons = {reason for row in made.partition.assignments for _, reason in row.refused}
        assert reasons == {f"CMSIS-NN {TREES[tree].version} has no {FUNCTION}"}
    assert verification.verify(made, samples=4, sanitize=True).match


@pytest.mark.skipif(not TREES, reason=SKIPPED)
def test_computed_weights_are_not_for_the_library() -> None:
    (bound,) = graph_of(with_input(CASES[0], 1, data=None)).bound()
    for tree in (each for each in TREES if FUNCTION in each.functions):
        assert CmsisNn(tree.root, load_target("host")).supports(bound) == "computed weights"


@pytest.mark.skipif(importlib.util.find_spec("ethosu") is None, reason="ethos-u-vela is not installed")
def test_what_the_npu_takes_is_right(model: Path) -> None:
    made = compile_model(model, backends={"npu": "ethos-u55-128", "npu-always": "yes"})
    taken = [row for row in made.partition.assignments if row.backend == "ethos-u"]
    assert len(taken) >= 5
    assert verification.verify(made, samples=4).match
