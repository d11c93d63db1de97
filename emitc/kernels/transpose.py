"""TRANSPOSE: dimensions in another order.

Shapes  x [d0, ...], y [d_perm[0], d_perm[1], ...].   Types  any; scale and zero point must not change.
ONNX's permutation is an attribute; without one the dimensions are reversed.
Errors  a permutation that does not name every dimension once; negative entries, which neither format allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Parsed
from emitc.kernels.integer_lists import listed
from emitc.kernels.strided import Walk, move_layer, require_depth, require_same_type, strides, walk


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """permutation: for each output dimension, the input dimension that it is."""

    permutation: tuple[int, ...]


def _require_permutation(node: SourceNode, permutation: tuple[int, ...]) -> None:
    rank = len(node.input(0).shape)
    if sorted(permutation) != list(range(rank)):
        raise node.refusal(
            f"{node.op_type} has the permutation {list(permutation)}",
            f"each of 0 to {rank - 1} is expected once",
            "export the model again",
        )


def from_tflite(node: SourceNode) -> Parsed:
    """The constant permutation."""
    node.counts((2, 2))
    permutation = node.constant_integers(1, "permutation")
    _require_permutation(node, permutation)
    return Parsed(Transpose(permutation))


def from_onnx(node: SourceNode) -> Parsed:
    """The attribute `perm`, by default the dimensions from last to first."""
    node.counts((1, 1))
    permutation = listed(node, "perm")
    if permutation is None:
        permutation = tuple(reversed(range(len(node.input(0).shape))))
    _require_permutation(node, permutation)
    return Parsed(Transpose(permutation, numerics=Numerics.QOPERATOR))


def _permutation(bound: BoundNode) -> tuple[int, ...]:
    assert isinstance(bound.node.op, Transpose)
    return bound.node.op.permutation


def _walk(bound: BoundNode) -> Walk:
    """Forward through the output."""
    x, (shape,) = bound.input(0), output_shapes(bound)
    x_steps = strides(x.shape, x.dtype.bytes)
    return walk(shape, [x_steps[axis] for axis in _permutation(bound)], strides(shape, x.dtype.bytes), x.dtype.bytes)


def check(bound: BoundNode) -> None:
    """Refuses a change of type, scale or zero point, and moves that are too deep."""
    require_same_type(bound)
    require_depth(bound, _walk(bound))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The permuted shape."""
    return (tuple(bound.input(0).shape[axis] for axis in _permutation(bound)),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's transpose."""
    assert inputs[0] is not None
    return (np.transpose(inputs[0], _permutation(bound)),)


def lower(bound: BoundNode) -> Layer:
    """One walk; dimensions that stay together are copied together."""
    return move_layer(bound, _walk(bound))


KERNELS = (
    KernelDef(
        Transpose,
        "dimensions in another order",
        tuple(DType),
        ("TRANSPOSE",),
        from_tflite,
        check,
        output_shapes,
        reference,
        lower,
        onnx=("Transpose",),
        from_onnx=from_onnx,
        moves=True,
    ),
)
