"""Multiply-accumulate operators: what convolutions and fully connected layers share after the accumulator.

acc = bias + sum((x - x_zero) * w), int32; y = clamp(y_zero + requantize(acc)), one multiplier per output channel or one for
all. With the zero point folded, bias' = bias - x_zero * sum(w) and the sum takes x as it is; legal where no window
reaches outside the input. Source: TFLite 8-bit quantization specification.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import Layer, Param, Table, illegal, require_dtypes, require_quantization, unsupported
from emitc.kernels.spatial import WINDOW_PARAMS
from emitc.quantize import INT32_MAX, INT32_MIN, Clamp, Int64, multiplier_of, requantize

WEIGHTS = 1
BIAS = 2


@dataclass(frozen=True, slots=True)
class Requantization:
    """Multipliers (Q31) and shifts (positive left), one each or one per output channel."""

    q31: tuple[int, ...]
    shift: tuple[int, ...]

    @property
    def per_channel(self) -> bool:
        """Whether each output channel has its own."""
        return len(self.q31) > 1

    def apply(self, acc: Int64, zero_point: int, clamp: Clamp, dtype: DType) -> Array:
        """acc [..., O] to quantized outputs; a sum with the zero point that leaves int32 wraps, as 32-bit code does."""
        scaled = requantize(acc, np.array(self.q31, np.int64), np.array(self.shift, np.int64))
        return clamp.apply((scaled + zero_point).astype(np.int32).astype(np.int64), dtype)


_FACTOR_LIMIT = 2.0**30 - 0.25
"""From here on the multiplier rounds to 2**30, which a shift of at most 30 cannot express."""


def _factors(bound: BoundNode) -> list[float]:
    """Real factor from accumulator to output in double, one for each weight scale."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert x.quantization and w.quantization and y.quantization
    return [x.quantization.scale * scale / y.quantization.scale for scale in w.quantization.scales]


def requantization(bound: BoundNode) -> Requantization:
    """x_scale * w_scale / y_scale in double, for one weight scale as for many.

    TFLite Micro's FULLY_CONNECTED is no exception: accumulators between the multipliers of the double and of the float32
    product of scales show it to take the double one.
    """
    multipliers = [multiplier_of(factor) for factor in _factors(bound)]
    q31 = tuple(m.q31 for m in multipliers)
    shift = tuple(m.shift for m in multipliers)
    if len(set(q31)) == 1 and len(set(shift)) == 1:
        return Requantization(q31[:1], shift[:1])
    return Requantization(q31, shift)


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
    with_bias = (DType.INT8, DType.INT8, DType.INT32, DType.INT8)
    require_dtypes(bound, [with_bias if bias else (DType.INT8, DType.INT8, DType.INT8)], known)
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
    if any(scales.zero_points):
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
    factors = _factors(bound)
    if max(factors) >= _FACTOR_LIMIT:
        raise illegal(
            bound,
            "an output scale is out of proportion",
            f"input scale * weight scale / output scale = {max(factors)!r}",
            "quantize again",
            y,
        )
    if not w.is_constant or (bias is not None and not bias.is_constant):
        raise unsupported(
            bound, f"{bound.node.op_type} with computed weights is not supported", "weights and bias must be constants",
            "export the model with constant weights", w,
        )  # fmt: skip


def bias_of(bound: BoundNode, channels: int) -> Int64:
    """The bias [O] as integers, zeros where the model has none."""
    bias = bound.optional(BIAS)
    return np.zeros(channels, np.int64) if bias is None else bias.array().astype(np.int64)


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
    each = "per output channel" if scale.per_channel else "for all channels"
    return (
        Table("weights", "int8_t", tuple(weights.reshape(-1).tolist()), f"weights {shape}"),
        Table("bias", "int32_t", tuple(bias.tolist()), "bias per output channel"),
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


def matrix_product(bound: BoundNode, scale: Requantization, clamp: Clamp, rows: int, *, folded: bool) -> Layer:
    """Rows of inputs times the weights [O, ...]: one layer for fully connected and for 1x1 convolutions.

    Without the zero point in the bias it is a 1x1 convolution of `rows` images of one pixel.
    """
    x, w = bound.input(0), bound.input(WEIGHTS)
    assert x.quantization
    out = w.shape[0]
    depth = w.elements // out
    weights, bias = w.array(), bias_of(bound, out)
    tail = output_params(bound, scale, clamp)
    macs = rows * out * depth
    if folded or x.quantization.zero_point == 0:
        constants = tables(weights, bias, scale, interleaved=True)
        size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out", "int32_t", out))
        return Layer("fully_connected", "portable", (0,), constants, size + tail, macs=macs)
    pixel = {"batches": rows, "in_c": depth, "out_c": out, "pad_top": 0, "pad_left": 0}
    params = tuple(Param(name, "int32_t", pixel.get(name, 1)) for name in WINDOW_PARAMS)
    groups = Param("groups", "int32_t", 1)
    offset = input_offset(bound, folded=folded)
    return Layer(
        "conv_2d_taps", "portable", (0,), tables(weights, bias, scale), (*params, groups, offset, *tail), macs=macs
    )
