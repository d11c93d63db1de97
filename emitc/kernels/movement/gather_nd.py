"""GATHER_ND: elements or slices of a tensor, each chosen by a tuple of indices.

Shapes  x [n0, ..., nk-1, b...], indices [i..., k], y [i..., b...].   Types  x any, indices int32 or int64; scale and zero point
must not change.
A constant index outside its dimension is refused; a computed one is limited to it, where TFLite Micro gives up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, unsupported
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.strided_copy import data_operands, require_same_values, strides
from emitc.layer import Layer, Param, Table
from emitc.source import SourceNode

_INDICES = 1


@dataclass(frozen=True, slots=True)
class GatherNd(Op):
    """shape: of the indices. indices: row-major; None where they are computed."""

    shape: Shape
    indices: tuple[int, ...] | None


def _from_tflite(node: SourceNode) -> Parsed:
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


def _check(bound: BoundNode) -> None:
    require_same_values(bound, bound.input(0), bound.output)
    if math.prod(bound.op(GatherNd).shape) == 0 or bound.input(0).elements == 0:
        raise unsupported(bound, "of nothing is not supported", "there is nothing to choose", "remove the operator")


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The indices' shape without its last dimension, then what of the input they leave."""
    shape = bound.op(GatherNd).shape
    return ((*shape[:-1], *bound.input(0).shape[shape[-1] :]),)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op, values = bound.op(GatherNd), operand(bound, inputs, 0)
    chosen = np.asarray(operand(bound, inputs, _INDICES) if op.indices is None else op.indices, np.int64)
    width = op.shape[-1]
    tuples = np.clip(chosen.reshape(-1, width), 0, np.array(values.shape[:width]) - 1)
    return (values[tuple(tuples.T)].reshape(_output_shapes(bound)[0]),)


def _lower(bound: BoundNode) -> Layer:
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


KERNELS = (
    KernelDef(
        GatherNd,
        "elements or slices of a tensor chosen by tuples of indices",
        tflite={"GATHER_ND": _from_tflite},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=_output_shapes,
        moves=True,
    ),
)
