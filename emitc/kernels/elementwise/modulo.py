"""Mod: the remainder of a division, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.   Types  integers and float32, all three the same.
With fmod the remainder has a's sign, as in C; without it b's, as in Python. An integer divided by 0 leaves 0, which ONNX does
not define; a float leaves what is not a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types, two_operands
from emitc.kernels.shared.pointwise import SIGNED, UNSIGNED, operand, require_types
from emitc.layer import Formula, Layer
from emitc.source import SourceNode

_TYPES = (DType.FLOAT32, *SIGNED, *UNSIGNED)
_SIGNED = Formula(
    "remainder", "({y})(vb == 0 || vb == -1 ? 0 : va % vb)", "the remainder of a / b, of a's sign; 0 where b is 0"
)
_UNSIGNED = Formula("remainder_unsigned", "({y})(vb == 0 ? 0 : va % vb)", "the remainder of a / b; 0 where b is 0")
_REAL = Formula("remainder_real", "fmodf(va, vb)", "the remainder of a / b, of a's sign")
"""np.fmod in C, and of integers without sign np.mod, which is the same."""


@dataclass(frozen=True, slots=True)
class Modulo(Op):
    """truncated: whether the quotient was rounded towards 0 rather than down."""

    truncated: bool


def from_onnx(node: SourceNode) -> Parsed:
    """Dividend and divisor."""
    return two_operands(Modulo(bool(node.integer("fmod", 0, 0, 1))), node)


def _truncated(bound: BoundNode) -> bool:
    assert isinstance(bound.node.op, Modulo)
    return bound.node.op.truncated


def check(bound: BoundNode) -> None:
    """Refuses types without code, and shapes that do not fit each other."""
    require_types(bound, same_types(_TYPES), "integers and float32")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's fmod or mod."""
    a, b = operand(bound, inputs, 0), operand(bound, inputs, 1)
    function = np.fmod if _truncated(bound) else np.mod
    with np.errstate(all="ignore"):
        return (np.asarray(function(a, b), bound.output.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """One loop for each rounding and kind of type."""
    dtype = bound.output.dtype
    if dtype in UNSIGNED:
        return broadcast_layer(bound, _UNSIGNED)
    if dtype is DType.FLOAT32:
        return broadcast_layer(bound, _REAL if _truncated(bound) else "elementwise/modulo_real")
    return broadcast_layer(bound, _SIGNED if _truncated(bound) else "elementwise/modulo")


KERNELS = (
    KernelDef(
        Modulo, "remainder of a division, broadcasting", _TYPES, (), None, check, reference, lower, output_shapes=output_shapes,
        onnx=("Mod",), from_onnx=from_onnx, elementwise=True,
    ),
)  # fmt: skip
