"""REDUCE_ALL: whether all values are true, over any dimensions.

Shapes  x any, y without the reduced dimensions, or with size 1 in their place.   Types  bool, held as 0 and 1.
The smallest of such values is the answer.   Source  TFLite Micro's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import KernelDef, require_dtypes
from emitc.kernels.reduction.mean import (
    Reduction,
    output_shapes,
    reduction_from_tflite,
    require_elements,
    transposed,
    work,
)
from emitc.kernels.shared.reduction_loops import SMALLEST, typed_layer
from emitc.layer import Layer


class ReduceAll(Reduction):
    """Logical and."""

    __slots__ = ()


def check(bound: BoundNode) -> None:
    """Refuses other types than bool, and tensors without elements."""
    require_dtypes(bound, [(DType.BOOL, DType.BOOL)])
    require_elements(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's all."""
    assert inputs[0] is not None
    return (np.asarray(np.all(inputs[0], axis=bound.op(ReduceAll).axes)).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """The smallest value."""
    return typed_layer(bound, SMALLEST, bound.op(ReduceAll).axes)


KERNELS = (
    KernelDef(
        ReduceAll, "whether all values are true, over any dimensions", (DType.BOOL,), ("REDUCE_ALL",),
        reduction_from_tflite(ReduceAll), check, reference, lower, output_shapes=output_shapes, work=work, transposed=transposed,
    ),
)  # fmt: skip
