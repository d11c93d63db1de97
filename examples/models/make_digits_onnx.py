"""Writes the twins of `digits_int8.tflite` in quantized ONNX: `digits_qdq.onnx` and `digits_qoperator.onnx`.

    python examples/models/make_digits_onnx.py [--output DIRECTORY]

Both hold the same network with the same weights, scales and zero points, in ONNX's layout (NCHW, filters OIHW) and with
float32 at both ends. digits_qdq.onnx has float operators between DequantizeLinear and QuantizeLinear, as ONNX Runtime's
quantizer and tf2onnx write them; digits_qoperator.onnx has the integer operators QLinearConv, QLinearAdd, QGemm and their
like. Their vectors are the ten unseen digits of `digits_int8.npz` as float32 images in 0..1, with what ONNX
Runtime computes from them without optimizations.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from emitc.frontends.tflite.reader import read_tflite
from emitc.source import SourceNode, SourceTensor
from emitc.verify.engines.run import run_isolated

HERE = Path(__file__).resolve().parent
OPSET = 17
CHANNELS_FIRST = (0, 3, 1, 2)


class Twin:
    """An ONNX graph under construction, made node by node from the TFLite model."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """A constant, once."""
        self.constants.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def scale(self, tensor: SourceTensor) -> tuple[str, str]:
        """Scale and zero point of a tensor, in its own type."""
        q = tensor.quantization
        assert q is not None
        scales, zeros = np.array(q.scales, np.float32), np.array(q.zero_points, tensor.dtype)
        if q.per_tensor:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        return self.constant(f"{tensor.name}_scale", scales), self.constant(f"{tensor.name}_zero_point", zeros)

    def add(self, op: str, inputs: list[str], output: str, domain: str = "", **attributes: object) -> str:
        """A node of one output, which is returned."""
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, domain=domain, **attributes))
        return output

    def quantize(self, value: str, tensor: SourceTensor) -> str:
        """A float value to the tensor's type."""
        return self.add("QuantizeLinear", [value, *self.scale(tensor)], f"{tensor.name}_quantized")

    def dequantize(self, value: str, tensor: SourceTensor, output: str, axis: int = 0) -> str:
        """A value of the tensor's type to float."""
        return self.add("DequantizeLinear", [value, *self.scale(tensor)], output, axis=axis)

    def model(self) -> bytes:
        """The file."""
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
            for name, shape in (("image", [1, 1, 16, 16]), ("probability", [1, 10]))
        ]
        graph = helper.make_graph(self.nodes, self.name, *ends, list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, producer_name="emitc", opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString(deterministic=True))


def filters(node: SourceNode) -> NDArray[np.generic]:
    """Weights in ONNX's order: OIHW of a convolution; the columns of the dense layer in the order channel, row, column."""
    weights = node.input(1).array()
    if node.op_type == "DEPTHWISE_CONV_2D":
        return np.ascontiguousarray(weights.transpose(3, 0, 1, 2))
    if node.op_type == "FULLY_CONNECTED":
        return np.ascontiguousarray(weights.reshape(10, 4, 4, 24).transpose(0, 3, 1, 2).reshape(10, -1))
    return np.ascontiguousarray(weights.transpose(CHANNELS_FIRST))


def attributes(node: SourceNode) -> dict[str, object]:
    """A convolution's or pool's attributes; the only padded strided window is SAME on an even size: below and right."""
    if node.op_type == "AVERAGE_POOL_2D":
        return {"kernel_shape": [2, 2], "strides": [2, 2]}
    stride = node.integer("stride_h")
    size = filters(node).shape[2]
    pads = [0, 0, 0, 0] if size == 1 else [1, 1, 1, 1] if stride == 1 else [0, 0, 1, 1]
    group = node.input(0).shape[3] if node.op_type == "DEPTHWISE_CONV_2D" else 1
    return {"kernel_shape": [size, size], "strides": [stride, stride], "pads": pads, "group": group}


def qdq(nodes: tuple[SourceNode, ...]) -> bytes:
    """The twin with float operators between DequantizeLinear and QuantizeLinear."""
    twin = Twin("digits_qdq")
    image = nodes[0].input(0)
    real = {image.name: twin.dequantize(twin.quantize("image", image), image, "image_dequantized")}
    for node in nodes:
        y = node.outputs[0]
        x = real[node.input(0).name]
        raw = f"{y.name}_float"
        if node.op_type in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            parameters = []
            for tensor, value in ((node.input(1), filters(node)), (node.input(2), node.input(2).array())):
                name = twin.constant(tensor.name, value)
                parameters.append(twin.dequantize(name, tensor, f"{tensor.name}_dequantized"))
            dense = node.op_type == "FULLY_CONNECTED"
            options = {"transB": 1} if dense else attributes(node)
            raw = twin.add("Gemm" if dense else "Conv", [x, *parameters], raw, **options)
        elif node.op_type == "ADD":
            raw = twin.add("Add", [x, real[node.input(1).name]], raw)
        elif node.op_type == "AVERAGE_POOL_2D":
            raw = twin.add("AveragePool", [x], raw, **attributes(node))
        elif node.op_type == "RESHAPE":
            raw = twin.add("Flatten", [x], raw)
        else:
            raw = twin.add("Softmax", [x], raw, axis=1)
        activation = node.attributes.get("fused_activation_function", "NONE")
        if activation == "RELU":
            raw = twin.add("Relu", [raw], f"{y.name}_relu")
        elif activation == "RELU6":
            bounds = [twin.constant(f"clip_{v:g}", np.array(v, np.float32)) for v in (0.0, 6.0)]
            raw = twin.add("Clip", [raw, *bounds], f"{y.name}_relu6")
        last = node is nodes[-1]
        real[y.name] = twin.dequantize(twin.quantize(raw, y), y, "probability" if last else f"{y.name}_dequantized")
    return twin.model()


def qoperator(nodes: tuple[SourceNode, ...]) -> bytes:
    """The twin with integer operators. Its activations are what the outputs' ranges cut off."""
    twin = Twin("digits_qoperator")
    image = nodes[0].input(0)
    value = {image.name: twin.quantize("image", image)}
    for node in nodes:
        x, y = node.input(0), node.outputs[0]
        source = [value[x.name], *twin.scale(x)]
        if node.op_type in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            w, bias = node.input(1), twin.constant(node.input(2).name, node.input(2).array())
            weights = [twin.constant(w.name, filters(node)), *twin.scale(w)]
            if node.op_type == "FULLY_CONNECTED":
                inputs = [*source, *weights, bias, *twin.scale(y)]
                value[y.name] = twin.add("QGemm", inputs, y.name, "com.microsoft", transB=1)
            else:
                inputs = [*source, *weights, *twin.scale(y), bias]
                value[y.name] = twin.add("QLinearConv", inputs, y.name, **attributes(node))
        elif node.op_type == "ADD":
            other = node.input(1)
            inputs = [*source, value[other.name], *twin.scale(other), *twin.scale(y)]
            value[y.name] = twin.add("QLinearAdd", inputs, y.name, "com.microsoft")
        elif node.op_type == "AVERAGE_POOL_2D":
            value[y.name] = twin.add(
                "QLinearAveragePool", [*source, *twin.scale(y)], y.name, "com.microsoft", **attributes(node)
            )
        elif node.op_type == "RESHAPE":
            value[y.name] = twin.add("Flatten", source[:1], y.name)
        else:
            value[y.name] = twin.add(
                "QLinearSoftmax", [*source, *twin.scale(y)], f"{y.name}_quantized", "com.microsoft", axis=1, opset=13
            )
    last = nodes[-1].outputs[0]
    twin.dequantize(value[last.name], last, "probability")
    return twin.model()


def vectors(model: bytes, images: list[NDArray[np.float32]]) -> dict[str, NDArray[np.generic]]:
    """Inputs and outputs of each case, under the keys that `emitc verify --vectors` reads."""
    run = run_isolated(model, [[image] for image in images], source_format="onnx")
    arrays: dict[str, NDArray[np.generic]] = {}
    for k, (image, outputs) in enumerate(zip(images, run.outputs, strict=True)):
        arrays |= {f"in0_{k}": image, f"out0_{k}": outputs[0]}
    return arrays


def main() -> None:
    """Writes the models and their vectors."""
    parser = argparse.ArgumentParser(description="Write digits_qdq.onnx and digits_qoperator.onnx with their vectors.")
    parser.add_argument("--output", type=Path, default=HERE, help="directory; default: that of this script")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    nodes = read_tflite((HERE / "digits_int8.tflite").read_bytes()).nodes
    given = np.load(HERE / "digits_int8.npz")
    pixels = [given[f"in0_{k}"].astype(np.int32) + 128 for k in range(10)]
    images = [(p.reshape(1, 1, 16, 16) / 255).astype(np.float32) for p in pixels]
    for name, model in (("digits_qdq", qdq(nodes)), ("digits_qoperator", qoperator(nodes))):
        (output / f"{name}.onnx").write_bytes(model)
        np.savez_compressed(output / f"{name}.npz", **vectors(model, images))
        print(f"{name}.onnx: {len(model)} bytes")


if __name__ == "__main__":
    main()
