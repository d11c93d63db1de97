"""Random image networks for the tests of schedules and memory: chains, residual blocks, pools, made from a seed."""

from __future__ import annotations

import numpy as np

from emitc.writers.tflite import ModelSpec
from tests.support.models.tiny import Net

_WEIGHTS = 0.02


class ImageNet(Net):
    """A network over images [1, H, W, C]; methods return the index and the shape of their output."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.count = 0

    def image(self, height: int, width: int, channels: int) -> tuple[int, tuple[int, ...]]:
        """A computed image with a name of its own."""
        self.count += 1
        shape = (1, height, width, channels)
        return self.activation(f"t{self.count}", shape, 0.05 + 0.01 * (self.count % 5), self.count % 7 - 3), shape

    def window(
        self, x: int, shape: tuple[int, ...], channels: int, kernel: int, stride: int, padding: str, *, depthwise: bool
    ) -> tuple[int, tuple[int, ...]]:
        """CONV_2D, or DEPTHWISE_CONV_2D, with a square window."""
        size = [-(-s // stride) if padding == "SAME" else (s - kernel) // stride + 1 for s in shape[1:3]]
        channels = shape[3] if depthwise else channels
        y, made = self.image(size[0], size[1], channels)
        scale = self.tensors[x].scales[0]
        options = {"padding": padding, "stride_w": stride, "stride_h": stride, "dilation_w_factor": 1}
        options |= {"dilation_h_factor": 1, "fused_activation_function": "NONE"}
        name = f"w{self.count}"
        bias = self.bias(f"b{self.count}", channels, (scale * _WEIGHTS,))
        if depthwise:
            w = self.weights(name, (1, kernel, kernel, channels), (_WEIGHTS,))
            self.op("DEPTHWISE_CONV_2D", (x, w, bias), (y,), depth_multiplier=1, **options)
        else:
            w = self.weights(name, (channels, kernel, kernel, shape[3]), (_WEIGHTS,))
            self.op("CONV_2D", (x, w, bias), (y,), **options)
        return y, made

    def add(self, a: int, b: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """ADD of two images of one shape."""
        y, made = self.image(*shape[1:])
        self.op("ADD", (a, b), (y,), fused_activation_function="NONE")
        return y, made


def four_convolutions(net: ImageNet) -> tuple[int, int, tuple[int, ...]]:
    """Four convolutions of an image, the second one depthwise: the image, and the last output with its shape."""
    first, shape = net.image(10, 8, 4)
    x, shape = net.window(first, shape, 8, 3, 1, "SAME", depthwise=False)
    x, shape = net.window(x, shape, 8, 3, 2, "SAME", depthwise=True)
    x, shape = net.window(x, shape, 12, 1, 1, "SAME", depthwise=False)
    return first, *net.window(x, shape, 6, 3, 1, "SAME", depthwise=False)


def random_net(seed: int) -> ModelSpec:
    """A network of 3 to 9 layers whose tensors shrink and grow, with residual blocks and a pool here and there."""
    rng = np.random.default_rng(seed)
    net = ImageNet(seed)
    x, shape = net.image(int(rng.integers(9, 20)), int(rng.integers(5, 12)), int(rng.integers(1, 6)))
    first = x
    while net.count < int(rng.integers(4, 9)):
        kind = rng.choice(["conv", "conv", "depthwise", "pointwise", "residual", "pool"])
        kernel, stride = int(rng.choice([1, 2, 3, 5])), int(rng.choice([1, 1, 2]))
        padding = "SAME" if min(shape[1:3]) < kernel + 2 else str(rng.choice(["SAME", "VALID"]))
        channels = int(rng.integers(1, 12))
        if kind == "residual":
            a, inner = net.window(x, shape, channels, 3, 1, "SAME", depthwise=False)
            b, _ = net.window(a, inner, shape[3], int(rng.choice([1, 3])), 1, "SAME", depthwise=False)
            x, shape = net.add(b, x, shape) if rng.random() < 0.5 else net.add(x, b, shape)
        elif kind == "pool":
            size = [-(-s // 2) for s in shape[1:3]]
            y = net.activation(
                f"p{net.count}", (1, *size, shape[3]), net.tensors[x].scales[0], net.tensors[x].zero_points[0]
            )
            net.count += 1
            net.op("MAX_POOL_2D", (x,), (y,), padding="SAME", stride_w=2, stride_h=2, filter_width=2, filter_height=3)
            x, shape = y, (1, *size, shape[3])
        elif kind == "pointwise":
            x, shape = net.window(x, shape, channels, 1, 1, "SAME", depthwise=False)
        else:
            x, shape = net.window(x, shape, channels, kernel, stride, padding, depthwise=kind == "depthwise")
    return net.spec((first,), (x,))


def chain(seed: int, layers: int) -> ModelSpec:
    """Layers of equal size, each output trailing its input: what moves are for."""
    net = ImageNet(seed)
    x, shape = net.image(10, 8, 16)
    first = x
    for i in range(layers):
        x, shape = net.window(x, shape, 16, 1 if i % 2 else 3, 1, "SAME", depthwise=i % 2 == 0)
    return net.spec((first,), (x,))
