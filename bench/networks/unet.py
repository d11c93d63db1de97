"""A small quantized U-Net in ONNX, for the sweep over seeds: transposed convolutions between 8-bit tensors, joined by Concat.

    python -m bench.networks.unet DIRECTORY

writes `unet_qdq_u8u8.onnx` with quantized ends, and `unet_qdq_u8u8_floats.onnx` with float32 at both. The weights are random
and seeded, the ranges come from ONNX Runtime's own static quantizer, so that scales are as irregular as in trained networks.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SIDE = 16
_OPSET = 17
_SAMPLES = 32

Floats = NDArray[np.float32]


class _Net:
    """Nodes and constants under construction."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(11)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output, whose name is returned."""
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: Floats) -> str:
        """An initializer."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def layer(self, kind: str, x: str, shape: tuple[int, ...], outputs: int, **attributes: Any) -> str:
        """A convolution of either kind and a Relu. shape: of the weights."""
        fan_in = int(np.prod(shape)) // outputs
        weights = self.constant(self.rng.normal(0, (2 / fan_in) ** 0.5, shape).astype(np.float32))
        bias = self.constant(self.rng.normal(0, 0.1, outputs).astype(np.float32))
        return self.op("Relu", self.op(kind, x, weights, bias, **attributes))


def float_net() -> onnx.ModelProto:
    """[1, 1, SIDE, SIDE] to the same shape: two steps down, two up, each joined with what came before."""
    net = _Net()
    same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    first = net.layer("Conv", "input", (8, 1, 3, 3), 8, **same)
    second = net.layer("Conv", first, (16, 8, 3, 3), 16, strides=[2, 2], **same)
    third = net.layer("Conv", second, (32, 16, 3, 3), 32, strides=[2, 2], **same)
    up = net.layer("ConvTranspose", third, (32, 16, 2, 2), 16, strides=[2, 2])
    up = net.layer("Conv", net.op("Concat", up, second, axis=1), (16, 32, 3, 3), 16, **same)
    up = net.layer("ConvTranspose", up, (16, 8, 3, 3), 8, strides=[2, 2], output_padding=[1, 1], **same)
    up = net.layer("Conv", net.op("Concat", up, first, axis=1), (8, 16, 3, 3), 8, **same)
    weights = net.constant(net.rng.normal(0, 0.3, (1, 8, 1, 1)).astype(np.float32))
    output = net.op("Sigmoid", net.op("Conv", up, weights))
    shape = [1, 1, SIDE, SIDE]
    graph = helper.make_graph(
        net.nodes, "unet",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        net.constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


class _Reader:
    """Seeded images of smooth blobs, one after the other, in the form that the quantizer asks for."""

    def __init__(self) -> None:
        self._images = self._drawn()

    def _drawn(self) -> Iterator[dict[str, Floats]]:
        rng = np.random.default_rng(12)
        y, x = np.mgrid[0:SIDE, 0:SIDE]
        for _ in range(_SAMPLES):
            (a, b), width = rng.uniform(2, SIDE - 2, 2), rng.uniform(1, 5)
            image = np.exp(-((y - a) ** 2 + (x - b) ** 2) / width**2) + rng.normal(0, 0.05, (SIDE, SIDE))
            yield {"input": image[np.newaxis, np.newaxis].astype(np.float32)}

    def get_next(self) -> dict[str, Floats] | None:
        """The next image, None after the last."""
        return next(self._images, None)


def quantized() -> onnx.ModelProto:
    """The network with 8 unsigned bits for activations and weights, and float32 at both ends."""
    from onnxruntime import quantization

    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        source, made = Path(folder) / "float.onnx", Path(folder) / "made.onnx"
        onnx.save(float_net(), source)
        unsigned = quantization.QuantType.QUInt8
        quantization.quantize_static(
            str(source), str(made), _Reader(), quant_format=quantization.QuantFormat.QDQ,
            activation_type=unsigned, weight_type=unsigned, per_channel=False,
        )  # fmt: skip
        return onnx.load(made)


def without_ends(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with 8 bits at both ends: the first QuantizeLinear and the last DequantizeLinear are left out."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    first = next(node for node in graph.node if node.input[0] == graph.input[0].name)
    last = next(node for node in graph.node if node.output[0] == graph.output[0].name)
    shape = [1, 1, SIDE, SIDE]
    for port, name in ((graph.input[0], first.output[0]), (graph.output[0], last.input[0])):
        port.CopyFrom(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
    for node in (first, last):
        graph.node.remove(node)
    return made


def write(folder: Path) -> list[Path]:
    """Both files; returns their paths."""
    model = quantized()
    files = {"unet_qdq_u8u8": without_ends(model), "unet_qdq_u8u8_floats": model}
    for name, made in files.items():
        onnx.save(made, folder / f"{name}.onnx")
    return [folder / f"{name}.onnx" for name in files]


def main() -> int:
    """The command."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    for path in write(Path(sys.argv[1])):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
