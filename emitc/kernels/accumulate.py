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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import (
    PLAIN,
    ByRows,
    Flavour,
    Layer,
    Param,
    Table,
    illegal,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.kernels.spatial import WINDOW_PARAMS, window_overlap
from emitc.kernels.walk import by_channel, whole_window
from emitc.quantize import (
    INT32_MAX,
    INT32_MIN,
    Clamp,
    Int64,
    activation_clamp,
    multiplier_of,
    requantize,
    requantize_float,
)

WEIGHTS = 1
BIAS = 2
TOGETHER = 4
"""Output channels that share every value read, in kernels with interleaved filters."""


@dataclass(frozen=True, slots=True)
class Requantization:
    """Multipliers (Q31) and shifts (positive left), or float32 factors: one each, or one per output channel."""

    q31: tuple[int, ...] = ()
    shift: tuple[int, ...] = ()
    real: tuple[float, ...] = ()

    @property
    def per_channel(self) -> bool:
        """Whether each output channel has its own."""
        return len(self.q31 or self.real) > 1

    def apply(self, acc: Int64, zero_point: int, clamp: Clamp, dtype: DType) -> Array:
        """acc [..., O] to quantized outputs; a sum with the zero point that leaves int32 wraps, as 32-bit code does."""
        if self.real:
            scaled = requantize_float(acc, np.array(self.real, np.float32))
            return clamp.apply(scaled + zero_point, dtype)
        scaled = requantize(acc, np.array(self.q31, np.int64), np.array(self.shift, np.int64))
        return clamp.apply((scaled + zero_point).astype(np.int32).astype(np.int64), dtype)


_SMALLEST_NORMAL = 2.0**-126
_FACTOR_LIMIT = 2.0**30 - 0.25
"""From here on the multiplier rounds to 2**30, which a shift of at most 30 cannot express."""


def _factors(bound: BoundNode) -> list[float]:
    """Real factor from accumulator to output in double, one for each weight scale."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert x.quantization and w.quantization and y.quantization
    return [x.quantization.scale * scale / y.quantization.scale for scale in w.quantization.scales]


def float_factors(bound: BoundNode) -> tuple[float, ...]:
    """x_scale * w_scale / y_scale in float32, one for each weight scale, as the doubles that equal them."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert x.quantization and w.quantization and y.quantization
    with np.errstate(all="ignore"):
        product = np.float32(x.quantization.scale) * np.array(w.quantization.scales, np.float32)
        return tuple(float(v) for v in product / np.float32(y.quantization.scale))


def requantization(bound: BoundNode) -> Requantization:
    """x_scale * w_scale / y_scale in double, for one weight scale as for many.

    TFLite Micro's FULLY_CONNECTED is no exception: accumulators between the multipliers of the double and of the float32
    product of scales show it to take the double one. In ONNX every operation on scales is in float32.
    """
    if bound.node.op.numerics.float_scale:
        factors = float_factors(bound)
        return Requantization(real=factors[:1] if len(set(factors)) == 1 else factors)
    multipliers = [multiplier_of(factor) for factor in _factors(bound)]
    q31 = tuple(m.q31 for m in multipliers)
    shift = tuple(m.shift for m in multipliers)
    if len(set(q31)) == 1 and len(set(shift)) == 1:
        return Requantization(q31[:1], shift[:1])
    return Requantization(q31, shift)


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
        raise node.refusal(
            f"{node.op_type} has kernel_shape {stated}", f"the weights are {size}", "export the model again", weights
        )
    return size


def in_float(bound: BoundNode) -> bool:
    """Whether the operator works on float32 throughout."""
    return bound.node.op.numerics.float_scale and bound.input(0).dtype is DType.FLOAT32


def check_float_operands(bound: BoundNode, channels: int) -> None:
    """Refuses other types than float32, and a bias of another length. Weights and bias may be computed."""
    bias = bound.optional(BIAS)
    require_dtypes(bound, [(DType.FLOAT32,) * (4 if bias else 3)])
    if bias is not None and bias.shape != (channels,):
        raise illegal(
            bound, f"{bound.node.op_type} has a bias of the wrong length", f"{channels} output channels",
            "export the model again", bias,
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


def result(bound: BoundNode, acc: NDArray[Any], activation: str) -> Array:
    """Accumulators [..., O] as outputs: requantized under the activation, or as they are in float."""
    y = bound.output
    if y.quantization is None:
        return np.asarray(acc, np.float32)
    return requantization(bound).apply(acc, y.quantization.zero_point, activation_clamp(activation, y), y.dtype)


def float_layer(
    bound: BoundNode, params: tuple[Param, ...], channels: int, macs: int, filters: Array | None = None
) -> Layer:
    """A convolution in float32. params: window and groups. Constant weights and bias become tables.

    filters: the weights as [O, KH, KW, I / groups] where the operator has them otherwise.
    """
    w, bias = bound.input(WEIGHTS), bound.optional(BIAS)
    operands, constants = [0], []
    if w.is_constant:
        values = tuple((w.array() if filters is None else filters).reshape(-1).tolist())
        constants.append(Table("weights", "float", values, f"weights {'x'.join(map(str, w.shape))}"))
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
    return Layer("conv_2d_float", "portable", tuple(operands), tuple(constants), params, overlaps=overlaps, macs=macs)


def check_operands(bound: BoundNode, weight_axis: int) -> None:
    """Refuses types, quantizations, and constants that the int8 accumulation does not cover.

    weight_axis: dimension of the weights that counts output channels.
    """
    x, w, bias, y = bound.input(0), bound.input(WEIGHTS), bound.optional(BIAS), bound.output
    known = (
        (DType.INT16, DType.INT8, DType.INT64, DType.INT16),
        (DType.INT16, DType.INT8, DType.INT16),
        (DType.FLOAT32, DType.INT8, DType.FLOAT32, DType.FLOAT32),
        (DType.FLOAT32, DType.INT8, DType.FLOAT32),
    )
    if bias is not None and bias.dtype not in (DType.INT32, DType.INT64, DType.FLOAT32):
        raise illegal(
            bound,
            f"{bound.node.op_type} has a bias of type {bias.dtype.value}",
            "it is added to the accumulator: int32, or int64 and float32 where that is",
            "export the model again",
            bias,
        )
    numerics = bound.node.op.numerics
    widths = (DType.INT8, DType.INT16) if numerics.float_scale else (DType.INT8,)
    middle = (DType.INT8, DType.INT32) if bias else (DType.INT8,)
    require_dtypes(bound, [(a, *middle, b) for a in widths for b in widths], known)
    require_quantization(bound, x, y)
    if w.quantization is None:
        raise illegal(
            bound,
            f"{bound.node.op_type} has weights without a scale",
            "int8 weights are quantized",
            "quantize the model fully",
            w,
        )
    channels = w.shape[weight_axis]
    scales = w.quantization
    if not scales.per_tensor and scales.axis != weight_axis % len(w.shape):
        raise illegal(
            bound, f"{bound.node.op_type} has weights quantized along dimension {scales.axis}",
            f"one scale, or one per output channel (dimension {weight_axis % len(w.shape)}) is expected", "quantize again", w,
        )  # fmt: skip
    if any(scales.zero_points) and not numerics.float_scale:
        raise illegal(
            bound, f"{bound.node.op_type} has weights with a zero point", "weights are symmetric in TFLite's int8 scheme",
            "quantize the weights symmetrically", w,
        )  # fmt: skip
    if bias is not None and bias.shape != (channels,):
        raise illegal(
            bound,
            f"{bound.node.op_type} has a bias of the wrong length",
            f"{channels} output channels",
            "export the model again",
            bias,
        )
    factors = float_factors(bound) if numerics.float_scale else _factors(bound)
    lowest = _SMALLEST_NORMAL if numerics.float_scale else 0.0
    if not lowest <= min(factors) <= max(factors) < _FACTOR_LIMIT:
        raise illegal(
            bound,
            "an output scale is out of proportion",
            f"input scale * weight scale / output scale = {max(factors, key=abs)!r}",
            "quantize again",
            y,
        )
    if not w.is_constant or (bias is not None and not bias.is_constant):
        raise unsupported(
            bound, f"{bound.node.op_type} with computed weights is not supported", "weights and bias must be constants",
            "export the model with constant weights", w,
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


def with_weight_zero(kind: Flavour) -> Flavour:
    """The flavour of a kernel that takes the weights' zero points off, its weights as bytes."""
    return replace(kind, suffix=f"{kind.suffix.replace('_w16', '')}_wz", w="int8_t", weight_zero=True)


def flavour(bound: BoundNode, weights: Array) -> Flavour:
    """What the kernel is printed for: the requantization, and the types of inputs, weights and outputs."""
    x, y = bound.input(0).dtype.c_type, bound.output.dtype.c_type
    w = f"{weights.dtype.name}_t"
    if not bound.node.op.numerics.float_scale:
        return PLAIN
    wide = "".join(f"_{role}16" for role, c_type in (("x", x), ("w", w), ("y", y)) if c_type == "int16_t")
    return Flavour(f"_f32{wide}", False, x, w, y)


def byte_sized(bound: BoundNode, weights: Array) -> bool:
    """Whether inputs and weights are bytes, which the fast kernels need."""
    return bound.input(0).dtype is DType.INT8 and weights.dtype == np.int8


def bias_of(bound: BoundNode, channels: int) -> Int64:
    """The bias [O] as integers, zeros where the model has none."""
    bias = bound.optional(BIAS)
    return np.zeros(channels, np.int64) if bias is None else bias.array().astype(np.int64)


def model_bias(bound: BoundNode, sums: Int64, *, folded: bool) -> Int64:
    """The bias as the model has it, for backends that take the zero point off themselves.

    sums: of the weights of each output channel. folded: whether a pass has put the zero point into the bias.
    """
    quantization = bound.input(0).quantization
    assert quantization
    bias = bias_of(bound, len(sums))
    return bias + quantization.zero_point * sums if folded else bias


def check_accumulator(bound: BoundNode, filters: Int64, *, folded: bool) -> None:
    """Refuses weights for which some input could take the accumulator out of int32.

    filters: [O, K], every weight that meets an input, per output channel. The bound is on every partial sum.
    """
    x = bound.input(0)
    assert x.quantization
    zero_point = 0 if folded else x.quantization.zero_point
    low, high = x.dtype.range
    reach = max(high - zero_point, zero_point - low)
    worst = np.abs(filters).sum(axis=1) * reach + np.abs(bias_of(bound, len(filters)))
    if worst.size and int(worst.max()) > min(INT32_MAX, -INT32_MIN - 1):
        channel = int(worst.argmax())
        raise illegal(
            bound, "an accumulator can overflow 32 bits", f"output channel {channel} can reach {int(worst[channel])}",
            "quantize the model again: weights or bias of this size are not meaningful", bound.input(WEIGHTS),
        )  # fmt: skip


def bias_inside(bound: BoundNode, filters: Int64, *, folded: bool) -> Int64 | None:
    """The bias for windows that lie wholly inside the input, where the zero point's share is always the same.

    filters: [O, K]. None where a partial sum with it could leave int32.
    """
    x = bound.input(0)
    assert x.quantization
    bias = bias_of(bound, len(filters))
    if not folded:
        bias = bias - x.quantization.zero_point * filters.sum(axis=1)
    reach = max(abs(limit) for limit in x.dtype.range)
    return bias if int((np.abs(filters).sum(axis=1) * reach + np.abs(bias)).max()) <= INT32_MAX else None


def blocks_of_four(weights: Array) -> Array:
    """Filters [O, K] in blocks of four, interleaved value by value, so that a block is read from one pointer.

    The O % 4 filters that are left follow one by one. Flat, as many elements as before.
    """
    whole = len(weights) // 4 * 4
    blocks = weights[:whole].reshape(whole // 4, 4, weights.shape[1]).transpose(0, 2, 1)
    return np.concatenate([blocks.reshape(-1), weights[whole:].reshape(-1)])


def tables(weights: Array, bias: Int64, scale: Requantization, *, interleaved: bool = False) -> tuple[Table, ...]:
    """Weights, bias, multipliers and shifts as constant arrays; interleaved: filters first, in blocks of four."""
    shape = "x".join(map(str, weights.shape))
    if interleaved:
        shape += ", filters interleaved four by four"
        weights = blocks_of_four(weights.reshape(len(weights), -1))
    return (
        Table("weights", f"{weights.dtype.name}_t", tuple(weights.reshape(-1).tolist()), f"weights {shape}"),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel"),
        *requantization_tables(scale),
    )


def requantization_tables(scale: Requantization) -> tuple[Table, ...]:
    """Multipliers and shifts, or float32 factors, as constant arrays."""
    each = "per output channel" if scale.per_channel else "for all channels"
    if scale.real:
        return (Table("multiplier", "float", scale.real, f"float32 factor {each}"),)
    return (
        Table("multiplier", "int32_t", scale.q31, f"Q31 multiplier {each}"),
        Table("shift", "int8_t", scale.shift, f"shift after it {each}, positive left"),
    )


def inside_table(bias: Int64) -> Table:
    """The array of `bias_inside`."""
    return Table("bias_inside", "int32_t", tuple(bias.tolist()), "bias with the zero point's share of a whole window")


def input_offset(bound: BoundNode, *, folded: bool) -> Param:
    """What is added to every input value."""
    x = bound.input(0)
    assert x.quantization
    return Param("input_offset", "int32_t", 0 if folded else -x.quantization.zero_point, "minus the zero point")


def output_params(bound: BoundNode, scale: Requantization, clamp: Clamp) -> tuple[Param, ...]:
    """Output offset, clamp and table step as members of the parameter struct."""
    y = bound.output
    assert y.quantization
    return (
        Param("output_offset", "int32_t", y.quantization.zero_point),
        Param("clamp_low", "int32_t", clamp.low),
        Param("clamp_high", "int32_t", clamp.high),
        Param("channel_step", "int32_t", int(scale.per_channel), "0: one multiplier and shift for all channels"),
    )


def pixels(rows: int, depth: int, out: int) -> tuple[tuple[Param, ...], Param]:
    """Window parameters and groups of a 1x1 convolution of `rows` images of one pixel."""
    pixel = {"batches": rows, "in_c": depth, "out_c": out, "pad_top": 0, "pad_left": 0}
    return tuple(Param(name, "int32_t", pixel.get(name, 1)) for name in WINDOW_PARAMS), Param("groups", "int32_t", 1)


def matrix_product(bound: BoundNode, scale: Requantization, clamp: Clamp, rows: int, *, folded: bool) -> Layer:
    """Rows of inputs times the weights [O, ...]: one layer for fully connected and for 1x1 convolutions.

    Without the zero point in the bias it is a 1x1 convolution of `rows` images of one pixel.
    """
    x, w = bound.input(0), bound.input(WEIGHTS)
    assert x.quantization
    out = w.shape[0]
    depth = w.elements // out
    weights, bias = weights_of(bound), bias_of(bound, out)
    tail = output_params(bound, scale, clamp)
    macs = rows * out * depth
    kind = flavour(bound, weights)
    raw = raw_weights(bound)
    params, groups = pixels(rows, depth, out)
    overlaps = window_overlap(bound, params, whole_window(out, TOGETHER, bound.output.dtype.bytes))
    if (folded or x.quantization.zero_point == 0) and raw is not None:
        constants = (*tables(raw[0], bias, scale, interleaved=True), zero_table(raw[1]))
        size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out", "int32_t", out))
        return Layer(
            "fully_connected", "portable", (0,), constants, size + tail, macs=macs, flavour=with_weight_zero(kind),
            overlaps=overlaps, by_rows=ByRows(counted="rows"),
        )  # fmt: skip
    if (folded or x.quantization.zero_point == 0) and byte_sized(bound, weights):
        constants = tables(weights, bias, scale, interleaved=True)
        size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out", "int32_t", out))
        return Layer(
            "fully_connected", "portable", (0,), constants, size + tail, macs=macs, flavour=kind, overlaps=overlaps,
            by_rows=ByRows(counted="rows"),
        )  # fmt: skip
    offset = input_offset(bound, folded=folded)
    return Layer(
        "conv_2d_taps", "portable", (0,), tables(weights, bias, scale), (*params, groups, offset, *tail), macs=macs,
        flavour=kind, overlaps=window_overlap(bound, params, by_channel(out, 1, depth, x.dtype.bytes, bound.output.dtype.bytes)),
    )  # fmt: skip
