"""DequantizeLinear, operator, QuantizeLinear as one integer operator: which, which not and why, and with what numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from emitc.ir import Array, Graph, Numerics
from emitc.kernels.activation.unary_functions import ByteTable
from emitc.kernels.mac.accumulation import BIAS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.quantization.quantize import Dequantize, Quantize
from emitc.passes.fold import fuse_activation
from emitc.passes.recognise_qdq import recognise_qdq
from emitc.passes.transposes import cancel_transposes
from tests.support.models.onnx_net import OnnxNet
from tests.support.passes.onnx_graphs import Build, check_same, onnx_graph, outputs_of

IMAGE = (1, 4, 5, 6)


def x(net: OnnxNet, *shape: int) -> str:
    """An input that is quantized and dequantized."""
    return net.qdq(net.input(shape or IMAGE), 0.05, 3)


def end(net: OnnxNet, y: str, scale: float = 0.1, zero_point: int = -5) -> None:
    """An output that is quantized and dequantized."""
    net.output(net.qdq(y, scale, zero_point))


def real(net: OnnxNet, *values: float) -> str:
    """A float constant; one value is a scalar."""
    return net.constant(np.float32(values[0]) if len(values) == 1 else np.array(values, np.float32))


def gated(net: OnnxNet) -> None:
    value = x(net)
    end(net, net.op("Mul", value, net.op("Sigmoid", net.op("Mul", value, real(net, 1.7)))))


def relu_then_rescaled(net: OnnxNet) -> None:
    end(net, net.op("Mul", net.op("Relu", x(net)), real(net, 1.7)), 0.05, 3)


def relu_of_int16(net: OnnxNet) -> None:
    value = net.op("Relu", net.qdq(net.input(IMAGE), 3e-4, 0, "int16"))
    net.output(net.qdq(value, 3e-4, 0, "int16"))


def gelu(net: OnnxNet) -> None:
    value = x(net)
    inner = net.op("Add", net.op("Erf", net.op("Div", value, real(net, 1.4142135))), real(net, 1))
    end(net, net.op("Mul", net.op("Mul", value, inner), real(net, 0.5)))


def split(net: OnnxNet) -> None:
    for part in net.ops("Split", x(net), net.ints(1, 3), outputs=2, axis=1):
        end(net, part, 0.05, 3)


def seen_twice(net: OnnxNet) -> None:
    y = net.conv(x(net), (4, 4, 1, 1))
    end(net, y)
    net.output(y)


def product_and_bias(net: OnnxNet, *, first: bool) -> None:
    """A MatMul with its bias in an Add, dequantized before the product or after it."""
    value = x(net, 2, 6)
    early = net.dequantize(net.integers((5,), "int32"), 0.0005, 0, "int32") if first else ""
    y = net.op("MatMul", value, net.weights((6, 5)))
    end(net, net.op("Add", y, early or net.dequantize(net.integers((5,), "int32"), 0.0005, 0, "int32")))


def uint8(net: OnnxNet) -> None:
    y = net.conv(net.qdq(net.input(IMAGE), 0.05, 131, "uint8"), (4, 4, 3, 3))
    net.output(net.qdq(y, 0.1, 9, "uint8"))


@dataclass(frozen=True, slots=True)
class Case:
    """left: classes of the operators that remain, except for the Quantize and Dequantize at the ends, Transpose and Reshape.

    integer: how many float operators the note counts. lsb: steps of the output that the numbers may differ by.
    """

    id: str
    build: Build
    left: tuple[str, ...]
    integer: int
    lsb: int = 0
    opset: int = 17


def moved(net: OnnxNet) -> None:
    end(net, net.op("Reshape", net.op("Relu", net.conv(x(net), (4, 4, 1, 1))), net.ints(0, -1)))


def gemm_per_channel(net: OnnxNet) -> None:
    steps = (0.05 * (0.005 + 0.002 * np.arange(5))).tolist()
    end(net, net.op("Gemm", x(net, 2, 6), net.weights((5, 6), 0), net.bias(5, steps), transB=1))


def bias_of_reals(net: OnnxNet) -> None:
    end(net, net.op("Conv", x(net), net.weights((4, 4, 1, 1)), real(net, 0.1, -0.7, 1.23, 3.0)))


INTEGER = (
    Case("conv", lambda n: end(n, n.conv(x(n), (4, 4, 3, 3))), ("Conv2D",), 1, 1),
    Case("conv_relu", lambda n: end(n, n.op("Relu", n.conv(x(n), (4, 4, 3, 3)))), ("Conv2D",), 2, 1),
    Case("conv_clip", lambda n: end(n, n.op("Clip", n.conv(x(n), (4, 4, 3, 3)), real(n, 0), real(n, 6))), ("Conv2D",), 2, 1),
    Case("conv_without_bias", lambda n: end(n, n.conv(x(n), (4, 4, 3, 3), None, False)), ("Conv2D",), 1, 1),
    Case("conv_of_rows", lambda n: end(n, n.conv(x(n, 1, 4, 9), (4, 4, 3))), ("Conv2D",), 1, 1),
    Case("conv_moved", moved, ("Conv2D",), 2, 1),
    Case("bias_of_reals", bias_of_reals, ("Conv2D",), 1, 1),
    Case("depthwise", lambda n: end(n, n.conv(x(n), (4, 1, 3, 3), group=4)), ("DepthwiseConv2D",), 1, 1),
    Case("uint8", uint8, ("Conv2D",), 1, 1),
    Case("gemm", lambda n: end(n, n.op("Gemm", x(n, 2, 6), n.weights((5, 6)), n.bias(5), transB=1)), ("FullyConnected",), 1, 1),
    Case("gemm_per_channel", gemm_per_channel, ("FullyConnected",), 1, 1),
    Case("matmul", lambda n: end(n, n.op("MatMul", x(n, 2, 6), n.weights((6, 5)))), ("FullyConnected",), 1, 1),
    Case("matmul_bias_before", lambda n: product_and_bias(n, first=True), ("FullyConnected",), 2, 1),
    Case("matmul_bias_behind", lambda n: product_and_bias(n, first=False), ("FullyConnected",), 2, 1),
    Case("add", lambda n: end(n, n.op("Add", x(n), x(n))), ("Quantize", "Add"), 1),
    Case("add_relu", lambda n: end(n, n.op("Relu", n.op("Add", x(n), x(n)))), ("Quantize", "Add"), 2),
    Case("add_constant", lambda n: end(n, n.op("Add", x(n), n.weights((4, 1, 1)))), ("Add",), 1),
    Case("mul", lambda n: end(n, n.op("Mul", x(n), x(n))), ("Quantize", "Mul"), 1),
    Case("sigmoid", lambda n: end(n, n.op("Sigmoid", x(n)), 1 / 256, -128), ("ByteTable",), 1),
    Case("relu", lambda n: end(n, n.op("Relu", x(n))), ("ByteTable",), 1),
    Case("relu_of_equal_scales", lambda n: end(n, n.op("Relu", x(n)), 0.05, 3), ("Relu",), 1),
    Case("relu_then_rescaled", relu_then_rescaled, ("ByteTable",), 2),
    Case("relu_of_int16", relu_of_int16, ("Relu",), 1, opset=21),
    Case("leaky_relu", lambda n: end(n, n.op("LeakyRelu", x(n), alpha=0.1)), ("ByteTable",), 1),
    Case("gated", gated, ("ByteTable",), 3),
    Case("gelu", gelu, ("ByteTable",), 5),
    Case("average", lambda n: end(n, n.op("AveragePool", x(n), kernel_shape=[2, 2])), ("AveragePool2D",), 1, 1),
    Case("concat", lambda n: end(n, n.op("Concat", x(n), x(n), axis=1)), ("Quantize", "Concatenation"), 1),
    Case("reshape", lambda n: end(n, n.op("Reshape", x(n), n.ints(0, -1)), 0.05, 3), (), 0),
    Case("max_pool", lambda n: end(n, n.op("MaxPool", x(n), kernel_shape=[2, 2]), 0.05, 3), ("MaxPool2D",), 0),
    Case("split", split, ("Split", "Dequantize"), 0),
    Case("rescaled", lambda n: end(n, x(n)), ("ByteTable",), 0),
    Case("rescaled_and_moved", lambda n: end(n, n.op("Reshape", x(n), n.ints(0, -1))), ("ByteTable",), 0),
    Case("equal_scales", lambda n: end(n, x(n), 0.05, 3), (), 0),
)  # fmt: skip


def between(graph: Graph) -> tuple[str, ...]:
    """The classes of the operators, without one Quantize and one Dequantize, Transpose and Reshape."""
    names = [type(node.op).__name__ for node in graph.nodes]
    for end_of in ("Quantize", "Dequantize"):
        names.remove(end_of)
    return tuple(name for name in names if name not in ("Transpose", "Reshape"))


def inputs_of(graph: Graph, seed: int) -> list[Array]:
    """Reals beyond what the inputs' scales reach."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(-8, 8, graph.tensor(name).shape).astype(np.float32) for name in graph.inputs]


@pytest.mark.parametrize("case", INTEGER, ids=[case.id for case in INTEGER])
def test_what_becomes_integer(case: Case) -> None:
    before = cancel_transposes(onnx_graph(case.build, case.opset))
    after = recognise_qdq(before)
    assert between(after) == case.left
    what = "float operator" if case.integer == 1 else "float operators"
    notes = (f"QDQ: {case.integer} {what} became integer",) if case.integer else ()
    assert after.notes == before.notes + notes
    floats = [n for n in after.nodes for name in n.inputs if name and after.tensor(name).dtype.value == "float32"]
    assert all(isinstance(node.op, Quantize) for node in floats)
    step = next(after.tensor(n.inputs[0]).quantization for n in after.nodes if isinstance(n.op, Dequantize))
    assert step is not None
    for seed in range(4):
        inputs = inputs_of(before, seed)
        if case.lsb == 0:
            check_same(before, after, inputs)
        for expected, found in zip(outputs_of(before, inputs), outputs_of(after, inputs), strict=True):
            steps = np.rint((expected.astype(np.float64) - found) / step.scale)
            assert np.abs(steps).max() <= case.lsb
            assert np.count_nonzero(steps) <= 0.02 * steps.size + 1


def test_integer_operators_say_that_they_stand_for_floats() -> None:
    for case in INTEGER:
        for node in recognise_qdq(cancel_transposes(onnx_graph(case.build, case.opset))).nodes:
            if type(node.op).__name__ in ("Conv2D", "DepthwiseConv2D", "FullyConnected", "Add", "Mul", "AveragePool2D"):
                assert node.op.numerics is Numerics.QDQ, case.id


def dense_and_relu(net: OnnxNet, scale: float, zero_point: int, dtype: str) -> None:
    value = net.qdq(net.input((2, 6)), 3e-4 if dtype == "int16" else 0.05, 0, dtype)
    value = net.op("Gemm", value, net.weights((5, 6)), transB=1)
    for _ in range(2):
        value = net.qdq(value, scale, zero_point, dtype)
        value = net.op("Relu", value)
    net.output(net.qdq(value, scale, zero_point, dtype))


@pytest.mark.parametrize(("scale", "zero_point", "dtype"), [(2e-4, 0, "int16"), (0.1, -5, "int8")])
def test_relus_that_keep_the_steps_merge_into_the_operator_before_them(
    scale: float, zero_point: int, dtype: str
) -> None:
    before = recognise_qdq(onnx_graph(lambda net: dense_and_relu(net, scale, zero_point, dtype), 21))
    after = fuse_activation(before)
    assert between(before) == ("FullyConnected", "Relu", "Relu")
    assert between(after) == ("FullyConnected", "Relu")
    assert [node.op.activation for node in after.nodes if isinstance(node.op, FullyConnected)] == ["RELU"]
    for seed in range(4):
        check_same(before, after, inputs_of(before, seed))


def bias_with_dimensions(net: OnnxNet) -> None:
    """An Add whose constant of one value for each output has more dimensions than the product: so has the sum."""
    y = net.op("MatMul", x(net, 2, 6), net.weights((6, 5)))
    end(net, net.op("Add", y, net.constant(np.linspace(0, 1, 5).astype(np.float32).reshape(1, 1, 5))))


def row_of_reals(net: OnnxNet) -> None:
    end(net, net.op("Add", x(net), net.constant(np.linspace(0, 1, 6).astype(np.float32))))


FLOAT: dict[str, tuple[Callable[[OnnxNet], None], str, str]] = {
    "not_quantized": (lambda n: n.output(n.conv(x(n), (4, 4, 3, 3))), "Conv2D", "its result is not quantized"),
    "bias_with_dimensions": (bias_with_dimensions, "FullyConnected", "its result is not quantized"),
    "read_twice": (seen_twice, "Conv2D", "its result is not quantized"),
    "float_operand": (row_of_reals, "Add", "an operand is a constant in float32"),
    "computed_filters": (
        lambda n: end(n, n.op("Conv", x(n), n.dequantize(n.input((4, 4, 1, 1), "int8"), 0.01, 0))),
        "Conv2D",
        "Conv with computed weights is not supported: weights and bias must be constants",
    ),
    "bias_too_large": (
        lambda n: end(n, n.op("Gemm", x(n, 2, 6), n.weights((5, 6)), real(n, 1e8, 0, 0, 0, 0), transB=1)),
        "FullyConnected",
        "its bias is beyond 32 bits at the accumulator's scale",
    ),
    "bias_not_finite": (
        lambda n: end(n, n.op("Gemm", x(n, 2, 6), n.weights((5, 6)), real(n, float("nan"), 0, 0, 0, 0), transB=1)),
        "FullyConnected",
        "its bias is beyond 32 bits at the accumulator's scale",
    ),
    "scales_along_inputs": (
        lambda n: end(n, n.op("Gemm", x(n, 2, 6), n.weights((5, 6), 1), real(n, 0.1, -0.7, 1.23, 3.0, 0.5), transB=1)),
        "FullyConnected",
        "its weights have scales along dimension 1, and outputs along 0",
    ),
    "scales_along_inputs_integer_bias": (
        lambda n: end(n, n.op("Gemm", x(n, 2, 6), n.weights((5, 6), 1), n.bias(5), transB=1)),
        "FullyConnected",
        "its weights have scales along dimension 1, and outputs along 0",
    ),
    "scales_along_inputs_square": (
        lambda n: end(n, n.op("Gemm", x(n, 2, 5), n.weights((5, 5), 1), n.bias(5), transB=1)),
        "FullyConnected",
        "its weights have scales along dimension 1, and outputs along 0",
    ),
    "scales_along_filter_rows": (
        lambda n: end(n, n.op("Conv", x(n, 1, 4, 5, 6), n.weights((4, 4, 3, 3), 2), n.bias(4))),
        "Conv2D",
        "its weights have scales along dimension 1, and outputs along 0",
    ),
}


@pytest.mark.parametrize("name", FLOAT)
def test_what_stays_in_float_and_why(name: str) -> None:
    build, left, why = FLOAT[name]
    before = cancel_transposes(onnx_graph(build))
    after = recognise_qdq(before)
    (node,) = (node for node in after.nodes if type(node.op).__name__ == left)
    assert node.op.numerics is not Numerics.QDQ
    assert after.notes == ("QDQ: 0 float operators became integer", f"{node.describe()} stays in float32: {why}")
    rng = np.random.default_rng(0)
    drawn = {name: rng.uniform(-8, 8, before.tensor(name).shape) for name in before.inputs}
    inputs = [values.astype(before.tensor(name).dtype.value) for name, values in drawn.items()]
    check_same(before, after, inputs)


def test_a_byte_whose_scale_depends_on_its_channel_has_no_table() -> None:
    def build(net: OnnxNet) -> None:
        names = net.scales((0.05, 0.02, 0.1, 0.01), 3, "int8")
        codes = net.op("QuantizeLinear", net.input(IMAGE), *names, axis=1)
        end(net, net.op("Sigmoid", net.op("DequantizeLinear", codes, *names, axis=1)))

    before = cancel_transposes(onnx_graph(build))
    after = recognise_qdq(before)
    assert not any(isinstance(node.op, ByteTable) for node in after.nodes)
    check_same(before, after, inputs_of(before, 0))


def with_bias(*values: float) -> Build:
    """A product at the accumulator's scale 0.05 * 0.01 with this bias."""

    def build(net: OnnxNet) -> None:
        bias = net.constant(np.array(values, np.float32))
        end(net, net.op("Gemm", x(net, 2, 6), net.weights((len(values), 6)), bias, transB=1))

    return build


def test_a_float_bias_is_rounded_to_the_accumulator_with_a_note() -> None:
    """As long as no output shows it."""
    after = recognise_qdq(onnx_graph(with_bias(0.03000001, -0.0005, 0.0)))
    (node,) = (node for node in after.nodes if type(node.op).__name__ == "FullyConnected")
    bias = after.tensor(node.inputs[BIAS])
    assert bias.array().tolist() == [60, -1, 0]
    assert bias.dtype.value == "int32" and bias.quantization is not None
    assert bias.quantization.scales == pytest.approx((0.0005,))
    assert after.notes == (
        "QDQ: 1 float operator became integer",
        f"{node.describe()}: its bias is rounded to input scale times weight scale (up to 1.1e-07 output steps)",
    )


def test_a_float_bias_that_fits_needs_no_note() -> None:
    after = recognise_qdq(onnx_graph(with_bias(0.03, -0.0005, 0.0)))
    assert after.notes == ("QDQ: 1 float operator became integer",)


def test_a_quantized_bias_is_taken_as_it_is() -> None:
    """Its integers, not what they become on their way through float32."""

    def build(net: OnnxNet) -> None:
        bias = net.dequantize(net.constant(np.array([2**30 + 1, -(2**30) - 3], np.int32)), 0.0005, 0, "int32")
        end(net, net.op("Gemm", x(net, 2, 6), net.weights((2, 6)), bias, transB=1))

    after = recognise_qdq(onnx_graph(build))
    (node,) = (node for node in after.nodes if type(node.op).__name__ == "FullyConnected")
    assert after.tensor(node.inputs[BIAS]).array().tolist() == [2**30 + 1, -(2**30) - 3]


def test_graphs_without_a_dequantize_stay_as_they_are() -> None:
    before = onnx_graph(lambda net: net.output(net.op("Relu", net.input((2, 3)))))
    assert recognise_qdq(before) is before


def test_a_second_pass_changes_no_operator() -> None:
    for case in INTEGER:
        after = recognise_qdq(cancel_transposes(onnx_graph(case.build, case.opset)))
        assert recognise_qdq(after).nodes == after.nodes, case.id


def test_a_long_row_of_floats_is_walked_once() -> None:
    """An operator is asked for no more of those after it than it takes to see that it begins no integer run."""

    def build(net: OnnxNet) -> None:
        y, constant = net.input((1, 2)), net.dequantize(net.integers((1, 2)))
        for _ in range(1000):
            y = net.op("Add", y, constant)
        net.output(y)

    graph = onnx_graph(build)
    asked = 0
    consumers = Graph.consumers

    def counted(self: Graph, name: str) -> tuple[object, ...]:
        nonlocal asked
        asked += 1
        return consumers(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graph, "consumers", counted)
        recognise_qdq(graph)
    assert asked < 20_000
