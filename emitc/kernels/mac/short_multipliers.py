"""Multipliers with so few bits that two products of 32 bits requantize a sum, where all sums that can occur keep their outputs.

A multiplier is high * 2**13 + low, with low in -4096..4095: acc * high plus acc * low, shifted by 13, is the product without its
last 13 bits. It has some bits fewer than the Q31 number, so it is another factor. So the compiler compares, for each channel, the
least sums from which on the outputs are -127..127.

Source of the arithmetic: TFLite 8-bit quantization specification, for halves that are rounded up.
"""

from dataclasses import replace

import numpy as np

from emitc.kernels.mac.problem import FoldedWeights
from emitc.kernels.mac.requantization import Requantization
from emitc.numerics.requantize import Int64

_LOW = 13
"""Bits of the multiplier's first part, which has a sign."""
_OUTPUTS = np.arange(-127, 128, dtype=np.int64)


def short_multipliers(folded: FoldedWeights, dropped: int) -> Requantization | None:
    """Multipliers and shifts of two products; None where a channel's sums are too large, or no multiplier keeps its outputs.

    dropped: last bits of the Q31 multiplier that the short one lacks, as the kernel says.
    """
    low, high = folded.ends
    largest = np.maximum(np.abs(low), np.abs(high))
    channels = len(low)
    q31 = np.broadcast_to(np.array(folded.scale.q31, np.int64), channels)
    right = -np.broadcast_to(np.array(folded.scale.shift, np.int64), channels)
    if not folded.scale.per_channel or (largest << (_LOW - 1) >= 1 << 31).any() or (q31 < 1 << 30).any():
        return None
    offset = 2 * folded.problem.bound.output.zero_point + 1
    # Both roundings go up: half a unit of the Q31 product, then half a unit of the output.
    wanted = _least_sums(q31, (offset << (30 + right)) + (1 << 30), right + 31, low, high)
    shift = right + 31 - _LOW - dropped
    added = (offset << (shift - 1)) + (1 << (30 - _LOW - dropped))
    multipliers = np.zeros_like(q31)
    for multiplier in (q31 >> dropped, -(-q31 >> dropped)):
        fits = largest * ((multiplier >> _LOW) + 2) + 2 * np.abs(added) < 1 << 31
        sums = _least_sums(multiplier, added << _LOW, shift + _LOW, low, high)
        multipliers = np.where(fits & (sums == wanted).all(axis=1), multiplier, multipliers)
    if not multipliers.all():
        return None
    high_part = (multipliers + (1 << (_LOW - 1))) >> _LOW
    packed = high_part << 16 | (multipliers - (high_part << _LOW)) & 0xFFFF
    return replace(folded.scale, q31=tuple(packed.tolist()), shift=tuple((-shift).tolist()))


def _least_sums(multiplier: Int64, added: Int64, shift: Int64, low: Int64, high: Int64) -> Int64:
    """The least sums of low..high whose outputs are at least -127..127, [channels, 255]; high + 1 where there is none.

    An output is (sum * multiplier + added) >> shift, before it is limited.
    """
    needed = (_OUTPUTS << shift[:, None]) - added[:, None]
    sums: Int64 = np.clip(-(-needed // multiplier[:, None]), low[:, None], high[:, None] + 1)
    return sums
