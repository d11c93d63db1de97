"""The least cost of a node, which looks at few kernels, is the cost of the kernel that the node gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.backends.contract import Settings
from emitc.backends.portable.backend import Known, Portable
from emitc.compiler import compile_model
from emitc.target import load_target, targets

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.mark.parametrize(
    "model", ["digits_int8.tflite", "digits_qdq.onnx", "person_detect_int8.tflite", "mww_hey_jarvis_v2.tflite"]
)
def test_the_least_cost_is_that_of_the_kernel_that_a_node_gets(model: str) -> None:
    nodes = tuple(compile_model(MODELS / model).partition.graph.bound())
    kinds = set()
    looked, taken = Known(), Known()  # neither finds what the other has kept
    for small in (False, True):
        for target in map(load_target, targets()):
            least = list(map(Portable(Settings(target, small=small), looked).least_cost, nodes))
            assert least == list(map(Portable(Settings(target, small=small), taken).cost, nodes)), (target.name, small)
            kinds.add(tuple(least))
    assert len(kinds) > 4
