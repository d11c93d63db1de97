"""Comparisons and logic of two tensors: Equal, Less, LessOrEqual, Greater, GreaterOrEqual; And, Or, Xor and their bitwise kin.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   comparisons: any type, both the same, to bool; And, Or, Xor: bool; BitwiseAnd, BitwiseOr, BitwiseXor: integers.
TFLite  EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL of float32, int32, int64 (and bool for the first two), which
        have no scale; LOGICAL_AND, LOGICAL_OR.
A NaN is unequal to everything and neither less nor greater. Greater is Less of the operands the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types, two_operands
from emitc.kernels.contract import KernelDef, Layer, Parsed
from emitc.kernels.pointwise import SIGNED, UNSIGNED, operand, plain_numerics, require_types


@dataclass(frozen=True, slots=True)
class Compare(Op):
    """relation: ONNX's name of it, or NotEqual."""

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
    "NotEqual": _Relation(np.not_equal, "unequal"),
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


_TFLITE_RELATIONS: Mapping[str, str] = {
    "EQUAL": "Equal",
    "NOT_EQUAL": "NotEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
}
_TFLITE_OPERATIONS: Mapping[str, str] = {"LOGICAL_AND": "And", "LOGICAL_OR": "Or"}
_TFLITE_TYPES = (DType.FLOAT32, DType.INT32, DType.INT64, DType.UINT32)


def _compare_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    return Parsed(Compare(_TFLITE_RELATIONS[node.op_type], numerics=plain_numerics(node)), (0, 1))


def _logic_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    return Parsed(Logic(_TFLITE_OPERATIONS[node.op_type], numerics=Numerics.PLAIN), (0, 1))


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
    op = bound.node.op
    if op.numerics.of_tflite:
        equality = isinstance(op, Compare) and op.relation in ("Equal", "NotEqual")
        compared = (*_TFLITE_TYPES, *((DType.BOOL,) if equality else ())) if isinstance(op, Compare) else (DType.BOOL,)
        names = ", ".join(t.value for t in compared)
        require_types(bound, same_types(compared, output=DType.BOOL), f"two operands of one type, {names}, to bool")
    elif isinstance(bound.node.op, Compare):
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
        Compare, "comparison of two tensors, broadcasting", tuple(DType), tuple(_TFLITE_RELATIONS), _compare_from_tflite,
        check, output_shapes, reference, lower, tflite_dtypes=(*_TFLITE_TYPES, DType.BOOL),
        onnx=tuple(name for name in _RELATIONS if name != "NotEqual"), from_onnx=_compare_from_onnx, elementwise=True,
    ),
    KernelDef(
        Logic, "and, or, exclusive or, broadcasting", (DType.BOOL, *SIGNED, *UNSIGNED), tuple(_TFLITE_OPERATIONS),
        _logic_from_tflite, check, output_shapes, reference, lower, tflite_dtypes=(DType.BOOL,),
        onnx=(*_OPERATIONS, *(f"Bitwise{name}" for name in _OPERATIONS)), from_onnx=_logic_from_onnx, elementwise=True,
    ),
)  # fmt: skip
