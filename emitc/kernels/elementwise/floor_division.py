"""FLOOR_DIV, FLOOR_MOD and Mod: the quotient rounded down, and the remainder of a division, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   TFLite: float32; int32, which TFLite Micro does not run and LiteRT does. ONNX: integers and float32.
FLOOR_DIV  floor of the quotient in double, which two float32 values cannot bring to the wrong side of an integer.
FLOOR_MOD  C's remainder, and b more where it is not 0 and has another sign than b; a remainder of 0 has a's sign.
Mod     With fmod the remainder has a's sign, as in C; without it b's, as in Python.
An integer divided by 0 gives 0, where LiteRT stops and which ONNX does not define; so does TFLite Micro's FLOOR_DIV of
floats, which is IEEE's here. A float divided by 0 leaves a remainder that is not a number.
Source  TFLite Micro's and LiteRT's kernels; ONNX's specification of Mod.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, parser
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.pointwise import SIGNED, UNSIGNED, operand, parser_of, require_types
from emitc.layer import Formula, Layer

_TFLITE_TYPES = (DType.FLOAT32, DType.INT32)
_ONNX_TYPES = (DType.FLOAT32, *SIGNED, *UNSIGNED)

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


def check(bound: BoundNode) -> None:
    """Refuses types without code, and shapes that do not fit each other."""
    if bound.node.op.numerics.of_tflite:
        require_types(bound, same_types(_TFLITE_TYPES), "float32 and int32, one type throughout")
    require_types(bound, same_types(_ONNX_TYPES), "integers and float32")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's functions, which give 0 for integers over 0; FLOOR_DIV of floats in double, FLOOR_MOD by fmod."""
    a, b, op, dtype = operand(bound, inputs, 0), operand(bound, inputs, 1), bound.node.op, bound.output.dtype
    with np.errstate(all="ignore"):
        if dtype is DType.FLOAT32 and isinstance(op, FloorDiv):
            return (np.floor(a.astype(np.float64) / b.astype(np.float64)).astype(np.float32),)
        if dtype is DType.FLOAT32 and isinstance(op, FloorMod):
            rest, divisor = np.fmod(a, b), b.astype(np.float32)
            moves = (rest != 0) & ((rest < 0) != (divisor < 0))
            return (np.where(moves, rest + divisor, rest).astype(np.float32),)
        function = np.floor_divide if isinstance(op, FloorDiv) else np.fmod if _truncated(bound) else np.mod
        return (np.asarray(function(a, b), dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """A loop over both operands, for each rounding and kind of type."""
    op, dtype = bound.node.op, bound.output.dtype
    real = dtype is DType.FLOAT32
    if isinstance(op, FloorDiv):
        return broadcast_layer(bound, _QUOTIENT if real else "elementwise/floor_quotient")
    if dtype in UNSIGNED:
        return broadcast_layer(bound, _UNSIGNED)
    if _truncated(bound):
        return broadcast_layer(bound, _REAL if real else _SIGNED)
    of_reals = "elementwise/floor_remainder_real" if isinstance(op, FloorMod) else "elementwise/modulo_real"
    return broadcast_layer(bound, of_reals if real else "elementwise/modulo")


KERNELS = (
    KernelDef(
        FloorDiv, "quotient rounded down, broadcasting", _TFLITE_TYPES, ("FLOOR_DIV",), parser_of(FloorDiv, 2), check,
        reference, lower, output_shapes=output_shapes, elementwise=True,
    ),
    KernelDef(
        FloorMod, "remainder of the quotient rounded down, broadcasting", _TFLITE_TYPES, ("FLOOR_MOD",),
        parser_of(FloorMod, 2), check, reference, lower, output_shapes=output_shapes, elementwise=True,
    ),
    KernelDef(
        Modulo, "remainder of a division, broadcasting", _ONNX_TYPES, (), None, check, reference, lower,
        output_shapes=output_shapes, onnx=("Mod",),
        from_onnx=lambda node: parser(Modulo(bool(node.integer("fmod", 0, 0, 1))), 2)(node), elementwise=True,
    ),
)  # fmt: skip
