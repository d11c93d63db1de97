"""CONV_2D: y = requantize(sum over window and channels of (x - x_zero) * w + b); DEPTHWISE_CONV_2D with computed weights.

Shapes  x [N, H, W, I], w [O, KH, KW, I / groups] OHWI, b [O] or none, y [N, OH, OW, O]. Depthwise: w [1, KH, KW, O].
Types   int8, b and accumulator int32; x and y int16, b int64 or int32 (int16x8.py). ONNX: also int16 inputs and outputs.
        float32, where w and b may be computed; in TFLite the bias is added last and the sum limited by the activation.
        ComputedConv2D: int8 weights or a bias that are computed, of TFLite alone; of depthwise ones b is not int32 with int16.
Errors  weight zero point other than 0; an accumulator that can overflow int32, of computed weights for some weights.
Source  TFLite 8-bit quantization specification, CONV_2D; groups as I / (weight channels). TFLite Micro's kernels do not mind
        where their weights come from.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from emitc.ir import Array, BoundNode, DType, Shape, Tensor
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_rank, requires
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import (
    accumulation,
    dsp_int8,
    four_channels,
    int16_dsp_mve,
    mve_int8,
    operand_checks,
    riscv_int8,
    runtime_weights,
    scalar_int8,
    winograd,
)
from emitc.kernels.mac.accumulation import WEIGHTS, Accumulating, int32_sums, output_params, requantization
from emitc.kernels.mac.problem import MacProblem, maker
from emitc.kernels.mac.weight_packing import BLOCK
from emitc.kernels.shared import windows
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer, Param, by_channel
from emitc.numerics.requantize import activation_clamp
from emitc.records import dataclass, replace
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class ComputedConv2D(Accumulating):
    """window: strides, dilations, padding. activation: fused. depthwise: each input channel has filters of its own."""

    window: windows.Window
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


def _check_computed(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op = bound.op(ComputedConv2D)
    require_rank(bound, bound.input(0), 4)
    require_rank(bound, bound.input(WEIGHTS), 4)
    operand_checks.check_operands(bound, 3 if op.depthwise else 0, short_bias=not op.depthwise, computed=True)
    operand_checks.require_fitting_channels(bound, depthwise=op.depthwise)
    _, kernel_h, kernel_w, _ = _filters(bound)
    windows.require_output(bound, op.window, kernel_h, kernel_w)
    runtime_weights.check_sums(bound, _depth(bound))


def _computed_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """That of CONV_2D, depthwise with a group for each input channel."""
    op, x = bound.op(ComputedConv2D), bound.input(0)
    image = operand(bound, inputs, 0).astype(np.int64) - x.zero_point
    weights = operand(bound, inputs, WEIGHTS).astype(np.int64)
    filters = weights.transpose(3, 1, 2, 0) if op.depthwise else weights
    products = accumulation.convolved(op.window, image, filters, np.zeros(bound.output.shape, np.int64))
    return (accumulation.result(bound, runtime_weights.with_bias(bound, inputs, products), op.activation),)


def _lower_computed(bound: BoundNode) -> Layer:
    """Tap by tap, the weights as they lie."""
    op, x, y = bound.op(ComputedConv2D), bound.input(0), bound.output
    out_c, kernel_h, kernel_w, in_c = _filters(bound)
    groups = x.shape[3] // in_c
    window = windows.window_params(bound, op.window, kernel_h, kernel_w)
    template, split = "convolution/conv_2d_taps", accumulation.groups_param(groups)
    if op.depthwise:
        template = "convolution/depthwise_conv_2d_multiplier"
        split = Param("depth_multiplier", "int32_t", out_c // groups)
    params = (*window, split, accumulation.input_offset(bound, folded=False))
    layer = runtime_weights.runtime_layer(bound, template, params, activation=op.activation, depth=_depth(bound))
    ahead = by_channel(out_c, groups, in_c, x.dtype.bytes, y.dtype.bytes)
    return replace(layer, overlaps=windows.window_overlap(bound, window, ahead))


_Lower = Callable[[BoundNode], Layer | str]


@dataclass(frozen=True, slots=True)
class Conv2D(Accumulating):
    """window: strides, dilations, padding. activation: fused. zero_point_folded: the bias holds -x_zero * sum(w).
    bias_last: sums of floats in ONNX do not start with it.
    """

    window: windows.Window
    activation: str
    zero_point_folded: bool = False
    bias_last: bool = False


def from_tflite(node: SourceNode) -> Parsed:
    """CONV_2D's options; the kernel size is the weights'."""
    window = operand_checks.tflite_window(node, "OHWI is expected")
    activation = node.fused_activation(windows.ACTIVATIONS)
    if runtime_weights.applies(node):
        return Parsed(ComputedConv2D(window, activation, int32_sums=int32_sums(node)), (0, 1, 2))
    numerics = accumulation.tflite_numerics(node)
    return Parsed(Conv2D(window, activation, int32_sums=int32_sums(node), numerics=numerics), (0, 1, 2))


def from_onnx(node: SourceNode) -> Parsed:
    """Conv on NHWC; the kernel size is the weights', and an attribute that says otherwise is refused."""
    node.counts((2, 3))
    return Parsed(Conv2D(operand_checks.onnx_convolution_window(node), "NONE"), (0, 1, 2))


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op = bound.op(Conv2D)
    operand_checks.check_convolution(bound, op.window, folded=op.zero_point_folded)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]."""
    return (operand_checks.window_shape(bound, bound.op(Conv2D).window, bound.input(WEIGHTS).shape),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap: a matrix product of each tap's input slice with its weights, in int64."""
    op = bound.op(Conv2D)
    image, weights, acc = accumulation.operands(bound, inputs, folded=op.zero_point_folded)
    return (accumulation.result(bound, accumulation.convolved(op.window, image, weights, acc), op.activation),)


def lower(bound: BoundNode) -> Layer:
    """A matrix product per pixel for 1x1 windows; runs of contiguous input for the usual case; taps for the rest."""
    op, x, w, y = bound.op(Conv2D), bound.input(0), bound.input(WEIGHTS), bound.output
    out_c, kernel_h, kernel_w, in_c = w.shape
    groups, window, folded = x.shape[3] // in_c, op.window, op.zero_point_folded
    params, of_groups = windows.window_params(bound, window, kernel_h, kernel_w), accumulation.groups_param(groups)
    if accumulation.in_float(bound):
        return accumulation.float_layer(bound, (*params, of_groups), op.activation, bias_last=op.bias_last)
    clamp = activation_clamp(op.activation, y)
    if (kernel_h, kernel_w, window.stride_h, window.stride_w, groups) == (1, 1, 1, 1, 1) and not window.padding.any:
        return accumulation.matrix_product(bound, clamp, folded=folded)
    weights = accumulation.weights_of(bound)
    spec = accumulation.spec(bound, weights)
    tail = (accumulation.input_offset(bound, folded=folded), *output_params(bound, requantization(bound), clamp))
    inside = accumulation.bias_inside(bound, weights.astype(np.int64).reshape(out_c, -1), folded=folded)
    in_runs = groups == 1 and window.dilation_w == 1 and inside is not None
    if in_runs and (blocks := accumulation.block_tables(bound, weights, spec, inside)) is not None:
        template, (tables, spec), own = "convolution/conv_2d", blocks, (*params, *tail)
        ahead = windows.whole_window(out_c, BLOCK, y.dtype.bytes)
    else:
        template, own = "convolution/conv_2d_taps", (*params, of_groups, *tail)
        tables = accumulation.tables(bound, weights, spec)
        ahead = by_channel(out_c, groups, in_c, x.dtype.bytes, y.dtype.bytes)
    overlaps = windows.window_overlap(bound, params, ahead)
    return Layer(template, "portable", (0,), tables, own, (), overlaps, work(bound), spec, by_rows=windows.BY_ROWS)


@lru_cache(maxsize=1)
def _problem(bound: BoundNode) -> MacProblem:
    op = bound.op(Conv2D)
    return MacProblem(bound, accumulation.weights_of(bound), op.activation, op.zero_point_folded, op.window)


def _integers(make: Callable[..., Layer], **form: Any) -> Callable[[BoundNode], Layer | str]:
    """The maker of a row: what a function of emitc/kernels/mac makes of the convolution. form: its further arguments."""
    return _by_columns(maker(_problem, make, **form))


def _floats(instructions: str) -> Callable[[BoundNode], Layer | str]:
    """The same of float32, four channels at a time."""
    return _by_columns(lambda bound: four_channels.float_convolution(bound, lower(bound), instructions))


def _stretch_cost(bound: BoundNode, pixels: int) -> float:
    """1 where there is no such kernel."""
    return 1.0 if dsp_int8.refusal(bound) else dsp_int8.stretch_cost(_problem(bound), pixels)


def work(bound: BoundNode) -> int:
    _, kernel_h, kernel_w, in_c = bound.input(WEIGHTS).shape
    return bound.output.elements * kernel_h * kernel_w * in_c


def _upright(bound: BoundNode) -> BoundNode:
    """A convolution over a single row that is dilated along it, as one over a column, whose values lie in the same places.

    So do the weights; and kernels have dilation down the columns.
    """
    op, x, w, y = bound.op(Conv2D), bound.input(0), bound.input(WEIGHTS), bound.output
    window = op.window
    flat = x.shape[1] == w.shape[1] == y.shape[1] == 1 and not window.padding.top and not window.padding.bottom
    if not flat or window.dilation_w == 1:
        return bound
    padding = windows.Padding(top=window.padding.left, bottom=window.padding.right)
    column = windows.Window(window.stride_w, 1, padding, dilation_h=window.dilation_w)
    inputs = (_turned(x), _turned(w), *bound.inputs[2:])
    return BoundNode(replace(bound.node, op=replace(op, window=column)), inputs, (_turned(y),))


def _turned(tensor: Tensor) -> Tensor:
    """A tensor of one row, with its columns as rows."""
    outer, rows, columns, inner = tensor.shape
    return replace(tensor, shape=(outer, columns, rows, inner))


def _by_columns(lowered: _Lower) -> _Lower:
    """The lowering of what `_upright` gives. Where that is another shape, its rows are not those of the graph."""

    def lower_upright(bound: BoundNode) -> Layer | str:
        upright = _upright(bound)
        layer = lowered(upright)
        return layer if upright is bound or isinstance(layer, str) else replace(layer, by_rows=None)

    return lower_upright


def _lower_any(bound: BoundNode) -> Layer:
    layer = _by_columns(lower)(bound)
    assert isinstance(layer, Layer)
    return layer


_ONE_GROUP = requires(
    lambda bound: bound.input(0).shape[3] == bound.input(WEIGHTS).shape[3], "its channels are in groups", "one group"
)
_INT8 = (_ONE_GROUP, dsp_int8.refusal)
_INT8_ZERO = (_ONE_GROUP, partial(dsp_int8.refusal, zero=True))
"""With weights that have one zero point, too."""
_INT16 = (_ONE_GROUP, requires(int16_dsp_mve.applies, "its values are not int16"))
_FLOAT = (_ONE_GROUP, requires(accumulation.in_float, "its values are integers"))
_JOINED, _M55 = "qemu_m4 at 02e8a07, 2026-11-26", "qemu_m55 at bed52a8, 2026-11-22"
_PAIRS = Cost(mac=0.905, output=12, gathered=3, once=200)
_WORDS = Cost(mac=1.6, output=16, gathered=2.5, once=300)
_WINOGRAD = "qemu_m4 at 39cbcab, 2026-11-26"
_WINOGRAD_RV32 = "qemu_rv32 at bfe2f89, 2026-11-27"
_TRANSFORMS = Cost(output=21, gathered=2.0, once=300)
"""Of Winograd's filtering: its instructions less 15 %, since it loads less in them than the other kernels."""
_SCALAR_TRANSFORMS = Cost(output=25, gathered=2.6, once=300)
"""The same of cores with 31 registers: 0.69 of its instructions, as the cost of `gpr31` is 0.69 of those of that kernel."""
_SMALL_TILES = {
    "2px": Cost(mac=0.94, output=17, gathered=3, once=200),
    "2px-rowwise": Cost(mac=0.96, output=17, gathered=3, once=200, sums=6),
    "1px": Cost(mac=0.99, output=22, gathered=3, once=200),
}
_VARIANTS = (
    Variant(
        "mve", "mve", _integers(mve_int8.convolution),
        Costs(_M55, Cost(mac=0.1, output=9, gathered=0.65, once=200), {"1x1": Cost(mac=0.107, output=4.6, once=440)}),
        applies=_INT8,
    ),
    Variant(
        "mve", "mve", _integers(int16_dsp_mve.mve_convolution),
        Costs("qemu_m55 at 0a67a04, 2026-11-22", Cost(mac=0.35, output=16, gathered=0.5, once=200)),
        (DType.INT16,), _INT16,
    ),
    Variant(
        "mve", "mve", _floats("mve"), Costs("qemu_m55 at e76b974, 2026-11-23", Cost(mac=1.15, output=15, once=100)),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant(
        "fpu", "fpu", _floats("fpu"), Costs("qemu_m4 at e76b974, 2026-11-23", Cost(mac=2.5, output=25, once=100)),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant("dsp", "dsp", _integers(dsp_int8.convolution), Costs(_JOINED, _PAIRS), applies=_INT8_ZERO),
    Variant(
        "dsp", "dsp", _integers(int16_dsp_mve.dsp_convolution),
        Costs("qemu_m4 at 0a67a04, 2026-11-22", Cost(mac=0.9, output=16, gathered=1.5, once=200)),
        (DType.INT16,), _INT16,
    ),
    *(
        Variant(
            f"dsp-stretch{pixels}", "dsp", _integers(dsp_int8.stretch_convolution, pixels=pixels),
            Costs(_JOINED, _PAIRS, factor=partial(_stretch_cost, pixels=pixels)),
            applies=_INT8, fitted=True, yields_to="mve",
        )
        for pixels in (4, 3)
    ),
    *(
        Variant(
            name, "dsp", _integers(winograd.convolution, run_time=run_time),
            Costs(_WINOGRAD, replace(_TRANSFORMS, mac=mac), factor=partial(winograd.computed_share, run_time=run_time)),
            applies=_INT8, spare=True,
        )
        for name, run_time, mac in (("dsp-winograd", False, 0.4), ("dsp-winograd-scratch", True, 0.59))
    ),
    *(
        Variant(
            f"dsp-{tile}", "dsp", _integers(dsp_int8.convolution, tile=tile),
            Costs(_JOINED, cost), applies=_INT8,
        )
        for tile, cost in _SMALL_TILES.items()
    ),
    Variant(
        "dsp-noscratch", "dsp", _integers(dsp_int8.convolution, scratch=False),
        Costs(
            "qemu_m4 at bed52a8 97efdbb, 2026-11-22", Cost(mac=1.445, output=14, once=200, sums=12),
            {"1x1": Cost(mac=1.45, output=12, once=200)},
        ),
        applies=_INT8_ZERO,
    ),
    Variant(
        "xpulp", "xpulp", _integers(riscv_int8.xpulp_convolution),
        Costs(
            "rtl_cv32e40p_xpulp at 488ad82, 2026-11-26", Cost(mac=0.375, output=14, gathered=2, once=300),
            {"1x1": Cost(mac=0.375, output=14, once=300)},
        ),
        applies=_INT8,
    ),
    Variant(
        "rvv", "rvv", _integers(riscv_int8.rvv_convolution),
        Costs(
            "qemu_rv32v at 4e7c5a1, 2026-11-27", Cost(mac=0.25, output=1.5, gathered=2, once=300),
            {"1x1": Cost(mac=0.25, output=1.5, once=300)}, factor=riscv_int8.share_of_lanes,
        ),
        applies=_INT8,
    ),
    Variant(
        "gpr31", "gpr31", _integers(scalar_int8.convolution, fours=True),
        Costs("qemu_rv32 at 2296c56, 2026-11-26", replace(_WORDS, mac=0.85 * _WORDS.mac)), applies=_INT8,
    ),
    *(
        Variant(
            name, "gpr31", _integers(winograd.scalar_convolution, lean=lean),
            Costs(
                _WINOGRAD_RV32, replace(_SCALAR_TRANSFORMS, mac=mac), factor=partial(winograd.scalar_computed_share, lean=lean)
            ),
            applies=_INT8, spare=True,
        )
        for name, lean, mac in (("gpr31-winograd", False, 0.89), ("gpr31-winograd-lean", True, 0.91))
    ),
    Variant(
        "swar", "swar", _integers(scalar_int8.convolution), Costs("qemu_m3 at bed52a8, 2026-11-22", _WORDS),
        applies=_INT8,
    ),
    Variant(
        "mul32", "mul32", _integers(scalar_int8.convolution, mul32=True),
        Costs("qemu_m0 at bed52a8, 2026-11-22", replace(_WORDS, output=0.9 * _WORDS.output)), applies=_INT8,
    ),
)  # fmt: skip


def _cases(bound: BoundNode) -> tuple[str, ...]:
    """Windows of one pixel are matrix products."""
    return ("1x1",) if bound.input(WEIGHTS).shape[1:3] == (1, 1) else ()


_INT16_AND_FLOAT = {
    "int16": Cost(mac=2.15, output=68.2),
    "1x1 int16": Cost(mac=2.4, output=37),
    "float32": Cost(mac=5.2, output=14),
}


KERNELS = (
    KernelDef(
        ComputedConv2D,
        "2-D convolution with computed weights",
        (DType.INT8, DType.INT16),
        tflite={"ComputedConv2D": runtime_weights.never},
        check=_check_computed,
        reference=_computed_reference,
        lower=_lower_computed,
        output_shapes=lambda bound: (
            operand_checks.window_shape(bound, bound.op(ComputedConv2D).window, _filters(bound)),
        ),
        work=lambda bound: bound.output.elements * _depth(bound),
    ),
    KernelDef(
        Conv2D,
        "2-D convolution, grouped or dilated",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        tflite={"CONV_2D": from_tflite},
        check=check,
        reference=reference,
        lower=_lower_any,
        output_shapes=output_shapes,
        work=work,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32),
        onnx={"Conv": from_onnx},
        packed_input=WEIGHTS,
        variants=_VARIANTS,
        cost=Costs(
            "qemu_m4 at dd4c478 bb9d374 c0f54a6, 2026-11-23",
            Cost(mac=2.344, output=70.2),
            {"1x1": Cost(mac=2.462, output=35.2, once=1440), **_INT16_AND_FLOAT},
        ),
        cost_with_vectors=Costs(
            "qemu_m55 at dd4c478 bb9d374 c0f54a6, 2026-11-23",
            Cost(mac=2.31, output=62.4),
            {"1x1": Cost(mac=2.395, output=38.6, once=970), **_INT16_AND_FLOAT},
        ),
        cases=_cases,
    ),
)
