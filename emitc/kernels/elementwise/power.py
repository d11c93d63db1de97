"""Pow and POW: y = a ** b, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   a and y float32, int32 or int64; b float32 or any integer. TFLite: all float32, or all int32.
float32     the power of the C library. One exponent for all of a that is 2, 3, 1/2 or -1 is a product, a root or a quotient.
            (ONNX Runtime, too, multiplies for 2 and 3.)
integers    to an integer power: by multiplication, wrapping; a negative power is 0 except for 1 and -1. To a real power: in
            float64, without the fraction, limited to what the type holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef
from emitc.kernels.shared import pointwise
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types
from emitc.layer import Formula, Layer, Param
from emitc.numerics.float_functions import FUNCTIONS, RealFunction

_BASES = (DType.FLOAT32, DType.INT32, DType.INT64)
_TFLITE_TYPES = (DType.FLOAT32, DType.INT32)
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


def check(bound: BoundNode) -> None:
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


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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
    return (
        np.where(
            wide <= float(low), np.array(low, y.value), np.where(wide >= float(high), np.array(high, y.value), result)
        ),
    )


def lower(bound: BoundNode) -> Layer:
    """A simple function where one constant exponent allows it; otherwise a loop over both operands."""
    a, b, y = bound.input(0), bound.input(1), bound.output
    if y.dtype is not DType.FLOAT32:
        if b.dtype is DType.FLOAT32:
            low, high = y.dtype.range
            return broadcast_layer(
                bound,
                "elementwise/power_integer",
                (Param("low", y.dtype.c_type, low), Param("high", y.dtype.c_type, high)),
            )
        return broadcast_layer(bound, "elementwise/power_of_integers")
    if b.is_constant and b.elements == 1 and a.elements == y.elements:
        exponent = float(b.array().reshape(-1)[0])
        if exponent == 1.0:
            return pointwise.copied(bound)
        if exponent in _SIMPLE:
            return pointwise.pointwise_layer(bound, pointwise.formula_of(_SIMPLE[exponent]))
    return broadcast_layer(bound, _POWER)


KERNELS = (
    KernelDef(
        Power, "power, broadcasting", _BASES, ("POW",), pointwise.parser_of(Power, 2), check, reference, lower,
        output_shapes=output_shapes, tflite_dtypes=_TFLITE_TYPES, onnx=("Pow",), from_onnx=pointwise.parser_of(Power, 2),
        elementwise=True,
    ),
)  # fmt: skip
