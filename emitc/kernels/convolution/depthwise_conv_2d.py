"""DEPTHWISE_CONV_2D: each input channel convolved with its own `multiplier` filters.

Shapes  x [N, H, W, C], w [1, KH, KW, C * multiplier], b [C * multiplier] or none, y [N, OH, OW, C * multiplier].
Types   int8, b and accumulator int32; float32. Output channel c * multiplier + m reads input channel c.
Errors  weight zero point other than 0; an accumulator that can overflow int32.
        Computed int8 weights: conv_2d_computed.py; float32 ones have a kernel of their own order.
Source  TFLite 8-bit quantization specification, DEPTHWISE_CONV_2D.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_rank, requires
from emitc.kernels.convolution.conv_2d_runtime import ComputedConv2D
from emitc.kernels.costs import Cost, Costs
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


def _windows(make: Callable[..., Layer | str], **form: Any) -> Callable[[BoundNode], Layer | str]:
    """The maker of a row for one input channel, which is a convolution: what a function of emitc/kernels/mac makes of it."""

    def made(bound: BoundNode) -> Layer | str:
        op, filters = (
            bound.op(DepthwiseConv2D),
            np.ascontiguousarray(accumulation.weights_of(bound).transpose(3, 1, 2, 0)),
        )
        return make(bound, op.window, op.activation, filters, folded=op.zero_point_folded, **form)

    return made


def _channels(make: Callable[..., Layer | str], **form: Any) -> Callable[[BoundNode], Layer | str]:
    """The same for several input channels."""

    def made(bound: BoundNode) -> Layer | str:
        op = bound.op(DepthwiseConv2D)
        return make(bound, op.window, op.activation, folded=op.zero_point_folded, **form)

    return made


def _floats(instructions: str) -> Callable[[BoundNode], Layer | str]:
    """The same of float32, four channels at a time; one input channel is a convolution."""

    def made(bound: BoundNode) -> Layer | str:
        fours = block4_float_conv.convolution if bound.input(0).shape[3] == 1 else block4_float_conv.depthwise
        return fours(bound, lower(bound), instructions)

    return made


def _against_four(bound: BoundNode, pixels: int) -> float:
    return dsp_shared_stretch.against_four(bound, bound.op(DepthwiseConv2D).window, pixels)


def work(bound: BoundNode) -> int:
    """Multiply-accumulates."""
    _, kernel_h, kernel_w, _ = bound.input(WEIGHTS).shape
    return bound.output.elements * kernel_h * kernel_w


def _one_channel(bound: BoundNode) -> bool:
    return bound.input(0).shape[3] == 1


def _cases(bound: BoundNode) -> tuple[str, ...]:
    if bound.input(WEIGHTS).shape[3] == bound.input(0).shape[3]:
        return ()
    return (_SEVERAL,) if _one_channel(bound) else (_EACH, _SEVERAL)


def _integers(bound: BoundNode) -> str:
    return "" if int16_dsp_mve.applies(bound) else dsp_int8.refusal(bound)


_SEVERAL, _EACH = "several filters", "several filters each"
_ONE_CHANNEL = requires(_one_channel, "it has several input channels")
_CHANNELS = requires(lambda bound: not _one_channel(bound), "it has one input channel")
_MANY_FILTERS = requires(
    lambda bound: int16_dsp_mve.applies(bound) or bound.output.shape[3] != bound.input(0).shape[3],
    "it has one filter per channel",
)
_ONE_FILTER = requires(
    lambda bound: bound.output.shape[3] == bound.input(0).shape[3],
    "it has several filters per channel", "one filter per channel, followed by a 1x1 convolution",
)  # fmt: skip
_INT8_ZERO = partial(dsp_int8.refusal, zero=True)
"""With weights that have one zero point, too."""
_INT16 = requires(int16_dsp_mve.applies, "its values are not int16")
_FLOAT = (requires(accumulation.in_float, "its values are integers"),)
_SHORTS = (DType.INT8, DType.INT16)
_PAIRS = Cost(mac=0.9, output=10, gathered=4.1, once=200)
_WORDS = Costs(
    "qemu_m3 at bed52a8, 2026-11-22",
    Cost(mac=4, output=16),
    {_SEVERAL: Cost(mac=1.6, output=16, gathered=2.5, once=300)},
)
_MUL32 = Costs(
    "qemu_m0 at bed52a8, 2026-11-22", Cost(mac=4, output=0.9 * 16),
    {_SEVERAL: Cost(mac=1.6, output=0.9 * 16, gathered=2.5, once=300)},
)  # fmt: skip
_BYTE_VECTORS = Costs(
    "qemu_m55 at bed52a8, 2026-11-22",
    Cost(mac=1.0, gathered=2.5, once=100),
    {_SEVERAL: Cost(mac=0.21, output=17.5, once=200)},
)
_MORE_VECTORS = Costs(
    "qemu_m55 at 319c32e, 2026-11-22", Cost(mac=4, output=11),
    {
        "int16": Cost(mac=3.5, output=28),
        f"{_SEVERAL} int16": Cost(mac=0.35, output=20, gathered=0.5, once=200),
        f"{_EACH} int16": Cost(mac=3.5, output=10),
    },
)  # fmt: skip
_MORE_PAIRS = Costs(
    "qemu_m4 at 319c32e, 2026-11-22", Cost(mac=3.1, output=21),
    {"int16": Cost(mac=3.3, output=35), f"{_EACH} int16": Cost(mac=3.1, output=29)},
)  # fmt: skip
_ROW_BY_ROW = "qemu_m4 at 1183ada 97efdbb, 2026-11-22"
_VARIANTS = (
    Variant("mve", "mve", _windows(mve_int8.convolution), _BYTE_VECTORS, applies=(dsp_int8.refusal, _ONE_CHANNEL)),
    Variant("mve", "mve", _channels(mve_depthwise.depthwise), _BYTE_VECTORS, applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER)),
    Variant(
        "mve", "mve", _windows(int16_dsp_mve.vector_convolution), _MORE_VECTORS, (DType.INT16,), (_INT16, _ONE_CHANNEL)
    ),
    Variant(
        "mve", "mve", _channels(depthwise_multiplier.depthwise), _MORE_VECTORS, _SHORTS, (_integers, _CHANNELS, _MANY_FILTERS)
    ),
    Variant(
        "mve", "mve", _floats("mve"),
        Costs(
            "qemu_m55 at c0f54a6, 2026-11-23", Cost(mac=1.75, output=22, once=60),
            {_SEVERAL: Cost(mac=1.1, output=25, once=60)},
        ),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant(
        "fpu", "fpu", _floats("fpu"),
        Costs(
            "qemu_m4 at c0f54a6, 2026-11-23", Cost(mac=3.75, output=25, once=60),
            {_SEVERAL: Cost(mac=2.63, output=27, once=60)},
        ),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant(
        "dsp", "dsp", _windows(dsp_int8.convolution), Costs("qemu_m4 at 1183ada, 2026-11-22", _PAIRS),
        applies=(_INT8_ZERO, _ONE_CHANNEL),
    ),
    Variant(
        "dsp", "dsp", _channels(dsp_int8.depthwise), Costs("qemu_m4 at bed52a8, 2026-11-22", Cost(mac=2.2, output=12)),
        applies=(_INT8_ZERO, _CHANNELS, _ONE_FILTER),
    ),
    Variant(
        "dsp", "dsp", _windows(int16_dsp_mve.paired_convolution),
        Costs("qemu_m4 at 319c32e, 2026-11-22", Cost(mac=0.9, output=16, gathered=4.1, once=200)),
        (DType.INT16,), (_INT16, _ONE_CHANNEL),
    ),
    Variant(
        "dsp", "dsp", _channels(depthwise_multiplier.paired_depthwise), _MORE_PAIRS, _SHORTS,
        (_integers, _CHANNELS, _MANY_FILTERS),
    ),
    *(
        Variant(
            name, "dsp", _windows(dsp_shared_stretch.convolution, pixels=pixels),
            Costs("qemu_m4 at 1183ada 1b9d3c4, 2026-11-22", _PAIRS, factor=partial(_against_four, pixels=pixels)),
            applies=(dsp_int8.refusal, _ONE_CHANNEL), fitted=True, yields_to="mve",
        )
        for name, pixels in (("dsp-stretch4", 4), ("dsp-stretch3", 3))
    ),
    Variant(
        "dsp-2px", "dsp", _windows(dsp_int8.convolution, pixels=2),
        Costs(_ROW_BY_ROW, Cost(mac=0.975, output=14, gathered=3.6, once=200)), applies=(dsp_int8.refusal, _ONE_CHANNEL),
    ),
    Variant(
        "dsp-2px-rowwise", "dsp", _windows(dsp_int8.convolution, pixels=2, part=True),
        Costs(_ROW_BY_ROW, Cost(mac=1.0, output=14, gathered=3.6, once=200, sums=6)), applies=(dsp_int8.refusal, _ONE_CHANNEL),
    ),
    Variant(
        "dsp-1px", "dsp", _windows(dsp_int8.convolution, pixels=1),
        Costs(_ROW_BY_ROW, Cost(mac=1.3, output=14, gathered=4.3, once=200)), applies=(dsp_int8.refusal, _ONE_CHANNEL),
    ),
    Variant(
        "dsp-noscratch", "dsp", _windows(dsp_int8.convolution, lean=True),
        Costs(_ROW_BY_ROW, Cost(mac=2.2, output=14, gathered=4.4, once=200)), applies=(_INT8_ZERO, _ONE_CHANNEL),
    ),
    Variant(
        "dsp-noscratch", "dsp", _channels(dsp_int8.depthwise, lean=True),
        Costs("qemu_m4 at bed52a8, 2026-11-22", Cost(mac=2.2, output=12.1)), applies=(_INT8_ZERO, _CHANNELS, _ONE_FILTER),
    ),
    Variant("swar", "swar", _windows(scalar_int8.convolution), _WORDS, applies=(dsp_int8.refusal, _ONE_CHANNEL)),
    Variant("swar", "swar", _channels(scalar_int8.depthwise), _WORDS, applies=(dsp_int8.refusal, _CHANNELS)),
    Variant(
        "mul32", "mul32", _windows(scalar_int8.convolution, mul32=True), _MUL32, applies=(dsp_int8.refusal, _ONE_CHANNEL)
    ),
    Variant(
        "mul32", "mul32", _channels(scalar_int8.depthwise, mul32=True), _MUL32, applies=(dsp_int8.refusal, _CHANNELS)
    ),
)  # fmt: skip
_INT16_AND_FLOAT = {
    "int16": Cost(mac=8.4),
    f"{_SEVERAL} int16": Cost(mac=3.4, output=42),
    f"{_EACH} int16": Cost(mac=13.3),
    "float32": Cost(mac=10.0, output=14),
}
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
        variants=_VARIANTS,
        cost=Costs(
            "qemu_m4 at dd4c478 bb9d374 319c32e c0f54a6, 2026-11-23",
            Cost(mac=9.68, gathered=19.8),
            {_SEVERAL: Cost(mac=3.38, output=40.7), _EACH: Cost(mac=14.5), **_INT16_AND_FLOAT},
        ),
        cost_with_vectors=Costs(
            "qemu_m55 at dd4c478 bb9d374 319c32e c0f54a6, 2026-11-23",
            Cost(mac=9.59, gathered=19.7),
            {_SEVERAL: Cost(mac=3.12, output=43.9), _EACH: Cost(mac=14.5), **_INT16_AND_FLOAT},
        ),
        cases=_cases,
    ),
)
