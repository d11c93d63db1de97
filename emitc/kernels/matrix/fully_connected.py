"""FULLY_CONNECTED: y = requantize((x - x_zero) @ w.T + b).

Shapes  x [..., I] flattened to rows of I, w [O, I], b [O] or none, y [rows, O], or x's leading dimensions with
        keep_num_dims.
Types   int8, b and accumulator int32; w int4; x and y int16, b int64 or int32 (int16x8.py); float32; legacy
        uint8, held as int8.
        Computed weights: fully_connected_runtime.py.
        int8 weights with one scale may have a zero point.
Errors  a weight zero point otherwise; an accumulator that can overflow int32; shuffled weights.
Source  TFLite 8-bit quantization specification, FULLY_CONNECTED.

float32 of TFLite: y = clamp((x @ w.T) + b), the products summed in order, the bias added last.
Errors  computed weights; other types in between (hybrid models).
Source  TFLite Micro's float kernel, for the order of the sums.

Legacy uint8: y = clamp(y_zero + round((bias + sum((x - x_zero) * (w - w_zero))) * factor)).
Types   x, w and y int8, 128 lower than in the model; bias and sum int32.
        factor = x_scale * w_scale / y_scale in double; the one rounding takes ties away from zero.
Errors  factors of 2**20 or more, and sums that it takes out of int32. Also factors for which the engine's product in double,
        itself rounded to 53 bits, makes a tie of what is none.
Source  LiteRT's reference kernel, measured: sums next to every tie, where a Q31 multiplier, the float32 product of the scales,
        and ties upward or to even all give other results.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_rank, requires, unsupported
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import accumulation, dsp_int8, four_channels, int16_dsp_mve, mve_int8, riscv_int8, scalar_int8
from emitc.kernels.mac.operand_checks import (
    check_accumulator,
    check_float_operands,
    check_operands,
    require_constants,
    require_fitting_rows,
    rows_shape,
)
from emitc.kernels.mac.problem import MacProblem, maker
from emitc.kernels.matrix import fully_connected_runtime
from emitc.kernels.shared.pointwise import bound_params, operand
from emitc.kernels.shared.windows import ACTIVATIONS
from emitc.layer import KernelSpec, Layer, Param, Table, integers
from emitc.numerics.requantize import INT32_MAX, Clamp, activation_clamp, double_shows, exact_multiplier_of
from emitc.records import dataclass, replace
from emitc.source import SourceNode


def _plain_floats(bound: BoundNode) -> bool:
    """Whether inputs and weights are float32 in a TFLite model."""
    floats = bound.input(0).dtype is DType.FLOAT32 and bound.input(accumulation.WEIGHTS).dtype is DType.FLOAT32
    return floats and bound.node.op.numerics is Numerics.TFLITE


def _float_layer(bound: BoundNode, activation: str) -> Layer:
    w = bound.input(accumulation.WEIGHTS)
    out, depth = w.shape
    rows, bias = bound.input(0).elements // depth, bound.optional(accumulation.BIAS)
    offsets = (0.0,) * out if bias is None else tuple(bias.array().tolist())
    tables = (
        Table("weights", "float", tuple(w.array().reshape(-1).tolist()), f"weights {out}x{depth}", pixels_per_load=0),
        Table("bias", "float", offsets, "bias per output"),
    )
    params = (*integers(**{"rows": rows, "in": depth, "out": out}), *bound_params(activation, DType.FLOAT32))
    return Layer("matrix/fully_connected_float", "portable", (0,), tables, params, macs=rows * out * depth)


def _as_pixels(layer: Layer) -> Layer:
    """The same layer as a 1x1 convolution of as many images of one pixel as it has rows."""
    values = {param.name: param for param in layer.params}
    window = accumulation.pixel_params(*(int(values[name].value) for name in ("rows", "in", "out")))
    return replace(
        layer,
        params=(*window, accumulation.groups_param(1), values["low"], values["high"]),
        spec=KernelSpec("_bounded", clamped=True, bias_last=True),
    )


PORTABLE_ONLY = "one rounding of a product in double"
_FACTOR_LIMIT = 2.0**20
_BYTE = 256


def _check_uint8(bound: BoundNode) -> None:
    """Refuses factors for which integers cannot give the engine's results."""
    factor = accumulation.requantization(bound).exact
    filters, y = accumulation.weights_of(bound).astype(np.int64), bound.output
    reach = int(np.abs(filters).sum(axis=1).max()) * _BYTE + int(
        np.abs(accumulation.bias_of(bound, len(filters))).max()
    )
    zero = y.zero_point
    if not 0.0 < factor < _FACTOR_LIMIT or min(reach, INT32_MAX) * factor > INT32_MAX - _BYTE:
        why = f"sums up to {reach} are multiplied by {factor!r}, which leaves int32"
    elif double_shows(factor, y.dtype.range[0] - zero, y.dtype.range[1] - zero):
        why = f"the product with {factor!r} in double, as LiteRT computes it, is rounded twice for some sum"
    else:
        return
    raise unsupported(bound, "of uint8 with these scales is not supported", why, "quantize the model to int8", y)


def _uint8_layer(bound: BoundNode, clamp: Clamp, rows: int, *, folded: bool) -> Layer:
    out, depth = bound.input(accumulation.WEIGHTS).shape
    w = bound.input(accumulation.WEIGHTS)
    factor = exact_multiplier_of(accumulation.requantization(bound).exact)
    tables = (
        Table("weights", "int8_t", tuple(w.array().reshape(-1).tolist()), "weights", pixels_per_load=0),
        Table("bias", "int32_t", tuple(accumulation.bias_of(bound, out).tolist()), "bias per output channel"),
    )
    params = (
        *integers(**{"rows": rows, "in": depth, "out": out}),
        accumulation.input_offset(bound, folded=folded),
        Param("weight_offset", "int32_t", -w.zero_point, "minus the zero point"),
        Param("factor_high", "uint32_t", factor.high, "of 53 bits"),
        Param("factor_low", "uint32_t", factor.low),
        Param("right", "int32_t", factor.right, "right shift of the product, in addition to 32 bits"),
        *accumulation.output_limits(bound, clamp),
    )
    return Layer("matrix/fully_connected_once", "portable", (0,), tables, params, macs=rows * out * depth)


@dataclass(frozen=True, slots=True)
class FullyConnected(accumulation.Accumulating):
    """activation: fused. keep_dims: the output keeps x's leading dimensions. zero_point_folded, bias_last: as for
    CONV_2D.
    """

    activation: str
    keep_dims: bool = False
    zero_point_folded: bool = False
    bias_last: bool = False

    @property
    def rounds_once(self) -> bool:
        """LiteRT's uint8 kernel multiplies sums in double."""
        return self.numerics is Numerics.UNSIGNED


def from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 3))
    node.text("weights_format", ("DEFAULT",))
    keep = bool(node.attribute("keep_num_dims", False))
    activation = node.fused_activation(ACTIVATIONS)
    if fully_connected_runtime.applies(node):
        op = fully_connected_runtime.ComputedFullyConnected(activation, keep, int32_sums=accumulation.int32_sums(node))
        return Parsed(op, (0, 1, 2))
    return Parsed(FullyConnected(activation, keep, int32_sums=accumulation.int32_sums(node)), (0, 1, 2))


def from_onnx(node: SourceNode) -> Parsed:
    """Gemm or MatMul with a constant matrix, turned to [O, I]; rows keep x's leading dimensions."""
    node.counts((2, 3))
    return Parsed(FullyConnected("NONE", keep_dims=True), (0, 1, 2))


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op, w = bound.op(FullyConnected), bound.input(accumulation.WEIGHTS)
    require_rank(bound, w, 2)
    in_float = accumulation.in_float(bound) or _plain_floats(bound)
    if in_float:
        check_float_operands(bound, w.shape[0])
        if _plain_floats(bound):
            require_constants(bound)
    else:
        check_operands(bound, 0, one_zero=True)
    require_fitting_rows(bound, keep_dims=op.keep_dims)
    if w.dtype.packed and w.quantization and not w.quantization.per_tensor:
        raise unsupported(
            bound,
            f"with {len(w.quantization.scales)} scales of 4-bit weights is not supported",
            "TFLite Micro, whose result is to be matched, takes one, and LiteRT rounds otherwise than for 8-bit weights",
            "quantize these weights with one scale, or to int8",
            w,
        )
    if not in_float:
        filters = accumulation.weights_of(bound).astype(np.int64)
        check_accumulator(bound, filters, folded=op.zero_point_folded)
    if op.rounds_once:
        _check_uint8(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """One matrix product in int64."""
    op, x, w, y = bound.op(FullyConnected), bound.input(0), bound.input(accumulation.WEIGHTS), bound.output
    if _plain_floats(bound):
        return (fully_connected_runtime.float_rows(bound, inputs, op.activation),)
    if accumulation.in_float(bound):
        values, weights, bias = accumulation.float_reference(bound, inputs)
        with np.errstate(all="ignore"):  # infinite weights give no number, as in the C
            product = values.reshape(-1, w.shape[1]) @ weights.T + bias
        return (accumulation.result(bound, product.reshape(y.shape), op.activation),)
    zero_point = 0 if op.zero_point_folded else x.zero_point
    rows = operand(bound, inputs, 0).astype(np.int64).reshape(-1, w.shape[1]) - zero_point
    acc = rows @ accumulation.weights_of(bound).astype(np.int64).T + accumulation.bias_of(bound, w.shape[0])
    return (accumulation.result(bound, acc.reshape(y.shape), op.activation),)


def lower(bound: BoundNode) -> Layer:
    """A matrix product, four output channels at a time."""
    op, (out, depth) = bound.op(FullyConnected), bound.input(accumulation.WEIGHTS).shape
    rows = bound.input(0).elements // depth
    if _plain_floats(bound):
        return _float_layer(bound, op.activation)
    if accumulation.in_float(bound):
        params = (*accumulation.pixel_params(rows, depth, out), accumulation.groups_param(1))
        return accumulation.float_layer(bound, params, op.activation, bias_last=op.bias_last)
    clamp = activation_clamp(op.activation, bound.output)
    if op.rounds_once:
        return _uint8_layer(bound, clamp, rows, folded=op.zero_point_folded)
    return accumulation.matrix_product(bound, clamp, folded=op.zero_point_folded)


@lru_cache(maxsize=1)
def _problem(bound: BoundNode) -> MacProblem:
    op, weights = bound.op(FullyConnected), accumulation.weights_of(bound)
    out, depth = weights.shape
    return MacProblem(bound, weights.reshape(out, 1, 1, depth), op.activation, op.zero_point_folded, None)


_integers = partial(maker, _problem)
"""The maker of a row: what a function of emitc/kernels/mac makes of the product."""


def _floats(bound: BoundNode, instructions: str) -> Layer | str:
    """The same of float32, four channels at a time."""
    layer = lower(bound)
    pixels = _as_pixels(layer) if _plain_floats(bound) else layer
    return four_channels.float_product(bound, pixels, instructions)


_QUANTIZED = (
    requires(lambda bound: not _plain_floats(bound), "its values are float32", "a quantized model"),
    requires(lambda bound: not bound.op(FullyConnected).rounds_once, PORTABLE_ONLY),
)
_INT8 = (*_QUANTIZED, dsp_int8.refusal)
_INT8_ZERO = (*_QUANTIZED, partial(dsp_int8.refusal, zero=True))
"""With weights that have one zero point, too."""
_INT16 = (*_QUANTIZED, requires(int16_dsp_mve.applies, "its values are not int16"))
_FLOAT = (requires(lambda bound: _plain_floats(bound) or accumulation.in_float(bound), "its values are integers"),)
_WORDS = Cost(mac=2.2, output=16, once=100)
_VARIANTS = (
    Variant(
        "mve", "mve", _integers(mve_int8.convolution),
        Costs("qemu_m55 at bed52a8, 2026-11-22", Cost(mac=0.167, output=7.9, once=130)), applies=_INT8,
    ),
    Variant(
        "mve", "mve", _integers(int16_dsp_mve.mve_convolution),
        Costs("qemu_m55 at 0a67a04, 2026-11-22", Cost(mac=0.35, output=16, once=60)), (DType.INT16,), _INT16,
    ),
    Variant(
        "mve", "mve", partial(_floats, instructions="mve"),
        Costs("qemu_m55 at e76b974, 2026-11-23", Cost(mac=1.21, output=7.5, once=70)),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant(
        "fpu", "fpu", partial(_floats, instructions="fpu"),
        Costs("qemu_m4 at e76b974, 2026-11-23", Cost(mac=2.5, output=17, once=100)),
        (DType.FLOAT32,), _FLOAT,
    ),
    Variant(
        "dsp", "dsp", _integers(dsp_int8.convolution),
        Costs("qemu_m4 at 02e8a07, 2026-11-26", Cost(mac=1.25, output=18, once=60)), applies=_INT8_ZERO,
    ),
    Variant(
        "dsp", "dsp", _integers(int16_dsp_mve.dsp_convolution),
        Costs("qemu_m4 at 0a67a04, 2026-11-22", Cost(mac=1.4, output=16, once=60)), (DType.INT16,), _INT16,
    ),
    Variant(
        "xpulp", "xpulp", _integers(riscv_int8.xpulp_convolution),
        Costs("rtl_cv32e40p_xpulp at 488ad82, 2026-11-26", Cost(mac=0.563, output=16, once=60)), applies=_INT8,
    ),
    Variant(
        "rvv", "rvv", _integers(riscv_int8.rvv_convolution),
        Costs("qemu_rv32v at 4e7c5a1, 2026-11-27", Cost(mac=0.5, output=1.5, once=100), factor=riscv_int8.share_of_lanes),
        applies=_INT8,
    ),
    Variant(
        "gpr31", "gpr31", _integers(scalar_int8.convolution, fours=True),
        Costs("qemu_rv32 at 2296c56, 2026-11-26", replace(_WORDS, mac=0.85 * _WORDS.mac)), applies=_INT8,
    ),
    Variant(
        "swar", "swar", _integers(scalar_int8.convolution), Costs("qemu_m3 at bed52a8, 2026-11-22", _WORDS), applies=_INT8
    ),
    Variant(
        "mul32", "mul32", _integers(scalar_int8.convolution, mul32=True),
        Costs("qemu_m0 at bed52a8, 2026-11-22", replace(_WORDS, output=0.9 * _WORDS.output)), applies=_INT8,
    ),
)  # fmt: skip


KERNELS = (
    KernelDef(
        FullyConnected,
        "matrix product of rows with weights",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        tflite={"FULLY_CONNECTED": from_tflite},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=lambda bound: (rows_shape(bound, keep_dims=bound.op(FullyConnected).keep_dims),),
        work=fully_connected_runtime.work,
        tflite_dtypes=(DType.INT8, DType.INT16, DType.UINT8, DType.FLOAT32),
        onnx={"FullyConnected": from_onnx},
        packed_input=accumulation.WEIGHTS,
        variants=_VARIANTS,
        cost=Costs(
            "qemu_m4 at dd4c478 bb9d374 c0f54a6, 2026-11-23",
            Cost(mac=2.569, output=28.8, once=190),
            {"int16": Cost(mac=3.0, output=30, once=190), "float32": Cost(mac=5.2, output=14)},
        ),
        cost_with_vectors=Costs(
            "qemu_m55 at dd4c478 bb9d374 c0f54a6, 2026-11-23",
            Cost(mac=2.53, output=30.8, once=180),
            {"int16": Cost(mac=3.0, output=30, once=190), "float32": Cost(mac=5.2, output=14)},
        ),
    ),
)
