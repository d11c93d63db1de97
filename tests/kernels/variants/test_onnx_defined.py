"""Operators of ONNX that are compiled by their definition: Attention, RMSNormalization, RotaryEmbedding, SwiGLU."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.source import DEFINED
from tests.support.onnx_node_cases import check_node_tests, node_tests
from tests.support.onnx_op import OnnxCase, computed, prove_onnx

LEFT_OUT = {
    "Attention": ("fp16", "bf16", "float16", "nonpad", "padded", "ext_cache", "window_with_past", "gqa_rank4"),
    "SwiGLU": ("float16",),
}
"""Other element types; lengths that come with the data have a test of their own."""


@pytest.mark.parametrize("op_type", [name for name in DEFINED if name != "RotaryEmbedding"])
def test_node_tests(op_type: str) -> None:
    """Of Attention every fifth: a definition has fifty operators. `bench.node_tests` has all."""
    tests = node_tests(op_type, without=LEFT_OUT.get(op_type, ()))[:: 5 if op_type == "Attention" else 1]
    assert len(tests) >= 2
    check_node_tests(tests)


def test_rotary_embedding() -> None:
    """Without those whose definition has pieces of size 0."""
    tests = [test for test in node_tests("RotaryEmbedding") if test.case.id.endswith("rotary_dim")]
    assert len(tests) == 3
    check_node_tests(tests)


def test_against_the_engine() -> None:
    cases = [
        OnnxCase(
            "rms", "RMSNormalization", {"x": computed((2, 5, 8)), "w": np.linspace(-1, 2, 8, dtype=np.float32)},
            {"axis": -1, "epsilon": 1e-3}, opset=23,
        ),
        OnnxCase("rms_by_default", "RMSNormalization", {"x": computed((3, 4)), "w": np.ones(4, np.float32)}, opset=23),
    ]  # fmt: skip
    prove_onnx(cases, 3).check(rtol=1e-5, atol=1e-5)


def test_how_many_keys_count_may_be_an_input() -> None:
    """Inputs before that one are left out: the package `onnx` asks for their types all the same when it inlines."""
    tests = [test for test in node_tests("Attention", without=("fp16", "bf16", "float16")) if "nonpad" in test.case.id]
    assert len(tests) >= 4
    check_node_tests(tests)
