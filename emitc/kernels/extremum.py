"""MINIMUM and MAXIMUM of two quantized tensors, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   int8; all three tensors share scale and zero point, so that quantized values are compared as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Layer, Param, Parsed, require_same_quantization
from emitc.kernels.elementwise import (
    BYTES,
    TABLE_ENTRIES,
    binary_layer,
    binary_shape,
    binary_table,
    check_binary,
    single_source,
    values_of,
)
from emitc.quantize import Int64


class Minimum(Op):
    """The smaller of both values."""

    __slots__ = ()


class Maximum(Op):
    """The larger of both values."""

    __slots__ = ()


def _from_tflite(op: type[Op]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        node.counts((2, 2))
        return Parsed(op(), (0, 1))

    return parse


def check(bound: BoundNode) -> None:
    """Refuses what check_binary does, and tensors that do not share scale and zero point."""
    check_binary(bound)
    require_same_quantization(bound, bound.input(0), bound.output)
    require_same_quantization(bound, bound.input(1), bound.output)


def _compute(bound: BoundNode, a: Int64, b: Int64) -> Int64:
    """The results of quantized values that broadcast against each other."""
    function = np.minimum if isinstance(bound.node.op, Minimum) else np.maximum
    return np.asarray(function(a, b), np.int64)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's minimum or maximum."""
    y = bound.output
    result = _compute(bound, values_of(bound, inputs, 0), values_of(bound, inputs, 1))
    return (result.astype(y.dtype.value).reshape(y.shape),)


def lower(bound: BoundNode) -> Layer:
    """A table where one input decides and the tensor is no smaller than the table; else a loop over both operands."""
    source = single_source(bound)
    if source is not None and bound.output.elements >= TABLE_ENTRIES:
        return binary_table(bound, source, _compute(bound, BYTES[:, None], BYTES[None, :]))
    flip = Param("flip", "int32_t", -isinstance(bound.node.op, Minimum), "0: maximum, -1: minimum")
    return binary_layer(bound, "extremum", (flip,))


def _kernel(op: type[Op], name: str, summary: str) -> KernelDef:
    return KernelDef(op, summary, (DType.INT8,), (name,), _from_tflite(op), check, binary_shape, reference, lower)


KERNELS = (
    _kernel(Minimum, "MINIMUM", "elementwise minimum, broadcasting"),
    _kernel(Maximum, "MAXIMUM", "elementwise maximum, broadcasting"),
)
