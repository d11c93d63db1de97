"""ONNX files that contradict themselves, or whose constants no sum takes: refused with what, where and why, exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.frontends.onnx.numbers import LARGEST_REAL
from emitc.frontends.read import read_source
from tests.support.models.onnx_net import MICROSOFT, OnnxNet

INT32_MAX = 2**31 - 1


def compiled(model: onnx.ModelProto | OnnxNet, folder: Path) -> EmitcError | None:
    """The refusal of a model; None where it compiles."""
    path = folder / "m.onnx"
    path.write_bytes((model.model() if isinstance(model, OnnxNet) else model).SerializeToString())
    try:
        compile_model(path)
    except EmitcError as error:
        return error
    return None


def qlinear_conv(group: int | None, channels: int = 8, shape: tuple[int, ...] = (4, 8, 1, 1)) -> OnnxNet:
    """QLinearConv of an int8 image."""
    net = OnnxNet()
    x = net.input((1, channels, 5, 5), "int8")
    attributes = {} if group is None else {"group": group}
    x_q, w_q, y_q = (net.scales(scale, 0, "int8") for scale in (0.05, 0.01, 0.1))
    net.output(net.op("QLinearConv", x, *x_q, net.integers(shape), *w_q, *y_q, **attributes), "int8")
    return net


@pytest.mark.parametrize("group", [0, -1, 2, 5, 8, 32, 2**31, 2**32, 2**32 + 1, 2**40])
def test_a_group_that_contradicts_the_weights_is_refused(group: int, tmp_path: Path) -> None:
    error = compiled(qlinear_conv(group), tmp_path)
    assert error is not None and error.exit_code == 2
    assert (error.what, error.where.op) == (f"QLinearConv has group {group}", 'op 0 QLinearConv "n0"')
    assert error.why == "the input has 8 channels, the weights take 8 of them in each group and make 4"


@pytest.mark.parametrize(
    ("group", "shape"), [(None, (4, 8, 1, 1)), (1, (4, 8, 3, 3)), (4, (8, 2, 1, 1)), (8, (8, 1, 3, 3))]
)
def test_a_group_that_fits_compiles(group: int | None, shape: tuple[int, ...], tmp_path: Path) -> None:
    assert compiled(qlinear_conv(group, shape=shape), tmp_path) is None


@pytest.mark.parametrize(("kind", "group"), [("Conv", 3), ("ConvInteger", 4)])
def test_groups_of_other_convolutions_are_checked(kind: str, group: int, tmp_path: Path) -> None:
    net = OnnxNet()
    dtype = "float32" if kind == "Conv" else "uint8"
    x = net.input((1, 8, 5, 5), dtype)
    weights = net.constant(np.ones((4, 8, 1, 1), dtype))
    net.output(net.op(kind, x, weights, group=group), "float32" if kind == "Conv" else "int32")
    error = compiled(net, tmp_path)
    assert error is not None and (error.what, error.exit_code) == (f"{kind} has group {group}", 2)


# ---- declared types ----


def two_layers() -> onnx.ModelProto:
    """Two float operators, both values declared."""
    net = OnnxNet()
    net.output(net.op("Sigmoid", net.op("Relu", net.input((2, 3), name="x"))), shape=(2, 3))
    model = net.model()
    model.graph.value_info.append(helper.make_tensor_value_info("v0", TensorProto.FLOAT, [2, 3]))
    return model


def test_declarations_that_are_true_compile(tmp_path: Path) -> None:
    assert compiled(two_layers(), tmp_path) is None


@pytest.mark.parametrize(("kind", "name"), [(TensorProto.STRING, "string"), (TensorProto.INT8, "int8")])
def test_a_value_declared_as_another_type_is_refused(kind: int, name: str, tmp_path: Path) -> None:
    model = two_layers()
    model.graph.value_info[0].type.tensor_type.elem_type = kind
    error = compiled(model, tmp_path)
    assert error is not None and error.exit_code == 2
    assert error.what == "a value has another type than the file declares"
    assert (error.where.tensor, error.why) == ('"v0"', f"it is declared as {name} and is float32")


def test_an_output_declared_as_another_type_is_refused(tmp_path: Path) -> None:
    model = two_layers()
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT4
    error = compiled(model, tmp_path)
    assert error is not None and error.exit_code == 2
    assert error.what == "an output has another type than the file declares"
    assert error.why == "it is declared as uint4 and is float32"


def test_a_constant_among_the_inputs_declared_as_another_type_is_refused(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("Add", net.input((3,), name="x"), net.constant(np.ones(3, np.float32), name="c")))
    model = net.model()
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.INT8, [3]))
    error = compiled(model, tmp_path)
    assert error is not None and (error.what, error.exit_code) == (
        "an input has another type than the file declares",
        2,
    )


def test_a_declaration_inside_of_a_branch_is_checked(tmp_path: Path) -> None:
    """Of a branch that is taken by what is computed."""
    net = OnnxNet()
    x = net.input((4,), name="x")
    positive = net.op("Greater", net.op("ReduceMean", x, keepdims=0), net.constant(0.0, "float32"))
    branches = []
    for kind in ("Relu", "Neg"):
        info = helper.make_tensor_value_info(f"{kind}_y", TensorProto.FLOAT, [4])
        branches.append(helper.make_graph([helper.make_node(kind, [x], [f"{kind}_y"])], kind, [], [info]))
    branches[1].value_info.append(helper.make_tensor_value_info("Neg_y", TensorProto.INT64, [4]))
    net.output(net.op("If", positive, then_branch=branches[0], else_branch=branches[1]), shape=(4,))
    error = compiled(net, tmp_path)
    assert error is not None and (error.where.tensor, error.exit_code) == ('"Neg_y"', 2)


# ---- operator sets ----


def stamped(opset: int, op: str, *inputs: tuple[tuple[int, ...], str]) -> OnnxNet:
    """One operator under an operator set."""
    net = OnnxNet(opset=opset)
    net.output(net.op(op, *(net.input(shape, dtype) for shape, dtype in inputs)), inputs[0][1])
    return net


def test_an_operator_that_is_newer_than_the_operator_set_is_refused(tmp_path: Path) -> None:
    error = compiled(stamped(13, "HardSwish", ((4,), "float32")), tmp_path)
    assert error is not None and (error.what, error.exit_code) == ("HardSwish is no operator of opset 13", 2)
    assert error.why == "it came with opset 14"
    assert compiled(stamped(14, "HardSwish", ((4,), "float32")), tmp_path) is None


def test_an_operator_of_no_operator_set_is_missing_rather_than_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    net = OnnxNet()
    net.output(net.op("Relu", net.input((4,))))
    model = net.model()
    model.graph.node[0].op_type, model.graph.node[0].domain = "Unheard", "elsewhere"
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    path.write_bytes(model.SerializeToString())
    (blocker,) = read_source(path, path.read_bytes(), {}).blockers
    assert isinstance(blocker, CannotCompile)


def test_a_type_that_came_with_a_later_operator_set_is_refused(tmp_path: Path) -> None:
    """QuantizeLinear of int16 is one of operator set 21."""

    def quantize(opset: int) -> OnnxNet:
        net = OnnxNet(opset=opset)
        net.output(net.quantize(net.input((4,)), 0.1, 0, "int16"), "int16")
        return net

    error = compiled(quantize(17), tmp_path)
    assert error is not None and error.exit_code == 2
    assert error.what == "QuantizeLinear of operator set 17 has an input of type int16"
    assert error.why == "y_zero_point is one of int8, uint8"
    assert compiled(quantize(21), tmp_path) is None


@pytest.mark.parametrize(("kind", "bits"), [("FLOAT4E2M1", 4), ("FLOAT8E4M3FN", 8)])
@pytest.mark.parametrize("op_type", ["Conv", "Gemm", "MatMul"])
def test_weights_of_a_type_that_numpy_does_not_name_are_refused(
    op_type: str, kind: str, bits: int, tmp_path: Path
) -> None:
    element = TensorProto.DataType.Value(kind)
    shape = (4, 4, 1, 1) if op_type == "Conv" else (4, 4)
    x = helper.make_tensor_value_info("x", element, shape)
    y = helper.make_tensor_value_info("y", element, shape)
    weights = TensorProto(name="w", data_type=element, dims=shape, raw_data=bytes(16 * bits // 8))
    graph = helper.make_graph([helper.make_node(op_type, ["x", "w"], ["y"])], "g", [x], [y], [weights])
    error = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]), tmp_path)
    assert error is not None and error.exit_code == 2
    assert error.what == f"{op_type} of operator set 23 has an input of type {kind.lower()}"


def test_a_zero_point_that_is_no_integer_is_refused(tmp_path: Path) -> None:
    """ONNX checks the types of its own operators only: those of the domain com.microsoft have no schema there."""
    net = OnnxNet()
    x = net.input((1, 4, 6, 6), "int8")
    x_q, y_q = net.scales(0.05, 0, "int8"), net.scales(0.05, 0, "int8")
    net.output(net.op("QLinearAveragePool", x, *x_q, *y_q, domain=MICROSOFT, kernel_shape=[2, 2]), "int8")
    model = net.model()
    assert compiled(model, tmp_path) is None
    (zero,) = [tensor for tensor in model.graph.initializer if tensor.name == y_q[1]]
    zero.CopyFrom(TensorProto(name=zero.name, data_type=TensorProto.COMPLEX64, raw_data=bytes(8)))
    error = compiled(model, tmp_path)
    assert error is not None and error.exit_code == 2
    assert error.what == "QLinearAveragePool has a zero point of type complex64"


# ---- shapes of index lists ----


@pytest.mark.parametrize("rank", [1, 2])
def test_starts_of_a_slice_have_one_dimension(rank: int, tmp_path: Path) -> None:
    net = OnnxNet()
    lists = [net.constant(np.array([value], np.int64).reshape((1,) * rank)) for value in (1, 3, 1)]
    net.output(net.op("Slice", net.input((4, 5)), *lists))
    error = compiled(net, tmp_path)
    if rank == 1:
        assert error is None
    else:
        assert error is not None and error.exit_code == 2
        assert error.what.startswith("Slice has ") and error.what.endswith(" of rank 2")


# ---- numbers ----


def lstm(spoil: float, at: str) -> OnnxNet:
    """An LSTM, one number of a constant replaced."""
    net = OnnxNet()
    values = {"w": (1, 16, 3), "r": (1, 16, 4), "b": (1, 32)}
    arrays = {name: net.rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in values.items()}
    arrays[at].reshape(-1)[-1] = spoil
    inputs = [net.constant(array, name=name) for name, array in arrays.items()]
    net.output(net.op("LSTM", net.input((2, 1, 3)), *inputs, hidden_size=4))
    return net


def gemm(spoil: float, at: str) -> OnnxNet:
    """A product of floats."""
    net = OnnxNet()
    arrays = {"w": np.ones((3, 4), np.float32), "b": np.ones(4, np.float32)}
    arrays[at].reshape(-1)[-1] = spoil
    net.output(net.op("Gemm", net.input((2, 3)), *(net.constant(array, name=name) for name, array in arrays.items())))
    return net


def normalization(spoil: float, at: str) -> OnnxNet:
    """A LayerNormalization."""
    net = OnnxNet()
    arrays = {"w": np.ones(4, np.float32), "b": np.ones(4, np.float32)}
    arrays[at].reshape(-1)[-1] = spoil
    inputs = (net.constant(array, name=name) for name, array in arrays.items())
    net.output(net.op("LayerNormalization", net.input((2, 4)), *inputs))
    return net


@pytest.mark.parametrize("at", ["w", "b"])
@pytest.mark.parametrize("make", [lstm, gemm, normalization])
def test_weights_that_no_sum_takes_are_refused(make: Callable[[float, str], OnnxNet], at: str, tmp_path: Path) -> None:
    for spoil in (np.nan, np.inf, -np.inf):
        error = compiled(make(spoil, at), tmp_path)
        if make is gemm and at == "b":  # a bias is added to each sum once, in whatever order its products are summed
            assert error is None
            continue
        assert error is not None and error.exit_code == 2
        assert error.what.endswith("has a constant that is infinite or no number") and error.where.tensor == f'"{at}"'
    error = compiled(make(3.4e38, at), tmp_path)
    assert error is not None and error.exit_code == 2 and error.what.endswith("has a constant of magnitude 3.4e+38")
    assert compiled(make(LARGEST_REAL, at), tmp_path) is None


def test_scales_of_a_dynamic_lstm_are_numbers(tmp_path: Path) -> None:
    net = OnnxNet()
    x = net.input((2, 1, 3))
    w, r = net.integers((1, 3, 16)), net.integers((1, 4, 16))
    scale = np.full((1, 16), 0.01, np.float32)
    scale[0, 3] = np.nan
    zero = net.constant(np.zeros((1, 16), np.int8))
    bias = net.constant(np.zeros((1, 32), np.float32))
    given = [
        x,
        w,
        r,
        bias,
        "",
        "",
        "",
        "",
        net.constant(scale, name="s"),
        zero,
        net.constant(np.full_like(scale, 0.01)),
        zero,
    ]
    net.output(net.op("DynamicQuantizeLSTM", *given, domain=MICROSOFT, hidden_size=4))
    error = compiled(net, tmp_path)
    assert error is not None and (error.where.tensor, error.exit_code) == ('"s"', 2)


def test_infinite_bounds_and_masks_compile(tmp_path: Path) -> None:
    """Where nothing is summed up they have their uses."""
    net = OnnxNet()
    x = net.input((1, 4))
    mask = net.constant(np.array([[0, -np.inf, 0, np.finfo(np.float32).min]], np.float32))
    clipped = net.op("Clip", net.op("Add", x, mask), net.constant(-np.inf, "float32"), net.constant(np.inf, "float32"))
    net.output(net.op("Softmax", clipped))
    assert compiled(net, tmp_path) is None


@pytest.mark.parametrize(("scale", "wrong"), [(3.4e38, True), (2e36, True), (1e36, False)])
def test_scales_with_which_values_leave_float32_are_refused(scale: float, wrong: bool, tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("Relu", net.qdq(net.input((2, 3)), scale)))
    error = compiled(net, tmp_path)
    assert (error is not None) is wrong
    if error is not None:
        assert (error.what, error.exit_code) == (f"QuantizeLinear has a scale of {scale:.3g}", 2)


@pytest.mark.parametrize(
    ("zero", "wrong"), [(0, False), (2**30, False), (-(2**30), False), (INT32_MAX, True), (-INT32_MAX - 1, True)]
)
def test_a_zero_point_of_a_bias_must_leave_it_int32(zero: int, wrong: bool, tmp_path: Path) -> None:
    net = OnnxNet()
    bias = net.dequantize(net.constant(np.array([-5, 7, 100], np.int32)), 1e-12, zero, "int32")
    net.output(net.qdq(net.op("Conv", net.qdq(net.input((1, 2, 4, 4))), net.weights((3, 2, 1, 1)), bias)))
    error = compiled(net, tmp_path)
    assert (error is not None) is wrong
    if error is not None:
        what = "DequantizeLinear has an int32 zero point too far from its values"
        assert (error.what, error.exit_code) == (what, 2)


def test_computed_int32_values_have_no_zero_point(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.dequantize(net.input((4,), "int32"), 0.1, 3, "int32"))
    error = compiled(net, tmp_path)
    assert error is not None
    assert (error.what, error.exit_code) == ("DequantizeLinear has int32 values with a zero point", 2)
