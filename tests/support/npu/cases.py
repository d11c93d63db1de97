"""Random single operators of every kind that vela takes, as cases: reproducible by kind and number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from emitc.writers.tflite import TensorSpec
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, named_rng, pool, single, softmax, with_output
from tests.support.single_op import Case, OptionValue, integers, quantized

ACTIVATIONS = ("NONE", "RELU", "RELU6")
Shape = tuple[int, int, int, int]


class Draws:
    """Random choices of one case."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rng = named_rng(name)

    def integer(self, low: int, high: int) -> int:
        """Of the closed range."""
        return int(self.rng.integers(low, high, endpoint=True))

    def scale(self) -> float:
        """Of a tensor."""
        return single(2.0 ** self.rng.uniform(-7, -2))

    def zero_point(self) -> int:
        """Often at an end."""
        return self.integer(-128, 127) if self.rng.random() < 0.6 else (-128, 0, 127)[self.integer(0, 2)]

    def image(self, least: int = 1, channels: int = 0) -> Shape:
        """A small image; more than 16 channels in a third of them, so that brick layouts have a rest."""
        depth = channels or (self.integer(17, 40) if self.rng.random() < 0.33 else self.integer(1, 16))
        return (1, self.integer(least, least + 11), self.integer(least, least + 11), depth)

    def window(self, least: int = 1) -> tuple[int, int]:
        """A kernel."""
        return self.integer(least, 5), self.integer(least, 5)

    def slide(self, most: int = 3) -> Slide:
        """Strides, padding and activation."""
        padding = ("SAME", "VALID")[self.integer(0, 1)]
        return Slide((self.integer(1, most), self.integer(1, most)), padding, (1, 1), ACTIVATIONS[self.integer(0, 2)])

    def scales(self, channels: int, depth: int) -> Scales:
        """Scales that spread the sums over int8, a weight scale per channel in half of the layers."""
        factor = 2.0 ** self.rng.uniform(-2, 2) / (70.0 * math.sqrt(depth))
        count = channels if channels > 1 and self.rng.random() < 0.5 else 1
        weights = tuple(single(0.01 * 2.0**e) for e in self.rng.uniform(-1, 1, count))
        return Scales(self.scale(), weights, factor, self.zero_point(), self.zero_point())

    def tensor(self, shape: tuple[int, ...], dtype: str = "int8") -> TensorSpec:
        """A tensor with quantization of its own."""
        return quantized(shape, self.scale(), self.zero_point() if dtype == "int8" else 0, dtype)


def _convolution(d: Draws, kernel: tuple[int, int], slide: Slide) -> Case:
    least = 1 if slide.padding == "SAME" else max((k - 1) * e + 1 for k, e in zip(kernel, slide.dilation, strict=True))
    x, channels = d.image(least), d.integer(1, 24)
    return conv_2d(d.name, x, channels, kernel, slide, d.scales(channels, kernel[0] * kernel[1] * x[3]))


def _conv(d: Draws) -> Case:
    return _convolution(d, d.window(), d.slide())


def _pointwise(d: Draws) -> Case:
    return _convolution(d, (1, 1), d.slide(1))


def _dilated(d: Draws) -> Case:
    dilation = (d.integer(1, 2), 2)
    return _convolution(d, d.window(2), Slide((1, 1), ("SAME", "VALID")[d.integer(0, 1)], dilation, "RELU"))


def _large_kernel(d: Draws) -> Case:
    return _convolution(d, (d.integer(6, 11), d.integer(6, 11)), Slide((1, 1), "SAME"))


def _dense(d: Draws) -> Case:
    """A fully connected layer as emitc hands it to vela."""
    depth, channels = d.integer(1, 200), d.integer(1, 70)
    slide = Slide(activation=ACTIVATIONS[d.integer(0, 2)])
    return conv_2d(d.name, (1, 1, 1, depth), channels, (1, 1), slide, d.scales(channels, depth))


def _depthwise(d: Draws) -> Case:
    kernel, slide = d.window(), d.slide()
    x = d.image(1 if slide.padding == "SAME" else 5)
    return depthwise(d.name, x, 1, kernel, slide, d.scales(x[3], kernel[0] * kernel[1]))


def _depthwise_multiplier(d: Draws) -> Case:
    kernel, multiplier = d.window(), d.integer(2, 8)
    x = d.image(5, channels=1)
    return depthwise(d.name, x, multiplier, kernel, d.slide(), d.scales(multiplier, kernel[0] * kernel[1]))


def _conv_int16(d: Draws) -> Case:
    """int16 activations, int8 weights, int64 bias."""
    kernel, channels = d.window(), d.integer(1, 20)
    x = d.image(5)
    slide = Slide((d.integer(1, 2), d.integer(1, 2)), "SAME")
    weights = d.rng.integers(-127, 128, (channels, *kernel, x[3])).astype(np.int8)
    factor = 2.0 ** d.rng.uniform(-2, 1) / (70.0 * math.sqrt(kernel[0] * kernel[1] * x[3]))
    scale, weight_scale = single(2.0**-12), single(0.01)
    operands = (
        quantized(x, scale, 0, "int16"),
        TensorSpec("", "int8", weights.shape, weights.tobytes(), (weight_scale,), (0,)),
        TensorSpec(
            "",
            "int64",
            (channels,),
            d.rng.integers(-(2**20), 2**20, channels).astype("<i8").tobytes(),
            (single(scale * weight_scale),),
            (0,),
        ),
    )
    y = quantized(slide.image(x, kernel, channels), single(scale * weight_scale / factor), 0, "int16")
    return Case(d.name, "CONV_2D", operands, (y,), slide.options(), 4)


def _transpose_conv(d: Draws) -> Case:
    kernel, channels, stride = d.window(2), d.integer(1, 12), 2
    x = d.image(2)
    scales = d.scales(1, kernel[0] * kernel[1] * x[3] // 2 + 1)
    weights = d.rng.integers(-127, 128, (channels, *kernel, x[3])).astype(np.int8)
    shape = (1, x[1] * stride, x[2] * stride, channels)
    operands = (
        integers(*shape),
        TensorSpec("", "int8", weights.shape, weights.tobytes(), scales.weights[:1], (0,)),
        quantized(x, single(scales.input), scales.input_zero_point),
    )
    y = quantized(shape, scales.output_scale(), scales.output_zero_point)
    return Case(d.name, "TRANSPOSE_CONV", operands, (y,), {"stride_h": 2, "stride_w": 2, "padding": "SAME"}, 1)


def _pool(opcode: str) -> Callable[[Draws], Case]:
    def make(d: Draws) -> Case:
        kernel, slide = d.window(), d.slide()
        return pool(d.name, opcode, d.image(5), kernel, slide, d.scale(), d.zero_point())

    return make


def _pair(opcode: str, dtype: str = "int8") -> Callable[[Draws], Case]:
    def make(d: Draws) -> Case:
        x = d.image()
        other = tuple(1 if d.rng.random() < 0.15 else size for size in x)
        a, b, y = d.tensor(x, dtype), d.tensor(other, dtype), d.tensor(x, dtype)
        options: dict[str, OptionValue] = {"fused_activation_function": ACTIVATIONS[d.integer(0, 2)]}
        if dtype == "int16":
            options = {"fused_activation_function": "NONE"}
            if opcode in ("ADD", "SUB"):
                options["pot_scale_int16"] = False
        return Case(d.name, opcode, (a, b), (y,), options, 2)

    return make


def _extremum(opcode: str) -> Callable[[Draws], Case]:
    def make(d: Draws) -> Case:
        x, scale, zero_point = d.image(), d.scale(), d.zero_point()
        a, b, y = (quantized(x, scale, zero_point) for _ in range(3))
        return Case(d.name, opcode, (a, b), (y,))

    return make


def _activation(opcode: str, scale: float, zero_point: int) -> Callable[[Draws], Case]:
    """Operators with a fixed output quantization; scale 0 draws one."""

    def make(d: Draws) -> Case:
        x = d.image()
        y = quantized(x, scale, zero_point) if scale else d.tensor(x)
        options: dict[str, OptionValue] = {"alpha": float(d.rng.uniform(0.01, 0.9))} if opcode == "LEAKY_RELU" else {}
        return Case(d.name, opcode, (d.tensor(x),), (y,), options)

    return make


def _relu(d: Draws) -> Case:
    """RELU also rescales; RELU6 does not."""
    x = d.tensor(d.image())
    if d.rng.random() < 0.5:
        return Case(d.name, "RELU", (x,), (d.tensor(x.shape),))
    return Case(d.name, "RELU6", (x,), (quantized(x.shape, x.scales[0], x.zero_points[0]),))


def _softmax(d: Draws) -> Case:
    return softmax(d.name, (d.integer(1, 4), d.integer(2, 40)), d.scale(), 1.0, d.zero_point())


def _mean(d: Draws) -> Case:
    x = d.image(2)
    y = d.tensor((1, x[3]))
    return Case(d.name, "MEAN", (d.tensor(x), integers(1, 2)), (y,), {"keep_dims": False})


def _concatenation(d: Draws) -> Case:
    x, scale, zero_point, axis = d.image(), d.scale(), d.zero_point(), d.integer(1, 3)
    parts = [tuple(d.integer(1, 20) if i == axis else size for i, size in enumerate(x)) for _ in range(d.integer(2, 3))]
    total = tuple(sum(p[i] for p in parts) if i == axis else size for i, size in enumerate(x))
    inputs = tuple(quantized(p, scale, zero_point) for p in parts)
    return Case(d.name, "CONCATENATION", inputs, (quantized(total, scale, zero_point),), {"axis": axis})


def _pad(d: Draws) -> Case:
    x, scale, zero_point = d.image(), d.scale(), d.zero_point()
    amounts = [(0, 0), (d.integer(0, 3), d.integer(0, 3)), (d.integer(0, 3), d.integer(1, 3)), (0, 0)]
    data = np.array(amounts, "<i4")
    table = TensorSpec("", "int32", (4, 2), data.tobytes())
    total = tuple(size + sum(pair) for size, pair in zip(x, amounts, strict=True))
    return Case(d.name, "PAD", (quantized(x, scale, zero_point), table), (quantized(total, scale, zero_point),))


def _resize_nearest(d: Draws) -> Case:
    x, scale, zero_point = d.image(), d.scale(), d.zero_point()
    size = (2 * x[1], 2 * x[2])
    y = quantized((1, *size, x[3]), scale, zero_point)
    return Case(d.name, "RESIZE_NEAREST_NEIGHBOR", (quantized(x, scale, zero_point), integers(*size)), (y,), {}, 2)


def _quantize(d: Draws) -> Case:
    x = d.image()
    return Case(d.name, "QUANTIZE", (d.tensor(x),), (d.tensor(x),))


def _slice(d: Draws) -> Case:
    x, scale, zero_point = d.image(3), d.scale(), d.zero_point()
    begin = [0, d.integer(0, 2), d.integer(0, 2), 0]
    size = [1, d.integer(1, x[1] - begin[1]), d.integer(1, x[2] - begin[2]), x[3]]
    operands = (quantized(x, scale, zero_point), integers(*begin), integers(*size))
    return Case(d.name, "SLICE", operands, (quantized(tuple(size), scale, zero_point),))


def _resize_bilinear(d: Draws) -> Case:
    """Twice or four times the size; half-pixel centers with the former, corners aligned with either."""
    x, scale, zero_point = d.image(2), d.scale(), d.zero_point()
    factor, align = (2, 4)[d.integer(0, 1)], d.rng.random() < 0.4
    size = tuple(factor * (n - 1) + 1 if align else factor * n for n in x[1:3])
    options: dict[str, OptionValue] = {"align_corners": align, "half_pixel_centers": not align and factor == 2}
    y = quantized((1, *size, x[3]), scale, zero_point)
    return Case(d.name, "RESIZE_BILINEAR", (quantized(x, scale, zero_point), integers(*size)), (y,), options, 3)


def _transpose(d: Draws) -> Case:
    x, scale, zero_point = d.image(), d.scale(), d.zero_point()
    order = (0, *(int(v) + 1 for v in d.rng.permutation(3)))
    y = quantized(tuple(x[i] for i in order), scale, zero_point)
    return Case(d.name, "TRANSPOSE", (quantized(x, scale, zero_point), integers(*order)), (y,))


def _mirror_pad(d: Draws) -> Case:
    x, scale, zero_point = d.image(3), d.scale(), d.zero_point()
    amounts = [(0, 0), (d.integer(0, 2), d.integer(0, 2)), (d.integer(0, 2), d.integer(1, 2)), (0, 0)]
    table = TensorSpec("", "int32", (4, 2), np.array(amounts, "<i4").tobytes())
    y = quantized(tuple(n + sum(pair) for n, pair in zip(x, amounts, strict=True)), scale, zero_point)
    return Case(d.name, "MIRROR_PAD", (quantized(x, scale, zero_point), table), (y,), {"mode": d.integer(0, 1)})


def _strided_slice(d: Draws) -> Case:
    x, scale, zero_point = d.image(3), d.scale(), d.zero_point()
    begin, steps = [0, d.integer(0, 2), d.integer(0, 2), 0], [1, d.integer(1, 3), d.integer(1, 3), 1]
    size = tuple(-(-(n - b) // s) for n, b, s in zip(x, begin, steps, strict=True))
    operands = (quantized(x, scale, zero_point), integers(*begin), integers(*x), integers(*steps))
    return Case(d.name, "STRIDED_SLICE", operands, (quantized(size, scale, zero_point),))


def _abs(d: Draws) -> Case:
    x = d.image()
    return Case(d.name, "ABS", (d.tensor(x),), (d.tensor(x),))


def _prelu(d: Draws) -> Case:
    x = d.image()
    slopes = d.rng.integers(-128, 128, (1, 1, x[3]))
    return Case(
        d.name, "PRELU", (d.tensor(x), quantized((1, 1, x[3]), 0.01, d.zero_point(), data=slopes)), (d.tensor(x),)
    )


def _reduce_max(d: Draws) -> Case:
    x, scale, zero_point = d.image(2), d.scale(), d.zero_point()
    operands = (quantized(x, scale, zero_point), integers(1, 2))
    return Case(d.name, "REDUCE_MAX", operands, (quantized((1, x[3]), scale, zero_point),), {"keep_dims": False})


def _arg_max(d: Draws) -> Case:
    x = d.image()
    y = TensorSpec("", "int32", x[:3])
    return Case(d.name, "ARG_MAX", (d.tensor(x), integers(3)), (y,), {"output_type": "INT32"})


def _batch_matmul(d: Draws) -> Case:
    rows, depth, columns, batch = (d.integer(1, 20) for _ in range(4))
    scale = single(2.0 ** d.rng.uniform(-6, -4))
    a, b = (quantized(s, scale, d.zero_point()) for s in ((batch, rows, depth), (batch, depth, columns)))
    return Case(d.name, "BATCH_MATMUL", (a, b), (quantized((batch, rows, columns), single(8 * scale), d.zero_point()),))


def _softmax_int16(d: Draws) -> Case:
    shape = (d.integer(1, 4), d.integer(2, 40))
    x = quantized(shape, single(2.0 ** d.rng.uniform(-13, -9)), 0, "int16")
    return Case(d.name, "SOFTMAX", (x,), (quantized(shape, 1 / 32768, 0, "int16"),), {"beta": 1.0})


def _saturating(d: Draws) -> Case:
    """A convolution whose output is clamped at both ends: the scale is far too small."""
    case = _convolution(d, (3, 3), Slide((1, 1), "SAME"))
    return with_output(case, scales=(single(case.outputs[0].scales[0] / 16),))


KINDS: dict[str, Callable[[Draws], Case]] = {
    "conv": _conv,
    "pointwise": _pointwise,
    "dilated": _dilated,
    "large_kernel": _large_kernel,
    "saturating": _saturating,
    "dense": _dense,
    "depthwise": _depthwise,
    "depthwise_multiplier": _depthwise_multiplier,
    "conv_int16": _conv_int16,
    "transpose_conv": _transpose_conv,
    "max_pool": _pool("MAX_POOL_2D"),
    "average_pool": _pool("AVERAGE_POOL_2D"),
    "add": _pair("ADD"),
    "sub": _pair("SUB"),
    "mul": _pair("MUL"),
    "add_int16": _pair("ADD", "int16"),
    "mul_int16": _pair("MUL", "int16"),
    "minimum": _extremum("MINIMUM"),
    "maximum": _extremum("MAXIMUM"),
    "relu": _relu,
    "leaky_relu": _activation("LEAKY_RELU", 0.0, 0),
    "logistic": _activation("LOGISTIC", 1 / 256, -128),
    "tanh": _activation("TANH", 1 / 128, 0),
    "hard_swish": _activation("HARD_SWISH", 0.0, 0),
    "softmax": _softmax,
    "mean": _mean,
    "concatenation": _concatenation,
    "pad": _pad,
    "resize_nearest": _resize_nearest,
    "quantize": _quantize,
    "slice": _slice,
    "strided_slice": _strided_slice,
    "resize_bilinear": _resize_bilinear,
    "transpose": _transpose,
    "mirror_pad": _mirror_pad,
    "abs": _abs,
    "prelu": _prelu,
    "reduce_max": _reduce_max,
    "arg_max": _arg_max,
    "batch_matmul": _batch_matmul,
    "softmax_int16": _softmax_int16,
}
"""By name; each makes a case of the draws."""


def case(kind: str, number: int) -> Case:
    """The `number`-th random case of a kind."""
    return KINDS[kind](Draws(f"{kind}{number}"))
