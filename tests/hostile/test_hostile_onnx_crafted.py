"""ONNX files made to ask for endless work or memory, or for files that are none of theirs: refused, or compiled within limits.

Each case runs in a child with 1 GiB of address space and 10 seconds of processor time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.verify.reference import random_samples
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet

HERE = Path(__file__).resolve().parent
_CHILD = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
    "from emitc.compiler import compile_model; from emitc.errors import EmitcError\n"
    "import emitc.frontends.onnx.reader\n"
    "used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (used + 11, used + 11))\n"
    "try: print('ok', sum(map(len, compile_model(sys.argv[1], name='m').files.values())))\n"
    "except EmitcError as error: print(error); sys.exit(error.exit_code)\n"
)
MANY = 4000


def compiled(data: bytes, folder: Path) -> tuple[int, str]:
    """(exit code, what was printed) of compiling under the limits; a negative code is a signal."""
    (folder / "m.onnx").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder / "m.onnx")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE.parents[1]), "OPENBLAS_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout + done.stderr


def read_again_and_again() -> OnnxNet:
    """A large constant in every one of thousands of operators of constants."""
    net = OnnxNet()
    large = net.constant(np.ones(1 << 21, np.float32))
    first = net.ints(0)
    for _ in range(MANY):
        net.op("Gather", large, first)
    net.output(net.op("Relu", net.input((1,))))
    return net


def seen_again_and_again() -> OnnxNet:
    """A large constant among the inputs of thousands of operators whose shapes are inferred."""
    net = OnnxNet()
    large = net.constant(np.ones(1 << 22, np.float32))
    for _ in range(MANY):
        net.op("Sigmoid", large)
    net.output(net.op("Relu", net.input((1,))))
    return net


def dequantized_again_and_again() -> OnnxNet:
    """A large constant dequantized and quantized thousands of times."""
    net = OnnxNet()
    large, scales = net.integers((1 << 20,)), net.scales(0.1, 0, "int8")
    for _ in range(MANY // 2):
        net.op("QuantizeLinear", net.op("DequantizeLinear", large, *scales), *scales)
    net.output(net.op("Relu", net.input((1,))))
    return net


def a_bias_of_one_value() -> OnnxNet:
    """Matrix products that share their weights; each would have a long bias of its own."""
    net = OnnxNet()
    x, w, b = net.input((1, 1)), net.constant(np.ones((1, 1 << 18), np.float32)), net.constant(np.float32(1))
    for _ in range(MANY):
        net.op("Gemm", x, w, b)
    net.output(net.op("Relu", x))
    return net


def a_row_of_sums() -> OnnxNet:
    """Additions in a row, each of which might be the first of an integer run, and none is."""
    net = OnnxNet()
    x, constant = net.input((1, 2)), net.dequantize(net.integers((1, 2)))
    for _ in range(2500):
        x = net.op("Add", x, constant)
    net.output(x)
    return net


def long_equal_names() -> OnnxNet:
    """Operators under one long name, which every tensor that is made for them takes over."""
    net = OnnxNet()
    x, w = net.input((1, 2, 2, 2)), net.constant(np.ones((2, 2, 1, 1), np.float32))
    for _ in range(1500):
        x = net.op("Conv", x, w, name="n" * 3000)
    net.output(x)
    return net


def too_many_operators() -> OnnxNet:
    """A chain beyond the limit."""
    net = OnnxNet()
    x = net.input((1,))
    for _ in range(20_000):
        x = net.op("Identity", x)
    net.output(x)
    return net


def many_operands() -> OnnxNet:
    """One operator with very many inputs."""
    net = OnnxNet()
    net.output(net.op("Concat", *[net.input((1,))] * 20_000, axis=0))
    return net


def filled(op_type: str, *inputs: object, **attributes: object) -> Callable[[], OnnxNet]:
    """An operator of constants whose result has about 10**12 elements."""

    def make() -> OnnxNet:
        net = OnnxNet()
        names = [net.constant(np.asarray(value)) if value is not None else "" for value in inputs]
        net.nodes.append(helper.make_node(op_type, names, ["made"], **attributes))
        net.output(net.op("Add", net.input((1,)), "made"), shape=(1,))
        return net

    return make


ONE = np.ones((1, 1), np.float32)
SIZES = np.array([10**6, 10**6], np.int64)
TOO_MUCH: dict[str, tuple[Callable[[], OnnxNet], str]] = {
    "read_again_and_again": (read_again_and_again, "is too large to be computed while compiling"),
    "seen_again_and_again": (seen_again_and_again, "take more room than the file explains"),
    "dequantized_again_and_again": (dequantized_again_and_again, "take more room than the file explains"),
    "a_bias_of_one_value": (a_bias_of_one_value, "take more room than the file explains"),
    "too_many_operators": (too_many_operators, "the model has 20000 operators"),
    "many_operands": (many_operands, "Concat of 20000 tensors is not supported"),
    "constant_of_shape": (filled("ConstantOfShape", SIZES), "is too large to be computed while compiling"),
    "expand": (filled("Expand", ONE, SIZES), "is too large to be computed while compiling"),
    "tile": (filled("Tile", ONE, SIZES), "is too large to be computed while compiling"),
    "range": (filled("Range", *np.array([0, 10**12, 1])), "is too large to be computed while compiling"),
    "range_of_reals": (filled("Range", *np.array([0.0, 1.0, 1e-30])), "Range"),
    "pad": (filled("Pad", ONE, np.array([0, 0, 10**6, 10**6])), "too large"),
    "resize": (filled("Resize", ONE.reshape(1, 1, 1, 1), None, np.array([1, 1, 1e6, 1e6], np.float32)), "too large"),
}
COMPILES: dict[str, Callable[[], OnnxNet]] = {"a_row_of_sums": a_row_of_sums, "long_equal_names": long_equal_names}


@pytest.mark.sweep(keep=6)
@pytest.mark.parametrize("name", TOO_MUCH)
def test_endless_work_is_refused(name: str, tmp_path: Path) -> None:
    make, message = TOO_MUCH[name]
    code, printed = compiled(make().serialized(), tmp_path)
    assert code in (1, 2), printed
    assert message in printed
    assert printed.startswith("error: ")


@pytest.mark.parametrize("name", COMPILES)
def test_much_that_is_no_more_than_the_file_says_compiles(name: str, tmp_path: Path) -> None:
    code, printed = compiled(COMPILES[name]().serialized(), tmp_path)
    assert (code, printed[:3]) == (0, "ok "), printed


def refused(data: bytes, folder: Path) -> EmitcError:
    """The error that the file ends in."""
    (folder / "m.onnx").write_bytes(data)
    with pytest.raises(EmitcError) as caught:
        compile_model(folder / "m.onnx")
    return caught.value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x3b" * 1_000_000,
        b"\x3a\xff\xff\xff\xff\x0f",
        b"\x08\x0a",
        b"text" * 100,
        b"\xff" * 10_000,
        b"PK\x03\x04",
    ],
    ids=["empty", "zero", "groups", "long", "version_only", "text", "ones", "zip"],
)
def test_what_is_no_onnx_file(data: bytes, tmp_path: Path) -> None:
    error = refused(data, tmp_path)
    assert (error.what, error.exit_code) == ("this is not a .onnx file", 2)


def test_a_batch_below_zero_does_not_end_the_process(tmp_path: Path) -> None:
    """ONNX's own shape inference takes it for an index into the shape without looking."""
    net = OnnxNet()
    net.output(net.op("GatherND", net.input((1, 4)), net.ints(0), batch_dims=0))
    model = onnx.ModelProto.FromString(net.serialized())
    (attribute,) = (a for node in model.graph.node for a in node.attribute if a.name == "batch_dims")
    attribute.i = -2
    code, printed = compiled(model.SerializeToString(), tmp_path)
    assert code == 2, printed
    assert "batch_dims -2 is below 0" in printed


def test_messages_nested_without_end(tmp_path: Path) -> None:
    """Graphs in attributes of nodes in graphs, deeper than any parser follows."""

    def field(number: int, body: bytes) -> bytes:
        count, length = len(body), b""
        while count > 127:
            length, count = length + bytes([count % 128 + 128]), count // 128
        return bytes([number << 3 | 2]) + length + bytes([count]) + body

    body = b""
    for _ in range(2000):
        body = field(1, field(5, field(6, body)))
    assert refused(field(7, body), tmp_path).exit_code == 2


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("Relu", net.input((1,)), name="QQQQ"))
    error = refused(net.serialized().replace(b"QQQQ", b"Q\xff\xfeQ"), tmp_path)
    assert (error.what, error.why) == ("a text of the model is not UTF-8", "in a field name")


def with_external(location: str, **entries: str) -> bytes:
    """A model with one constant of four floats in another file."""
    net = OnnxNet()
    net.output(net.op("Add", net.input((4,)), net.constant(np.zeros(4, np.float32))))
    model = net.model()
    constant = model.graph.initializer[0]
    constant.ClearField("raw_data")
    constant.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        constant.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return model.SerializeToString()


OUTSIDE = (
    "../secret",
    "/etc/passwd",
    "",
    ".",
    "..",
    "absent",
    "a\0b",
    "x" * 10_000,
    "folder",
    "link",
    "loop",
    "folder/../../secret",
)


@pytest.mark.parametrize("location", OUTSIDE, ids=range(len(OUTSIDE)))
def test_a_constant_outside_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    model = tmp_path / "model"
    (model / "folder").mkdir(parents=True)
    (model / "link").symlink_to(tmp_path / "secret")
    (model / "loop").symlink_to(model / "loop")
    error = refused(with_external(location), model)
    missing = "a file with constants of the model is missing"
    assert (error.what, error.exit_code) == (
        missing if location == "absent" else "a constant lies outside the model's folder",
        2,
    )


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "49"},
        {"offset": "-1"},
        {"offset": str(2**70)},
        {"offset": "x"},
        {"length": "15"},
        {"length": "-16"},
        {"offset": "9" * 5000},
        {"length": ""},
    ],
    ids=["beyond", "before", "far", "text", "short", "negative", "digits", "empty"],
)
def test_a_constant_that_does_not_fit_its_file_is_refused(entries: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    error = refused(with_external("weights.bin", **entries), tmp_path)
    assert (error.what, error.exit_code) == ("a constant does not fit the file it lies in", 2)


def test_external_constants_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(64))
    monkeypatch.setattr("emitc.frontends.onnx.external_data.MAX_EXTERNAL_BYTES", 15)
    assert refused(with_external("weights.bin"), tmp_path).what == "the constants outside the file are too large"
    monkeypatch.setattr("emitc.frontends.onnx.external_data.MAX_EXTERNAL_BYTES", 16)
    assert compile_model(tmp_path / "m.onnx").files


def test_a_constant_that_would_overflow_when_it_is_dequantized_is_refused_without_a_warning(tmp_path: Path) -> None:
    """Warnings are errors in this suite; on the command line they would stand before the report."""
    net = OnnxNet()
    net.output(net.op("Add", net.input((2,)), net.dequantize(net.constant([100, -100], "int8"), 3e38, 0)))
    error = refused(net.serialized(), tmp_path)
    assert (error.what, error.exit_code) == ("DequantizeLinear has a scale of 3e+38", 2)


def test_samples_of_an_input_with_a_huge_scale_are_finite(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.quantize(net.input((50,)), 1.8e16, 0), "int8")
    (tmp_path / "m.onnx").write_bytes(net.serialized())
    graph = compile_model(tmp_path / "m.onnx").graph
    assert all(np.isfinite(value).all() for (value,) in random_samples(graph, 3, 0))


def test_a_product_that_overflows_is_proven_without_a_word(tmp_path: Path) -> None:
    """By weights that the model computes: infinite constants are refused."""
    net = OnnxNet()
    signs = net.constant(np.array([[np.inf, 1], [-np.inf, np.inf], [np.inf, 2]], np.float32))
    x = net.input((1, 3))
    net.output(net.op("MatMul", x, net.op("Add", signs, net.op("ReduceMax", x, keepdims=0))))
    (tmp_path / "m.onnx").write_bytes(net.serialized())
    assert verify(compile_model(tmp_path / "m.onnx"), reference="numpy", samples=3).match
