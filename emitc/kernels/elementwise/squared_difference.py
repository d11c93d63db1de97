"""SQUARED_DIFFERENCE: y = (a - b) * (a - b), with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   float32, and int32, which wraps; int8 and int16, each tensor with its own scale: both operands, in int8 shifted left by
        7 bits, are brought to twice the larger input scale, and the square of their difference is requantized to the output.
Source  TFLite Micro's kernel, ratios of scales in double.
Errors  ratios of scales at which a square leaves 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.lookup_and_binary import (
    TABLE_ENTRIES,
    binary_layer,
    binary_table,
    check_binary,
    require_factor,
    single_source,
    values_of,
)
from emitc.kernels.shared.pointwise import operand, plain_numerics, require_types, typed
from emitc.layer import Layer, Param
from emitc.numerics.requantize import BYTES, Int64, Multiplier, multiplier_of, requantize
from emitc.source import SourceNode

_TYPES = (DType.FLOAT32, DType.INT32)
_LEFT_SHIFTS = {DType.INT8: 7, DType.INT16: 0}
"""Bits that quantized values gain before they are rounded to one scale."""
_LARGEST_SQUARE = 1 << 30


class SquaredDifference(Op):
    """Square of a - b."""

    __slots__ = ()


def from_tflite(node: SourceNode) -> Parsed:
    """Both operands."""
    node.counts((2, 2))
    return Parsed(SquaredDifference(numerics=plain_numerics(node)), (0, 1))


def check(bound: BoundNode) -> None:
    """Refuses other types, shapes that do not fit each other, and scales out of proportion."""
    if bound.node.op.numerics is Numerics.TFLITE:
        check_binary(bound)
        require_factor(bound, _factors(bound)[2], _LARGEST_SQUARE)
        return
    require_types(bound, same_types(_TYPES), "float32, int32, int8 and int16, one type throughout")
    require_broadcast(bound)


def _factors(bound: BoundNode) -> tuple[float, float, float]:
    """What a, b and the square of their difference are multiplied with."""
    a, b, y = bound.input(0), bound.input(1), bound.output
    reach = 2 * max(a.scale, b.scale)
    return a.scale / reach, b.scale / reach, reach * reach / ((1 << 2 * _LEFT_SHIFTS[bound.output.dtype]) * y.scale)


def _scaling(bound: BoundNode) -> tuple[tuple[int, int, int], tuple[Multiplier, ...]]:
    """Zero points and multipliers of a, b and y."""
    a, b, y = bound.input(0), bound.input(1), bound.output
    return (a.zero_point, b.zero_point, y.zero_point), tuple(multiplier_of(factor) for factor in _factors(bound))


def _squares(bound: BoundNode, a: Int64, b: Int64) -> Int64:
    """The results for quantized values that broadcast against each other."""
    zeros, (first, second, last) = _scaling(bound)
    left = _LEFT_SHIFTS[bound.output.dtype]
    scaled_a = requantize((a - zeros[0]) << left, first.q31, first.shift)
    difference = scaled_a - requantize((b - zeros[1]) << left, second.q31, second.shift)
    return np.clip(requantize(difference * difference, last.q31, last.shift) + zeros[2], *bound.output.dtype.range)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The square of numpy's difference, or the specified sequence of roundings."""
    if bound.node.op.numerics is Numerics.TFLITE:
        squares = _squares(bound, values_of(bound, inputs, 0), values_of(bound, inputs, 1))
        return (np.asarray(squares, bound.output.dtype.value),)
    with np.errstate(all="ignore"):
        difference = np.subtract(operand(bound, inputs, 0), operand(bound, inputs, 1))
        return (np.asarray(np.multiply(difference, difference), bound.output.dtype.value),)


def _quantized_layer(bound: BoundNode) -> Layer:
    """A table where one int8 input decides and the tensor is no smaller than the table; else a loop over both operands."""
    dtype = bound.output.dtype
    source = single_source(bound) if dtype is DType.INT8 and bound.output.elements >= TABLE_ENTRIES else None
    if source is not None:
        return binary_table(bound, source, _squares(bound, BYTES[:, None], BYTES[None, :]))
    (zero_a, zero_b, zero_y), (first, second, last) = _scaling(bound)
    low, high = dtype.range
    params = (
        Param("a_offset", "int32_t", -zero_a, "minus the zero point"),
        Param("b_offset", "int32_t", -zero_b),
        Param("left_shift", "int32_t", _LEFT_SHIFTS[dtype]),
        Param("a_multiplier", "int32_t", first.q31, "Q31, to twice the larger input scale"),
        Param("a_shift", "int32_t", first.shift),
        Param("b_multiplier", "int32_t", second.q31),
        Param("b_shift", "int32_t", second.shift),
        Param("multiplier", "int32_t", last.q31, "Q31, to the output scale"),
        Param("shift", "int32_t", last.shift),
        Param("output_offset", "int32_t", zero_y),
        Param("clamp_low", "int32_t", low),
        Param("clamp_high", "int32_t", high),
    )
    return binary_layer(bound, "elementwise/rescaled_square", params)


def lower(bound: BoundNode) -> Layer:
    """A loop over both operands; plain integers in a type in which C defines every result."""
    if bound.node.op.numerics is Numerics.TFLITE:
        return _quantized_layer(bound)
    dtype = bound.output.dtype
    spec = typed(dtype, dtype)
    if dtype is DType.INT32:
        spec = replace(spec, w="uint32_t")
    return broadcast_layer(bound, "elementwise/squared_difference", spec=spec)


KERNELS = (
    KernelDef(
        SquaredDifference, "square of a difference, broadcasting", (DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32),
        ("SQUARED_DIFFERENCE",), from_tflite, check, reference, lower, output_shapes=output_shapes, elementwise=True,
    ),
)  # fmt: skip
