"""Quotients rounded down and remainders; powers; squares of differences, of two tensors each. Sums of any number of tensors.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape; of the sums see below.

FLOOR_DIV, FLOOR_MOD and Mod:
Types   TFLite: float32; int32, which TFLite Micro does not run and LiteRT does. ONNX: integers and float32.
FLOOR_DIV  floor of the quotient in double, which two float32 values cannot bring to the wrong side of an integer.
FLOOR_MOD  C's remainder, and b more where it is not 0 and has another sign than b; a remainder of 0 has a's sign.
Mod     With fmod the remainder has a's sign, as in C; without it b's, as in Python.
An integer divided by 0 gives 0, where LiteRT stops and which ONNX does not define; so does TFLite Micro's FLOOR_DIV of
floats, which is IEEE's here. A float divided by 0 leaves a remainder that is not a number.
Source  TFLite Micro's and LiteRT's kernels; ONNX's specification of Mod.

Pow and POW: y = a ** b.
Types   a and y float32, int32 or int64; b float32 or any integer. TFLite: all float32, or all int32.
float32     the power of the C library. One exponent for all of a that is 2, 3, 1/2 or -1 is a product, a root or a quotient.
            (ONNX Runtime, too, multiplies for 2 and 3.)
integers    to an integer power: by multiplication, wrapping; a negative power is 0 except for 1 and -1. To a real power: in
            float64, without the fraction, limited to what the type holds.

SQUARED_DIFFERENCE: y = (a - b) * (a - b).
Types   float32, and int32, which wraps; int8 and int16, each tensor with its own scale: both operands, in int8 shifted left by
        7 bits, are requantized to twice the larger input scale. The square of their difference is requantized to the output.
Source  TFLite Micro's kernel, ratios of scales in double.
Errors  ratios of scales at which a square leaves 32 bits.

ADD_N of TFLite, and Sum and Mean of ONNX:
ADD_N   operands of one shape. float32, added from the first to the last onto a 0. int8, inputs of one scale and zero
        point: y = y_zero + rq(acc * 2**19), acc = sum(x - x_zero) - x_zero, with the factor
        2 * x_scale / (2**20 * y_scale). The one zero point too many is TFLite Micro's; so is that acc * 2**19 wraps to
        32 bits where a sum reaches 4096 steps. Source  TFLite Micro's kernel.
ONNX    one to 64 operands of float32 that broadcast (numpy's rule), y the broadcast shape. (A sum along an axis is a
        ReduceSum.) They are added from the first to the last; Mean multiplies the sum by float32(1 / n), as does ONNX
        Runtime.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, parser, require_dtypes, require_same_quantization
from emitc.kernels.elementwise.quantized_operands import CommonScale, common_scale, scales, table_layer, zero_points
from emitc.kernels.shared import pointwise
from emitc.kernels.shared.broadcast import (
    any_operands,
    broadcast_layer,
    check_binary,
    fold_layer,
    output_shapes,
    require_broadcast,
    same_types,
)
from emitc.kernels.shared.sums import check_sum, rescaled, sum_params
from emitc.layer import PLAIN, ByRows, Formula, KernelSpec, Layer, Param, integers
from emitc.numerics.float_functions import FUNCTIONS, RealFunction
from emitc.numerics.requantize import Clamp, Float32, Int64, requantize
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_TFLITE_TYPES = (DType.FLOAT32, DType.INT32)
_ONNX_TYPES = (DType.FLOAT32, *pointwise.SIGNED, *pointwise.UNSIGNED)

_QUOTIENT = Formula(
    "floor_quotient_real",
    "(float)floor((double)va / (double)vb)",
    "a / b rounded down; in double, as a float32 quotient may be rounded up to an integer",
    math=True,
)
_SIGNED = Formula(
    "remainder", "({y})(vb == 0 || vb == -1 ? 0 : va % vb)", "the remainder of a / b, of a's sign; 0 where b is 0"
)
_UNSIGNED = Formula("remainder_unsigned", "({y})(vb == 0 ? 0 : va % vb)", "the remainder of a / b; 0 where b is 0")
_REAL = Formula("remainder_real", "fmodf(va, vb)", "the remainder of a / b, of a's sign", math=True)
"""np.fmod in C, and of integers without sign np.mod, which is the same."""


class FloorDiv(Op):
    """Quotient rounded down."""


class FloorMod(Op):
    """Remainder of that quotient."""


@dataclass(frozen=True, slots=True)
class Modulo(Op):
    """truncated: whether the quotient was rounded towards 0 rather than down."""

    truncated: bool


def _truncated(bound: BoundNode) -> bool:
    return isinstance(bound.node.op, Modulo) and bound.node.op.truncated


def _check_floor(bound: BoundNode) -> None:
    """Refuses types without code, and shapes that do not fit each other."""
    if bound.node.op.numerics.of_tflite:
        pointwise.require_types(bound, same_types(_TFLITE_TYPES), "float32 and int32, one type throughout")
    pointwise.require_types(bound, same_types(_ONNX_TYPES), "integers and float32")
    require_broadcast(bound)


def _floor_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's functions, which give 0 for integers over 0; FLOOR_DIV of floats in double, FLOOR_MOD by fmod."""
    a, b = (pointwise.operand(bound, inputs, position) for position in (0, 1))
    op, dtype = bound.node.op, bound.output.dtype
    with np.errstate(all="ignore"):
        if dtype is DType.FLOAT32 and isinstance(op, FloorDiv):
            return (np.floor(a.astype(np.float64) / b.astype(np.float64)).astype(np.float32),)
        if dtype is DType.FLOAT32 and isinstance(op, FloorMod):
            rest, divisor = np.fmod(a, b), b.astype(np.float32)
            moves = (rest != 0) & ((rest < 0) != (divisor < 0))
            return (np.where(moves, rest + divisor, rest).astype(np.float32),)
        function = np.floor_divide if isinstance(op, FloorDiv) else np.fmod if _truncated(bound) else np.mod
        return (np.asarray(function(a, b), dtype.value),)


def _lower_floor(bound: BoundNode) -> Layer:
    """A loop over both operands, for each rounding and kind of type."""
    op, dtype = bound.node.op, bound.output.dtype
    real = dtype is DType.FLOAT32
    if isinstance(op, FloorDiv):
        return broadcast_layer(bound, _QUOTIENT if real else "elementwise/floor_quotient")
    if dtype in pointwise.UNSIGNED:
        return broadcast_layer(bound, _UNSIGNED)
    if _truncated(bound):
        return broadcast_layer(bound, _REAL if real else _SIGNED)
    of_reals = "elementwise/floor_remainder_real" if isinstance(op, FloorMod) else "elementwise/modulo_real"
    return broadcast_layer(bound, of_reals if real else "elementwise/modulo")


_BASES = (DType.FLOAT32, DType.INT32, DType.INT64)
_EXPONENTS = (DType.FLOAT32, *pointwise.SIGNED, *pointwise.UNSIGNED)
_SIMPLE: Mapping[float, RealFunction] = {
    2.0: FUNCTIONS["Square"],
    3.0: FUNCTIONS["Cube"],
    0.5: FUNCTIONS["SquareRoot"],
    -1.0: FUNCTIONS["Reciprocal"],
}
"""Powers that need no logarithm."""
_POWER = Formula("power", "powf(va, (float)vb)", "a to the power of b", math=True)


@dataclass(frozen=True, slots=True)
class Power(Op):
    """a ** b."""


def _check_power(bound: BoundNode) -> None:
    """Refuses types without code, and shapes that do not fit each other."""
    if bound.node.op.numerics.of_tflite:
        pointwise.require_types(bound, same_types(_TFLITE_TYPES), "float32 and int32, one type throughout")
    pointwise.require_types(bound, [(a, b, a) for a in _BASES for b in _EXPONENTS], "bases of float32, int32 and int64")
    require_broadcast(bound)


def _whole_power(a: Array, b: Array) -> Array:
    """By squaring on all 64 bits, of which the base's type keeps the low ones."""
    base, exponent = (np.array(v) for v in np.broadcast_arrays(a.astype(np.int64), b.astype(np.int64, copy=True)))
    inverse = exponent < 0
    units = (base == 1) | (base == -1)
    left = np.where(inverse & units, -exponent, exponent).astype(np.uint64)
    square, result = base.astype(np.uint64), np.ones(base.shape, np.uint64)
    with np.errstate(over="ignore"):
        while left.any():
            result = np.where(left & np.uint64(1), result * square, result)
            square, left = square * square, left >> np.uint64(1)
    return np.where(inverse & ~units, np.uint64(0), result).astype(a.dtype)


def _power_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Integers exactly, float32 through float64, rounded once; a cube is two products."""
    a, b, y = pointwise.operand(bound, inputs, 0), pointwise.operand(bound, inputs, 1), bound.output.dtype
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return (_whole_power(a, b),)
    with np.errstate(all="ignore"):
        wide = np.power(a.astype(np.float64), b.astype(np.float32).astype(np.float64))
        if y is DType.FLOAT32:
            real = np.asarray(a, np.float32)
            # numpy takes the square root for 1/2, which is not the power at -0 and minus infinity.
            result = np.where(b == 0.5, FUNCTIONS["SquareRoot"].apply(real, ()), wide.astype(np.float32))
            cubed = b.size == 1 and float(b.reshape(-1)[0]) == 3.0
            return (np.where(cubed, FUNCTIONS["Cube"].apply(real, ()), result),)
    low, high = y.range
    inside = (wide > float(low)) & (wide < float(high))
    result = np.where(inside, wide, 0.0).astype(y.value)
    result = np.where(wide >= float(high), np.array(high, y.value), result)
    return (np.where(wide <= float(low), np.array(low, y.value), result),)


def _lower_power(bound: BoundNode) -> Layer:
    """A simple function where one constant exponent allows it; otherwise a loop over both operands."""
    a, b, y = bound.input(0), bound.input(1), bound.output
    if y.dtype is not DType.FLOAT32:
        if b.dtype is DType.FLOAT32:
            limits = zip(("low", "high"), y.dtype.range, strict=True)
            params = tuple(Param(name, y.dtype.c_type, value) for name, value in limits)
            return broadcast_layer(bound, "elementwise/power_integer", params)
        return broadcast_layer(bound, "elementwise/power_of_integers")
    if b.is_constant and b.elements == 1 and a.elements == y.elements:
        exponent = float(b.array().reshape(-1)[0])
        if exponent == 1.0:
            return pointwise.copied(bound)
        if exponent in _SIMPLE:
            return pointwise.pointwise_layer(bound, pointwise.formula_of(_SIMPLE[exponent]))
    return broadcast_layer(bound, _POWER)


_SQUARED_TYPES = (DType.FLOAT32, DType.INT32)
_LEFT_SHIFTS = {DType.INT8: 7, DType.INT16: 0}
"""Bits that quantized values gain before they are rounded to one scale."""
_LARGEST_SQUARE = 1 << 30


class SquaredDifference(Op):
    """Square of a - b."""


def _check_square(bound: BoundNode) -> None:
    """Refuses other types, shapes that do not fit each other, and scales out of proportion."""
    if bound.node.op.numerics is Numerics.TFLITE:
        check_binary(bound)
        pointwise.require_factor(bound, _scale(bound).factors[2], _LARGEST_SQUARE)
        return
    pointwise.require_types(bound, same_types(_SQUARED_TYPES), "float32, int32, int8 and int16, one type throughout")
    require_broadcast(bound)


def _scale(bound: BoundNode) -> CommonScale:
    return common_scale(scales(bound), _LEFT_SHIFTS[bound.output.dtype], power=2)


def _squares(bound: BoundNode, a: Int64, b: Int64) -> Int64:
    """The results for quantized values that broadcast against each other."""
    scale, y = _scale(bound), bound.output
    scaled_a, scaled_b = scale.operands(zero_points(bound), a, b)
    last = scale.multipliers[2]
    return np.clip(requantize((scaled_a - scaled_b) ** 2, last.q31, last.shift) + y.zero_point, *y.dtype.range)


def _square_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The square of numpy's difference, or the specified sequence of roundings."""
    if bound.node.op.numerics is Numerics.TFLITE:
        squares = _squares(bound, pointwise.values_of(bound, inputs, 0), pointwise.values_of(bound, inputs, 1))
        return (np.asarray(squares, bound.output.dtype.value),)
    with np.errstate(all="ignore"):
        difference = np.subtract(pointwise.operand(bound, inputs, 0), pointwise.operand(bound, inputs, 1))
        return (np.asarray(np.multiply(difference, difference), bound.output.dtype.value),)


def _lower_square(bound: BoundNode) -> Layer:
    """A table where one int8 input decides; else a loop over both operands.

    Plain integers are computed in a type in which C defines every result.
    """
    dtype = bound.output.dtype
    if bound.node.op.numerics is Numerics.TFLITE:
        table = table_layer(bound, partial(_squares, bound))
        return table or _scale(bound).layer(bound, "elementwise/rescaled_square", Clamp(*dtype.range))
    spec = pointwise.typed(dtype, dtype)
    if dtype is DType.INT32:
        spec = replace(spec, w="uint32_t")
    return broadcast_layer(bound, "elementwise/squared_difference", spec=spec)


_broadcasting = partial(KernelDef, output_shapes=output_shapes, elementwise=True)
_floor = partial(_broadcasting, check=_check_floor, reference=_floor_reference, lower=_lower_floor)


_SUM_TYPES = (DType.INT8, DType.FLOAT32)
_MAX_OPERANDS = 64


class AddN(Op):
    """Sum of all operands."""


@dataclass(frozen=True, slots=True)
class VariadicSum(Op):
    """mean: whether the sum is divided by the number of operands."""

    mean: bool


def _sum_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, _MAX_OPERANDS))
    return any_operands(AddN(numerics=pointwise.plain_numerics(node)), node)


def _check_same_shape(bound: BoundNode) -> None:
    """Refuses other types, operands of different shapes or scales, and scales out of proportion."""
    count, first = len(bound.inputs), bound.input(0)
    require_dtypes(bound, [(t,) * (count + 1) for t in _SUM_TYPES])
    for position in range(count):
        tensor = bound.input(position)
        if tensor.shape != first.shape:
            why = f"{list(first.shape)} and {list(tensor.shape)}"
            raise illegal(bound, "has operands of different shapes", why, tensor=tensor)
        if first.dtype is DType.INT8:
            require_same_quantization(bound, first, tensor)
    if first.dtype is DType.INT8:
        check_sum(bound)


def _check_sum(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    pointwise.require_types(bound, same_types((DType.FLOAT32,), len(bound.inputs)), "float32")
    require_broadcast(bound)


def _mean_factor(bound: BoundNode) -> np.float32:
    return np.float32(1 / len(bound.inputs))


def _sum_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """One addition after the other, in float32 or of integers; ADD_N starts from 0."""
    values = [pointwise.operand(bound, inputs, position) for position in range(len(bound.inputs))]
    if bound.output.dtype is DType.INT8:
        acc: Int64 = np.stack([value.astype(np.int64) for value in values]).sum(axis=0)
        return (rescaled(bound, acc - (len(values) + 1) * bound.input(0).zero_point),)
    op = bound.node.op
    first = np.zeros((), np.float32) if isinstance(op, AddN) else np.asarray(values.pop(0), np.float32)
    with np.errstate(all="ignore"):
        total: Float32 = sum((np.asarray(value, np.float32) for value in values), first)
        mean = isinstance(op, VariadicSum) and op.mean
        return (np.asarray(total * _mean_factor(bound) if mean else total, np.float32),)


def _lower_same_shape(bound: BoundNode) -> Layer:
    """One loop that reads all operands; the output may lie over any."""
    operands = tuple(range(len(bound.inputs)))
    params: tuple[Param, ...] = integers(count=bound.output.elements, operands=len(operands))
    template, spec = "elementwise/add_n_float", KernelSpec(x="float", y="float")
    if bound.output.dtype is DType.INT8:
        template, spec = "elementwise/add_n", PLAIN
        start = -(len(operands) + 1) * bound.input(0).zero_point
        params = (*params, Param("start", "int32_t", start, "minus the zero points"), *sum_params(bound))
    computed = tuple(i for i in operands if not bound.input(i).is_constant)
    by_rows = ByRows(counted="count") if computed == operands else None
    overlaps = pointwise.in_place(bound, computed)
    return Layer(template, "portable", operands, params=params, overlaps=overlaps, spec=spec, by_rows=by_rows)


def _lower_sum(bound: BoundNode) -> Layer:
    """Two by two, and one more pass for the factor."""
    if not bound.op(VariadicSum).mean:
        return fold_layer(bound, Formula("sum", "va + vb", "a + b"))
    count = Param("count", "int32_t", bound.output.elements)
    factor = Param("factor", "float", float(_mean_factor(bound)), "one over the operands")
    return fold_layer(bound, "elementwise/mean_of", (count, factor))


KERNELS = (
    _floor(
        FloorDiv, "quotient rounded down, broadcasting", _TFLITE_TYPES, ("FLOOR_DIV",), pointwise.parser_of(FloorDiv, 2)
    ),
    _floor(
        FloorMod, "remainder of the quotient rounded down, broadcasting", _TFLITE_TYPES, ("FLOOR_MOD",),
        pointwise.parser_of(FloorMod, 2),
    ),
    _floor(
        Modulo, "remainder of a division, broadcasting", _ONNX_TYPES, onnx=("Mod",),
        from_onnx=lambda node: parser(Modulo(bool(node.integer("fmod", 0, 0, 1))), 2)(node),
    ),
    _broadcasting(
        Power, "power, broadcasting", _BASES, ("POW",), pointwise.parser_of(Power, 2), _check_power, _power_reference,
        _lower_power, tflite_dtypes=_TFLITE_TYPES, onnx=("Pow",), from_onnx=pointwise.parser_of(Power, 2),
    ),
    _broadcasting(
        SquaredDifference, "square of a difference, broadcasting", (DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32),
        ("SQUARED_DIFFERENCE",), pointwise.parser_of(SquaredDifference, 2), _check_square, _square_reference, _lower_square,
    ),
    KernelDef(
        AddN, "sum of tensors of one shape", _SUM_TYPES, ("ADD_N",), _sum_from_tflite, _check_same_shape, _sum_reference,
        _lower_same_shape, work=lambda bound: bound.output.elements * len(bound.inputs), elementwise=True,
    ),
    KernelDef(
        VariadicSum, "sum or mean of tensors, broadcasting", (DType.FLOAT32,), (), None, _check_sum, _sum_reference, _lower_sum,
        output_shapes=output_shapes, onnx=("Sum", "Mean"), elementwise=True,
        from_onnx=lambda node: any_operands(VariadicSum(node.kind == "Mean"), node),
    ),
)  # fmt: skip
