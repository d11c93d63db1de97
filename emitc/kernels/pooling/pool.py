"""AVERAGE_POOL_2D, MAX_POOL_2D and the pools of ONNX, global ones among them: one window body for all.

Shapes  x [N, H, W, C], y [N, OH, OW, C].
Types   TFLite: int8 and int16; input and output share scale and zero point; float32. ONNX: float32, int8 and
        int16, maxima also uint8; an average may change the scale, a maximum copies.
Average: TFLite: the sum of the quantized values divided by their number, half away from zero (of uint8 values, 128 higher, in
legacy models: half up); values outside the input do not count, unless `count_padding` says that they count as the zero point.
ONNX: what ONNX Runtime computes in float32, bit for bit (see _float_average): on the device an integer sum decides, and only
near a half the float32 sum is made.
Max: values outside the input do not take part.
float32 of TFLite: an average is the sum row by row, divided by the number of values inside; of the largest value a NaN is passed
over, and a window without a number gives the lowest finite value. Both are limited by the fused activation.
Source  TFLite 8-bit quantization specification; rounding as TFLite's integer reference kernels; TFLite Micro's float kernels.
ONNX Runtime's AveragePool, GlobalAveragePool, QLinearAveragePool and QLinearGlobalAveragePool: order of summation,
division and rounding found by comparing candidates with their outputs (0 differing).
Errors  dilated quantized windows that miss the input, windows whose sum can leave int32; the output Indices of MaxPool.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics
from emitc.kernels.contract import (
    KernelDef,
    Variant,
    illegal,
    out_of_proportion,
    require_dtypes,
    require_quantization,
    require_rank,
    unsupported,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER
from emitc.kernels.mac.dsp_int8 import HEADER as DSP_HEADER
from emitc.kernels.mac.mve_int8 import CHANNELS
from emitc.kernels.mac.mve_int8 import HEADER as MVE_HEADER
from emitc.kernels.pooling.pool_ops import (
    AveragePool2D,
    MaxPool2D,
    Pool2D,
    SumOrder,
    average_from_onnx,
    max_from_onnx,
    output_shapes,
    pool_from_tflite,
    pool_layer,
    pool_params,
    work,
)
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.pointwise import bound_params, bounded
from emitc.kernels.shared.sums import decision
from emitc.kernels.shared.windows import BY_ROWS, require_output, window_overlap
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Table, by_channel, integers
from emitc.numerics.requantize import Clamp, Float32, Int64, activation_clamp, requantize_float

_LOWEST = np.float32(np.finfo(np.float32).min)
_BOUNDED = KernelSpec("_bounded", x="float", y="float", clamped=True)
_TOGETHER = 4
_HEADERS = {"fpu": ("emitc_fpu_pool.h",), "mve": ("emitc_mve.h", "emitc_mve_float32.h", "emitc_mve_float_compare.h")}


@np.errstate(all="ignore")
def _largest_float(bound: BoundNode, image: Float32) -> Array:
    """Tap by tap. image: [N, H, W, C]."""
    op, y, plain = bound.op(Pool2D), bound.output, bound.node.op.numerics is Numerics.PLAIN
    largest = np.full(y.shape, _LOWEST if plain else -np.inf, np.float32)
    for _, _, met in op.window.taps(image, -np.inf, op.kernel_h, op.kernel_w):
        largest = np.where(met > largest, met, largest) if plain else np.maximum(largest, met)
    return bounded(largest, op.activation, y.dtype) if plain else largest


def _by_fours(bound: BoundNode, variant: str) -> Layer | str:
    """The portable layer of largest values, in TFLite or ONNX, for four channels at a time; or why there is none."""
    portable = lower(bound)
    if portable.template != "pooling/max_pool_2d_taps" or bound.input(0).dtype is not DType.FLOAT32:
        return f"{portable.kernel_name}{portable.spec.suffix} has a portable version only"
    channels = bound.output.shape[3]
    if channels % _TOGETHER:
        return "the number of channels is not a multiple of 4"
    if any(param.value != 1 for param in portable.params if param.name in ("dilation_h", "dilation_w")):
        return "dilated"
    # Four channels at a time are as one channel of four numbers.
    ahead = by_channel(channels // _TOGETHER, channels // _TOGETHER, 1, 4 * _TOGETHER, 4 * _TOGETHER)
    return replace(
        portable,
        template=f"pooling/max_pool_2d_float_{variant}",
        overlaps=window_overlap(bound, portable.params, ahead),
        headers=_HEADERS[variant],
        spec=replace(portable.spec, suffix="_bounded" if portable.spec.clamped else ""),
    )


_MAX_WINDOW = 1 << 23
"""Elements of a window whose int8 values sum up within int32."""
_LANES = 4
_LARGEST_COUNT = 4080
"""Means of so many bytes are exact by a reciprocal of 31 bits: 129 * count * count is below 2^31."""
_FARTHEST = 2.0**20
"""Scales up to it, and down to its inverse, keep vectors away from numbers that they take for 0."""
_LARGEST_FLOAT_COUNT = 4096
"""Values of a window whose float32 mean vectors compute, for the same reason."""
_LARGEST_SUM = 256
"""Bytes whose sum 16 bits hold."""
_LIFT = 128
"""What uint8 values are higher by than the int8 values that stand for them; it takes part in a float32 rounding."""
_EACH = (DType.FLOAT32, DType.INT8, DType.INT16)


def check(bound: BoundNode) -> None:
    """Refuses other types than the operator has, a change of scale where it copies, and windows that do not fit."""
    op, x = bound.op(Pool2D), bound.input(0)
    require_rank(bound, x, 4)
    onnx = op.numerics.float_scale
    others = (DType.UINT8, DType.INT32, DType.INT64)
    dtypes = (DType.INT8, DType.INT16) if not onnx else (*_EACH, DType.UINT8) if isinstance(op, MaxPool2D) else _EACH
    types = (DType.FLOAT32,) if op.numerics is Numerics.PLAIN else dtypes
    require_dtypes(bound, [(t, t) for t in types], [(t, t) for t in others] if onnx else [])
    plain = onnx and isinstance(op, MaxPool2D) and x.quantization is None and bound.output.quantization is None
    if x.dtype is not DType.FLOAT32 and not plain:
        _check_quantization(bound)
    require_output(bound, op.window, op.kernel_h, op.kernel_w)
    largest = _MAX_WINDOW >> (8 if x.dtype is DType.INT16 else 0)
    if op.kernel_h * op.kernel_w > largest:
        raise illegal(bound, "has a window that is too large", f"{largest} elements is the limit")
    if not op.window.covers(x.shape[1], x.shape[2], op.kernel_h, op.kernel_w):
        dilation = f"{op.window.dilation_h}x{op.window.dilation_w}"
        why = f"{op.kernel_h}x{op.kernel_w} dilated by {dilation} steps over the input"
        raise unsupported(bound, "has a window that meets no value", why, "pad in a separate operator", x)


def _check_quantization(bound: BoundNode) -> None:
    op, x, y = bound.op(Pool2D), bound.input(0), bound.output
    require_quantization(bound, x, y)
    if int16x8.applies(bound):
        int16x8.require_symmetric(bound)
    if isinstance(op, AveragePool2D) and op.numerics.float_scale:
        reach = max(x.zero_point - x.dtype.range[0], x.dtype.range[1] - x.zero_point)
        if op.kernel_h * op.kernel_w * reach >= 1 << 31:
            what = f"over {op.kernel_h * op.kernel_w} elements"
            raise unsupported(bound, what, "their sum can leave int32", "reduce in several steps", x)
        if not 2.0**-30 <= x.scale / y.scale <= 2.0**30:
            raise out_of_proportion(bound, f"{x.scale!r} in, {y.scale!r} out")
    elif abs(x.scale - y.scale) > (0 if op.numerics.float_scale else 1e-6) or x.zero_point != y.zero_point:
        raise illegal(bound, "changes scale or zero point", "input and output must share them", tensor=y)


def _sum(taps: Iterator[tuple[int, int, Int64]]) -> Int64:
    """The sum over the taps."""
    return sum((values for _, _, values in taps), np.zeros((), np.int64))


def _tap_counts(bound: BoundNode) -> Int64:
    """How many values each output is the mean of, [1, OH, OW, 1]: those inside the input, or also counted padding."""
    op, (_, height, width, _) = bound.op(AveragePool2D), bound.input(0).shape
    pad, padded = op.window.padding, op.window
    if op.count_padding:
        height += pad.top + pad.bottom - op.uncounted.bottom
        width += pad.left + pad.right - op.uncounted.right
        padded = replace(op.window, padding=op.uncounted)
    ones = np.ones((1, height, width, 1), np.int64)
    return _sum(padded.taps(ones, 0, op.kernel_h, op.kernel_w))


@np.errstate(all="ignore")
def _float_average(bound: BoundNode, image: Float32) -> Float32:
    """The average of float32 values: their sum in the order that the op names, divided by their number."""
    op = bound.op(AveragePool2D)
    count = op.kernel_h * op.kernel_w
    grouped = count - count % _LANES if op.order is SumOrder.FOURS else 0
    shares = {SumOrder.ROWS: 1, SumOrder.COLUMNS: op.kernel_w, SumOrder.FOURS: _LANES}[op.order]
    sums = np.zeros((shares, *bound.output.shape), np.float32)
    rest: list[Float32] = []
    for ky, kx, values in op.window.taps(image, 0.0, op.kernel_h, op.kernel_w):
        tap = ky * op.kernel_w + kx
        if op.order is SumOrder.FOURS and tap >= grouped:
            rest.append(values)
        else:
            sums[{SumOrder.ROWS: 0, SumOrder.COLUMNS: kx, SumOrder.FOURS: tap % _LANES}[op.order]] += values
    total = (sums[0] + sums[2]) + (sums[1] + sums[3]) if op.order is SumOrder.FOURS else sums[0]
    for part in (*rest, *(sums[1:] if op.order is SumOrder.COLUMNS else ())):
        total = total + part
    return np.asarray(total / _tap_counts(bound).astype(np.float32), np.float32)


def _onnx_average(bound: BoundNode, values: Array) -> Array:
    """The average by ONNX Runtime's arithmetic, in the output's type."""
    op, x, y = bound.op(AveragePool2D), bound.input(0), bound.output
    if x.dtype is DType.FLOAT32:
        return _float_average(bound, values.astype(np.float32))
    centred = values.astype(np.int64) - x.zero_point
    clamp = activation_clamp(op.activation, y)
    if _in_integers(op):
        acc = _sum(op.window.taps(centred, 0, op.kernel_h, op.kernel_w))
        return clamp.apply(requantize_float(acc, np.float32(_factor(bound))) + y.zero_point, y.dtype)
    mean = _float_average(bound, centred.astype(np.float32) * np.float32(x.scale))
    ratio = mean / np.float32(y.scale)
    if op.numerics is Numerics.QDQ:
        return clamp.apply(np.rint(ratio).astype(np.int64) + y.zero_point, y.dtype)
    bias = _LIFT * op.unsigned
    shifted = np.rint(ratio + np.float32(y.zero_point + bias)).astype(np.int64)
    return clamp.apply(shifted - bias, y.dtype)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap; the count of values that lie inside comes from pooling an image of ones."""
    op, x, y = bound.op(Pool2D), bound.input(0), bound.output
    assert inputs[0] is not None
    if isinstance(op, AveragePool2D) and op.numerics.float_scale:
        average = _onnx_average(bound, inputs[0])
        return (bounded(average, op.activation, y.dtype) if op.numerics is Numerics.PLAIN else average,)
    if x.dtype is DType.FLOAT32:
        return (_largest_float(bound, inputs[0].astype(np.float32)),)
    image = inputs[0].astype(np.int64)
    if isinstance(op, AveragePool2D):
        centre = x.zero_point if op.count_padding else 0
        count = _tap_counts(bound)
        total = _sum(op.window.taps(image - centre, 0, op.kernel_h, op.kernel_w)) + centre * count
        if op.numerics is Numerics.UNSIGNED:
            pooled = (total + _LIFT * count + count // 2) // count - _LIFT
        else:
            pooled = np.sign(total) * ((np.abs(total) + count // 2) // count)
    else:
        low = x.dtype.range[0]
        pooled = np.full(y.shape, low, np.int64)
        for _, _, values in op.window.taps(image, low, op.kernel_h, op.kernel_w):
            pooled = np.maximum(pooled, values)
    clamp = activation_clamp(op.activation, y) if y.quantization else Clamp(*y.dtype.range)
    return (clamp.apply(pooled, y.dtype),)


def _in_integers(op: AveragePool2D) -> bool:
    """Whether ONNX Runtime sums the quantized values themselves (QLinearGlobalAveragePool)."""
    return op.whole_image and op.numerics is Numerics.QOPERATOR


def _factor(bound: BoundNode) -> float:
    """x_scale / (y_scale * count) in float32, of a whole window."""
    op, x, y = bound.op(Pool2D), bound.input(0), bound.output
    return float(np.float32(x.scale) / (np.float32(y.scale) * np.float32(op.kernel_h * op.kernel_w)))


def _typed(bound: BoundNode) -> KernelSpec:
    """The spec of a template that serves several element types."""
    c_type = bound.input(0).dtype.c_type
    return KernelSpec(f"_{bound.input(0).dtype.value}", fixed_point=False, x=c_type, y=c_type)


def _lower_average(bound: BoundNode) -> Layer:
    """ONNX: float32, the integer sum of a whole image, or an integer mean that turns to float32 near a half."""
    op, x, y = bound.op(AveragePool2D), bound.input(0), bound.output
    pad = op.window.padding
    rows, columns = x.shape[1] + pad.bottom - op.uncounted.bottom, x.shape[2] + pad.right - op.uncounted.right
    counted = integers(
        count_padding=(int(op.count_padding), "1: values outside the input count"),
        count_h=(rows, "rows that count, from the input's first on"),
        count_w=columns,
    )
    window = pool_params(bound)
    by_rows = None if op.count_padding else BY_ROWS  # what counts of the padding lies around the whole image
    if x.dtype is DType.FLOAT32:
        return pool_layer(bound, "pooling/average_pool_2d_float", (*window, *counted), by_rows=by_rows)
    assert x.quantization and y.quantization
    clamp = activation_clamp(op.activation, y)
    ends = integers(clamp_low=clamp.low, clamp_high=clamp.high)
    offsets = integers(input_offset=(-x.zero_point, "minus the zero point"), output_offset=y.zero_point)
    if _in_integers(op):
        factor = Param("factor", "float", _factor(bound), "x_scale / (y_scale * elements of the window)")
        params = (*window, *offsets, *ends, factor)
        return pool_layer(bound, "pooling/average_pool_2d_sum", params, _typed(bound), by_rows)
    decided = decision(x.quantization, y.quantization, x.dtype, op.kernel_h * op.kernel_w)
    late = y.zero_point + _LIFT * op.unsigned if op.numerics is Numerics.QOPERATOR else 0
    arithmetic = (
        *decided.params,
        Param("order", "int32_t", op.order.value, f"of the float32 sum: {op.order.name.lower()}"),
        Param("x_scale", "float", x.scale),
        Param("y_scale", "float", y.scale),
        Param("early_offset", "float", float(late), "part of the zero point that is added before rounding"),
        Param("late_offset", "int32_t", y.zero_point - late, "part that is added after it"),
    )
    params = (*window, *counted, *offsets, *ends, *arithmetic)
    return pool_layer(bound, "pooling/average_pool_2d_even", params, _typed(bound), by_rows)


def lower(bound: BoundNode) -> Layer:
    """Channels innermost, so that a window's rows are read as they lie."""
    op, x = bound.op(Pool2D), bound.input(0)
    if op.numerics is Numerics.PLAIN:
        params = (*pool_params(bound), *bound_params(op.activation, bound.output.dtype))
        template = "average_pool_2d_float" if isinstance(op, AveragePool2D) else "max_pool_2d_taps"
        return pool_layer(bound, f"pooling/{template}", params, _BOUNDED)
    dilated = (op.window.dilation_h, op.window.dilation_w) != (1, 1)
    suited = x.dtype is DType.INT8 or int16x8.applies(bound)
    params = pool_params(bound)
    if isinstance(op, MaxPool2D) and (dilated or not suited or x.quantization is None):
        return pool_layer(bound, "pooling/max_pool_2d_taps", params, _typed(bound))
    if isinstance(op, AveragePool2D) and op.numerics.float_scale:
        return _lower_average(bound)
    clamp = activation_clamp(op.activation, bound.output)
    params += integers(clamp_low=clamp.low, clamp_high=clamp.high)
    if not isinstance(op, AveragePool2D):
        return pool_layer(bound, "pooling/max_pool_2d", params, int16x8.throughout(x.dtype))
    padding = x.zero_point if op.count_padding else 0
    params += integers(
        padding_value=(padding, "what lies outside the input"),
        count_padding=(int(op.count_padding), "1: values outside the input count"),
    )
    unsigned = op.numerics is Numerics.UNSIGNED
    spec = KernelSpec("_u8", unsigned=True) if unsigned else int16x8.throughout(x.dtype)
    return pool_layer(bound, "pooling/average_pool_2d", params, spec)


def _onnx_average_by_vectors(bound: BoundNode, portable: Layer) -> Layer | str:
    """The layer of ONNX's average of int8 for vectors; or why there is none.

    Four channels at a time take the float32 arithmetic of ONNX Runtime itself. There is no integer mean that tells first
    whether float32 rounds as it does. The sum of a whole image stays one of integers.
    """
    if bound.input(0).dtype is not DType.INT8:
        return f"{portable.kernel_name}{portable.spec.suffix} has a portable version only"
    known = {param.name: param.value for param in portable.params}
    layer = replace(portable, template=f"{portable.template}_mve", spec=PLAIN, headers=(MVE_HEADER,))
    if portable.template == "pooling/average_pool_2d_sum":
        values, comment = (float(known["factor"]),) * CHANNELS, "x_scale / (y_scale * elements of the window)"
        params = tuple(param for param in portable.params if param.name != "factor")
        return replace(layer, params=params, tables=(Table("factor", "float", values, comment),))
    scales = float(known["x_scale"]), float(known["y_scale"])
    if not 1 / _FARTHEST <= min(scales) <= max(scales) <= _FARTHEST:
        return "its scale is far from 1"
    if int(known["kernel_h"]) * int(known["kernel_w"]) > _LARGEST_FLOAT_COUNT:
        return f"a window of more than {_LARGEST_FLOAT_COUNT} values"
    left_out = ("output_offset", "clamp_low", "clamp_high", "multiplier", "right", "doubt")
    late = int(known["late_offset"])
    params = (
        *(param for param in portable.params if param.name not in left_out),
        Param("y_inverse", "float", float(np.float32(1.0) / np.float32(scales[1])), "1 / y_scale"),
        Param("lowest", "int32_t", int(known["clamp_low"]) - late, "the clamp, without what is added after rounding"),
        Param("highest", "int32_t", int(known["clamp_high"]) - late),
    )
    return replace(layer, params=params, headers=(MVE_HEADER, "emitc_mve_float32.h"))


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four channels at a time, or 16 for the largest value."""
    op, layer = bound.op(Pool2D), lower(bound)
    if bound.input(0).dtype is DType.FLOAT32:
        return _by_fours(bound, "mve")
    if layer.template in ("pooling/average_pool_2d_even", "pooling/average_pool_2d_sum"):
        return _onnx_average_by_vectors(bound, layer)
    if layer.spec != PLAIN or layer.template not in ("pooling/average_pool_2d", "pooling/max_pool_2d"):
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    if isinstance(op, AveragePool2D) and bound.output.shape[3] < 4:
        return "it has fewer than four channels"
    if op.kernel_h * op.kernel_w > _LARGEST_COUNT:
        return f"a window of more than {_LARGEST_COUNT} values"
    return replace(layer, template=f"{layer.template}_mve", headers=(MVE_HEADER,))


def lower_dsp(bound: BoundNode) -> Layer | str:
    """Four channels in a word."""
    op, layer, x, y = bound.op(Pool2D), lower(bound), bound.input(0), bound.output
    if layer.template not in ("pooling/average_pool_2d", "pooling/max_pool_2d") or x.dtype is not DType.INT8:
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    if y.shape[3] < _LANES:
        return "it has fewer than four channels"
    average = isinstance(op, AveragePool2D)
    if average and op.kernel_h * op.kernel_w > _LARGEST_SUM:
        return f"a window of more than {_LARGEST_SUM} values"
    clamped = activation_clamp(op.activation, y) != Clamp(*y.dtype.range)
    rounding = "" if not average else "up" if layer.spec.unsigned else "away"
    bottom, right = (y.shape[1] - 1) * op.window.stride_h, (y.shape[2] - 1) * op.window.stride_w
    inside = bottom + op.kernel_h <= x.shape[1] and right + op.kernel_w <= x.shape[2]
    two = (op.kernel_h, op.kernel_w) == (2, 2) and inside and not op.window.padding.any and not clamped
    window = "2x2" if two else ""
    has_tail = y.shape[3] % _LANES != 0
    named = (rounding, "clamped" if clamped else "", "uneven" if has_tail else "", window)
    suffix = "".join(f"_{name}" for name in named if name)
    spec = replace(layer.spec, suffix=suffix, rounding=rounding, clamped=clamped, has_tail=has_tail, window=window)
    return replace(layer, spec=spec, headers=(DSP_HEADER, BYTES_HEADER), larger=has_tail or not two)


_INT16 = Cost(mac=6.0)


KERNELS = (
    KernelDef(
        AveragePool2D, "2-D average pooling", _EACH, ("AVERAGE_POOL_2D",),
        partial(pool_from_tflite, AveragePool2D), check, reference, lower,
        output_shapes=output_shapes, work=work, tflite_dtypes=(*_EACH, DType.UINT8),
        onnx=("AveragePool", "GlobalAveragePool"),
        from_onnx=average_from_onnx,
        variants=(
            Variant("mve", "mve", lower_mve, Costs("qemu_m55 at 154e98f, 2026-11-22", Cost(mac=0.9, output=9.0))),
            Variant("dsp", "dsp", lower_dsp, Costs("qemu_m4 at db5d84b, 2026-11-22", Cost(mac=1.5, output=6)), template="_dsp"),
        ),
        cost=Costs("qemu_m4 at dd4c478 bb9d374, 2026-11-21", Cost(mac=5.57), {"int16": _INT16}),
        cost_with_vectors=Costs(
            "qemu_m55 at dd4c478 bb9d374, 2026-11-21", Cost(mac=5.2, output=0.2), {"int16": _INT16}
        ),
    ),
    KernelDef(
        MaxPool2D, "2-D maximum pooling", _EACH, ("MAX_POOL_2D",),
        partial(pool_from_tflite, MaxPool2D), check, reference, lower,
        output_shapes=output_shapes,
        work=work, tflite_dtypes=(*_EACH, DType.UINT8), onnx=("MaxPool", "GlobalMaxPool"), from_onnx=max_from_onnx,
        moves=True,
        variants=(
            Variant(
                "mve", "mve", lower_mve,
                Costs(
                    "qemu_m55 at bed52a8 8295c6a, 2026-11-23", Cost(mac=0.6, output=1.0), {"float32": Cost(mac=2.3, output=16)}
                ),
                (DType.INT8, DType.FLOAT32),
            ),
            Variant("dsp", "dsp", lower_dsp, Costs("qemu_m4 at db5d84b, 2026-11-22", Cost(mac=1.5, output=1)), template="_dsp"),
            Variant(
                "fpu", "fpu", partial(_by_fours, variant="fpu"),
                Costs("qemu_m4 at 8295c6a, 2026-11-23", Cost(mac=5.4, output=20)), (DType.FLOAT32,),
            ),
        ),
        cost=Costs(
            "qemu_m4 at dd4c478 bb9d374 8295c6a, 2026-11-23", Cost(mac=5.57),
            {"int16": _INT16, "float32": Cost(mac=10.0, output=35)},
        ),
        cost_with_vectors=Costs(
            "qemu_m55 at dd4c478 bb9d374 8295c6a, 2026-11-23", Cost(mac=5.57),
            {"int16": _INT16, "float32": Cost(mac=8.1, output=36)},
        ),
    ),
)  # fmt: skip
