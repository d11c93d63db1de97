"""ADD, SUB and MUL of quantized tensors, with broadcasting and a fused activation.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.   Types  int8; each tensor has its own scale.
ADD, SUB  both inputs, shifted left by 20 bits, are brought to twice the larger input scale; their sum or difference is
          requantized to the output.
MUL       (a - a_zero) * (b - b_zero) requantized by a_scale * b_scale / y_scale.
Source    TFLite 8-bit quantization specification; shifts and roundings as TFLite Micro's kernels, ratios of scales in double.
Errors    ratios of scales at which TFLite Micro stops.

A sum of two int8 values has only 65 536 cases. So the layer computes (a * a_weight + b * b_weight + bias) >> shift in 32
bits where weights can be found that give the specified result in every case, and the specified sequence otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Layer, Param, Parsed, illegal
from emitc.kernels.elementwise import (
    BYTES,
    TABLE_ENTRIES,
    binary_layer,
    binary_shape,
    binary_table,
    check_binary,
    require_activation,
    single_source,
    values_of,
)
from emitc.kernels.spatial import ACTIVATIONS
from emitc.quantize import Clamp, Int64, Multiplier, activation_clamp, multiplier_of, requantize

_LEFT_SHIFT = 20
_SEARCH = 3
_PRECISIONS = 4


@dataclass(frozen=True, slots=True)
class Arithmetic(Op):
    """activation: fused."""

    activation: str


class Add(Arithmetic):
    """a + b."""

    __slots__ = ()


class Sub(Arithmetic):
    """a - b."""

    __slots__ = ()


class Mul(Arithmetic):
    """a * b."""

    __slots__ = ()


def _from_tflite(op: type[Arithmetic]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        node.counts((2, 2))
        return Parsed(op(node.text("fused_activation_function", ACTIVATIONS)), (0, 1))

    return parse


def _op(bound: BoundNode) -> Arithmetic:
    assert isinstance(bound.node.op, Arithmetic)
    return bound.node.op


def _scales(bound: BoundNode) -> tuple[float, float, float]:
    a, b, y = bound.input(0).quantization, bound.input(1).quantization, bound.output.quantization
    assert a and b and y
    return a.scale, b.scale, y.scale


def _zero_points(bound: BoundNode) -> tuple[int, int, int]:
    a, b, y = bound.input(0).quantization, bound.input(1).quantization, bound.output.quantization
    assert a and b and y
    return a.zero_point, b.zero_point, y.zero_point


def _sum_factors(bound: BoundNode) -> tuple[float, float, float]:
    """ADD and SUB: what a, b and their sum are multiplied with."""
    a, b, y = _scales(bound)
    reach = 2 * max(a, b)
    return a / reach, b / reach, reach / ((1 << _LEFT_SHIFT) * y)


def check(bound: BoundNode) -> None:
    """Refuses what check_binary does, and scales whose ratio the fixed-point arithmetic cannot hold."""
    check_binary(bound)
    op = _op(bound)
    require_activation(bound, op.activation, bound.output)
    a, b, y = _scales(bound)
    # The largest product has 16 bits: more than 15 bits to the left would take it out of int32.
    fits = a * b / y < 1 << 15 if isinstance(op, Mul) else all(0.0 < f < 1.0 for f in _sum_factors(bound))
    if not fits:
        raise illegal(
            bound,
            f"{bound.node.op_type} has scales that are out of proportion",
            f"inputs {a!r} and {b!r}, output {y!r}: the ratio does not fit the fixed-point arithmetic",
            "quantize the model again",
            bound.output,
        )


def _clamp(bound: BoundNode) -> Clamp:
    return activation_clamp(_op(bound).activation, bound.output)


def _compute(bound: BoundNode, a: Int64, b: Int64) -> Int64:
    """The results, clamped, of quantized values that broadcast against each other."""
    zero_a, zero_b, zero_y = _zero_points(bound)
    if isinstance(bound.node.op, Mul):
        last = _product_multiplier(bound)
        acc = (a - zero_a) * (b - zero_b)
    else:
        first, second, last = (multiplier_of(factor) for factor in _sum_factors(bound))
        scaled_a = requantize((a - zero_a) << _LEFT_SHIFT, first.q31, first.shift)
        scaled_b = requantize((b - zero_b) << _LEFT_SHIFT, second.q31, second.shift)
        acc = scaled_a - scaled_b if isinstance(bound.node.op, Sub) else scaled_a + scaled_b
    clamp = _clamp(bound)
    return np.clip(requantize(acc, last.q31, last.shift) + zero_y, clamp.low, clamp.high)


def _product_multiplier(bound: BoundNode) -> Multiplier:
    a, b, y = _scales(bound)
    return multiplier_of(a * b / y)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's broadcasting over the specified sequence of roundings."""
    y = bound.output
    result = _compute(bound, values_of(bound, inputs, 0), values_of(bound, inputs, 1))
    return (result.astype(y.dtype.value).reshape(y.shape),)


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """y = clamp((a * a_weight + b * b_weight + bias) >> shift), every step within int32."""

    a_weight: int
    b_weight: int
    bias: int
    shift: int


def weighted_sum(results: Int64, a_factor: float, b_factor: float, zero: float, clamp: Clamp) -> WeightedSum | None:
    """Weights that give `results` for every pair, or None.

    results: [256, 256], the clamped result of a = -128..127 and b = -128..127, near a * a_factor + b * b_factor + zero.
    For given weights the pairs bound the bias from both sides, so that the search over weights next to the factors is
    exact; results at the ends of the clamp bound it from one side only.
    """
    a, b = BYTES[:, None], BYTES[None, :]
    lowest, highest = results <= clamp.low, results >= clamp.high
    reach = abs(zero) + 128.0 * (abs(a_factor) + abs(b_factor)) + 1.0
    if not reach < 1 << 22:
        return None
    top = min(31 - int(reach).bit_length(), 24)
    steps = sorted(
        ((i, j) for i in range(-_SEARCH, _SEARCH + 1) for j in range(-_SEARCH, _SEARCH + 1)),
        key=lambda s: (abs(s[0]) + abs(s[1]), s),
    )
    for shift in range(top, max(top - _PRECISIONS, 0), -1):
        one = 1 << shift
        for step_a, step_b in steps:
            weight_a, weight_b = round(a_factor * one) + step_a, round(b_factor * one) + step_b
            products = a * weight_a + b * weight_b
            least = int(np.where(lowest, -(1 << 40), results * one - products).max())
            most = int(np.where(highest, 1 << 40, (results + 1) * one - 1 - products).min())
            if least <= most:
                bias = min(max(round(zero * one) + one // 2, least), most)
                # Bounds every partial sum for all int8 values.
                if abs(bias) + 128 * (abs(weight_a) + abs(weight_b)) < 1 << 31:
                    return WeightedSum(weight_a, weight_b, bias, shift)
    return None


def _sum_layer(bound: BoundNode, results: Int64) -> Layer:
    """Weighted where that gives the same bits, else the specified sequence."""
    (a, b, y), (zero_a, zero_b, zero_y) = _scales(bound), _zero_points(bound)
    sign = -1 if isinstance(bound.node.op, Sub) else 1
    clamp = _clamp(bound)
    limits = (Param("clamp_low", "int32_t", clamp.low), Param("clamp_high", "int32_t", clamp.high))
    found = weighted_sum(results, a / y, sign * b / y, zero_y - zero_a * a / y - sign * zero_b * b / y, clamp)
    if found is not None:
        weights = (
            Param("a_weight", "int32_t", found.a_weight, f"a's scale over y's, times 2^{found.shift}"),
            Param("b_weight", "int32_t", found.b_weight),
            Param("bias", "int32_t", found.bias, "the zero points and the rounding"),
            Param("shift", "int32_t", found.shift),
        )
        return binary_layer(bound, "weighted_sum", (*weights, *limits))
    first, second, last = (multiplier_of(factor) for factor in _sum_factors(bound))
    params = (
        Param("a_offset", "int32_t", -zero_a, "minus the zero point"),
        Param("b_offset", "int32_t", -zero_b),
        Param("a_multiplier", "int32_t", first.q31, "Q31, to twice the larger input scale"),
        Param("a_shift", "int32_t", first.shift),
        Param("b_multiplier", "int32_t", second.q31),
        Param("b_shift", "int32_t", second.shift),
        Param("b_sign", "int32_t", sign),
        Param("multiplier", "int32_t", last.q31, "Q31, to the output scale"),
        Param("shift", "int32_t", last.shift),
        Param("output_offset", "int32_t", zero_y),
    )
    return binary_layer(bound, "rescaled_sum", (*params, *limits))


def _product_layer(bound: BoundNode) -> Layer:
    zero_a, zero_b, zero_y = _zero_points(bound)
    clamp, last = _clamp(bound), _product_multiplier(bound)
    params = (
        Param("a_offset", "int32_t", -zero_a, "minus the zero point"),
        Param("b_offset", "int32_t", -zero_b),
        Param("multiplier", "int32_t", last.q31, "Q31"),
        Param("shift", "int32_t", last.shift, "positive left"),
        Param("output_offset", "int32_t", zero_y),
        Param("clamp_low", "int32_t", clamp.low),
        Param("clamp_high", "int32_t", clamp.high),
    )
    return binary_layer(bound, "product", params)


def lower(bound: BoundNode) -> Layer:
    """A table where one input decides and the tensor is no smaller than the table; else a loop over both operands."""
    results = _compute(bound, BYTES[:, None], BYTES[None, :])
    source = single_source(bound)
    if source is not None and bound.output.elements >= TABLE_ENTRIES:
        return binary_table(bound, source, results)
    return _product_layer(bound) if isinstance(bound.node.op, Mul) else _sum_layer(bound, results)


def _kernel(op: type[Arithmetic], name: str, summary: str) -> KernelDef:
    return KernelDef(op, summary, (DType.INT8,), (name,), _from_tflite(op), check, binary_shape, reference, lower)


KERNELS = (
    _kernel(Add, "ADD", "elementwise sum, broadcasting, fused activation"),
    _kernel(Sub, "SUB", "elementwise difference, broadcasting, fused activation"),
    _kernel(Mul, "MUL", "elementwise product, broadcasting, fused activation"),
)
