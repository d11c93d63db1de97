"""Sum and Mean of ONNX: of any number of tensors, element by element, with broadcasting. (A sum along an axis is a ReduceSum.)

Shapes  one to 64 operands that broadcast (numpy's rule), y the broadcast shape.   Types  float32.
The operands are added from the first to the last; Mean multiplies the sum by float32(1 / n), as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.broadcast import any_operands, fold_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.pointwise import operand, require_types
from emitc.layer import Formula, Layer, Param
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class VariadicSum(Op):
    """mean: whether the sum is divided by the number of operands."""

    mean: bool


def from_onnx(node: SourceNode) -> Parsed:
    """Sum or Mean."""
    return any_operands(VariadicSum(node.kind == "Mean"), node)


def _factor(bound: BoundNode) -> np.float32:
    return np.float32(1 / len(bound.inputs))


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    require_types(bound, same_types((DType.FLOAT32,), len(bound.inputs)), "float32")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """float32 additions in order."""
    op = bound.op(VariadicSum)
    result = np.asarray(operand(bound, inputs, 0), np.float32)
    with np.errstate(all="ignore"):
        for position in range(1, len(bound.inputs)):
            result = result + np.asarray(operand(bound, inputs, position), np.float32)
        return (np.asarray(result * _factor(bound) if op.mean else result, np.float32),)


def lower(bound: BoundNode) -> Layer:
    """Two by two, and one more pass for the factor."""
    op = bound.op(VariadicSum)
    if not op.mean:
        return fold_layer(bound, Formula("sum", "va + vb", "a + b"))
    count = Param("count", "int32_t", bound.output.elements)
    return fold_layer(
        bound, "elementwise/mean_of", (count, Param("factor", "float", float(_factor(bound)), "one over the operands"))
    )


KERNELS = (
    KernelDef(
        VariadicSum, "sum or mean of tensors, broadcasting", (DType.FLOAT32,), (), None, check, reference, lower,
        output_shapes=output_shapes,
        onnx=("Sum", "Mean"), from_onnx=from_onnx, elementwise=True,
    ),
)  # fmt: skip
