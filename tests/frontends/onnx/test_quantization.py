"""Scales and zero points of ONNX on tensors: where they come to lie, what conflicts give, and uint8 as int8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from emitc.errors import CannotCompile, EmitcError
from emitc.frontends.build import build_graph
from emitc.frontends.onnx.quantization import MOVES, quantization_on_tensors
from emitc.frontends.onnx.reader import read_onnx
from emitc.ir import Quantization
from emitc.kernels import registry_of
from emitc.source import SourceModel, SourceNode, SourceTensor
from tests.support.models.onnx_net import MICROSOFT, OnnxNet

PLAIN = Quantization((float(np.float32(0.05)),), (3,))
OTHER = Quantization((float(np.float32(0.2)),), (-7,))
CHANNELS = tuple(float(np.float32(0.01 + 0.01 * i)) for i in range(4))


def unwrapped(net: OnnxNet) -> SourceModel:
    """The model with its scales on tensors."""
    return quantization_on_tensors(read_onnx(net.serialized()))


def kinds(model: SourceModel) -> list[str]:
    """What the operators are, in order."""
    return [node.kind or node.op_type for node in model.nodes]


def node_of(model: SourceModel, kind: str) -> SourceNode:
    """The only operator of a kind."""
    (found,) = (node for node in model.nodes if node.kind == kind)
    return found


def operands(node: SourceNode) -> list[tuple[str, Quantization | None]]:
    """Types and quantizations of the inputs, then of the outputs."""
    tensors: list[SourceTensor | None] = [*node.inputs, *node.outputs]
    return [(t.dtype, t.quantization) for t in tensors if t is not None]


def plain(net: OnnxNet) -> tuple[str, str]:
    """Scale and zero point of PLAIN."""
    return net.scales(0.05, 3, "int8")


def other(net: OnnxNet) -> tuple[str, str]:
    """Scale and zero point of OTHER."""
    return net.scales(0.2, -7, "int8")


# ---- where they lie ----


def convolution(net: OnnxNet) -> str:
    return net.op("QLinearConv", net.input((1, 3, 4, 4), "int8"), *plain(net), net.integers((4, 3, 1, 1)),
                  *net.scales(CHANNELS, 0, "int8"), *other(net), net.integers((4,), "int32"))  # fmt: skip


def product(net: OnnxNet) -> str:
    return net.op("QLinearMatMul", net.input((2, 3), "int8"), *plain(net), net.integers((3, 4)),
                  *net.scales(CHANNELS, 0, "int8"), *other(net))  # fmt: skip


def gemm(net: OnnxNet) -> str:
    return net.op("QGemm", net.input((2, 3), "int8"), *plain(net), net.integers((4, 3)), *net.scales(CHANNELS, 0, "int8"),
                  net.integers((4,), "int32"), *other(net), transB=1, domain=MICROSOFT)  # fmt: skip


def addition(net: OnnxNet) -> str:
    x, y = net.input((2, 3), "int8"), net.input((2, 3), "int8")
    return net.op("QLinearAdd", x, *plain(net), y, *other(net), *plain(net), domain=MICROSOFT)


def sigmoid(net: OnnxNet) -> str:
    return net.op("QLinearSigmoid", net.input((2, 3), "int8"), *plain(net), *other(net), domain=MICROSOFT)


def mean(net: OnnxNet) -> str:
    x = net.input((1, 2, 3, 3), "int8")
    return net.op("QLinearGlobalAveragePool", x, *plain(net), *other(net), domain=MICROSOFT)


def concatenation(net: OnnxNet) -> str:
    x, y = net.input((2, 3), "int8"), net.input((2, 3), "int8")
    return net.op("QLinearConcat", *other(net), x, *plain(net), y, *other(net), axis=1, domain=MICROSOFT)


FILTERS = Quantization(CHANNELS, (0,) * 4, 0)


@pytest.mark.parametrize(
    ("build", "kind", "expected"),
    [
        (convolution, "Conv", [("int8", PLAIN), ("int8", FILTERS), ("int32", None), ("int8", OTHER)]),
        (product, "MatMul", [("int8", PLAIN), ("int8", Quantization(CHANNELS, (0,) * 4, 1)), ("int8", OTHER)]),
        (gemm, "Gemm", [("int8", PLAIN), ("int8", FILTERS), ("int32", None), ("int8", OTHER)]),
        (addition, "Add", [("int8", PLAIN), ("int8", OTHER), ("int8", PLAIN)]),
        (sigmoid, "Sigmoid", [("int8", PLAIN), ("int8", OTHER)]),
        (mean, "GlobalAveragePool", [("int8", PLAIN), ("int8", OTHER)]),
        (concatenation, "Concat", [("int8", PLAIN), ("int8", OTHER), ("int8", OTHER)]),
    ],
    ids=[
        "QLinearConv",
        "QLinearMatMul",
        "QGemm",
        "QLinearAdd",
        "QLinearSigmoid",
        "QLinearGlobalAveragePool",
        "QLinearConcat",
    ],
)
def test_scales_lie_on_the_tensors_of_the_operator(
    build: Callable[[OnnxNet], str], kind: str, expected: list[tuple[str, Quantization | None]]
) -> None:
    net = OnnxNet()
    net.output(build(net), "int8")
    model = unwrapped(net)
    assert kinds(model) == [kind]
    assert operands(model.nodes[0]) == expected


def test_quantize_and_dequantize_state_their_quantized_side() -> None:
    net = OnnxNet()
    net.output(net.dequantize(net.quantize(net.input((2, 3)))))
    model = unwrapped(net)
    assert kinds(model) == ["Quantize", "Dequantize"]
    assert operands(model.nodes[0]) == [("float32", None), ("int8", PLAIN)]
    assert operands(model.nodes[1]) == [("int8", PLAIN), ("float32", None)]


@pytest.mark.parametrize(("axis", "found"), [(0, 0), (1, 1), (-1, 1), (None, 1)])
def test_the_axis_of_a_dequantized_constant(axis: int | None, found: int) -> None:
    net = OnnxNet()
    scale = [0.1, 0.2, 0.3, 0.4]
    net.output(net.op("Add", net.input((4, 4)), net.dequantize(net.integers((4, 4)), scale, 0, "int8", axis)))
    (constant,) = (t for t in unwrapped(net).tensors if t.quantization is not None and not t.quantization.per_tensor)
    assert constant.quantization == Quantization(tuple(float(np.float32(s)) for s in scale), (0,) * 4, found)


def test_a_zero_point_that_is_left_out_is_zero() -> None:
    net = OnnxNet()
    net.output(net.op("DequantizeLinear", net.input((2,), "int8"), net.scales(0.05, 0, "int8")[0]))
    assert unwrapped(net).nodes[0].inputs[0].quantization == Quantization(PLAIN.scales, (0,))


def test_a_quantized_constant_is_computed() -> None:
    """QuantizeLinear of a constant, also of a dequantized one: half to even, and the type's range."""
    net = OnnxNet()
    values = np.array([0.1, 0.3, 0.5, -100, 100, np.inf, -np.inf], np.float32)
    net.output(net.op("Identity", net.op("QuantizeLinear", net.constant(values), *net.scales(0.2, 0, "int8"))), "int8")
    again = net.dequantize(net.constant(np.array([1, 2, 3, 127], np.int8)), 0.1, 0)
    net.output(net.op("Identity", net.quantize(again, 0.2, 1)), "int8")
    model = unwrapped(net)
    found = [node.inputs[0].array().tolist() for node in model.nodes if node.kind == "Identity"]
    assert found == [[0, 2, 2, -128, 127, 127, -128], [1, 2, 3, 65]]


def test_statistics_that_are_dequantized_are_constants() -> None:
    """ONNX Runtime's quantizer quantizes scale and bias of a BatchNormalization."""
    net = OnnxNet()
    scale = net.dequantize(net.constant(np.array([1, -2, 127], np.int8)), (0.1, 0.5, 0.25), 0, axis=0)
    bias = net.dequantize(net.constant(np.array([3, 255, 0], np.uint8)), 0.5, 3, "uint8")
    kept = [net.constant(np.array(values, np.float32)) for values in ((1, 2, 3), (4, 5, 6))]
    net.output(net.op("BatchNormalization", net.qdq(net.input((1, 3, 2, 2))), scale, bias, *kept))
    model = unwrapped(net)
    found = [tensor.array() for tensor in node_of(model, "BatchNormalization").inputs[1:] if tensor is not None]
    expected = [np.multiply([1, -2, 127], [0.1, 0.5, 0.25], dtype=np.float32), [0, 126, -1.5], [1, 2, 3], [4, 5, 6]]
    assert [array.dtype for array in found] == [np.float32] * 4
    assert [array.tolist() for array in found] == [np.asarray(array, np.float32).tolist() for array in expected]
    build_graph(model, registry_of("onnx"), "m")


def test_statistics_that_depend_on_an_input_are_refused() -> None:
    net = OnnxNet()
    codes = [net.dequantize(net.input((3,), "int8"), 0.1, 0), *(net.constant(np.ones(3, np.float32)) for _ in range(3))]
    net.output(net.op("BatchNormalization", net.input((1, 3, 2, 2)), *codes))
    with pytest.raises(EmitcError) as caught:
        build_graph(unwrapped(net), registry_of("onnx"), "m")
    assert caught.value.what == "BatchNormalization has a computed scale"


# ---- conflicts ----


def test_a_second_quantization_of_one_tensor_is_a_view() -> None:
    """Two DequantizeLinear of one tensor that disagree: the second reads the same numbers under its own scale."""
    net = OnnxNet()
    x = net.input((2, 3), "int8")
    net.output(net.dequantize(x, 0.05, 3))
    net.output(net.dequantize(x, 0.2, -7))
    model = unwrapped(net)
    assert kinds(model) == ["Dequantize", "Reinterpret", "Dequantize"]
    assert operands(model.nodes[1]) == [("int8", PLAIN), ("int8", OTHER)]
    assert operands(model.nodes[2])[0] == ("int8", OTHER)


def test_equal_quantizations_need_no_view() -> None:
    net = OnnxNet()
    x = net.quantize(net.input((2, 3)))
    net.output(net.dequantize(x))
    net.output(net.dequantize(x))
    assert kinds(unwrapped(net)) == ["Quantize", "Dequantize", "Dequantize"]


def test_a_concatenation_joins_what_its_output_says_otherwise() -> None:
    net = OnnxNet()
    x = net.quantize(net.input((2, 3)))
    y = net.op("QLinearConcat", *plain(net), x, *other(net), x, *plain(net), axis=0, domain=MICROSOFT)
    net.output(y, "int8")
    model = unwrapped(net)
    assert kinds(model) == ["Quantize", "Reinterpret", "Concat"]
    assert operands(node_of(model, "Concat")) == [("int8", OTHER), ("int8", PLAIN), ("int8", PLAIN)]


def test_moved_values_that_are_said_to_mean_something_else() -> None:
    net = OnnxNet()
    x = net.quantize(net.input((1, 2, 4, 4)), 0.05, 3)
    net.output(net.dequantize(net.op("MaxPool", x, kernel_shape=[2, 2]), 0.2, -7))
    model = unwrapped(net)
    assert kinds(model) == ["Quantize", "MaxPool", "Reinterpret", "Dequantize"]
    assert operands(model.nodes[1]) == [("int8", PLAIN), ("int8", PLAIN)]
    assert operands(model.nodes[2]) == [("int8", PLAIN), ("int8", OTHER)]


# ---- moves ----

MOVED: dict[str, Callable[[OnnxNet, str], str]] = {
    "MaxPool": lambda net, x: net.op("MaxPool", x, kernel_shape=[2, 2]),
    "Reshape": lambda net, x: net.op("Reshape", x, net.ints(-1)),
    "Flatten": lambda net, x: net.op("Flatten", x),
    "Transpose": lambda net, x: net.op("Transpose", x),
    "Squeeze": lambda net, x: net.op("Squeeze", x, net.ints(0)),
    "Unsqueeze": lambda net, x: net.op("Unsqueeze", x, net.ints(0)),
    "Identity": lambda net, x: net.op("Identity", x),
    "Slice": lambda net, x: net.op("Slice", x, net.ints(0), net.ints(1), net.ints(1)),
    "Split": lambda net, x: net.ops("Split", x, net.ints(1, 1), outputs=2, axis=1)[1],
    "Gather": lambda net, x: net.op("Gather", x, net.ints(1, 0), axis=1),
    "DepthToSpace": lambda net, x: net.op("Reshape", net.op("SpaceToDepth", x, blocksize=2), net.ints(-1)),
    "Expand": lambda net, x: net.op("Expand", x, net.ints(2, 2, 4, 4)),
    "Tile": lambda net, x: net.op("Tile", x, net.ints(1, 2, 1, 1)),
    "Concat": lambda net, x: net.op("Concat", x, net.constant(np.zeros((1, 1, 4, 4), np.int8)), axis=1),
}


@pytest.mark.parametrize("kind", MOVED)
def test_moves_hand_a_quantization_on_forwards_and_backwards(kind: str) -> None:
    for backwards in (False, True):
        net = OnnxNet()
        x = net.input((1, 2, 4, 4), "int8") if backwards else net.quantize(net.input((1, 2, 4, 4)))
        y = MOVED[kind](net, x)
        net.output(net.dequantize(y) if backwards else y, "float32" if backwards else "int8")
        model = unwrapped(net)
        moving = [node for node in model.nodes if node.kind not in ("Quantize", "Dequantize")]
        assert {t.quantization for node in moving for t in node.outputs} == {PLAIN}
        assert {node.inputs[0].quantization for node in moving} == {PLAIN}
        assert moving[0].kind in (*MOVES, "Concat")


def test_floats_stay_floats() -> None:
    net = OnnxNet()
    net.output(net.op("Reshape", net.input((2, 3)), net.ints(6)))
    assert all(t.quantization is None for t in unwrapped(net).tensors)


# ---- uint8 ----


def test_uint8_is_int8_inside_and_kept_at_the_interface() -> None:
    net = OnnxNet()
    scale, zero = net.scales(0.05, 130, "uint8")
    net.input((1, 3, 4, 4), "uint8", "image")
    weights = net.constant(np.arange(12, dtype=np.uint8).reshape(4, 3, 1, 1))
    y = net.op("QLinearConv", "image", scale, zero, weights, *net.scales(0.01, 128, "uint8"), scale, zero)
    net.output(net.op("MaxPool", y, kernel_shape=[2, 2]), "uint8")
    model = unwrapped(net)
    assert kinds(model) == ["ShiftSign", "Conv", "MaxPool", "ShiftSign"]
    inside = Quantization(PLAIN.scales, (2,))
    filters = model.nodes[1].inputs[1]
    assert operands(model.nodes[1])[0] == operands(model.nodes[1])[-1] == ("int8", inside)
    assert filters is not None and filters.quantization == Quantization((float(np.float32(0.01)),), (0,))
    assert filters.array().reshape(-1).tolist() == list(range(-128, -116))
    ends = [model.tensors[i] for i in (*model.inputs, *model.outputs)]
    outside = Quantization(PLAIN.scales, (130,))
    assert [(t.name, t.dtype, t.quantization) for t in ends] == [("image", "uint8", outside), ("v1", "uint8", outside)]


def test_uint8_within_a_float_interface_has_no_rebias() -> None:
    net = OnnxNet()
    net.output(net.dequantize(net.op("MaxPool", net.quantize(net.input((1, 2, 4, 4)), 0.05, 131, "uint8"), kernel_shape=[2, 2]),
                              0.05, 131, "uint8"))  # fmt: skip
    model = unwrapped(net)
    assert kinds(model) == ["Quantize", "MaxPool", "Dequantize"]
    assert operands(model.nodes[1]) == [("int8", PLAIN), ("int8", PLAIN)]


def test_an_operator_that_sees_numbers_gets_uint8() -> None:
    net = OnnxNet()
    x = net.quantize(net.input((2, 3)), 0.05, 131, "uint8")
    net.output(net.op("Cast", x, to=6), "int32")
    net.output(net.op("Equal", x, net.constant(7, "uint8")), "bool")
    net.output(net.dequantize(x, 0.05, 131, "uint8"))
    model = unwrapped(net)
    assert kinds(model) == ["Quantize", "ShiftSign", "Cast", "Equal", "Dequantize"]
    assert operands(node_of(model, "Cast"))[0][0] == "uint8"
    assert [dtype for dtype, _ in operands(node_of(model, "Equal"))] == ["uint8", "uint8", "bool"]
    assert operands(node_of(model, "Dequantize"))[0] == ("int8", PLAIN)


def test_plain_uint8_stays() -> None:
    net = OnnxNet()
    net.output(net.op("Identity", net.input((2, 3), "uint8")), "uint8")
    model = unwrapped(net)
    assert kinds(model) == ["Identity"]
    assert {t.dtype for t in model.tensors} == {"uint8"}


def test_an_input_that_is_an_output_too() -> None:
    net = OnnxNet()
    net.output(net.input((2,), "uint8"), "uint8")
    net.output(net.dequantize("x0", 0.05, 131, "uint8"))
    model = unwrapped(net)
    assert kinds(model) == ["ShiftSign", "Dequantize"]
    assert [model.tensors[i].dtype for i in model.outputs] == ["uint8", "float32"]
    assert model.outputs[0] == model.inputs[0]


# ---- refusals ----


def quantize_with(scale: object, zero: object, shape: tuple[int, ...] = (2, 3), **attributes: int) -> OnnxNet:
    """A QuantizeLinear with these constants."""
    net = OnnxNet()
    zero_name = [net.constant(np.asarray(zero))] if zero is not None else []
    net.nodes.append(helper.make_node(
        "QuantizeLinear", [net.input(shape), net.constant(np.asarray(scale)), *zero_name], ["y"], "q", **attributes))  # fmt: skip
    net.output("y", "int8", shape)
    return net


S8 = np.int8(0)


@pytest.mark.parametrize(
    ("net", "what", "kind"),
    [
        (quantize_with(np.float32(0), S8), "QuantizeLinear has a scale that is not positive", EmitcError),
        (quantize_with(np.float32(-1), S8), "QuantizeLinear has a scale that is not positive", EmitcError),
        (quantize_with(np.float32("nan"), S8), "QuantizeLinear has a scale that is not positive", EmitcError),
        (quantize_with(np.float32("inf"), S8), "QuantizeLinear has a scale that is not positive", EmitcError),
        (quantize_with(np.ones(2, np.float32), np.zeros(2, np.int8)), "QuantizeLinear has 2 scales", EmitcError),
        (
            quantize_with(np.ones(3, np.float32), np.zeros(2, np.int8)),
            "QuantizeLinear has 2 zero points for 3 scales",
            EmitcError,
        ),
        (
            quantize_with(np.ones(3, np.float32), np.zeros(3, np.int8), axis=5),
            "QuantizeLinear has 3 scales",
            EmitcError,
        ),
    ],
    ids=["zero", "negative", "nan", "infinite", "length", "zero_points", "axis"],
)
def test_a_wrong_scale_blocks_its_operator(net: OnnxNet, what: str, kind: type[EmitcError]) -> None:
    (node,) = unwrapped(net).nodes
    assert isinstance(node.blocker, kind) and not isinstance(node.blocker, CannotCompile)
    assert (node.blocker.what, node.blocker.where.op) == (what, 'op 0 QuantizeLinear "q"')


def test_a_scale_that_is_computed_blocks_its_operator_alone() -> None:
    net = OnnxNet()
    x, scale = net.input((2, 2)), net.input((), name="scale")
    known = (net.constant(0.1, "float32"), net.constant(0, "int8"))
    matrix = net.constant(np.ones((2, 2), np.int8))
    quantized = net.quantize(x)
    net.output(net.op("QLinearMatMul", quantized, scale, known[1], matrix, *known, *known, name="computed"), "int8")
    first, second = unwrapped(net).nodes
    assert isinstance(second.blocker, CannotCompile)
    assert second.blocker.what == "QLinearMatMul takes its scale from a computed tensor"
    assert (first.blocker, first.kind) == (None, "Quantize")


def test_a_scale_that_is_computed_stays_an_operand() -> None:
    """Of the two operators that have code for it, on numbers that stand for nothing by themselves."""
    net = OnnxNet()
    x, scale = net.input((2,)), net.input((), name="scale")
    codes = net.op("QuantizeLinear", x, scale, net.constant(0, "uint8"))
    net.output(net.op("DequantizeLinear", codes, scale, net.constant(0, "uint8")))
    model = unwrapped(net)
    assert [(node.kind, node.blocker) for node in model.nodes] == [("QuantizeCodes", None), ("DequantizeCodes", None)]
    (written,) = model.nodes[0].outputs
    assert (written.dtype, written.quantization) == ("uint8", None)
