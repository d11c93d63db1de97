"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of float32 values with int8 weights, the values quantized with a zero point.

What converters make with dynamic range quantization: weights have a scale per output channel, values are quantized while running.

Shapes  as of the three operators; a fully connected layer is a 1x1 convolution of one image per row, a depthwise one has a
        group for each input channel. Groups of CONV_2D too.
Types   x, b and y float32, w int8 with one scale per output channel (FULLY_CONNECTED: or one) and without zero points.
        Of every image, low <= 0 and high >= 0 are the ends of its values, s = float32(high - low) / 255, and z is -128 - low / s
        or 127 - high / s, whichever has the smaller magnitudes in it, rounded half away from zero and limited to int8; all in
        double. q = z + round(x * (1 / float32(s))) in [-128, 127], halves away from zero, in float32.
        y = clamp(r + b): r is float32(sum of (q - z) * w) times (s * s_w), in CONV_2D times s_w and then times s.
        An image of zeros stays zeros.
Errors  computed weights or bias; sums that can leave int32.
Source  LiteRT's reference kernels, by their results; TFLite Micro has no hybrid layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_rank
from emitc.kernels.mac.hybrid_common import (
    Float32,
    as_filters,
    half_away,
    require_int32_sums,
    require_operands,
    settings_of,
    shape_of,
    tables_of,
    window_and_image,
    window_or_pixel,
)
from emitc.kernels.mac.requantization import BIAS, WEIGHTS
from emitc.kernels.shared.float_activation import bound_params, bounded
from emitc.kernels.shared.windows import Window, require_output
from emitc.layer import Layer, Param, Scratch, Table
from emitc.source import SourceNode

_LOW, _HIGH = -128, 127
_FURTHEST = 256
"""More steps than lie between any two values; what is not finite is limited to it."""


@dataclass(frozen=True, slots=True)
class HybridOffsetConv2D(Op):
    """window: strides, dilations, padding; none of a fully connected layer. depthwise: weights [1, KH, KW, O].

    activation: fused. keep_dims: as in FULLY_CONNECTED.
    """

    window: Window | None
    activation: str
    keep_dims: bool = False
    depthwise: bool = False


def from_tflite(node: SourceNode) -> Parsed:
    """The options of the three operators."""
    window, activation, keep_dims = settings_of(node)
    return Parsed(HybridOffsetConv2D(window, activation, keep_dims, node.op_type == "DEPTHWISE_CONV_2D"), (0, 1, 2))


def _filters(bound: BoundNode) -> Array:
    """The weights as [O, KH, KW, channels of a group]."""
    w = bound.input(WEIGHTS).array()
    return np.ascontiguousarray(w.transpose(3, 1, 2, 0)) if bound.op(HybridOffsetConv2D).depthwise else as_filters(w)


def _channels(bound: BoundNode) -> tuple[int, int]:
    """Dimension of the weights' output channels, and how many there are."""
    axis = 3 if bound.op(HybridOffsetConv2D).depthwise else 0
    return axis, bound.input(WEIGHTS).shape[axis]


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op, x, w = bound.op(HybridOffsetConv2D), bound.input(0), bound.input(WEIGHTS)
    kind = bound.node.op_type
    axis, out = _channels(bound)
    require_operands(bound, op, out)
    q = w.quantization
    if q is None or any(q.zero_points) or len(q.scales) not in ((1, out) if op.window is None else (out,)):
        scales = 0 if q is None else len(q.scales)
        raise illegal(
            bound, f"{kind} has {scales} weight scales for {out} channels", "and int8 weights have no zero points",
            "quantize them again", w,
        )  # fmt: skip
    if len(q.scales) > 1 and q.axis != axis:
        raise illegal(
            bound, f"{kind} has weight scales along dimension {q.axis}", f"{axis} is expected", "quantize them again", w
        )
    if op.window is not None:
        require_rank(bound, x, 4)
        groups = x.shape[3] // w.shape[3]
        fits = w.shape[0] == 1 and x.shape[3] > 0 and out % x.shape[3] == 0
        if not (fits if op.depthwise else groups and x.shape[3] == groups * w.shape[3] and out % groups == 0):
            raise illegal(
                bound, f"{kind} has channels that do not fit", f"input {x.shape[3]}, weights {list(w.shape)}",
                tensor=w
            )  # fmt: skip
        require_output(bound, op.window, w.shape[1], w.shape[2])
    require_int32_sums(bound, _filters(bound), _HIGH - _LOW)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]; [rows, O], or [..., O] with keep_num_dims."""
    return shape_of(bound, bound.op(HybridOffsetConv2D), _channels(bound)[1])


def _quantized(image: Float32) -> tuple[NDArray[np.int64], np.float32]:
    """The values of one image less their zero point, and their scale."""
    low, high = min(np.float32(0), image.min()), max(np.float32(0), image.max())
    if low == high:
        return np.zeros(image.shape, np.int64), np.float32(1)
    with np.errstate(all="ignore"):
        scale = np.float64(high - low) / 255
        below, above = np.float64(low) / scale, np.float64(high) / scale
        exact = _LOW - below if -_LOW - below < _HIGH + above else _HIGH - above
        zero = int(np.clip(np.sign(exact) * np.floor(np.abs(np.nan_to_num(exact)) + 0.5), _LOW, _HIGH))
        step = np.float32(scale)
        limited = np.nan_to_num(np.clip(image * (np.float32(1) / step), -_FURTHEST, _FURTHEST))
    return np.clip(half_away(limited) + zero, _LOW, _HIGH) - zero, step


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Integer sums tap by tap, then float32."""
    op, w, bias = bound.op(HybridOffsetConv2D), bound.input(WEIGHTS), bound.optional(BIAS)
    assert inputs[0] is not None and w.quantization
    filters = _filters(bound).astype(np.int64)
    out, kernel_h, kernel_w, inside = filters.shape
    x = inputs[0].astype(np.float32)
    images = x if op.window is not None else x.reshape(-1, 1, 1, inside)
    found = [_quantized(image) for image in images]
    values = np.stack([value for value, _ in found])
    step = np.array([each for _, each in found], np.float32).reshape(-1, 1, 1, 1)
    rows, columns = window_or_pixel(op).output(values.shape[1], values.shape[2], kernel_h, kernel_w)
    groups = values.shape[3] // inside
    acc = np.zeros((len(values), rows, columns, out), np.int64)
    for ky, kx, tap in window_or_pixel(op).taps(values, 0, kernel_h, kernel_w):
        split = tap.reshape(*tap.shape[:3], groups, inside)
        acc += np.einsum("nyxgi,goi->nyxgo", split, filters[:, ky, kx].reshape(groups, -1, inside)).reshape(acc.shape)
    scales = np.array(w.quantization.scales, np.float32)
    added = np.zeros(1, np.float32) if bias is None else bias.array().astype(np.float32)
    with np.errstate(all="ignore"):
        wide = acc.astype(np.float32)
        scaled: Float32 = wide * (scales * step) if _joint(op) else wide * scales * step
        real = scaled + added
    return (bounded(real.reshape(bound.output.shape), op.activation, DType.FLOAT32),)


def _joint(op: HybridOffsetConv2D) -> bool:
    """Whether the two scales are multiplied first."""
    return op.window is None or op.depthwise


def lower(bound: BoundNode) -> Layer:
    """Image by image: the ends of the values, quantized values in scratch, then the sums."""
    op, x, w = bound.op(HybridOffsetConv2D), bound.input(0), bound.input(WEIGHTS)
    assert w.quantization
    filters = _filters(bound)
    out, _, _, inside = filters.shape
    window, image = window_and_image(bound, op, out)
    groups = 1 if op.window is None else x.shape[3] // inside
    params = (
        *window,
        Param("group_in", "int32_t", inside),
        Param("group_out", "int32_t", out // groups),
        Param("joint", "int32_t", int(_joint(op)), "whether both scales are multiplied first"),
    )
    weights, biases = tables_of(bound, filters)
    scales = w.quantization.scales if len(w.quantization.scales) == out else w.quantization.scales * out
    tables = (weights, Table("scales", "float", tuple(scales), "weight scale per output channel"), biases)
    return Layer(
        "convolution/hybrid/hybrid_offset_conv_2d", "portable", (0,), tables,
        (*params, *bound_params(op.activation, DType.FLOAT32)), scratch=(Scratch("values", image),), macs=work(bound),
    )  # fmt: skip


def work(bound: BoundNode) -> int:
    """Multiply-accumulates."""
    w = bound.input(WEIGHTS)
    return bound.output.elements * (w.elements // _channels(bound)[1])


KERNELS = (
    KernelDef(
        HybridOffsetConv2D,
        "convolution or matrix product of float32 with int8 weights, scales per channel",
        (DType.FLOAT32,),
        ("HybridOffsetConv2D",),
        from_tflite,
        check,
        reference,
        lower,
        output_shapes=output_shapes,
        work=work,
    ),
)
