"""tabulate-functions: a costly function of dequantized bytes reads the bytes, where they are many and have one scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.passes.simplify import drop_dead
from emitc.passes.tabulate_functions import LEAST, tabulate_functions
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite
from tests.support.models.onnx_net import OnnxNet
from tests.support.passes.onnx_graphs import check_same, classes, onnx_graph

MANY = (2, LEAST // 2)
Build = Callable[[OnnxNet], None]


def value(net: OnnxNet, shape: tuple[int, ...] = MANY, dtype: str = "int8", zero_point: int = 5) -> str:
    """Dequantized integers."""
    return net.dequantize(net.input(shape, dtype), 0.03, zero_point, dtype)


def one(net: OnnxNet) -> None:
    net.output(net.op("Tanh", value(net)))


def several_readers(net: OnnxNet) -> None:
    x = value(net)
    net.output(net.op("Add", net.op("Sigmoid", x), net.op("Erf", x)))


def also_read_as_floats(net: OnnxNet) -> None:
    x = value(net)
    net.output(net.op("Mul", net.op("Exp", x), x))


def few(net: OnnxNet) -> None:
    net.output(net.op("Tanh", value(net, (LEAST - 1,))))


def words(net: OnnxNet) -> None:
    net.output(net.op("Tanh", value(net, dtype="int32", zero_point=0)))


def by_channel(net: OnnxNet) -> None:
    net.output(net.op("Tanh", net.dequantize(net.input(MANY, "int8"), [0.1, 0.2], 0, axis=0)))


def cheap(net: OnnxNet) -> None:
    net.output(net.op("Relu", value(net)))


def floats(net: OnnxNet) -> None:
    net.output(net.op("Tanh", net.input(MANY)))


@pytest.mark.parametrize(
    ("build", "left"),
    [(one, 0), (several_readers, 0), (also_read_as_floats, 1)],
    ids=["one", "several", "also_as_floats"],
)
def test_functions_of_bytes(build: Build, left: int) -> None:
    before = onnx_graph(build)
    after = drop_dead(tabulate_functions(before))
    assert classes(after)["Dequantize"] == left
    every_byte = np.arange(-128, 128).astype(np.int8).reshape(2, *MANY)
    for some in every_byte:
        check_same(before, after, [some])
    assert tabulate_functions(after) is after


@pytest.mark.parametrize("build", [few, words, by_channel, cheap, floats], ids=lambda build: build.__name__)
def test_what_stays(build: Build) -> None:
    before = onnx_graph(build)
    assert tabulate_functions(before) is before


def test_the_c_and_the_engine(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    for build in (one, several_readers, also_read_as_floats):
        net = OnnxNet()
        build(net)
        path = tmp_path / f"{build.__name__}.onnx"
        path.write_bytes(net.serialized())
        compiled = compile_model(path)
        assert "lookup_real" in {step.kernel_name for step in compiled.program.steps}
        assert verify(compiled, samples=4, layers=True, sanitize=True).match


@pytest.mark.parametrize("opcode", ["LOGISTIC", "TANH", "SIN", "COS", "LOG", "EXP", "ELU", "GELU", "HARD_SWISH"])
def test_functions_of_tflite_read_floats(opcode: str, tmp_path: Path) -> None:
    """Their kernels have no table of float32."""
    tensors = (
        TensorSpec("x", "int8", MANY, None, (0.03,), (5,)),
        TensorSpec("real", "float32", MANY),
        TensorSpec("y", "float32", MANY),
    )
    operators = (OperatorSpec("DEQUANTIZE", (0,), (1,)), OperatorSpec(opcode, (1,), (2,)))
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (2,))))
    compiled = compile_model(path)
    assert [node.op_type for node in compiled.graph.nodes] == ["DEQUANTIZE", opcode]
    assert verify(compiled, reference="numpy", samples=2).match
