"""Softmax from tables of exponentials; and rows of values and their refusals, which the normalizations have too.

SOFTMAX of int16 values in TFLite: two tables of 513 entries, interpolated.
Differences to the row's maximum are mapped to [-65535, 0] for [-10, 0] by a Q31 multiplier; the first table is exp. The sum
of a row, shifted to [1, 2), goes through the second table, 1 / (1 + x). y has the scale 2**-15 and no zero point.
An entry is the function at every 128th value, lowered by half of what the chord of its interval is too high in the middle;
TFLite Micro computes both tables in float32.
Source  TFLite Micro's int16 softmax and its tables (measured: 0 differences on rows that meet every entry).

Softmax of quantized values from tables of exponentials, with ONNX Runtime's bits.
exp of a row's values is taken of their distance to the row's largest, which is one of 256 (int8) or 65 536 (int16) values.
int8    y = rint(e * numerator / sum e) + y_zero, e from a table, the sum in float32. QLinearSoftmax: e is scaled up so far
        that the sum of a row uses float32's range. The numerator is floor(1 / y_scale), and the quotient is a double one: so
        close to a half that a float one could fall on the other side, the C compares whole numbers. Between DequantizeLinear
        and QuantizeLinear: e in (0, 1] and 1 / y_scale, and a float32 quotient.
int16   e in Q31 as the product of two table entries, by the high and the low byte of the distance; sums in 64 bits; then the
        same in float32. ONNX Runtime's own float32 exp is off by more than the two tables: about 1 of 2 500 elements differs
        by one step.
Source  ONNX Runtime's QLinearSoftmax and Softmax; table, order of summation and rounding found by comparing with their
        outputs (int8: 0 differing). Before 1.32 ONNX Runtime had a float32 quotient in QLinearSoftmax too.

LOG_SOFTMAX of int8 values in TFLite: x - max - log(sum exp(x - max)) in Q5.26, as steps of 1/16.
The exponentials are those of SOFTMAX, their sum s is Q12.19. 2**n is the power for which z = s * 2**-n is within a factor
sqrt(sqrt(1/2)) to sqrt(sqrt(2)) of sqrt(sqrt(1/2)). The logarithm is n' * log(2) + log of the rest, with n' a multiple of 1/4
and a half. That of the rest is a rational function of degrees 3 and 2 around sqrt(sqrt(1/2)), in Q0.31.
Source  TFLite Micro's kernel.   y has the scale 1/16 and the zero point 127.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Shape
from emitc.kernels.contract import illegal, unsupported
from emitc.kernels.shared.pointwise import half_away
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Table, in_step, integers
from emitc.numerics import gemmlowp
from emitc.numerics.requantize import (
    INT32_MIN,
    Float32,
    Int64,
    Multiplier,
    multiplier_of,
    requantize,
    rounding_shift_right,
)
from emitc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class Rows:
    """`outer` blocks of `depth` x `inner` values; a row is `depth` values at a distance of `inner`."""

    outer: int
    depth: int
    inner: int

    def view(self, values: Array) -> Array:
        """[outer, depth, inner]."""
        return values.reshape(self.outer, self.depth, self.inner)

    @property
    def params(self) -> tuple[Param, ...]:
        return integers(
            outer=self.outer,
            depth=(self.depth, "values of a row"),
            inner=(self.inner, "distance between them, and rows side by side"),
        )


def row_params(shape: Shape) -> tuple[Param, ...]:
    """Number and length of the rows along the last dimension, as members of a kernel's parameter struct."""
    return integers(rows=math.prod(shape[:-1]), depth=shape[-1])


def row_work(bound: BoundNode) -> int:
    """Elements, and what a row costs in the reference's loop over the rows."""
    return bound.output.elements + 1000 * (bound.output.elements // max(1, bound.output.shape[-1]))


def require_rows(bound: BoundNode) -> None:
    """Refuses an input without elements, or without dimensions."""
    x = bound.input(0)
    if not x.shape or 0 in x.shape:
        raise illegal(bound, "has no row", f"its input is {list(x.shape)}", tensor=x)


def require_depth(bound: BoundNode, depth: int, most: int) -> None:
    """Refuses rows of more than `most` elements."""
    if depth > most:
        what, hint = f"over {depth} elements", "reduce the number of classes"
        raise unsupported(bound, what, f"the sum fits {most}", hint, bound.input(0))


def require_int8_output(bound: BoundNode, steps: int, zero_point: int) -> None:
    """Refuses another output quantization than the scale 1 / steps and the zero point that TFLite fixes for int8."""
    y = bound.output
    if (y.scale, y.zero_point) != (1 / steps, zero_point):
        what = f"has another output scale than 1/{steps}, or another zero point than {zero_point}"
        raise illegal(bound, what, f"({y.scale!r}, {y.zero_point}) found, TFLite fixes them for int8", tensor=y)


def out_of_proportion_input(bound: BoundNode, why: str) -> Exception:
    """An input scale of which the arithmetic cannot hold the multiplier (exit code 2)."""
    what = "has an input scale that is out of proportion"
    return illegal(bound, what, why, "quantize the model again", bound.input(0))


def of_distances(distance: Int64, table: Int64) -> tuple[NDArray[np.bool_], Int64]:
    """Which distances to a row's maximum the table of exponentials has, and the exponentials, 0 for all other distances."""
    counted = distance < len(table)
    return counted, np.where(counted, table[np.minimum(distance, len(table) - 1)], 0)


_INTERVALS = 512
_ENDS = (-(2**15), 2**15 - 1)
_RANGE = np.float32(2**16 - 1)
_LOWEST = -10.0
_SHIFT_MAX = 14
"""With more the difference of two int16 values leaves int32."""
_DEPTH_MAX = 2**16 - 1
_SCALE_TOLERANCE = 1e-3


def _table(function: Callable[[Float32], Float32], scale: np.float32, zero_point: int) -> tuple[int, ...]:
    """The function of scale * (value - zero_point) at every 128th int16 value, in Q15."""
    first, last = (scale * np.float32(end - zero_point) for end in _ENDS)
    step = (last - first) / np.float32(_INTERVALS)
    unit = np.float32(2.0) / _RANGE
    per_unit = np.float32(2**16) / (unit * np.float32(_ENDS[1]) - unit * np.float32(_ENDS[0]))
    at = first + np.arange(_INTERVALS, dtype=np.float32) * step
    following = first + np.arange(1, _INTERVALS + 1, dtype=np.float32) * step
    value = half_away(function(at) * per_unit)
    chord = half_away((function(following) * per_unit + value) / np.float32(2.0))
    over = chord - half_away(function(at + step / np.float32(2.0)) * per_unit)
    entries = np.append(value - half_away(over / np.float32(2.0)), half_away(function(np.array([last])) * per_unit))
    return tuple(int(v) for v in np.clip(entries, *_ENDS))


EXPONENTIAL = _table(lambda x: np.exp(x.astype(np.float64)).astype(np.float32), np.float32(-_LOWEST) / _RANGE, _ENDS[1])
"""exp(x) for x from -10 to 0."""
RECIPROCAL = _table(lambda x: np.float32(1.0) / (np.float32(1.0) + x), np.float32(1.0) / _RANGE, _ENDS[0])
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


def check_int16(bound: BoundNode, beta: float) -> None:
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


def int16_reference(bound: BoundNode, beta: float, values: Int64) -> Int64:
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


def int16_layer(bound: BoundNode, beta: float) -> Layer:
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


_ONE = 1 << 31
_MAX_DEPTH = 1 << 24
"""Elements of a row whose Q31 exponentials sum up to what float32 still takes in one conversion."""
_HEADROOM = 5.0
"""What QLinearSoftmax leaves free below the end of float32, as a natural logarithm."""
_FINEST = 2.0**-24
"""Output scale of QLinearSoftmax: one over it is a whole number that float32 holds."""
_EXACT = "_exact"
"""Suffix of kernels for QLinearSoftmax."""
_LARGEST_PART = 2.0**126
"""Of what vectors divide by a sum."""


def _is_integer(bound: BoundNode) -> bool:
    """Whether the operator is QLinearSoftmax."""
    return bound.node.op.numerics is Numerics.QOPERATOR


def check_table(bound: BoundNode, rows: Rows) -> None:
    """Refuses an output scale whose inverse leaves float32, and rows that are too long."""
    y_scale, integer = np.float32(bound.output.scale), _is_integer(bound)
    if not (_FINEST if integer else 2.0**-100) <= float(y_scale) <= 2.0**100:
        what = "has an output scale that is out of proportion"
        raise illegal(bound, what, f"{float(y_scale)!r}", "quantize the model again", bound.output)
    if integer and DType.INT16 in (bound.input(0).dtype, bound.output.dtype):
        raise illegal(bound, "has int16 tensors", "QLinearSoftmax takes 8 bits")
    require_depth(bound, rows.depth, _MAX_DEPTH)


def _numerator(bound: BoundNode) -> np.float32:
    """What a share of 1 is in quantized steps."""
    steps = np.float32(1.0) / np.float32(bound.output.scale)
    return np.floor(steps) if _is_integer(bound) else steps


def _float_table(bound: BoundNode, rows: Rows) -> NDArray[np.float32]:
    """exp(-d * x_scale) for d = 0 to 255, for QLinearSoftmax times the largest factor that it allows a row."""
    x_scale = float(np.float32(bound.input(0).scale))
    lift = 0.0
    if _is_integer(bound):
        largest = float(np.finfo(np.float32).max / np.float32(rows.depth))
        # This logarithm is a float32 one there; the exponentials below are double.
        lift = max(0.0, float(np.float32(math.log(largest))) - _HEADROOM) / x_scale
    steps = np.arange(255, -1, -1, dtype=np.float64) - 255 + lift
    return np.asarray(np.exp(steps * x_scale).astype(np.float32))


def _integer_tables(bound: BoundNode) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """exp(-d * x_scale) in Q31 for d = 0, 256, 512, ... and for d = 0 to 255."""
    x_scale = float(np.float32(bound.input(0).scale))
    low = np.arange(256, dtype=np.float64)
    with np.errstate(under="ignore"):
        coarse, fine = np.exp(-256 * low * x_scale), np.exp(-low * x_scale)
    return np.rint(coarse * _ONE).astype(np.int64), np.rint(fine * _ONE).astype(np.int64)


def table_reference(bound: BoundNode, rows: Rows, values: Array) -> Array:
    """Distances to the maximum, exponentials from tables, then float32 in ONNX Runtime's order."""
    y = bound.output
    x = rows.view(values.astype(np.int64))
    distance = x.max(axis=1, keepdims=True) - x
    if bound.input(0).dtype is DType.INT8:
        exponential = _float_table(bound, rows)[distance]
        total = np.zeros((rows.outer, rows.inner), np.float32)
        for i in range(rows.depth):
            total = total + exponential[:, i]
    else:
        coarse, fine = _integer_tables(bound)
        # Half of 2**31 is added before the shift: to nearest, as in the C.
        q31 = (coarse[distance >> 8] * fine[distance & 255] + (_ONE >> 1)) >> 31
        exponential, total = q31.astype(np.float32), q31.sum(axis=1).astype(np.float32)
    low, high = y.dtype.range
    if _is_integer(bound):
        exponential = exponential.astype(np.float64)
    with np.errstate(over="ignore"):
        ratio = exponential * _numerator(bound) / total[:, None]
    steps = np.clip(np.rint(ratio).astype(np.float64) + y.zero_point, low, high)
    return np.asarray(steps.astype(y.dtype.value).reshape(y.shape))


def table_vectors(bound: BoundNode, rows: Rows) -> Layer | str:
    """The layer of rows of int8 for vectors, four shares at a time; or why there is none."""
    portable = table_layer(bound, rows)
    if {portable.spec.x, portable.spec.y} != {"int8_t"}:
        return f"{portable.kernel_name}{portable.spec.suffix} has a portable version only"
    if rows.inner != 1:
        return "the values of a row are not contiguous"
    known = {param.name: param.value for param in portable.params}
    # Vectors make no number of what is infinite, where one by one it is limited.
    if float(known["numerator"]) * max(map(float, portable.tables[0].values)) > _LARGEST_PART:
        return "the result may overflow float32"
    highest = int(known["clamp_high"]) - int(known["output_offset"])
    params = (
        *integers(rows=rows.outer, depth=(rows.depth, "values of a row")),
        *(param for param in portable.params if param.name in ("numerator", "output_offset")),
        Param("highest", "int32_t", highest, "limit of a share in steps"),
    )
    spec = PLAIN.extended(_EXACT, exact_rounding=True) if portable.spec.exact_rounding else PLAIN
    headers = ("emitc_mve.h", "emitc_mve_float32.h")
    return replace(portable, template="normalization/softmax_table_mve", params=params, spec=spec, headers=headers)


def table_layer(bound: BoundNode, rows: Rows) -> Layer:
    """Tables, and two passes over each row."""
    x, y = bound.input(0), bound.output
    exact = _is_integer(bound)
    spec = KernelSpec(f"_{x.dtype.value}_{y.dtype.value}", fixed_point=False, x=x.dtype.c_type, y=y.dtype.c_type)
    spec = spec.extended(_EXACT, exact_rounding=True) if exact else spec
    params = (
        *rows.params,
        Param("numerator", "float", float(_numerator(bound)), "steps of the output that a share of 1 is"),
        *integers(output_offset=y.zero_point, clamp_high=y.dtype.range[1]),
    )
    if not exact:
        highest = float(y.dtype.range[1] - y.zero_point)
        params += (Param("highest", "float", highest, "from here on clamp_high"),)
    if x.dtype is DType.INT8:
        table = tuple(float(v) for v in _float_table(bound, rows))
        tables = (Table("exponentials", "float", table, "exp of minus the distance to the maximum, scaled"),)
        return Layer("normalization/softmax_table", "portable", (0,), tables, params, spec=spec)
    coarse, fine = _integer_tables(bound)
    wide = (
        Table("coarse", "uint32_t", tuple(coarse.tolist()), "exp of minus 256 times the index, Q31"),
        Table("fine", "uint32_t", tuple(fine.tolist()), "exp of minus the index, Q31"),
    )
    return Layer("normalization/softmax_table_wide", "portable", (0,), wide, params, spec=spec)


_SUM_BITS = 12
_LOG_2 = 1488522236
_SQRT_HALF = 1518500250
_CENTRE = 1805811301
"""sqrt(sqrt(1/2)); like the others in Q0.31."""
_CUBIC = 117049297
"""11/240 * sqrt(sqrt(2))."""
_QUADRATIC = 127690142
"""1/20 * sqrt(sqrt(2))."""
_CONSTANT = 1057819769
"""2 / sqrt(sqrt(2)) - sqrt(sqrt(2))."""
_LINEAR = 638450708
"""1/4 * sqrt(sqrt(2))."""
_POWER_BITS = 25
"""Fractional bits of a power of 2, and a quarter in them."""
_QUARTER = 1 << (_POWER_BITS - 2)
_OUTPUT_SHIFT = 22


def _product(a: int, b: int) -> int:
    return int(gemmlowp.high_mul(np.asarray(a, np.int64), b))


def logarithm(total: int) -> int:
    """log of a sum in Q12.19, at least 1, in Q5.26."""
    headroom = 32 - total.bit_length()
    upper = min(_product(total << (headroom - 1), _SQRT_HALF) * 2, 2**31 - 1)
    headroom_b = 31 - _product(total, _SQRT_HALF).bit_length()
    lower = min(total << headroom_b, 2**31 - 1)
    rest = min(upper, lower)
    power = max(
        ((_SUM_BITS - headroom) << _POWER_BITS) + _QUARTER, ((_SUM_BITS - headroom_b) << _POWER_BITS) - _QUARTER
    )
    middle = (rest + _CENTRE + 1) >> 1
    double = 2 * (rest - _CENTRE)
    square = _product(double, double)
    numerator = _product(double, rest) + _product(_product(double, square), _CUBIC)
    denominator = _product(middle, _CONSTANT + double + _product(_QUADRATIC, square)) + _product(_LINEAR, double)
    quotient = _product(int(rounding_shift_right(np.asarray(numerator), 6)), gemmlowp.one_over_one_plus_x(denominator))
    return min(2 * (_product(power, _LOG_2) + quotient), 2**31 - 1)


def _back(multiplier: Multiplier) -> Multiplier:
    """From Q5.26 to steps of the input."""
    return multiplier_of((1 << (31 - multiplier.shift)) / multiplier.q31)


def _radius(multiplier: Multiplier) -> int:
    """The largest distance to the maximum that counts."""
    return math.floor(31 * 2.0 ** (26 - multiplier.shift))


def log_reference(values: Array, multiplier: Multiplier, exponentials: tuple[int, ...]) -> Array:
    """Row by row, from the table of exponentials by distance to the maximum."""
    rows = values.astype(np.int64).reshape(-1, values.shape[-1])
    distance: Int64 = rows.max(axis=1, keepdims=True) - rows
    table = rounding_shift_right(np.array(exponentials, np.int64), _SUM_BITS)
    sums = of_distances(distance, table)[1].sum(axis=1)
    back, radius = _back(multiplier), _radius(multiplier)
    out = np.full_like(rows, -128)
    for i, row in enumerate(distance):
        log = logarithm(int(sums[i]))
        lowest = max(-radius - 1, int(requantize(np.asarray(log + INT32_MIN, np.int64), back.q31, back.shift)))
        scaled = requantize(-row, multiplier.q31, multiplier.shift)
        steps = rounding_shift_right((scaled - log).astype(np.int32).astype(np.int64), _OUTPUT_SHIFT) + 127
        out[i] = np.where(-row > lowest, np.clip(steps, -128, 127), -128)
    return out.astype(np.int8).reshape(values.shape)


def log_layer(bound: BoundNode, multiplier: Multiplier, exponentials: tuple[int, ...]) -> Layer:
    """One table, two passes over each row; the row may be overwritten in place."""
    table = rounding_shift_right(np.array(exponentials, np.int64), _SUM_BITS)
    back = _back(multiplier)
    return Layer(
        "normalization/log_softmax",
        tables=(
            Table("exponentials", "int32_t", tuple(table.tolist()), "exp of minus the distance to the maximum, Q12.19"),
        ),
        params=(
            *row_params(bound.output.shape),
            Param("steps", "int32_t", len(table), "entries of the table; beyond it exp counts for nothing"),
            Param("multiplier", "int32_t", multiplier.q31, "Q31, from steps of x to Q5.26"),
            Param("shift", "int32_t", multiplier.shift, "positive left"),
            Param("back", "int32_t", back.q31, "the other way round"),
            Param("back_shift", "int32_t", back.shift),
            Param("lowest", "int32_t", -min(_radius(multiplier), 256) - 1, "below no difference counts"),
        ),
        overlaps=(in_step(bound),),
        headers=("emitc_bits.h",),
    )
