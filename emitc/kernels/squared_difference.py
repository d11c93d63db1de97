"""SQUARED_DIFFERENCE: y = (a - b) * (a - b), with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.   Types  float32, and int32, which wraps.
Source  TFLite Micro's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.contract import KernelDef, Layer, Parsed
from emitc.kernels.pointwise import operand, plain_numerics, require_types, typed

_TYPES = (DType.FLOAT32, DType.INT32)


class SquaredDifference(Op):
    """Square of a - b."""

    __slots__ = ()


def from_tflite(node: SourceNode) -> Parsed:
    """Both operands."""
    node.counts((2, 2))
    return Parsed(SquaredDifference(numerics=plain_numerics(node)), (0, 1))


def check(bound: BoundNode) -> None:
    """Refuses other types, and shapes that do not fit each other."""
    require_types(bound, same_types(_TYPES), "float32 and int32, one type throughout")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The square of numpy's difference."""
    with np.errstate(all="ignore"):
        difference = np.subtract(operand(bound, inputs, 0), operand(bound, inputs, 1))
        return (np.asarray(np.multiply(difference, difference), bound.output.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """A loop over both operands; integers in a type in which C defines every result."""
    dtype = bound.output.dtype
    flavour = typed(dtype, dtype)
    if dtype is DType.INT32:
        flavour = replace(flavour, w="uint32_t")
    return broadcast_layer(bound, "squared_difference", flavour=flavour)


KERNELS = (
    KernelDef(
        SquaredDifference, "square of a difference, broadcasting", _TYPES, ("SQUARED_DIFFERENCE",), from_tflite, check,
        output_shapes, reference, lower, elementwise=True,
    ),
)  # fmt: skip
