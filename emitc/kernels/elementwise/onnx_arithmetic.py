"""ONNX's Add, Sub, Mul and Div of two tensors: plain numbers, which TFLite has too, and int8 or int16 with scales.

Plain       float32, float64 and integers. Integers wrap; their quotient is truncated, and 0 where the divisor is 0, which ONNX
            does not define. TFLite: results are limited to the activation's bounds.
QDQ         every value dequantized in float32, computed, divided by y_scale, rint, y_zero. 0 / 0 gives the smallest value.
QLinearAdd  in float32, with ra = a_scale / y_scale and rb = b_scale / y_scale:
            rint(fma(a, ra, fma(b, rb, y_zero - fma(a_zero, ra, rb * b_zero)))); fma rounds once. Where a is repeated along the
            innermost dimension the operands change places.
QLinearMul  rint((a - a_zero) * (b - b_zero) * float32(a_scale * b_scale / y_scale) + y_zero) in float32.
All rint to nearest, ties to even, and all results are limited to the output's type. What is uint8 in the model is 128 higher
in QLinearAdd and QLinearMul than here, which moves ties.
Errors      of the two: results of 2**31 or more. Of them ONNX Runtime makes the smallest value on x86, where the conversion to
            integers gives that, and the largest one on Arm. Below -2**31 both give the smallest.
Source      ONNX Runtime's results on x86 with AVX2, not optimized: candidate formulas compared on all pairs of values for
            hundreds of scales (0 differ). Its kernels without fused operations differ in about one of a million pairs.

int8 pairs are computed by integers wherever parameters give the same bits (`pairs.py`), otherwise in float on the device.

Variants of Add, Sub and Mul of equal shapes for vectors, pairs of int16 or a float unit: products of int8 by the upper half of
a product of 32 bits, where that gives the bits of the specified arithmetic for every pair. Sums, differences and products that
no integers give, as those of int16, in float32 as specified: by a float unit, or four at a time. Vectors have no division; one
by a constant is a product with its inverse, corrected twice, which rounds as a division does.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Shape
from emitc.kernels.contract import out_of_proportion, require_quantization, unsupported
from emitc.kernels.elementwise.quantized_operands import (
    byte_pairs,
    clamp_params,
    offset_params,
    scales,
    weight_params,
    weighted_layer,
    zero_points,
)
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER
from emitc.kernels.mac.dsp_int8 import HEADER as DSP_HEADER
from emitc.kernels.mac.mve_int8 import HEADER as MVE_HEADER
from emitc.kernels.shared import pointwise
from emitc.kernels.shared.broadcast import broadcast_layer, flat_layer, require_broadcast, same_types
from emitc.layer import Formula, Layer, Param, integers
from emitc.numerics import exhaustive_fit
from emitc.numerics.requantize import Clamp, Float32, Int64

_ANY_WEIGHT = 1 << 31
"""Weights of a sum whose steps stay within int32 are below."""
_REMEMBERED = 256
"""Nodes whose integer forms are remembered: the variants of one node ask for them, and those of other targets once more."""
_ADDED = (DType.FLOAT32, DType.INT32, DType.INT64)
TFLITE_TYPES = {"+": _ADDED, "-": _ADDED, "*": _ADDED, "/": (DType.FLOAT32, DType.INT32)}
"""Plain numbers in TFLite, by operator."""
PLAIN_TYPES = (*pointwise.FLOATS, *pointwise.SIGNED, *pointwise.UNSIGNED)
_WIDE_UNSIGNED = {"int32_t": "uint32_t", "int64_t": "uint64_t", "uint32_t": "uint32_t", "uint64_t": "uint64_t"}
_OPERATIONS: Mapping[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "+": ("sum", np.add),
    "-": ("difference", np.subtract),
    "*": ("product", np.multiply),
    "/": ("quotient", np.divide),
}
"""C's operators: the kernels' name, and numpy's function."""
_QUOTIENT = Formula("quotient", "va / vb", "a / b")
_QUOTIENT_UNSIGNED = Formula(
    "quotient_unsigned", "({y})(vb == 0 ? 0 : va / vb)", "a / b without the fraction; 0 where b is 0"
)
_UNSIGNED_BIAS = 128
_CONVERTED = 2**31
"""From here on a float has no int32."""

Form = exhaustive_fit.WeightedSum | exhaustive_fit.EvenSum | exhaustive_fit.ScaledProduct | exhaustive_fit.EvenProduct
"""Integer parameters for pairs of int8 values."""


def operands_change_places(a: Shape, b: Shape) -> bool:
    """Whether QLinearAdd takes b first: the innermost dimension that both have, and that is not 1 in both, is 1 in a.

    So it does where all of them are 1. A tensor of rank 0 counts as [1].
    """
    depth = max(1, min(len(a), len(b)))
    for m, n in zip((1, *a)[: -depth - 1 : -1], (1, *b)[: -depth - 1 : -1], strict=True):
        if (m, n) != (1, 1):
            return m == 1
    return True


# ---- what is computed ----


def is_quantized(bound: BoundNode) -> bool:
    """Whether the operator works on what the numbers stand for, in ONNX or TFLite."""
    return bound.node.op.numerics in (Numerics.QDQ, Numerics.TFLITE) or bound.node.op_type.startswith("QLinear")


def check(bound: BoundNode, operator: str, activation: str) -> None:
    """Refuses types without code, shapes that do not fit each other, and scales that leave float32."""
    require_broadcast(bound)
    a, b, y = bound.input(0), bound.input(1), bound.output
    if bound.node.op.numerics is Numerics.PLAIN:
        types = TFLITE_TYPES[operator]
        pointwise.require_types(
            bound, same_types(types), " and ".join(t.value for t in types) + ", one type throughout"
        )
        return
    if not is_quantized(bound):
        pointwise.require_types(bound, same_types(PLAIN_TYPES), "floats and integers, all of one type")
        scaled = next((t for t in (a, b, y) if t.quantization is not None), None)
        if scaled is not None:
            why = "it would compute with the numbers themselves, whatever they stand for"
            hint = "put a DequantizeLinear before the operator, or leave out the QuantizeLinear"
            raise unsupported(bound, "of quantized numbers is not supported", why, hint, scaled)
        return
    wide = (DType.INT16,) if bound.node.op.numerics is Numerics.QDQ else ()
    pointwise.require_types(bound, same_types((DType.INT8, *wide)), "int8 or uint8" + (", or int16" if wide else ""))
    require_quantization(bound, a, b, y)
    if operator == "/" and activation != "NONE":
        why = "0 / 0 is not a number, which an activation leaves as it is"
        raise unsupported(bound, "with a fused activation is not supported", why, "leave the activation in float32", y)
    ends = y.dtype.range
    span, (scale_a, scale_b, scale_y) = float(ends[1] - ends[0]), scales(bound)
    sums = span * (scale_a + scale_b)
    products = span * scale_a * span * scale_b
    ratios = (scale_a + scale_b) / scale_y * 2 * span, scale_a * scale_b / scale_y * span * span
    if max(sums, products, *ratios) >= float(np.finfo(np.float32).max):
        why = f"inputs {scale_a!r} and {scale_b!r}, output {scale_y!r}: float32 cannot hold the results"
        raise out_of_proportion(bound, why)
    if bound.node.op.numerics is Numerics.QDQ:
        return
    values = np.array(ends, np.int64)
    largest = float(_in_float(bound, operator, values[:, None], values).max())
    if largest >= _CONVERTED:
        why = f"up to {largest:.9g}, of which ONNX Runtime makes the smallest value on x86, the largest on Arm"
        raise unsupported(bound, "with results that leave int32 is not supported", why, "quantize the model again", y)


def _quantizations(bound: BoundNode) -> tuple[Quantization, Quantization, Quantization]:
    a, b, y = bound.input(0).quantization, bound.input(1).quantization, bound.output.quantization
    assert a and b and y
    return a, b, y


def clamp_of(bound: BoundNode, activation: str) -> Clamp:
    """What a fused activation leaves of the output's range: its bounds quantized, ties to even."""
    (_, _, q), dtype = _quantizations(bound), bound.output.dtype
    ends = (
        end if real is None else int(pointwise.quantized(np.array([real], np.float32), q, dtype)[0])
        for real, end in zip(pointwise.ACTIVATION_BOUNDS[activation], dtype.range, strict=True)
    )
    return Clamp(*ends)


def plain(operator: str, a: Array, b: Array, y: DType) -> Array:
    """The operator (+ - * /) on numbers."""
    with np.errstate(all="ignore"):
        if operator == "/" and a.dtype.kind != "f":
            return np.asarray(_truncated_quotient(a, b), y.value)
        return np.asarray(_OPERATIONS[operator][1](a, b), y.value)


def _truncated_quotient(a: NDArray[Any], b: NDArray[Any]) -> Array:
    """a / b towards 0; 0 where b is 0; the smallest value over -1 wraps to itself."""
    odd = (b == 0) | (b == -1) if b.dtype.kind == "i" else b == 0
    divisor = np.where(odd, np.array(1, b.dtype), b)
    down = a // divisor
    inexact = (down * divisor != a) & ((a < 0) != (divisor < 0))
    quotient = np.where(inexact, down + np.array(1, a.dtype), down)
    return np.where(b == 0, np.array(0, a.dtype), np.where(odd, np.array(0, a.dtype) - a, quotient))


def combined(bound: BoundNode, operator: str, clamp: Clamp, a: Int64, b: Int64) -> Int64:
    """The quantized results, clamped, of quantized values that broadcast against each other."""
    qa, qb, qy = _quantizations(bound)
    op = bound.node.op
    if op.numerics is Numerics.QDQ:
        real = plain(operator, pointwise.dequantized(a, qa), pointwise.dequantized(b, qb), DType.FLOAT32)
        results = pointwise.quantized(np.asarray(real, np.float32), qy, bound.output.dtype)
    else:
        whole = np.rint(_in_float(bound, operator, a, b)).astype(np.float64)
        results = np.clip(whole, -(2**31), 2**31 - 1).astype(np.int64) - _bias(op)
    return np.clip(results, clamp.low, clamp.high)


def _bias(op: Op) -> int:
    """What the model's numbers are higher by."""
    return _UNSIGNED_BIAS if getattr(op, "unsigned", False) else 0


def _product_factor(bound: BoundNode) -> np.float32:
    a, b, y = (np.float32(scale) for scale in scales(bound))
    return np.float32(a * b / y)


def fused(a: Float32 | np.float32, factor: np.float32, c: Float32 | np.float32) -> Float32:
    """a * factor + c, rounded to float32 once: for a of at most 8 bits the product is exact in float64.

    The sum is rounded to float64 before, which the layer in C does as well.
    """
    exact = np.asarray(a, np.float64) * np.float64(factor)
    return np.asarray(exact + np.asarray(c, np.float64), np.float32)


def _sum_terms(bound: BoundNode) -> tuple[bool, np.float32, np.float32, np.float32]:
    """QLinearAdd: whether the operands change places, factors of the outer and the inner operand, and the constant."""
    qa, qb, qy = _quantizations(bound)
    exchanged = bool(getattr(bound.node.op, "exchanged", False))
    outer, inner = (qb, qa) if exchanged else (qa, qb)
    bias = _bias(bound.node.op)
    scale = np.float32(qy.scale)
    outer_factor, inner_factor = np.float32(outer.scale) / scale, np.float32(inner.scale) / scale
    outer_zero, inner_zero, zero = (np.float32(q.zero_point + bias) for q in (outer, inner, qy))
    moved = np.float32(fused(outer_zero, outer_factor, inner_factor * inner_zero))
    return exchanged, outer_factor, inner_factor, np.float32(zero - moved)


def _in_float(bound: BoundNode, operator: str, a: Int64, b: Int64) -> Float32:
    """Results of QLinearAdd (+) or QLinearMul in the model's numbers, before they are rounded."""
    bias = _bias(bound.node.op)
    if operator == "+":
        exchanged, outer_factor, inner_factor, constant = _sum_terms(bound)
        outer, inner = ((v + bias).astype(np.float32) for v in ((b, a) if exchanged else (a, b)))
        return fused(outer, outer_factor, fused(inner, inner_factor, constant))
    zero_a, zero_b, zero_y = zero_points(bound)
    product = ((a - zero_a) * (b - zero_b)).astype(np.float32) * _product_factor(bound)
    return np.asarray(product + np.float32(zero_y + bias), np.float32)


# ---- layers ----


def plain_layer(bound: BoundNode, operator: str, activation: str) -> Layer:
    """One loop for each operator and type. Integers are computed without sign where C leaves an overflow open."""
    bounds = bound.node.op.numerics is Numerics.PLAIN
    dtype = bound.output.dtype
    spec = pointwise.typed(dtype, dtype)
    if operator == "/" and not (bounds and dtype in pointwise.FLOATS):
        if bounds and activation != "NONE":
            return broadcast_layer(
                bound, "elementwise/bounded_quotient_integer", pointwise.bound_params(activation, dtype), spec=spec
            )
        if dtype in pointwise.FLOATS:
            return broadcast_layer(bound, _QUOTIENT, spec=spec)
        kernel = _QUOTIENT_UNSIGNED if dtype in pointwise.UNSIGNED else "elementwise/quotient_integer"
        return broadcast_layer(bound, kernel, spec=spec)
    wide = _WIDE_UNSIGNED.get(spec.y, spec.y if dtype in pointwise.FLOATS else "uint32_t")
    name, _ = _OPERATIONS[operator]
    c, comment = f"({{y}})(({wide})va {operator} ({wide})vb)", f"a {operator} b"
    if bounds:
        limits, template = pointwise.bound_params(activation, dtype), "elementwise/binary_bounded"
        formula = Formula(f"bounded_{name}", c, comment)
        return flat_layer(broadcast_layer(bound, formula, limits, spec=spec, template=template))
    formula = Formula(f"plain_{name}", c, f"{comment}, in a type in which C defines every result")
    return flat_layer(broadcast_layer(bound, formula, spec=spec))


def integer_form(
    bound: BoundNode, operator: str, results: Int64, clamp: Clamp, widest: int = _ANY_WEIGHT
) -> Form | None:
    """Parameters that give `results` [256, 256] for every pair of int8 values; None where there are none.

    widest: weights of a weighted sum are less.
    """
    (a, b, y), zeros = scales(bound), zero_points(bound)
    if operator in "+-":
        a_factor, b_factor = a / y, b / y * (-1 if operator == "-" else 1)
        zero = zeros[2] - zeros[0] * a_factor - zeros[1] * b_factor
        # With a ratio of, say, 1/2 every other sum is a tie; where all ratios are whole there is none.
        ties = not (a_factor.is_integer() and b_factor.is_integer())
        even = exhaustive_fit.even_sum(results, a_factor, b_factor, zeros, clamp) if ties else None
        return even or exhaustive_fit.weighted_sum(results, a_factor, b_factor, zero, clamp, widest)
    if operator == "*":
        factor = a * b / y
        return exhaustive_fit.scaled_product(results, factor, zeros) or exhaustive_fit.even_product(
            results, factor, zeros, clamp
        )
    return None


def _form_layer(bound: BoundNode, form: Form, clamp: Clamp) -> Layer:
    if isinstance(form, exhaustive_fit.WeightedSum):
        return weighted_layer(bound, form, clamp)
    if isinstance(form, exhaustive_fit.EvenSum):
        template, params = "elementwise/quantized_sum/even_sum", weight_params(form)
    else:
        if isinstance(form, exhaustive_fit.EvenProduct):
            template = "elementwise/quantized_product/even_product"
            bias = Param("bias", "int32_t", form.bias)
        else:
            template, c_type = "elementwise/quantized_product/scaled_product", "int32_t"
            if form.wide:
                template, c_type = "elementwise/quantized_product/wide_product", "int64_t"
            bias = Param("bias", c_type, form.bias, "the output's zero point and the rounding")
        multiplier, right = integers(multiplier=form.multiplier, right=form.right)
        params = (*offset_params(bound), multiplier, bias, right)
    if isinstance(form, exhaustive_fit.EvenSum | exhaustive_fit.EvenProduct):
        below_half = Param("below_half", "int32_t", (1 << (form.right - 1)) - 1, "under half of what the shift drops")
        params = (*params, below_half, Param("output_offset", "int32_t", form.offset))
    return broadcast_layer(
        bound, template, (*params, *clamp_params(clamp)), spec=pointwise.typed(DType.INT8, DType.INT8)
    )


def _float_layer(bound: BoundNode, operator: str, clamp: Clamp) -> Layer:
    """The specified arithmetic on the device."""
    dtype, zero = bound.output.dtype, bound.output.zero_point
    spec = pointwise.typed(dtype, dtype)
    if bound.node.op.numerics is Numerics.QDQ:
        params = (
            *offset_params(bound),
            *(Param(f"{name}_scale", "float", scale) for name, scale in zip("aby", scales(bound), strict=True)),
            Param("lowest", "float", float(clamp.low - zero), "the clamp, without the zero point"),
            Param("highest", "float", float(clamp.high - zero)),
            Param("output_offset", "int32_t", zero),
        )
        name, _ = _OPERATIONS[operator]
        unfused = "real_{0}" if operator in "*/" else "emitc_unfused(real_{0})"
        formula = Formula(f"real_{name}", f"{unfused.format('a')} {operator} {unfused.format('b')}", "")
        return broadcast_layer(bound, formula, params, spec=spec, template="elementwise/real_binary")
    bias = _bias(bound.node.op)
    limits = (
        Param("lowest", "float", float(clamp.low + bias), "the clamp, in the model's numbers"),
        Param("highest", "float", float(clamp.high + bias)),
        Param("output_offset", "int32_t", -bias, "from the model's numbers"),
    )
    if operator == "+":
        exchanged, outer, inner, constant = _sum_terms(bound)
        terms = (
            Param("input_offset", "int32_t", bias, "to the model's numbers"),
            Param("a_factor", "float", float(outer)),
            Param("b_factor", "float", float(inner)),
            Param("constant", "float", float(constant), "the zero points"),
        )
        operands = (1, 0) if exchanged else (0, 1)
        return broadcast_layer(
            bound, "elementwise/quantized_sum/fused_sum", (*terms, *limits), operands=operands, spec=spec
        )
    factors = (
        *offset_params(bound),
        Param("factor", "float", float(_product_factor(bound))),
        Param("zero_point", "float", float(zero + bias)),
    )
    return broadcast_layer(bound, "elementwise/quantized_product/rounded_product", (*factors, *limits), spec=spec)


def quantized_layer(bound: BoundNode, operator: str, clamp: Clamp, widest: int = _ANY_WEIGHT) -> Layer:
    """int8: integers where they give the same bits, else a table where one input decides. Otherwise float arithmetic.

    widest: weights of a weighted sum are less.
    """
    if bound.output.dtype is not DType.INT8:
        return _float_layer(bound, operator, clamp)
    form = _remembered_form(bound, operator, clamp, widest)
    if form is not None:
        return _form_layer(bound, form, clamp)
    source = pointwise.single_source(bound)
    if source is None:
        return _float_layer(bound, operator, clamp)
    return pointwise.binary_table(bound, source, pairs_of(bound, operator, clamp))


@lru_cache(maxsize=1)
def pairs_of(bound: BoundNode, operator: str, clamp: Clamp) -> Int64:
    """[256, 256], read-only: the quantized results, clamped, of all pairs of int8 values."""
    results = byte_pairs(partial(combined, bound, operator, clamp))
    results.flags.writeable = False
    return results


@lru_cache(maxsize=_REMEMBERED)
def _remembered_form(bound: BoundNode, operator: str, clamp: Clamp, widest: int) -> Form | None:
    """`integer_form` of a node's results."""
    if widest < _ANY_WEIGHT:
        # The wider search looks at the same weights in the same order, and at more of them.
        form = _remembered_form(bound, operator, clamp, _ANY_WEIGHT)
        if not isinstance(form, exhaustive_fit.WeightedSum) or max(abs(form.a_weight), abs(form.b_weight)) < widest:
            return form
    return integer_form(bound, operator, pairs_of(bound, operator, clamp), clamp, widest)


REALS = {"real_sum": ("+", "sum"), "real_difference": ("-", "difference"), "real_product": ("*", "product")}
"""Kernels of floats: C's operator, and the name in the runtime's function of vectors."""
PRODUCTS = ("scaled_product", "wide_product")
"""Kernels of integers."""
_FARTHEST = 2.0**30
"""Scales up to it, and down to its inverse, keep vectors away from numbers that they take for 0."""
_REMEMBERED_PRODUCTS = 8
"""Products whose integers are remembered: the variants of one node ask for them one after another."""
_SHORT = float(1 << 14)
"""Products that are scaled to less have 16 bits, which pairs narrow to bytes."""


def _refusal(bound: BoundNode, layer: Layer, kernels: Collection[str]) -> str:
    a, b, y = bound.input(0), bound.input(1), bound.output
    if layer.kernel_name not in kernels:
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    return "" if a.elements == b.elements == y.elements else "an operand is repeated"


@lru_cache(maxsize=_REMEMBERED_PRODUCTS)
def _high_product(bound: BoundNode, clamp: Clamp) -> exhaustive_fit.HighProduct | None:
    """The integers of a product of int8 by the upper half."""
    scale_a, scale_b, scale_y = scales(bound)
    return exhaustive_fit.high_product(pairs_of(bound, "*", clamp), scale_a * scale_b / scale_y, zero_points(bound))


def product_variant(bound: BoundNode, layer: Layer, clamp: Clamp, variant: str) -> Layer | str:
    """`layer` of integers for a variant, dsp or mve; or why there is none."""
    if reason := _refusal(bound, layer, PRODUCTS):
        return reason
    scale_a, scale_b, scale_y = scales(bound)
    factor = scale_a * scale_b / scale_y
    fit = _high_product(bound, clamp)
    if fit is None:
        return "no multiplier of 32 bits gives the bits for every pair"
    if variant == "dsp" and factor * 255 * 255 >= _SHORT:
        return "a product of more than 16 bits"
    params = (
        *offset_params(bound),
        Param("multiplier", "int32_t", fit.multiplier),
        Param("bias", "int32_t", fit.bias, "the output's zero point and the rounding"),
        Param("right", "int32_t", fit.right, "of the upper half of the product"),
        *clamp_params(clamp),
        Param("count", "int32_t", bound.output.elements),
    )
    clamped = variant == "dsp" and clamp != Clamp(*DType.INT8.range)
    return replace(
        layer,
        template=f"elementwise/quantized_product/high_product_{variant}",
        params=params,
        spec=replace(layer.spec, suffix="_clamped" if clamped else "", clamped=clamped),
        headers=(MVE_HEADER,) if variant == "mve" else (DSP_HEADER, BYTES_HEADER),
    )


def real_variant(bound: BoundNode, layer: Layer, variant: str) -> Layer | str:
    """`layer` of floats for a variant, fpu or mve; or why there is none."""
    if reason := _refusal(bound, layer, REALS):
        return reason
    known = {param.name: param.value for param in layer.params}
    factors = scales(bound)
    if not 1 / _FARTHEST <= min(factors) <= max(factors) <= _FARTHEST:
        return "its scale is far from 1"
    params = (
        *(Param(name, "int32_t", known[name]) for name in ("a_offset", "b_offset")),
        *(Param(name, "float", known[name]) for name in ("a_scale", "b_scale", "y_scale")),
        Param("y_inverse", "float", float(np.float32(1.0) / np.float32(factors[2])), "1 / y_scale"),
        Param("lowest", "int32_t", int(known["lowest"]), "the clamp, without the zero point"),
        Param("highest", "int32_t", int(known["highest"])),
        Param("output_offset", "int32_t", known["output_offset"]),
        Param("count", "int32_t", bound.output.elements),
    )
    headers = (MVE_HEADER, "emitc_mve_float32.h") if variant == "mve" else ("emitc_fpu.h",)
    limits = tuple(int(known[name] + known["output_offset"]) for name in ("lowest", "highest"))
    short = variant == "fpu" and limits == DType.INT16.range
    spec = layer.spec.extended("_full", rounding="s16") if short else layer.spec
    operator, name = REALS[layer.kernel_name]
    c = f"emitc_float32x4_{name}(real_a, real_b)" if variant == "mve" else f"real_a {operator} real_b"
    formula = Formula(f"{layer.kernel_name}_{variant}", c, "")
    template = f"elementwise/real_binary_{variant}"
    return replace(layer, template=template, formula=formula, params=params, headers=headers, spec=spec)
