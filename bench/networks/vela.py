"""Nets of which vela leaves operators to the core, so that command streams and the core take turns on one scratch memory.

Images [1, H, W, C] of int8 pass through operators that the NPU takes and, in between, through ones that vela refuses
for a chip: a TRANSPOSE of channels, a GATHER, a CUMSUM, floats between DEQUANTIZE and QUANTIZE. Older images are read again
much later, and operators join them, so that tensors stay alive across several streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite

_SCALE, _ZERO = 0.05, 3
_NONE: dict[str, OptionValue] = {"fused_activation_function": "NONE"}
_SAME: dict[str, OptionValue] = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
_MAX_CHANNELS = 48


class VelaNet:
    """A model under construction. images: indices of the tensors that further operators may read, all of one scale."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[TensorSpec] = []
        self.operators: list[OperatorSpec] = []
        self.images: list[int] = []
        self.size = int(self.rng.choice([4, 6, 8, 10]))

    def add(self, spec: TensorSpec) -> int:
        """Adds a tensor; its index."""
        self.tensors.append(replace(spec, name=f"t{len(self.tensors)}"))
        return len(self.tensors) - 1

    def activation(self, shape: tuple[int, ...], scale: float = _SCALE, zero: int = _ZERO, dtype: str = "int8") -> int:
        """Adds a computed tensor that is quantized."""
        return self.add(TensorSpec("", dtype, shape, None, (scale,), (zero,)))

    def image(self, channels: int) -> int:
        """Adds an image that later operators may read."""
        self.images.append(self.activation((1, self.size, self.size, channels)))
        return self.images[-1]

    def constant(self, values: object, dtype: str = "int32") -> int:
        """Adds a constant without quantization."""
        array = np.asarray(values, dtype)
        return self.add(TensorSpec("", dtype, array.shape, array.tobytes()))

    def put(
        self,
        kind: str,
        inputs: tuple[int, ...],
        output: int,
        options: dict[str, OptionValue] | None = None,
        version: int = 1,
    ) -> int:
        """Adds an operator; its output."""
        self.operators.append(OperatorSpec(kind, inputs, (output,), options or {}, version))
        return output

    def channels(self, index: int) -> int:
        """Of an image."""
        return self.tensors[index].shape[-1]

    def pick(self) -> int:
        """An image: one of the latest, or any older one."""
        recent = self.images[-2:] if self.rng.random() < 0.6 else self.images
        return int(self.rng.choice(recent))

    # ---- what the NPU takes ----

    def convolve(self, x: int, depthwise: bool = False) -> int:
        """A convolution of 3x3 or 1x1."""
        rng, inputs = self.rng, self.channels(x)
        outputs = inputs if depthwise else int(rng.choice([8, 12, 16, 24]))
        side = 3 if depthwise or rng.random() < 0.5 else 1
        shape = (1, side, side, inputs) if depthwise else (outputs, side, side, inputs)
        scales = tuple(float(s) for s in rng.uniform(0.5, 1.5, outputs) * 0.06 / np.sqrt(side * side * inputs))
        weights = rng.integers(-127, 128, shape).astype("int8").tobytes()
        biases = rng.integers(-900, 900, outputs).astype("<i4").tobytes()
        along = 3 if depthwise else 0
        w = self.add(TensorSpec("", "int8", shape, weights, scales, (0,) * outputs, along))
        b = self.add(TensorSpec("", "int32", (outputs,), biases, tuple(s * _SCALE for s in scales), (0,) * outputs, 0))
        options = _SAME | _NONE | {"dilation_w_factor": 1, "dilation_h_factor": 1}
        if depthwise:
            return self.put("DEPTHWISE_CONV_2D", (x, w, b), self.image(outputs), options | {"depth_multiplier": 1}, 3)
        return self.put("CONV_2D", (x, w, b), self.image(outputs), options, 3)

    def pool(self, x: int) -> int:
        """A pool of 3x3, in place of size."""
        kind = str(self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]))
        options = _SAME | _NONE | {"filter_height": 3, "filter_width": 3}
        return self.put(kind, (x,), self.image(self.channels(x)), options, 2)

    def join(self, x: int) -> int:
        """A sum, a product, or images one after the other."""
        kind = str(self.rng.choice(["ADD", "MUL", "CONCATENATION", "CONCATENATION"]))
        others = [i for i in self.images if kind == "CONCATENATION" or self.channels(i) == self.channels(x)]
        y = int(self.rng.choice(others))
        if kind != "CONCATENATION":
            return self.put(kind, (x, y), self.image(self.channels(x)), _NONE, 2)
        total = self.channels(x) + self.channels(y)
        return (
            self.put(kind, (x, y), self.image(total), _NONE | {"axis": 3}, 2)
            if total <= _MAX_CHANNELS
            else self.pool(x)
        )

    def narrow(self, x: int) -> int:
        """The first or last channels: several consumers of parts of an image."""
        channels = self.channels(x)
        half = max(4, channels // 2)
        start = channels - half if self.rng.random() < 0.5 else 0
        bounds = ([0, 0, 0, start], [1, self.size, self.size, half])
        first, sizes = (self.constant(b) for b in bounds)
        return self.put("SLICE", (x, first, sizes), self.image(half), {}, 2)

    # ---- what vela leaves to the core ----

    def turned(self, x: int) -> int:
        """Two TRANSPOSEs of four dimensions, with a pool in other dimensions between."""
        shape = self.tensors[x].shape
        place = [int(v) for v in self.rng.choice([[0, 3, 1, 2], [0, 3, 2, 1], [0, 2, 3, 1]])]
        turned = tuple(shape[p] for p in place)
        a = self.put("TRANSPOSE", (x, self.constant(place)), self.activation(turned), {}, 2)
        options = _SAME | _NONE | {"filter_height": 2, "filter_width": 2}
        b = self.put("MAX_POOL_2D", (a,), self.activation(turned), options, 2)
        back = [place.index(i) for i in range(4)]
        return self.put("TRANSPOSE", (b, self.constant(back)), self.image(self.channels(x)), {}, 2)

    def transposed(self, x: int) -> int:
        """One TRANSPOSE that makes another image: height and width change places, with the channels kept."""
        place = [0, 2, 1, 3]
        return self.put("TRANSPOSE", (x, self.constant(place)), self.image(self.channels(x)), {}, 2)

    def gathered(self, x: int) -> int:
        """Rows in another order."""
        order = self.rng.integers(0, self.size, self.size)
        return self.put(
            "GATHER", (x, self.constant(order)), self.image(self.channels(x)), {"axis": 1, "batch_dims": 0}, 2
        )

    def reversed(self, x: int) -> int:
        """Rows backwards."""
        return self.put("REVERSE_V2", (x, self.constant([1])), self.image(self.channels(x)), {}, 2)

    def floated(self, x: int) -> int:
        """Floats between DEQUANTIZE and QUANTIZE, multiplied there by a power of two."""
        shape = self.tensors[x].shape
        a = self.put("DEQUANTIZE", (x,), self.add(TensorSpec("", "float32", shape)), {}, 2)
        half = self.constant([0.5], "float32")
        b = self.put("MUL", (a, half), self.add(TensorSpec("", "float32", shape)), _NONE)
        return self.put("QUANTIZE", (b,), self.image(self.channels(x)))

    def summed(self, x: int) -> int:
        """Running sums along the rows."""
        options: dict[str, OptionValue] = {"exclusive": False, "reverse": False}
        return self.put("CUMSUM", (x, self.constant(1)), self.image(self.channels(x)), options)

    def folded(self, x: int) -> int:
        """Blocks of pixels into channels, a pool, and back."""
        _, height, width, channels = self.tensors[x].shape
        shape, block = (1, height // 2, width // 2, channels * 4), {"block_size": 2}
        a = self.put("SPACE_TO_DEPTH", (x,), self.activation(shape), {**block})
        options = _SAME | _NONE | {"filter_height": 2, "filter_width": 2}
        b = self.put("MAX_POOL_2D", (a,), self.activation(shape), options, 2)
        return self.put("DEPTH_TO_SPACE", (b,), self.image(channels), {**block})

    def normalised(self, x: int) -> int:
        """Channels of length 1, with the scale of the images again."""
        a = self.put("L2_NORMALIZATION", (x,), self.activation(self.tensors[x].shape, 1 / 128, 0), _NONE)
        return self.put("QUANTIZE", (a,), self.image(self.channels(x)))

    def head(self, x: int) -> int:
        """An output in addition to the images: the place of the largest channel."""
        shape = self.tensors[x].shape[:-1]
        return self.put(
            "ARG_MAX", (x, self.constant(3)), self.add(TensorSpec("", "int32", shape)), {"output_type": "INT32"}
        )

    def spec(self, outputs: tuple[int, ...]) -> ModelSpec:
        """The model as it is now."""
        read = {i for operator in self.operators for i in operator.inputs}
        ends = [i for i in self.images[1:] if i not in read]
        return ModelSpec(
            tuple(self.tensors), tuple(self.operators), (self.images[0],), (*dict.fromkeys((*ends, *outputs)),)
        )


def vela_net(seed: int) -> bytes:
    """A .tflite file of about eight to twenty operators; equal seeds give equal bytes."""
    net = VelaNet(seed)
    rng = net.rng
    net.image(int(rng.choice([4, 8, 12])))
    on_npu: list[Callable[[int], int]] = [
        net.convolve, lambda x: net.convolve(x, depthwise=True), net.pool, net.join, net.join, net.narrow,
    ]  # fmt: skip
    on_core: list[Callable[[int], int]] = [
        net.turned, net.transposed, net.gathered, net.reversed, net.floated, net.summed, net.folded, net.normalised,
    ]  # fmt: skip
    net.convolve(net.pick())
    for _ in range(int(rng.integers(2, 6))):
        for _ in range(int(rng.integers(1, 4))):
            on_npu[int(rng.integers(len(on_npu)))](net.pick())
        on_core[int(rng.integers(len(on_core)))](net.pick())
    net.join(net.pick())
    net.convolve(net.pick())
    return write_tflite(net.spec((net.head(net.pick()),) if rng.random() < 0.3 else ()))
