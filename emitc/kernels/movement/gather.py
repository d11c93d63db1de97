"""Gather of ONNX and GATHER: slices of a tensor along an axis, chosen by indices.

Shapes  x [a..., n, b...], indices [i...], y [a..., i..., b...]; with batch_dims x [c..., a..., n, b...], indices [c..., i...],
        y [c..., a..., i..., b...]: each c has indices of its own.   Types  x any, indices int32 or int64; scale and zero point
must not change.
Negative indices count from the end. Constant indices are settled here: at equal distances (one index, say) they are a plain
copy. An index that is computed and lies outside the tensor is limited to it, where ONNX Runtime gives up and TFLite Micro reads
foreign memory. TFLite has no negative indices; constant ones are refused.

GATHER_ND: elements or slices of a tensor, each chosen by a tuple of indices.

Shapes  x [n0, ..., nk-1, b...], indices [i..., k], y [i..., b...].   Types  x any, indices int32 or int64; scale and zero point
must not change.
A constant index outside its dimension is refused; a computed one is limited to it, where TFLite Micro gives up.

EMBEDDING_LOOKUP: rows of a table, chosen by indices.

Shapes  indices [n], table [rows, ...], y [n, ...].
Types   indices int32. Table and y float32 or int8, copied; a table of int8 without a zero point also as float32, times its scale.
An index that lies outside is limited to the table, where TFLite Micro gives up; a negative one counts from the end.
Source  TFLite Micro's kernel.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    illegal,
    parser,
    require_dtypes,
    require_quantization,
    require_same_quantization,
    unsupported,
)
from emitc.kernels.shared.byte_moves import (
    axis_of,
    data_operands,
    pick_layer,
    picked,
    require_pickable,
    require_same_values,
    strides,
)
from emitc.kernels.shared.pointwise import operand
from emitc.layer import KernelSpec, Layer, Param, Table, integers
from emitc.numerics.requantize import Int64
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_INDICES = 1


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """axis: from the front. shape: of the indices. indices: from the front, row-major; None where they are computed.

    batch_dims: leading dimensions that x and the indices share; with any of them, indices are an operand.
    """

    axis: int
    shape: Shape
    indices: tuple[int, ...] | None
    batch_dims: int = 0


def _from_tflite(node: SourceNode) -> Parsed:
    """GATHER: as Gather, and the leading dimensions that both inputs share."""
    op = _op(node)
    x, indices, stated = node.input(0).shape, node.input(_INDICES).shape, node.integer("batch_dims", 0)
    batch = stated + len(indices) if stated < 0 else stated
    if not 0 <= batch <= min(op.axis, len(indices)) or x[:batch] != indices[:batch]:
        why = f"{list(x)} and {list(indices)} share no such dimensions in front of axis {op.axis}"
        raise node.refusal(f"has batch_dims {stated}", why)
    return _parsed(replace(op, indices=None, batch_dims=batch) if batch else op)


def _parsed(op: Gather) -> Parsed:
    return Parsed(op, (0, _INDICES) if op.indices is None else (0,))


def _op(node: SourceNode) -> Gather:
    node.counts((2, 2))
    x, indices = node.input(0), node.input(_INDICES)
    axis = axis_of(node, node.integer("axis", 0), len(x.shape))
    if indices.dtype not in ("int32", "int64"):
        raise node.refusal(f"has indices of type {indices.dtype}", "int32 or int64 is expected", tensor=indices)
    if indices.data is None:
        return Gather(axis, indices.shape, None)
    size = x.shape[axis]
    chosen = tuple(int(index) for index in indices.array().reshape(-1))
    least = -size if node.format == "onnx" else 0
    if not all(least <= index < size for index in chosen):
        what = f"takes slices {min(chosen)} to {max(chosen)}"
        raise node.refusal(what, f"dimension {axis} has {size}", tensor=indices)
    return Gather(axis, indices.shape, tuple(index % size for index in chosen))


def _blocks(bound: BoundNode) -> Shape:
    """The input as [a, n, b], without the leading dimensions that it shares with the indices."""
    shape, axis = bound.input(0).shape, bound.op(Gather).axis
    return math.prod(shape[bound.op(Gather).batch_dims : axis]), shape[axis], math.prod(shape[axis + 1 :])


def _positions(bound: BoundNode, indices: Int64) -> tuple[Int64, Int64, Int64]:
    before, _, after = _blocks(bound)
    return np.arange(before), indices, np.arange(after)


def _check(bound: BoundNode) -> None:
    op = bound.op(Gather)
    require_same_values(bound, bound.input(0), bound.output)
    if math.prod(op.shape) == 0 or bound.input(0).elements == 0:
        raise unsupported(bound, "of nothing is not supported", "there are no indices", "remove the operator")
    if op.indices is not None:
        require_pickable(bound, _blocks(bound), _positions(bound, np.array(op.indices)))


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op, shape = bound.op(Gather), bound.input(0).shape
    return ((*shape[: op.axis], *op.shape[op.batch_dims :], *shape[op.axis + 1 :]),)


def _inside(indices: Array, size: int) -> Int64:
    """Indices from the front, limited to a dimension of that size."""
    stated = indices.astype(np.int64)
    return np.clip(np.where(stated < 0, stated + size, stated), 0, size - 1)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op, (_, size, _) = bound.op(Gather), _blocks(bound)
    x = operand(bound, inputs, 0)
    indices = _inside(operand(bound, inputs, _INDICES), size) if op.indices is None else np.array(op.indices)
    batches = math.prod(op.shape[: op.batch_dims])
    pairs = zip(x.reshape(batches, *_blocks(bound)), indices.reshape(batches, -1), strict=True)
    values = np.stack([picked(part, _positions(bound, chosen)) for part, chosen in pairs])
    return (values.reshape(_output_shapes(bound)[0]),)


def _lower(bound: BoundNode) -> Layer:
    """A pick by table or a plain copy; with computed indices, a copy for each."""
    op, x = bound.op(Gather), bound.input(0)
    before, size, after = _blocks(bound)
    if op.indices is not None:
        return pick_layer(bound, (before, size, after), _positions(bound, np.array(op.indices)))
    params = (
        Param("batches", "int32_t", math.prod(op.shape[: op.batch_dims]), "each with indices of its own"),
        Param("blocks", "int32_t", before),
        Param("size", "int32_t", size, "slices to choose from"),
        Param("count", "int32_t", math.prod(op.shape[op.batch_dims :]), "indices"),
        Param("slice_bytes", "int32_t", after * x.dtype.bytes),
    )
    operands, tables = data_operands(x, comment="data")
    return Layer("movement/gather", "portable", (*operands, _INDICES), tables, params)


def _transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op | None:
    """Along the dimension that the axis was; None where the rank changes or the indices are an operand."""
    op = bound.op(Gather)
    if len(op.shape) != 1 or op.indices is None:
        return None
    return replace(op, axis=permutation[op.axis])


@dataclass(frozen=True, slots=True)
class GatherNd(Op):
    """shape: of the indices. indices: row-major; None where they are computed."""

    shape: Shape
    indices: tuple[int, ...] | None


def _nd_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    x, indices = node.input(0), node.input(_INDICES)
    if indices.dtype not in ("int32", "int64") or not indices.shape or not 0 < indices.shape[-1] <= len(x.shape):
        why = f"int32 or int64 is expected, in tuples of 1 to {len(x.shape)}"
        raise node.refusal(f"has indices {indices.describe()}", why, tensor=indices)
    if indices.data is None:
        return Parsed(GatherNd(indices.shape, None), (0, _INDICES))
    chosen = indices.array().astype(np.int64).reshape(-1, indices.shape[-1])
    if ((chosen < 0) | (chosen >= np.array(x.shape[: chosen.shape[1]]))).any():
        raise node.refusal("takes elements outside its input", f"the input is {list(x.shape)}", tensor=indices)
    return Parsed(GatherNd(indices.shape, tuple(chosen.reshape(-1).tolist())))


def _check_nd(bound: BoundNode) -> None:
    require_same_values(bound, bound.input(0), bound.output)
    if math.prod(bound.op(GatherNd).shape) == 0 or bound.input(0).elements == 0:
        raise unsupported(bound, "of nothing is not supported", "there is nothing to choose", "remove the operator")


def _nd_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The indices' shape without its last dimension, then what of the input they leave."""
    shape = bound.op(GatherNd).shape
    return ((*shape[:-1], *bound.input(0).shape[shape[-1] :]),)


def _nd_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op, values = bound.op(GatherNd), operand(bound, inputs, 0)
    chosen = np.asarray(operand(bound, inputs, _INDICES) if op.indices is None else op.indices, np.int64)
    width = op.shape[-1]
    tuples = np.clip(chosen.reshape(-1, width), 0, np.array(values.shape[:width]) - 1)
    return (values[tuple(tuples.T)].reshape(_nd_shapes(bound)[0]),)


def _lower_nd(bound: BoundNode) -> Layer:
    op, x = bound.op(GatherNd), bound.input(0)
    width = op.shape[-1]
    operands, tables = data_operands(x)
    tables += (
        Table("sizes", "int32_t", x.shape[:width], "dimensions that the indices choose from"),
        Table("steps", "int32_t", strides(x.shape, x.dtype.bytes)[:width], "bytes from one to the next along each"),
    )
    if op.indices is None:
        operands = (*operands, _INDICES)
    else:
        tables += (Table("indices", "int32_t", op.indices, f"tuples of {width}"),)
    params = (
        Param("count", "int32_t", math.prod(op.shape[:-1]), "tuples"),
        Param("width", "int32_t", width, "indices of a tuple"),
        Param("slice_bytes", "int32_t", math.prod(x.shape[width:]) * x.dtype.bytes),
    )
    return Layer("movement/gather_nd", "portable", operands, tables, params)


_TABLE = 1
_TYPES = (DType.FLOAT32, DType.INT8)


class EmbeddingLookup(Op):
    """Rows by number."""


def _hybrid(bound: BoundNode) -> bool:
    return bound.input(_TABLE).dtype is not bound.output.dtype


def _check_lookup(bound: BoundNode) -> None:
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


def _lookup_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    table = operand(bound, inputs, _TABLE)
    rows = table[_inside(operand(bound, inputs, 0), len(table))]
    return (rows.astype(np.float32) * np.float32(bound.input(_TABLE).scale) if _hybrid(bound) else rows,)


def _lower_lookup(bound: BoundNode) -> Layer:
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
        Gather,
        "slices of a tensor chosen by indices",
        tflite={"GATHER": _from_tflite},
        onnx={"Gather": lambda node: _parsed(_op(node))},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=_output_shapes,
        transposed=_transposed,
        moves=True,
    ),
    KernelDef(
        GatherNd,
        "elements or slices of a tensor chosen by tuples of indices",
        tflite={"GATHER_ND": _nd_from_tflite},
        check=_check_nd,
        reference=_nd_reference,
        lower=_lower_nd,
        output_shapes=_nd_shapes,
        moves=True,
    ),
    KernelDef(
        EmbeddingLookup,
        "rows of a table chosen by indices",
        _TYPES,
        tflite={"EMBEDDING_LOOKUP": parser(EmbeddingLookup(), inputs=2)},
        check=_check_lookup,
        reference=_lookup_reference,
        lower=_lower_lookup,
        output_shapes=lambda bound: ((*bound.input(0).shape, *bound.input(_TABLE).shape[1:]),),
    ),
)
