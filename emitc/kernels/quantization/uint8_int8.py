"""ShiftSign: int8 to uint8 of the same real values, and back. uint8 tensors of ONNX, and of TFLite's
legacy models, are int8 inside.

Shapes  x any, y the same.   Types  int8 to uint8 or uint8 to int8, of one scale; the zero point of uint8 is 128 higher.
Adding or taking away 128 is turning over the highest bit: y = x ^ 0x80, byte by byte, in place where x is not needed any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, illegal, require_dtypes
from emitc.kernels.shared.pointwise import operand, parser_of
from emitc.layer import Layer, Param, in_step


@dataclass(frozen=True, slots=True)
class ShiftSign(Op):
    """Between int8 and uint8, whose values differ by 128."""


def _bias(bound: BoundNode) -> int:
    """By how much the zero point and the numbers of y are higher."""
    return 128 if bound.output.dtype is DType.UINT8 else -128


def check(bound: BoundNode) -> None:
    """Refuses other types, and quantizations that do not stand for the same real values."""
    require_dtypes(bound, [(DType.INT8, DType.UINT8), (DType.UINT8, DType.INT8)])
    x, y = bound.input(0), bound.output
    if x.quantization is None or y.quantization is None:
        return
    bias = _bias(bound)
    moved = tuple(zero_point + bias for zero_point in x.quantization.zero_points)
    if (x.quantization.scales, moved) != (y.quantization.scales, y.quantization.zero_points):
        why = f"the scales must be equal, and the zero points must differ by {bias}"
        raise illegal(bound, "changes real values", why, tensor=y)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """128 more or less."""
    return ((operand(bound, inputs, 0).astype(np.int16) + _bias(bound)).astype(bound.output.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    params = (Param("count", "int32_t", bound.output.elements),)
    return Layer("quantization/rebias", "portable", (0,), params=params, overlaps=(in_step(bound),))


KERNELS = (
    KernelDef(
        ShiftSign,
        "int8 as uint8 of the same real values, or back",
        (DType.INT8, DType.UINT8),
        tflite={"ShiftSign": parser_of(ShiftSign, tflite=Numerics.TFLITE)},
        check=check,
        reference=reference,
        lower=lower,
        onnx={"ShiftSign": parser_of(ShiftSign)},
        elementwise=True,
    ),
)
