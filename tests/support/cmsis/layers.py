"""Random quantized layers as calls of CMSIS-NN, with the outputs that emitc's references give.

What a call is made of is stated here by itself, from the tensors alone: it is what a lowering has to arrive at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims, transpose_conv_second_bytes, workspace_bytes
from emitc.backends.cmsis_nn.known_bugs import Remedy, Use
from emitc.backends.cmsis_nn.versions import InstructionSet, KernelSums, Version
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.mac.accumulation import requantization
from emitc.numerics.requantize import activation_clamp, multiplier_of
from tests.support.cmsis.library import OPERATORS, Record
from tests.support.layer_cases import (
    Image,
    Scales,
    Slide,
    conv_2d,
    depthwise,
    fully_connected,
    pool,
    single,
    softmax,
    weights_of,
)
from tests.support.single_op import Array, Case, graph_of, quantized

OFFSET_BITS = 20
"""Bits by which ADD's inputs are shifted left before they are scaled, as TFLite's int8 kernel has it."""
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


GENERAL = {
    "conv_s8": ("conv_general_s8", "arm_convolve_s8_get_buffer_size"),
    "depthwise_s8": ("depthwise_general_s8", ""),
    "conv_s4": ("conv_general_s4", "arm_convolve_s4_get_buffer_size"),
}
"""For each wrapper the kernel that takes every layer, and its size function."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A layer: its call, the name of its size function or "", and the reference's output."""

    name: str
    operator: str
    call: Call
    numbers: dict[str, int]
    arrays: dict[str, NDArray[np.generic]]
    size: str
    expected: Array

    @property
    def use(self) -> Use:
        """The call as the list of faults sees it."""
        return Use(OPERATORS[self.operator][1][-1], self.call, "B" in self.arrays)

    def record(self, version: Version, instructions: InstructionSet) -> Record:
        """The call with what the version and the instruction set want in addition."""
        scratch = workspace_bytes(self.size, version, instructions, self.call) if self.size else 0
        arrays = dict(self.arrays)
        dense = self.operator in ("fully_connected_s8", "fully_connected_channels_s8")
        if dense and instructions is InstructionSet.MVE:
            arrays["SUMS"] = kernel_sums(version, arrays["W"], arrays.get("B"), self.numbers["INPUT_OFFSET"])
        numbers = dict(self.numbers)
        if self.operator == "transpose_conv_s8":
            numbers["SCRATCH_2_BYTES"] = transpose_conv_second_bytes(version, instructions, self.call)
        return Record(self.operator, self.call, self.expected.nbytes, numbers, arrays, scratch)

    def remedied(self, remedy: Remedy) -> list[Prepared]:
        """The layer as calls that have no fault, whose outputs follow one another."""
        if remedy is Remedy.ZERO_BIAS:
            zeros = np.zeros(self.call.output.c, np.int32 if self.expected.itemsize == 1 else np.int64)
            return [replace(self, arrays=self.arrays | {"B": zeros})]
        if remedy is Remedy.GENERAL_KERNEL:
            operator, size = GENERAL[self.operator]
            return [replace(self, operator=operator, size=size)]
        assert remedy is Remedy.EACH_BATCH
        count, call = self.call.input.n, self.call
        one = replace(call, input=replace(call.input, n=1), output=replace(call.output, n=1))
        parts = zip(np.split(self.arrays["X"], count), np.split(self.expected, count), strict=True)
        return [replace(self, call=one, arrays=self.arrays | {"X": x}, expected=y) for x, y in parts]


def kernel_sums(
    version: Version, weights: NDArray[np.generic], bias: NDArray[np.generic] | None, input_offset: int
) -> NDArray[np.int32]:
    """What MVE fully connected layers find in their buffer: weight sums; since 17.0.0 times the offset, plus the bias."""
    sums = weights.astype(np.int64).sum(axis=1)
    if version.sums is KernelSums.BIAS_AND_OFFSET:
        sums = sums * input_offset + (0 if bias is None else bias.astype(np.int64))
    return sums.astype(np.int32)


class Draws:
    """Random choices from one generator, edges more often than their share."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """A uniform integer of the closed range."""
        return int(self.rng.integers(low, high, endpoint=True))

    def zero_point(self) -> int:
        """A zero point, at an end or 0 half of the time."""
        return (-128, 127, 0)[self.integer(0, 2)] if self.rng.random() < 0.5 else self.integer(-128, 127)

    def scale(self, low: float, high: float) -> float:
        """A float32 scale, uniform in its logarithm to base two."""
        return single(2.0 ** self.rng.uniform(low, high))

    def kernel(self) -> tuple[int, int]:
        """A window's size: 1x1, 3x3, one row, any."""
        return [(1, 1), (3, 3), (1, self.integer(2, 9)), (self.integer(1, 5), self.integer(1, 5))][self.integer(0, 3)]

    def slide(self, *, dilated: bool) -> Slide:
        """Strides, dilation, padding and activation."""
        stride = (1, 1) if self.rng.random() < 0.4 else (self.integer(1, 4), self.integer(1, 4))
        dilation = (self.integer(1, 3), self.integer(1, 3)) if dilated and self.rng.random() < 0.15 else (1, 1)
        return Slide(stride, ("SAME", "VALID")[self.integer(0, 1)], dilation, ACTIVATIONS[self.integer(0, 4)])

    def image(self, slide: Slide, kernel: tuple[int, int], channels: int) -> Image:
        """An input that the window fits at least once; one row often where the window has one."""
        sizes = []
        for size, dilation in zip(kernel, slide.dilation, strict=True):
            least = 1 if slide.padding == "SAME" else (size - 1) * dilation + 1
            sizes.append(self.integer(least, least + 9))
        if kernel[0] == 1 and self.rng.random() < 0.6:
            sizes[0] = 1
        return (2 if self.rng.random() < 0.15 else 1, sizes[0], sizes[1], channels)

    def scales(self, channels: int, depth: int) -> Scales:
        """Scales whose outputs mostly spread over int8."""
        factor = 2.0 ** self.rng.uniform(-3, 4) / (70.0 * math.sqrt(depth))
        if self.rng.random() < 0.05:
            factor = 2.0 ** self.rng.uniform(-38, 10)
        spread = self.rng.uniform(-1.5, 1.5, channels)
        weights = tuple(single(0.01 * 2.0**e) for e in spread)
        return Scales(self.scale(-9, 2), weights, factor, self.zero_point(), self.zero_point())

    def values(self, shape: Sequence[int]) -> Array:
        """Input values, at the ends of the type in a fifth of the layers."""
        if self.rng.random() < 0.2:
            return self.rng.choice(np.array([-128, 127], np.int8), tuple(shape))
        return self.rng.integers(-128, 127, tuple(shape), endpoint=True).astype(np.int8)


def _bound(case: Case) -> BoundNode:
    (bound,) = graph_of(case).bound()
    return bound


def _reference(bound: BoundNode, x: Array, *more: Array) -> Array:
    constants = [None if t is None else t.array() for t in bound.inputs[1 + len(more) :]]
    (result,) = kernel_of(bound).reference(bound, [x, *more, *constants])
    return result


def _zero_points(bound: BoundNode) -> tuple[int, int]:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    return x.zero_point, y.zero_point


def _accumulating(
    bound: BoundNode, activation: str, x: Array, channels: int
) -> tuple[dict[str, int], dict[str, NDArray[np.generic]]]:
    """Numbers and arrays that convolutions and fully connected layers share."""
    clamp, scale = activation_clamp(activation, bound.output), requantization(bound)
    zero_x, zero_y = _zero_points(bound)
    numbers = {"INPUT_OFFSET": -zero_x, "OUTPUT_OFFSET": zero_y, "LOW": clamp.low, "HIGH": clamp.high}
    numbers |= {"MULTIPLIER": scale.q31[0], "SHIFT": scale.shift[0]}
    repeats = channels // len(scale.q31)
    arrays: dict[str, NDArray[np.generic]] = {
        "X": x,
        "W": bound.input(1).array(),
        "MULTIPLIERS": np.array(scale.q31 * repeats, np.int32),
        "SHIFTS": np.array(scale.shift * repeats, np.int32),
    }
    bias = bound.optional(2)
    if bias is not None:
        arrays["B"] = bias.array()
    return numbers, arrays


def _call(bound: BoundNode, filter_: Dims, slide: Slide) -> Call:
    window = bound.node.op.window  # type: ignore[attr-defined]
    return Call(
        Dims(*bound.input(0).shape), filter_, Dims(*bound.output.shape), *slide.stride, window.padding.top,
        window.padding.left, *slide.dilation,
    )  # fmt: skip


def convolution(name: str, d: Draws, *, groups: int = 1) -> Prepared:
    """CONV_2D, grouped where the version can."""
    kernel, slide = d.kernel(), d.slide(dilated=True)
    in_c, channels = d.integer(1, 20), d.integer(1, 12)
    if d.rng.random() < 0.4:
        in_c = d.integer(1, 5) * 4
    if groups > 1:
        in_c, channels = groups * d.integer(1, 6), groups * d.integer(1, 4)
    scales = d.scales(channels, kernel[0] * kernel[1] * in_c // groups)
    w = weights_of(name, (channels, *kernel, in_c // groups), -128 if d.rng.random() < 0.3 else -127)
    bias = "random" if d.rng.random() < 0.8 else "none"
    case = conv_2d(name, d.image(slide, kernel, in_c), channels, kernel, slide, scales, groups=groups, w=w, bias=bias)
    bound = _bound(case)
    x = d.values(bound.input(0).shape)
    numbers, arrays = _accumulating(bound, slide.activation, x, channels)
    call = _call(bound, Dims(*bound.input(1).shape), slide)
    return Prepared(
        name, "conv_s8", call, numbers, arrays, "arm_convolve_wrapper_s8_get_buffer_size", _reference(bound, x)
    )


def grouped(name: str, d: Draws) -> Prepared:
    """A grouped CONV_2D."""
    return convolution(name, d, groups=d.integer(2, 3))


def depthwise_convolution(name: str, d: Draws) -> Prepared:
    """DEPTHWISE_CONV_2D; one filter a channel, or several, or one input channel."""
    kernel, slide = d.kernel(), d.slide(dilated=True)
    multiplier = 1 if d.rng.random() < 0.6 else d.integer(2, 9)
    in_c = d.integer(1, 140) if d.rng.random() < 0.1 and multiplier == 1 else d.integer(1, 12 if multiplier == 1 else 3)
    channels = in_c * multiplier
    scales = d.scales(channels, kernel[0] * kernel[1])
    w = weights_of(name, (1, *kernel, channels), -128 if d.rng.random() < 0.3 else -127)
    bias = "random" if d.rng.random() < 0.8 else "none"
    bound = _bound(depthwise(name, d.image(slide, kernel, in_c), multiplier, kernel, slide, scales, w=w, bias=bias))
    x = d.values(bound.input(0).shape)
    numbers, arrays = _accumulating(bound, slide.activation, x, channels)
    call = _call(bound, Dims(*bound.input(1).shape), slide)
    size = "arm_depthwise_conv_wrapper_s8_get_buffer_size"
    return Prepared(name, "depthwise_s8", call, numbers, arrays, size, _reference(bound, x))


def _dense(name: str, d: Draws, *, per_channel: bool) -> Prepared:
    depth, channels, rows = d.integer(1, 70), d.integer(1, 18), d.integer(1, 3)
    activation = ACTIVATIONS[d.integer(0, 4)]
    w = weights_of(name, (channels, depth), -128 if d.rng.random() < 0.3 else -127)
    scales = d.scales(channels if per_channel else 1, depth)
    bias = "random" if d.rng.random() < 0.8 else "none"
    bound = _bound(fully_connected(name, (rows, depth), channels, depth, activation, scales, w=w, bias=bias))
    x = d.values((rows, depth))
    numbers, arrays = _accumulating(bound, activation, x, channels)
    call = Call(Dims(rows, 1, 1, depth), Dims(depth, 1, 1, channels), Dims(rows, 1, 1, channels))
    operator = "fully_connected_channels_s8" if per_channel else "fully_connected_s8"
    return Prepared(name, operator, call, numbers, arrays, "", _reference(bound, x))


def dense(name: str, d: Draws) -> Prepared:
    """FULLY_CONNECTED with one weight scale."""
    return _dense(name, d, per_channel=False)


def dense_per_channel(name: str, d: Draws) -> Prepared:
    """FULLY_CONNECTED with a weight scale for each output."""
    return _dense(name, d, per_channel=True)


def _pooling(name: str, d: Draws, opcode: str, operator: str, size: str) -> Prepared:
    kernel, slide = d.kernel(), d.slide(dilated=False)
    channels = d.integer(1, 40) if d.rng.random() < 0.4 else d.integer(1, 9)
    case = pool(name, opcode, d.image(slide, kernel, channels), kernel, slide, d.scale(-8, 2), d.zero_point())
    bound = _bound(case)
    x = d.values(bound.input(0).shape)
    clamp = activation_clamp(slide.activation, bound.output)
    call = _call(bound, Dims(1, *kernel, 1), slide)
    return Prepared(name, operator, call, {"LOW": clamp.low, "HIGH": clamp.high}, {"X": x}, size, _reference(bound, x))


def average(name: str, d: Draws) -> Prepared:
    """AVERAGE_POOL_2D."""
    return _pooling(name, d, "AVERAGE_POOL_2D", "average_s8", "arm_avgpool_s8_get_buffer_size")


def maximum(name: str, d: Draws) -> Prepared:
    """MAX_POOL_2D."""
    return _pooling(name, d, "MAX_POOL_2D", "max_s8", "")


def _elementwise(name: str, d: Draws, opcode: str) -> tuple[BoundNode, Array, Array, Call, dict[str, int]]:
    shape = (d.integer(1, 90),)
    a_scale = d.scale(-6, 0)
    b_scale, y_scale = a_scale * d.scale(-2, 2), a_scale * d.scale(-1, 3)
    if opcode == "MUL":
        y_scale = a_scale * b_scale * d.scale(3, 9)
    activation = ACTIVATIONS[d.integer(0, 4)]
    tensors = [quantized(shape, single(s), d.zero_point()) for s in (a_scale, b_scale, y_scale)]
    bound = _bound(Case(name, opcode, tuple(tensors[:2]), (tensors[2],), {"fused_activation_function": activation}, 2))
    clamp = activation_clamp(activation, bound.output)
    zero_a, zero_y = _zero_points(bound)
    zero_b = bound.input(1).quantization
    assert zero_b is not None
    numbers = {"LOW": clamp.low, "HIGH": clamp.high, "OUTPUT_OFFSET": zero_y, "P0": -zero_a, "P3": -zero_b.zero_point}
    call = Call(Dims(1, 1, 1, *shape), Dims(1, 1, 1, 1), Dims(1, 1, 1, *shape))
    return bound, d.values(shape), d.values(shape), call, numbers


def _scales(bound: BoundNode) -> tuple[float, float, float]:
    a, b, y = bound.input(0).quantization, bound.input(1).quantization, bound.output.quantization
    assert a and b and y
    return a.scale, b.scale, y.scale


def add(name: str, d: Draws) -> Prepared:
    """ADD of two tensors of one shape."""
    bound, a, b, call, numbers = _elementwise(name, d, "ADD")
    a_scale, b_scale, y_scale = _scales(bound)
    reach = 2 * max(a_scale, b_scale)
    for scale, place in ((a_scale, 1), (b_scale, 4)):
        factor = multiplier_of(scale / reach)
        numbers |= {f"P{place}": factor.q31, f"P{place + 1}": factor.shift}
    last = multiplier_of(reach / ((1 << OFFSET_BITS) * y_scale))
    numbers |= {"P6": OFFSET_BITS, "MULTIPLIER": last.q31, "SHIFT": last.shift}
    return Prepared(name, "add_s8", call, numbers, {"X": a, "A": b}, "", _reference(bound, a, b))


def multiply(name: str, d: Draws) -> Prepared:
    """MUL of two tensors of one shape."""
    bound, a, b, call, numbers = _elementwise(name, d, "MUL")
    a_scale, b_scale, y_scale = _scales(bound)
    factor = multiplier_of(a_scale * b_scale / y_scale)
    numbers |= {"MULTIPLIER": factor.q31, "SHIFT": factor.shift}
    return Prepared(name, "mul_s8", call, numbers, {"X": a, "A": b}, "", _reference(bound, a, b))


def soft_maximum(name: str, d: Draws) -> Prepared:
    """SOFTMAX over rows."""
    rows, depth, beta, scale = d.integer(1, 4), d.integer(1, 70), d.scale(-1, 1), d.scale(-9, 1)
    bound = _bound(softmax(name, (rows, depth), scale, beta, d.zero_point()))
    x = d.values((rows, depth))
    real = min(beta * single(scale) * (1 << 26), 2.0**31 - 1.0)
    factor = multiplier_of(real)
    radius = math.floor(31 * 2.0 ** (26 - factor.shift))
    numbers = {"P0": rows, "P1": depth, "P2": -radius, "MULTIPLIER": factor.q31, "SHIFT": factor.shift}
    call = Call(Dims(rows, 1, 1, depth), Dims(1, 1, 1, 1), Dims(rows, 1, 1, depth))
    return Prepared(name, "softmax_s8", call, numbers, {"X": x}, "", _reference(bound, x))


MAKERS = {
    "convolution": convolution,
    "grouped": grouped,
    "depthwise_convolution": depthwise_convolution,
    "dense": dense,
    "dense_per_channel": dense_per_channel,
    "average": average,
    "maximum": maximum,
    "add": add,
    "multiply": multiply,
    "soft_maximum": soft_maximum,
}


def prepared(kind: str, count: int, seed: int) -> list[Prepared]:
    """So many random layers of a kind."""
    draws = Draws(seed)
    return [MAKERS[kind](f"{kind}_{seed}_{i}", draws) for i in range(count)]
