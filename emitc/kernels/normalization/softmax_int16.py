"""SOFTMAX of int16 values in TFLite: two tables of 513 entries, interpolated.

Differences to the row's maximum are brought to [-65535, 0] for [-10, 0] by a Q31 multiplier; the first table is exp. The sum
of a row, shifted to [1, 2), goes through the second table, 1 / (1 + x). y has the scale 2**-15 and no zero point.
An entry is the function at every 128th value, lowered by half of what the chord of its interval is too high in the middle;
TFLite Micro computes both tables in float32.
Source  TFLite Micro's int16 softmax and its tables (measured: 0 differences on rows that meet every entry).
"""

import math
from collections.abc import Callable

import numpy as np

from emitc.ir import BoundNode
from emitc.kernels.contract import illegal, unsupported
from emitc.kernels.normalization.rows import out_of_proportion_input, row_params
from emitc.layer import Layer, Param, Table, in_step
from emitc.numerics.requantize import Float32, Int64, multiplier_of, requantize

_INTERVALS = 512
_ENDS = (-(2**15), 2**15 - 1)
_RANGE = np.float32(2**16 - 1)
_LOWEST = -10.0
_SHIFT_MAX = 14
"""With more the difference of two int16 values leaves int32."""
_DEPTH_MAX = 2**16 - 1
_SCALE_TOLERANCE = 1e-3

_Function = Callable[[Float32], Float32]


def _exp(x: Float32) -> Float32:
    return np.asarray(np.exp(x.astype(np.float64)), np.float32)


def _reciprocal(x: Float32) -> Float32:
    return np.asarray(np.float32(1.0) / (np.float32(1.0) + x), np.float32)


def _rounded(x: Float32) -> Float32:
    """Half away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(x).astype(np.float64) + 0.5), x), np.float32)


def _table(function: _Function, scale: np.float32, zero_point: int) -> tuple[int, ...]:
    """The function of scale * (value - zero_point) at every 128th int16 value, in Q15."""
    first, last = (scale * np.float32(end - zero_point) for end in _ENDS)
    step = (last - first) / np.float32(_INTERVALS)
    unit = np.float32(2.0) / _RANGE
    per_unit = np.float32(2**16) / (unit * np.float32(_ENDS[1]) - unit * np.float32(_ENDS[0]))
    at = first + np.arange(_INTERVALS, dtype=np.float32) * step
    following = first + np.arange(1, _INTERVALS + 1, dtype=np.float32) * step
    value = _rounded(function(at) * per_unit)
    chord = _rounded((function(following) * per_unit + value) / np.float32(2.0))
    over = chord - _rounded(function(at + step / np.float32(2.0)) * per_unit)
    entries = np.append(value - _rounded(over / np.float32(2.0)), _rounded(function(np.array([last])) * per_unit))
    return tuple(int(v) for v in np.clip(entries, *_ENDS))


EXPONENTIAL = _table(_exp, np.float32(-_LOWEST) / _RANGE, _ENDS[1])
"""exp(x) for x from -10 to 0."""
RECIPROCAL = _table(_reciprocal, np.float32(1.0) / _RANGE, _ENDS[0])
"""1 / (1 + x) for x from 0 to 1."""


def looked_up(table: tuple[int, ...], q: Int64) -> Int64:
    """The table at int16 values, between its entries on a line."""
    entries = np.array(table, np.int64)
    index, rest = (q >> 7) + _INTERVALS // 2, q & 127
    slope = (entries[index + 1] - entries[index]).astype(np.int16).astype(np.int64)
    return np.asarray(entries[index] + ((slope * rest + 64) >> 7), np.int64)


def factor_of(bound: BoundNode, beta: float) -> float:
    """What a difference is multiplied with to become one of [-65535, 0] for [-10, 0]."""
    x = bound.input(0)
    return x.scale * beta / (-_LOWEST / 65535.0)


def near(scale: float, expected: float) -> bool:
    """Whether an output scale is within the tolerance that TFLite Micro grants."""
    return abs(scale - expected) <= _SCALE_TOLERANCE * expected


def check(bound: BoundNode, beta: float) -> None:
    """Refuses other output scales than 2**-15, rows that are too long, and scales beyond fixed point."""
    y = bound.output
    if not near(y.scale, 2.0**-15):
        raise illegal(bound, "has another output scale than 1/32768", "TFLite's int16 softmax fixes it", tensor=y)
    shape = bound.input(0).shape
    if not shape or not beta > 0:
        raise illegal(bound, "has no row or no positive beta", f"beta {beta}")
    if shape[-1] > _DEPTH_MAX:
        what, why = f"over {shape[-1]} elements", f"the sum fits {_DEPTH_MAX}"
        raise unsupported(bound, what, why, "reduce the number of classes")
    factor = factor_of(bound, beta)
    if math.frexp(factor)[1] > _SHIFT_MAX or multiplier_of(factor).shift > _SHIFT_MAX:
        raise out_of_proportion_input(bound, f"differences are multiplied by {factor!r}, which takes them out of int32")


def reference(bound: BoundNode, beta: float, values: Int64) -> Int64:
    """Row by row, from the two tables."""
    multiplier = multiplier_of(factor_of(bound, beta))
    rows = values.reshape(-1, bound.output.shape[-1])
    difference = rows - rows.max(axis=1, keepdims=True)
    scaled = requantize(difference, multiplier.q31, multiplier.shift)
    exponential = looked_up(EXPONENTIAL, np.clip(scaled + _ENDS[1], *_ENDS))
    out = np.empty_like(rows)
    for i, row in enumerate(exponential):
        total = int(row.sum())
        bits = total.bit_length()
        fraction = ((total << (31 - bits)) + (1 << 13)) >> 14
        scale = int(looked_up(RECIPROCAL, np.clip(np.array(fraction - (3 << 15)), *_ENDS)))
        right = bits - 1
        out[i] = (row * scale + (1 << (right - 1))) >> right
    return np.clip(out, 0, _ENDS[1])


def layer(bound: BoundNode, beta: float) -> Layer:
    """Three passes over each row; exponentials wait in the output."""
    multiplier = multiplier_of(factor_of(bound, beta))
    return Layer(
        "normalization/softmax_s16",
        tables=(
            Table("exponential", "int16_t", EXPONENTIAL, "exp(x) for x from -10 to 0, Q15"),
            Table("reciprocal", "int16_t", RECIPROCAL, "1 / (1 + x) for x from 0 to 1, Q15"),
        ),
        params=(
            *row_params(bound.output.shape),
            Param("multiplier", "int32_t", multiplier.q31, "Q31, to 65535 for a difference of 10"),
            Param("shift", "int32_t", multiplier.shift, "positive left"),
        ),
        headers=("emitc_bits.h",),
        overlaps=(in_step(bound),),
    )
