"""ARG_MAX and ARG_MIN: the position of the largest or smallest value along one dimension; the first of equal ones.

Shapes  x of rank 1 to 8, y without the dimension.   Types  int8 in (whatever its scale), int32 or int64 out.
Source  TFLite Micro's kernels for int32 positions; int64 ones as LiteRT's reference kernel writes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Param, Parsed, illegal, require_dtypes


@dataclass(frozen=True, slots=True)
class ArgExtremum(Op):
    """axis: the dimension that is searched, not negative."""

    axis: int


class ArgMax(ArgExtremum):
    """Position of the largest value."""

    __slots__ = ()


class ArgMin(ArgExtremum):
    """Position of the smallest value."""

    __slots__ = ()


def _from_tflite(op: type[ArgExtremum]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        node.counts((2, 2))
        axes, rank = node.constant_integers(1, "axis"), len(node.input(0).shape)
        if len(axes) != 1 or not -rank <= axes[0] < rank:
            raise node.refusal(
                f"{node.op_type} has axis {list(axes)}",
                f"the input has {rank} dimensions",
                "export the model again",
                node.input(0),
            )
        return Parsed(op(axes[0] % rank))

    return parse


def _op(bound: BoundNode) -> ArgExtremum:
    assert isinstance(bound.node.op, ArgExtremum)
    return bound.node.op


def check(bound: BoundNode) -> None:
    """Refuses other types than int8 in and integers out, and an empty dimension."""
    others = (DType.FLOAT32, DType.UINT8, DType.INT16, DType.INT32)
    positions = (DType.INT32, DType.INT64)
    require_dtypes(
        bound, [(DType.INT8, out) for out in positions], [(found, out) for found in others for out in positions]
    )
    if 0 in bound.input(0).shape:
        raise illegal(
            bound,
            f"{bound.node.op_type} has an empty input",
            "a dimension is 0",
            "export the model again",
            bound.input(0),
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape without the dimension."""
    shape, axis = bound.input(0).shape, _op(bound).axis
    return (shape[:axis] + shape[axis + 1 :],)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's argmax and argmin, which take the first of equal values too."""
    assert inputs[0] is not None
    find = np.argmin if isinstance(bound.node.op, ArgMin) else np.argmax
    found = np.asarray(find(inputs[0], axis=_op(bound).axis))
    return (found.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """One search per element of the output, along values that lie `inner` apart."""
    shape, axis = bound.input(0).shape, _op(bound).axis
    params = (
        Param("outer", "int32_t", math.prod(shape[:axis])),
        Param("depth", "int32_t", shape[axis], "values to choose from"),
        Param("inner", "int32_t", math.prod(shape[axis + 1 :]), "distance between them"),
        Param("flip", "int32_t", -isinstance(bound.node.op, ArgMin), "0: largest, -1: smallest"),
    )
    return Layer("arg_extremum", "portable", (0,), params=params)


def _kernel(op: type[ArgExtremum], name: str, summary: str) -> KernelDef:
    return KernelDef(op, summary, (DType.INT8,), (name,), _from_tflite(op), check, output_shapes, reference, lower)


KERNELS = (
    _kernel(ArgMax, "ARG_MAX", "position of the largest value along a dimension"),
    _kernel(ArgMin, "ARG_MIN", "position of the smallest value along a dimension"),
)
