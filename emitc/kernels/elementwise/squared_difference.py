"""SQUARED_DIFFERENCE: y = (a - b) * (a - b), with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   float32, and int32, which wraps; int8 and int16, each tensor with its own scale: both operands, in int8 shifted left by
        7 bits, are requantized to twice the larger input scale. The square of their difference is requantized to the output.
Source  TFLite Micro's kernel, ratios of scales in double.
Errors  ratios of scales at which a square leaves 32 bits.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef
from emitc.kernels.elementwise.quantized_operands import CommonScale, common_scale, scales, table_layer, zero_points
from emitc.kernels.shared.broadcast import broadcast_layer, check_binary, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.pointwise import operand, parser_of, require_factor, require_types, typed, values_of
from emitc.layer import Layer
from emitc.numerics.requantize import Clamp, Int64, requantize

_TYPES = (DType.FLOAT32, DType.INT32)
_LEFT_SHIFTS = {DType.INT8: 7, DType.INT16: 0}
"""Bits that quantized values gain before they are rounded to one scale."""
_LARGEST_SQUARE = 1 << 30


class SquaredDifference(Op):
    """Square of a - b."""


def check(bound: BoundNode) -> None:
    """Refuses other types, shapes that do not fit each other, and scales out of proportion."""
    if bound.node.op.numerics is Numerics.TFLITE:
        check_binary(bound)
        require_factor(bound, _scale(bound).factors[2], _LARGEST_SQUARE)
        return
    require_types(bound, same_types(_TYPES), "float32, int32, int8 and int16, one type throughout")
    require_broadcast(bound)


def _scale(bound: BoundNode) -> CommonScale:
    return common_scale(scales(bound), _LEFT_SHIFTS[bound.output.dtype], power=2)


def _squares(bound: BoundNode, a: Int64, b: Int64) -> Int64:
    """The results for quantized values that broadcast against each other."""
    scale, y = _scale(bound), bound.output
    scaled_a, scaled_b = scale.operands(zero_points(bound), a, b)
    last = scale.multipliers[2]
    return np.clip(requantize((scaled_a - scaled_b) ** 2, last.q31, last.shift) + y.zero_point, *y.dtype.range)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The square of numpy's difference, or the specified sequence of roundings."""
    if bound.node.op.numerics is Numerics.TFLITE:
        squares = _squares(bound, values_of(bound, inputs, 0), values_of(bound, inputs, 1))
        return (np.asarray(squares, bound.output.dtype.value),)
    with np.errstate(all="ignore"):
        difference = np.subtract(operand(bound, inputs, 0), operand(bound, inputs, 1))
        return (np.asarray(np.multiply(difference, difference), bound.output.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """A table where one int8 input decides; else a loop over both operands.

    Plain integers are computed in a type in which C defines every result.
    """
    dtype = bound.output.dtype
    if bound.node.op.numerics is Numerics.TFLITE:
        table = table_layer(bound, partial(_squares, bound))
        return table or _scale(bound).layer(bound, "elementwise/rescaled_square", Clamp(*dtype.range))
    spec = typed(dtype, dtype)
    if dtype is DType.INT32:
        spec = replace(spec, w="uint32_t")
    return broadcast_layer(bound, "elementwise/squared_difference", spec=spec)


KERNELS = (
    KernelDef(
        SquaredDifference, "square of a difference, broadcasting", (DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32),
        ("SQUARED_DIFFERENCE",), parser_of(SquaredDifference, 2), check, reference, lower, output_shapes=output_shapes,
        elementwise=True,
    ),
)  # fmt: skip
