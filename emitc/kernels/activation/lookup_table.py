"""ByteTable: y[i] = table[x[i]] over int8. Whatever computes one byte from one byte, worked out at compile time.

`passes/recognise_qdq.py` makes it of a chain of float operators between a dequantized and a quantized tensor. The table is
the reference's float32 arithmetic, value by value.   Shapes  x any, y the same number of elements.   Types  int8.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, require_dtypes
from emitc.kernels.shared.byte_lookup import TABLE_ENTRIES, byte_table
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer
from emitc.numerics.requantize import Int64


@dataclass(frozen=True, slots=True)
class ByteTable(Op):
    """results: of the values -128 to 127, in order."""

    results: tuple[int, ...]


def _results(bound: BoundNode) -> Int64:
    return np.array(bound.op(ByteTable).results, np.int64)


def check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT8, DType.INT8)])
    assert len(_results(bound)) == TABLE_ENTRIES


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    return (_results(bound).astype(np.int8)[operand(bound, inputs, 0).astype(np.int64) + TABLE_ENTRIES // 2],)


def lower(bound: BoundNode) -> Layer:
    return byte_table(bound, 0, _results(bound))


KERNELS = (
    KernelDef(
        ByteTable, "any function of one byte, as a table", (DType.INT8,), (), None, check, reference, lower,
        elementwise=True,
    ),
)  # fmt: skip
