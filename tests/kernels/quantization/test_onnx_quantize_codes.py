"""QuantizeLinear and DequantizeLinear of every element type, with computed scales and scales per block.

The engine takes most of it: what it writes as a code is told apart by dequantizing it. Codes at the interface, and float4,
which it has no kernels for, are compared with the evaluator of the package onnx.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bench.node_tests import as_stored
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, Refusals
from emitc.ir import Array, DType
from emitc.kernels.quantization.quantize_formats import INTEGERS, SMALL_FLOATS
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import run_reference
from emitc.verify.sanitize import run_sanitized
from emitc.verify.tolerances import difference
from tests.support.models.onnx_net import OnnxNet
from tests.support.onnx_op import Computed, OnnxCase, computed, prove_onnx, refusal

TYPES: dict[str, Any] = {
    "int2": ml_dtypes.int2, "uint2": ml_dtypes.uint2, "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4,
    "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2, "float4e2m1": ml_dtypes.float4_e2m1fn, "float16": np.float16,
}  # fmt: skip
"""numpy's types by ONNX's names in lower case."""
IN_ENGINE = tuple(name for name in TYPES if name not in ("float4e2m1", "float16"))
SHAPE = (3, 7, 4)
SCALES: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "one": ((), {}),
    "one_of_rank_1": ((1,), {}),
    "first": ((3,), {"axis": 0}),
    "middle": ((7,), {"axis": 1}),
    "last": ((4,), {"axis": -1}),
    "blocks_middle": ((3, 3, 4), {"axis": 1, "block_size": 3}),
    "blocks_last": ((3, 7, 2), {"axis": -1, "block_size": 2}),
    "blocks_first": ((2, 7, 4), {"axis": 0, "block_size": 2}),
    "one_block": ((3, 1, 4), {"axis": 1, "block_size": 7}),
}
"""Shapes of scales for SHAPE, and the attributes that say so; the last block of three of them is shorter."""


def opset_of(element: str) -> int:
    return 25 if element in ("int2", "uint2") else 23 if element == "float4e2m1" else 21


def zeros(element: str, shape: tuple[int, ...]) -> Array:
    """Zero points, of all kinds where the type has any but 0."""
    if element in SMALL_FLOATS:
        return np.zeros(shape, TYPES[element])
    _, low, high = INTEGERS[element]
    ends = np.array([low, high, 0, low + 1], np.int64)
    return np.resize(ends, shape).astype(TYPES[element])


def scales(shape: tuple[int, ...]) -> Array:
    return np.resize(np.array([0.5, 0.25, 3.0, 0.7], np.float32), shape)


def edges(element: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Values between which a code of the type changes, and far ones; what is not finite apart."""
    if element in SMALL_FLOATS:
        known = SMALL_FLOATS[element].values()
        known = np.append(known, [known[-1] * 2, 1e30, 1e-30]).astype(np.float32)
        middle = ((known[:-1].astype(np.float64) + known[1:]) / 2).astype(np.float32)
        values = np.concatenate([known, middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.inf)])
        return np.concatenate([values, -values]).astype(np.float32)
    _, low, high = INTEGERS[element]
    near = np.concatenate([np.arange(-9, 10), [low, high, 2 * low - 3, 2 * high + 3, 3 * high + 1000]])
    return np.concatenate([near, near + 0.5, near + 0.25, near * 0.5, -near]).astype(np.float32)


def reals(element: str, sample: int) -> Array:
    """Values for SHAPE. In every other sample some are not finite, for types where the engine has that defined."""
    rng = np.random.default_rng([sample, *element.encode()])
    pool = edges(element)
    values = rng.choice(pool, SHAPE) * rng.choice(np.array([0.5, 1, 0.7], np.float32), SHAPE)
    if sample % 2 == 0:
        values[0, 0, 0] = -0.0
        if element in SMALL_FLOATS:
            values[0, 1, :3] = [np.inf, -np.inf, np.nan]
    return values.astype(np.float32)


# ---- against the engine ----


def there_and_back(element: str, scale: str, dynamic: bool) -> OnnxCase:
    """Quantized and dequantized with the same scales, which are constants or computed."""
    shape, attributes = SCALES[scale]
    values: dict[str, Any] = {"s": scales(shape), "z": zeros(element, shape)}
    inputs: dict[str, Array | Computed | None] = {"x": computed(SHAPE), **values}
    given: dict[str, Array] = {}
    nodes = []
    names = ("s", "z")
    if dynamic:
        # Zero points of less than a byte cannot be drawn by the engine's interface: they stay constants.
        given = {"s": values["s"]}
        inputs["s"] = computed(shape)
        if element in ("int8", "uint8", "int16", "uint16"):
            given["z"] = values["z"]
            inputs["z"] = computed(shape, element)
    nodes.append(helper.make_node("QuantizeLinear", ["x", *names], ["q"], **attributes))
    nodes.append(helper.make_node("DequantizeLinear", ["q", *names], ["y"], **attributes))
    return OnnxCase(
        f"{element}_{scale}_{'computed' if dynamic else 'constant'}", "", inputs, opset=opset_of(element),
        draw=lambda rng, sample: {"x": reals(element, sample), **given}, nodes=tuple(nodes),
    )  # fmt: skip


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("element", IN_ENGINE)
def test_there_and_back_has_the_bits_of_the_engine(element: str) -> None:
    cases = [there_and_back(element, scale, dynamic) for scale in SCALES for dynamic in (False, True)]
    prove_onnx(cases, 3).check()


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("element", ["int8", "uint8", "int16", "uint16"])
def test_codes_of_the_engine(element: str) -> None:
    """Written and read as such, without zero point where that is allowed too."""
    cases = []
    for scale, (shape, attributes) in SCALES.items():
        constants = {"s": scales(shape), "z": zeros(element, shape)}
        cases.append(
            OnnxCase(
                f"to_{scale}", "QuantizeLinear", {"x": computed(SHAPE), **constants}, attributes,
                draw=lambda rng, sample: {"x": reals(element, sample)},
            )
        )  # fmt: skip
        cases.append(
            OnnxCase(f"from_{scale}", "DequantizeLinear", {"x": computed(SHAPE, element), **constants}, attributes)
        )
        bare = {"x": computed(SHAPE, element), "s": computed(shape, low=0.01, high=2.0)}
        cases.append(OnnxCase(f"bare_{scale}", "DequantizeLinear", bare, attributes))
        typed = {**attributes, "output_dtype": int(helper.np_dtype_to_tensor_dtype(np.dtype(element)))}
        cases.append(
            OnnxCase(
                f"typed_{scale}", "QuantizeLinear", {"x": computed(SHAPE), "s": scales(shape)}, typed,
                draw=lambda rng, sample: {"x": reals(element, sample)},
            )
        )  # fmt: skip
    prove_onnx(cases, 3).check()


def test_int32_is_dequantized_with_a_computed_scale() -> None:
    inputs = {"x": computed((3, 5), "int32"), "s": computed((5,), low=1e-9, high=1e-3)}
    zero = {"z": np.zeros(5, np.int32)}
    axis = {"axis": 1}
    cases = [OnnxCase("bare", "DequantizeLinear", inputs, axis), OnnxCase("z", "DequantizeLinear", inputs | zero, axis)]
    prove_onnx(cases).check()


def test_a_scale_of_0_saturates() -> None:
    """x / 0 is infinite, or no number where x is 0 too; the engine leaves the infinite to the processor."""
    nodes = (helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"]),)
    inputs = {"x": computed((4,)), "s": computed(()), "z": np.int8(3)}
    case = OnnxCase(
        "zero", "", inputs, nodes=nodes,
        draw=lambda rng, sample: {"x": np.array([1, -1, 0, -0.0], np.float32), "s": np.zeros((), np.float32)},
    )  # fmt: skip
    outcome = prove_onnx([case], 1, engine=False)
    outcome.check()
    assert outcome.outcomes["zero"].compiled[0][0].tolist() == [127, -128, -128, -128]


def test_an_unsigned_tensor_is_read_as_numbers_and_as_real_values() -> None:
    """uint8 with constant scales is int8 inside; an operator with computed scales sees the model's own numbers."""
    nodes = (
        helper.make_node("QuantizeLinear", ["x", "c", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "c", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["b"]),
        helper.make_node("QuantizeLinear", ["x", "s"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "c", "z"], ["d"]),
    )
    inputs = {"x": computed((2, 9)), "s": computed((), low=0.01, high=0.1), "c": np.float32(0.03), "z": np.uint8(120)}
    prove_onnx([OnnxCase("both", "", inputs, nodes=nodes, outputs=("a", "b", "d"))]).check()


@pytest.mark.parametrize("element", ["int2", "uint2", "int4", "uint4"])
def test_small_integer_weights_make_an_integer_convolution(element: str) -> None:
    """Between DequantizeLinear and QuantizeLinear they are int8 weights like any other."""
    _, low, high = INTEGERS[element]
    rng = np.random.default_rng(5)
    w = rng.integers(low, high, (6, 3, 3, 3), endpoint=True).astype(TYPES[element])
    inputs = {
        "x": computed((1, 3, 6, 6)), "s": np.float32(0.04), "z": np.int8(-3), "w": w,
        "ws": rng.uniform(0.1, 0.4, 6).astype(np.float32), "wz": np.full(6, low + 1).astype(TYPES[element]),
        "ys": np.float32(0.5),
    }  # fmt: skip
    nodes = (
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"], axis=0),
        helper.make_node("Conv", ["xr", "wr"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["y"]),
    )
    case = OnnxCase(element, "", inputs, nodes=nodes, opset=opset_of(element))
    proven = prove_onnx([case])
    proven.check()
    (compiled,) = proven.compiled.values()
    conv = next(step for step in compiled.program.steps if step.op_type == "Conv")
    assert [operand.c_type for operand in (*conv.inputs, *conv.outputs)] == ["int8_t", "int8_t"]


# ---- codes at the interface, against the evaluator of the package onnx ----


def elem_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def proved(
    folder: Path, model: onnx.ModelProto, inputs: Sequence[Array], expected: Sequence[Array]
) -> tuple[Compiled, list[Array]]:
    """Compares numpy reference and C, under sanitizers, with the expected codes, bit for bit except for NaNs of float32."""
    path = folder / "codes.onnx"
    path.write_bytes(model.SerializeToString())
    compiled = compile_model(path, name="codes")
    compiled.write(folder / "package")
    given = [as_stored(value) for value in inputs]
    values = run_reference(compiled.graph, given)
    reference = [values[name] for name in compiled.graph.outputs]
    interface = interface_of(compiled)
    found = HostModel(build_shared(folder / "package", folder, trace=False), interface).run(given)
    assert run_sanitized(folder / "package", folder, interface, [tuple(given)], [found]) == []
    for results in (reference, found):
        assert len(results) == len(expected)
        for result, value in zip(results, expected, strict=True):
            wanted = as_stored(value)
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
            assert difference(result, wanted) == (0, 0.0), (result, wanted)
    return compiled, found


def node_model(
    op_type: str,
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    output: Any,
    opset: int,
    **attributes: Any,
) -> onnx.ModelProto:
    """One operator of these inputs and constants."""
    (shape,) = {value.shape for name, value in inputs.items() if name == "x"}
    graph = helper.make_graph(
        [helper.make_node(op_type, [*inputs, *constants], ["y"], name="node", **attributes)], "codes",
        [helper.make_tensor_value_info(name, elem_type(value.dtype), value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info("y", elem_type(output), shape)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=12)


def evaluated(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what overflows
        return np.asarray(ReferenceEvaluator(model).run(None, dict(inputs))[0])


def all_codes(element: str) -> Array:
    """Every code of a type, as many as SHAPE has at least."""
    if element in SMALL_FLOATS:
        kind = SMALL_FLOATS[element]
        codes = np.arange(2 << kind.sign_bit).astype(kind.storage.value)
        return codes.view(TYPES[element])
    _, low, high = INTEGERS[element]
    return np.arange(low, high + 1).astype(TYPES[element])


@pytest.mark.sweep(keep=6)
@pytest.mark.parametrize("scaled", ["constant", "computed"])
@pytest.mark.parametrize("element", [name for name in TYPES if name != "float16"])
def test_every_code_is_dequantized(element: str, scaled: str, tmp_path: Path) -> None:
    values = {"x": all_codes(element), "s": np.array(0.7, np.float32), "z": zeros(element, ())}
    inputs = {
        name: values[name] for name in ("x", "s", "z")[: 1 if scaled == "constant" or element in SMALL_FLOATS else 3]
    }
    constants = {name: value for name, value in values.items() if name not in inputs}
    model = node_model("DequantizeLinear", inputs, constants, np.float32, opset_of(element))
    proved(tmp_path, model, list(inputs.values()), [evaluated(model, inputs)])


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("zero", [False, True], ids=["bare", "zero"])
@pytest.mark.parametrize("element", ["float8e4m3fn", "float8e5m2", "float4e2m1"])
def test_every_rounding_to_a_small_float(element: str, zero: bool, tmp_path: Path) -> None:
    """Both sides of every change of code, and of both zeros."""
    x = np.append(edges(element), np.array([np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45], np.float32))
    constants = {"s": np.array(1, np.float32)} | ({"z": zeros(element, ())} if zero else {})
    attributes = {} if zero else {"output_dtype": elem_type(TYPES[element])}
    model = node_model("QuantizeLinear", {"x": x}, constants, TYPES[element], 23, **attributes)
    proved(tmp_path, model, [x], [evaluated(model, {"x": x})])


@pytest.mark.sweep(keep=6)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("element", "codes"),
    [
        ("float8e4m3fn", [0x7F, 0xFF, 0x7E, 0xFE]),
        ("float8e5m2", [0x7F, 0xFF, 0x7B, 0xFB]),
        ("float4e2m1", [7, 7, 7, 15]),
        ("int4", [-8, -8, 7, -8]),
        ("uint2", [0, 0, 3, 0]),
        ("int16", [-(2**15), -(2**15), 2**15 - 1, -(2**15)]),
    ],
)
def test_what_is_not_finite(element: str, codes: list[int], dtype: type[np.floating], tmp_path: Path) -> None:
    """NaNs and infinities of both signs: ONNX Runtime's codes of float8, ONNX's table of float4, the ends of integers."""
    x = np.array([np.nan, -np.nan, np.inf, -np.inf], dtype)
    constants = {"s": np.array([1], np.float32), "z": np.zeros_like(zeros(element, (1,)))}
    model = node_model(
        "QuantizeLinear", {"x": x}, constants, TYPES[element], opset_of(element) + 2, block_size=4, axis=0
    )
    proved(tmp_path, model, [x], [np.array(codes, as_stored(constants["z"]).dtype)])


@pytest.mark.parametrize("scale", SCALES)
def test_float4_in_all_layouts(scale: str, tmp_path: Path) -> None:
    shape, attributes = SCALES[scale]
    x = reals("float4e2m1", 1)
    values = {"s": scales(shape), "z": zeros("float4e2m1", shape)}
    model = node_model("QuantizeLinear", {"x": x}, values, TYPES["float4e2m1"], 23, **attributes)
    codes = evaluated(model, {"x": x})
    proved(tmp_path, model, [x], [codes])
    back = tmp_path / "back"
    back.mkdir()
    model = node_model("DequantizeLinear", {"x": codes}, values, np.float32, 23, **attributes)
    proved(back, model, [codes], [evaluated(model, {"x": codes})])


# ---- float16 ----


def halves() -> Array:
    """Every finite float16."""
    values = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    return values[np.isfinite(values)]


@pytest.mark.parametrize("scaled", ["constant", "computed"])
def test_float16_is_quantized_by_a_division_in_float32(scaled: str, tmp_path: Path) -> None:
    """As ONNX Runtime does it, of whose int8 kernel these are the bits."""
    x, scale, zero = halves(), np.array(0.7, np.float16), np.array(3, np.int8)
    inputs = {"x": x} if scaled == "constant" else {"x": x, "s": scale}
    constants = {"z": zero} if scaled == "computed" else {"s": scale, "z": zero}
    model = node_model("QuantizeLinear", inputs, constants, np.int8, 21)
    compiled, _ = proved(tmp_path, model, list(inputs.values()), [engine(model, inputs)])
    assert compiled.graph.tensor(compiled.graph.inputs[0]).dtype is DType.UINT16
    assert compiled.graph.notes[0] == '"x" is float16: one value\'s bits in each uint16'


def engine(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> Array:
    """onnxruntime's output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(inputs))[0])


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("element", ["int8", "uint8", "int16", "uint16"])
def test_float16_is_dequantized_to(element: str, tmp_path: Path) -> None:
    """The product in float32, then the nearest float16; the largest ones overflow."""
    for scale in (3.0, 6e-8):
        folder = tmp_path / f"{scale}"
        folder.mkdir()
        constants = {"s": np.array(scale, np.float16), "z": zeros(element, ())}
        x = all_codes(element)
        model = node_model("DequantizeLinear", {"x": x}, constants, np.float16, 21)
        proved(folder, model, [x], [engine(model, {"x": x})])


def test_float16_moves_between_the_two(tmp_path: Path) -> None:
    """Through operators that move elements, as its bits."""
    x = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    net = OnnxNet(opset=21)
    scale = net.constant(np.array(0.3, np.float16))
    y = net.op("Transpose", net.op("DequantizeLinear", net.input((3, 4), "int8"), scale), perm=[1, 0])
    net.output(y, "float16")
    net.output(net.op("QuantizeLinear", y, scale, net.constant(0, "int8")), "int8")
    expected = (x.astype(np.float32) * np.float32(np.float16(0.3))).astype(np.float16).T
    proved(tmp_path, net.model(), [x], [expected, x.T])


# ---- constants and moves ----


@pytest.mark.sweep(keep=6)
@pytest.mark.parametrize("element", [name for name in TYPES if name != "float16"])
@pytest.mark.parametrize("block", [0, 3])
def test_constants_are_read_and_moved(element: str, block: int, tmp_path: Path) -> None:
    """A constant that is transposed and dequantized, added to what is computed: an odd number of elements."""
    rng = np.random.default_rng(7)
    weights = rng.choice(all_codes(element), (5, 3))
    values = np.where(np.isfinite(weights.astype(np.float32)), weights.astype(np.float32), np.float32(1))
    weights = values.astype(TYPES[element])
    net = OnnxNet(opset=opset_of(element))
    net.constants.append(numpy_helper.from_array(weights, "w"))
    moved = net.op("Transpose", "w", perm=[1, 0])
    shape, attributes = ((3, 2), {"axis": 1, "block_size": block}) if block else ((3,), {"axis": 0})
    real = net.op("DequantizeLinear", moved, net.constant(scales(shape)), **attributes)
    net.output(net.op("Add", net.input((3, 5)), real))
    x = rng.uniform(-2, 2, (3, 5)).astype(np.float32)
    spread = np.repeat(scales(shape), 3, 1)[:, :5] if block else scales(shape)[:, None]
    proved(tmp_path, net.model(), [x], [x + values.T * spread])


def test_codes_move(tmp_path: Path) -> None:
    x = reals("float8e5m2", 1)
    net = OnnxNet(opset=21)
    zero = "z"
    net.constants.append(numpy_helper.from_array(np.zeros((), ml_dtypes.float8_e5m2), zero))
    codes = net.op("QuantizeLinear", net.input(SHAPE), net.constant(np.float32(0.5)), zero)
    moved = net.op("Transpose", net.op("Reshape", codes, net.ints(7, 3, 4)), perm=[2, 0, 1])
    net.outputs.append(helper.make_tensor_value_info(moved, TensorProto.FLOAT8E5M2, (4, 7, 3)))
    expected = (x / np.float32(0.5)).clip(-57344, 57344).astype(ml_dtypes.float8_e5m2)
    compiled, _ = proved(tmp_path, net.model(), [x], [expected.reshape(7, 3, 4).transpose(2, 0, 1)])
    assert compiled.graph.notes == (f'"{moved}" is float8e5m2: one value\'s bits in each byte',)


@pytest.mark.parametrize("element", ["int2", "uint4", "float8e4m3fn"])
def test_constants_outside_the_file_are_packed_too(element: str, tmp_path: Path) -> None:
    codes = np.resize(all_codes(element)[:7], (7,))
    proto = numpy_helper.from_array(codes, "w")
    (tmp_path / "w.bin").write_bytes(proto.raw_data)
    proto.ClearField("raw_data")
    proto.data_location = TensorProto.EXTERNAL
    proto.external_data.append(onnx.StringStringEntryProto(key="location", value="w.bin"))
    net = OnnxNet(opset=opset_of(element))
    net.constants.append(proto)
    net.output(net.op("Add", net.input((7,)), net.op("DequantizeLinear", "w", net.constant(np.float32(0.5)))))
    x = np.arange(7, dtype=np.float32)
    proved(tmp_path, net.model(), [x], [x + codes.astype(np.float32) * np.float32(0.5)])


# ---- what is refused ----


def small(op_type: str, element: str = "int4", **attributes: Any) -> OnnxNet:
    """Another operator on codes."""
    net = OnnxNet(opset=21)
    net.constants.append(numpy_helper.from_array(np.zeros((), TYPES[element]), "z"))
    codes = net.op("QuantizeLinear", net.input((2, 3)), net.constant(np.float32(0.5)), "z")
    net.outputs.append(
        helper.make_tensor_value_info(net.op(op_type, codes, name="other", **attributes), attributes.get("to", 1), None)
    )
    return net


def compiled_errors(net: OnnxNet, folder: Path) -> list[EmitcError]:
    path = folder / "m.onnx"
    path.write_bytes(net.serialized())
    with pytest.raises(Refusals) as caught:
        compile_model(path)
    return list(caught.value.errors)


@pytest.mark.parametrize("element", ["int4", "float8e5m2"])
def test_other_operators_are_refused(element: str, tmp_path: Path) -> None:
    (error,) = compiled_errors(small("Cast", element, to=TensorProto.FLOAT), tmp_path)
    assert isinstance(error, CannotCompile)
    assert error.what == f"Cast with values of type {element} is not supported"
    assert error.where.op == 'op 1 Cast "other"'
    assert error.why == "only QuantizeLinear, DequantizeLinear and operators that move values have code for this type"


def test_other_operators_on_float16_are_refused(tmp_path: Path) -> None:
    net = OnnxNet(opset=21)
    real = net.op("DequantizeLinear", net.input((2, 3), "int8"), net.constant(np.array(0.5, np.float16)))
    net.output(net.op("Relu", real, name="other"), "float16")
    errors = compiled_errors(net, tmp_path)
    assert {error.what for error in errors} == {"element type float16 is not supported"}


def dequantize(scale: Any, zero: Any = None, x: Any = "int8", **attributes: Any) -> OnnxCase:
    inputs = {"x": computed((4, 6), x), "s": scale} | ({} if zero is None else {"z": zero})
    return OnnxCase("node", "DequantizeLinear", inputs, attributes)


REFUSED: Iterator[Any] = iter((
    pytest.param(dequantize(np.ones((4, 2), np.float32), axis=1, block_size=2),
                 "DequantizeLinear has scales of shape [4, 2]", "[4, 3] is expected", 2, id="blocks"),
    pytest.param(dequantize(computed((5,)), axis=1),
                 "DequantizeLinear has scales of shape [5]", "[6], or one value is expected", 2, id="axis_length"),
    pytest.param(dequantize(computed((6,)), axis=2),
                 "DequantizeLinear has axis 2", "the tensor has 2 dimensions", 2, id="axis"),
    pytest.param(dequantize(computed((6,)), np.zeros(4, np.int8), axis=1),
                 "DequantizeLinear has zero points of shape [4]", "there is one for each of the scales [6]", 2, id="zeros"),
    pytest.param(dequantize(computed(()), np.int32(1), "int32"),
                 "DequantizeLinear of int32 has a zero point that is not 0", "this type has none", 2, id="int32"),
    pytest.param(dequantize(np.full((2, 6), np.inf, np.float32), axis=0, block_size=2),
                 "DequantizeLinear has a scale that is negative or not finite", "inf", 2, id="infinite"),
    pytest.param(dequantize(np.full((2, 6), -1, np.float32), axis=0, block_size=2),
                 "DequantizeLinear has a scale that is negative or not finite", "-1", 2, id="negative"),
    pytest.param(dequantize(np.ones((), ml_dtypes.bfloat16)),
                 "DequantizeLinear with a scale of type bfloat16 is not supported", "there is code for float32 and float16", 1,
                 id="bfloat16"),
))  # fmt: skip


@pytest.mark.parametrize(("case", "what", "why", "code"), list(REFUSED))
def test_refusals(case: OnnxCase, what: str, why: str, code: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = refusal(case)
    found = error.errors[0] if isinstance(error, Refusals) else error
    assert (found.what, found.why, found.exit_code) == (what, why, code)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"saturate": 0}, "QuantizeLinear without saturation is not supported"),
        ({"precision": TensorProto.FLOAT16}, "QuantizeLinear with a precision other than float32 is not supported"),
    ],
)
def test_other_settings_are_refused(attributes: dict[str, int], what: str, tmp_path: Path) -> None:
    x = np.zeros((2,), np.float32)
    constants = {"s": np.array(1, np.float32), "z": zeros("float8e4m3fn", ())}
    model = node_model("QuantizeLinear", {"x": x}, constants, TYPES["float8e4m3fn"], 23, **attributes)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Refusals) as caught:
        compile_model(tmp_path / "m.onnx")
    assert [(error.what, error.exit_code) for error in caught.value.errors] == [(what, 1)]


def test_a_zero_point_of_a_small_float_is_0(tmp_path: Path) -> None:
    x = np.zeros((2,), np.float32)
    constants = {"s": np.array(1, np.float32), "z": np.ones((), ml_dtypes.float8_e5m2)}
    model = node_model("QuantizeLinear", {"x": x}, constants, TYPES["float8e5m2"], 21)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(Refusals) as caught:
        compile_model(tmp_path / "m.onnx")
    assert [error.what for error in caught.value.errors] == [
        "QuantizeLinear of float8e5m2 has a zero point that is not 0"
    ]
