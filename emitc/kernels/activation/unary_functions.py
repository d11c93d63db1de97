"""Functions of one value: Elu, Gelu, Erf, Exp, Sqrt, Abs, Neg, Sign, Floor, Round, ..., Not, IsNaN, IsInf.

Shapes  x any, y the same.
Types   float32, and int8 with scales where a DequantizeLinear and a QuantizeLinear stand around the operator, as
        shared/pointwise.py says. Abs, Neg and Sign also of integers: Abs and Neg of the smallest value are that value.
        Not: bool. BitwiseNot: integers. IsNaN, IsInf: float32 to bool.
TFLite  ABS, CEIL, COS, ELU, EXP, FLOOR, GELU, LOG, NEG, ROUND, RSQRT, SIN, SQRT and SQUARE of float32; ABS, ELU, EXP, GELU, LOG
        and RSQRT of int8; ABS and RSQRT of int16 (quantized_functions.py); ABS of int16 without scale; LOGICAL_NOT of
        bool.
Round goes half to even; in TFLite what it makes 0 has no sign. Gelu with approximate "tanh" is a function of its own, and so
are both of com.microsoft's versions.
Source  ONNX's operator specifications; the order of float32 operations is ONNX Runtime's where it shows.

Clip: y = min(max(x, low), high).

Shapes  x any, y the same.   Types  float32, integers; int8 with scales where a DequantizeLinear and a QuantizeLinear stand
around it, as shared/pointwise.py says. Where low is over high the result is high. A NaN stays one, and so does -0 at a bound
of 0. A float bound that is left out is the end of float32's range, so that infinities become finite.
Source  ONNX's specification; attributes before version 11, inputs since. The bounds must be known at compile time.

ByteTable: y[i] = table[x[i]] over int8. Whatever computes one byte from one byte, worked out at compile time.

`passes/recognise_qdq.py` makes it of a chain of float operators between a dequantized and a quantized tensor. The table is
the reference's float32 arithmetic, value by value.   Shapes  x any, y the same number of elements.   Types  int8.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.activation import quantized_functions
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_dtypes
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.shared.pointwise import (
    SIGNED,
    TABLE_ENTRIES,
    TRUTH,
    UNSIGNED,
    byte_table,
    check_real,
    copied,
    float_unit_layer,
    formula_of,
    operand,
    parser_of,
    plain_numerics,
    pointwise_layer,
    real_layer,
    real_reference,
    require_types,
    vector_layer,
)
from emitc.layer import Formula, Layer, Param
from emitc.numerics.float_functions import FUNCTIONS
from emitc.numerics.requantize import Int64
from emitc.records import dataclass
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class Function(Op):
    """name: in float_functions.FUNCTIONS; parameters: of that function, in its order."""

    name: str
    parameters: tuple[float, ...] = ()


class TFLiteFunction(Function):
    """ELU, EXP, GELU or LOG of TFLite, which have int8 too."""


class WideTFLiteFunction(TFLiteFunction):
    """ABS or RSQRT of TFLite, which have int16 as well."""


@dataclass(frozen=True, slots=True)
class Negation(Op):
    """Not of truth values; BitwiseNot of integers."""


@dataclass(frozen=True, slots=True)
class IsNaN(Op):
    """Whether a value is not a number."""


@dataclass(frozen=True, slots=True)
class IsInf(Op):
    """Whether a value is infinite; negative, positive: which of the two infinities count."""

    negative: bool
    positive: bool


_PLAIN = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Mish",
    "Neg", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan",
)  # fmt: skip
"""Functions without attributes."""
_DEFAULTS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "Elu": (("alpha", 1.0),),
    "Celu": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
    "Swish": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "Shrink": (("lambd", 0.5), ("bias", 0.0)),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
}
"""Attributes with their defaults."""
_OLD_SELU = (("alpha", 1.6732), ("gamma", 1.0507))
"""Before version 6."""
_OF_INTEGERS: Mapping[str, tuple[Callable[[Array], Array], Formula]] = {
    "Abs": (
        np.abs,
        Formula("absolute_integer", "v < 0 ? ({y})(0u - (uint64_t)v) : v", "|x|; the smallest value stays as it is"),
    ),
    "Neg": (np.negative, Formula("negative_integer", "({y})(0u - (uint64_t)v)", "-x, wrapping")),
    "Sign": (np.sign, Formula("sign_integer", "({y})((v > 0) - (v < 0))", "1, 0 or -1")),
}
"""Functions of integers that stand for themselves: numpy's, and in C."""
_OPPOSITE = Formula("opposite", "({y})(v == 0)", "1 where x is 0")
_COMPLEMENT = Formula("complement", "({y})~v", "x with every bit turned over")
_IS_NAN = Formula("is_nan", "v != v", "1 where x is not a number")
_IS_INF = Formula(
    "is_inf",
    "({y})(v == ({x})INFINITY ? p->positive : v == -({x})INFINITY ? p->negative : 0)",
    "1 where x is an infinity that counts",
    math=True,
)

_TFLITE: Mapping[str, tuple[str, tuple[float, ...]]] = {
    **{
        name.upper(): (name, ())
        for name in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Log", "Neg", "Rsqrt", "Sin", "Sqrt", "Square")
    },
    "ELU": ("Elu", (1.0, 1.0)),
    "GELU": ("Gelu", ()),
    "ROUND": ("RoundPositiveZero", ()),
}
"""TFLite's operators: the function and its parameters."""


def from_tflite(node: SourceNode) -> Parsed:
    """The function; GELU alone has an option, which of two formulas it is."""
    node.counts((1, 1))
    (name, parameters), op = _TFLITE[node.op_type], Function
    if name == "Gelu" and node.attribute("approximate", False):
        name = "GeluTanh"
    if name in quantized_functions.NAMES:
        op = WideTFLiteFunction if name in quantized_functions.WIDE_NAMES else TFLiteFunction
    return Parsed(op(name, parameters, numerics=plain_numerics(node)))


def from_onnx(node: SourceNode) -> Parsed:
    """The function with its attributes as float32 values."""
    node.counts((1, 1))
    kind = node.kind
    defaults = _DEFAULTS.get(kind, ())
    if kind == "Selu" and node.integer("opset", 6) < 6:
        defaults = _OLD_SELU
    values = tuple(float(np.float32(node.real(name, default))) for name, default in defaults)
    if kind == "Selu":
        alpha, gamma = (np.float32(value) for value in values)
        with np.errstate(over="ignore"):
            kind, values = "Elu", (float(gamma * alpha), float(gamma))
    elif kind == "Elu":
        values = (*values, 1.0)
    elif kind == "Gelu" and node.text("approximate", ("none", "tanh"), "none") == "tanh":
        kind = "GeluTanh"
    if kind == "Celu" and values[0] == 0.0:
        raise node.refusal("has alpha 0", "it divides by alpha")
    return Parsed(Function(kind, values))


def _of_integers(bound: BoundNode) -> bool:
    """Whether the function is of integers that stand for themselves."""
    op, dtype = bound.op(Function), bound.input(0).dtype
    return op.name in _OF_INTEGERS and dtype in (*SIGNED, *UNSIGNED) and op.numerics is Numerics.QOPERATOR


def _quantized(bound: BoundNode) -> bool:
    """Whether the function is of TFLite's quantized integers."""
    dtype = bound.input(0).dtype
    return bound.node.op.numerics is Numerics.TFLITE and dtype in (DType.INT8, DType.INT16) and not _unscaled(bound)


def _unscaled(bound: BoundNode) -> bool:
    """Whether the function is ABS of TFLite's int16 that stands for itself."""
    x, op = bound.input(0), bound.op(Function)
    return op.numerics is Numerics.TFLITE and op.name == "Abs" and x.dtype is DType.INT16 and x.quantization is None


def check(bound: BoundNode) -> None:
    if bound.node.op.numerics.of_tflite:
        name = bound.op(Function).name
        types = [DType.FLOAT32, *[DType.INT8] * (name in quantized_functions.NAMES)]
        types += [DType.INT16] * (name in quantized_functions.WIDE_NAMES)
        require_types(bound, [(t, t) for t in types], " and ".join(t.value for t in types))
        if _quantized(bound):
            quantized_functions.require_function_scales(bound, name)
    elif _of_integers(bound):
        require_types(bound, [(t, t) for t in (*SIGNED, *UNSIGNED)], "one type throughout")
    else:
        check_real(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's function of integers, which wrap; otherwise the real function."""
    x, op = operand(bound, inputs, 0), bound.op(Function)
    if _quantized(bound):
        return (
            quantized_functions.function_results(bound, op.name, x.astype(np.int64)).astype(bound.output.dtype.value),
        )
    if _of_integers(bound) or _unscaled(bound):
        with np.errstate(over="ignore"):
            return (_OF_INTEGERS[op.name][0](x),)
    return (real_reference(bound, FUNCTIONS[op.name], op.parameters, x),)


def lower(bound: BoundNode) -> Layer:
    """A loop for the type; unsigned integers need less."""
    op = bound.op(Function)
    if _quantized(bound):
        return quantized_functions.function_layer(bound, op.name)
    if not (_of_integers(bound) or _unscaled(bound)):
        return real_layer(bound, FUNCTIONS[op.name], op.parameters)
    if bound.input(0).dtype in UNSIGNED and op.name == "Abs":
        return copied(bound)
    if bound.input(0).dtype in UNSIGNED and op.name == "Sign":
        return pointwise_layer(bound, TRUTH)
    return pointwise_layer(bound, _OF_INTEGERS[op.name][1])


def check_negation(bound: BoundNode) -> None:
    integers = () if bound.node.op.numerics is Numerics.PLAIN else (*SIGNED, *UNSIGNED)
    require_types(bound, [(t, t) for t in (DType.BOOL, *integers)], "bool and integers" if integers else "bool")


def _is_inf_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    flags = (bool(node.integer("detect_negative", 1)), bool(node.integer("detect_positive", 1)))
    return Parsed(IsInf(*flags))


def check_predicate(bound: BoundNode) -> None:
    types = [(DType.FLOAT32, DType.BOOL), (DType.FLOAT64, DType.BOOL)]
    require_types(bound, types, "float32 and float64")


def _is_inf_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """An infinity that counts."""
    x, op = operand(bound, inputs, 0), bound.op(IsInf)
    return (np.isinf(x) & np.where(np.signbit(x), op.negative, op.positive),)


def _lower_is_inf(bound: BoundNode) -> Layer:
    """A comparison with both infinities."""
    op = bound.op(IsInf)
    members = (Param("negative", "uint8_t", int(op.negative)), Param("positive", "uint8_t", int(op.positive)))
    return pointwise_layer(bound, _IS_INF, members)


_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Clip(Op):
    """low, high: of the type's values; integers that are left out are None."""

    low: float | int | None = None
    high: float | int | None = None


def _clip_from_onnx(node: SourceNode) -> Parsed:
    """The bounds, from attributes or inputs; a bound that is not a number bounds nothing."""
    by_input = node.integer("opset", 11) >= 11
    node.counts((1, 3 if by_input else 1))
    whole = node.input(0).dtype.startswith(("int", "uint"))
    bounds: list[float | int | None] = []
    for position, name, default in ((1, "min", -_LARGEST), (2, "max", _LARGEST)):
        value: float | int | None = None if whole else default
        if by_input and node.has_input(position):
            array = node.value(position, f"{name}imum")
            if array.size != 1 or array.dtype.name != node.input(0).dtype:
                what = f"has {array.size} values of {array.dtype.name} as its {name}imum"
                raise node.refusal(what, f"one of {node.input(0).dtype} is expected", tensor=node.input(position))
            bound = array.reshape(()).item()
            value = int(bound) if whole else (math.copysign(math.inf, default) if math.isnan(bound) else float(bound))
        elif not by_input:
            value = node.real(name, default)
        bounds.append(value)
    return Parsed(Clip(*bounds))


def _compares_numbers(bound: BoundNode) -> bool:
    """Whether integers are compared as they are."""
    return bound.input(0).dtype is not DType.FLOAT32 and bound.op(Clip).numerics is Numerics.QOPERATOR


def _bounds(bound: BoundNode) -> tuple[float, float]:
    """The bounds in the type of x."""
    op, dtype = bound.op(Clip), bound.input(0).dtype
    if dtype in (*SIGNED, *UNSIGNED) and _compares_numbers(bound):
        low, high = dtype.range
        return (low if op.low is None else op.low), (high if op.high is None else op.high)
    return (-_LARGEST if op.low is None else op.low), (_LARGEST if op.high is None else op.high)


def _check_clip(bound: BoundNode) -> None:
    if _compares_numbers(bound):
        require_types(bound, [(t, t) for t in (*SIGNED, *UNSIGNED)], "float32 and integers")
    else:
        check_real(bound)


def _clip_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """First the lower bound, then the upper."""
    x, (low, high) = operand(bound, inputs, 0), _bounds(bound)
    if _compares_numbers(bound):
        return (np.minimum(np.maximum(x, np.array(low, x.dtype)), np.array(high, x.dtype)),)
    return (real_reference(bound, FUNCTIONS["Clip"], (low, high), x),)


def _lower_clip(bound: BoundNode) -> Layer:
    """Two comparisons; a table where scales count."""
    low, high = _bounds(bound)
    if _compares_numbers(bound):
        c_type = bound.input(0).dtype.c_type
        limits = (Param("low", c_type, low), Param("high", c_type, high))
        return pointwise_layer(bound, formula_of(FUNCTIONS["Clip"]), limits)
    return real_layer(bound, FUNCTIONS["Clip"], (low, high))


@dataclass(frozen=True, slots=True)
class ByteTable(Op):
    """results: of the values -128 to 127, in order."""

    results: tuple[int, ...]


def _table_results(bound: BoundNode) -> Int64:
    return np.array(bound.op(ByteTable).results, np.int64)


def _table_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    return (_table_results(bound).astype(np.int8)[operand(bound, inputs, 0).astype(np.int64) + TABLE_ENTRIES // 2],)


KERNELS = (
    KernelDef(
        Function, "functions of one value: roots, exponentials, activations, rounding", (DType.FLOAT32, *SIGNED, *UNSIGNED),
        tuple(name for name, (function, _) in _TFLITE.items() if function not in quantized_functions.NAMES), from_tflite, check,
        reference, lower, tflite_dtypes=(DType.FLOAT32,),
        onnx=(*_PLAIN, *_DEFAULTS, "Gelu"), from_onnx=from_onnx, elementwise=True,
        variants=(
            Variant("mve", "mve", lambda bound: vector_layer(lower(bound)), UNKNOWN_VECTORS, ()),
            Variant("fpu", "fpu", lambda bound: float_unit_layer(lower(bound)), UNKNOWN_PAIRS, ()),
        ),
    ),
    KernelDef(
        TFLiteFunction, "functions of one value; of bytes by table", (DType.INT8, DType.FLOAT32),
        ("ELU", "EXP", "GELU", "LOG"), from_tflite, check, reference, lower, elementwise=True,
    ),
    KernelDef(
        WideTFLiteFunction, "functions of one value; of bytes by table", (DType.INT8, DType.INT16, DType.FLOAT32),
        ("ABS", "RSQRT"), from_tflite, check, reference, lower, elementwise=True,
    ),
    KernelDef(
        Negation, "logical not, or every bit turned over", (DType.BOOL, *SIGNED, *UNSIGNED), ("LOGICAL_NOT",),
        parser_of(Negation, tflite=Numerics.PLAIN), check_negation,
        lambda bound, inputs: (np.invert(operand(bound, inputs, 0)),),
        lambda bound: pointwise_layer(bound, _OPPOSITE if bound.output.dtype is DType.BOOL else _COMPLEMENT),
        tflite_dtypes=(DType.BOOL,), onnx=("Not", "BitwiseNot"), from_onnx=parser_of(Negation), elementwise=True,
    ),
    KernelDef(
        IsNaN, "whether a value is not a number", (DType.FLOAT32, DType.FLOAT64), (), None, check_predicate,
        lambda bound, inputs: (np.isnan(operand(bound, inputs, 0)),), lambda bound: pointwise_layer(bound, _IS_NAN),
        onnx=("IsNaN",), from_onnx=parser_of(IsNaN), elementwise=True,
    ),
    KernelDef(
        IsInf, "whether a value is infinite", (DType.FLOAT32, DType.FLOAT64), (), None, check_predicate,
        _is_inf_reference, _lower_is_inf, onnx=("IsInf",), from_onnx=_is_inf_from_onnx, elementwise=True,
    ),
    KernelDef(
        Clip, "values limited to a range; of quantized bytes by table", (DType.FLOAT32, DType.INT8, *SIGNED[1:], *UNSIGNED), (),
        None, _check_clip, _clip_reference, _lower_clip, onnx=("Clip",), from_onnx=_clip_from_onnx, elementwise=True,
    ),
    KernelDef(
        ByteTable, "any function of one byte, as a table", (DType.INT8,), (), None,
        lambda bound: require_dtypes(bound, [(DType.INT8, DType.INT8)]), _table_reference,
        lambda bound: byte_table(bound, 0, _table_results(bound)), elementwise=True,
    ),
)  # fmt: skip
