"""EMBEDDING_LOOKUP: rows of a table, chosen by indices.

Shapes  indices [n], table [rows, ...], y [n, ...].
Types   indices int32. Table and y float32 or int8, copied; a table of int8 without a zero point also as float32, times its scale.
An index that lies outside is limited to the table, where TFLite Micro gives up; a negative one counts from the end.
Source  TFLite Micro's kernel.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import (
    KernelDef,
    illegal,
    parser,
    require_dtypes,
    require_quantization,
    require_same_quantization,
)
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.strided_copy import data_operands
from emitc.layer import KernelSpec, Layer, Param, integers

_TABLE = 1
_TYPES = (DType.FLOAT32, DType.INT8)


class EmbeddingLookup(Op):
    """Rows by number."""


def _hybrid(bound: BoundNode) -> bool:
    return bound.input(_TABLE).dtype is not bound.output.dtype


def _check(bound: BoundNode) -> None:
    indices, table, y = bound.input(0), bound.input(_TABLE), bound.output
    pairs = [(t, t) for t in _TYPES] + [(DType.INT8, DType.FLOAT32)]
    require_dtypes(bound, [(DType.INT32, *pair) for pair in pairs])
    if len(indices.shape) != 1 or len(table.shape) < 2 or 0 in (*indices.shape, *table.shape):
        raise illegal(
            bound,
            "has a table or indices of another rank",
            f"indices {list(indices.shape)} and a table {list(table.shape)}, one dimension and two or more are expected",
            tensor=table,
        )
    if _hybrid(bound):
        require_quantization(bound, table)
        if table.zero_point:
            why = "rows become float32 by a scale alone"
            raise illegal(bound, "has a table with a zero point", why, "quantize the table symmetrically", table)
    elif table.quantization and y.quantization:
        require_same_quantization(bound, table, y)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    indices, table = operand(bound, inputs, 0).astype(np.int64), operand(bound, inputs, _TABLE)
    rows = table[np.clip(np.where(indices < 0, indices + len(table), indices), 0, len(table) - 1)]
    if not _hybrid(bound):
        return (rows,)
    return (rows.astype(np.float32) * np.float32(bound.input(_TABLE).scale),)


def _lower(bound: BoundNode) -> Layer:
    """The copies of a GATHER along the first dimension, or a multiplication by the scale."""
    indices, table = bound.input(0), bound.input(_TABLE)
    width = math.prod(table.shape[1:])
    numbers = integers(size=(table.shape[0], "rows to choose from"), count=(indices.elements, "indices"))
    if not _hybrid(bound):
        blocks = integers(batches=1, blocks=1)
        copied = (*blocks, *numbers, Param("slice_bytes", "int32_t", width * table.dtype.bytes))
        operands, tables = data_operands(table, _TABLE, "rows")
        return Layer("movement/gather", "portable", (*operands, 0), tables, copied)
    params = (*numbers, Param("width", "int32_t", width, "of a row"), Param("scale", "float", table.scale))
    return Layer("movement/embedding_lookup", "portable", (0, _TABLE), params=params, spec=KernelSpec(y="float"))


KERNELS = (
    KernelDef(
        EmbeddingLookup,
        "rows of a table chosen by indices",
        _TYPES,
        tflite={"EMBEDDING_LOOKUP": parser(EmbeddingLookup(), inputs=2)},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=lambda bound: ((*bound.input(0).shape, *bound.input(_TABLE).shape[1:]),),
    ),
)
