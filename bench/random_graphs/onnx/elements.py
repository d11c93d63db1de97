"""Random ONNX operators of single elements: functions of one value, arithmetic, comparisons, logic and casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bench.random_graphs.onnx.net import FLOAT, MICROSOFT, Known, Net, Unfit, element_type, top_of
from bench.random_graphs.onnx.operands import codes_operand, is_bytes, is_real, operand, result
from emitc.ir import Shape

_Options = dict[str, Any]
_FUNCTIONS: Mapping[str, tuple[int, Callable[[float], float]]] = {
    "Abs": (11, lambda t: t), "Neg": (11, lambda t: t), "Sign": (11, lambda t: 1), "Floor": (11, lambda t: t),
    "Ceil": (11, lambda t: t), "Round": (11, lambda t: t), "Relu": (11, lambda t: t), "Sigmoid": (11, lambda t: 1),
    "Tanh": (11, lambda t: 1), "Erf": (11, lambda t: 1), "Softplus": (11, lambda t: t + 1), "Softsign": (11, lambda t: 1),
    "Elu": (11, lambda t: t), "Selu": (11, lambda t: 2 * t), "Celu": (12, lambda t: t), "LeakyRelu": (11, lambda t: t),
    "HardSigmoid": (11, lambda t: 1), "HardSwish": (14, lambda t: t), "Mish": (18, lambda t: t), "Gelu": (20, lambda t: t),
    "Swish": (24, lambda t: t), "ThresholdedRelu": (11, lambda t: t), "Shrink": (11, lambda t: t), "Sin": (11, lambda t: 1),
    "Cos": (11, lambda t: 1), "Tan": (11, lambda t: 20), "Atan": (11, lambda t: 1.6), "Asinh": (11, lambda t: 9),
    "Asin": (11, lambda t: 1.6), "Acos": (11, lambda t: 3.2), "Atanh": (11, lambda t: 3), "Acosh": (11, lambda t: 9),
    "Exp": (11, lambda t: math.exp(min(t, 8))), "Sinh": (11, lambda t: math.exp(min(t, 8))),
    "Cosh": (11, lambda t: math.exp(min(t, 8))), "Log": (11, lambda t: 1 + abs(math.log(t + 1))),
    "Sqrt": (11, lambda t: math.sqrt(t) + 1), "Reciprocal": (11, lambda t: 4.0), "Clip": (11, lambda t: t),
}  # fmt: skip
"""The first opset, and how large results are."""
_STEPS = frozenset(("Sign", "Floor", "Ceil", "Round", "ThresholdedRelu", "Shrink"))
_EXACT = frozenset(
    ("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Relu", "Clip", "Sqrt", "ThresholdedRelu", "Shrink")
)
_USUAL = ("Relu", "Relu", "Clip", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish")
_WITHIN_ONE = ("Asin", "Acos", "Atanh")
_POSITIVE = ("Log", "Sqrt", "Reciprocal", "Acosh")
_GROWING = ("Exp", "Sinh", "Cosh")


def _guarded(net: Net, kind: str, x: Known) -> Known:
    """The operand, in the function's domain: outside of it results are not numbers, which have no order."""
    if kind in _WITHIN_ONE:
        (x,) = net.add(
            "Clip", [x, net.scalar(-0.95), net.scalar(0.95)], (FLOAT, x.shape), top=0.95, exact=True, pool=False
        )
    elif kind in _POSITIVE:
        (x,) = net.add("Abs", [x], (FLOAT, x.shape), top=x.top, exact=True, pool=False)
        least = net.scalar(1.0 if kind == "Acosh" else 0.25)
        (x,) = net.add("Add", [x, least], (FLOAT, x.shape), top=x.top + 1, exact=True, pool=False)
    elif kind in _GROWING and x.top > 16:
        (x,) = net.add("Clip", [x, "", net.scalar(8.0)], (FLOAT, x.shape), top=8, exact=True, pool=False)
    elif kind == "Tan":
        (x,) = net.add(
            "Clip", [x, net.scalar(-1.5), net.scalar(1.5)], (FLOAT, x.shape), top=1.5, exact=True, pool=False
        )
    return x


def _options(net: Net, kind: str) -> _Options:
    """Attributes, left out now and then."""
    some = net.rng.random() < 0.6
    if kind in ("Elu", "LeakyRelu", "ThresholdedRelu", "Swish", "Celu"):
        return {"alpha": net.rng.choice((0.1, 0.5, 1.5)) if some else None}
    if kind == "HardSigmoid":
        return {"alpha": 0.25 if some else None, "beta": 0.4 if some else None}
    if kind == "Selu":
        return {"alpha": 1.5 if some else None, "gamma": 1.2 if some else None}
    if kind == "Gelu":
        return {"approximate": net.rng.choice(("none", "tanh")) if some else None}
    if kind == "Shrink":
        return {"lambd": 0.7 if some else None, "bias": 0.2 if some else None}
    return {}


def function(net: Net) -> None:
    """A function of one real value; stepped ones only of values that every order of summation gives."""
    kind = net.rng.choice(list(_FUNCTIONS) if net.rng.random() < 0.8 else _USUAL)
    first, top = _FUNCTIONS[kind]
    if net.opset < first:
        raise Unfit
    x = _guarded(net, kind, operand(net, lambda v: v.exact or kind not in _STEPS, net.shape(net.rng.randint(1, 4))))
    names: list[Known | str] = [x]
    if kind == "Clip":
        low, high = sorted(net.rng.uniform(-x.top, x.top) for _ in range(2))
        chance = net.rng.random()
        low, high = (0.0, 6.0) if chance < 0.3 else (low, high)
        names += ["" if chance > 0.9 else net.scalar(low), "" if 0.8 < chance < 0.9 else net.scalar(high)]
    result(net, kind, names, x.shape, top(max(x.top, 1e-3)), exact=kind in _EXACT, **_options(net, kind))


def _partner(net: Net, shape: Shape) -> Shape:
    """A shape that broadcasts with another one."""
    chance = net.rng.random()
    if chance < 0.3:
        return shape
    if chance < 0.45 or not shape:
        return net.rng.choice(((), (1,)))
    kept = [size if net.rng.random() < 0.5 else 1 for size in shape]
    return tuple(kept[net.rng.randint(0, len(kept) - 1) :]) if chance < 0.8 else tuple(kept)


def _broadcasts(a: Shape, b: Shape) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1], strict=False))


def _pair(net: Net, nonzero: bool = False) -> tuple[Known, Known]:
    """Two real operands whose shapes broadcast, either of which may be a constant."""
    a = operand(net, lambda v: v.rank <= 5, net.shape(net.rng.randint(1, 4)))
    chance = net.rng.random()
    if chance < 0.5:
        candidates = net.candidates(lambda v: is_real(v) and _broadcasts(v.shape, a.shape) and v.rank <= 5)
        if candidates and not nonzero:
            value = net.rng.choice(candidates)
            b = net.dequantize(value) if value.quantized else value
            return (a, b) if net.rng.random() < 0.5 else (b, a)
    shape = _partner(net, a.shape)
    top = net.rng.choice((0.5, 1.0, 3.0, a.top))
    values = net.reals(shape, top)
    if nonzero:
        values = np.where(np.abs(values) < top / 20, np.float32(top), values).astype(np.float32)
    if net.style in ("qdq", "qdq16", "mixed") and net.rng.random() < 0.5:
        dtype = net.byte_type()
        scale, zero = net.scales_for(top, dtype)
        codes = net.integers(shape, dtype)
        if nonzero:
            codes = np.where(codes == zero, np.asarray(codes + 1, dtype), codes)
        names = [net.constant(codes), *net.scale_names(scale, zero, dtype)]
        (b,) = net.add("DequantizeLinear", names, (FLOAT, shape), top=top, exact=True, pool=False)
    else:
        b = net.constant_value(values, top)
    return (a, b) if nonzero or net.rng.random() < 0.7 else (b, a)


def binary(net: Net) -> None:
    """Arithmetic of two real tensors."""
    kind = net.rng.choice(("Add", "Add", "Sub", "Mul", "Mul", "Div", "Min", "Max", "PRelu"))
    a, b = _pair(net, nonzero=kind == "Div")
    if kind == "PRelu" and np.broadcast_shapes(a.shape, b.shape) != a.shape:
        a, b = b, a
        if np.broadcast_shapes(a.shape, b.shape) != a.shape:
            raise Unfit
    top = {"Mul": a.top * b.top, "PRelu": a.top * max(1, b.top), "Div": a.top / max(b.top, 1e-3) * 4}.get(
        kind, a.top + b.top
    )
    shape = np.broadcast_shapes(a.shape, b.shape)
    result(net, kind, [a, b], shape, top, exact=True)


def power(net: Net) -> None:
    """Pow by a constant exponent of a magnitude, or of whole exponents."""
    x = operand(net, lambda v: v.top < 100, net.shape(net.rng.randint(1, 4)))
    exponent = net.rng.choice((2.0, 3.0, 0.5, 1.0, 0.0, 1.5, -1.0))
    if exponent not in (2.0, 3.0, 1.0, 0.0):
        x = _guarded(net, "Log", x)
    result(net, "Pow", [x, net.scalar(exponent)], x.shape, max(1.0, x.top ** abs(exponent)))


def several(net: Net) -> None:
    """Sum, Mean, Min and Max of one to four tensors."""
    kind = net.rng.choice(("Sum", "Mean", "Min", "Max"))
    first = operand(net, lambda v: v.rank <= 4, net.shape(net.rng.randint(1, 4)))
    parts = [first]
    for _ in range(net.rng.choice((0, 1, 2, 2, 3))):
        candidates = net.candidates(lambda v: is_real(v) and _broadcasts(v.shape, first.shape) and v.rank <= first.rank)
        value = net.rng.choice(candidates) if candidates else first
        parts.append(net.dequantize(value) if value.quantized else value)
    try:
        shape = np.broadcast_shapes(*(part.shape for part in parts))
    except ValueError:
        raise Unfit from None
    result(net, kind, parts, shape, sum(part.top for part in parts), exact=True)


_COMPARISONS = {"Equal": 11, "Greater": 11, "Less": 11, "GreaterOrEqual": 12, "LessOrEqual": 12}


def compare(net: Net) -> None:
    """A comparison, of reals or of integers."""
    kind = net.rng.choice([name for name, first in _COMPARISONS.items() if first <= net.opset])
    wholes = net.candidates(lambda v: v.dtype in ("int32", "int64") and not v.constant)
    if wholes and net.rng.random() < 0.4:
        a = net.rng.choice(wholes)
        b = net.constant_value(net.integers(_partner(net, a.shape), a.dtype))
    else:
        a, b = _pair(net)
    if not (a.exact and b.exact):
        raise Unfit
    net.add(kind, [a, b], ("bool", np.broadcast_shapes(a.shape, b.shape)), exact=True, top=1)


def classify(net: Net) -> None:
    """IsNaN or IsInf."""
    x = operand(net, lambda v: v.exact)
    kind = net.rng.choice(("IsNaN", "IsInf"))
    attributes: _Options = {"detect_negative": net.rng.choice((None, 0, 1))} if kind == "IsInf" else {}
    net.add(kind, [x], ("bool", x.shape), exact=True, top=1, **attributes)


def _given(net: Net, dtypes: tuple[str, ...]) -> Known:
    """A value of one of these types that stands for nothing else; an input where there is none."""
    candidates = net.candidates(lambda v: v.dtype in dtypes and not v.quantized and not v.constant)
    if candidates and net.rng.random() < 0.8:
        return net.rng.choice(candidates)
    dtype = net.rng.choice(dtypes)
    bounds = (-1000, 1000) if dtype in ("int32", "int64") else None
    return net.input(dtype, net.shape(net.rng.randint(1, 4)), bounds=bounds)


def logic(net: Net) -> None:
    """And, Or, Xor, Not of truth values; Bitwise operators of integers."""
    whole = net.opset >= 18 and net.rng.random() < 0.5
    a = _given(net, ("int32", "int64", "uint8", "int8") if whole else ("bool",))
    prefix = "Bitwise" if whole else ""
    if net.rng.random() < 0.3:
        net.add(f"{prefix}Not", [a], (a.dtype, a.shape), exact=True, top=a.top)
        return
    candidates = net.candidates(lambda v: v.dtype == a.dtype and not v.quantized and _broadcasts(v.shape, a.shape))
    b = net.rng.choice(candidates)
    kind = prefix + net.rng.choice(("And", "Or", "Xor"))
    net.add(kind, [a, b], (a.dtype, np.broadcast_shapes(a.shape, b.shape)), exact=True, top=a.top)


def where(net: Net) -> None:
    """Where."""
    condition = net.pick(lambda v: v.dtype == "bool")
    a = operand(net, lambda v: _broadcasts(v.shape, condition.shape), condition.shape)
    b = net.constant_value(net.reals(_partner(net, a.shape), a.top), a.top)
    candidates = net.candidates(
        lambda v: is_real(v) and _broadcasts(v.shape, condition.shape) and _broadcasts(v.shape, a.shape)
    )
    if candidates and net.rng.random() < 0.5:
        value = net.rng.choice(candidates)
        b = net.dequantize(value) if value.quantized else value
    shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
    result(net, "Where", [condition, a, b], shape, max(a.top, b.top), exact=True)


_WHOLE = ("int32", "int64", "int8", "uint8")


def whole_arithmetic(net: Net) -> None:
    """Arithmetic of integers: they wrap round."""
    a = _given(net, _WHOLE)
    kind = net.rng.choice(
        ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Abs", "Neg", "Sign", "Pow", "Clip", "Relu")
    )
    if net.opset < 14 and a.dtype in ("int8", "uint8") and kind in ("Add", "Sub", "Mul", "Div", "Relu"):
        raise Unfit
    if (net.opset < 12 and kind in ("Min", "Max", "Clip", "Pow")) or (kind == "Neg" and a.dtype == "uint8"):
        raise Unfit
    if kind in ("Abs", "Neg", "Sign", "Relu"):
        if kind == "Relu" and (net.opset < 14 or a.dtype not in ("int8", "int32")):
            raise Unfit
        net.add(kind, [a], (a.dtype, a.shape), exact=True, top=a.top)
        return
    values = net.integers(_partner(net, a.shape), a.dtype)
    attributes: _Options = {}
    names: list[Known | str] = [a]
    if kind in ("Div", "Mod"):
        values = np.where((values == 0) | (values == -1), np.asarray(3, a.dtype), values).astype(a.dtype)
        attributes = {"fmod": net.rng.choice((None, 1))} if kind == "Mod" else {}
    if kind == "Clip":
        names += [net.constant(np.asarray(0, a.dtype)), net.constant(np.asarray(100, a.dtype))]
        net.add(kind, names, (a.dtype, a.shape), exact=True, top=a.top)
        return
    if kind == "Pow":
        if a.dtype not in ("int32", "int64"):
            raise Unfit
        values = np.asarray(net.rng.choice((0, 1, 2, 3) if a.top < 1000 else (0, 1)), a.dtype)
    names.append(net.constant(values))
    most = float(np.abs(values.astype(np.float64)).max())
    grown = {"Mul": a.top * most, "Pow": min(a.top, 1e6) ** min(most, 3.0), "Add": a.top + most, "Sub": a.top + most}
    top = max(a.top, grown.get(kind, a.top))
    shape = np.broadcast_shapes(a.shape, values.shape)
    net.add(kind, names, (a.dtype, shape), exact=True, top=top, **attributes)


def real_modulo(net: Net) -> None:
    """Mod of reals, as fmod has it."""
    a = operand(net, lambda v: v.exact, net.shape(2))
    values = net.rng.choice((0.5, 1.25, -3.0))
    result(net, "Mod", [a, net.scalar(values)], a.shape, 3.0, exact=True, fmod=1)


def cast(net: Net) -> None:
    """Cast and CastLike, to what can hold the number."""
    source = net.pick(lambda v: v.exact and not v.constant)
    if source.quantized and net.rng.random() < 0.7:
        raise Unfit
    targets = ["float32", "int32", "int64", "bool"]
    if source.dtype != FLOAT and source.top < 128:
        targets += ["int8", "int16"]
    if source.dtype == "bool":
        targets += ["uint8", "int8"]
    if source.dtype == FLOAT and source.top > 1e9:
        targets = ["float32", "bool"]
    dtype = net.rng.choice([t for t in targets if t != source.dtype])
    top = 1.0 if "bool" in (dtype, source.dtype) else source.top
    if net.opset >= 15 and net.rng.random() < 0.3:
        like = net.constant(np.zeros((1,), dtype))
        net.add("CastLike", [source, like], (dtype, source.shape), exact=True, top=top)
    else:
        net.add("Cast", [source], (dtype, source.shape), exact=True, top=top, to=element_type(dtype))


def whole_input(net: Net) -> None:
    """An input of integers or of truth values."""
    if len(net.inputs) >= net.most_inputs:
        raise Unfit
    dtype = net.rng.choice(("int32", "int64", "bool", "bool", "uint8", "int8"))
    bounds = None if dtype in ("bool", "uint8", "int8") else (-1000, 1000)
    net.input(dtype, net.shape(net.rng.randint(1, 4)), bounds=bounds)


# ---- QOperator ----


def q_linear_binary(net: Net) -> None:
    """QLinearAdd and QLinearMul, broadcasting."""
    kind = net.rng.choice(("QLinearAdd", "QLinearMul"))
    a = codes_operand(net, lambda v: v.rank <= 4, net.shape(net.rng.randint(1, 4)))
    candidates = net.candidates(lambda v: is_bytes(v) and v.dtype == a.dtype and _broadcasts(a.shape, v.shape))
    if candidates and net.rng.random() < 0.6:
        other = net.rng.choice(candidates)
        b: Known | str = other
        shape_b, scale_b, zero_b, top_b = other.shape, other.scale, other.zero, top_of(other)
    else:
        shape_b = _partner(net, a.shape)
        top_b = 2.0
        scale_b, zero_b = net.scales_for(top_b, a.dtype)
        b = net.constant(net.integers(shape_b, a.dtype))
    top = top_of(a) + top_b if kind == "QLinearAdd" else top_of(a) * top_b / 2
    scale, zero = net.scales_for(top, a.dtype)
    names: list[Known | str] = [a, *net.scale_names(a.scale, a.zero, a.dtype, may_omit=False), b]
    names += [
        *net.scale_names(scale_b, zero_b, a.dtype, may_omit=False),
        *net.scale_names(scale, zero, a.dtype, may_omit=False),
    ]
    shape = np.broadcast_shapes(a.shape, shape_b)
    net.add(f"{MICROSOFT}.{kind}", names, (a.dtype, shape), exact=True, quantized=(scale, zero), top=top)


def q_linear_function(net: Net) -> None:
    """QLinearSigmoid and QLinearLeakyRelu."""
    kind = net.rng.choice(("QLinearSigmoid", "QLinearLeakyRelu"))
    x = codes_operand(net, shape=net.shape(net.rng.randint(1, 4)))
    scale, zero = net.scales_for(1.0 if kind == "QLinearSigmoid" else top_of(x), x.dtype)
    names: list[Known | str] = [
        x,
        *net.scale_names(x.scale, x.zero, x.dtype, may_omit=False),
        *net.scale_names(scale, zero, x.dtype, may_omit=False),
    ]
    alpha = net.rng.choice((0.1, 0.01, 0.5)) if kind == "QLinearLeakyRelu" else None
    net.add(
        f"{MICROSOFT}.{kind}", names, (x.dtype, x.shape), exact=True, quantized=(scale, zero), top=x.top, alpha=alpha
    )


def q_linear_concat(net: Net) -> None:
    """QLinearConcat of values of different scales."""
    first = codes_operand(net, lambda v: v.rank >= 1, net.shape(net.rng.randint(1, 4)))
    axis = net.rng.randrange(first.rank)

    def fits(v: Known) -> bool:
        same = v.rank == first.rank and all(v.shape[i] == first.shape[i] for i in range(v.rank) if i != axis)
        return same and is_bytes(v) and v.dtype == first.dtype

    parts = [first, *(net.rng.choice(net.candidates(fits)) for _ in range(net.rng.choice((1, 1, 2))))]
    scale, zero = net.scales_for(max(part.top for part in parts), first.dtype)
    names: list[Known | str] = [*net.scale_names(scale, zero, first.dtype, may_omit=False)]
    for part in parts:
        names += [part, *net.scale_names(part.scale, part.zero, part.dtype, may_omit=False)]
    shape = (*first.shape[:axis], sum(part.shape[axis] for part in parts), *first.shape[axis + 1 :])
    net.add(
        f"{MICROSOFT}.QLinearConcat", names, (first.dtype, shape), exact=True, quantized=(scale, zero), top=first.top,
        axis=axis - first.rank * (net.rng.random() < 0.3),
    )  # fmt: skip
