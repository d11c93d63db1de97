"""DIV of TFLite's int8: y = clamp(y_zero + (a - a_zero) / (b - b_zero) * a_scale / (b_scale * y_scale)).

The divisor's magnitude u = (1 + f) * 2**bits becomes 1 / (1 + f) in Q0.31 by three Newton steps (`fixed_point.py`). The
dividend is shifted left by its headroom h, and multiplied by that and by the factor of scales, which is computed in double.
Then it is shifted right by bits + h - shift in one rounding. Where more than 31 bits are shifted out, which TFLite's C++ leaves
undefined, 0 is left, as of the exact quotient. So much for a divisor of 0: the end of the type that the dividend's sign names,
y_zero for 0 / 0.
Errors  scales whose factor is 2**23 or more, so that the last shift would go to the left.
Source  TFLite Micro's kernel, measured on all pairs of bytes.
"""

import numpy as np

from emitc.ir import BoundNode
from emitc.kernels.contract import out_of_proportion
from emitc.kernels.elementwise.quantized_operands import requantized_layer, scales, zero_points
from emitc.layer import Layer
from emitc.numerics.gemmlowp import high_mul, one_over_one_plus_x
from emitc.numerics.requantize import Clamp, Int64, Multiplier, multiplier_of, rounding_shift_right

_FACTOR_LIMIT = 2.0**23
_WORD = 31


def _factor(bound: BoundNode) -> float:
    a, b, y = scales(bound)
    return a / (b * y) if b * y else _FACTOR_LIMIT


def require_scales(bound: BoundNode) -> None:
    if _factor(bound) >= _FACTOR_LIMIT:
        raise out_of_proportion(
            bound,
            f"quotients are multiplied by {_factor(bound)!r}, {_FACTOR_LIMIT:g} is too much for the fixed-point arithmetic",
        )


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
    factor = multiplier_of(_factor(bound))
    right = bits + headroom - factor.shift
    scaled = high_mul(high_mul(over << headroom, inverse), factor.q31)
    shifted = np.where(right > _WORD, 0, rounding_shift_right(scaled, np.minimum(right, _WORD)))
    beyond = np.sign(over) << _WORD
    return np.asarray(np.clip(np.where(divisor == 0, beyond, shifted) + zero_y, clamp.low, clamp.high), np.int64)


def layer(bound: BoundNode, clamp: Clamp) -> Layer:
    factor = multiplier_of(_factor(bound))
    return requantized_layer(bound, "elementwise/quantized_product/fixed_quotient", factor, clamp)
