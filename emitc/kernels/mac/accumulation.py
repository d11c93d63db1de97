"""Multiply-accumulate operators: what convolutions and fully connected layers share after the accumulator.

acc = bias + sum((x - x_zero) * w), int32; y = clamp(y_zero + requantize(acc)), one multiplier per output channel or one for
all. With the zero point folded, bias' = bias - x_zero * sum(w) and the sum takes x as it is; legal where no window
reaches outside the input. Source: TFLite 8-bit quantization specification.

ONNX: the factor is float32(x_scale * w_scale / y_scale), each operation in float32, and requantization is one float32
product rounded half to even (ONNX Runtime's integer kernels). Weights may have zero points: w - w_zero is stored then, as
int16. int16 inputs are summed by the same loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Tensor
from emitc.kernels.contract import illegal, require_dtypes, require_quantization, unsupported
from emitc.kernels.mac.requantization import (
    BIAS,
    FACTOR_LIMIT,
    SMALLEST_NORMAL,
    WEIGHTS,
    Requantization,
    float_factors,
    output_params,
    real_factors,
    reduced,
    requantization,
    requantization_tables,
)
from emitc.kernels.mac.weight_packing import PACKED, weight_table
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.float_activation import bound_params, bounded, limited, onnx_activation
from emitc.kernels.shared.windows import BY_ROWS, WINDOW_PARAMS, Window, window_overlap
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Table, by_channel, whole_window
from emitc.numerics.requantize import INT32_MAX, Clamp, Int64, activation_clamp
from emitc.source import SourceNode

TOGETHER = 4
"""Output channels that share every value read, in kernels with interleaved filters."""


def onnx_kernel(node: SourceNode) -> tuple[int, int]:
    """Height and width of the weights' window, [?, KH, KW, ?]; an attribute kernel_shape that differs is refused."""
    weights = node.input(WEIGHTS)
    if len(weights.shape) != 4:
        raise node.refusal(
            f"{node.op_type} has weights of rank {len(weights.shape)}", "4 is expected", "export again", weights
        )
    size = weights.shape[1], weights.shape[2]
    stated = node.attribute("kernel_shape", size)
    if stated != size:
        raise node.refusal(f"{node.op_type} has kernel_shape {stated}", f"the weights are {size}", tensor=weights)
    return size


def in_float(bound: BoundNode) -> bool:
    """Whether the operator works on float32 throughout."""
    return bound.node.op.numerics.float_scale and bound.input(0).dtype is DType.FLOAT32


def tflite_numerics(node: SourceNode) -> Numerics:
    """Of plain numbers where inputs and weights are float32."""
    floats = node.input(0).dtype == "float32" and node.input(WEIGHTS).dtype == "float32"
    return Numerics.PLAIN if floats else Numerics.TFLITE


def check_float_operands(bound: BoundNode, channels: int) -> None:
    """Refuses other types than float32, and a bias of another length. Weights and bias may be computed."""
    bias = bound.optional(BIAS)
    require_dtypes(bound, [(DType.FLOAT32,) * (4 if bias else 3)])
    if bias is not None and bias.shape != (channels,):
        raise illegal(
            bound, f"{bound.node.op_type} has a bias of the wrong length", f"{channels} output channels",
            tensor=bias
        )  # fmt: skip


def float_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[NDArray[np.float32], ...]:
    """x, weights and bias in float32, zeros where there is no bias."""
    values = [
        bound.input(i).array() if value is None and i < len(bound.inputs) and bound.inputs[i] is not None else value
        for i, value in enumerate(inputs)
    ]
    x, w = values[0], values[WEIGHTS]
    assert x is not None and w is not None
    bias = values[BIAS] if len(values) > BIAS else None
    zeros = np.zeros(1, np.float32)
    return x.astype(np.float32), w.astype(np.float32), zeros if bias is None else bias.astype(np.float32)


def operands(
    bound: BoundNode, inputs: Sequence[Array | None], *, folded: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """For the references: inputs and weights less their zero points, and the bias in every place of the output.

    float32 for an operator in float, otherwise int64.
    """
    if in_float(bound):
        x, w, bias = float_reference(bound, inputs)
        return x, w, np.zeros(bound.output.shape, np.float32) + bias
    quantization = bound.input(0).quantization
    assert inputs[0] is not None and quantization
    centred = inputs[0].astype(np.int64) - (0 if folded else quantization.zero_point)
    start = np.zeros(bound.output.shape, np.int64) + bias_of(bound, bound.output.shape[-1])
    return centred, weights_of(bound).astype(np.int64), start


def convolved(window: Window, image: NDArray[Any], weights: NDArray[Any], acc: NDArray[Any]) -> NDArray[Any]:
    """acc [N, OH, OW, O] and the products of the image with weights [O, KH, KW, I / groups], tap by tap."""
    out_c, kernel_h, kernel_w, in_c = weights.shape
    groups = image.shape[3] // in_c
    each = out_c // groups
    for ky, kx, values in window.taps(image, 0, kernel_h, kernel_w):
        for g in range(groups):
            group = slice(g * each, (g + 1) * each)
            acc[..., group] += values[..., g * in_c : (g + 1) * in_c] @ weights[group, ky, kx].T
    return acc


def result(bound: BoundNode, acc: NDArray[Any], activation: str) -> Array:
    """Accumulators [..., O] as outputs: requantized under the activation, or as they are in float."""
    y = bound.output
    if y.quantization is None:
        sums = np.asarray(acc, np.float32)
        return (bounded if bound.node.op.numerics is Numerics.PLAIN else limited)(sums, activation, y.dtype)
    return requantization(bound).apply(acc, y.quantization.zero_point, activation_clamp(activation, y), y.dtype)


def float_layer(
    bound: BoundNode,
    params: tuple[Param, ...],
    channels: int,
    macs: int,
    filters: Array | None = None,
    activation: str = "NONE",
    spread: bool = False,
    bias_last: bool = False,
) -> Layer:
    """A convolution in float32. params: window and groups. Constant weights and bias become tables.

    filters: the weights as [O, KH, KW, I / groups] where the operator has them otherwise. activation: fused; in TFLite the bias
    is added last, and every sum limited. spread: computed weights lie tap by tap, [1, KH, KW, O]. bias_last: it is in ONNX, too.
    """
    w, bias = bound.input(WEIGHTS), bound.optional(BIAS)
    operands, constants = [0], []
    if w.is_constant:
        values = tuple((w.array() if filters is None else filters).reshape(-1).tolist())
        shape = "x".join(map(str, w.shape))
        constants.append(Table("weights", "float", values, f"weights {shape}", pixels_per_load=1))
    else:
        operands.append(WEIGHTS)
    if bias is None or bias.is_constant:
        values = (0.0,) * channels if bias is None else tuple(bias.array().tolist())
        constants.append(Table("bias", "float", values, "bias per output channel"))
    else:
        operands.append(BIAS)
    groups = next(int(param.value) for param in params if param.name == "groups")
    ahead = by_channel(channels, groups, bound.input(0).shape[-1] // groups, 4, 4)
    overlaps = window_overlap(bound, params, ahead)
    spec = PLAIN
    if bound.node.op.numerics is Numerics.PLAIN:
        params = (*params, *bound_params(activation, bound.output.dtype))
        spec = KernelSpec("_bounded", clamped=True, bias_last=True)
    else:
        limits, spec = onnx_activation(activation)
        params = (*params, *limits)
        if bias_last:
            spec = spec.extended("_late", bias_last=True)
    if spread and not w.is_constant:
        spec = spec.extended("_spread", spread=True)
    return Layer(
        "convolution/conv_2d_float",
        "portable", tuple(operands), tuple(constants), params, overlaps=overlaps, macs=macs, spec=spec,
        by_rows=BY_ROWS if len(w.shape) == 4 and len(operands) == 1 else None,
    )  # fmt: skip


def check_operands(
    bound: BoundNode, weight_axis: int, *, short_bias: bool = True, computed: bool = False, one_zero: bool = False
) -> None:
    """Refuses types, quantizations, and constants that the integer accumulation does not cover.

    weight_axis: dimension of the weights that counts output channels. short_bias: with int16 inputs it may be int32. computed: so
    may the weights be. one_zero: int8 weights with one scale may have a zero point in TFLite.
    """
    x, w, bias, y = bound.input(0), bound.input(WEIGHTS), bound.optional(BIAS), bound.output
    _check_types(bound, bias, short_bias=short_bias)
    require_quantization(bound, x, y)
    if int16x8.applies(bound):
        int16x8.require_symmetric(bound)
    _check_weights(bound, weight_axis, one_zero=one_zero)
    channels = w.shape[weight_axis]
    if bias is not None and bias.shape != (channels,):
        raise illegal(
            bound, f"{bound.node.op_type} has a bias of the wrong length", f"{channels} output channels", tensor=bias
        )
    float_scale = bound.node.op.numerics.float_scale
    factors = float_factors(bound) if float_scale else real_factors(bound)
    lowest = SMALLEST_NORMAL if float_scale else 0.0
    limit = int16x8.FACTOR_LIMIT if reduced(bound) else FACTOR_LIMIT
    if not lowest <= min(factors) <= max(factors) < limit:
        raise illegal(
            bound,
            "an output scale is out of proportion",
            f"input scale * weight scale / output scale = {max(factors, key=abs)!r}",
            "quantize again",
            y,
        )
    if not computed and (not w.is_constant or (bias is not None and not bias.is_constant)):
        what, constant = (
            ("a computed bias", "a constant bias") if w.is_constant else ("computed weights", "constant weights")
        )
        raise unsupported(
            bound, f"{bound.node.op_type} with {what} is not supported", "weights and bias must be constants",
            f"export the model with {constant}", w,
        )  # fmt: skip


def _check_types(bound: BoundNode, bias: Tensor | None, *, short_bias: bool) -> None:
    """Refuses types of input, weights, bias and output that do not go together. short_bias: as in `check_operands`."""
    known = (
        (DType.INT16, DType.INT8, DType.INT32, DType.INT16),
        (DType.FLOAT32, DType.INT8, DType.FLOAT32, DType.FLOAT32),
        (DType.FLOAT32, DType.INT8, DType.FLOAT32),
    )
    if bias is not None and bias.dtype not in (DType.INT32, DType.INT64, DType.FLOAT32):
        raise illegal(
            bound,
            f"{bound.node.op_type} has a bias of type {bias.dtype.value}",
            "it is added to the accumulator: int32, or int64 and float32 where that is",
            tensor=bias,
        )
    numerics = bound.node.op.numerics
    widths = (DType.INT8, DType.INT16) if numerics.float_scale else (DType.INT8,)
    added = (DType.INT32,) if bias else ()
    weights = (DType.INT8,) if numerics.float_scale else (DType.INT8, DType.INT4)
    if numerics is Numerics.QDQ:  # those that `recognise-qdq` makes finer for the sake of a bias
        weights = (DType.INT8, DType.INT16)
    combinations = [(a, each, *added, b) for a in widths for b in widths for each in weights]
    if not numerics.float_scale:
        combinations += int16x8.combinations(bias is not None, short_bias=short_bias)
    require_dtypes(bound, combinations, known)


def _check_weights(bound: BoundNode, weight_axis: int, *, one_zero: bool) -> None:
    """Refuses scales and zero points of the weights. Arguments are as in `check_operands`."""
    x, w = bound.input(0), bound.input(WEIGHTS)
    if w.quantization is None:
        raise illegal(
            bound,
            f"{bound.node.op_type} has weights without a scale",
            "int8 weights are quantized",
            "quantize the model fully",
            w,
        )
    scales = w.quantization
    if not scales.per_tensor and scales.axis != weight_axis % len(w.shape):
        raise illegal(
            bound, f"{bound.node.op_type} has weights quantized along dimension {scales.axis}",
            f"one scale, or one per output channel (dimension {weight_axis % len(w.shape)}) is expected", "quantize again", w,
        )  # fmt: skip
    zero_fits = one_zero and scales.per_tensor and x.dtype is w.dtype is DType.INT8
    if any(scales.zero_points) and bound.node.op.numerics is Numerics.TFLITE and not zero_fits:
        raise illegal(
            bound, f"{bound.node.op_type} has weights with a zero point", "weights are symmetric in TFLite's int8 scheme",
            "quantize the weights symmetrically", w,
        )  # fmt: skip


def require_groups(bound: BoundNode) -> None:
    """Refuses channels that are not [..., I] and weights [O, KH, KW, I / groups]."""
    x, (out_c, *_, in_c) = bound.input(0), bound.input(WEIGHTS).shape
    if min(bound.input(WEIGHTS).shape) < 1 or x.shape[3] % in_c or out_c % (x.shape[3] // in_c):
        raise illegal(
            bound, f"{bound.node.op_type} has channels that do not fit", f"input {x.shape[3]}, weights {in_c} to {out_c}",
            tensor=bound.input(WEIGHTS)
        )  # fmt: skip


def require_multiplier(bound: BoundNode) -> None:
    """Refuses channels that are not [..., I] and weights [1, KH, KW, I * multiplier]."""
    x, w = bound.input(0), bound.input(WEIGHTS)
    if w.shape[0] != 1 or min(w.shape) < 1 or w.shape[3] % x.shape[3]:
        raise illegal(
            bound, f"{bound.node.op_type} has channels that do not fit", f"input {x.shape[3]}, weights {list(w.shape)}",
            tensor=w
        )  # fmt: skip


def weights_of(bound: BoundNode) -> Array:
    """The weights less their zero points: int8 where these are all 0, otherwise int16."""
    w = bound.input(WEIGHTS)
    assert w.quantization
    if not any(w.quantization.zero_points):
        return w.array()
    zero_points = np.array(w.quantization.zero_points, np.int16)
    if not w.quantization.per_tensor:
        zero_points = zero_points.reshape(tuple(-1 if i == w.quantization.axis else 1 for i in range(len(w.shape))))
    return np.asarray(w.array().astype(np.int16) - zero_points)


def raw_weights(bound: BoundNode) -> tuple[Array, tuple[int, ...]] | None:
    """The weights [O, ...] as they are and their zero point per output channel, for kernels that take these off by the sum
    of the inputs; None where there are none, or where that sum could take an accumulator out of int32.
    """
    w, x = bound.input(WEIGHTS), bound.input(0)
    assert w.quantization
    zeros = w.quantization.zero_points
    if not any(zeros) or x.dtype is not DType.INT8 or w.dtype is not DType.INT8 or w.quantization.axis != 0:
        return None
    out = w.shape[0]
    spread = zeros * out if len(zeros) == 1 else zeros
    values = np.abs(w.array().astype(np.int64).reshape(out, -1))
    depth = values.shape[1]
    # Inputs less their zero point are below 256; each of the three terms by itself, so that no order of adding matters.
    reach = (
        255 * (int(values.sum(axis=1).max()) + 128 * depth) + int(np.abs(bias_of(bound, out)).max()) + 128 * 256 * depth
    )
    return (w.array(), spread) if reach <= INT32_MAX else None


def zero_table(zeros: tuple[int, ...]) -> Table:
    """The array of weight zero points."""
    return Table("weight_zero", "int8_t", zeros, "zero point of the weights per output channel")


def with_weight_zero(kind: KernelSpec) -> KernelSpec:
    """The spec of a kernel that takes the weights' zero points off, its weights as bytes."""
    return replace(kind, suffix=f"{kind.suffix.replace('_w16', '')}_wz", w="int8_t", weight_zero=True)


def spec(bound: BoundNode, weights: Array, channel_axis: int = 0) -> KernelSpec:
    """What the kernel is printed for: the requantization, and the types of inputs, weights, sums and outputs.

    channel_axis: dimension of the weights that counts output channels.
    """
    x, y = bound.input(0).dtype.c_type, bound.output.dtype.c_type
    w = f"{weights.dtype.name}_t"
    if int16x8.applies(bound):
        filters = np.moveaxis(weights, channel_axis, 0).astype(np.int64).reshape(weights.shape[channel_axis], -1)
        scale = requantization(bound)
        return int16x8.spec(filters, bias_of(bound, len(filters)), scale.shift, reduced=scale.reduced)
    if not bound.node.op.numerics.float_scale:
        if w == "int16_t":
            return replace(PLAIN, suffix="_w16", w=w)
        return PACKED if bound.input(WEIGHTS).dtype.packed else PLAIN
    wide = "".join(f"_{role}16" for role, c_type in (("x", x), ("w", w), ("y", y)) if c_type == "int16_t")
    return KernelSpec(f"_f32{wide}", False, x, w, y)


def suits_fast(bound: BoundNode, weights: Array) -> bool:
    """Whether weights are bytes and inputs too, or int16 ones of TFLite, which the fast kernels need."""
    suited = bound.input(0).dtype is DType.INT8 or int16x8.applies(bound)
    return suited and weights.dtype == np.int8


def bias_of(bound: BoundNode, channels: int) -> Int64:
    """The bias [O] as integers, zeros where the model has none."""
    bias = bound.optional(BIAS)
    return np.zeros(channels, np.int64) if bias is None else bias.array().astype(np.int64)


def model_bias(bound: BoundNode, sums: Int64, *, folded: bool) -> Int64:
    """The bias as the model has it, for backends that take the zero point off themselves.

    sums: of the weights of each output channel. folded: whether a pass has put the zero point into the bias.
    """
    quantization = bound.input(0)
    bias = bias_of(bound, len(sums))
    return bias + quantization.zero_point * sums if folded else bias


def check_accumulator(bound: BoundNode, filters: Int64, *, folded: bool) -> None:
    """Refuses weights for which some input could take the accumulator out of its type.

    filters: [O, K], every weight that meets an input, per output channel. The bound is on every partial sum: int32, or
    what TFLite Micro requantizes of 64 bits.
    """
    x = bound.input(0)
    zero_point = 0 if folded else x.zero_point
    low, high = x.dtype.range
    reach = max(high - zero_point, zero_point - low)
    worst = np.abs(filters).sum(axis=1) * reach + np.abs(bias_of(bound, len(filters)))
    largest, bits = (int16x8.SUM_MAX, 48) if reduced(bound) else (INT32_MAX, 32)
    if worst.size and not 0 <= int(worst.min()) <= int(worst.max()) <= largest:
        channel = int(worst.argmax())
        raise illegal(
            bound, f"an accumulator can overflow {bits} bits", f"output channel {channel} can reach {int(worst[channel])}",
            "quantize the model again: weights or bias of this size are not meaningful", bound.input(WEIGHTS),
        )  # fmt: skip


def bias_inside(bound: BoundNode, filters: Int64, *, folded: bool) -> Int64 | None:
    """The bias for windows that lie wholly inside the input, where the zero point's share is always the same.

    filters: [O, K]. None where a partial sum with it could leave int32; int16 inputs of TFLite have no zero point, and sums
    of 64 bits there.
    """
    x = bound.input(0)
    bias = bias_of(bound, len(filters))
    if int16x8.applies(bound):
        return bias
    if not folded:
        bias = bias - x.zero_point * filters.sum(axis=1)
    reach = max(abs(limit) for limit in x.dtype.range)
    return bias if int((np.abs(filters).sum(axis=1) * reach + np.abs(bias)).max()) <= INT32_MAX else None


def tables(
    weights: Array, bias: Int64, scale: Requantization, kind: KernelSpec, *, interleaved: bool = False
) -> tuple[Table, ...]:
    """Weights, bias, multipliers and shifts as constant arrays.

    kind: of the kernel that they are for. interleaved: filters first, in blocks of four.
    """
    return (
        weight_table(weights, interleaved=interleaved, packed=kind.packed),
        Table("bias", kind.acc, tuple(bias.tolist()), "bias per output channel"),
        *requantization_tables(scale, kind),
    )


def inside_tables(bound: BoundNode, bias: Int64) -> tuple[Table, ...]:
    """The array of `bias_inside`; none for symmetric inputs, where it is the bias."""
    if int16x8.applies(bound):
        return ()
    comment = "bias with the zero point's share of a whole window"
    return (Table("bias_inside", "int32_t", tuple(bias.tolist()), comment),)


def input_offset(bound: BoundNode, *, folded: bool) -> Param:
    """What is added to every input value."""
    x = bound.input(0)
    return Param("input_offset", "int32_t", 0 if folded else -x.zero_point, "minus the zero point")


def pixels(rows: int, depth: int, out: int) -> tuple[tuple[Param, ...], Param]:
    """Window parameters and groups of a 1x1 convolution of `rows` images of one pixel."""
    pixel = {"batches": rows, "in_c": depth, "out_c": out, "pad_top": 0, "pad_left": 0}
    return tuple(Param(name, "int32_t", pixel.get(name, 1)) for name in WINDOW_PARAMS), Param("groups", "int32_t", 1)


def matrix_product(bound: BoundNode, scale: Requantization, clamp: Clamp, rows: int, *, folded: bool) -> Layer:
    """Rows of inputs times the weights [O, ...]: one layer for fully connected and for 1x1 convolutions.

    Without the zero point in the bias it is a 1x1 convolution of `rows` images of one pixel.
    """
    x, w = bound.input(0), bound.input(WEIGHTS)
    out = w.shape[0]
    depth = w.elements // out
    weights, bias = weights_of(bound), bias_of(bound, out)
    tail = output_params(bound, scale, clamp)
    macs = rows * out * depth
    kind = spec(bound, weights)
    raw = raw_weights(bound)
    params, groups = pixels(rows, depth, out)
    overlaps = window_overlap(bound, params, whole_window(out, TOGETHER, bound.output.dtype.bytes))
    if (folded or x.zero_point == 0) and raw is not None:
        constants = (*tables(raw[0], bias, scale, kind, interleaved=True), zero_table(raw[1]))
        size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out", "int32_t", out))
        return Layer(
            "matrix/fully_connected", "portable", (0,), constants, size + tail, macs=macs, spec=with_weight_zero(kind),
            overlaps=overlaps, by_rows=ByRows(counted="rows"),
        )  # fmt: skip
    if (folded or x.zero_point == 0) and suits_fast(bound, weights):
        constants = tables(weights, bias, scale, kind, interleaved=True)
        size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out", "int32_t", out))
        return Layer(
            "matrix/fully_connected", "portable", (0,), constants, size + tail, macs=macs, spec=kind, overlaps=overlaps,
            by_rows=ByRows(counted="rows"),
        )  # fmt: skip
    offset = input_offset(bound, folded=folded)
    return Layer(
        "convolution/conv_2d_taps",
        "portable", (0,), tables(weights, bias, scale, kind), (*params, groups, offset, *tail), macs=macs,
        spec=kind, overlaps=window_overlap(bound, params, by_channel(out, 1, depth, x.dtype.bytes, bound.output.dtype.bytes)),
    )  # fmt: skip
