"""DEPTHWISE_CONV_2D: each input channel convolved with its own `multiplier` filters.

Shapes  x [N, H, W, C], w [1, KH, KW, C * multiplier], b [C * multiplier] or none, y [N, OH, OW, C * multiplier].
Types   int8, b and accumulator int32; float32. Output channel c * multiplier + m reads input channel c.
Errors  weight zero point other than 0; an accumulator that can overflow int32.
        Computed int8 weights: conv_2d_computed.py; float32 ones have a kernel of their own order.
Source  TFLite 8-bit quantization specification, DEPTHWISE_CONV_2D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_rank
from emitc.kernels.convolution.conv_2d_runtime import ComputedConv2D
from emitc.kernels.mac import (
    accumulation,
    block4_float_conv,
    depthwise_multiplier,
    dsp_int8,
    dsp_shared_stretch,
    int16_dsp_mve,
    mve_depthwise,
    mve_int8,
    runtime_weights,
    scalar_int8,
)
from emitc.kernels.mac.requantization import WEIGHTS, output_params, requantization
from emitc.kernels.shared.windows import (
    ACTIVATIONS,
    BY_ROWS,
    Window,
    image_size,
    onnx_window,
    require_output,
    window_of,
    window_overlap,
    window_params,
)
from emitc.layer import Layer, Param, by_channel, whole_window
from emitc.numerics.requantize import activation_clamp
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class DepthwiseConv2D(Op):
    """window: strides, dilations, padding. activation: fused. zero_point_folded: the bias holds -x_zero * sum(w).
    bias_last: sums of floats in ONNX do not start with it.
    """

    window: Window
    activation: str
    zero_point_folded: bool = False
    bias_last: bool = False


def from_tflite(node: SourceNode) -> Parsed:
    """The options; the multiplier follows from the channels, the file's `depth_multiplier` is known to lie."""
    node.counts((2, 3))
    height, width = image_size(node)
    weights = node.input(WEIGHTS)
    if len(weights.shape) != 4:
        raise node.refusal(
            "DEPTHWISE_CONV_2D has weights of the wrong rank", "[1, KH, KW, C] is expected", "export again", weights
        )
    window = window_of(node, height, width, weights.shape[1], weights.shape[2], dilated=True)
    activation = node.fused_activation(ACTIVATIONS)
    if runtime_weights.applies(node):
        return Parsed(ComputedConv2D(window, activation, depthwise=True), (0, 1, 2))
    return Parsed(DepthwiseConv2D(window, activation, numerics=accumulation.tflite_numerics(node)), (0, 1, 2))


def from_onnx(node: SourceNode) -> Parsed:
    """Conv with a group for each input channel, weights [1, KH, KW, O]."""
    node.counts((2, 3))
    height, width = image_size(node)
    window = onnx_window(node, height, width, *accumulation.onnx_kernel(node))
    return Parsed(DepthwiseConv2D(window, "NONE", numerics=Numerics.QOPERATOR), (0, 1, 2))


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op, x, w = bound.op(DepthwiseConv2D), bound.input(0), bound.input(WEIGHTS)
    require_rank(bound, x, 4)
    require_rank(bound, w, 4)
    if not accumulation.in_float(bound):
        accumulation.check_operands(bound, 3, short_bias=False)
    else:
        accumulation.check_float_operands(bound, w.shape[3])
    accumulation.require_multiplier(bound)
    require_output(bound, op.window, w.shape[1], w.shape[2])
    if accumulation.in_float(bound):
        return
    filters = accumulation.weights_of(bound).astype(np.int64).reshape(-1, w.shape[3]).T
    accumulation.check_accumulator(bound, filters, folded=op.zero_point_folded)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, C * multiplier]."""
    (batches, height, width, _), w = bound.input(0).shape, bound.input(WEIGHTS).shape
    rows, columns = bound.op(DepthwiseConv2D).window.output(height, width, w[1], w[2])
    return ((batches, rows, columns, w[3]),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap, each input channel repeated for its filters, in int64."""
    op, x, w = bound.op(DepthwiseConv2D), bound.input(0), bound.input(WEIGHTS)
    _, kernel_h, kernel_w, out_c = w.shape
    image, weights, acc = accumulation.operands(bound, inputs, folded=op.zero_point_folded)
    for ky, kx, values in op.window.taps(image, 0, kernel_h, kernel_w):
        acc += np.repeat(values, out_c // x.shape[3], axis=3) * weights[0, ky, kx]
    return (accumulation.result(bound, acc, op.activation),)


def lower(bound: BoundNode) -> Layer:
    """Four channels at a time for multiplier 1; a plain convolution for one input channel; else channel by channel."""
    op, x, w, y = bound.op(DepthwiseConv2D), bound.input(0), bound.input(WEIGHTS), bound.output
    _, kernel_h, kernel_w, out_c = w.shape
    folded = op.zero_point_folded
    if accumulation.in_float(bound):
        params = (*window_params(bound, op.window, kernel_h, kernel_w), Param("groups", "int32_t", x.shape[3]))
        filters = np.ascontiguousarray(w.array().transpose(3, 1, 2, 0)) if w.is_constant else None
        return accumulation.float_layer(
            bound, params, out_c, work(bound), filters, op.activation, spread=True, bias_last=op.bias_last
        )
    scale = requantization(bound)
    bias = accumulation.bias_of(bound, out_c)
    weights = accumulation.weights_of(bound)
    spec = accumulation.spec(bound, weights, 3)
    fast = accumulation.suits_fast(bound, weights) and spec.acc == "int32_t"
    params = window_params(bound, op.window, kernel_h, kernel_w)
    clamp = activation_clamp(op.activation, y)
    tail = (accumulation.input_offset(bound, folded=folded), *output_params(bound, scale, clamp))
    macs = y.elements * kernel_h * kernel_w
    inside = accumulation.bias_inside(bound, weights.astype(np.int64).reshape(-1, out_c).T, folded=folded)
    if inside is not None and fast and x.shape[3] == 1 and op.window.dilation_w == 1:
        filters = np.ascontiguousarray(weights.transpose(3, 1, 2, 0))
        tables = accumulation.tables(filters, bias, scale, spec, interleaved=True)
        tables = (*tables, *accumulation.inside_tables(bound, inside))
        overlaps = window_overlap(bound, params, whole_window(out_c, accumulation.TOGETHER, y.dtype.bytes))
        return Layer(
            "convolution/conv_2d", "portable", (0,), tables, params + tail, macs=macs, spec=spec, overlaps=overlaps,
            by_rows=BY_ROWS,
        )  # fmt: skip
    tables = accumulation.tables(weights, bias, scale, spec)
    overlaps = window_overlap(bound, params, by_channel(out_c, x.shape[3], 1, x.dtype.bytes, y.dtype.bytes))
    if inside is not None and (fast or x.dtype is DType.INT8) and out_c == x.shape[3]:
        tables = (*tables, *accumulation.inside_tables(bound, inside))
        return Layer(
            "convolution/depthwise_conv_2d",
            "portable",
            (0,),
            tables,
            params + tail,
            macs=macs,
            spec=spec,
            overlaps=overlaps,
            by_rows=BY_ROWS,
        )
    depth = Param("depth_multiplier", "int32_t", out_c // x.shape[3])
    return Layer(
        "convolution/depthwise_conv_2d_multiplier", "portable", (0,), tables, (*params, depth, *tail), macs=macs, spec=spec,
        overlaps=overlaps, by_rows=BY_ROWS,
    )  # fmt: skip


def lower_dsp(
    bound: BoundNode, *, lean: bool = False, pixels: int = dsp_int8.PIXELS, part: bool = False
) -> Layer | str:
    """One input channel is a convolution in pairs; several filters and int16 four outputs at a time; else two in a word."""
    op, x = bound.op(DepthwiseConv2D), bound.input(0)
    shorts, usual = int16_dsp_mve.applies(bound), pixels == dsp_int8.PIXELS and not lean
    if shorts and x.shape[3] == 1 and usual:
        filters = np.ascontiguousarray(accumulation.weights_of(bound).transpose(3, 1, 2, 0))
        return int16_dsp_mve.paired_convolution(bound, op.window, op.activation, filters, folded=op.zero_point_folded)
    if x.shape[3] > 1 and usual and (shorts or bound.output.shape[3] != x.shape[3]):
        return depthwise_multiplier.paired_depthwise(bound, op.window, op.activation, folded=op.zero_point_folded)
    if reason := dsp_int8.refusal(bound, zero=True):
        return reason
    if x.shape[3] == 1:
        filters = np.ascontiguousarray(accumulation.weights_of(bound).transpose(3, 1, 2, 0))
        return dsp_int8.convolution(
            bound,
            op.window,
            op.activation,
            filters,
            folded=op.zero_point_folded,
            lean=lean,
            pixels=pixels,
            part=part,
        )
    if pixels < dsp_int8.PIXELS:
        return "it has several input channels"
    return dsp_int8.depthwise(bound, op.window, op.activation, folded=op.zero_point_folded, lean=lean)


def lower_dsp_two(bound: BoundNode) -> Layer | str:
    """The same for two pixels at a time, with half the working memory."""
    return lower_dsp(bound, pixels=2)


def lower_dsp_part(bound: BoundNode) -> Layer | str:
    """The same for two pixels, row by row of their windows."""
    return lower_dsp(bound, pixels=2, part=True)


def lower_dsp_one(bound: BoundNode) -> Layer | str:
    """The same for one pixel, with a quarter of it."""
    return lower_dsp(bound, pixels=1)


def lower_dsp_lean(bound: BoundNode) -> Layer | str:
    """The same without working memory."""
    return lower_dsp(bound, lean=True)


def lower_dsp_span(bound: BoundNode, *, pixels: int = 4) -> Layer | str:
    """One input channel: four pixels of a row at a time, which read one stretch of the input."""
    op, x = bound.op(DepthwiseConv2D), bound.input(0)
    if reason := dsp_int8.refusal(bound):
        return reason
    if x.shape[3] > 1:
        return "it has several input channels"
    filters = np.ascontiguousarray(accumulation.weights_of(bound).transpose(3, 1, 2, 0))
    return dsp_shared_stretch.convolution(
        bound, op.window, op.activation, filters, folded=op.zero_point_folded, pixels=pixels
    )


def lower_dsp_span_three(bound: BoundNode) -> Layer | str:
    """The same for three pixels."""
    return lower_dsp_span(bound, pixels=3)


def lower_fpu(bound: BoundNode, variant: str = "fpu") -> Layer | str:
    """Four channels at a time in float32; one input channel is a convolution."""
    if not accumulation.in_float(bound):
        return "integers"
    fours = block4_float_conv.convolution if bound.input(0).shape[3] == 1 else block4_float_conv.depthwise
    return fours(bound, lower(bound), variant)


def lower_mve(bound: BoundNode) -> Layer | str:
    """Registers of 16 channels; one input channel is a convolution; several filters and int16 four outputs at a time."""
    op, x = bound.op(DepthwiseConv2D), bound.input(0)
    if accumulation.in_float(bound):
        return lower_fpu(bound, "mve")
    shorts = int16_dsp_mve.applies(bound)
    if not shorts and (reason := dsp_int8.refusal(bound)):
        return reason
    if x.shape[3] == 1:
        filters = np.ascontiguousarray(accumulation.weights_of(bound).transpose(3, 1, 2, 0))
        convolution = int16_dsp_mve.vector_convolution if shorts else mve_int8.convolution
        return convolution(bound, op.window, op.activation, filters, folded=op.zero_point_folded)
    if shorts or bound.output.shape[3] != x.shape[3]:
        return depthwise_multiplier.depthwise(bound, op.window, op.activation, folded=op.zero_point_folded)
    return mve_depthwise.depthwise(bound, op.window, op.activation, folded=op.zero_point_folded)


def lower_scalar(bound: BoundNode, *, narrow: bool = False) -> Layer | str:
    """One input channel is a convolution in pairs; otherwise two channels in a word."""
    op, x = bound.op(DepthwiseConv2D), bound.input(0)
    if reason := dsp_int8.refusal(bound):
        return reason
    if x.shape[3] == 1:
        filters = np.ascontiguousarray(accumulation.weights_of(bound).transpose(3, 1, 2, 0))
        return scalar_int8.convolution(
            bound, op.window, op.activation, filters, folded=op.zero_point_folded, narrow=narrow
        )
    return scalar_int8.depthwise(bound, op.window, op.activation, folded=op.zero_point_folded, narrow=narrow)


def lower_narrow(bound: BoundNode) -> Layer | str:
    """The same, requantized without long products."""
    return scalar_int8.for_narrow(lower_scalar(bound, narrow=True))


def work(bound: BoundNode) -> int:
    """Multiply-accumulates."""
    _, kernel_h, kernel_w, _ = bound.input(WEIGHTS).shape
    return bound.output.elements * kernel_h * kernel_w


KERNELS = (
    KernelDef(
        DepthwiseConv2D,
        "depthwise 2-D convolution, any multiplier",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        ("DEPTHWISE_CONV_2D",),
        from_tflite,
        check,
        reference,
        lower,
        output_shapes=output_shapes,
        work=work,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32),
        onnx=("DepthwiseConv",),
        from_onnx=from_onnx,
        packed_input=WEIGHTS,
        variants=(
            Variant("mve", "mve", lower_mve, (DType.INT8, DType.INT16, DType.FLOAT32)),
            Variant("fpu", "fpu", lower_fpu, (DType.FLOAT32,)),
            Variant("dsp", "dsp", lower_dsp, (DType.INT8, DType.INT16)),
            Variant("dsp-span", "dsp", lower_dsp_span, fitted=True),
            Variant("dsp-span-three", "dsp", lower_dsp_span_three, fitted=True),
            Variant("dsp-two", "dsp", lower_dsp_two),
            Variant("dsp-part", "dsp", lower_dsp_part),
            Variant("dsp-one", "dsp", lower_dsp_one),
            Variant("dsp-lean", "dsp", lower_dsp_lean),
            Variant("scalar", "scalar", lower_scalar),
            Variant("narrow", "narrow", lower_narrow),
        ),
    ),
)
