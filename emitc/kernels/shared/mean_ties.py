"""Where an integer mean of quantized values certainly rounds as ONNX Runtime's float32 mean does, and where it may not.

ONNX Runtime dequantizes, sums and divides in float32, and every operation rounds. Its result differs from the exact mean by
little. So it rounds the same way unless the mean lies near a half between two integers; there the float32 operations have to be
repeated one by one. How near is decided here, at compile time.
"""

import math
from dataclasses import dataclass

from emitc.ir import DType, Quantization
from emitc.layer import Param, integers

_UNIT = 2.0**-24
"""Relative error of one float32 rounding."""
_FRACTION_BITS = 16
"""Of the integer mean on the device."""
_ALWAYS = 1 << (_FRACTION_BITS - 1)
_LARGEST = 1 << 20
"""Means beyond it leave the integers that hold them on the device."""


@dataclass(frozen=True, slots=True)
class RoundingTie:
    """mean = (sum * (multiplier / count)) >> right has 16 bits of fraction; within `doubt` of a half float32 decides."""

    multiplier: int
    right: int
    doubt: int

    @property
    def params(self) -> tuple[Param, ...]:
        return integers(
            multiplier=(self.multiplier, "x_scale / y_scale"),
            right=(self.right, "its bits of fraction beyond 16"),
            doubt=(self.doubt, "distance to a half, in 2^-16, at which float32 decides"),
        )


def decision(x: Quantization, y: Quantization, dtype: DType, count: int) -> RoundingTie:
    """For means of at most `count` values of `dtype`, quantized as x, that are quantized as y.

    For every value and every addition, the float32 mean is off by half a unit in the last place of the largest sum. For each of
    three steps after it (division, division by the scale, zero point) it is off by one; the integer mean by what its
    multiplier, the division and the bits of fraction leave out.
    """
    ratio = x.scale / y.scale
    _, exponent = math.frexp(ratio)
    fraction = 30 - exponent
    reach = max(x.zero_point - dtype.range[0], dtype.range[1] - x.zero_point)
    in_float = _UNIT * (reach * ratio * (count + 4) + abs(y.zero_point) + 1024)
    in_integers = 2.0 * reach * count / 2.0**fraction
    if fraction < _FRACTION_BITS or reach * ratio >= _LARGEST or in_float + in_integers >= 0.5:
        return RoundingTie(0, 0, _ALWAYS)
    doubt = min(math.ceil((in_float + in_integers) * (1 << _FRACTION_BITS)) + 2, _ALWAYS)
    return RoundingTie(math.floor(ratio * 2.0**fraction), fraction - _FRACTION_BITS, doubt)
