"""Comparisons and logic of two tensors: Equal, Less, LessOrEqual, Greater, GreaterOrEqual; And, Or, Xor, also bitwise.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   comparisons: any type, both the same, to bool; And, Or, Xor: bool; BitwiseAnd, BitwiseOr, BitwiseXor: integers.
TFLite  EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL; LOGICAL_AND, LOGICAL_OR. Comparisons are of float32, int32,
        int64 (and bool for the first two), which have no scale; and of int8, each tensor with its own: (q - zero_point) * 2**8
        is requantized by the scale itself, so that small numbers that differ may count as equal.
Errors  int8 with a scale of 1 or more, at which TFLite Micro stops; int16, for which it computes no factor.
A NaN is unequal to everything and neither less nor greater. Greater is Less of the operands the other way round.

MINIMUM and MAXIMUM of two quantized tensors, Min and Max of any number of tensors, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   int8 and int16; all three tensors share scale and zero point, so that quantized values are compared as they are.
        float32, int32 and int64 as they are; of two values of which neither is greater, as of a NaN and a number, b.
ONNX    one to 64 operands, of any one numeric type; a NaN wins. Of two zeros the later one (ONNX Runtime's choice).

Where, SELECT and SELECT_V2: y = a where the condition is true, otherwise b.

Shapes  condition, a, b any that broadcast (numpy's rule), y the broadcast shape.   Types  condition bool; a, b and y of one type.
Quantized operands share scale and zero point with y, so that the numbers themselves are chosen.
SELECT with a condition that chooses among rows is refused: TFLite Micro, whose result is to be matched, does not have it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_quantization, require_same_quantization
from emitc.kernels.elementwise.quantized_operands import offset_params, table_layer
from emitc.kernels.shared import broadcast
from emitc.kernels.shared.broadcast import broadcast_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.pointwise import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    operand,
    parser_of,
    require_one_meaning,
    require_types,
)
from emitc.layer import Formula, Layer, Param, integers
from emitc.numerics.requantize import BYTES, Int64, multiplier_of, requantize
from emitc.records import dataclass
from emitc.source import SourceNode

_LEFT_SHIFT = 8
"""Bits that an int8 gains before its scale is applied."""


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
    formula: Formula
    operands: tuple[int, ...] = (0, 1)


_LESS = Formula("less", "va < vb", "1 where a < b")
_LESS_OR_EQUAL = Formula("less_or_equal", "va <= vb", "1 where a <= b")
_RELATIONS: Mapping[str, _Relation] = {
    "Equal": _Relation(np.equal, Formula("equal", "va == vb", "1 where a = b")),
    "NotEqual": _Relation(np.not_equal, Formula("unequal", "va != vb", "1 where a is not b")),
    "Less": _Relation(np.less, _LESS),
    "LessOrEqual": _Relation(np.less_equal, _LESS_OR_EQUAL),
    "Greater": _Relation(np.greater, _LESS, (1, 0)),
    "GreaterOrEqual": _Relation(np.greater_equal, _LESS_OR_EQUAL, (1, 0)),
}
_OPERATIONS: Mapping[str, _Relation] = {
    "And": _Relation(np.bitwise_and, Formula("both", "({y})(va & vb)", "a & b")),
    "Or": _Relation(np.bitwise_or, Formula("either", "({y})(va | vb)", "a | b")),
    "Xor": _Relation(np.bitwise_xor, Formula("unlike", "({y})(va ^ vb)", "a ^ b")),
}


_TFLITE_RELATIONS = dict(
    zip(("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), _RELATIONS, strict=True)
)
_TFLITE_OPERATIONS: Mapping[str, str] = {"LOGICAL_AND": "And", "LOGICAL_OR": "Or"}
_TFLITE_TYPES = (DType.FLOAT32, DType.INT32, DType.INT64, DType.UINT32)


def _compare(node: SourceNode) -> Parsed:
    relation = _TFLITE_RELATIONS.get(node.op_type, node.kind)
    return parser_of(partial(Compare, relation), 2)(node)


def _logic(node: SourceNode) -> Parsed:
    operation = _TFLITE_OPERATIONS.get(node.op_type, node.kind.removeprefix("Bitwise"))
    return parser_of(partial(Logic, operation), 2, Numerics.PLAIN)(node)


def _rule(bound: BoundNode) -> _Relation:
    op = bound.node.op
    assert isinstance(op, Compare | Logic)
    return _RELATIONS[op.relation] if isinstance(op, Compare) else _OPERATIONS[op.operation]


def _of_bytes(bound: BoundNode) -> bool:
    """Whether quantized tensors of TFLite are compared."""
    tflite = bound.node.op.numerics is Numerics.TFLITE
    return isinstance(bound.node.op, Compare) and tflite and bound.input(0).dtype is DType.INT8


def _require_scales(bound: BoundNode) -> None:
    for tensor in (bound.input(0), bound.input(1)):
        require_quantization(bound, tensor)
        if tensor.scale >= 1.0:
            why = f"TFLite Micro, whose result is to be matched, multiplies by it, {tensor.scale!r}, as a fraction"
            raise illegal(bound, "has an input whose scale is not below 1", why, "quantize the model again", tensor)


def check(bound: BoundNode) -> None:
    """Refuses types that differ or have no code, shapes that do not fit each other, and scales of 1 or more."""
    op = bound.node.op
    if _of_bytes(bound):
        require_types(bound, same_types((DType.INT8,), output=DType.BOOL), "two operands of int8 to bool")
        _require_scales(bound)
    elif op.numerics.of_tflite:
        equality = isinstance(op, Compare) and op.relation in ("Equal", "NotEqual")
        compared = (*_TFLITE_TYPES, *((DType.BOOL,) if equality else ())) if isinstance(op, Compare) else (DType.BOOL,)
        names = ", ".join(t.value for t in compared)
        require_types(bound, same_types(compared, output=DType.BOOL), f"two operands of one type, {names}, to bool")
    elif isinstance(op, Compare):
        require_types(bound, same_types(tuple(DType), output=DType.BOOL), "two operands of one type, to bool")
    else:
        require_types(bound, same_types((DType.BOOL, *SIGNED, *UNSIGNED)), "two operands of one type")
    require_broadcast(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's comparison or operation of every bit; of bytes as they are scaled."""
    a, b = (operand(bound, inputs, i) for i in (0, 1))
    if _of_bytes(bound):
        a, b = (_scaled(bound, i, values.astype(np.int64)) for i, values in enumerate((a, b)))
    result = _rule(bound).function(a, b)
    return (np.asarray(result, bound.output.dtype.value),)


def _scaled(bound: BoundNode, position: int, values: Int64) -> Int64:
    """What an operand's bytes are compared as."""
    x = bound.input(position)
    factor = multiplier_of(x.scale)
    return requantize((values - x.zero_point) << _LEFT_SHIFT, factor.q31, factor.shift)


def _scaled_layer(bound: BoundNode) -> Layer:
    """Both operands are scaled in the loop."""
    function = _rule(bound).function
    below, same, above = (int(result) for result in function(np.arange(3), np.ones(3)))
    a_offset, b_offset = offset_params(bound)
    first, second = (multiplier_of(bound.input(i).scale) for i in (0, 1))
    params = (
        a_offset,
        *integers(a_multiplier=(first.q31, "Q31, the scale"), a_shift=first.shift),
        b_offset,
        *integers(b_multiplier=second.q31, b_shift=second.shift),
        Param("below", "uint8_t", below, "the result where a < b"),
        Param("same", "uint8_t", same, "where they are equal"),
        Param("above", "uint8_t", above, "where a > b"),
    )
    return broadcast_layer(bound, "elementwise/scaled_comparison", params)


def lower(bound: BoundNode) -> Layer:
    """One loop for each relation, printed for the operands' type. Bytes are compared as they are where that is the same."""
    rule = _rule(bound)
    if _of_bytes(bound):
        of_a, of_b = _scaled(bound, 0, BYTES), _scaled(bound, 1, BYTES)
        as_they_are = rule.function(BYTES[:, None], BYTES[None, :])
        if bool((rule.function(of_a[:, None], of_b[None, :]) != as_they_are).any()):
            return _scaled_layer(bound)
    return broadcast_layer(bound, rule.formula, operands=rule.operands)


_TFLITE_PLAIN = (DType.FLOAT32, DType.INT32, DType.INT64)


class Minimum(Op):
    """The smaller of both values."""


class Maximum(Op):
    """The larger of both values."""


def _check_extremum(bound: BoundNode) -> None:
    """Refuses what check_binary does, and tensors that do not share scale and zero point."""
    if bound.node.op.numerics.float_scale:
        numeric = _TFLITE_PLAIN if bound.node.op.numerics is Numerics.PLAIN else (*FLOATS, *SIGNED, *UNSIGNED)
        require_types(bound, broadcast.same_types(numeric, len(bound.inputs)), "one numeric type throughout")
        broadcast.require_broadcast(bound)
        require_one_meaning(bound, *(bound.input(i) for i in range(len(bound.inputs))), bound.output)
        return
    broadcast.check_binary(bound)
    require_same_quantization(bound, bound.input(0), bound.output)
    require_same_quantization(bound, bound.input(1), bound.output)


def _function(bound: BoundNode) -> np.ufunc:
    return np.minimum if isinstance(bound.node.op, Minimum) else np.maximum


def _extremum_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The operands compared one after the other; a NaN wins, and of equal values the later one."""
    smaller = isinstance(bound.node.op, Minimum)
    result = operand(bound, inputs, 0)
    for position in range(1, len(bound.inputs)):
        other = operand(bound, inputs, position)
        stays = (result < other) if smaller else (result > other)  # type: ignore[operator]
        wins = stays if bound.node.op.numerics is Numerics.PLAIN else stays | (result != result)
        result = np.where(wins, result, other)
    return (result,)


_FORMULAS = {
    (False, False): Formula("maximum", "va > vb ? va : vb", "the larger of a and b"),
    (False, True): Formula("maximum_real", "va > vb || va != va ? va : vb", "the larger of a and b; a NaN wins"),
    (True, False): Formula("minimum", "va < vb ? va : vb", "the smaller of a and b"),
    (True, True): Formula("minimum_real", "va < vb || va != va ? va : vb", "the smaller of a and b; a NaN wins"),
}
"""By whether it is the smaller one, and whether a NaN wins."""


def _lower_extremum(bound: BoundNode) -> Layer:
    """A table where one input decides and the tensor is no smaller than the table; else a loop over both operands."""
    if bound.node.op.numerics.float_scale:
        nan_wins = bound.output.dtype in FLOATS and bound.node.op.numerics is not Numerics.PLAIN
        return broadcast.fold_layer(bound, _FORMULAS[isinstance(bound.node.op, Minimum), nan_wins])
    flip = Param("flip", "int32_t", -isinstance(bound.node.op, Minimum), "0: maximum, -1: minimum")
    return table_layer(bound, _function(bound)) or broadcast.binary_layer(bound, "elementwise/extremum", (flip,))


def _extremum(op: type[Op], name: str, summary: str, onnx: str) -> KernelDef:
    dtypes = (DType.INT8, *SIGNED[1:], *UNSIGNED, *FLOATS)
    return KernelDef(
        op, summary, dtypes, (name,), parser_of(op, 2), _check_extremum, _extremum_reference, _lower_extremum,
        output_shapes=broadcast.output_shapes, elementwise=True,
        onnx=(onnx,), from_onnx=lambda node: broadcast.any_operands(op(), node),
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, *_TFLITE_PLAIN),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Where(Op):
    """Chooses between two tensors."""


def _where_from_tflite(node: SourceNode) -> Parsed:
    """Three operands; a condition of rank 1 before others of a higher rank chooses rows in SELECT."""
    node.counts((3, 3))
    condition, a = node.input(0).shape, node.input(1).shape
    if node.op_type == "SELECT" and len(condition) == 1 and len(a) > 1:
        why = f"a condition of shape {list(condition)} chooses among the rows of {list(a)}"
        raise node.unsupported("of rows is not supported", why, "export the model with SELECT_V2")
    return parser_of(Where, 3, Numerics.PLAIN)(node)


def _check_where(bound: BoundNode) -> None:
    """Refuses types that differ, shapes that do not fit each other, and operands of other scales than y."""
    require_types(bound, [(DType.BOOL, t, t, t) for t in DType if not t.packed], "a bool and two operands of one type")
    require_broadcast(bound)
    require_one_meaning(bound, bound.input(1), bound.input(2), bound.output)
    if bound.node.op.numerics is Numerics.PLAIN and bound.output.quantization is not None:
        require_same_quantization(bound, bound.input(1), bound.output)
        require_same_quantization(bound, bound.input(2), bound.output)


KERNELS = (
    KernelDef(
        Compare, "comparison of two tensors, broadcasting", tuple(DType), tuple(_TFLITE_RELATIONS), _compare,
        check, reference, lower, output_shapes=output_shapes, tflite_dtypes=(DType.INT8, *_TFLITE_TYPES, DType.BOOL),
        onnx=tuple(name for name in _RELATIONS if name != "NotEqual"), from_onnx=_compare, elementwise=True,
    ),
    KernelDef(
        Logic, "and, or, exclusive or, broadcasting", (DType.BOOL, *SIGNED, *UNSIGNED), tuple(_TFLITE_OPERATIONS),
        _logic, check, reference, lower, output_shapes=output_shapes, tflite_dtypes=(DType.BOOL,),
        onnx=(*_OPERATIONS, *(f"Bitwise{name}" for name in _OPERATIONS)), from_onnx=_logic, elementwise=True,
    ),
    _extremum(Minimum, "MINIMUM", "elementwise minimum, broadcasting", "Min"),
    _extremum(Maximum, "MAXIMUM", "elementwise maximum, broadcasting", "Max"),
    KernelDef(
        Where, "choice between two tensors by a third, broadcasting", tuple(DType), ("SELECT", "SELECT_V2"),
        _where_from_tflite, _check_where,
        lambda bound, inputs: (np.where(*(operand(bound, inputs, i) for i in range(3))),),
        lambda bound: broadcast_layer(bound, "elementwise/where", operands=(0, 1, 2)), output_shapes=output_shapes,
        onnx=("Where",), from_onnx=parser_of(Where, 3), elementwise=True,
    ),
)  # fmt: skip
