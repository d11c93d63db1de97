"""The intact ONNX models that the campaign damages: the shipped ones, some of the corpus, and made ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from emitc.kernels import registry_of
from tests.support.models.onnx_net import MICROSOFT, OnnxNet

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ROOT / "examples" / "models"
SHARED = ROOT.parent / "shared" / "models" / "onnx"
FROM_THE_CORPUS = (
    "digits_cnn_qdq_s16s8_pc", "digits_cnn_qdq_s8s8_pc", "digits_dscnn_qdq_u8u8", "digits_dscnn_qop_u8s8_pc",
    "digits_gru_unrolled_qop_u8s8_pc", "digits_mlp_dyn_u8", "digits_resnet_qdq_s8s8_sym", "digits_resnet_qop_u8s8_pc",
    "digits_tcn1d_qdq_s8s8_pc", "digits_transformer_dyn_u8", "digits_transformer_qdq_s8s8_pc",
    "digits_transformer_qop_u8s8_pc", "kws_tiny_qop_u8s8_pc", "micro_kws_m_qdq", "tf2onnx_kws_int8",
)  # fmt: skip
FLOATS_OF_THE_CORPUS = ("digits_cnn", "digits_mlp", "digits_transformer")
DATA_FILE = "weights.bin"
DATA = np.linspace(-4, 4, 1024).astype("<f4").tobytes()
"""What lies beside every model of the campaign, for external data."""


def qdq() -> onnx.ModelProto:
    """A QDQ net: per-channel and depthwise convolutions, pools, a flatten through shape arithmetic, a matrix product."""
    net = OnnxNet(opset=13)
    x = net.qdq(net.input((1, 3, 8, 8)))
    y = net.op("Relu", net.conv(x, (6, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]))
    y = net.qdq(y)
    y = net.qdq(net.conv(y, (6, 1, 3, 3), group=6, pads=[1, 1, 1, 1], dilations=[1, 1]))
    y = net.qdq(net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]))
    y = net.qdq(net.op("AveragePool", y, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1]))
    batch = net.op("Unsqueeze", net.op("Gather", net.op("Shape", y), net.constant(0, "int64"), axis=0), net.ints(0))
    y = net.op("Reshape", y, net.op("Concat", batch, net.ints(-1), axis=0))
    y = net.op("Gemm", y, net.weights((5, 24)), net.bias(5), transB=1)
    net.output(net.qdq(y, 0.2))
    return net.model()


def qoperator() -> onnx.ModelProto:
    """QLinearConv and its like on uint8, two branches joined."""
    net = OnnxNet(opset=13)
    scale, zero = net.scales(0.05, 120, "uint8")
    q = net.op("QuantizeLinear", net.input((1, 3, 8, 8)), scale, zero)
    w_scale, w_zero = net.scales((0.01 + 0.001 * np.arange(4)).tolist(), 0, "int8")
    y = net.op("QLinearConv", q, scale, zero, net.integers((4, 3, 3, 3)), w_scale, w_zero, scale, zero,
               net.integers((4,), "int32"), pads=[1, 1, 1, 1])  # fmt: skip
    f_scale, f_zero = net.scales(0.02, 128, "uint8")
    z = net.op("QLinearConv", y, scale, zero, net.integers((4, 1, 3, 3), "uint8"), f_scale, f_zero, scale, zero, group=4,
               auto_pad="SAME_UPPER")  # fmt: skip
    z = net.op("MaxPool", z, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    z = net.op("QLinearConcat", scale, zero, z, scale, zero, y, scale, zero, axis=1, domain=MICROSOFT)
    z = net.op("QLinearSigmoid", z, scale, zero, *net.scales(1 / 256, 0, "uint8"), domain=MICROSOFT)
    s_scale, s_zero = "scale" + str(len(net.constants) - 2), "zero" + str(len(net.constants) - 1)
    z = net.op("QLinearGlobalAveragePool", z, s_scale, s_zero, s_scale, s_zero, channels_last=0, domain=MICROSOFT)
    z = net.op("Flatten", z)
    z = net.op("QGemm", z, s_scale, s_zero, net.integers((5, 8)), *net.scales(0.01, 0, "int8"), net.integers((5,), "int32"),
               scale, zero, transB=1, alpha=1.0, domain=MICROSOFT)  # fmt: skip
    net.output(net.op("DequantizeLinear", z, scale, zero))
    return net.model()


def moves() -> onnx.ModelProto:
    """Everything that moves values, on floats and on quantized bytes."""
    net = OnnxNet(opset=18)
    for x in (net.input((1, 4, 6, 4)), net.dequantize(net.input((1, 4, 6, 4), "int8"))):
        y = net.op("Transpose", x, perm=[0, 2, 3, 1])
        net.output(net.op("Concat", y, net.op("Transpose", x, perm=[0, 2, 3, 1]), axis=-1))
        a, b = net.ops("Split", x, net.ints(1, 3), outputs=2, axis=1)
        net.output(net.op("Squeeze", a, net.ints(1)))
        net.output(net.op("Slice", b, net.ints(0, 5), net.ints(2, 0), net.ints(1, 2), net.ints(1, -2)))
        net.output(net.op("Gather", x, net.constant([[2, 0], [1, -1]], "int64"), axis=2))
        net.output(net.op("Resize", x, "", net.constant([1, 1, 2, 2], "float32"), mode="nearest", nearest_mode="floor",
                          coordinate_transformation_mode="asymmetric"))  # fmt: skip
        net.output(net.op("Pad", x, net.ints(0, 0, 1, 2, 0, 0, 2, 1), net.constant(0.5, "float32")))
        net.output(net.op("Tile", x, net.ints(1, 2, 1, 1)))
        net.output(net.op("Expand", net.op("Unsqueeze", x, net.ints(0)), net.ints(2, 1, 4, 6, 4)))
        net.output(net.op("DepthToSpace", x, blocksize=2, mode="CRD"))
        net.output(net.op("Reshape", x, net.ints(0, -1, 2), allowzero=0))
    return net.model()


def constants() -> onnx.ModelProto:
    """Arithmetic on constants and shapes, a constant of every kind, external data, an initializer among the inputs."""
    net = OnnxNet(opset=17)
    x = net.input(("batch", 4, 6))
    outside = net.constant(np.ones((4, 6), np.float32), name="outside")
    net.constants[-1].ClearField("raw_data")
    net.constants[-1].data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", DATA_FILE), ("offset", "64"), ("length", "96")):
        entry = net.constants[-1].external_data.add()
        entry.key, entry.value = key, value
    shape = net.op("Cast", net.op("Shape", x), to=7)
    halves = net.op("Div", shape, net.constant([1, 2, 1], "int64"))
    net.output(
        net.op("Reshape", x, net.op("Concat", net.op("Slice", halves, net.ints(0), net.ints(2)), net.ints(-1), axis=0))
    )
    row = net.op("Range", net.constant(0, "int64"), net.constant(6, "int64"), net.constant(1, "int64"))
    row = net.op("Cast", row, to=1)
    tiled = net.op("Tile", net.op("Unsqueeze", row, net.ints(0)), net.ints(4, 1))
    ones = net.op("ConstantOfShape", net.ints(4, 6), value=onnx.helper.make_tensor("v", 1, [1], [2.0]))
    chosen = net.op(
        "Where", net.op("Greater", tiled, ones), tiled, net.op("Expand", net.constant(0.25, "float32"), net.ints(4, 6))
    )
    net.output(net.op("Max", x, chosen))
    net.output(net.op("Min", x, net.op("Mul", outside, net.op("Constant", value_float=3.0))))
    net.output(net.op("Clip", x, net.op("Constant", value=onnx.helper.make_tensor("c", 1, [], [0.0]))))
    net.input((4, 6), name="outside")
    return net.model()


def rows() -> onnx.ModelProto:
    """One spatial dimension: QDQ on uint8, transposes as an exporter of channels-last nets writes them."""
    net = OnnxNet(opset=17)
    x = net.op("Transpose", net.input((1, 12, 4), "uint8"), perm=[0, 2, 1])
    y = net.dequantize(x, 0.05, 128, "uint8")
    y = net.qdq(net.conv(y, (8, 4, 3), pads=[1, 1]), 0.1, 110, "uint8")
    y = net.op("Relu", net.conv(y, (8, 1, 3), None, group=8, strides=[2]))
    y = net.quantize(y, 0.2, 0, "uint8")
    net.output(net.op("Transpose", y, perm=[0, 2, 1]), "uint8")
    return net.model()


def elementwise() -> onnx.ModelProto:
    """Everything that works element by element or along an axis and has a kernel, on floats and between QDQ."""
    net = OnnxNet(opset=17)
    known = registry_of("onnx")
    x, z = net.input((1, 4, 6)), net.input((4, 1))
    unary = (
        "Sigmoid",
        "Tanh",
        "Relu",
        "LeakyRelu",
        "Elu",
        "HardSigmoid",
        "HardSwish",
        "Erf",
        "Sqrt",
        "Exp",
        "Softmax",
        "Neg",
    )
    for op_type in (*unary, "ReduceMean", "ReduceSum", "ReduceMax", "ArgMax", "LogSoftmax"):
        if op_type in known:
            net.output(net.op(op_type, x), "int64" if op_type == "ArgMax" else "float32")
            if op_type in unary:
                net.output(net.quantize(net.op(op_type, net.qdq(x)), 0.01, -5), "int8")
    for op_type in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "MatMul", "Mean", "Sum"):
        if op_type in known:
            right = net.constant(
                np.linspace(0.5, 2, 36 if op_type == "MatMul" else 6).reshape(-1, 6).astype(np.float32)
            )
            net.output(net.op(op_type, x, right))
            if op_type != "MatMul":
                net.output(net.op(op_type, x, z))
                net.output(net.quantize(net.op(op_type, net.qdq(x), net.qdq(z, 0.02)), 0.1), "int8")
    if "LayerNormalization" in known:
        gamma = net.constant(np.linspace(0.5, 2, 6).astype(np.float32))
        net.output(net.op("LayerNormalization", x, gamma, gamma, epsilon=1e-5))
    return net.model()


def real() -> onnx.ModelProto:
    """A float net, as a framework exports it before it is quantized."""
    net = OnnxNet(opset=17)
    values = np.linspace(-1, 1, 4 * 9, dtype=np.float32)
    y = net.op("Conv", net.input((1, 1, 8, 8)), net.constant(values.reshape(4, 1, 3, 3)), net.constant(values[:4]))
    y = net.op("MaxPool", net.op("Relu", y), kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("Reshape", net.op("Add", y, net.op("Sigmoid", y)), net.ints(1, -1))
    net.output(net.op("Softmax", net.op("MatMul", y, net.constant(np.resize(values, (36, 5))))))
    return net.model()


def functions() -> onnx.ModelProto:
    """Functions inside of each other, one with an attribute, an operator that the format defines, nodes out of order."""
    net = OnnxNet(opset=23)
    x = net.input((2, 8))
    y = net.op("RMSNormalization", net.op("Relu", x), net.constant(np.linspace(-1, 2, 8, dtype=np.float32)), axis=-1)
    net.output(net.op("Outer", y, domain="own", slope=0.25), shape=(2, 8))
    model = net.model()
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    if all(opset.domain != "own" for opset in model.opset_import):
        model.opset_import.append(opsets[1])
    inner = [helper.make_node("Abs", ["a"], ["b"]), helper.make_node("Sqrt", ["b"], ["c"])]
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    outer = [leaky, *(helper.make_node("Inner", [a], [b], domain="own") for a, b in (("b", "c"), ("c", "d")))]
    model.functions.append(helper.make_function("own", "Inner", ["a"], ["c"], inner, opsets))
    model.functions.append(helper.make_function("own", "Outer", ["a"], ["d"], outer, opsets, ["slope"]))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def made() -> dict[str, onnx.ModelProto]:
    """The made models by name."""
    return {f"onnx {f.__name__}": f() for f in (qdq, qoperator, moves, constants, rows, elementwise, functions)}


def floats() -> dict[str, bytes]:
    """Float models of one input by name, for the quantizer: made ones, and some of the corpus."""
    files = [SHARED / "float" / f"{name}.onnx" for name in FLOATS_OF_THE_CORPUS]
    models = {f"onnx float {path.stem}": path.read_bytes() for path in files if path.is_file()}
    return {"onnx float real": real().SerializeToString()} | models


def corpus() -> dict[str, bytes]:
    """Every intact model by name."""
    files = [*sorted(SHIPPED.glob("*.onnx")), *(SHARED / f"{name}.onnx" for name in FROM_THE_CORPUS)]
    models = {f"onnx {path.stem}": path.read_bytes() for path in files if path.is_file()}
    return models | {name: model.SerializeToString() for name, model in made().items()}
