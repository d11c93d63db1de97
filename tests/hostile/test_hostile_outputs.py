"""Graph outputs that something else reads too: their values are still there after the run, whatever the last operator is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.hostile.models import int8, model
from tests.support.models.onnx_net import OnnxNet


def viewed() -> OnnxNet:
    """An output that is the input under another shape, and after it an operator that could work in place."""
    net = OnnxNet()
    x = net.input((2, 6))
    net.output(net.op("Reshape", x, net.ints(3, 4)))
    net.output(net.op("Relu", x))
    return net


def read_again() -> OnnxNet:
    """An output that the last operator reads."""
    net = OnnxNet()
    y = net.op("Neg", net.input((12,)))
    net.output(y)
    net.output(net.op("Relu", y))
    return net


@pytest.mark.parametrize("make", [viewed, read_again])
def test_the_last_operator_leaves_the_other_outputs_alone(make: Callable[[], OnnxNet], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(make().serialized())
    assert verify(compile_model(tmp_path / "m.onnx"), reference="numpy", samples=2, sanitize=True).match


def test_the_last_operator_leaves_the_other_outputs_alone_in_tflite(tmp_path: Path) -> None:
    value = int8(1, 12)
    spec = model((value,), [("RELU", (0,), (int8(1, 12, scale=0.03),), {}), ("RELU", (1,), (value,), {})])
    both = tuple(operator.outputs[0] for operator in spec.operators)
    (tmp_path / "m.tflite").write_bytes(write_tflite(replace(spec, outputs=both)))
    assert verify(compile_model(tmp_path / "m.tflite"), reference="numpy", samples=2, sanitize=True).match
