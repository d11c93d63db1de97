"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of float32 values with int8 weights: products are summed in integers.

Such hybrid models come from dynamic range quantization. Values are quantized while running, image by image. There are two
operators: HybridConv2D quantizes symmetrically, HybridOffsetConv2D with a zero point.

Shapes  as of the three operators; a fully connected layer is a 1x1 convolution of one image per row, a depthwise one has a
        group for each input channel. HybridConv2D is not depthwise and has no groups.
Types   x, b and y float32, w int8 without zero points. round takes halves away from zero.
        HybridConv2D, w with one scale: q = round(x * (127 / r)) in [-127, 127], r the largest magnitude in the image, all of
        it in float32; y = clamp(float32(sum of q * w) * ((r / 127) * s_w) + b). (Where it has vectors, LiteRT adds a half and
        cuts off. So 1/2 - 2**-25 becomes 1 there, and 0 in the last values of an image. That number aside all bits are equal.)
        HybridOffsetConv2D, w with one scale per output channel (FULLY_CONNECTED: or one): low <= 0 and high >= 0 are the ends
        of an image's values, and s = float32(high - low) / 255. z is -128 - low / s or 127 - high / s, whichever has the
        smaller magnitudes in it, rounded and limited to int8; all in double. q = z + round(x * (1 / float32(s))) in [-128,
        127], in float32. y = clamp(r + b): r is float32(sum of (q - z) * w) times (s * s_w), in CONV_2D times s_w and then
        times s. An image of zeros stays zeros.
Errors  computed weights or bias; of HybridConv2D groups and a scale per channel; sums that can leave int32.
Source  LiteRT's reference kernels, by their results; TFLite Micro has no hybrid layers.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    require_dtypes,
    require_one_scale,
    require_rank,
    unsupported,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, convolved, pixel_params
from emitc.kernels.mac.operand_checks import require_constants, require_weight_rank, rows_shape, window_shape
from emitc.kernels.mac.problem import DILATED
from emitc.kernels.mac.weight_packing import shape_text
from emitc.kernels.shared import windows
from emitc.kernels.shared.pointwise import bound_params, bounded, half_away
from emitc.layer import Layer, Param, Scratch, Table, integers
from emitc.numerics.requantize import INT32_MAX, Float32
from emitc.records import dataclass
from emitc.source import SourceNode

_LARGEST = 127
_LOW, _HIGH = -128, 127
_FURTHEST = 256
"""More steps than lie between any two values; what is not finite is limited to it."""
_Quantized = tuple[NDArray[np.int64], np.float32]


@dataclass(frozen=True, slots=True)
class _Hybrid(Op):
    """window: strides, dilations, padding; none of a fully connected layer. activation: fused. keep_dims: as in FULLY_CONNECTED.

    depthwise: weights are [1, KH, KW, O].
    """

    window: windows.Window | None
    activation: str
    keep_dims: bool = False
    depthwise: bool = False

    @property
    def window_or_pixel(self) -> windows.Window:
        """The window; a fully connected layer's is one pixel."""
        return self.window if self.window is not None else windows.Window(1, 1, windows.Padding())

    @property
    def joint(self) -> bool:
        """Whether the two scales are multiplied first."""
        return self.window is None or self.depthwise


@dataclass(frozen=True, slots=True)
class HybridConv2D(_Hybrid):
    """Values are quantized symmetrically."""

    @property
    def joint(self) -> bool:
        """The two scales are multiplied first."""
        return True


@dataclass(frozen=True, slots=True)
class HybridOffsetConv2D(_Hybrid):
    """Values are quantized with a zero point."""


def _parsed(node: SourceNode, kind: type[_Hybrid]) -> Parsed:
    node.counts((2, 3))
    rank = 2 if node.op_type == "FULLY_CONNECTED" else 4
    _, *kernel = require_weight_rank(node, rank, f"{rank} dimensions are expected")
    activation = node.fused_activation(windows.ACTIVATIONS)
    if node.op_type == "FULLY_CONNECTED":
        node.text("weights_format", ("DEFAULT",))
        op = kind(None, activation, bool(node.attribute("keep_num_dims", False)))
    else:
        window = windows.window_of(node, *windows.image_size(node), kernel[0], kernel[1], dilated=True)
        op = kind(window, activation, depthwise=node.op_type == "DEPTHWISE_CONV_2D")
    return Parsed(op, (0, 1, 2))


def _filters(bound: BoundNode) -> Array:
    """The weights as [O, KH, KW, channels of a group]."""
    w = bound.input(WEIGHTS).array()
    if bound.op(_Hybrid).depthwise:
        return np.ascontiguousarray(w.transpose(3, 1, 2, 0))
    return w if w.ndim == 4 else w.reshape(w.shape[0], 1, 1, w.shape[1])


def _channels(bound: BoundNode) -> tuple[int, int]:
    """Dimension of the weights' output channels, and how many there are."""
    axis = 3 if bound.op(_Hybrid).depthwise else 0
    return axis, bound.input(WEIGHTS).shape[axis]


def _check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op, x, w, bias = bound.op(_Hybrid), bound.input(0), bound.input(WEIGHTS), bound.optional(BIAS)
    _, out = _channels(bound)
    require_dtypes(bound, [(DType.FLOAT32, DType.INT8, *(DType.FLOAT32,) * (2 if bias else 1))])
    require_constants(bound)
    if min(w.shape) < 1 or (bias is not None and bias.shape != (out,)):
        raise illegal(bound, "has operands that do not fit", f"weights {list(w.shape)}", tensor=w)
    depth = w.shape[1]
    if op.window is None and (x.elements % depth or (op.keep_dims and x.shape[-1:] != (depth,))):
        raise illegal(bound, "has an input that does not fit its weights", f"rows of {depth}", tensor=x)
    (_check_one_scale if isinstance(op, HybridConv2D) else _check_channel_scales)(bound)
    if op.window is not None:
        require_rank(bound, x, 4)
        (_check_no_groups if isinstance(op, HybridConv2D) else _check_groups)(bound)
        windows.require_output(bound, op.window, w.shape[1], w.shape[2])
    largest = _LARGEST if isinstance(op, HybridConv2D) else _HIGH - _LOW
    worst = int(np.abs(_filters(bound).astype(np.int64).reshape(out, -1)).sum(axis=1).max()) * largest
    if worst > INT32_MAX:
        raise illegal(bound, "can overflow an accumulator of 32 bits", f"it can reach {worst}", "use smaller layers", w)


def _check_one_scale(bound: BoundNode) -> None:
    w = bound.input(WEIGHTS)
    if w.quantization is not None and not w.quantization.per_tensor:
        what = f"of float32 with {len(w.quantization.scales)} weight scales is not supported"
        hint = "quantize the model fully, or with one scale for a layer's weights"
        raise unsupported(bound, what, "there is code for one", hint, w)
    require_one_scale(bound, w)
    if w.zero_point:
        raise illegal(bound, "has weights with a zero point", "int8 weights are symmetric", "quantize them again", w)


def _check_channel_scales(bound: BoundNode) -> None:
    w, (axis, out) = bound.input(WEIGHTS), _channels(bound)
    q, counts = w.quantization, (1, out) if bound.op(_Hybrid).window is None else (out,)
    if q is None or any(q.zero_points) or len(q.scales) not in counts:
        what = f"has {0 if q is None else len(q.scales)} weight scales for {out} channels"
        raise illegal(bound, what, "and int8 weights have no zero points", "quantize them again", w)
    if len(q.scales) > 1 and q.axis != axis:
        what = f"has weight scales along dimension {q.axis}"
        raise illegal(bound, what, f"{axis} is expected", "quantize them again", w)


def _check_no_groups(bound: BoundNode) -> None:
    x, w = bound.input(0), bound.input(WEIGHTS)
    if x.shape[3] != w.shape[3]:
        report = unsupported if x.shape[3] % w.shape[3] == 0 else illegal
        what = "of float32 with int8 weights in groups is not supported"
        raise report(bound, what, f"input {x.shape[3]} channels, weights {w.shape[3]}", "quantize the model fully", w)


def _check_groups(bound: BoundNode) -> None:
    x, w, (_, out) = bound.input(0), bound.input(WEIGHTS), _channels(bound)
    groups = x.shape[3] // w.shape[3]
    fits = groups > 0 and x.shape[3] == groups * w.shape[3] and out % groups == 0
    if bound.op(_Hybrid).depthwise:
        fits = w.shape[0] == 1 and x.shape[3] > 0 and out % x.shape[3] == 0
    if not fits:
        raise illegal(bound, "has channels that do not fit", f"input {x.shape[3]}, weights {list(w.shape)}", tensor=w)


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]; [rows, O], or [..., O] with keep_num_dims."""
    op, (_, kernel_h, *rest) = bound.op(_Hybrid), bound.input(WEIGHTS).shape
    if op.window is None:
        return (rows_shape(bound, keep_dims=op.keep_dims),)
    return (window_shape(bound, op.window, (_channels(bound)[1], kernel_h, rest[0])),)


def _quantized(image: Float32) -> _Quantized:
    """The values of one image in integers, and their scale."""
    reach = np.float32(np.abs(image).max())
    if not reach > 0:
        return np.zeros(image.shape, np.int64), np.float32(1)
    with np.errstate(all="ignore"):
        limited = np.nan_to_num(np.clip(image * (np.float32(_LARGEST) / reach), -_LARGEST, _LARGEST))
    return half_away(limited).astype(np.int64), reach / np.float32(_LARGEST)


def _quantized_with_offset(image: Float32) -> _Quantized:
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
    return np.clip(half_away(limited).astype(np.int64) + zero, _LOW, _HIGH) - zero, step


def _reference(
    bound: BoundNode, inputs: Sequence[Array | None], quantized: Callable[[Float32], _Quantized]
) -> tuple[Array, ...]:
    """Integer sums tap by tap, then float32."""
    op, w, bias = bound.op(_Hybrid), bound.input(WEIGHTS), bound.optional(BIAS)
    assert inputs[0] is not None and w.quantization
    filters, x = _filters(bound).astype(np.int64), inputs[0].astype(np.float32)
    images = x if op.window is not None else x.reshape(-1, 1, 1, filters.shape[3])
    pairs = [quantized(image) for image in images]
    values = np.stack([value for value, _ in pairs])
    step = np.array([scale for _, scale in pairs], np.float32).reshape(-1, 1, 1, 1)
    size = op.window_or_pixel.output(*values.shape[1:3], *filters.shape[1:3])
    acc = convolved(op.window_or_pixel, values, filters, np.zeros((len(values), *size, len(filters)), np.int64))
    scales = np.array(w.quantization.scales, np.float32)
    added = np.zeros(1, np.float32) if bias is None else bias.array().astype(np.float32)
    with np.errstate(all="ignore"):
        wide = acc.astype(np.float32)
        scaled: Float32 = wide * (scales * step) if op.joint else wide * scales * step
        real = scaled + added
    return (bounded(real.reshape(bound.output.shape), op.activation, DType.FLOAT32),)


def _window_and_image(bound: BoundNode) -> tuple[tuple[Param, ...], int]:
    """The window's parameters, and the values of one image, in elements."""
    op, x, w = bound.op(_Hybrid), bound.input(0), bound.input(WEIGHTS)
    if op.window is not None:
        return windows.window_params(bound, op.window, w.shape[1], w.shape[2]), x.elements // x.shape[0]
    out, depth = w.shape
    return pixel_params(x.elements // depth, depth, out), depth


def _lower(bound: BoundNode) -> Layer:
    """Image by image: what quantizes the values, quantized values in scratch, then the sums."""
    op, w, bias, filters = bound.op(_Hybrid), bound.input(WEIGHTS), bound.optional(BIAS), _filters(bound)
    window, image = _window_and_image(bound)
    out, _, _, inside = filters.shape
    assert w.quantization
    values = tuple(filters.reshape(-1).tolist())
    weights = Table("weights", "int8_t", values, shape_text(filters.shape), pixels_per_load=0)
    biases = (0.0,) * out if bias is None else tuple(bias.array().tolist())
    bias_table = Table("bias", "float", biases, "bias per output channel")
    template = "hybrid_conv_2d"
    tables: tuple[Table, ...] = (weights, bias_table)
    if isinstance(op, HybridConv2D):
        own: tuple[Param, ...] = (Param("weight_scale", "float", w.scale),)
    else:
        groups = 1 if op.window is None else bound.input(0).shape[3] // inside
        own = integers(
            group_in=inside, group_out=out // groups, joint=(int(op.joint), "whether both scales are multiplied first")
        )
        scales = w.quantization.scales if len(w.quantization.scales) == out else w.quantization.scales * out
        scale_table = Table("scales", "float", tuple(scales), "weight scale per output channel")
        template, tables = "hybrid_offset_conv_2d", (weights, scale_table, bias_table)
    return Layer(
        f"convolution/hybrid/{template}", "portable", (0,), tables,
        (*window, *own, *bound_params(op.activation, DType.FLOAT32)), scratch=(Scratch("values", image),), macs=_work(bound),
    )  # fmt: skip


def _in_runs(bound: BoundNode) -> Layer | str:
    """The same for all taps of a row of the window at a time."""
    return _lower(bound) if bound.op(_Hybrid).window_or_pixel.dilation_w == 1 else DILATED


def _work(bound: BoundNode) -> int:
    return bound.output.elements * (bound.input(WEIGHTS).elements // _channels(bound)[1])


KERNELS = (
    KernelDef(
        HybridConv2D,
        "convolution or matrix product of float32 with int8 weights",
        (DType.FLOAT32,),
        tflite={"HybridConv2D": partial(_parsed, kind=HybridConv2D)},
        check=_check,
        reference=partial(_reference, quantized=_quantized),
        lower=_lower,
        output_shapes=_output_shapes,
        work=_work,
        variants=(
            Variant(
                "mve", "mve", _in_runs, Costs("qemu_m55 at d5ec394, 2026-11-23", Cost(mac=0.5, output=60)),
                (DType.FLOAT32,), template="_mve", headers=("emitc_mve.h", "emitc_mve_dot_int8.h"),
            ),
            Variant(
                "dsp", "dsp", _in_runs, Costs("qemu_m4 at d5ec394, 2026-11-23", Cost(mac=3.0, output=80)),
                (DType.FLOAT32,), template="_dsp", headers=("emitc_dsp.h",),
            ),
        ),
    ),
    KernelDef(
        HybridOffsetConv2D,
        "convolution or matrix product of float32 with int8 weights, scales per channel",
        (DType.FLOAT32,),
        tflite={"HybridOffsetConv2D": partial(_parsed, kind=HybridOffsetConv2D)},
        check=_check,
        reference=partial(_reference, quantized=_quantized_with_offset),
        lower=_lower,
        output_shapes=_output_shapes,
        work=_work,
    ),
)  # fmt: skip
