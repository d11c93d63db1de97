"""Constants in files beside an ONNX model: what is compiled is what every engine runs and what the checksum covers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from emitc.calibrate.calibrate import quantize_model
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

SHAPE = (1, 3, 8, 8)


def net() -> onnx.ModelProto:
    """A quantized convolution of 48 weights, and one of 16 floats on its result."""
    built = OnnxNet()
    x = built.dequantize(built.quantize(built.input(SHAPE, name="x")))
    y = built.qdq(built.conv(x, (4, 3, 2, 2)), 0.1)
    weights = built.rng.normal(size=(4, 4, 1, 1)).astype(np.float32)
    built.output(built.op("Conv", y, built.constant(weights, name="float_weights")))
    return built.model()


def with_function() -> onnx.ModelProto:
    """The same weights as a constant inside of a function of the model."""
    model = net()
    (weights,) = (c for c in model.graph.initializer if c.name == "float_weights")
    constant = onnx.helper.make_node("Constant", [], ["w"], value=weights)
    node = onnx.helper.make_node("Conv", ["a", "w"], ["b"])
    opsets = list(model.opset_import)
    model.functions.append(onnx.helper.make_function("own", "Last", ["a"], ["b"], [constant, node], opsets))
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    last = model.graph.node[-1]
    last.op_type, last.domain = "Last", "own"
    del last.input[1:]
    model.graph.initializer.remove(weights)
    return model


def tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Those that go to another file, in the order of the file: weights, in the graph and in functions."""
    inside = [a.t for f in model.functions for n in f.node for a in n.attribute if n.op_type == "Constant"]
    return [c for c in (*model.graph.initializer, *inside) if len(c.dims) == 4]


def parted(model: onnx.ModelProto, folder: Path) -> tuple[Path, bytes]:
    """The model in a folder, its weights in a file beside it; the path, and the bytes of that file."""
    data = b""
    for tensor in tensors(model):
        for key, value in (("location", "w.bin"), ("offset", len(data)), ("length", len(tensor.raw_data))):
            tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))
        data += tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    (folder / "w.bin").write_bytes(data)
    return path, data


def identity(compiled: Compiled) -> tuple[str, str, str]:
    """The checksum, the one in the head of the C, and the word of a model that is ready."""
    text = "".join(data.decode("ascii") for name, data in compiled.files.items() if name.endswith((".c", ".h")))
    (word,) = re.findall(r"MODEL_READY (0x\w+)u", text)
    (stated,) = set(re.findall(r"sha256 (\w{16,64})", text))
    return compiled.source.sha256, stated, word


@pytest.mark.parametrize(("make", "where"), [(net, "zeros"), (net, "none"), (with_function, "zeros")])
def test_the_engine_runs_the_weights_that_were_compiled(
    make: Callable[[], onnx.ModelProto], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies in the working directory under the name of the data."""
    path, data = parted(make(), tmp_path / "model")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if where == "zeros":
        (elsewhere / "w.bin").write_bytes(bytes(len(data)))
    monkeypatch.chdir(elsewhere)
    proof = verify(compile_model(path), samples=3, layers=True)
    assert proof.match and proof.reference == "onnxruntime"
    assert proof.layers_checked > 0 and sum(group.operators for group in proof.groups) >= 2


def test_data_that_change_after_compiling_are_not_what_is_proven(tmp_path: Path) -> None:
    path, data = parted(net(), tmp_path)
    compiled = compile_model(path)
    (tmp_path / "w.bin").write_bytes(bytes(len(data)))
    path.unlink()
    assert verify(compiled, samples=3).match


def test_a_model_in_one_file_has_the_checksum_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(net().SerializeToString())
    compiled = compile_model(path)
    assert compiled.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert compiled.model_bytes == path.read_bytes()


def test_the_checksum_covers_the_weights_in_other_files(tmp_path: Path) -> None:
    """It is that of the file and of the constants after it, in their order."""
    path, data = parted(net(), tmp_path)
    first = compile_model(path)
    assert first.source.sha256 == hashlib.sha256(path.read_bytes() + data).hexdigest()
    (tmp_path / "w.bin").write_bytes(bytes(byte ^ (i % 4 == 0) for i, byte in enumerate(data)))
    second = compile_model(path)
    assert first.files["m.c"] != second.files["m.c"]
    for a, b in zip(identity(first), identity(second), strict=True):
        assert a != b
    assert identity(first)[0].startswith(identity(first)[1])
    assert json.loads(first.files["manifest.json"])["model"]["sha256"] == first.source.sha256


def test_quantize_reads_the_weights_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = OnnxNet()
    weights = built.constant(built.rng.normal(size=(4, 3, 2, 2)).astype(np.float32))
    built.output(built.op("Relu", built.op("Conv", built.input(SHAPE, name="x"), weights)))
    (tmp_path / "whole.onnx").write_bytes(built.serialized())
    path, data = parted(built.model(), tmp_path / "model")
    np.savez(tmp_path / "c.npz", in0_0=np.ones(SHAPE, np.float32), in0_1=-np.ones(SHAPE, np.float32))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "w.bin").write_bytes(bytes(len(data)))
    monkeypatch.chdir(elsewhere)
    quantize_model(path, tmp_path / "c.npz", tmp_path / "a.onnx")
    quantize_model(tmp_path / "whole.onnx", tmp_path / "c.npz", tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
