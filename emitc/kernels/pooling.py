"""AVERAGE_POOL_2D and MAX_POOL_2D: one window body for both.

Shapes  x [N, H, W, C], y [N, OH, OW, C].   Types  int8; input and output share scale and zero point.
Average: the sum of the quantized values divided by their number, half away from zero; values outside the input do not
count, unless `count_padding` says that they count as the zero point. Max: values outside the input do not take part.
Source  TFLite 8-bit quantization specification; rounding as TFLite's integer reference kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Layer,
    Param,
    Parsed,
    illegal,
    require_dtypes,
    require_quantization,
    require_rank,
)
from emitc.kernels.spatial import ACTIVATIONS, Window, image_size, require_output, window_of, window_params
from emitc.quantize import Int64, activation_clamp

_MAX_WINDOW = 1 << 23
"""Elements of a window whose int8 values sum up within int32."""


@dataclass(frozen=True, slots=True)
class Pool2D(Op):
    """window: strides and padding. kernel: [height, width]. activation: fused."""

    window: Window
    kernel_h: int
    kernel_w: int
    activation: str


@dataclass(frozen=True, slots=True)
class AveragePool2D(Pool2D):
    """count_padding: values outside the input count, as the zero point."""

    count_padding: bool = False


@dataclass(frozen=True, slots=True)
class MaxPool2D(Pool2D):
    """Largest value of the window."""


def _parse(node: SourceNode) -> tuple[Window, int, int, str]:
    node.counts((1, 1))
    height, width = image_size(node)
    kernel_h = node.integer("filter_height", low=1, high=1 << 16)
    kernel_w = node.integer("filter_width", low=1, high=1 << 16)
    window = window_of(node, height, width, kernel_h, kernel_w, dilated=False)
    return window, kernel_h, kernel_w, node.text("fused_activation_function", ACTIVATIONS)


def _average_from_tflite(node: SourceNode) -> Parsed:
    return Parsed(AveragePool2D(*_parse(node)))


def _max_from_tflite(node: SourceNode) -> Parsed:
    return Parsed(MaxPool2D(*_parse(node)))


def _op(bound: BoundNode) -> Pool2D:
    assert isinstance(bound.node.op, Pool2D)
    return bound.node.op


def check(bound: BoundNode) -> None:
    """Refuses other types than int8, a change of scale, and windows that do not fit."""
    op, x, y = _op(bound), bound.input(0), bound.output
    require_rank(bound, x, 4)
    require_dtypes(bound, [(DType.INT8, DType.INT8)])
    require_quantization(bound, x, y)
    assert x.quantization and y.quantization
    if (
        abs(x.quantization.scale - y.quantization.scale) > 1e-6
        or x.quantization.zero_point != y.quantization.zero_point
    ):
        raise illegal(
            bound,
            f"{bound.node.op_type} changes scale or zero point",
            "input and output must share them",
            "export the model again",
            y,
        )
    require_output(bound, op.window, op.kernel_h, op.kernel_w)
    if op.kernel_h * op.kernel_w > _MAX_WINDOW:
        raise illegal(
            bound, "a pooling window is too large", f"{_MAX_WINDOW} elements is the limit", "export the model again"
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, C]."""
    op, (batches, height, width, channels) = _op(bound), bound.input(0).shape
    rows, columns = op.window.output(height, width, op.kernel_h, op.kernel_w)
    return ((batches, rows, columns, channels),)


def _sum(taps: Iterator[tuple[int, int, Int64]]) -> Int64:
    """The sum over the taps, which are never none: every window meets its input."""
    _, _, total = next(taps)
    for _, _, values in taps:
        total = total + values
    return total


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap; the count of values that lie inside comes from pooling an image of ones."""
    op, x, y = _op(bound), bound.input(0), bound.output
    assert inputs[0] is not None and x.quantization
    image = inputs[0].astype(np.int64)
    if isinstance(op, AveragePool2D):
        centre = x.quantization.zero_point if op.count_padding else 0
        count = np.full(y.shape, op.kernel_h * op.kernel_w, np.int64)
        if not op.count_padding:
            count = _sum(op.window.taps(np.ones_like(image), 0, op.kernel_h, op.kernel_w))
        total = _sum(op.window.taps(image - centre, 0, op.kernel_h, op.kernel_w)) + centre * count
        pooled = np.sign(total) * ((np.abs(total) + count // 2) // count)
    else:
        low = x.dtype.range[0]
        pooled = np.full(y.shape, low, np.int64)
        for _, _, values in op.window.taps(image, low, op.kernel_h, op.kernel_w):
            pooled = np.maximum(pooled, values)
    return (activation_clamp(op.activation, y).apply(pooled, y.dtype),)


def lower(bound: BoundNode) -> Layer:
    """Channels innermost, so that a window's rows are read as they lie."""
    op, x = _op(bound), bound.input(0)
    assert x.quantization
    clamp = activation_clamp(op.activation, bound.output)
    params = (
        *window_params(bound, op.window, op.kernel_h, op.kernel_w),
        Param("clamp_low", "int32_t", clamp.low),
        Param("clamp_high", "int32_t", clamp.high),
    )
    if isinstance(op, MaxPool2D):
        return Layer("max_pool_2d", "portable", (0,), params=params)
    assert isinstance(op, AveragePool2D)
    padding = Param(
        "padding_value", "int32_t", x.quantization.zero_point if op.count_padding else 0, "what lies outside the input"
    )
    counted = Param("count_padding", "int32_t", int(op.count_padding), "1: values outside the input count")
    return Layer("average_pool_2d", "portable", (0,), params=(*params, padding, counted))


def work(bound: BoundNode) -> int:
    """Values that the windows meet, with those outside the input."""
    return bound.output.elements * _op(bound).kernel_h * _op(bound).kernel_w


KERNELS = (
    KernelDef(
        AveragePool2D,
        "2-D average pooling",
        (DType.INT8,),
        ("AVERAGE_POOL_2D",),
        _average_from_tflite,
        check,
        output_shapes,
        reference,
        lower,
        work=work,
    ),
    KernelDef(
        MaxPool2D,
        "2-D maximum pooling",
        (DType.INT8,),
        ("MAX_POOL_2D",),
        _max_from_tflite,
        check,
        output_shapes,
        reference,
        lower,
        work=work,
    ),
)
