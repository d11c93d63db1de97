"""Comparisons and logic of two tensors: Equal, Less, LessOrEqual, Greater, GreaterOrEqual; And, Or, Xor and their bitwise kin.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   comparisons: any type, both the same, to bool; And, Or, Xor: bool; BitwiseAnd, BitwiseOr, BitwiseXor: integers.
A NaN is unequal to everything and neither less nor greater. Greater is Less of the operands the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types, two_operands
from emitc.kernels.contract import KernelDef, Layer, Parsed
from emitc.kernels.pointwise import SIGNED, UNSIGNED, operand, require_types


@dataclass(frozen=True, slots=True)
class Compare(Op):
    """relation: ONNX's name of it."""

    relation: str


@dataclass(frozen=True, slots=True)
class Logic(Op):
    """operation: And, Or or Xor, of truth values or of every bit."""

    operation: str


@dataclass(frozen=True, slots=True)
class _Relation:
    function: Callable[[Array, Array], Array]
    template: str
    operands: tuple[int, ...] = (0, 1)


_RELATIONS: Mapping[str, _Relation] = {
    "Equal": _Relation(np.equal, "equal"),
    "Less": _Relation(np.less, "less"),
    "LessOrEqual": _Relation(np.less_equal, "less_or_equal"),
    "Greater": _Relation(np.greater, "less", (1, 0)),
    "GreaterOrEqual": _Relation(np.greater_equal, "less_or_equal", (1, 0)),
}
_OPERATIONS: Mapping[str, _Relation] = {
    "And": _Relation(np.bitwise_and, "both"),
    "Or": _Relation(np.bitwise_or, "either"),
    "Xor": _Relation(np.bitwise_xor, "unlike"),
}


def _compare_from_onnx(node: SourceNode) -> Parsed:
    return two_operands(Compare(node.kind), node)


def _logic_from_onnx(node: SourceNode) -> Parsed:
    return two_operands(Logic(node.kind.removeprefix("Bitwise")), node)


def _rule(bound: BoundNode) -> _Relation:
    op = bound.node.op
    assert isinstance(op, Compare | Logic)
    return _RELATIONS[op.relation] if isinstance(op, Compare) else _OPERATIONS[op.operation]


def check(bound: BoundNode) -> None:
    """Refuses types that differ or have no code, and shapes that do not fit each other."""
    if isinstance(bound.node.op, Compare):
        require_types(bound, same_types(tuple(DType), output=DType.BOOL), "two operands of one type, to bool")
    else:
        require_types(bound, same_types((DType.BOOL, *SIGNED, *UNSIGNED)), "two operands of one type")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's comparison or operation of every bit."""
    result = _rule(bound).function(operand(bound, inputs, 0), operand(bound, inputs, 1))
    return (np.asarray(result, bound.output.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """One loop for each relation, printed for the operands' type."""
    rule = _rule(bound)
    return broadcast_layer(bound, rule.template, operands=rule.operands)


KERNELS = (
    KernelDef(
        Compare, "comparison of two tensors, broadcasting", tuple(DType), (), None, check, output_shapes, reference, lower,
        onnx=tuple(_RELATIONS), from_onnx=_compare_from_onnx, elementwise=True,
    ),
    KernelDef(
        Logic, "and, or, exclusive or, broadcasting", (DType.BOOL, *SIGNED, *UNSIGNED), (), None, check, output_shapes,
        reference, lower, onnx=(*_OPERATIONS, *(f"Bitwise{name}" for name in _OPERATIONS)), from_onnx=_logic_from_onnx,
        elementwise=True,
    ),
)  # fmt: skip
