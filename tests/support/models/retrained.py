"""One architecture trained several times: the same operators and shapes, with other weights, biases, scales and zero points.

As trainers leave them, outputs of rectifiers start at the lowest element, and weights are symmetric.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emitc.writers.tflite import ModelSpec, TensorSpec
from tests.support.models.tiny import Net

CLASSES = 5
_WINDOW = {"dilation_w_factor": 1, "dilation_h_factor": 1}


class _Trained(Net):
    """A network with the numbers of one training."""

    def scale(self, near: float) -> float:
        """A scale of up to a fifth more or less."""
        return float(np.float32(near * self.rng.uniform(0.8, 1.2)))

    def layer(self, name: str, shape: Sequence[int], x_scale: float, axis: int = 0) -> tuple[int, int]:
        """Weights and biases with a scale for each output channel; one for all of a fully connected layer."""
        count = shape[axis]
        scales = [self.scale(0.01) for _ in range(1 if len(shape) == 2 else count)]
        values = np.clip(np.rint(self.rng.normal(0, 35, tuple(shape))), -127, 127).astype(np.int8)
        weights = TensorSpec(
            f"{name}/w", "int8", tuple(shape), values.tobytes(), tuple(scales), quantized_dimension=axis
        )
        biases = self.rng.integers(-900, 900, count).astype("<i4").tobytes()
        bias = TensorSpec(f"{name}/b", "int32", (count,), biases, tuple(x_scale * scale for scale in scales))
        return self.tensor(weights), self.tensor(bias)


def retrained(seed: int, channels: int = 8) -> ModelSpec:
    """Two convolutions, a depthwise one, a sum, a pool, a fully connected layer and SOFTMAX: 10x8x2 to five classes."""
    net = _Trained(seed)
    scales = [net.scale(near) for near in (0.05, 0.07, 0.06, 0.05, 0.09, 0.2)]
    points = [int(net.rng.integers(-9, 10)), -128, -128, int(net.rng.integers(-9, 10)), int(net.rng.integers(-9, 10))]
    shape = (1, 10, 8, channels)
    x = net.activation("x", (1, 10, 8, 2), scales[0], points[0])
    stem = net.activation("stem", shape, scales[1], points[1])
    net.op("CONV_2D", (x, *net.layer("stem", (channels, 3, 3, 2), scales[0])), (stem,), padding="SAME", stride_w=1,
           stride_h=1, fused_activation_function="RELU", **_WINDOW)  # fmt: skip
    depth = net.activation("depth", shape, scales[2], points[2])
    net.op("DEPTHWISE_CONV_2D", (stem, *net.layer("depth", (1, 3, 3, channels), scales[1], axis=3)), (depth,),
           padding="SAME", stride_w=1, stride_h=1, depth_multiplier=1, fused_activation_function="RELU", **_WINDOW)  # fmt: skip
    point = net.activation("point", shape, scales[3], points[3])
    net.op("CONV_2D", (depth, *net.layer("point", (channels, 1, 1, channels), scales[2])), (point,), padding="VALID",
           stride_w=1, stride_h=1, fused_activation_function="NONE", **_WINDOW)  # fmt: skip
    total = net.activation("total", shape, scales[4], points[4])
    net.op("ADD", (stem, point), (total,), fused_activation_function="NONE")
    pool = net.activation("pool", (1, 2, 2, channels), scales[4], points[4])
    net.op(
        "AVERAGE_POOL_2D", (total,), (pool,), padding="VALID", stride_w=4, stride_h=5, filter_width=4, filter_height=5
    )
    flat = net.activation("flat", (1, 4 * channels), scales[4], points[4])
    net.op("RESHAPE", (pool, net.integers("flat/shape", (1, 4 * channels))), (flat,), new_shape=(1, 4 * channels))
    logits = net.activation("logits", (1, CLASSES), scales[5], int(net.rng.integers(-9, 10)))
    net.op("FULLY_CONNECTED", (flat, *net.layer("head", (CLASSES, 4 * channels), scales[4])), (logits,),
           fused_activation_function="NONE")  # fmt: skip
    scores = net.activation("scores", (1, CLASSES), 1 / 256, -128)
    net.op("SOFTMAX", (logits,), (scores,), beta=1.0)
    return net.spec((x,), (scores,))
