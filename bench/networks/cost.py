"""Small int8 networks as an architecture search draws them, for the calibration and the test of `emitc.cost`.

    python -m bench.networks.cost FOLDER --seeds 0 40

A seed draws an image, two to six stages of convolutions (plain, 1x1, depthwise with 1x1, residual) or pooling, and a head. Odd
widths, few channels and channels that are no multiple of four occur, because kernels have code of their own for these.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite

_CHANNELS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)
_CLASSES = (2, 4, 10, 12)
Value = tuple[int, tuple[int, ...]]
"""A tensor's number and shape."""


class _Net:
    """The tensors and operators of one network."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[TensorSpec] = []
        self.operators: list[OperatorSpec] = []

    def pick(self, *choices: int) -> int:
        """One of the choices."""
        return int(self.rng.choice(choices))

    def activation(self, shape: tuple[int, ...], scale: float = 0.0, zero: int | None = None) -> Value:
        """A new activation."""
        zero = self.pick(-128, -128, 0, 3) if zero is None else zero
        scale = scale or float(self.rng.uniform(0.02, 0.1))
        self.tensors.append(TensorSpec(f"t{len(self.tensors)}", "int8", shape, None, (scale,), (zero,)))
        return len(self.tensors) - 1, shape

    def constant(self, array: np.ndarray, scales: tuple[float, ...], axis: int = 0) -> int:
        """A new constant with its scales."""
        name, dtype = f"c{len(self.tensors)}", str(array.dtype)
        zeros = (0,) * len(scales)
        spec = TensorSpec(name, dtype, tuple(array.shape), array.tobytes(), scales, zeros, quantized_dimension=axis)
        self.tensors.append(spec)
        return len(self.tensors) - 1

    def op(self, opcode: str, inputs: tuple[int, ...], output: Value, **options: OptionValue) -> Value:
        """A new operator; its output."""
        self.operators.append(OperatorSpec(opcode, inputs, (output[0],), options))
        return output

    def weighted(
        self, opcode: str, x: Value, shape: tuple[int, ...], y: tuple[int, ...], **options: OptionValue
    ) -> Value:
        """An operator with weights of that shape and a bias. y: shape of its output."""
        axis = 3 if opcode == "DEPTHWISE_CONV_2D" else 0
        count = shape[axis]
        scales = tuple(float(s) for s in self.rng.uniform(0.002, 0.02, 1 if opcode == "FULLY_CONNECTED" else count))
        weights = self.constant(self.rng.integers(-127, 128, shape, np.int8), scales, axis)
        bias_scales = tuple(self.tensors[x[0]].scales[0] * s for s in scales)
        bias = self.constant(self.rng.integers(-500, 500, count, np.int32), bias_scales)
        activation = "NONE" if opcode == "FULLY_CONNECTED" else str(self.rng.choice(("NONE", "RELU", "RELU6")))
        zero = -128 if activation != "NONE" else None
        scale = 6 / 255 if activation == "RELU6" else 0.0
        made = self.activation(y, scale, zero)
        return self.op(opcode, (x[0], weights, bias), made, fused_activation_function=activation, **options)

    def window(self, x: Value, size: int, stride: int, channels: int = 0, dilation: int = 1) -> Value:
        """A convolution; channels 0: one that is depthwise."""
        _, height, width, depth = x[1]
        padding = str(self.rng.choice(("SAME", "SAME", "VALID")))
        if min(height, width) <= dilation * (size - 1) + 1:
            padding = "SAME"
        reach = 0 if padding == "SAME" else dilation * (size - 1)
        shape = (1, -(-(height - reach) // stride), -(-(width - reach) // stride), channels or depth)
        options: dict[str, OptionValue] = {
            "padding": padding,
            "stride_h": stride,
            "stride_w": stride,
            "dilation_h_factor": dilation,
            "dilation_w_factor": dilation,
        }
        if channels:
            return self.weighted("CONV_2D", x, (channels, size, size, depth), shape, **options)
        return self.weighted("DEPTHWISE_CONV_2D", x, (1, size, size, depth), shape, depth_multiplier=1, **options)

    def pool(self, x: Value, size: int) -> Value:
        """A pooling of windows that do not overlap."""
        _, height, width, depth = x[1]
        info = self.tensors[x[0]]
        y = self.activation((1, height // size, width // size, depth), info.scales[0], info.zero_points[0])
        opcode = str(self.rng.choice(("MAX_POOL_2D", "AVERAGE_POOL_2D")))
        options = {"filter_height": size, "filter_width": size, "stride_h": size, "stride_w": size}
        return self.op(opcode, (x[0],), y, padding="VALID", fused_activation_function="NONE", **options)

    def stage(self, x: Value) -> Value:
        """One stage of the body."""
        _, height, width, depth = x[1]
        kind = self.pick(0, 0, 1, 1, 1, 2, 3)
        stride = self.pick(1, 1, 2) if min(height, width) > 6 else 1
        if kind == 0:
            return self.window(x, self.pick(1, 3, 3, 5), stride, self.pick(*_CHANNELS))
        if kind == 1:
            return self.window(self.window(x, self.pick(3, 3, 5), stride), 1, 1, self.pick(*_CHANNELS))
        if kind == 2 and min(height, width) > 3:
            return self.pool(x, 2)
        inside = self.window(x, 1, 1, depth)
        y = self.activation(x[1])
        return self.op("ADD", (x[0], inside[0]), y, fused_activation_function="NONE")


def draw(seed: int) -> ModelSpec:
    """The network of a seed."""
    net = _Net(seed)
    size = (net.pick(8, 12, 16, 20, 24, 28, 32, 49), net.pick(8, 10, 12, 15, 16, 20, 24, 32))
    first = value = net.activation((1, *size, net.pick(1, 1, 3)))
    value = net.window(value, net.pick(3, 3, 5), net.pick(1, 2, 2), net.pick(*_CHANNELS))
    for _ in range(net.pick(2, 3, 4, 5, 6)):
        value = net.stage(value)
    _, height, width, depth = value[1]
    info = net.tensors[value[0]]
    pooled = net.activation((1, 1, 1, depth), info.scales[0], info.zero_points[0])
    options = {"filter_height": height, "filter_width": width, "stride_h": height, "stride_w": width}
    net.op("AVERAGE_POOL_2D", (value[0],), pooled, padding="VALID", fused_activation_function="NONE", **options)
    flat = net.op(
        "RESHAPE", (pooled[0],), net.activation((1, depth), info.scales[0], info.zero_points[0]), new_shape=(1, depth)
    )
    if net.pick(0, 1):
        hidden = net.pick(16, 32, 48)
        flat = net.weighted("FULLY_CONNECTED", flat, (hidden, depth), (1, hidden))
        depth = hidden
    classes = net.pick(*_CLASSES)
    scores = net.weighted("FULLY_CONNECTED", flat, (classes, depth), (1, classes))
    last = net.op("SOFTMAX", (scores[0],), net.activation((1, classes), 1 / 256, -128), beta=1.0)
    return ModelSpec(tuple(net.tensors), tuple(net.operators), (first[0],), (last[0],))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.networks.cost", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 40), metavar=("FIRST", "END"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(*arguments.seeds):
        (arguments.folder / f"drawn_{seed}.tflite").write_bytes(write_tflite(draw(seed)))


if __name__ == "__main__":
    main()
