"""SignalDelay: every row `delay_length` values later; what comes first are zeros.

Shapes  x [..., N], y the same; kept [rows, delay_length], nothing without a delay.   Types  int16.
Source  TFLite Micro's signal library. The state is the frontend's second input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes
from emitc.kernels.signal.options import option
from emitc.layer import Layer, Param, in_step
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalDelay(Op):
    """length: values of the delay."""

    length: int


def from_tflite(node: SourceNode) -> Parsed:
    """The option."""
    length = option(node, "delay_length", 0)
    if length == 0:
        node.counts((1, 1))
        return Parsed(SignalDelay(0))
    node.counts((2, 2))
    return Parsed(SignalDelay(length), (0, 1), states=(1,))


def _length(bound: BoundNode) -> int:
    assert isinstance(bound.node.op, SignalDelay)
    return bound.node.op.length


def check(bound: BoundNode) -> None:
    """Refuses other types, and constant values."""
    require_dtypes(bound, [(DType.INT16,) * (4 if _length(bound) else 2)])
    if bound.input(0).is_constant or not bound.input(0).shape or 0 in bound.input(0).shape:
        raise illegal(bound, f"{bound.node.op_type} has no rows", "they are computed")


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape, and that of the state."""
    shape, length = bound.input(0).shape, _length(bound)
    return (shape, (math.prod(shape[:-1]), length)) if length else (shape,)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Kept and new values one after the other."""
    assert inputs[0] is not None
    if not _length(bound):
        return (inputs[0],)
    assert inputs[1] is not None
    width = inputs[0].shape[-1]
    row = np.concatenate([inputs[1], inputs[0].reshape(-1, width)], axis=1)
    return row[:, :width].reshape(inputs[0].shape), row[:, width:].copy()


def lower(bound: BoundNode) -> Layer:
    """Row by row."""
    shape = bound.input(0).shape
    if not _length(bound):
        return Layer("movement/copy", "portable", (0,), overlaps=(in_step(bound),))
    params = (
        Param("rows", "int32_t", math.prod(shape[:-1])),
        Param("width", "int32_t", shape[-1]),
        Param("delay", "int32_t", _length(bound), "values that are kept of each row"),
    )
    return Layer("signal/signal_delay", "portable", (0,), params=params)


KERNELS = (
    KernelDef(
        SignalDelay, "rows later by a number of values, which are kept as state", (DType.INT16,), ("CUSTOM:SignalDelay",),
        from_tflite, check, reference, lower, output_shapes=output_shapes,
    ),
)  # fmt: skip
