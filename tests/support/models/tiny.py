"""Tiny models for the tests of everything round the kernels, made byte for byte the same every time.

`spotter` is a whole int8 network in small: convolutions, pooling, a view, a fully connected layer, SOFTMAX. `branches`
has two inputs, two outputs, hostile names and a tensor with several readers. `wires` computes nothing: one output is an
input under another shape. `edges` has a float interface. `camera` has an input larger than all else.
`unsupported` has two operators that emitc cannot compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec

HOSTILE = 'left*/ "x"\n#error \\ ??/ //'


class Net:
    """A model under construction. Methods that add a tensor return its index."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[TensorSpec] = []
        self.operators: list[OperatorSpec] = []

    def tensor(self, spec: TensorSpec) -> int:
        """Any tensor."""
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def activation(self, name: str, shape: Sequence[int], scale: float = 0.05, zero_point: int = 0) -> int:
        """A computed int8 tensor or an input."""
        return self.tensor(TensorSpec(name, "int8", tuple(shape), None, (scale,), (zero_point,)))

    def weights(self, name: str, shape: Sequence[int], scales: Sequence[float], axis: int = 0) -> int:
        """Random int8 weights with one scale or one per slice of `axis`; the ends of the range occur."""
        values = self.rng.integers(-128, 128, tuple(shape)).astype(np.int8)
        return self.tensor(
            TensorSpec(name, "int8", tuple(shape), values.tobytes(), tuple(scales), quantized_dimension=axis)
        )

    def bias(self, name: str, count: int, scales: Sequence[float]) -> int:
        """Random int32 biases."""
        values = self.rng.integers(-2000, 2000, count).astype("<i4")
        return self.tensor(TensorSpec(name, "int32", (count,), values.tobytes(), tuple(scales)))

    def integers(self, name: str, values: Sequence[int], shape: Sequence[int] | None = None) -> int:
        """A constant of int32: axes, sizes, paddings."""
        shape = (len(values),) if shape is None else shape
        return self.tensor(TensorSpec(name, "int32", tuple(shape), np.array(values, "<i4").tobytes()))

    def op(self, opcode: str, inputs: Sequence[int], outputs: Sequence[int], **options: OptionValue) -> None:
        """One operator."""
        self.operators.append(OperatorSpec(opcode, tuple(inputs), tuple(outputs), options))

    def spec(self, inputs: Sequence[int], outputs: Sequence[int]) -> ModelSpec:
        """The model."""
        return ModelSpec(tuple(self.tensors), tuple(self.operators), tuple(inputs), tuple(outputs), "made by a test")


def spotter() -> ModelSpec:
    """Convolution, depthwise convolution, average pool, reshape, fully connected, softmax: 8x6x2 to 3 classes."""
    net = Net(1)
    x = net.activation("spectrogram", (1, 8, 6, 2), 0.05, -3)
    scales = (0.004, 0.006, 0.005, 0.007)
    conv = net.activation("stem/conv", (1, 8, 6, 4), 0.06, -128)
    w = net.weights("stem/weights", (4, 3, 3, 2), scales)
    b = net.bias("stem/bias", 4, [0.05 * s for s in scales])
    net.op("CONV_2D", (x, w, b), (conv,), padding="SAME", stride_w=1, stride_h=1, dilation_w_factor=1,
           dilation_h_factor=1, fused_activation_function="RELU")  # fmt: skip
    depthwise = net.activation("block/depthwise", (1, 4, 3, 4), 0.04, 5)
    w = net.weights("block/weights", (1, 3, 3, 4), scales, axis=3)
    b = net.bias("block/bias", 4, [0.06 * s for s in scales])
    net.op("DEPTHWISE_CONV_2D", (conv, w, b), (depthwise,), padding="SAME", stride_w=2, stride_h=2, depth_multiplier=1,
           dilation_w_factor=1, dilation_h_factor=1, fused_activation_function="NONE")  # fmt: skip
    pool = net.activation("pool", (1, 2, 1, 4), 0.04, 5)
    net.op("AVERAGE_POOL_2D", (depthwise,), (pool,), padding="VALID", stride_w=2, stride_h=2, filter_width=3,
           filter_height=2)  # fmt: skip
    flat = net.activation("flat", (1, 8), 0.04, 5)
    net.op("RESHAPE", (pool, net.integers("flat/shape", (1, 8))), (flat,), new_shape=(1, 8))
    logits = net.activation("logits", (1, 3), 0.1, 10)
    w = net.weights("head/weights", (3, 8), (0.01,))
    b = net.bias("head/bias", 3, (0.0004,))
    net.op("FULLY_CONNECTED", (flat, w, b), (logits,), fused_activation_function="NONE")
    scores = net.activation("scores", (1, 3), 1 / 256, -128)
    net.op("SOFTMAX", (logits,), (scores,), beta=1.0)
    return net.spec((x,), (scores,))


def branches() -> ModelSpec:
    """Two inputs, two outputs: a sum that is an output under another shape and part of a pooled concatenation."""
    net = Net(2)
    left = net.activation(HOSTILE, (1, 4, 4, 3), 0.05, 7)
    right = net.activation("right", (1, 4, 4, 3), 0.02, -4)
    total = net.activation("while", (1, 4, 4, 3), 0.05, 7)
    net.op("ADD", (left, right), (total,), fused_activation_function="NONE")
    both = net.activation("while", (1, 4, 4, 6), 0.05, 7)
    net.op("CONCATENATION", (total, left), (both,), axis=3)
    pooled = net.activation("", (1, 2, 2, 6), 0.05, 7)
    net.op("MAX_POOL_2D", (both,), (pooled,), padding="VALID", stride_w=2, stride_h=2, filter_width=2, filter_height=2)
    flat = net.activation("sum flat", (1, 48), 0.05, 7)
    net.op("RESHAPE", (total, net.integers("shape", (1, 48))), (flat,), new_shape=(1, 48))
    return net.spec((left, right), (pooled, flat))


def wires() -> ModelSpec:
    """No layer is left: the output is the input under another shape."""
    net = Net(3)
    x = net.activation("x", (1, 2, 3), 0.5, 1)
    y = net.activation("y", (6,), 0.5, 1)
    net.op("RESHAPE", (x, net.integers("shape", (6,))), (y,), new_shape=(6,))
    return net.spec((x,), (y,))


def edges() -> ModelSpec:
    """Float at both ends, views in between, and outputs of four types: the sums and places of a quantized image."""
    net = Net(5)
    x = net.tensor(TensorSpec("image", "float32", (1, 4, 3, 5)))
    image = net.activation("quantized", (1, 4, 3, 5), 0.04, -9)
    net.op("QUANTIZE", (x,), (image,))
    wide = net.activation("wide", (1, 1, 4, 3, 5), 0.04, -9)
    net.op("EXPAND_DIMS", (image, net.integers("where", (1,))), (wide,))
    again = net.activation("again", (1, 4, 3, 5), 0.04, -9)
    net.op("SQUEEZE", (wide,), (again,), squeeze_dims=(1,))
    mean = net.activation("mean", (1, 5), 0.02, 3)
    net.op("MEAN", (again, net.integers("area", (1, 2))), (mean,), keep_dims=False)
    total = net.activation("total", (1, 5), 0.3, 3)
    net.op("SUM", (again, net.integers("area too", (1, 2))), (total,), keep_dims=False)
    most = net.tensor(TensorSpec("most", "int32", (1,)))
    net.op("ARG_MAX", (mean, net.integers("channel", (1,), ())), (most,), output_type="INT32")
    least = net.tensor(TensorSpec("least", "int32", (1,)))
    net.op("ARG_MIN", (total, net.integers("channel too", (1,), ())), (least,), output_type="INT32")
    real = net.tensor(TensorSpec("real", "float32", (1, 5)))
    net.op("DEQUANTIZE", (mean,), (real,))
    finer = net.activation("finer", (1, 5), 0.11, -20)
    net.op("QUANTIZE", (total,), (finer,))
    return net.spec((x,), (real, finer, most, least))


def camera() -> ModelSpec:
    """A large image of which a few layers leave little: 24 rows of 24 pixels, of which the last row is read by nobody."""
    net = Net(6)
    first = x = net.activation("frame", (1, 24, 24, 3), 0.05, 2)
    shape = (24, 3)
    for number, (channels, stride) in enumerate(((4, 2), (4, 1), (2, 2))):
        size = (shape[0] - 3) // stride + 1
        w = net.weights(f"w{number}", (channels, 3, 3, shape[1]), (0.01,))
        b = net.bias(f"b{number}", channels, (0.0005,))
        y = net.activation(f"y{number}", (1, size, size, channels), 0.05, number)
        net.op("CONV_2D", (x, w, b), (y,), padding="VALID", stride_w=stride, stride_h=stride, dilation_w_factor=1,
               dilation_h_factor=1, fused_activation_function="NONE")  # fmt: skip
        x, shape = y, (size, channels)
    return net.spec((first,), (x,))


def unsupported() -> ModelSpec:
    """ADD compiles, SVDF-like operators do not: DENSIFY has no kernel and a CUSTOM operator neither."""
    net = Net(4)
    x = net.activation("x", (1, 4))
    y = net.activation("y", (1, 4))
    net.op("ADD", (x, x), (y,), fused_activation_function="NONE")
    z = net.activation("z", (1, 4))
    net.op("DENSIFY", (y,), (z,))
    out = net.activation("out", (1, 4))
    net.operators.append(OperatorSpec("CUSTOM", (z,), (out,), custom_code="Mystery"))
    return net.spec((x,), (out,))


MODELS: dict[str, Callable[[], ModelSpec]] = {
    "spotter": spotter,
    "branches": branches,
    "wires": wires,
    "edges": edges,
    "camera": camera,
    "unsupported": unsupported,
}
