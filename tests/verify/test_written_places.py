"""What a layer of several outputs may write: each of its outputs, wherever it lies, and nothing else.

Outputs that lie inside a Concat's buffer have no place of their own in the memory plan. The other outputs are a state variable
or a tensor elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.proof import Proof
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

HERE = Path(__file__).resolve().parent

from tests.support.models.onnx_net import OnnxNet  # noqa: E402
from tests.support.recurrent_cases import lstm  # noqa: E402
from tests.support.single_op import model_of  # noqa: E402


def joined_layers(_: OnnxNet) -> ModelSpec:
    """Two LSTMs of TFLite, each with two state variables, one after the other in a CONCATENATION."""
    spec = model_of([lstm("a", 1, 3, 4, 5), lstm("b", 1, 3, 4, 5)])
    first = spec.tensors[spec.outputs[0]]
    both = TensorSpec("both", "int8", (1, 6, 5), None, first.scales, first.zero_points)
    joins = OperatorSpec("CONCATENATION", spec.outputs, (len(spec.tensors),), {"axis": 1})
    return ModelSpec((*spec.tensors, both), (*spec.operators, joins), spec.inputs, (len(spec.tensors),))


def split_and_joined(_: OnnxNet) -> ModelSpec:
    """The first part of each of three SPLITs of one tensor goes into a CONCATENATION, the second one is an output."""
    shapes = [(1, 2, 3, 4)] + [(1, 2, 3, 2)] * 6 + [(1, 6, 3, 2)]
    tensors = [TensorSpec(f"t{i}", "int8", shape, None, (0.05,), (3,)) for i, shape in enumerate(shapes)]
    axis, both = len(shapes), len(shapes) - 1
    operators = [OperatorSpec("SPLIT", (axis, 0), (1 + 2 * i, 2 + 2 * i), {"num_splits": 2}) for i in range(3)]
    operators.append(OperatorSpec("CONCATENATION", (1, 3, 5), (both,), {"axis": 1}))
    tensors.append(TensorSpec("axis", "int32", (), np.array(3, "<i4").tobytes()))
    return ModelSpec(tuple(tensors), tuple(operators), (0,), (2, 4, 6, both))


def recurrent(kind: str, gates: int) -> Callable[[OnnxNet], None]:
    """Two recurrent layers of ONNX: the sequences in a Concat, the last states are outputs."""

    def build(net: OnnxNet) -> None:
        sequences = []
        for _ in range(2):
            x = net.input((3, 1, 4))
            w, r = (net.constant(net.rng.normal(0, 0.5, (1, gates * 5, n)).astype(np.float32)) for n in (4, 5))
            y, last, *_ = net.ops(kind, x, w, r, outputs=2, hidden_size=5)
            sequences.append(y)
            net.output(last)
        net.output(net.op("Concat", *sequences, axis=0))

    return build


def quantized(net: OnnxNet) -> None:
    """The bytes of two DynamicQuantizeLinear in a Concat; scale and zero point have other readers."""
    found = []
    for _ in range(2):
        y, scale, zero = net.ops("DynamicQuantizeLinear", net.input((1, 8)), outputs=3)
        found.append(y)
        net.output(scale)
        net.output(net.op("Cast", zero, to=6), "int32")
    net.output(net.op("Concat", *found, axis=0), "uint8")


NETS = {
    "tflite_lstm": (joined_layers, "tflite", "tflite_micro"),
    "tflite_split": (split_and_joined, "tflite", "tflite_micro"),
    "onnx_lstm": (recurrent("LSTM", 4), "onnx", "onnxruntime"),
    "onnx_gru": (recurrent("GRU", 3), "onnx", "onnxruntime"),
    "onnx_dynamic_quantize": (quantized, "onnx", "onnxruntime"),
}


def made(name: str, folder: Path) -> Compiled:
    """The net, compiled."""
    build, kind, _ = NETS[name]
    net = OnnxNet()
    spec = build(net)
    file = folder / f"{name}.{kind}"
    file.write_bytes(net.serialized() if spec is None else write_tflite(spec))
    return compile_model(file)


def proven(name: str, folder: Path) -> Proof:
    """The proof of the net, layer by layer."""
    pytest.importorskip(NETS[name][2], reason="the extra emitc[verify] is not installed")
    return verify(made(name, folder), samples=4, layers=True)


@pytest.mark.parametrize("name", NETS)
def test_outputs_inside_a_joined_buffer_are_its_own(name: str, tmp_path: Path) -> None:
    compiled = made(name, tmp_path)
    assert len(compiled.program.pins) >= 2, "no output lies inside the Concat's buffer"
    proof = proven(name, tmp_path)
    assert proof.memory_errors == ()
    assert proof.match and proof.differing == 0


@pytest.mark.parametrize("name", ["tflite_lstm", "onnx_dynamic_quantize"])
def test_a_write_into_the_other_part_is_found(name: str, tmp_path: Path) -> None:
    """The second layer spoils the part of the joined buffer that the first one has written."""
    compiled = made(name, tmp_path)
    first = compiled.program.pins[0]
    index = compiled.program.steps[1].index
    source = next(name for name in compiled.files if name.endswith(".c") and b"_run(" in compiled.files[name])
    text = compiled.files[source].decode("ascii")
    call = next(line for line in text.partition("_run(")[2].splitlines() if line.startswith(f"    op{index}_"))
    spoiled = text.replace(call, f"    arena[{first.name}] ^= 1;\n{call}", 1)
    proof = verify(replace(compiled, files=compiled.files | {source: spoiled.encode()}), samples=2, reference="numpy")
    assert any(f"op {index} " in error and "not its own" in error for error in proof.memory_errors)
