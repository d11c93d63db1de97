"""Clip: y = min(max(x, low), high).

Shapes  x any, y the same.   Types  float32, integers; int8 with scales where a DequantizeLinear and a QuantizeLinear stand
around it, as shared/pointwise.py says. Where low is over high the result is high. A NaN stays one, and so does -0 at a bound
of 0. A float bound that is left out is the end of float32's range, so that infinities become finite.
Source  ONNX's specification; attributes before version 11, inputs since. The bounds must be known at compile time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.pointwise import (
    SIGNED,
    UNSIGNED,
    check_real,
    formula_of,
    pointwise_layer,
    real_layer,
    real_reference,
    require_types,
)
from emitc.layer import Layer, Param
from emitc.numerics.float_functions import FUNCTIONS
from emitc.source import SourceNode

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Clip(Op):
    """low, high: of the type's values; integers that are left out are None."""

    low: float | int | None = None
    high: float | int | None = None


def from_onnx(node: SourceNode) -> Parsed:
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


def check(bound: BoundNode) -> None:
    if _compares_numbers(bound):
        require_types(bound, [(t, t) for t in (*SIGNED, *UNSIGNED)], "float32 and integers")
    else:
        check_real(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """First the lower bound, then the upper."""
    x, (low, high) = inputs[0], _bounds(bound)
    assert x is not None
    if _compares_numbers(bound):
        return (np.minimum(np.maximum(x, np.array(low, x.dtype)), np.array(high, x.dtype)),)
    return (real_reference(bound, FUNCTIONS["Clip"], (low, high), x),)


def lower(bound: BoundNode) -> Layer:
    """Two comparisons; a table where scales count."""
    low, high = _bounds(bound)
    if _compares_numbers(bound):
        c_type = bound.input(0).dtype.c_type
        limits = (Param("low", c_type, low), Param("high", c_type, high))
        return pointwise_layer(bound, formula_of(FUNCTIONS["Clip"]), limits)
    return real_layer(bound, FUNCTIONS["Clip"], (low, high))


KERNELS = (
    KernelDef(
        Clip, "values limited to a range; of quantized bytes by table", (DType.FLOAT32, DType.INT8, *SIGNED[1:], *UNSIGNED), (),
        None, check, reference, lower, onnx=("Clip",), from_onnx=from_onnx, elementwise=True,
    ),
)  # fmt: skip
