"""Sums of products, and how they become outputs: what convolutions and fully connected layers share.

acc = bias + sum((x - x_zero) * w), int32; y = clamp(y_zero + requantize(acc)), one multiplier per output channel or one for
all. With the zero point folded, bias' = bias - x_zero * sum(w) and the sum takes x as it is; legal where no window
reaches outside the input. The factor is x_scale * w_scale / y_scale in double, as a Q31 multiplier and a shift; for 64-bit sums
of int16 inputs the multiplier has 16 bits (int16x8.py); legacy uint8 FULLY_CONNECTED takes the factor in double and rounds once.
Source: TFLite 8-bit quantization specification.

ONNX: the factor is float32(x_scale * w_scale / y_scale), each operation in float32, and requantization is one float32
product rounded half to even (ONNX Runtime's integer kernels). Weights may have zero points: w - w_zero is stored then, as
int16. int16 inputs are summed by the same loops.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.mac.weight_packing import BLOCK, PACKED, shape_text, weight_table
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.pointwise import bound_params, bounded, limited, onnx_activation, operand
from emitc.kernels.shared.windows import BY_ROWS, WINDOW_PARAMS, Window, whole_window, window_overlap
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, Table, by_channel, integers
from emitc.numerics.requantize import (
    INT32_MAX,
    Clamp,
    Int64,
    activation_clamp,
    multiplier_of,
    requantize,
    requantize_exact,
    requantize_float,
    requantize_reduced,
)
from emitc.records import dataclass, replace
from emitc.source import SourceNode

WEIGHTS = 1
BIAS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulating(Op):
    """An operator that sums products. int32_sums: of int16 inputs without a bias, which then have no 64 bits."""

    int32_sums: bool = False

    @property
    def rounds_once(self) -> bool:
        """Whether the one product with the double factor is rounded once."""
        return False


def int32_sums(node: SourceNode) -> bool:
    """Whether the options of a TFLite operator ask for sums of 32 bits where the bias does not tell."""
    return node.attributes.get("quantized_bias_type") == "INT32"


@dataclass(frozen=True, slots=True)
class Requantization:
    """Multipliers (Q31) and shifts (positive left), or float32 factors: one each, or one per output channel.

    reduced: multipliers are taken in 16 bits, for sums of 64 bits. exact: the factor in double, 0 where it is not that.
    """

    q31: tuple[int, ...] = ()
    shift: tuple[int, ...] = ()
    real: tuple[float, ...] = ()
    reduced: bool = False
    exact: float = 0.0

    @property
    def per_channel(self) -> bool:
        return len(self.q31 or self.real) > 1

    def apply(self, acc: Int64, zero_point: int, clamp: Clamp, dtype: DType) -> Array:
        """acc [..., O] to quantized outputs; a sum with the zero point that leaves int32 wraps, as 32-bit code does."""
        if self.real:
            scaled = requantize_float(acc, np.array(self.real, np.float32))
            return clamp.apply(scaled + zero_point, dtype)
        if self.exact:
            return clamp.apply(requantize_exact(acc, self.exact) + zero_point, dtype)
        rule = requantize_reduced if self.reduced else requantize
        scaled = rule(acc, np.array(self.q31, np.int64), np.array(self.shift, np.int64))
        return clamp.apply((scaled + zero_point).astype(np.int32).astype(np.int64), dtype)


_LAYERS = 64
"""Whose multipliers are remembered."""
SMALLEST_NORMAL = 2.0**-126
"""Lowest float32 factor with all its bits."""
FACTOR_LIMIT = 2.0**30 - 0.25
"""From here on the multiplier rounds to 2**30, which a shift of at most 30 cannot express."""


def rounds_once(bound: BoundNode) -> bool:
    """Whether sums are multiplied by the factor in double and rounded once."""
    return isinstance(bound.node.op, Accumulating) and bound.node.op.rounds_once


def real_factors(bound: BoundNode) -> list[float]:
    """Real factor from accumulator to output in double, one for each weight scale.

    LiteRT's uint8 convolutions round the product of the scales to float32 (accumulators between the two multipliers show it).
    """
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert w.quantization
    if bound.node.op.numerics is Numerics.UNSIGNED and not rounds_once(bound):
        with np.errstate(over="ignore", under="ignore"):
            products = np.float32(x.scale) * np.array(w.quantization.scales, np.float32)
        return [float(product) / y.scale for product in products]
    of_x, of_y = x.scale, y.scale
    return [of_x * scale / of_y for scale in w.quantization.scales]


def float_factors(bound: BoundNode) -> tuple[float, ...]:
    """x_scale * w_scale / y_scale in float32, one for each weight scale, as the doubles that equal them."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert w.quantization
    with np.errstate(all="ignore"):
        product = np.float32(x.scale) * np.array(w.quantization.scales, np.float32)
        return tuple(float(v) for v in product / np.float32(y.scale))


def requantization(bound: BoundNode) -> Requantization:
    """x_scale * w_scale / y_scale in double, for one weight scale as for many.

    TFLite Micro's FULLY_CONNECTED is no exception: accumulators between the multipliers of the double and of the float32
    product of scales show it to take the double one. In ONNX every operation on scales is in float32.
    """
    if bound.node.op.numerics.float_scale:
        factors = float_factors(bound)
        return Requantization(real=factors[:1] if len(set(factors)) == 1 else factors)
    if rounds_once(bound):
        return Requantization(exact=real_factors(bound)[0])
    q31, shift = _multipliers(tuple(real_factors(bound)))
    return Requantization(q31, shift, reduced=reduced(bound))


@lru_cache(maxsize=_LAYERS)
def _multipliers(factors: tuple[float, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Multipliers and shifts, one of each where all are the same. Every variant of a kernel asks for those of its layer."""
    multipliers = [multiplier_of(factor) for factor in factors]
    q31 = tuple(m.q31 for m in multipliers)
    shift = tuple(m.shift for m in multipliers)
    return (q31[:1], shift[:1]) if len({*q31}) == len({*shift}) == 1 else (q31, shift)


def reduced(bound: BoundNode) -> bool:
    """Whether sums have 64 bits in TFLite Micro: those of int16 inputs, unless the bias has 32."""
    op, bias = bound.node.op, bound.optional(BIAS)
    if not int16x8.applies(bound):
        return False
    return bias.dtype is not DType.INT32 if bias else not (isinstance(op, Accumulating) and op.int32_sums)


def requantization_tables(scale: Requantization, kind: KernelSpec) -> tuple[Table, ...]:
    """Multipliers and shifts, or float32 factors, as constant arrays."""
    extent = "per output channel" if scale.per_channel else "for all channels"
    if scale.reduced:
        return int16x8.tables(scale.q31, scale.shift, kind, extent)
    if scale.real:
        return (Table("multiplier", "float", scale.real, f"float32 factor {extent}"),)
    return (
        Table("multiplier", "int32_t", scale.q31, f"Q31 multiplier {extent}"),
        Table("shift", "int8_t", scale.shift, f"shift of the product {extent}, positive left"),
    )


def output_limits(bound: BoundNode, clamp: Clamp) -> tuple[Param, ...]:
    return integers(output_offset=bound.output.zero_point, clamp_low=clamp.low, clamp_high=clamp.high)


def output_params(bound: BoundNode, scale: Requantization, clamp: Clamp) -> tuple[Param, ...]:
    step = Param(
        "per_channel", "int32_t", int(scale.per_channel), "1: each output channel has its own multiplier and shift"
    )
    return (*output_limits(bound, clamp), step)


def in_float(bound: BoundNode) -> bool:
    return bound.node.op.numerics.float_scale and bound.input(0).dtype is DType.FLOAT32


def tflite_numerics(node: SourceNode) -> Numerics:
    """Of plain numbers where inputs and weights are float32."""
    floats = node.input(0).dtype == "float32" and node.input(WEIGHTS).dtype == "float32"
    return Numerics.PLAIN if floats else Numerics.TFLITE


def float_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[NDArray[np.float32], ...]:
    """x, weights and bias in float32, zeros where there is no bias."""
    bias = np.zeros(1, np.float32) if bound.optional(BIAS) is None else operand(bound, inputs, BIAS)
    x, w = operand(bound, inputs, 0), operand(bound, inputs, WEIGHTS)
    return x.astype(np.float32), w.astype(np.float32), bias.astype(np.float32)


def operands(
    bound: BoundNode, inputs: Sequence[Array | None], *, folded: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """For the references: inputs and weights less their zero points, and the bias in every place of the output.

    float32 for an operator in float, otherwise int64.
    """
    if in_float(bound):
        x, w, bias = float_reference(bound, inputs)
        return x, w, np.zeros(bound.output.shape, np.float32) + bias
    centred = operand(bound, inputs, 0).astype(np.int64) - (0 if folded else bound.input(0).zero_point)
    start = np.zeros(bound.output.shape, np.int64) + bias_of(bound, bound.output.shape[-1])
    return centred, weights_of(bound).astype(np.int64), start


def convolved(window: Window, image: NDArray[Any], weights: NDArray[Any], acc: NDArray[Any]) -> NDArray[Any]:
    """acc [N, OH, OW, O] and the products of the image with weights [O, KH, KW, I / groups], tap by tap."""
    out_c, kernel_h, kernel_w, in_c = weights.shape
    groups = image.shape[3] // in_c
    channels = out_c // groups
    for ky, kx, values in window.taps(image, 0, kernel_h, kernel_w):
        for g in range(groups):
            group = slice(g * channels, (g + 1) * channels)
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
    activation: str,
    *,
    filters: Array | None = None,
    by_tap: bool = False,
    bias_last: bool = False,
) -> Layer:
    """A convolution in float32. params: window and groups. Constant weights and bias become tables.

    activation: fused; in TFLite the bias is added last, and every sum limited. filters: the weights as [O, KH, KW, I / groups]
    where the operator has them otherwise. by_tap: computed weights lie tap by tap, [1, KH, KW, O]. bias_last: it is in ONNX, too.
    """
    w, bias = bound.input(WEIGHTS), bound.optional(BIAS)
    channels = bound.output.shape[-1]
    operands, constants = [0], []
    if w.is_constant:
        values = tuple((w.array() if filters is None else filters).reshape(-1).tolist())
        constants.append(Table("weights", "float", values, shape_text(w.shape), pixels_per_load=1))
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
    if by_tap and not w.is_constant:
        spec = spec.extended("_interleaved", interleaved=True)
    return Layer(
        "convolution/conv_2d_float", "portable", tuple(operands), tuple(constants), params, overlaps=overlaps,
        macs=bound.output.elements * w.elements // channels, spec=spec,
        by_rows=BY_ROWS if len(w.shape) == 4 and len(operands) == 1 else None,
    )  # fmt: skip


def weights_of(bound: BoundNode) -> Array:
    """The weights less their zero points: int8 where these are all 0, otherwise int16."""
    w = bound.input(WEIGHTS)
    assert w.quantization
    if not any(w.quantization.zero_points):
        return w.array()
    _, zero_points = w.quantization.spread(len(w.shape))
    return np.asarray(w.array().astype(np.int16) - zero_points.astype(np.int16))


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


def spec(bound: BoundNode, weights: Array) -> KernelSpec:
    """What the kernel is printed for: the requantization, and the types of inputs, weights, sums and outputs.

    weights: [O, ...], every weight of an output channel's sum.
    """
    x, w, y = bound.input(0).dtype.c_type, f"{weights.dtype.name}_t", bound.output.dtype.c_type
    if int16x8.applies(bound):
        filters, scale = weights.astype(np.int64).reshape(len(weights), -1), requantization(bound)
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
    bias = bias_of(bound, len(sums))
    return bias + bound.input(0).zero_point * sums if folded else bias


def bias_inside(bound: BoundNode, filters: Int64, *, folded: bool) -> Int64 | None:
    """The bias for windows that lie wholly inside the input, where the zero point's term is always the same.

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


def tables(bound: BoundNode, weights: Array, spec: KernelSpec, *, interleaved: bool = False) -> tuple[Table, ...]:
    """Weights, bias, multipliers and shifts as constant arrays.

    spec: of the kernel that they are for. interleaved: filters first, in blocks of four.
    """
    return (
        weight_table(weights, interleaved=interleaved, packed=spec.int4_weights),
        Table("bias", spec.acc, tuple(bias_of(bound, bound.output.shape[-1]).tolist()), "bias per output channel"),
        *requantization_tables(requantization(bound), spec),
    )


def inside_tables(bound: BoundNode, bias: Int64) -> tuple[Table, ...]:
    """The array of `bias_inside`; none for symmetric inputs, where it is the bias."""
    if int16x8.applies(bound):
        return ()
    comment = "bias with the zero point's share of a whole window"
    return (Table("bias_inside", "int32_t", tuple(bias.tolist()), comment),)


def block_tables(
    bound: BoundNode, weights: Array, spec: KernelSpec, inside: Int64 | None = None
) -> tuple[tuple[Table, ...], KernelSpec] | None:
    """The tables and the spec of a kernel that reads filters in blocks of four; None where their types have no such kernel.

    weights: [O, ...] less their zero points. inside: as `bias_inside` gives it. Weights with zero points stay bytes: the
    kernel takes the zero points off by the sum of the inputs.
    """
    of_inside = () if inside is None else inside_tables(bound, inside)
    if (raw := raw_weights(bound)) is not None:
        zeros = Table("weight_zero", "int8_t", raw[1], "zero point of the weights per output channel")
        byte_spec = replace(spec, suffix=f"{spec.suffix.replace('_w16', '')}_wz", w="int8_t", weight_zero=True)
        return (*tables(bound, raw[0], spec, interleaved=True), *of_inside, zeros), byte_spec
    if suits_fast(bound, weights):
        return (*tables(bound, weights, spec, interleaved=True), *of_inside), spec
    return None


def input_offset(bound: BoundNode, *, folded: bool) -> Param:
    return Param("input_offset", "int32_t", 0 if folded else -bound.input(0).zero_point, "minus the zero point")


def groups_param(groups: int) -> Param:
    return Param("groups", "int32_t", groups)


def pixel_params(rows: int, depth: int, out: int) -> tuple[Param, ...]:
    """Window parameters of a 1x1 convolution of `rows` images of one pixel."""
    pixel = {"batches": rows, "in_c": depth, "out_c": out, "pad_top": 0, "pad_left": 0}
    return tuple(Param(name, "int32_t", pixel.get(name, 1)) for name in WINDOW_PARAMS)


def matrix_product(bound: BoundNode, clamp: Clamp, *, folded: bool) -> Layer:
    """Rows of inputs times the weights [O, ...]: one layer for fully connected and for 1x1 convolutions.

    Without the zero point in the bias it is a 1x1 convolution of as many images of one pixel as there are rows.
    """
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    out = w.shape[0]
    rows, depth = y.elements // out, w.elements // out
    weights, params = weights_of(bound), pixel_params(rows, depth, out)
    plain = spec(bound, weights)
    outputs = output_params(bound, requantization(bound), clamp)
    macs = rows * out * depth
    blocks = block_tables(bound, weights, plain) if folded or x.zero_point == 0 else None
    if blocks is not None:
        sizes, by_rows = integers(**{"rows": rows, "in": depth, "out": out}), ByRows(counted="rows", outputs=BLOCK)
        overlaps = window_overlap(bound, params, whole_window(out, BLOCK, y.dtype.bytes))
        template, (arrays, kind) = "matrix/fully_connected", blocks
        return Layer(template, "portable", (0,), arrays, (*sizes, *outputs), (), overlaps, macs, kind, by_rows=by_rows)
    arrays = tables(bound, weights, plain)
    params = (*params, groups_param(1), input_offset(bound, folded=folded), *outputs)
    overlaps = window_overlap(bound, params, by_channel(out, 1, depth, x.dtype.bytes, y.dtype.bytes))
    return Layer("convolution/conv_2d_taps", "portable", (0,), arrays, params, (), overlaps, macs, plain)
