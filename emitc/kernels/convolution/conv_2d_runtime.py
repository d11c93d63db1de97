"""CONV_2D and DEPTHWISE_CONV_2D of a TFLite model whose int8 weights or bias are computed.

Shapes  as of the two with constant weights: x [N, H, W, I], w [O, KH, KW, I / groups] or, depthwise, [1, KH, KW, O], b [O] or
        none, y [N, OH, OW, O].
Types   x and y int8, w int8, b and sums int32; x and y int16, b int64, of CONV_2D also int32 (int16x8.py).
Errors  weights with a zero point; windows for which sums can leave their type.
Source  TFLite Micro's kernels, which do not mind where their weights come from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Shape
from emitc.kernels.contract import KernelDef, require_rank
from emitc.kernels.mac import accumulation, runtime_weights
from emitc.kernels.mac.operand_checks import check_operands, require_fitting_channels, window_shape
from emitc.kernels.mac.requantization import WEIGHTS, Accumulating
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.windows import Window, require_output, window_overlap, window_params
from emitc.layer import Layer, Param, by_channel


@dataclass(frozen=True, slots=True)
class ComputedConv2D(Accumulating):
    """window: strides, dilations, padding. activation: fused. depthwise: each input channel has filters of its own."""

    window: Window
    activation: str
    depthwise: bool = False


def _filters(bound: BoundNode) -> tuple[int, int, int, int]:
    """[O, KH, KW, I / groups]."""
    first, kernel_h, kernel_w, last = bound.input(WEIGHTS).shape
    return (
        (last, kernel_h, kernel_w, first) if bound.op(ComputedConv2D).depthwise else (first, kernel_h, kernel_w, last)
    )


def _depth(bound: BoundNode) -> int:
    """Products of a sum."""
    _, kernel_h, kernel_w, in_c = _filters(bound)
    return kernel_h * kernel_w * in_c


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op = bound.op(ComputedConv2D)
    require_rank(bound, bound.input(0), 4)
    require_rank(bound, bound.input(WEIGHTS), 4)
    check_operands(bound, 3 if op.depthwise else 0, short_bias=not op.depthwise, computed=True)
    require_fitting_channels(bound, depthwise=op.depthwise)
    _, kernel_h, kernel_w, _ = _filters(bound)
    require_output(bound, op.window, kernel_h, kernel_w)
    runtime_weights.check_sums(bound, _depth(bound))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]."""
    return (window_shape(bound, bound.op(ComputedConv2D).window, _filters(bound)),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """That of CONV_2D, depthwise with a group for each input channel."""
    op, x = bound.op(ComputedConv2D), bound.input(0)
    image = operand(bound, inputs, 0).astype(np.int64) - x.zero_point
    weights = operand(bound, inputs, WEIGHTS).astype(np.int64)
    filters = weights.transpose(3, 1, 2, 0) if op.depthwise else weights
    products = accumulation.convolved(op.window, image, filters, np.zeros(bound.output.shape, np.int64))
    return (accumulation.result(bound, runtime_weights.with_bias(bound, inputs, products), op.activation),)


def lower(bound: BoundNode) -> Layer:
    """Tap by tap, the weights as they lie."""
    op, x, y = bound.op(ComputedConv2D), bound.input(0), bound.output
    out_c, kernel_h, kernel_w, in_c = _filters(bound)
    groups = x.shape[3] // in_c
    window = window_params(bound, op.window, kernel_h, kernel_w)
    template, split = "convolution/conv_2d_taps", accumulation.groups_param(groups)
    if op.depthwise:
        template = "convolution/depthwise_conv_2d_multiplier"
        split = Param("depth_multiplier", "int32_t", out_c // groups)
    params = (*window, split, accumulation.input_offset(bound, folded=False))
    layer = runtime_weights.runtime_layer(bound, template, params, activation=op.activation, depth=_depth(bound))
    ahead = by_channel(out_c, groups, in_c, x.dtype.bytes, y.dtype.bytes)
    return replace(layer, overlaps=window_overlap(bound, window, ahead))


def work(bound: BoundNode) -> int:
    return bound.output.elements * _depth(bound)


KERNELS = (
    KernelDef(
        ComputedConv2D,
        "2-D convolution with computed weights",
        (DType.INT8, DType.INT16),
        tflite={"ComputedConv2D": runtime_weights.never},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
    ),
)
