"""ADD, SUB, MUL and DIV, with broadcasting and a fused activation; ONNX's Add, Sub, Mul and Div.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   int8 and int16, each tensor with its own scale; DIV int8 alone (`quantized_operands.py`). float32, int32 and int64,
        where results are limited to the activation's bounds (`real_activation.py`), except for sums of int32, whose activation
        TFLite Micro leaves out. ONNX: numbers of any type, int8 and int16
        with scales (`onnx_arithmetic.py`).
ADD, SUB  both inputs, shifted left by 20 bits (int16: 15), are requantized to twice the larger input scale; their sum
          or difference is requantized to the output.
MUL       (a - a_zero) * (b - b_zero) requantized by a_scale * b_scale / y_scale.
Source    TFLite 8-bit quantization specification; shifts and roundings as TFLite Micro's kernels, ratios of scales in double.
Errors    ratios of scales at which TFLite Micro stops.

A sum of two int8 values has only 65 536 cases. So the layer computes (a * a_weight + b * b_weight + bias) >> shift in 32 bits,
where there are weights that give the specified result in every case (`pairs.py`). Otherwise it computes the specified sequence.
"""

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from emitc.errors import Note, NoteCode
from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, out_of_proportion, require_dtypes
from emitc.kernels.costs import UNKNOWN, Cost, Costs
from emitc.kernels.elementwise import onnx_arithmetic, quantized_operands
from emitc.kernels.elementwise.quantized_operands import (
    CommonScale,
    byte_pairs,
    common_scale,
    requantized_layer,
    scales,
    table_layer,
    weighted_layer,
    zero_points,
)
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER
from emitc.kernels.mac.dsp_int8 import HEADER as DSP_HEADER
from emitc.kernels.mac.int16_dsp_mve import DSP_HEADER as SHORTS_HEADER
from emitc.kernels.mac.mve_int8 import HEADER as MVE_HEADER
from emitc.kernels.mac.problem import LARGEST_SHIFT
from emitc.kernels.mac.riscv_int8 import XPULP_HEADERS as XPULP_HEADERS
from emitc.kernels.shared.broadcast import check_binary, output_shapes, same_types
from emitc.kernels.shared.pointwise import bounded, by_vectors, operand, plain_numerics, require_activation, values_of
from emitc.kernels.shared.windows import ACTIVATIONS
from emitc.layer import PLAIN, Formula, Layer, Param
from emitc.numerics.exhaustive_fit import WeightedSum, weighted_sum
from emitc.numerics.requantize import Clamp, Int64, Multiplier, activation_clamp, multiplier_of, requantize
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_LEFT_SHIFTS = {DType.INT8: 20, DType.INT16: 15}
"""Bits that ADD and SUB gain before they round."""
_PRODUCT, _RESCALED_SUM = "elementwise/quantized_product/product", "elementwise/quantized_sum/rescaled_sum"
_WEIGHTED_SUM = "elementwise/quantized_sum/weighted_sum"
_MVE_SUMS = "emitc_mve_sums.h"
_OF_BYTES = (_PRODUCT, _WEIGHTED_SUM)
"""Templates that have twins for four bytes at a time."""
_SHORT = 16
"""Sums that are shifted down by so much have as many bits left."""
_FURTHEST = 30
"""Largest shift to the right of a sum of int16: half of the last bit then has room in the 32 bits of the sum."""
_WIDEST = 1 << 23
"""Weights below are less than 32 bits when multiplied by 256."""

_ANY_WEIGHT = 1 << 31
"""Weights of a sum whose steps stay within int32 are below."""
_REMEMBERED = 256
"""Sums whose weights are remembered: the variants of a node ask for them, for one target after another."""


@dataclass(frozen=True, slots=True)
class Arithmetic(Op):
    """activation: fused. unsigned: the model's numbers are uint8, 128 higher. exchanged: QLinearAdd takes b first."""

    activation: str
    unsigned: bool = False
    exchanged: bool = False


class Add(Arithmetic):
    """a + b."""


class Sub(Arithmetic):
    """a - b."""


class Mul(Arithmetic):
    """a * b."""


class Div(Arithmetic):
    """a / b."""


_OPERATORS: dict[type[Op], str] = {Add: "+", Sub: "-", Mul: "*", Div: "/"}
_BROADCAST_ATTRIBUTE = 7
"""Up to opset 6 only the second operand is repeated, along dimensions that the attribute axis places."""


def _from_tflite(op: type[Arithmetic], node: SourceNode) -> Parsed:
    node.counts((2, 2))
    activation = node.fused_activation(ACTIVATIONS)
    return Parsed(op(activation, numerics=plain_numerics(node)), (0, 1))


def _from_onnx(op: type[Arithmetic], node: SourceNode) -> Parsed:
    node.counts((2, 2))
    a, b = node.input(0).shape, node.input(1).shape
    if not node.op_type.startswith("QLinear") and node.integer("opset", 13) < _BROADCAST_ATTRIBUTE:
        _require_trailing(node, a, b)
    unsigned = bool(node.integer("unsigned", 0, 0, 1))
    exchanged = op is Add and onnx_arithmetic.operands_change_places(a, b)
    return Parsed(op("NONE", unsigned, exchanged), (0, 1))


def _require_trailing(node: SourceNode, a: Shape, b: Shape) -> None:
    """Refuses an old operator that repeats its second operand elsewhere than along leading dimensions."""
    axis = node.integer("axis", len(a) - len(b))
    if a != b and axis % max(len(a), 1) != (len(a) - len(b)) % max(len(a), 1):
        why = f"{list(b)} is repeated along trailing dimensions of {list(a)}"
        raise node.unsupported(f"with axis {axis} is not supported", why, "convert the model to opset 7 or later")


def _sum_scale(bound: BoundNode) -> CommonScale:
    return common_scale(scales(bound), _LEFT_SHIFTS[bound.output.dtype])


def check(bound: BoundNode) -> None:
    """Refuses what check_binary does, and scales whose ratio the fixed-point arithmetic cannot hold."""
    op = bound.op(Arithmetic)
    if op.numerics is not Numerics.TFLITE:
        onnx_arithmetic.check(bound, _OPERATORS[type(op)], op.activation)
        return
    if isinstance(op, Div):
        require_dtypes(bound, same_types((DType.FLOAT32, DType.INT32, DType.INT8)), same_types((DType.INT16,)))
    check_binary(bound)
    require_activation(bound, op.activation, bound.output)
    if isinstance(op, Div):
        quantized_operands.require_quotient_scales(bound)
        return
    a, b, y = scales(bound)
    # The largest product has 16 bits, or 30: so many bits more to the left would take it out of int32.
    largest = 1 << 15 if bound.output.dtype is DType.INT8 else 1
    fits = a * b / y < largest if isinstance(op, Mul) else all(0.0 < f < 1.0 for f in _sum_scale(bound).factors)
    if not fits:
        why = f"inputs {a!r} and {b!r}, output {y!r}: the ratio does not fit the fixed-point arithmetic"
        raise out_of_proportion(bound, why)


def _clamp(bound: BoundNode) -> Clamp:
    op = bound.op(Arithmetic)
    if op.numerics is not Numerics.TFLITE:
        return onnx_arithmetic.clamp_of(bound, op.activation)
    return activation_clamp(op.activation, bound.output)


def _applied(bound: BoundNode) -> str:
    """What of the fused activation is computed."""
    op = bound.op(Arithmetic)
    ignored = isinstance(op, Add) and op.numerics is Numerics.PLAIN and bound.output.dtype is DType.INT32
    return "NONE" if ignored else op.activation


def _note(bound: BoundNode) -> Note | None:
    """That an activation is left out."""
    activation = bound.op(Arithmetic).activation
    if _applied(bound) == activation:
        return None
    return Note(NoteCode.LEFT_OUT, f"fused {activation} is left out, as in TFLite Micro; LiteRT applies it")


def _results(bound: BoundNode, a: Int64, b: Int64) -> Int64:
    """The results, clamped, of quantized values that broadcast against each other."""
    op, clamp = bound.op(Arithmetic), _clamp(bound)
    if op.numerics is not Numerics.TFLITE:
        return onnx_arithmetic.combined(bound, _OPERATORS[type(op)], clamp, a, b)
    if isinstance(op, Div):
        return quantized_operands.quotients(bound, a, b, clamp)
    zeros = zero_points(bound)
    if not isinstance(op, Mul):
        return _rescaled_sums(_sum_scale(bound), zeros, _sign(bound), clamp, a, b)
    last = _product_multiplier(bound)
    acc = (a - zeros[0]) * (b - zeros[1])
    return np.clip(requantize(acc, last.q31, last.shift) + zeros[2], clamp.low, clamp.high)


def _rescaled_sums(
    scale: CommonScale, zeros: tuple[int, int, int], sign: int, clamp: Clamp, a: Int64, b: Int64
) -> Int64:
    """a + sign * b, clamped. zeros: zero points of a, b and the sum."""
    scaled_a, scaled_b = scale.operands(zeros, a, b)
    last = scale.multipliers[2]
    acc = scaled_a - scaled_b if sign < 0 else scaled_a + scaled_b
    return np.clip(requantize(acc, last.q31, last.shift) + zeros[2], clamp.low, clamp.high)


def _product_multiplier(bound: BoundNode) -> Multiplier:
    a, b, y = scales(bound)
    return multiplier_of(a * b / y)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's broadcasting over the specified sequence of roundings."""
    y, op = bound.output, bound.op(Arithmetic)
    if onnx_arithmetic.is_quantized(bound):
        result = _results(bound, values_of(bound, inputs, 0), values_of(bound, inputs, 1))
        return (result.astype(y.dtype.value).reshape(y.shape),)
    numbers = operand(bound, inputs, 0), operand(bound, inputs, 1)
    output = onnx_arithmetic.plain(_OPERATORS[type(op)], *numbers, y.dtype).reshape(y.shape)
    return (bounded(output, _applied(bound), y.dtype) if op.numerics is Numerics.PLAIN else output,)


def _sign(bound: BoundNode) -> int:
    """Of the second operand of a sum or a difference."""
    return -1 if isinstance(bound.node.op, Sub) else 1


@lru_cache(maxsize=_REMEMBERED)
def _sum_weights(
    scales: tuple[float, float, float], zeros: tuple[int, int, int], sign: int, clamp: Clamp, widest: int
) -> WeightedSum | None:
    """The weights of a + sign * b of int8, each less than `widest`; None where there are none."""
    if widest < _ANY_WEIGHT:
        # The wider search looks at the same weights in the same order, and at more of them.
        weights = _sum_weights(scales, zeros, sign, clamp, _ANY_WEIGHT)
        if weights is None or max(abs(weights.a_weight), abs(weights.b_weight)) < widest:
            return weights
    (a, b, y), (zero_a, zero_b, zero_y) = scales, zeros
    offset = zero_y - zero_a * a / y - sign * zero_b * b / y
    results = byte_pairs(partial(_rescaled_sums, common_scale(scales, _LEFT_SHIFTS[DType.INT8]), zeros, sign, clamp))
    return weighted_sum(results, a / y, sign * b / y, offset, clamp, widest)


def _sum_layer(bound: BoundNode, widest: int) -> Layer:
    """Of int8 by weights where these give the same bits, else the specified sequence. widest: weights are less."""
    if bound.output.dtype is DType.INT8:
        weights = _sum_weights(scales(bound), zero_points(bound), _sign(bound), _clamp(bound), widest)
        if weights is not None:
            return weighted_layer(bound, weights, _clamp(bound))
    b_sign = (Param("b_sign", "int32_t", _sign(bound)),)
    return _sum_scale(bound).layer(bound, _RESCALED_SUM, _clamp(bound), b_sign)


def lower(bound: BoundNode, widest: int = _ANY_WEIGHT) -> Layer:
    """A table where one input decides and the tensor is no smaller than the table; else a loop over both operands.

    widest: weights of a weighted sum are less.
    """
    op = bound.op(Arithmetic)
    if not onnx_arithmetic.is_quantized(bound):
        return onnx_arithmetic.plain_layer(bound, _OPERATORS[type(op)], _applied(bound))
    if table := table_layer(bound, partial(_results, bound)):
        return table
    if op.numerics is not Numerics.TFLITE:
        return onnx_arithmetic.quantized_layer(bound, _OPERATORS[type(op)], _clamp(bound), widest)
    if isinstance(op, Div):
        return quantized_operands.quotient_layer(bound, _clamp(bound))
    if isinstance(op, Mul):
        return requantized_layer(bound, _PRODUCT, _product_multiplier(bound), _clamp(bound))
    return _sum_layer(bound, widest)


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four elements of equal shapes at a time: sums by weights or as specified, products of bytes; tables as everywhere."""
    layer = lower(bound)
    if layer.kernel_name in onnx_arithmetic.REALS:
        return onnx_arithmetic.real_variant(bound, layer, "mve")
    if layer.kernel_name in onnx_arithmetic.PRODUCTS:
        return onnx_arithmetic.product_variant(bound, layer, _clamp(bound), "mve")
    if not (layer.template in _OF_BYTES and bound.output.dtype is DType.INT8) and layer.template != _RESCALED_SUM:
        return by_vectors(layer)
    sums = (_MVE_SUMS,) if layer.template == _WEIGHTED_SUM else ()
    return replace(layer, template=f"{layer.template}_mve", headers=(MVE_HEADER, *sums))


_OF_ROWS = {
    "plain_sum": ("emitc_sums_fpu", "+"),
    "plain_difference": ("emitc_differences_fpu", "-"),
    "plain_product": ("emitc_products_fpu", "*"),
}
"""Kernels of which float units have a function of rows of float32, and C's operator."""


def lower_fpu(bound: BoundNode) -> Layer | str:
    """The float unit's own rounding; rows of float32 by loads of four."""
    layer = lower(bound)
    if layer.kernel_name in _OF_ROWS and layer.spec.x == "float":
        function, operator = _OF_ROWS[layer.kernel_name]
        formula = Formula(f"{layer.kernel_name}_fpu", function, f"a {operator} b")
        headers = ("emitc_fpu_elementwise.h",)
        return replace(layer, template="elementwise/binary_rows_fpu", formula=formula, headers=headers)
    return onnx_arithmetic.real_variant(bound, layer, "fpu")


def lower_dsp(bound: BoundNode) -> Layer | str:
    """Elements of equal shapes: bytes four at a time, sums by weights, products by the short requantization; sums of int16."""
    layer = lower(bound, _WIDEST)
    if layer.template == _RESCALED_SUM and bound.output.dtype is DType.INT16:
        return _paired_sum(bound, layer)
    if layer.kernel_name in onnx_arithmetic.PRODUCTS:
        return onnx_arithmetic.product_variant(bound, layer, _clamp(bound), "dsp")
    if layer.template not in _OF_BYTES or bound.output.dtype is not DType.INT8:
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    values = {param.name: int(param.value) for param in layer.params}
    if layer.template == _PRODUCT:
        if not -LARGEST_SHIFT <= values["shift"] <= -1:
            return "a product that is shifted to the left, or out of 32 bits"
    elif values["right"] < _SHORT:
        return "a sum of more than 16 bits"
    clamped = (values["clamp_low"], values["clamp_high"]) != bound.output.dtype.range
    return replace(
        layer,
        template=f"{layer.template}_dsp",
        spec=replace(layer.spec, suffix="_clamped" if clamped else "", clamped=clamped),
        headers=(DSP_HEADER, BYTES_HEADER),
    )


def lower_xpulp(bound: BoundNode) -> Layer | str:
    """Sums of bytes by weights, of equal shapes."""
    layer = lower(bound)
    if layer.template != _WEIGHTED_SUM or bound.output.dtype is not DType.INT8:
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    return replace(layer, template=f"{layer.template}_xpulp", spec=PLAIN, headers=XPULP_HEADERS)


def _paired_sum(bound: BoundNode, layer: Layer) -> Layer | str:
    """The layer of int16 sums; or why there is none. The portable layer has the specified sequence.

    The operand of the larger scale is multiplied by 1/2, which takes nothing off its 15 more bits; so is the other one where
    the scales are equal, as the largest multiplier with a shift of 1 does for each of its values.
    """
    scale, exchanged = _sum_scale(bound), bound.input(0).scale < bound.input(1).scale
    first, second, last = scale.multipliers
    small = first if exchanged else second
    q31, right = (small.q31, -small.shift) if small.shift else ((1 << 31) - 1, 1)
    if not 1 <= right <= _FURTHEST or not 1 <= -last.shift <= _FURTHEST:
        return "scales whose ratio is too large"
    values = {param.name: param for param in layer.params}
    sign = int(values["b_sign"].value)
    half = 1 << (scale.left - 1)
    clamped = (values["clamp_low"].value, values["clamp_high"].value) != bound.output.dtype.range
    params = (
        Param("exchanged", "int32_t", int(exchanged), "1: b has the larger scale"),
        Param("large_factor", "int32_t", half * sign if exchanged else half),
        Param("small_multiplier", "int32_t", q31, "Q31, to twice the larger scale"),
        Param("small_right", "int32_t", right, "right shift of the product"),
        Param("small_sign", "int32_t", 1 if exchanged else sign),
        Param("multiplier", "int32_t", last.q31, "Q31, to the output scale"),
        Param("right", "int32_t", -last.shift),
        *(values[name] for name in ("clamp_low", "clamp_high", "count")),
    )
    spec = layer.spec.extended("_clamped", clamped=True) if clamped else layer.spec
    return replace(
        layer,
        template="elementwise/quantized_sum/rescaled_sum_dsp",
        params=params,
        spec=spec,
        headers=(DSP_HEADER, SHORTS_HEADER),
    )


def _kernel(op: type[Arithmetic], name: str, summary: str) -> KernelDef:
    plain = onnx_arithmetic.TFLITE_TYPES[_OPERATORS[op]]
    cost, cost_with_vectors = _COSTS.get(op, (UNKNOWN, UNKNOWN))
    return KernelDef(
        op, summary, onnx_arithmetic.PLAIN_TYPES, (name.upper(),), partial(_from_tflite, op), check, reference, lower,
        output_shapes=output_shapes,
        onnx=(name,), from_onnx=partial(_from_onnx, op), elementwise=True,
        tflite_dtypes=(DType.INT8, *(() if op is Div else (DType.UINT8, DType.INT16)), *plain),
        variants=_VARIANTS.get(op, ()), cost=cost, cost_with_vectors=cost_with_vectors, note=_note,
    )  # fmt: skip


_SHORTS = (DType.INT8, DType.INT16)
_FPU = Variant(
    "fpu", "fpu", lower_fpu,
    Costs(
        "qemu_m4 at 119a932 418d4a8, 2026-11-23", Cost(mac=20.0, once=30),
        {"int16": Cost(mac=18.0, once=20), "float32": Cost(output=3.2, once=40)},
    ),
    (DType.INT16, DType.FLOAT32),
)  # fmt: skip
_INT16_VECTORS = Cost(mac=9.0, once=30)
_SUMS = (
    Variant(
        "mve", "mve", lower_mve,
        Costs("qemu_m55 at bed52a8 bd72c6a, 2026-11-22", Cost(mac=2.75, once=17), {"int16": _INT16_VECTORS}), _SHORTS,
    ),
    Variant(
        "dsp", "dsp", lower_dsp,
        Costs("qemu_m4 at c7c79d1 738cf76, 2026-11-22", Cost(mac=7.1, once=30), {"int16": Cost(mac=19, once=30)}), _SHORTS,
    ),
    _FPU,
    # 9 cycles, where the portable kernel, whose cost is of another core, takes 19.
    Variant("xpulp", "xpulp", lower_xpulp, Costs("rtl_cv32e40p_xpulp at 488ad82, 2026-11-26", Cost(mac=3.8, once=30))),
)  # fmt: skip
_PRODUCTS = (
    Variant(
        "mve", "mve", lower_mve,
        Costs("qemu_m55 at 4508deb 119a932, 2026-11-22", Cost(mac=5.0, once=30), {"int16": _INT16_VECTORS}), _SHORTS,
    ),
    Variant("dsp", "dsp", lower_dsp, Costs("qemu_m4 at c7c79d1, 2026-11-22", Cost(mac=10.1, once=30))),
    _FPU,
)  # fmt: skip
_VARIANTS: dict[type[Op], tuple[Variant, ...]] = {Add: _SUMS, Sub: _SUMS, Mul: _PRODUCTS}


def _costs(board: str, general: Cost, int16: float, floats: Cost) -> Costs:
    return Costs(
        f"{board} at dd4c478 bb9d374 119a932 418d4a8, 2026-11-23", general,
        {"int16": Cost(output=int16), "float32": floats},
    )  # fmt: skip


_GENERAL, _FLOATS, _FLOATS_WITH_VECTORS = Cost(mac=8.0), Cost(output=6.5, once=25), Cost(output=2.5, once=20)
_COSTS: dict[type[Op], tuple[Costs, Costs]] = {
    Add: (
        _costs("qemu_m4", Cost(output=14.0, once=16), 32, _FLOATS),
        _costs("qemu_m55", Cost(output=13.0, once=15), 32, _FLOATS_WITH_VECTORS),
    ),
    Sub: (_costs("qemu_m4", _GENERAL, 32, _FLOATS), _costs("qemu_m55", _GENERAL, 32, _FLOATS_WITH_VECTORS)),
    Mul: (
        _costs("qemu_m4", Cost(output=20.0, once=20), 22, _FLOATS),
        _costs("qemu_m55", Cost(output=20.0, once=20), 22, _FLOATS_WITH_VECTORS),
    ),
}
"""Of the portable kernels: on every core, and on those with vectors."""
KERNELS = (
    _kernel(Add, "Add", "elementwise sum, broadcasting, fused activation"),
    _kernel(Sub, "Sub", "elementwise difference, broadcasting, fused activation"),
    _kernel(Mul, "Mul", "elementwise product, broadcasting, fused activation"),
    _kernel(Div, "Div", "elementwise quotient, broadcasting, fused activation"),
)
