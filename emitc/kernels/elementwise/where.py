"""Where, SELECT and SELECT_V2: y = a where the condition is true, otherwise b.

Shapes  condition, a, b any that broadcast (numpy's rule), y the broadcast shape.   Types  condition bool; a, b and y of one type.
Quantized operands share scale and zero point with y, so that the numbers themselves are chosen.
SELECT with a condition that chooses among rows is refused: TFLite Micro, whose result is to be matched, does not have it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Parsed, require_same_quantization
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast
from emitc.kernels.shared.pointwise import operand, parser_of, require_one_meaning, require_types
from emitc.layer import Layer
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class Where(Op):
    """Chooses between two tensors."""


def from_tflite(node: SourceNode) -> Parsed:
    """Three operands; a condition of rank 1 before others of a higher rank chooses rows in SELECT."""
    node.counts((3, 3))
    condition, a = node.input(0).shape, node.input(1).shape
    if node.op_type == "SELECT" and len(condition) == 1 and len(a) > 1:
        why = f"a condition of shape {list(condition)} chooses among the rows of {list(a)}"
        raise node.unsupported("of rows is not supported", why, "export the model with SELECT_V2")
    return parser_of(Where, 3, Numerics.PLAIN)(node)


def check(bound: BoundNode) -> None:
    """Refuses types that differ, shapes that do not fit each other, and operands of other scales than y."""
    require_types(bound, [(DType.BOOL, t, t, t) for t in DType if not t.packed], "a bool and two operands of one type")
    require_broadcast(bound)
    require_one_meaning(bound, bound.input(1), bound.input(2), bound.output)
    if bound.node.op.numerics is Numerics.PLAIN and bound.output.quantization is not None:
        require_same_quantization(bound, bound.input(1), bound.output)
        require_same_quantization(bound, bound.input(2), bound.output)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    condition, a, b = (operand(bound, inputs, i) for i in range(3))
    return (np.where(condition, a, b),)


def lower(bound: BoundNode) -> Layer:
    return broadcast_layer(bound, "elementwise/where", operands=(0, 1, 2))


KERNELS = (
    KernelDef(
        Where, "choice between two tensors by a third, broadcasting", tuple(DType), ("SELECT", "SELECT_V2"), from_tflite, check,
        reference, lower, output_shapes=output_shapes, onnx=("Where",), from_onnx=parser_of(Where, 3), elementwise=True,
    ),
)  # fmt: skip
