"""DEPTHWISE_CONV_2D: each input channel convolved with its own `multiplier` filters.

Shapes  x [N, H, W, C], w [1, KH, KW, C * multiplier], b [C * multiplier] or none, y [N, OH, OW, C * multiplier].
Types   int8, b and accumulator int32; float32. Output channel c * multiplier + m reads input channel c.
Errors  weight zero point other than 0; an accumulator that can overflow int32.
        Computed int8 weights: conv_2d.py; float32 ones have a kernel of their own order.
Source  TFLite 8-bit quantization specification, DEPTHWISE_CONV_2D.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, requires
from emitc.kernels.convolution.conv_2d import ComputedConv2D
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import (
    accumulation,
    depthwise,
    dsp_int8,
    four_channels,
    int16_dsp_mve,
    mve_int8,
    riscv_int8,
    runtime_weights,
    scalar_int8,
)
from emitc.kernels.mac.accumulation import WEIGHTS, output_params, requantization
from emitc.kernels.mac.operand_checks import check_convolution, onnx_convolution_window, tflite_window, window_shape
from emitc.kernels.mac.problem import MacProblem, maker
from emitc.kernels.mac.weight_packing import BLOCK
from emitc.kernels.shared import windows
from emitc.layer import Layer, Param, by_channel
from emitc.numerics.requantize import activation_clamp
from emitc.records import dataclass, replace
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class DepthwiseConv2D(Op):
    """window: strides, dilations, padding. activation: fused. zero_point_folded: the bias holds -x_zero * sum(w).
    bias_last: sums of floats in ONNX do not start with it.
    """

    window: windows.Window
    activation: str
    zero_point_folded: bool = False
    bias_last: bool = False


def from_tflite(node: SourceNode) -> Parsed:
    """The options; the multiplier follows from the channels, the file's `depth_multiplier` is known to lie."""
    window = tflite_window(node, "[1, KH, KW, C] is expected", "export again")
    activation = node.fused_activation(windows.ACTIVATIONS)
    if runtime_weights.applies(node):
        return Parsed(ComputedConv2D(window, activation, depthwise=True), (0, 1, 2))
    return Parsed(DepthwiseConv2D(window, activation, numerics=accumulation.tflite_numerics(node)), (0, 1, 2))


def from_onnx(node: SourceNode) -> Parsed:
    """Conv with a group for each input channel, weights [1, KH, KW, O]."""
    node.counts((2, 3))
    return Parsed(DepthwiseConv2D(onnx_convolution_window(node), "NONE"), (0, 1, 2))


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op = bound.op(DepthwiseConv2D)
    check_convolution(bound, op.window, folded=op.zero_point_folded, depthwise=True)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, C * multiplier]."""
    _, kernel_h, kernel_w, out_c = bound.input(WEIGHTS).shape
    return (window_shape(bound, bound.op(DepthwiseConv2D).window, (out_c, kernel_h, kernel_w)),)


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
    params, folded = windows.window_params(bound, op.window, kernel_h, kernel_w), op.zero_point_folded
    if accumulation.in_float(bound):
        filters = _as_filters(w.array()) if w.is_constant else None
        of_groups = accumulation.groups_param(x.shape[3])
        return accumulation.float_layer(
            bound, (*params, of_groups), op.activation, filters=filters, by_tap=True, bias_last=op.bias_last
        )
    weights = accumulation.weights_of(bound)
    filters = _as_filters(weights)
    spec = accumulation.spec(bound, filters)
    fast = accumulation.suits_fast(bound, weights) and spec.acc == "int32_t"
    clamp = activation_clamp(op.activation, y)
    tail = (accumulation.input_offset(bound, folded=folded), *output_params(bound, requantization(bound), clamp))
    inside = accumulation.bias_inside(bound, filters.astype(np.int64).reshape(out_c, -1), folded=folded)
    layer = Layer(
        "convolution/depthwise_conv_2d_multiplier", "portable", (0,), accumulation.tables(bound, weights, spec),
        macs=work(bound), spec=spec, by_rows=windows.BY_ROWS,
        overlaps=windows.window_overlap(bound, params, by_channel(out_c, x.shape[3], 1, x.dtype.bytes, y.dtype.bytes)),
    )  # fmt: skip
    if inside is not None and fast and x.shape[3] == 1 and op.window.dilation_w == 1:
        tables = accumulation.tables(bound, filters, spec, interleaved=True)
        return replace(
            layer,
            template="convolution/conv_2d",
            tables=(*tables, *accumulation.inside_tables(bound, inside)),
            params=params + tail,
            overlaps=windows.window_overlap(bound, params, windows.whole_window(out_c, BLOCK, y.dtype.bytes)),
        )
    if inside is not None and (fast or x.dtype is DType.INT8) and out_c == x.shape[3]:
        tables = (*layer.tables, *accumulation.inside_tables(bound, inside))
        return replace(layer, template="convolution/depthwise_conv_2d", tables=tables, params=params + tail)
    depth = Param("depth_multiplier", "int32_t", out_c // x.shape[3])
    return replace(layer, params=(*params, depth, *tail))


def _as_filters(weights: Array) -> Array:
    """Weights [1, KH, KW, O] as [O, KH, KW, 1]: those of a convolution in groups of one channel."""
    return np.ascontiguousarray(weights.transpose(3, 1, 2, 0))


@lru_cache(maxsize=1)
def _problem(bound: BoundNode) -> MacProblem:
    op = bound.op(DepthwiseConv2D)
    weights = accumulation.weights_of(bound)
    return MacProblem(bound, weights, op.activation, op.zero_point_folded, op.window, depthwise=True)


@lru_cache(maxsize=1)
def _as_convolution(bound: BoundNode) -> MacProblem:
    """That of one input channel, which is a convolution."""
    problem = _problem(bound)
    return replace(problem, filters=_as_filters(problem.filters), depthwise=False)


_windows, _channels = partial(maker, _as_convolution), partial(maker, _problem)
"""Makers of rows for one input channel and for several: what a function of emitc/kernels/mac makes of the problem."""


def _floats(bound: BoundNode, instructions: str) -> Layer | str:
    """The same of float32, four channels at a time; one input channel is a convolution."""
    fours = four_channels.float_convolution if _one_channel(bound) else four_channels.float_depthwise
    return fours(bound, lower(bound), instructions)


def _stretch_cost(bound: BoundNode, pixels: int) -> float:
    """1 where there is no such kernel."""
    return 1.0 if _integers(bound) else dsp_int8.stretch_cost(_as_convolution(bound), pixels)


def work(bound: BoundNode) -> int:
    _, kernel_h, kernel_w, _ = bound.input(WEIGHTS).shape
    return bound.output.elements * kernel_h * kernel_w


def _planes_cost(bound: BoundNode) -> float:
    return 1.0 if _integers(bound) else depthwise.planes_cost(_problem(bound))


def _one_channel(bound: BoundNode) -> bool:
    return bound.input(0).shape[3] == 1


def _cases(bound: BoundNode) -> tuple[str, ...]:
    _, *window, out_c = bound.input(WEIGHTS).shape
    if out_c == bound.input(0).shape[3]:
        return () if window == [3, 3] else (_OTHER,)
    return (_SEVERAL,) if _one_channel(bound) else (_EACH, _SEVERAL)


def _integers(bound: BoundNode) -> str:
    return "" if int16_dsp_mve.applies(bound) else dsp_int8.refusal(bound)


_SEVERAL, _EACH, _OTHER = "several filters", "several filters each", "no 3x3 window"
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
_XPULP = Costs(
    "rtl_cv32e40p_xpulp at 488ad82, 2026-11-26", Cost(mac=1.0, output=14, once=300),
    {_SEVERAL: Cost(mac=0.375, output=14, gathered=3, once=300)},
)  # fmt: skip
_LANES = Costs(
    "qemu_rv32v at 4e7c5a1, 2026-11-27", Cost(mac=1.1, output=4, once=100),
    {_SEVERAL: Cost(mac=0.25, output=1.5, gathered=3, once=300)}, factor=riscv_int8.share_of_lanes,
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
_SMALL_TILES = {
    "2px": Cost(mac=0.975, output=14, gathered=3.6, once=200),
    "2px-rowwise": Cost(mac=1.0, output=14, gathered=3.6, once=200, sums=6),
    "1px": Cost(mac=1.3, output=14, gathered=4.3, once=200),
}
_VARIANTS = (
    Variant("mve", "mve", _windows(mve_int8.convolution), _BYTE_VECTORS, applies=(dsp_int8.refusal, _ONE_CHANNEL)),
    Variant("mve", "mve", _channels(mve_int8.depthwise), _BYTE_VECTORS, applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER)),
    Variant(
        "mve", "mve", _windows(int16_dsp_mve.mve_convolution), _MORE_VECTORS, (DType.INT16,), (_INT16, _ONE_CHANNEL)
    ),
    Variant(
        "mve", "mve", _channels(depthwise.mve_multiplied), _MORE_VECTORS, _SHORTS, (_integers, _CHANNELS, _MANY_FILTERS)
    ),
    Variant(
        "mve", "mve", partial(_floats, instructions="mve"),
        Costs(
            "qemu_m55 at c0f54a6, 2026-11-23", Cost(mac=1.75, output=22, once=60),
            {_SEVERAL: Cost(mac=1.1, output=25, once=60)},
        ),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant(
        "fpu", "fpu", partial(_floats, instructions="fpu"),
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
        "dsp", "dsp", _channels(dsp_int8.depthwise),
        Costs("qemu_m4 at bed52a8 757148d, 2026-11-26", Cost(mac=2.2, output=12), {_OTHER: Cost(mac=5.2, output=10)}),
        applies=(_INT8_ZERO, _CHANNELS, _ONE_FILTER),
    ),
    Variant(
        "dsp-planes", "dsp", _channels(depthwise.dsp_planes),
        Costs("qemu_m4 at a84bffa, 2026-11-26", Cost(output=1), factor=_planes_cost),
        applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER),
    ),
    Variant(
        "dsp", "dsp", _windows(int16_dsp_mve.dsp_convolution),
        Costs("qemu_m4 at 319c32e, 2026-11-22", Cost(mac=0.9, output=16, gathered=4.1, once=200)),
        (DType.INT16,), (_INT16, _ONE_CHANNEL),
    ),
    Variant(
        "dsp", "dsp", _channels(depthwise.dsp_multiplied), _MORE_PAIRS, _SHORTS,
        (_integers, _CHANNELS, _MANY_FILTERS),
    ),
    *(
        Variant(
            f"dsp-stretch{pixels}", "dsp", _windows(dsp_int8.stretch_convolution, pixels=pixels),
            Costs("qemu_m4 at 1183ada 1b9d3c4, 2026-11-22", _PAIRS, factor=partial(_stretch_cost, pixels=pixels)),
            applies=(dsp_int8.refusal, _ONE_CHANNEL), fitted=True, yields_to="mve",
        )
        for pixels in (4, 3)
    ),
    *(
        Variant(
            f"dsp-{tile}", "dsp", _windows(dsp_int8.convolution, tile=tile), Costs(_ROW_BY_ROW, cost),
            applies=(dsp_int8.refusal, _ONE_CHANNEL),
        )
        for tile, cost in _SMALL_TILES.items()
    ),
    Variant(
        "dsp-noscratch", "dsp", _windows(dsp_int8.convolution, scratch=False),
        Costs(_ROW_BY_ROW, Cost(mac=2.2, output=14, gathered=4.4, once=200)), applies=(_INT8_ZERO, _ONE_CHANNEL),
    ),
    Variant(
        "dsp-noscratch", "dsp", _channels(dsp_int8.depthwise, scratch=False),
        Costs("qemu_m4 at bed52a8, 2026-11-22", Cost(mac=2.2, output=12.1)), applies=(_INT8_ZERO, _CHANNELS, _ONE_FILTER),
    ),
    Variant(
        "gpr31", "gpr31", _channels(scalar_int8.depthwise_columns),
        Costs("rtl_hazard3 at da8e5ec, 2026-11-26", Cost(mac=3.9, output=10)),
        applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER),
    ),
    Variant("rvv", "rvv", _windows(riscv_int8.rvv_convolution), _LANES, applies=(dsp_int8.refusal, _ONE_CHANNEL)),
    Variant(
        "rvv", "rvv", _channels(riscv_int8.rvv_depthwise), _LANES, applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER)
    ),
    Variant("xpulp", "xpulp", _windows(riscv_int8.xpulp_convolution), _XPULP, applies=(dsp_int8.refusal, _ONE_CHANNEL)),
    Variant(
        "xpulp", "xpulp", _channels(riscv_int8.xpulp_depthwise), _XPULP,
        applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER),
    ),
    Variant("swar", "swar", _windows(scalar_int8.convolution), _WORDS, applies=(dsp_int8.refusal, _ONE_CHANNEL)),
    Variant("swar", "swar", _channels(scalar_int8.depthwise), _WORDS, applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER)),
    Variant(
        "mul32", "mul32", _windows(scalar_int8.convolution, mul32=True), _MUL32, applies=(dsp_int8.refusal, _ONE_CHANNEL)
    ),
    Variant(
        "mul32", "mul32", _channels(scalar_int8.depthwise, mul32=True), _MUL32,
        applies=(dsp_int8.refusal, _CHANNELS, _ONE_FILTER),
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
        tflite={"DEPTHWISE_CONV_2D": from_tflite},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32),
        onnx={"DepthwiseConv": from_onnx},
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
