"""TRANSPOSE_CONV, and ConvTranspose of ONNX: every input value, times the filter, is added to the output where a
convolution would read from.

Shapes  x [N, H, W, I], w [I, KH, KW, O / groups], in TFLite [O, KH, KW, I], b [O] or none, y [N, OH, OW, O]; per dimension
        OH = stride * (H - 1) + output_padding + (KH - 1) * dilation + 1 - pads before and after.
Types   TFLite: int8, w symmetric with one scale or one per output channel, b int32; x and y int16, b int64 or int16;
        requantized as a convolution is; w and b may be computed (runtime_weights.py).
        float32, where products are summed in the input's order and the bias is added last.
        ONNX: float32; weights and bias may be computed. int8 between DequantizeLinear and QuantizeLinear: int32 accumulators over
        (x - x_zero) * (w - w_zero), bias int32 at the scale x_scale * w_scale, w with one scale or one per output channel;
        y = rint(float32(acc) * float32(x_scale * w_scale / y_scale)) + y_zero. ONNX Runtime sums in float32 there, which
        rounds another way only very near to a half.
Errors  computed quantized weights of ONNX, padding beyond what the filter reaches, an accumulator that can leave int32.
Source  TFLite Micro's kernel: padding as of the convolution that has the output for its input. ONNX operator specification:
        pads from output_shape, auto_pad.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Shape, Tensor
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    illegal,
    out_of_proportion,
    require_dtypes,
    require_quantization,
    require_rank,
    unsupported,
)
from emitc.kernels.mac import runtime_weights
from emitc.kernels.mac.accumulation import (
    BIAS,
    SMALLEST_NORMAL,
    WEIGHTS,
    float_factors,
    output_limits,
    requantization,
    requantization_tables,
)
from emitc.kernels.mac.operand_checks import require_bias_length, require_symmetric_weights
from emitc.kernels.shared import int16x8, windows
from emitc.kernels.shared.pointwise import bound_params, bounded, operand
from emitc.layer import KernelSpec, Layer, Param, Scratch, Table, integers
from emitc.numerics.requantize import INT32_MAX, Int64, activation_clamp, requantize_float
from emitc.records import dataclass
from emitc.source import SourceNode

_MAX_EXTRA = 1 << 16
_MAX_SIZE = 1 << 16
_SCALE_TOLERANCE = 2.0**-20
"""A bias scale is the product of two float32 scales, rounded once or twice on its way into the file."""


@dataclass(frozen=True, slots=True)
class ConvTranspose(Op):
    """window: of the convolution that goes the other way, its padding cut off the output. extra: output_padding.

    activation: fused. filters_first: the weights are [O, KH, KW, I].
    """

    window: windows.Window
    groups: int
    extra_h: int
    extra_w: int
    activation: str = "NONE"
    filters_first: bool = False


def _sizes_attribute(node: SourceNode) -> tuple[int, int] | None:
    """The attribute output_shape as height and width, None where it is absent; one dimension is an image of one row."""
    value = node.attributes.get("output_shape")
    if not isinstance(value, tuple) or not value:
        return None
    sizes = tuple(int(v) for v in value)[-2:]
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def from_tflite(node: SourceNode) -> Parsed:
    """Stride and padding for the output size that the first input holds; the data is the third input."""
    node.counts((3, 4))
    # A size that is computed comes out as the output's own: shapes are fixed.
    sizes = node.outputs[0].shape if node.input(0).data is None else node.constant_integers(0, "output shape")
    x, w = node.input(2), node.input(WEIGHTS)
    if len(sizes) != 4 or len(x.shape) != 4 or len(w.shape) != 4 or not all(0 < s <= _MAX_SIZE for s in sizes):
        why = f"four sizes, 1 to {_MAX_SIZE}, for an input and weights of rank 4"
        raise node.refusal(f"has the output shape {list(sizes)}", why)
    steps = node.integer("stride_h", low=1, high=_MAX_EXTRA), node.integer("stride_w", low=1, high=_MAX_EXTRA)
    same = node.text("padding", ("SAME", "VALID")) == "SAME"
    activation = node.fused_activation(("NONE", "RELU", "RELU6", "RELU_N1_TO_1"))
    ends = [_tflite_ends(*axis, same=same) for axis in zip(sizes[1:3], steps, w.shape[1:3], x.shape[1:3], strict=True)]
    (top, bottom, extra_h), (left, right, extra_w) = ends
    window = windows.Window(*steps, windows.Padding(top, bottom, left, right))
    numerics = Numerics.PLAIN if x.dtype == "float32" else Numerics.TFLITE
    op = ConvTranspose(window, 1, extra_h, extra_w, activation, filters_first=True, numerics=numerics)
    return Parsed(op, (2, WEIGHTS, 3))


def _tflite_ends(size: int, stride: int, kernel: int, output: int, *, same: bool) -> tuple[int, int, int]:
    """Along one dimension: elements cut off at the start and at the end, and those beyond the filter."""
    outputs = -(-(size if same else size - kernel + 1) // stride)
    before = max(0, (outputs - 1) * stride + kernel - size) // 2
    at_end = (output - 1) * stride + kernel - before - size
    return before, max(0, at_end), max(0, -at_end)


def tflite_padding(bound: BoundNode) -> str:
    """SAME or VALID where one of them means the operator's padding in TFLite, else ""."""
    op, x, y = bound.op(ConvTranspose), bound.input(0), bound.output
    window, pad = op.window, op.window.padding
    _, kernel_h, kernel_w, _ = _filter_shape(bound)
    rows = y.shape[1], window.stride_h, kernel_h, x.shape[1]
    columns = y.shape[2], window.stride_w, kernel_w, x.shape[2]
    wanted = (pad.top, pad.bottom, op.extra_h), (pad.left, pad.right, op.extra_w)
    for name, same in (("SAME", True), ("VALID", False)):
        if (_tflite_ends(*rows, same=same), _tflite_ends(*columns, same=same)) == wanted:
            return name
    return ""


def from_onnx(node: SourceNode) -> Parsed:
    """ConvTranspose's attributes; padding is settled for this input size."""
    node.counts((2, 3))
    height, width = windows.image_size(node)
    weights = node.input(WEIGHTS)
    if len(weights.shape) != 4:
        raise node.refusal(f"has weights of rank {len(weights.shape)}", "4 is expected", "export again", weights)
    kernel = weights.shape[1], weights.shape[2]
    if windows.integers_attribute(node, "kernel_shape", 2, 1, 1) != kernel and "kernel_shape" in node.attributes:
        what = f"has kernel_shape {node.attributes['kernel_shape']}"
        raise node.refusal(what, f"the weights are {kernel[0]}x{kernel[1]}", tensor=weights)
    strides = windows.integers_attribute(node, "strides", 2, 1, 1)
    dilations = windows.integers_attribute(node, "dilations", 2, 1, 1)
    extra = windows.integers_attribute(node, "output_padding", 2, 0, 0)
    top, left, bottom, right = windows.integers_attribute(node, "pads", 4, 0, 0)
    mode, sizes = windows.automatic_padding(node), _sizes_attribute(node)
    if mode == "VALID":
        top = left = bottom = right = 0
    if mode.startswith("SAME") or sizes is not None:
        wanted = sizes or (height * strides[0], width * strides[1])
        total = [
            strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - wanted[i]
            for i, size in enumerate((height, width))
        ]
        # An output beyond the filter's reach is output_padding that the file leaves unsaid.
        extra = (extra[0] + max(0, -total[0]), extra[1] + max(0, -total[1]))
        total = [max(0, t) for t in total]
        if max(extra) > _MAX_EXTRA:
            why = f"the filter reaches {max(extra)} rows or columns less far, the limit is {_MAX_EXTRA}"
            raise node.refusal(f"has output_shape {list(wanted)}", why)
        # The odd one is cut off at the end with SAME_UPPER, at the start otherwise.
        upper = mode == "SAME_UPPER"
        (top, bottom), (left, right) = ((t // 2, t - t // 2) if upper else (t - t // 2, t // 2) for t in total)
    padding = windows.Padding(top, bottom, left, right)
    window = windows.Window(strides[0], strides[1], padding, dilations[0], dilations[1])
    groups = node.integer("group", 1, 1, 1 << 16)
    op = ConvTranspose(window, groups, extra[0], extra[1])
    return Parsed(op, (0, WEIGHTS, BIAS))


def _filter_shape(bound: BoundNode) -> tuple[int, int, int, int]:
    """[I, KH, KW, O / groups]."""
    first, kernel_h, kernel_w, last = bound.input(WEIGHTS).shape
    if bound.op(ConvTranspose).filters_first:
        first, last = last, first
    return first, kernel_h, kernel_w, last


def _channels(bound: BoundNode) -> int:
    return _filter_shape(bound)[3] * bound.op(ConvTranspose).groups


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists, and channels that do not fit."""
    op, x, w, bias = bound.op(ConvTranspose), bound.input(0), bound.input(WEIGHTS), bound.optional(BIAS)
    require_rank(bound, x, 4)
    require_rank(bound, w, 4)
    floats = (DType.FLOAT32,) * (4 if bias else 3)
    integers = (DType.INT8, DType.INT8, *((DType.INT32,) if bias else ()), DType.INT8)
    if op.numerics is Numerics.TFLITE:
        wide = int16x8.combinations(bias is not None, short_bias=False)
        narrow_bias = [(DType.INT16, DType.INT8, DType.INT16, DType.INT16)] if bias else []
        int16x8.refuse_int32_bias(bound, bias)
        require_dtypes(bound, [integers, *wide, *narrow_bias], [floats])
    else:
        require_dtypes(bound, [floats, *([integers] if op.numerics is Numerics.QDQ else [])])
    if min(w.shape) < 1 or x.shape[3] != _filter_shape(bound)[0] or x.shape[3] % op.groups:
        what = "has channels that do not fit"
        raise illegal(bound, what, f"input {x.shape[3]} in {op.groups} groups, weights {list(w.shape)}", tensor=w)
    require_bias_length(bound, _channels(bound))
    if min(output_shapes(bound)[0]) < 1:
        raise illegal(bound, "has padding that leaves nothing of its output", f"{op.window.padding}")
    if x.dtype is not DType.FLOAT32:
        _check_quantization(bound)


def _check_quantization(bound: BoundNode) -> None:
    op = bound.op(ConvTranspose)
    x, w, y, bias = bound.input(0), bound.input(WEIGHTS), bound.output, bound.optional(BIAS)
    require_quantization(bound, x, y)
    wide = int16x8.applies(bound)
    if wide:
        int16x8.require_symmetric(bound)
    for tensor, what in ((w, "weights"), (bias, "bias")):
        if tensor is not None and not tensor.is_constant and op.numerics is not Numerics.TFLITE:
            why, hint = "they are rearranged while compiling", "export the model with constant weights"
            raise unsupported(bound, f"has computed quantized {what}", why, hint, tensor)
    if op.numerics is Numerics.TFLITE:
        require_symmetric_weights(bound)
    q = w.quantization
    if q is None or not (q.per_tensor or q.axis == (0 if op.filters_first else 3)):
        what = "has weights quantized in a way that is not supported"
        why = "there is code for one scale, or one per output channel"
        raise unsupported(bound, what, why, "quantize the weights again", w)
    factors = float_factors(bound)
    if not SMALLEST_NORMAL <= min(factors) <= max(factors) < (int16x8.FACTOR_LIMIT if wide else 2.0**30):
        raise out_of_proportion(bound, f"sums are multiplied by {max(factors)!r}")
    if bias is not None and op.numerics is not Numerics.TFLITE:
        _check_bias_scale(bound, bias, q)
    _check_sums(bound)


def _check_bias_scale(bound: BoundNode, bias: Tensor, weights: Quantization) -> None:
    """Refuses a bias of ONNX whose scale is not that of the sums."""
    scales = np.array(bias.quantization.scales if bias.quantization else [], np.float64)
    expected = bound.input(0).scale * np.array(weights.scales, np.float64)
    zero = bias.quantization is None or any(bias.quantization.zero_points)
    fits = scales.size in (1, expected.size) or (expected.size == 1 and scales.size == _channels(bound))
    if zero or not fits or not np.allclose(scales, expected, rtol=_SCALE_TOLERANCE, atol=0.0):
        what = "has a bias at another scale than its sums"
        why = f"input scale times weight scale is {expected.tolist()[:4]}"
        raise unsupported(bound, what, why, "quantize the bias again", bias)


def _check_sums(bound: BoundNode) -> None:
    """Refuses weights whose sums can leave the accumulator, which has 32 bits, or 48 where outputs have 16 bits."""
    x, w, wide = bound.input(0), bound.input(WEIGHTS), int16x8.applies(bound)
    if not w.is_constant:
        runtime_weights.check_sums(bound, w.elements // _channels(bound))
        return
    centred = _centred(bound, w.array())
    reach = max(x.zero_point - x.dtype.range[0], x.dtype.range[1] - x.zero_point)
    offsets = [abs(int(value)) for value in _bias_of(bound).tolist()]
    largest = reach * int(np.abs(centred).sum(axis=(0, 1, 2)).max()) + max(offsets)
    if largest > (int16x8.SUM_MAX if wide else INT32_MAX):
        what = f"has sums that can leave {'48 bits' if wide else 'int32'}"
        raise unsupported(bound, what, f"up to {largest}", "reduce the number of channels", w)


def _factors(bound: BoundNode) -> NDArray[np.float32]:
    """x_scale * w_scale / y_scale in float32: one, or one per output channel."""
    factors = np.array(float_factors(bound), np.float32)
    return np.tile(factors, bound.op(ConvTranspose).groups) if factors.size > 1 else factors


def _centred(bound: BoundNode, weights: Array) -> Int64:
    """Quantized weights less their zero points."""
    w = bound.input(WEIGHTS)
    assert w.quantization
    values = _in_first(bound, weights).astype(np.int64)
    zero_points = w.quantization.zero_points
    return values - np.array(zero_points if len(set(zero_points)) > 1 else zero_points[:1], np.int64)


def _in_first(bound: BoundNode, weights: Array) -> Array:
    """Weights as [I, KH, KW, O / groups]."""
    return weights.transpose(3, 1, 2, 0) if bound.op(ConvTranspose).filters_first else weights


def _bias_of(bound: BoundNode) -> Array:
    bias = bound.optional(BIAS)
    dtype = np.float32 if bound.input(0).dtype is DType.FLOAT32 else np.int64
    return bias.array().astype(dtype) if bias is not None and bias.is_constant else np.zeros(_channels(bound), dtype)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]."""
    op, (batches, height, width, _) = bound.op(ConvTranspose), bound.input(0).shape
    _, kernel_h, kernel_w, _ = _filter_shape(bound)
    window, pad = op.window, op.window.padding
    rows = window.stride_h * (height - 1) + op.extra_h + (kernel_h - 1) * window.dilation_h + 1 - pad.top - pad.bottom
    columns = window.stride_w * (width - 1) + op.extra_w + (kernel_w - 1) * window.dilation_w + 1 - pad.left - pad.right
    return ((batches, rows, columns, _channels(bound)),)


def _spread(bound: BoundNode, image: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """The sums without bias: each tap's products are added where they fall, then the padding is cut off."""
    op, window = bound.op(ConvTranspose), bound.op(ConvTranspose).window
    batches, height, width, in_c = image.shape
    _, kernel_h, kernel_w, each_out = weights.shape
    _, out_h, out_w, out_c = bound.output.shape
    pad = window.padding
    whole = np.zeros((batches, out_h + pad.top + pad.bottom, out_w + pad.left + pad.right, out_c), image.dtype)
    each_in = in_c // op.groups
    for ky in range(kernel_h):
        rows = slice(
            ky * window.dilation_h, ky * window.dilation_h + (height - 1) * window.stride_h + 1, window.stride_h
        )
        for kx in range(kernel_w):
            first = kx * window.dilation_w
            columns = slice(first, first + (width - 1) * window.stride_w + 1, window.stride_w)
            for g in range(op.groups):
                inside, outside = slice(g * each_in, (g + 1) * each_in), slice(g * each_out, (g + 1) * each_out)
                whole[:, rows, columns, outside] += image[..., inside] @ weights[inside, ky, kx]
    return whole[:, pad.top : pad.top + out_h, pad.left : pad.left + out_w]


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Scattered tap by tap, in double or int64."""
    op, x, y, weights = bound.op(ConvTranspose), bound.input(0), bound.output, operand(bound, inputs, WEIGHTS)
    assert inputs[0] is not None
    if x.dtype is DType.FLOAT32:
        bias = inputs[BIAS] if len(inputs) > BIAS else None
        offset = _bias_of(bound) if bias is None else bias
        sums = _spread(bound, inputs[0].astype(np.float64), _in_first(bound, weights).astype(np.float64))
        real = sums + offset.astype(np.float64)
        return (
            bounded(real.astype(np.float32), op.activation, y.dtype) if _bounded(bound) else real.astype(np.float32),
        )
    acc = _spread(bound, inputs[0].astype(np.int64) - x.zero_point, _centred(bound, weights))
    sums = runtime_weights.with_bias(bound, inputs, acc.astype(np.int64))
    if op.numerics is Numerics.TFLITE:
        clamp = activation_clamp(op.activation, y)
        return (requantization(bound).apply(sums, y.zero_point, clamp, y.dtype),)
    scaled = requantize_float(sums, _factors(bound))
    return (activation_clamp(op.activation, y).apply(scaled + y.zero_point, y.dtype),)


def _bounded(bound: BoundNode) -> bool:
    """Whether float sums have an activation's bounds, and TFLite's order: then the bias comes last."""
    return bound.op(ConvTranspose).numerics is Numerics.PLAIN


def _rearranged(bound: BoundNode, values: Array) -> Array:
    """Filters as [KH, KW, O, I / groups]: the values that one sum takes lie together."""
    in_c, kernel_h, kernel_w, each_out = values.shape
    groups = bound.op(ConvTranspose).groups
    by_group = values.reshape(groups, in_c // groups, kernel_h, kernel_w, each_out)
    return np.ascontiguousarray(np.transpose(by_group, (2, 3, 0, 4, 1)))


def _steps(bound: BoundNode, *, rearranged: bool) -> tuple[Param, ...]:
    """The window, and how the filters lie."""
    op = bound.op(ConvTranspose)
    in_c, kernel_h, kernel_w, each_out = _filter_shape(bound)
    depth, taps = in_c // op.groups, kernel_h * kernel_w
    steps = (op.groups * each_out * depth, each_out * depth, depth, 1)
    if not rearranged:
        steps = (each_out, depth * taps * each_out, 1, taps * each_out)
        if op.filters_first:
            steps = (in_c, each_out * taps * in_c, taps * in_c, 1)
    names = ("tap_step", "group_step", "out_step", "in_step")
    window = windows.window_params(bound, op.window, kernel_h, kernel_w)
    return *window, *integers(groups=op.groups, **dict(zip(names, steps, strict=True)))


def _lower_float(bound: BoundNode, macs: int) -> Layer:
    """The layer for float32 values. macs: multiply-accumulates of one run."""
    w, y, bias = bound.input(WEIGHTS), bound.output, bound.optional(BIAS)
    operands, tables = [0], []
    if w.is_constant:
        filters = tuple(_rearranged(bound, _in_first(bound, w.array())).reshape(-1).tolist())
        tables.append(Table("weights", "float", filters, "filters, [KH, KW, O, I / groups]", pixels_per_load=0))
    else:
        operands.append(WEIGHTS)
    if bias is None or bias.is_constant:
        tables.append(Table("bias", "float", tuple(_bias_of(bound).tolist()), "bias per output channel"))
    else:
        operands.append(BIAS)
    limited = _bounded(bound)
    limits = bound_params(bound.op(ConvTranspose).activation, y.dtype) if limited else ()
    params = (*_steps(bound, rearranged=w.is_constant), *limits)
    kind = KernelSpec("_bounded" if limited else "")
    return Layer(
        "convolution/transposed/conv_transpose_float",
        operands=tuple(operands),
        tables=tuple(tables),
        params=params,
        macs=macs,
        spec=kind,
    )


def lower(bound: BoundNode) -> Layer:
    """Every output pixel gathers the taps that reach it."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    macs = x.elements * w.elements // _filter_shape(bound)[0]
    if x.dtype is DType.FLOAT32:
        return _lower_float(bound, macs)
    clamp = activation_clamp(bound.op(ConvTranspose).activation, y)
    fixed = bound.op(ConvTranspose).numerics is Numerics.TFLITE
    constants: list[Table] = []
    if w.is_constant:
        centred = _centred(bound, w.array())
        narrow = int(centred.min()) >= -128 and int(centred.max()) <= 127
        spec = KernelSpec("_q31" if fixed else "" if narrow else "_w16", fixed, w="int8_t" if narrow else "int16_t")
        if int16x8.applies(bound):
            rows, bias64 = centred.reshape(-1, y.shape[3]).T, _bias_of(bound).astype(np.int64)
            spec = int16x8.spec(rows, bias64, requantization(bound).shift, reduced=True)
        spec = runtime_weights.adding_last(bound, spec)
        values = tuple(_rearranged(bound, centred).reshape(-1).tolist())
        what = "filters less their zero points, [KH, KW, O, I / groups]"
        constants.append(Table("weights", spec.w, values, what, pixels_per_load=1))
    else:
        spec = runtime_weights.spec(bound, w.elements // _channels(bound), "_q31")
    factors, steps = _factor_tables(bound, spec)
    constants += [*runtime_weights.bias_table(bound, spec), *factors]
    operands = [0, *(() if w.is_constant else (WEIGHTS,)), *((BIAS,) if spec.runtime_bias else ())]
    params = (
        *_steps(bound, rearranged=w.is_constant),
        Param("input_offset", "int32_t", -x.zero_point, "minus the zero point"),
        Param("per_channel", "int32_t", steps, "1: each output channel has its own factor"),
        *output_limits(bound, clamp),
    )
    sums = Scratch("sums", (8 if spec.acc == "int64_t" else 4) * y.shape[3])
    return Layer(
        "convolution/transposed/conv_transpose",
        "portable", tuple(operands), tuple(constants), params, scratch=(sums,), macs=macs, spec=spec,
    )  # fmt: skip


def _factor_tables(bound: BoundNode, spec: KernelSpec) -> tuple[tuple[Table, ...], int]:
    """What sums are multiplied by, and how far the next output channel's is: 0 where one serves all."""
    if bound.op(ConvTranspose).numerics is Numerics.TFLITE:
        scale = requantization(bound)
        return requantization_tables(scale, spec), int(scale.per_channel)
    values = tuple(_factors(bound).tolist())
    return (Table("multiplier", "float", values, "x_scale * w_scale / y_scale"),), int(len(values) > 1)


def work(bound: BoundNode) -> int:
    _, kernel_h, kernel_w, each_out = _filter_shape(bound)
    return bound.output.elements + bound.input(0).elements * kernel_h * kernel_w * each_out


KERNELS = (
    KernelDef(
        ConvTranspose, "transposed 2-D convolution, grouped or dilated", (DType.FLOAT32, DType.INT8), ("TRANSPOSE_CONV",),
        from_tflite, check, reference, lower, output_shapes=output_shapes, work=work,
        tflite_dtypes=(DType.INT8, DType.INT16, DType.FLOAT32), onnx=("ConvTranspose",), from_onnx=from_onnx,
    ),
)  # fmt: skip
