"""FLOOR_DIV and FLOOR_MOD: the quotient rounded down, and what it leaves, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   float32; int32, which TFLite Micro does not run and LiteRT does.
FLOOR_DIV  floor of the quotient in double, which two float32 values cannot bring to the wrong side of an integer.
FLOOR_MOD  C's remainder, and b more where it is not 0 and has another sign than b; a remainder of 0 has a's sign.
An integer divided by 0 gives 0, where LiteRT stops; so does TFLite Micro's FLOOR_DIV of floats, which is IEEE's here.
Source  TFLite Micro's and LiteRT's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.pointwise import operand, plain_numerics, require_types
from emitc.layer import Formula, Layer
from emitc.source import SourceNode

_TYPES = (DType.FLOAT32, DType.INT32)

_QUOTIENT = Formula(
    "floor_quotient_real",
    "(float)floor((double)va / (double)vb)",
    "a / b rounded down; in double, as a float32 quotient may be rounded up to an integer",
)


class FloorDiv(Op):
    """Quotient rounded down."""

    __slots__ = ()


class FloorMod(Op):
    """Remainder of that quotient."""

    __slots__ = ()


def _from_tflite(op: type[Op]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        node.counts((2, 2))
        return Parsed(op(numerics=plain_numerics(node)), (0, 1))

    return parse


def check(bound: BoundNode) -> None:
    """Refuses types without code, and shapes that do not fit each other."""
    require_types(bound, same_types(_TYPES), "float32 and int32, one type throughout")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Integers as Python divides them; floats in double, or by IEEE's remainder towards zero."""
    a, b = operand(bound, inputs, 0), operand(bound, inputs, 1)
    divides = isinstance(bound.node.op, FloorDiv)
    with np.errstate(all="ignore"):
        if bound.output.dtype is DType.INT32:
            wide, by = a.astype(np.int64), b.astype(np.int64)
            found = np.where(by == 0, 0, (np.floor_divide if divides else np.mod)(wide, np.where(by == 0, 1, by)))
            return (found.astype(np.int32),)
        if divides:
            return (np.floor(a.astype(np.float64) / b.astype(np.float64)).astype(np.float32),)
        divisor = b.astype(np.float32)
        rest = np.fmod(a.astype(np.float32), divisor)
        return (np.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest).astype(np.float32),)


def lower(bound: BoundNode) -> Layer:
    """A loop over both operands."""
    real = bound.output.dtype is DType.FLOAT32
    if isinstance(bound.node.op, FloorDiv):
        return broadcast_layer(bound, _QUOTIENT if real else "elementwise/floor_quotient")
    return broadcast_layer(bound, "elementwise/floor_remainder_real" if real else "elementwise/modulo")


def _kernel(op: type[Op], name: str, summary: str) -> KernelDef:
    return KernelDef(
        op,
        summary,
        _TYPES,
        (name,),
        _from_tflite(op),
        check,
        reference,
        lower,
        output_shapes=output_shapes,
        elementwise=True,
    )


KERNELS = (
    _kernel(FloorDiv, "FLOOR_DIV", "quotient rounded down, broadcasting"),
    _kernel(FloorMod, "FLOOR_MOD", "remainder of the quotient rounded down, broadcasting"),
)
