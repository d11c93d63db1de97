"""The header tells shapes, types and the model, and its functions from and to real values round as the format does."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array, DType
from emitc.verify.golden_run import golden_run
from emitc.writers.tflite import TensorSpec, write_tflite
from tests.support.models.onnx_net import OnnxNet
from tests.support.models.tiny import Net

STRICT = "-O1 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wundef -Wdouble-promotion -Werror"
COUNT = 6000
SCALES = (1e-6, 0.0123, 0.5847029, 3.7)


@dataclass(frozen=True, slots=True)
class Ends:
    """One quantized type."""

    dtype: str
    scale: float
    zero_point: int


def _each(dtype: str, zeros: Sequence[int]) -> tuple[Ends, ...]:
    return tuple(Ends(dtype, float(np.float32(scale)), zero) for scale, zero in itertools.product(SCALES, zeros))


BYTES = {"int8": (-128, 0, 83, 127), "uint8": (0, 3, 128, 255)}
KINDS = {
    "tflm": (*_each("int8", BYTES["int8"]), *_each("int16", (0,))),
    "litert": _each("uint8", BYTES["uint8"]),
    "onnxruntime": (
        *(ends for dtype, zeros in BYTES.items() for ends in _each(dtype, zeros)),
        *_each("int16", (-32768, 5)), *_each("uint16", (0, 40000)),
    ),
}  # fmt: skip
"""What each golden engine is asked for."""


def _tflite(cases: Sequence[Ends], *, up: bool) -> bytes:
    """One QUANTIZE, or DEQUANTIZE, for each case."""
    net, inputs, outputs = Net(), [], []
    for i, ends in enumerate(cases):
        real = net.tensor(TensorSpec(f"real{i}", "float32", (COUNT,)))
        whole = net.tensor(TensorSpec(f"q{i}", ends.dtype, (COUNT,), None, (ends.scale,), (ends.zero_point,)))
        inputs.append(real if up else whole)
        outputs.append(whole if up else real)
        net.op("QUANTIZE" if up else "DEQUANTIZE", (inputs[-1],), (outputs[-1],))
    return write_tflite(net.spec(inputs, outputs))


def _onnx(cases: Sequence[Ends], *, up: bool) -> bytes:
    """One QuantizeLinear, or DequantizeLinear, for each case."""
    net = OnnxNet(opset=21)
    for ends in cases:
        x = net.input((COUNT,), "float32" if up else ends.dtype)
        node = net.quantize if up else net.dequantize
        net.output(node(x, ends.scale, ends.zero_point, ends.dtype), ends.dtype if up else "float32")
    return net.serialized()


def models(engine: str, folder: Path) -> tuple[Compiled, Compiled]:
    """From real values to quantized ones, and back."""
    made = []
    for name, up in (("up", True), ("down", False)):
        onnx = engine == "onnxruntime"
        path = folder / f"{name}.{'onnx' if onnx else 'tflite'}"
        path.write_bytes((_onnx if onnx else _tflite)(KINDS[engine], up=up))
        made.append(compile_model(path, name=name))
        made[-1].write(folder / name)
    return made[0], made[1]


def reals(ends: Ends, rng: np.random.Generator) -> Array:
    """Multiples and halves of the scale over the type's range and beyond, and the floats next to them."""
    low, high = DType(ends.dtype).range
    steps = rng.integers(low - ends.zero_point - 9, high - ends.zero_point + 10, COUNT) + rng.choice([0, 0.5], COUNT)
    values = (np.float32(ends.scale) * steps.astype(np.float32)).astype(np.float32)
    values = np.nextafter(values, rng.choice([-np.inf, np.inf, 0.0], COUNT).astype(np.float32))
    values[::3] = (np.float32(ends.scale) * steps[::3].astype(np.float32)).astype(np.float32)
    values[:8] = (0.0, -0.0, 1e-40, -1e-40, ends.scale * 60000, -ends.scale * 60000, ends.scale / 2, -ends.scale / 2)
    return values


def codes(ends: Ends, rng: np.random.Generator) -> Array:
    """Every value of a byte; of 16 bits the ends and many others."""
    low, high = DType(ends.dtype).range
    values = rng.integers(low, high + 1, COUNT)
    values[:4] = (low, high, ends.zero_point, max(low, -1))
    if high - low < COUNT:
        values[4 : 4 + high - low + 1] = np.arange(low, high + 1)
    return values.astype(ends.dtype)


def library(cases: Sequence[Ends], folder: Path, compiler: str, standard: str) -> ctypes.CDLL:
    """The headers' functions over arrays, `to_I` and `from_I` for case I, compiled without a warning."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    text = ['#include "up.h"', '#include "down.h"', "#ifdef __cplusplus", 'extern "C" {', "#endif"]
    for i, ends in enumerate(cases):
        c_type = f"{ends.dtype}_t"
        for name, a, b, call in (
            (f"to_{i}", "float", c_type, f"down_input_{i}_quantize"),
            (f"from_{i}", c_type, "float", f"up_output_{i}_dequantize"),
        ):
            declared = f"void {name}(const {a} *x, {b} *y, int n)"
            text.append(f"{declared};\n{declared}\n{{\n    for (int i = 0; i < n; i++) {{ y[i] = {call}(x[i]); }}\n}}")
    text += ["#ifdef __cplusplus", "}", "#endif"]
    source = folder / f"functions.{'c' if standard == 'c11' else 'cpp'}"
    source.write_text("\n".join(text) + "\n", encoding="ascii")
    output = folder / f"{compiler}.so"
    command = [compiler, f"-std={standard}", *STRICT.split(), "-shared", "-fPIC", f"-I{folder}/up", f"-I{folder}/down"]
    done = subprocess.run([*command, str(source), "-o", str(output)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    needed = subprocess.run(["nm", "-u", str(output)], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\bU \w*(?:round|rint|floor|ceil|nearby)\w*", needed), "the math library"
    return ctypes.CDLL(str(output))


def mapped(function: ctypes._NamedFuncPointer, values: Array, dtype: str) -> Array:
    """An array through one function of the library."""
    result = np.empty(values.shape, dtype)
    function(values.ctypes.data_as(ctypes.c_void_p), result.ctypes.data_as(ctypes.c_void_p), ctypes.c_int(values.size))
    return result


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("compiler", ["gcc", "clang++"])
@pytest.mark.parametrize("engine", KINDS)
def test_real_values_become_what_the_engine_makes_of_them(engine: str, compiler: str, tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    cases = KINDS[engine]
    up, down = models(engine, tmp_path)
    built = library(cases, tmp_path, compiler, "c11" if compiler == "gcc" else "c++11")
    rng = np.random.default_rng(21)
    given = tuple(reals(ends, rng) for ends in cases)
    special = tuple(np.resize(np.array([np.nan, np.inf, -np.inf, 3e38, -3e38], np.float32), COUNT) for _ in cases)
    for x, reference in ((given, engine), (given, "numpy"), (special, "numpy")):
        golden = golden_run(up, reference, [x], preserve=False).outputs[0]
        for i, (ends, expected) in enumerate(zip(cases, golden, strict=True)):
            found = mapped(built[f"to_{i}"], x[i], ends.dtype)
            assert np.array_equal(found, expected.reshape(-1)), (ends, reference)
    quantized = tuple(codes(ends, rng) for ends in cases)
    golden = golden_run(down, engine, [quantized], preserve=False).outputs[0]
    for i, (ends, expected) in enumerate(zip(cases, golden, strict=True)):
        found = mapped(built[f"from_{i}"], quantized[i], "float32")
        assert np.array_equal(found.view(np.uint32), expected.reshape(-1).view(np.uint32)), ends


def macros(header: str) -> dict[str, str]:
    """Name and text of each macro with a value."""
    return dict(re.findall(r"^#define (\w+) (.+)$", header, re.MULTILINE))


def test_the_header_tells_shapes_types_and_the_model(tiny: Path) -> None:
    compiled = compile_model(tiny / "spotter.tflite", name="net")
    found = macros(compiled.files["net.h"].decode("ascii"))
    assert found["NET_MODEL_NAME"] == '"spotter.tflite"'
    assert found["NET_MODEL_SHA256"] == f'"{hashlib.sha256((tiny / "spotter.tflite").read_bytes()).hexdigest()}"'
    assert found["NET_EMITC_VERSION"] == f'"{compiled.program.origin.version}"'
    for kind, ports in (("INPUT", compiled.program.inputs), ("OUTPUT", compiled.program.outputs)):
        for i, port in enumerate(ports):
            assert found[f"NET_{kind}_{i}_RANK"] == f"{len(port.shape)}u"
            assert found[f"NET_{kind}_{i}_DIMS"] == "{ " + ", ".join(map(str, port.shape)) + " }"
            assert found[f"NET_{kind}_{i}_TYPE"] == port.c_type
            assert found[f"NET_{kind}_{i}_DTYPE"] == f'"{port.dtype}"'


def test_the_macros_serve_a_program(tiny: Path, tmp_path: Path) -> None:
    compile_model(tiny / "spotter.tflite", name="net").write(tmp_path / "net")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\n'
        "static const size_t dims[NET_INPUT_0_RANK] = NET_INPUT_0_DIMS;\n"
        "static NET_INPUT_0_TYPE samples[NET_INPUT_0_ELEMENTS];\n"
        "int main(void)\n{\n    size_t elements = 1;\n"
        "    for (size_t i = 0; i < NET_INPUT_0_RANK; i++) { elements *= dims[i]; }\n"
        '    printf("%s %.8s %s %s %d\\n", NET_MODEL_NAME, NET_MODEL_SHA256, NET_EMITC_VERSION, NET_INPUT_0_DTYPE,\n'
        "           elements == NET_INPUT_0_ELEMENTS && sizeof samples == NET_INPUT_0_BYTES);\n    return 0;\n}\n",
        encoding="ascii",
    )
    build = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Inet", "main.c", "-o", "main"]
    subprocess.run(build, cwd=tmp_path, check=True)
    printed = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256((tiny / "spotter.tflite").read_bytes()).hexdigest()
    assert (
        printed
        == f"spotter.tflite {digest[:8]} {compile_model(tiny / 'spotter.tflite').program.origin.version} int8 1\n"
    )


def test_a_scalar_has_no_dimensions_and_a_real_tensor_no_conversion(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("ReduceMax", net.input((4,)), keepdims=0))
    (tmp_path / "scalar.onnx").write_bytes(net.serialized())
    header = compile_model(tmp_path / "scalar.onnx", name="net").files["net.h"].decode("ascii")
    found = macros(header)
    assert (found["NET_OUTPUT_0_RANK"], found["NET_OUTPUT_0_DTYPE"]) == ("0u", '"float32"')
    assert "NET_OUTPUT_0_DIMS" not in found
    assert "quantize" not in header
