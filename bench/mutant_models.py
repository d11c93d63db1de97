"""Small models on which every pass and every memory technique does something, for `bench.mutants`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, SubgraphSpec, TensorSpec, write_tflite

_SCALE = 0.05
_Q: dict[str, Any] = {"scales": (_SCALE,), "zero_points": (3,)}


@dataclass
class Builder:
    """A TFLite graph under construction; tensors are numbers."""

    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    def computed(self, *shape: int, scale: float = _SCALE, zero_point: int = 3) -> int:
        """A computed int8 tensor."""
        self.tensors.append(TensorSpec(f"t{len(self.tensors)}", "int8", shape, None, (scale,), (zero_point,)))
        return len(self.tensors) - 1

    def plain(self, dtype: str, *shape: int) -> int:
        """A computed tensor without a scale."""
        self.tensors.append(TensorSpec(f"t{len(self.tensors)}", dtype, shape))
        return len(self.tensors) - 1

    def constant(self, values: object, dtype: str = "int32", scale: float = 0.0) -> int:
        """A constant; a scale makes it a quantized one with the zero point 0, or 3 for an int8 that is no weight."""
        array = np.asarray(values, dtype)
        quantized = ((scale,), (0,)) if scale else ((), ())
        self.tensors.append(TensorSpec(f"c{len(self.tensors)}", dtype, array.shape, array.tobytes(), *quantized))
        return len(self.tensors) - 1

    def op(self, opcode: str, inputs: tuple[int, ...], output: int, **options: OptionValue) -> int:
        """One operator of one output."""
        self.operators.append(OperatorSpec(opcode, inputs, (output,), options))
        return output

    def conv(self, x: int, channels: int, kernel: int = 3, dead: int = 0) -> int:
        """A VALID CONV_2D without an activation. dead: last channels that a rectifier makes constant."""
        batch, height, width, depth = self.tensors[x].shape
        weights = self.rng.integers(-90, 91, (channels, kernel, kernel, depth)).astype(np.int8)
        bias = self.rng.integers(-500, 500, channels)
        if dead:
            weights[channels - dead :] = 0
            bias[channels - dead :] = -20_000
        w = self.constant(weights, "int8", 0.01)
        b = self.constant(bias, "int32", float(np.float32(_SCALE) * np.float32(0.01)))
        y = self.computed(batch, height - kernel + 1, width - kernel + 1, channels, scale=0.2, zero_point=-9)
        return self.op(
            "CONV_2D", (x, w, b), y, stride_h=1, stride_w=1, dilation_h_factor=1, dilation_w_factor=1, padding="VALID",
            fused_activation_function="NONE",
        )  # fmt: skip

    def like(self, x: int) -> int:
        """A computed tensor as another one."""
        spec = self.tensors[x]
        return self.computed(*spec.shape, scale=spec.scales[0], zero_point=spec.zero_points[0])

    def sub(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> SubgraphSpec:
        """The graph as a subgraph."""
        return SubgraphSpec(tuple(self.tensors), tuple(self.operators), inputs, outputs)

    def model(self, inputs: tuple[int, ...], outputs: tuple[int, ...], *subgraphs: SubgraphSpec) -> bytes:
        """The file."""
        return write_tflite(ModelSpec(tuple(self.tensors), tuple(self.operators), inputs, outputs, "", subgraphs))


def _branch(*, double: bool) -> SubgraphSpec:
    """A branch on [1, 6, 6, 2]: a convolution and a sum, or a sum alone."""
    net = Builder()
    x = net.computed(1, 6, 6, 2)
    y = net.op("ADD", (x, x), net.like(x), fused_activation_function="NONE")
    if double:
        y = net.op("RELU", (y,), net.like(x))
        padded = net.computed(1, 8, 8, 2)
        y = net.op("PAD", (y, net.constant([[0, 0], [1, 1], [1, 1], [0, 0]])), padded)
        made = net.conv(y, 2)
        y = net.op("ADD", (made, x), net.like(x), fused_activation_function="NONE")
    return net.sub((x,), (y,))


def layers() -> bytes:
    """PAD, CONV_2D, RELU, dead channels, constants, a known IF, views, an operator that nothing needs."""
    net = Builder()
    x = net.computed(1, 6, 6, 2)
    y = net.op("IF", (net.constant(True, "bool"), x), net.like(x), then_subgraph_index=1, else_subgraph_index=2)
    first = net.constant(net.rng.integers(-100, 100, (1, 6, 6, 2)), "int8", _SCALE)
    second = net.constant(net.rng.integers(-100, 100, (1, 6, 6, 2)), "int8", _SCALE)
    known = net.op("ADD", (first, second), net.like(x), fused_activation_function="NONE")
    y = net.op("ADD", (y, known), net.like(x), fused_activation_function="NONE")
    net.op("MUL", (y, y), net.like(x), fused_activation_function="NONE")
    padded = net.op("PAD", (y, net.constant([[0, 0], [1, 2], [0, 1], [0, 0]])), net.computed(1, 9, 7, 2))
    made = net.conv(padded, 12, dead=5)
    y = net.op("RELU", (made,), net.like(made))
    made = net.conv(y, 5, 1)
    y = net.op("RELU6", (made,), net.like(made))
    spec = net.tensors[y]
    flat = net.computed(1, int(np.prod(spec.shape)), scale=0.2, zero_point=-9)
    y = net.op("RESHAPE", (y, net.constant([1, -1])), flat, new_shape=(1, -1))
    other = net.op("RESHAPE", (x, net.constant([1, 72])), net.computed(1, 72), new_shape=(1, 72))
    last = net.op("RELU", (other,), net.computed(1, 72))
    return net.model((x,), (y, last), _branch(double=True), _branch(double=False))


def branches() -> bytes:
    """An IF whose condition is computed, with layers inside on which several passes do something."""
    net = Builder()
    x = net.computed(1, 6, 6, 2)
    flag = net.plain("bool", 1)
    y = net.op("IF", (flag, x), net.like(x), then_subgraph_index=1, else_subgraph_index=2)
    y = net.op("RELU", (y,), net.like(x))
    return net.model((flag, x), (y,), _branch(double=True), _branch(double=False))


def parts() -> bytes:
    """Tensors that can lie inside others: SPLIT, and CONCATENATION along the rows."""
    net = Builder()
    x = net.computed(1, 8, 6, 4)
    a, b = net.computed(1, 4, 6, 4), net.computed(1, 4, 6, 4)
    head = net.op("RELU", (x,), net.like(x))
    net.operators.append(OperatorSpec("SPLIT", (net.constant(1, "int32"), head), (a, b), {"num_splits": 2}))
    c, d = net.conv(a, 4, 1), net.conv(b, 4, 1)
    e = net.op("ADD", (c, d), net.like(c), fused_activation_function="NONE")
    joined = net.computed(1, 12, 6, 4, scale=0.2, zero_point=-9)
    y = net.op("CONCATENATION", (d, c, e), joined, axis=1, fused_activation_function="NONE")
    return net.model((x,), (net.conv(y, 3, 3),))


def diamond() -> bytes:
    """Paths of several lengths that another order of the layers makes cheaper."""
    net = Builder()
    x = net.computed(1, 8, 8, 2)
    wide = [net.conv(x, 12, 1) for _ in range(4)]
    slim = [net.conv(branch, 2, 3) for branch in wide]
    y = slim[0]
    for other in slim[1:]:
        y = net.op("ADD", (y, other), net.like(slim[0]), fused_activation_function="NONE")
    return net.model((x,), (y,))


def floats() -> bytes:
    """ONNX: products with an Add after them, and a table of a function of bytes."""
    rng = np.random.default_rng(5)
    constants = {
        "w1": rng.normal(size=(6, 5)).astype(np.float32), "b1": rng.normal(size=(5,)).astype(np.float32),
        "w2": rng.normal(size=(5, 4)).astype(np.float32), "b2": rng.normal(size=(1, 4)).astype(np.float32),
        "scale": np.float32(0.03), "zero": np.int8(4),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["p"]),
        helper.make_node("Add", ["p", "b1"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["s"]),
        helper.make_node("Add", ["b2", "s"], ["y"]),
        helper.make_node("DequantizeLinear", ["bytes", "scale", "zero"], ["d"]),
        helper.make_node("Tanh", ["d"], ["z"]),
        helper.make_node("Sigmoid", ["d"], ["t"]),
    ]
    kinds = {"float": onnx.TensorProto.FLOAT, "int8": onnx.TensorProto.INT8}
    shapes = {"x": (3, 6), "y": (3, 4), "bytes": (2, 80), "z": (2, 80), "t": (2, 80)}

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kinds["int8" if name == "bytes" else "float"], shapes[name])

    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes, "floats", [info("x"), info("bytes")], [info("y"), info("z"), info("t")], initializers
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


MADE = {
    "layers.tflite": layers, "branches.tflite": branches, "parts.tflite": parts, "diamond.tflite": diamond, "floats.onnx": floats,
}  # fmt: skip


def written(folder: Path) -> dict[str, Path]:
    """The models as files, by name."""
    for name, make in MADE.items():
        (folder / name).write_bytes(make())
    return {name: folder / name for name in MADE}
