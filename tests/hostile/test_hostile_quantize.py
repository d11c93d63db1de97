"""`emitc quantize` with files that are none of its own, or that want too much: refused before the quantizer sees them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from emitc.calibrate.calibrate import quantize_model
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.verify import verification
from tests.support.hostile.onnx_models import ROOT, real
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

ONE = np.zeros((1, 1, 8, 8), np.float32)


def refused(folder: Path, model: bytes, calibration: bytes | None = None, name: str = "m.onnx") -> EmitcError:
    """The error of quantizing; nothing is written."""
    (folder / name).write_bytes(model)
    if calibration is None:
        np.savez(folder / "c.npz", in0_0=ONE)
    else:
        (folder / "c.npz").write_bytes(calibration)
    before = set(folder.iterdir())
    with pytest.raises(EmitcError) as caught:
        quantize_model(folder / name, folder / "c.npz", folder / "q.onnx")
    assert set(folder.iterdir()) == before
    return caught.value


def test_a_float_model_is_quantized(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(real().SerializeToString())
    np.savez(tmp_path / "c.npz", in0_0=ONE, in0_1=ONE + 1)
    made = quantize_model(tmp_path / "m.onnx", tmp_path / "c.npz", tmp_path / "q.onnx")
    assert (made.samples, made.output.stat().st_size) == (2, made.bytes_after)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("data", [b"", b"text" * 100, b"\xff" * 1000], ids=["empty", "text", "ones"])
def test_what_is_no_onnx_file_is_refused(data: bytes, tmp_path: Path) -> None:
    error = refused(tmp_path, data)
    assert (error.what, error.where.model, error.exit_code) == ("this is not a .onnx file", "m.onnx", 2)


def test_a_damaged_model_is_refused_by_the_reader(tmp_path: Path) -> None:
    model = real()
    model.graph.node[0].input[0] = "nowhere"
    error = refused(tmp_path, model.SerializeToString())
    assert (error.what, error.exit_code) == ("this is not a valid ONNX model", 2)


def test_another_format_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, real().SerializeToString(), name="m.tflite")
    assert (error.what, error.exit_code) == ("m.tflite is not an ONNX model", 2)


def test_an_operator_that_fills_the_memory_is_refused_before_the_engine_folds_it(tmp_path: Path) -> None:
    net = OnnxNet()
    filled = net.op("ConstantOfShape", net.ints(10**6, 10**6))
    net.output(net.op("Add", net.op("Relu", net.input((1, 1, 8, 8))), net.op("ReduceMax", filled, keepdims=0)))
    error = refused(tmp_path, net.serialized())
    assert error.what == "ConstantOfShape of constants is too large to be computed while compiling"


def test_more_operators_than_the_quantizer_gets_through_are_refused(tmp_path: Path) -> None:
    net = OnnxNet()
    value = net.input((1, 1, 8, 8))
    for _ in range(1501):
        value = net.op("Relu", value)
    net.output(value)
    error = refused(tmp_path, net.serialized())
    assert (error.what, error.exit_code) == ("m.onnx has 1501 operators", 1)


def test_a_constant_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(1000))
    (tmp_path / "model").mkdir()
    model = real()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../secret"
    error = refused(tmp_path / "model", model.SerializeToString())
    assert (error.what, error.exit_code) == ("a constant lies outside the model's folder", 2)


def stated_wrongly() -> onnx.ModelProto:
    """The type of the output is another: the reader refuses it, and the quantizer would log a traceback."""
    model = real()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(model.graph.output[0].name, TensorProto.INT8, [1, 5]))
    return model


def beyond_the_end() -> onnx.ModelProto:
    """The engine finds out when it runs, and writes about it."""
    net = OnnxNet()
    net.output(net.op("Relu", net.op("Gather", net.input((1, 1, 8, 8)), net.constant(99, "int64"), axis=3)))
    return net.model()


@pytest.mark.parametrize(("make", "code"), [(stated_wrongly, 2), (beyond_the_end, 1)])
def test_the_remarks_of_the_engine_stay_off_the_terminal(
    make: Callable[[], onnx.ModelProto], code: int, tmp_path: Path
) -> None:
    """In a process of its own: what the engine writes goes past Python."""
    (tmp_path / "m.onnx").write_bytes(make().SerializeToString())
    np.savez(tmp_path / "c.npz", in0_0=ONE)
    done = subprocess.run(
        [sys.executable, "-m", "emitc", "quantize", "m.onnx", "--calibration", "c.npz"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert [line.split(":")[0].strip() for line in done.stderr.splitlines()] == ["error", "at", "why", "try", "code"]


def zipped(name: str, content: bytes) -> bytes:
    """An archive of one member."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


HEADER = b"\x93NUMPY\x01\x00"


def npy(description: str, data: bytes = b"") -> bytes:
    """A member of an .npz file under a header that says anything."""
    text = description.encode().ljust(117) + b"\n"
    return HEADER + len(text).to_bytes(2, "little") + text + data


CALIBRATIONS = {
    "empty": b"",
    "text": b"text" * 100,
    "no member": zipped("other.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", bytes(4))),
    "huge": zipped("in0_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1024), }")),
    "negative": zipped("in0_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 8), }")),
    "object": zipped("in0_0.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\x80\x04N.")),
    "no header": zipped("in0_0.npy", b"\x93NUMPY"),
    "no array": zipped("in0_0.npy", b"text"),
    "code": zipped("in0_0.npy", npy("__import__('os').system('true')")),
    "nested": zipped("in0_0.npy", npy("{'descr': " + "(" * 50 + ", 'shape': (1,), }")),
    "words": zipped(
        "in0_0.npy", npy("{'descr': '<U4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }", b"\xff" * 1024)
    ),
    "complex": zipped(
        "in0_0.npy", npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1, 1, 8, 8), }", bytes(512))
    ),
    "nan": zipped("in0_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }", b"\xff" * 256)),
    "wrong rank": zipped("in0_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (64,), }", bytes(256))),
    "too short": zipped(
        "in0_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }", bytes(8))
    ),
    "records": zipped(
        "in0_0.npy", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 1, 8, 8), }", bytes(256))
    ),
    "dates": zipped(
        "in0_0.npy", npy("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1, 1, 8, 8), }", bytes(512))
    ),
}


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_a_calibration_file_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    error = refused(tmp_path, real().SerializeToString(), CALIBRATIONS[name])
    assert (error.what, error.exit_code) == ("c.npz cannot be used for calibration", 2), error


def test_a_small_calibration_file_cannot_ask_for_any_amount_of_memory(tmp_path: Path) -> None:
    """Zeros pack a thousandfold, and an archive may hold them any number of times."""
    content = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (67108864,), }", bytes(256 << 20))
    error = refused(tmp_path, real().SerializeToString(), zipped("in0_0.npy", content))
    assert (error.what, error.exit_code) == ("c.npz cannot be used for calibration", 2)
    assert "bytes" in error.why


def test_an_old_model_with_a_bias_of_one_row_is_quantized_so_that_it_compiles(tmp_path: Path) -> None:
    """Version 3 of the format, opset 8: initializers are inputs, and the quantizer's scales per channel come out wrong."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.normal(size=(6, 4)).astype(np.float32), "b": rng.normal(size=(1, 4)).astype(np.float32)}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(v.shape)) for name, v in weights.items()]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
        "old",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "c.npz", **{f"in0_{k}": rng.normal(size=(1, 6)).astype(np.float32) for k in range(4)})
    quantize_model(tmp_path / "m.onnx", tmp_path / "c.npz", tmp_path / "q.onnx")
    made = compile_model(tmp_path / "q.onnx")
    assert any(step.op_type in ("Gemm", "MatMul") for step in made.program.steps)
    assert verification.verify(made, samples=4).match


def normalized(merges: bool) -> onnx.ModelProto:
    """A convolution and a BatchNormalization, with a Relu between them unless it `merges`; every constant is an input too."""
    rng = np.random.default_rng(2)
    values = {
        "w": rng.normal(size=(4, 3, 3, 3)),
        "g": [1, 2, 0.5, 0.1],
        "b": [0, 1, 0, 0.3],
        "m": [0, 0.5, 1, 0],
        "v": [1, 2, 3, 4],
    }
    arrays = {name: np.asarray(value, np.float32) for name, value in values.items()}
    shapes = {"x": (1, 3, 6, 6)} | {name: array.shape for name, array in arrays.items()}
    steps = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"])][: 1 if merges else 2]
    steps.append(helper.make_node("BatchNormalization", ["c" if merges else "r", "g", "b", "m", "v"], ["y"]))
    graph = helper.make_graph(
        steps,
        "normalized",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("merges", [True, False], ids=["merged", "alone"])
def test_a_batch_normalization_is_merged_or_compiled(merges: bool, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(normalized(merges).SerializeToString())
    rng = np.random.default_rng(3)
    np.savez(tmp_path / "c.npz", x=rng.normal(size=(20, 3, 6, 6)).astype(np.float32))
    quantize_model(tmp_path / "m.onnx", tmp_path / "c.npz", tmp_path / "q.onnx")
    types = [node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node]
    assert types.count("BatchNormalization") == (0 if merges else 1)
    assert verification.verify(compile_model(tmp_path / "q.onnx"), samples=4).match


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (2, 2), (3, 1)])
def test_padding_as_wide_as_the_window_stays_an_operator(kernel: int, dilation: int, tmp_path: Path) -> None:
    """The engine merges a Pad of any width with the Conv that reads it."""
    rng = np.random.default_rng(4)
    arrays = {
        "w": rng.normal(size=(4, 3, kernel, kernel)).astype(np.float32),
        "widths": np.array([0, 0, 1, 0, 0, 0, 2, 2], np.int64),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Pad", ["x", "widths"], ["p"]),
            helper.make_node("Conv", ["p", "w"], ["c"], dilations=[dilation, dilation]),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        "padded",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 6, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.savez(tmp_path / "c.npz", x=rng.normal(size=(20, 3, 6, 6)).astype(np.float32))
    quantize_model(tmp_path / "m.onnx", tmp_path / "c.npz", tmp_path / "q.onnx")
    types = [node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node]
    assert types.count("Pad") == ((kernel - 1) * dilation < 2)
    assert verification.verify(compile_model(tmp_path / "q.onnx"), samples=4).match
