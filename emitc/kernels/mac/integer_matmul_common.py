"""What MatMulInteger and ConvInteger share: operands of uint8 or int8, each with a zero point, and sums of int32.

Operands  a, b, a_zero or none, b_zero or none. A zero point has its operand's type; it may be computed by the running model
(DynamicQuantizeLinear) or constant, one value, or one for each row of a or output channel of b.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Tensor
from emitc.kernels.contract import Parsed, illegal, unsupported
from emitc.layer import Table
from emitc.numerics.requantize import Int64
from emitc.source import SourceNode

A, B, A_ZERO, B_ZERO = range(4)
BYTE_TYPES = (DType.UINT8, DType.INT8)
MAX_DEPTH = 1 << 14
"""Products of a sum. Each is under 2**16, and the forms that take zero points out of the sum need one more bit."""


def parsed(op: Op, node: SourceNode) -> Parsed:
    node.counts((2, 4))
    return Parsed(op, (A, B, A_ZERO, B_ZERO))


def require_bytes(bound: BoundNode, depth: int) -> None:
    """Refuses other types than uint8 and int8 to int32, zero points of other types, and sums that can leave int32."""
    a, b, y = bound.input(A), bound.input(B), bound.output
    if a.dtype not in BYTE_TYPES or b.dtype not in BYTE_TYPES or y.dtype is not DType.INT32:
        what = f"of {a.dtype.value} and {b.dtype.value} is not supported"
        raise unsupported(bound, what, "there is code for uint8 and int8", "quantize the model to 8 bits", a)
    for operand, position in ((a, A_ZERO), (b, B_ZERO)):
        zero = bound.optional(position)
        if zero is not None and zero.dtype is not operand.dtype:
            what = f"has a zero point of type {zero.dtype.value}"
            raise illegal(bound, what, f"its operand is {operand.dtype.value}", tensor=zero)
    if depth > MAX_DEPTH:
        what = f"with sums of {depth} products is not supported"
        why = f"an accumulator of 32 bits is sure to hold {MAX_DEPTH}"
        raise unsupported(bound, what, why, "split the operator", b)


def zero_step(bound: BoundNode, position: int, count: int) -> int:
    """0 where one zero point serves all, 1 where each of `count` slices has its own; other shapes are refused."""
    zero = bound.optional(position)
    if zero is None or zero.elements == 1:
        return 0
    if zero.elements == count and count in zero.shape:
        return 1
    what = f"with zero points of shape {list(zero.shape)} is not supported"
    hint = "export the model with one zero point for each operand"
    raise unsupported(bound, what, f"there is code for one, or {count}", hint, zero)


def values(bound: BoundNode, inputs: Sequence[Array | None], position: int) -> Int64:
    """An operand as integers; 0 for a zero point that is left out."""
    tensor = bound.optional(position)
    if tensor is None:
        return np.zeros((), np.int64)
    value = inputs[position]
    return (tensor.array() if value is None else value).astype(np.int64)


def zero_points(bound: BoundNode, positions: Sequence[int]) -> tuple[tuple[int, ...], tuple[Table, ...]]:
    """Positions of the zero points that are operands, and tables for those that are left out."""
    roles = {A_ZERO: ("a_zero", A), B_ZERO: ("b_zero", B)}
    present = tuple(p for p in positions if bound.optional(p) is not None)
    absent = tuple(
        Table(roles[p][0], bound.input(roles[p][1]).dtype.c_type, (0,), "no zero point")
        for p in positions
        if p not in present
    )
    return present, absent


def constant_zero(bound: BoundNode, position: int) -> bool:
    zero: Tensor | None = bound.optional(position)
    return zero is None or zero.is_constant
