"""Cases of the operators that the lead kernels serve: convolutions, fully connected layers, pools, softmax, reshapes.

Each function takes what a test varies and states the rest: output shape, legal scales, random constants from a fixed seed.
Shapes are computed here on their own (never by the code under test).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.kernels import kernel_of
from emitc.kernels.mac.accumulation import Requantization, requantization
from emitc.layer import Layer
from tests.support.single_op import Array, Case, OptionValue, TensorSpec, graph_of, quantized, refusal

Image = tuple[int, int, int, int]


def single(value: float) -> float:
    """The float32 nearest to `value`, as the double that equals it."""
    return float(np.float32(value))


def named_rng(name: str) -> np.random.Generator:
    """A generator that depends on the case's name alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


@dataclass(frozen=True, slots=True)
class Scales:
    """Quantization of a layer that accumulates.

    factor: input scale * weight scale / output scale as wanted; the output scale is derived from it (float32), so that the
    real factor is a rounding off. weights: one scale, or one per output channel. bias_scale_error: float32 steps by which
    the bias scale is off the product of the other two. output: the output scale, instead of one derived.
    """

    input: float = 0.05
    weights: tuple[float, ...] = (0.01,)
    factor: float = 0.004
    input_zero_point: int = 3
    output_zero_point: int = -5
    bias_scale_error: int = 0
    output: float = 0.0

    def output_scale(self) -> float:
        """The output's scale."""
        return self.output or single(single(self.input) * single(self.weights[0]) / self.factor)

    def bias_scale(self, weight_scale: float) -> float:
        """The bias's scale for one weight scale."""
        scale = np.float32(single(self.input) * single(weight_scale))
        for _ in range(abs(self.bias_scale_error)):
            scale = np.nextafter(scale, np.float32(math.inf if self.bias_scale_error > 0 else 0.0))
        return float(scale)


def scales_for(q31: int, shift: int) -> Scales:
    """float32 scales whose product and ratio in double have exactly this Q31 multiplier and shift (positive left)."""
    rng, target = np.random.default_rng(q31 + shift), q31 * 2.0 ** (shift - 31)
    for _ in range(100_000):
        x, w = (single(v) for v in rng.uniform(0.01, 0.1, 2))
        y = single(x * w / target)
        mantissa, exponent = math.frexp(x * w / y)
        if (math.floor(mantissa * 2**31 + 0.5), exponent) == (q31, shift):
            return Scales(x, (w,), output=y)
    raise AssertionError(f"no float32 scales give {q31} and {shift}")


def weights_of(name: str, shape: Sequence[int], low: int = -127) -> Array:
    """Random weights over the whole range, -128 among them when `low` asks for it."""
    values = named_rng(name).integers(low, 127, tuple(shape), endpoint=True).astype(np.int8)
    if low == -128:
        values.reshape(-1)[:: max(1, values.size // 3)] = -128
    return values


def _bias(name: str, channels: int, spread: int) -> Array:
    return named_rng(name + "/bias").integers(-spread, spread, channels, endpoint=True).astype(np.int32)


def _operands(
    name: str, x: TensorSpec, w: Array, w_axis: int, channels: int, scales: Scales, bias: Array | str
) -> tuple[TensorSpec | None, ...]:
    """Input, weights, and the bias: an array, "random", "none" (two inputs) or "absent" (a third input left out)."""
    per_channel = len(scales.weights) > 1
    weight = TensorSpec(
        "", "int8", w.shape, w.tobytes(), tuple(map(single, scales.weights)), (), w_axis if per_channel else 0
    )
    if isinstance(bias, str):
        if bias == "none":
            return (x, weight)
        if bias == "absent":
            return (x, weight, None)
        bias = _bias(name, channels, 4000)
    bias_scales = tuple(scales.bias_scale(s) for s in scales.weights)
    return (x, weight, TensorSpec("", "int32", bias.shape, bias.astype("<i4").tobytes(), bias_scales, ()))


def out_size(size: int, kernel: int, stride: int, padding: str, dilation: int = 1) -> int:
    """Extent of a sliding window's output."""
    return -(-size // stride) if padding == "SAME" else (size - (kernel - 1) * dilation - 1) // stride + 1


@dataclass(frozen=True, slots=True)
class Slide:
    """How a window moves: (height, width) each."""

    stride: tuple[int, int] = (1, 1)
    padding: str = "VALID"
    dilation: tuple[int, int] = (1, 1)
    activation: str = "NONE"

    def options(self, *, dilated: bool = True) -> dict[str, OptionValue]:
        """The option fields of the schema."""
        options: dict[str, OptionValue] = {
            "stride_h": self.stride[0],
            "stride_w": self.stride[1],
            "padding": self.padding,
            "fused_activation_function": self.activation,
        }
        if dilated:
            options |= {"dilation_h_factor": self.dilation[0], "dilation_w_factor": self.dilation[1]}
        return options

    def image(self, x: Image, kernel: tuple[int, int], channels: int) -> Image:
        """Shape of the output."""
        rows, columns = (
            out_size(x[1 + i], kernel[i], self.stride[i], self.padding, self.dilation[i]) for i in range(2)
        )
        return (x[0], rows, columns, channels)


def conv_2d(
    name: str,
    x: Image,
    channels: int,
    kernel: tuple[int, int],
    slide: Slide = Slide(),
    scales: Scales = Scales(),
    *,
    groups: int = 1,
    w: Array | None = None,
    bias: Array | str = "random",
) -> Case:
    """CONV_2D; weights are random unless given (OHWI)."""
    weights = weights_of(name, (channels, *kernel, x[3] // groups)) if w is None else w
    operands = _operands(
        name, quantized(x, single(scales.input), scales.input_zero_point), weights, 0, channels, scales, bias
    )
    y = quantized(slide.image(x, kernel, channels), scales.output_scale(), scales.output_zero_point)
    return Case(name, "CONV_2D", operands, (y,), slide.options(), 3)


def depthwise(
    name: str,
    x: Image,
    multiplier: int,
    kernel: tuple[int, int],
    slide: Slide = Slide(),
    scales: Scales = Scales(),
    *,
    w: Array | None = None,
    bias: Array | str = "random",
) -> Case:
    """DEPTHWISE_CONV_2D with `multiplier` filters for each input channel."""
    channels = x[3] * multiplier
    weights = weights_of(name, (1, *kernel, channels)) if w is None else w
    operands = _operands(
        name, quantized(x, single(scales.input), scales.input_zero_point), weights, 3, channels, scales, bias
    )
    y = quantized(slide.image(x, kernel, channels), scales.output_scale(), scales.output_zero_point)
    options = slide.options() | {"depth_multiplier": multiplier}
    return Case(name, "DEPTHWISE_CONV_2D", operands, (y,), options, 3)


def fully_connected(
    name: str,
    x: tuple[int, ...],
    channels: int,
    depth: int,
    activation: str = "NONE",
    scales: Scales = Scales(),
    *,
    keep: bool = False,
    w: Array | None = None,
    bias: Array | str = "random",
) -> Case:
    """FULLY_CONNECTED of rows of `depth`."""
    weights = weights_of(name, (channels, depth)) if w is None else w
    operands = _operands(
        name, quantized(x, single(scales.input), scales.input_zero_point), weights, 0, channels, scales, bias
    )
    shape = (*x[:-1], channels) if keep else (math.prod(x) // depth, channels)
    y = quantized(shape, scales.output_scale(), scales.output_zero_point)
    options: dict[str, OptionValue] = {"fused_activation_function": activation, "keep_num_dims": keep}
    return Case(name, "FULLY_CONNECTED", operands, (y,), options, 4)


def pool(
    name: str,
    opcode: str,
    x: Image,
    kernel: tuple[int, int],
    slide: Slide = Slide(),
    scale: float = 0.05,
    zero_point: int = 3,
) -> Case:
    """AVERAGE_POOL_2D or MAX_POOL_2D."""
    options = slide.options(dilated=False) | {"filter_height": kernel[0], "filter_width": kernel[1]}
    y = quantized(slide.image(x, kernel, x[3]), single(scale), zero_point)
    return Case(name, opcode, (quantized(x, single(scale), zero_point),), (y,), options, 2)


def softmax(name: str, shape: tuple[int, ...], scale: float = 0.1, beta: float = 1.0, zero_point: int = 5) -> Case:
    """SOFTMAX over the last dimension."""
    y = quantized(shape, 1 / 256, -128)
    return Case(name, "SOFTMAX", (quantized(shape, single(scale), zero_point),), (y,), {"beta": beta}, 2)


def with_output(case: Case, **changes: object) -> Case:
    """The case with fields of its output tensor replaced."""
    return replace(case, outputs=(replace(case.outputs[0], **changes),))  # type: ignore[arg-type]


def with_input(case: Case, position: int, **changes: object) -> Case:
    """The case with fields of one of its input tensors replaced."""
    inputs = list(case.inputs)
    tensor = inputs[position]
    assert tensor is not None
    inputs[position] = replace(tensor, **changes)  # type: ignore[arg-type]
    return replace(case, inputs=tuple(inputs))


def late(case: Case) -> Case:
    """The case with its bias for an input, of which every number may come: sums wrap."""
    both = "_and_weights" if case.inputs[1] is not None and case.inputs[1].data is None else ""
    last = len(case.inputs) - 1
    return replace(with_input(case, last, data=None), id=f"{case.id}_late_bias{both}")


def lowered(case: Case) -> Layer:
    """The layer that the case's operator is lowered to, before any pass."""
    (bound,) = graph_of(case).bound()
    return kernel_of(bound).lower(bound)


def factors(case: Case) -> Requantization:
    """The multipliers of an accumulating case."""
    (bound,) = graph_of(case).bound()
    return requantization(bound)


def message(case: Case) -> str:
    """The whole message of the case's refusal, and its exit code in front."""
    error = refusal(case)
    return f"{error.exit_code}\n{error}"
