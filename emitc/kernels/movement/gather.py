"""Gather of ONNX and GATHER: slices of a tensor along an axis, chosen by indices.

Shapes  x [a..., n, b...], indices [i...], y [a..., i..., b...]; with batch_dims x [c..., a..., n, b...], indices [c..., i...],
        y [c..., a..., i..., b...]: each c has indices of its own.   Types  x any, indices int32 or int64; scale and zero point
must not change.
Negative indices count from the end. Constant indices are settled here: at equal distances (one index, say) they are a plain
copy. An index that is computed and lies outside the tensor is limited to it, where ONNX Runtime gives up and TFLite Micro reads
foreign memory. TFLite has no negative indices; constant ones are refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, unsupported
from emitc.kernels.shared.axis_gather import pick_layer, picked, require_pickable
from emitc.kernels.shared.joined_rows import axis_of
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.strided_copy import data_operands, require_same_values
from emitc.layer import Layer, Param
from emitc.numerics.requantize import Int64
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


def _from_onnx(node: SourceNode) -> Parsed:
    return _parsed(_op(node))


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


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op, (_, size, _) = bound.op(Gather), _blocks(bound)
    x = operand(bound, inputs, 0)
    if op.indices is not None:
        indices = np.array(op.indices)
    else:
        stated = np.asarray(operand(bound, inputs, _INDICES), np.int64)
        indices = np.clip(np.where(stated < 0, stated + size, stated), 0, size - 1)
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


KERNELS = (
    KernelDef(
        Gather,
        "slices of a tensor chosen by indices",
        tflite={"GATHER": _from_tflite},
        onnx={"Gather": _from_onnx},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=_output_shapes,
        transposed=_transposed,
        moves=True,
    ),
)
