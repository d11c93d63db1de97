"""What operators of two quantized operands share: parameters, a table where one operand decides, and a common scale.

DIV of TFLite's int8: y = clamp(y_zero + (a - a_zero) / (b - b_zero) * a_scale / (b_scale * y_scale)). The divisor's magnitude u
= (1 + f) * 2**bits becomes 1 / (1 + f) in Q0.31 by three Newton steps (`gemmlowp.py`). The dividend is shifted left by its
headroom h, and multiplied by that and by the factor of scales, which is computed in double. Then it is shifted right by bits +
h - shift in one rounding. Where more than 31 bits are shifted out, which TFLite's C++ leaves undefined, 0 is left, as of the
exact quotient. So much for a divisor of 0: the end of the type that the dividend's sign names, y_zero for 0 / 0.
Errors  scales whose factor is 2**23 or more, so that the last shift would go to the left.
Source  TFLite Micro's kernel, measured on all pairs of bytes.
"""

import math
from collections.abc import Callable

import numpy as np

from emitc.ir import BoundNode, DType
from emitc.kernels.contract import out_of_proportion
from emitc.kernels.shared.broadcast import binary_layer
from emitc.kernels.shared.pointwise import TABLE_ENTRIES, binary_table, single_source
from emitc.layer import Layer, Param, integers
from emitc.numerics.exhaustive_fit import EvenSum, WeightedSum
from emitc.numerics.gemmlowp import high_mul, one_over_one_plus_x
from emitc.numerics.requantize import BYTES, Clamp, Int64, Multiplier, multiplier_of, requantize, rounding_shift_right
from emitc.records import dataclass


def scales(bound: BoundNode) -> tuple[float, float, float]:
    """Of a, b and y."""
    return bound.input(0).scale, bound.input(1).scale, bound.output.scale


def zero_points(bound: BoundNode) -> tuple[int, int, int]:
    """Of a, b and y."""
    return bound.input(0).zero_point, bound.input(1).zero_point, bound.output.zero_point


def offset_params(bound: BoundNode) -> tuple[Param, ...]:
    """What the kernel adds to the elements of a and b."""
    a, b = bound.input(0), bound.input(1)
    return integers(a_offset=(-a.zero_point, "minus the zero point"), b_offset=-b.zero_point)


def clamp_params(clamp: Clamp) -> tuple[Param, ...]:
    return integers(clamp_low=clamp.low, clamp_high=clamp.high)


def weight_params(form: WeightedSum | EvenSum) -> tuple[Param, ...]:
    """A sum whose weights hold the scales."""
    return integers(
        a_weight=(form.a_weight, f"a's scale over y's, times 2^{form.right}"),
        b_weight=form.b_weight,
        bias=(form.bias, "the zero points and the rounding"),
        right=form.right,
    )


def weighted_layer(bound: BoundNode, form: WeightedSum, clamp: Clamp) -> Layer:
    return binary_layer(bound, "elementwise/quantized_sum/weighted_sum", (*weight_params(form), *clamp_params(clamp)))


def requantized_layer(bound: BoundNode, template: str, factor: Multiplier, clamp: Clamp) -> Layer:
    """The layer of an operator whose kernel takes the zero points off and requantizes the result by one factor."""
    params = (
        *offset_params(bound),
        Param("multiplier", "int32_t", factor.q31, "Q31"),
        Param("shift", "int32_t", factor.shift, "positive left"),
        Param("output_offset", "int32_t", bound.output.zero_point),
        *clamp_params(clamp),
    )
    return binary_layer(bound, template, params)


def byte_pairs(results: Callable[[Int64, Int64], Int64]) -> Int64:
    """[256, 256]: the results for all pairs of int8 values."""
    return results(BYTES[:, None], BYTES[None, :])


def table_layer(bound: BoundNode, results: Callable[[Int64, Int64], Int64]) -> Layer | None:
    """The layer that looks int8 results up, where one operand decides and the tensor is no smaller than the table.

    results: of values of a and b that broadcast.
    """
    source = single_source(bound) if bound.output.dtype is DType.INT8 else None
    if source is None or bound.output.elements < TABLE_ENTRIES:
        return None
    return binary_table(bound, source, byte_pairs(results))


@dataclass(frozen=True, slots=True)
class CommonScale:
    """Factors of a and b, shifted left, to twice the larger input scale, and of results at it to the output's scale."""

    left: int
    factors: tuple[float, float, float]

    @property
    def multipliers(self) -> tuple[Multiplier, Multiplier, Multiplier]:
        """Of a, b and the result."""
        first, second, last = self.factors
        return multiplier_of(first), multiplier_of(second), multiplier_of(last)

    def operands(self, zeros: tuple[int, int, int], a: Int64, b: Int64) -> tuple[Int64, Int64]:
        """Quantized values of a and b at the common scale. zeros: zero points of a, b and y."""
        (zero_a, zero_b, _), (first, second, _) = zeros, self.multipliers
        scaled = requantize((a - zero_a) << self.left, first.q31, first.shift)
        return scaled, requantize((b - zero_b) << self.left, second.q31, second.shift)

    def layer(self, bound: BoundNode, template: str, clamp: Clamp, sign: tuple[Param, ...] = ()) -> Layer:
        """The layer of a kernel that does both requantizations. sign: of b, where the kernel adds and subtracts."""
        first, second, last = self.multipliers
        params = (
            *offset_params(bound),
            Param("left_shift", "int32_t", self.left),
            Param("a_multiplier", "int32_t", first.q31, "Q31, to twice the larger input scale"),
            Param("a_shift", "int32_t", first.shift),
            Param("b_multiplier", "int32_t", second.q31),
            Param("b_shift", "int32_t", second.shift),
            *sign,
            Param("multiplier", "int32_t", last.q31, "Q31, to the output scale"),
            Param("shift", "int32_t", last.shift),
            Param("output_offset", "int32_t", bound.output.zero_point),
            *clamp_params(clamp),
        )
        return binary_layer(bound, template, params)


def common_scale(scales: tuple[float, float, float], left: int, power: int = 1) -> CommonScale:
    """For a sum of both operands, or with power 2 for a product, after a shift of `left` bits. scales: of a, b and y."""
    a, b, y = scales
    reach = 2 * max(a, b)
    return CommonScale(left, (a / reach, b / reach, math.prod([reach] * power) / ((1 << power * left) * y)))


_FACTOR_LIMIT = 2.0**23
_WORD = 31


def _quotient_factor(bound: BoundNode) -> float:
    a, b, y = scales(bound)
    return a / (b * y) if b * y else _FACTOR_LIMIT


def require_quotient_scales(bound: BoundNode) -> None:
    if (factor := _quotient_factor(bound)) >= _FACTOR_LIMIT:
        why = f"quotients are multiplied by {factor!r}, {_FACTOR_LIMIT:g} is too much for the fixed-point arithmetic"
        raise out_of_proportion(bound, why)


def _reciprocal(divisor: int) -> Multiplier:
    """Of 1 to 255: 1 / (1 + f) in Q0.31, and the bits by which it is also shifted to the right."""
    bits = divisor.bit_length() - 1
    return Multiplier(one_over_one_plus_x((divisor << _WORD - bits) - (1 << _WORD)), bits)


def quotients(bound: BoundNode, a: Int64, b: Int64, clamp: Clamp) -> Int64:
    """The results, clamped, of quantized values that broadcast against each other."""
    zero_a, zero_b, zero_y = zero_points(bound)
    over, under = np.broadcast_arrays(a - zero_a, b - zero_b)
    over = np.where(under < 0, -over, over)
    divisor = np.abs(under)
    reciprocals = [Multiplier(0, 0), *(_reciprocal(value) for value in range(1, 256))]
    inverse, bits = (
        np.array(part, np.int64)[divisor] for part in zip(*((m.q31, m.shift) for m in reciprocals), strict=True)
    )
    # Of a negative number, the bits of its complement.
    headroom = np.array([_WORD - value.bit_length() for value in range(256)], np.int64)[np.where(over < 0, ~over, over)]
    factor = multiplier_of(_quotient_factor(bound))
    right = bits + headroom - factor.shift
    scaled = high_mul(high_mul(over << headroom, inverse), factor.q31)
    shifted = np.where(right > _WORD, 0, rounding_shift_right(scaled, np.minimum(right, _WORD)))
    beyond = np.sign(over) << _WORD
    return np.asarray(np.clip(np.where(divisor == 0, beyond, shifted) + zero_y, clamp.low, clamp.high), np.int64)


def quotient_layer(bound: BoundNode, clamp: Clamp) -> Layer:
    factor = multiplier_of(_quotient_factor(bound))
    return requantized_layer(bound, "elementwise/quantized_product/fixed_quotient", factor, clamp)
