"""Operators that work element by element: sums and products with broadcasting, functions of one value, comparisons, casts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import (
    ACTIVATIONS,
    ANY,
    PLAIN,
    QUANTIZED,
    GraphBuilder,
    Quantization,
    Unfit,
    offers,
    scale_of,
)


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of two shapes together. Raises Unfit where they do not go together."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    shape = []
    for x, y in pairs:
        if x != y and 1 not in (x, y):
            raise Unfit
        shape.append(max(x, y))
    return tuple(shape)


def partner_shape(d: GraphBuilder, x: Value) -> tuple[int, ...]:
    """The shape of an operand that goes together with x: the same, fewer dimensions, or ones somewhere."""
    shape = list(x.shape)
    how = d.between(0, 5)
    if how == 0:
        return ()
    if how == 1:
        return tuple(shape[d.between(0, len(shape)) :])
    if how <= 3:
        shape = [1 if d.chance(0.5) else e for e in shape]
    if how == 4:
        shape = [d.between(1, 4) if e == 1 and d.chance(0.7) else e for e in shape]
    if how == 5 and len(shape) < 5:
        shape = [d.between(1, 3), *shape]
    return tuple(shape)


def partner(d: GraphBuilder, x: Value, quantization: Quantization | None = None, constant: float = 0.4) -> Value:
    """Another operand: a value of the pool, or a constant. quantization: the one that it must have."""
    if not d.chance(constant):
        fitting = []
        for candidate in d.pool:
            try:
                fits = candidate.dtype == x.dtype and len(broadcast(x.shape, candidate.shape)) <= 5
            except Unfit:
                continue
            if fits and (quantization is None or (candidate.scales, candidate.zero_points) == quantization):
                fitting.append(candidate)
        if fitting:
            return d.pick(fitting)
    return d.numbers(x.dtype, partner_shape(d, x), d.near(x) if quantization is None else quantization)


def ordered(d: GraphBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """The two in either order."""
    return (y, x) if d.chance(0.3) else (x, y)


def activation(d: GraphBuilder, dtype: str) -> str:
    """A fused activation for a type."""
    return d.pick(ACTIVATIONS) if dtype in (*QUANTIZED, "float32") else "NONE"


@offers((*QUANTIZED, "float32", "int32", "int64"), "ADD", "SUB", weight=3.0)
def add(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    far = x.dtype in QUANTIZED and d.odd(0.04)
    a, b = ordered(d, x, partner(d, x, d.far(x), 1.0) if far else partner(d, x))
    shape = broadcast(a.shape, b.shape)
    fused = activation(d, x.dtype)
    quantization = d.far(x) if x.dtype in QUANTIZED and d.odd(0.04) else d.near(x, 0.5, 3.0)
    return [d.unary(op, (a, b), shape, x.dtype, quantization, fused_activation_function=fused, pot_scale_int16=False)]


@offers((*QUANTIZED, "float32", "int32", "int64"), "MUL", weight=2.0)
def mul(d: GraphBuilder, x: Value) -> Sequence[Value]:
    a, b = ordered(d, x, partner(d, x))
    quantization = d.quantization(x.dtype)
    if x.dtype in QUANTIZED and d.chance(0.85):
        scale = scale_of(a) * scale_of(b) * 10 ** d.rng.uniform(0, 2)
        quantization = ((float(np.float32(scale)),), quantization[1])
    shape = broadcast(a.shape, b.shape)
    return [d.unary("MUL", (a, b), shape, x.dtype, quantization, fused_activation_function=activation(d, x.dtype))]


@offers((*QUANTIZED, "float32", "int32", "int64"), "MAXIMUM", "MINIMUM")
def extremum(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    kept = (x.scales, x.zero_points)
    a, b = ordered(d, x, partner(d, x, kept))
    return [d.unary(op, (a, b), broadcast(a.shape, b.shape), x.dtype, kept)]


@offers(("int8", "int16", "float32", "int32"), "SQUARED_DIFFERENCE")
def squared_difference(d: GraphBuilder, x: Value) -> Sequence[Value]:
    a, b = ordered(d, x, partner(d, x))
    quantization = d.quantization(x.dtype)
    if x.dtype in QUANTIZED:
        quantization = ((float(np.float32(scale_of(x) ** 2 * 10 ** d.rng.uniform(0.5, 2.5))),), quantization[1])
    return [d.unary("SQUARED_DIFFERENCE", (a, b), broadcast(a.shape, b.shape), x.dtype, quantization)]


def divisor(d: GraphBuilder, x: Value, quantization: Quantization = PLAIN) -> Value:
    """A constant without a zero in it."""
    array = d.contents(x.dtype, partner_shape(d, x))
    zero = quantization[1][0] if quantization[1] else 0
    other = zero + 3 if x.dtype == "int8" and zero < 100 else zero - 3
    return d.constant(
        np.where(np.abs(array.astype(np.float64) - zero) < 0.05, np.array(other, array.dtype), array), quantization
    )


@offers(("int8", "float32", "int32"), "DIV")
def div(d: GraphBuilder, x: Value) -> Sequence[Value]:
    quantization = d.near(x)
    b = divisor(d, x, d.near(x) if x.scales else PLAIN)
    if x.scales:  # a factor below 64 shifts by more than 31 bits, which C++ does not define
        factor = 10 ** d.rng.uniform(1.9, 5)
        quantization = ((float(np.float32(scale_of(x) / scale_of(b) / factor)),), d.quantization(x.dtype)[1])
    shape = broadcast(x.shape, b.shape)
    return [d.unary("DIV", (x, b), shape, x.dtype, quantization, fused_activation_function=activation(d, x.dtype))]


@offers(("float32", "int32"), "FLOOR_DIV", "FLOOR_MOD")
def floor_division(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    b = divisor(d, x)
    return [d.unary(op, (x, b), broadcast(x.shape, b.shape), x.dtype)]


@offers(("float32", "int32"), "POW")
def power(d: GraphBuilder, x: Value) -> Sequence[Value]:
    exponent = d.constant(np.full(partner_shape(d, x), d.pick((0, 1, 2, 3)), x.dtype))
    return [d.unary("POW", (x, exponent), broadcast(x.shape, exponent.shape), x.dtype)]


@offers(("int8", "float32"), "ADD_N")
def add_n(d: GraphBuilder, x: Value) -> Sequence[Value]:
    kept = (x.scales, x.zero_points)
    parts = [x]
    for _ in range(d.between(1, 3)):
        alike = [v for v in d.pool if v.dtype == x.dtype and v.shape == x.shape and (v.scales, v.zero_points) == kept]
        parts.append(d.pick(alike) if alike and d.chance(0.7) else d.numbers(x.dtype, x.shape, kept))
    return [d.unary("ADD_N", parts, x.shape, x.dtype, d.near(x))]


_COMPARED = ("int8", "float32", "int32", "int64", "uint32")


@offers((*_COMPARED, "bool"), "EQUAL", "NOT_EQUAL", weight=0.4)
@offers(_COMPARED, "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL", weight=0.3)
def compare(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    kept = (x.scales, x.zero_points) if d.chance(0.5) else None
    a, b = ordered(d, x, partner(d, x, kept if x.dtype != "bool" else PLAIN))
    return [d.unary(op, (a, b), broadcast(a.shape, b.shape), "bool")]


@offers(("bool",), "LOGICAL_AND", "LOGICAL_OR")
def logical(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    a, b = ordered(d, x, partner(d, x, PLAIN))
    return [d.unary(op, (a, b), broadcast(a.shape, b.shape), "bool")]


@offers(("bool",), "LOGICAL_NOT")
def logical_not(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [d.unary("LOGICAL_NOT", (x,), x.shape, "bool")]


@offers(ANY, "SELECT", "SELECT_V2", weight=0.5)
def select(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    a = x if x.dtype != "bool" else d.pick([v for v in d.pool if v.dtype != "bool"] or [x])
    if x.dtype != "bool" and op == "SELECT_V2":
        x = d.numbers("bool", partner_shape(d, a))
    elif x.dtype != "bool":
        x = d.model_input("bool", a.shape)
        d.pool.pop()
    kept = (a.scales, a.zero_points)
    if op == "SELECT":
        if a.shape != x.shape:
            raise Unfit
        b = d.numbers(a.dtype, a.shape, kept)
        return [d.unary(op, (x, *ordered(d, a, b)), a.shape, a.dtype, kept)]
    b = partner(d, a, kept)
    shape = broadcast(x.shape, broadcast(a.shape, b.shape))
    return [d.unary(op, (x, *ordered(d, a, b)), shape, a.dtype, kept)]


@offers((*QUANTIZED, "float32"), "RELU", "RELU6", weight=1.5)
@offers(("int8", "uint8", "float32"), "RELU_N1_TO_1")
def relu(d: GraphBuilder, x: Value, op: str = "RELU_N1_TO_1") -> Sequence[Value]:
    to = d.far(x) if x.dtype in QUANTIZED and d.odd(0.05) else d.near(x)
    return [d.unary(op, (x,), x.shape, x.dtype, to)]


@offers(("int8", "int16", "float32"), "ABS")
def absolute(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [d.unary("ABS", (x,), x.shape, x.dtype, d.near(x))]


@offers(("float32",), "NEG", "CEIL", "FLOOR", "ROUND", "SQUARE", "SIN", "COS", weight=0.5)
def of_float(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    return [d.unary(op, (x,), x.shape, "float32")]


@offers(("float32",), "SQRT", weight=0.5)
@offers(("int8", "int16", "float32"), "RSQRT", weight=0.5)
@offers(("int8", "float32"), "LOG", weight=0.5)
def of_positive(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    if x.dtype != "float32":
        return [positive_bytes(d, x, op)]
    x = d.unary("ABS", (x,), x.shape, "float32")
    x = d.unary("ADD", (x, d.constant(np.float32(0.25))), x.shape, "float32", fused_activation_function="NONE")
    return [d.unary(op, (x,), x.shape, "float32")]


@offers(("int8", "float32"), "ELU", "GELU", weight=0.7)
def rectifier(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    options = {"approximate": d.chance(0.5)} if op == "GELU" else {}
    return [d.unary(op, (x,), x.shape, x.dtype, d.near(x), **options)]


def positive_bytes(d: GraphBuilder, x: Value, op: str) -> Value:
    """A function of positive numbers, of integers whose zero point is the least of their type."""
    least = -128 if x.dtype == "int8" else 0
    scale = d.power(-2.5, 0)
    kept: Quantization = ((scale,), (least,))
    x = d.unary("QUANTIZE", (x,), x.shape, x.dtype, kept)
    x = d.unary("MAXIMUM", (x, d.constant(np.array(least + 1, x.dtype), kept)), x.shape, x.dtype, kept)
    return d.unary(op, (x,), x.shape, x.dtype, d.quantization(x.dtype))


@offers(("int8", "float32"), "EXP", weight=0.7)
def exp(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [d.unary("EXP", (x,), x.shape, x.dtype, d.quantization(x.dtype))]


@offers(("int8", "uint8", "float32"), "HARD_SWISH", weight=0.7)
def hard_swish(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [d.unary("HARD_SWISH", (x,), x.shape, x.dtype, d.near(x))]


@offers((*QUANTIZED, "float32"), "LEAKY_RELU")
def leaky_relu(d: GraphBuilder, x: Value) -> Sequence[Value]:
    alpha = d.pick((0.0, 0.01, 0.1, 0.3, 1.0, 1.5, -0.5))
    alpha = d.pick((-1, 1)) * d.power(-6, 3) if d.odd(0.05) else alpha
    to = d.far(x) if x.dtype in QUANTIZED and d.odd(0.05) else d.near(x)
    return [d.unary("LEAKY_RELU", (x,), x.shape, x.dtype, to, alpha=alpha)]


UNIT: dict[str, dict[str, Quantization]] = {
    "LOGISTIC": {
        "int8": ((1 / 256,), (-128,)),
        "uint8": ((1 / 256,), (0,)),
        "int16": ((1 / 32768,), (0,)),
        "float32": PLAIN,
    },
    "TANH": {
        "int8": ((1 / 128,), (0,)),
        "uint8": ((1 / 128,), (128,)),
        "int16": ((1 / 32768,), (0,)),
        "float32": PLAIN,
    },
}


@offers((*QUANTIZED, "float32"), "LOGISTIC", "TANH")
def sigmoid(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    return [d.unary(op, (x,), x.shape, x.dtype, UNIT[op][x.dtype])]


@offers((*QUANTIZED, "float32"), "PRELU")
def prelu(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not x.shape:
        raise Unfit
    shape = (
        [1] * (len(x.shape) - 2) + [x.shape[-1]] if d.chance(0.6) else [1 if d.chance(0.5) else e for e in x.shape[1:]]
    )
    kind = "int8" if x.dtype == "int16" else x.dtype
    alpha = d.numbers(kind, shape, d.quantization(kind))
    to = d.far(x) if x.dtype in QUANTIZED and d.odd(0.05) else d.near(x)
    return [d.unary("PRELU", (x, alpha), broadcast(x.shape, shape), x.dtype, to)]


@offers((*QUANTIZED, "float32", "int32"), "QUANTIZE", weight=1.5)
def quantize(d: GraphBuilder, x: Value) -> Sequence[Value]:
    to = {"float32": ("int8", "int8", "int16", "uint8"), "int8": ("int8", "int8", "int16", "uint8"),
          "int16": ("int8", "int16"), "uint8": ("uint8", "int8"), "int32": ("int8", "int16")}[x.dtype]  # fmt: skip
    dtype = d.pick(to)
    if x.dtype == "float32" and d.chance(0.15):  # wide integers have a scale only where they are quantized
        x = d.unary("QUANTIZE", (x,), x.shape, "int8", d.quantization("int8"))
        x = d.unary("QUANTIZE", (x,), x.shape, "int32", ((d.power(-3, -1),), (0,)))
        dtype = d.pick(("int8", "int16"))
    elif x.dtype == "int32":
        raise Unfit
    quantization = d.quantization(dtype)
    if x.scales and dtype == x.dtype:
        quantization = d.far(x) if d.odd(0.05) else d.near(x)
    return [d.unary("QUANTIZE", (x,), x.shape, dtype, quantization)]


@offers(QUANTIZED, "DEQUANTIZE", weight=0.7)
def dequantize(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [d.unary("DEQUANTIZE", (x,), x.shape, "float32")]


@offers(ANY, "CAST", weight=0.6)
def cast(d: GraphBuilder, x: Value) -> Sequence[Value]:
    to = d.pick(
        [t for t in ("float32", "int32", "int32", "int16", "int8", "bool", "uint8", "int64", "uint32") if t != x.dtype]
    )
    if x.dtype == "float64":
        to = "float32"
    if x.dtype == "float32":
        x = d.unary("RELU6", (x,), x.shape, "float32")  # what lies outside of an integer's range is not defined
    quantization = d.quantization(to)
    return [d.unary("CAST", (x,), x.shape, to, quantization, in_data_type=x.dtype.upper(), out_data_type=to.upper())]


@offers(("int8", "float32", "int32", "int64"), "ZEROS_LIKE", weight=0.3)
def zeros_like(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [d.moved("ZEROS_LIKE", (x,), x.shape)]


@offers(("int8", "float32", "int32"), "SHAPE", weight=0.3)
def shape_of(d: GraphBuilder, x: Value) -> Sequence[Value]:
    dtype = d.pick(("int32", "int64"))
    return [d.unary("SHAPE", (x,), (len(x.shape),), dtype, out_type=dtype.upper())]


_FILLED = ("float32", "int32", "int8", "int16", "int64", "bool")


@offers(_FILLED, "FILL", weight=0.3)
def fill(d: GraphBuilder, x: Value) -> Sequence[Value]:
    scalars = [v for v in d.pool if v.shape == () and v.dtype in _FILLED]
    value = d.pick(scalars) if scalars and d.chance(0.6) else d.numbers(x.dtype, (), (x.scales, x.zero_points))
    shape = d.draw_shape(d.between(1, 4), 200)
    return [d.unary("FILL", (d.integers(shape), value), shape, value.dtype, (value.scales, value.zero_points))]
