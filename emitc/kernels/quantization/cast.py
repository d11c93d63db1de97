"""Cast and CastLike, CAST of TFLite: every element as another type.

Shapes  x any, y the same.   Types  all of emitc's among each other (float16, bfloat16, float8 and strings are none of them).
To bool       whether a value differs from 0; a NaN does.
To integers   from integers: the low bits, so that what does not fit wraps. From floats: without the fraction; ONNX leaves
              and TFLite leave open what becomes of values that do not fit, here they give the end of the type's range, and
              a NaN gives 0.
To floats     the nearest value, ties to even; from float64 what is too large becomes infinite.
Source        ONNX's specification of Cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.shared.pointwise import FLOATS, TRUTH, copied, pointwise_layer
from emitc.layer import PLAIN, Formula, Layer, Param
from emitc.source import SourceNode

_TO_REALS = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)
"""Types that vectors convert to float32."""
_CAST = Formula("cast", "({y})v", "x as {y}")
_SATURATED = Formula(
    "cast_saturated",
    "v <= p->lowest ? p->low : v >= p->highest ? p->high : v == v ? ({y})v : ({y})0",
    "x without its fraction, limited to what {y} holds; 0 for what is not a number",
)


@dataclass(frozen=True, slots=True)
class Cast(Op):
    """To the output's type."""


def from_tflite(node: SourceNode) -> Parsed:
    """CAST takes the numbers as they are, whatever scale they have."""
    node.counts((1, 1))
    return Parsed(Cast(numerics=Numerics.PLAIN))


def from_onnx(node: SourceNode) -> Parsed:
    """Cast; of CastLike's second operand only the type counts, which the output has already."""
    node.counts((2, 2) if node.kind == "CastLike" else (1, 1))
    return Parsed(Cast(numerics=Numerics.QOPERATOR))


def check(bound: BoundNode) -> None:
    """Nothing to refuse: all types have code."""


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's conversion where it is defined; floats are limited to the integer type before."""
    x, y = inputs[0], bound.output.dtype
    assert x is not None
    if x.dtype.kind != "f" or y in (*FLOATS, DType.BOOL):
        with np.errstate(over="ignore"):
            return (x.astype(y.value),)
    low, high = y.range
    # float64 holds every float32. The largest 64-bit values are no floats: they are put in behind the conversion.
    wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = np.where((wide > float(low)) & (wide < float(high) + (high < 2**53)), wide, 0.0).astype(y.value)
    limited = np.where(wide <= float(low), np.array(low, y.value), inside)
    return (np.where(wide >= float(high) + (high < 2**53), np.array(high, y.value), limited),)


def lower(bound: BoundNode) -> Layer:
    """A copy where the bits stay; a conversion of C, of values that the type holds."""
    x, y = bound.input(0).dtype, bound.output.dtype
    integers = not {x, y} & {*FLOATS, DType.BOOL}
    if x is y or (x is DType.BOOL and y.bytes == 1) or (integers and x.bytes == y.bytes):
        return copied(bound)
    if y is DType.BOOL:
        return pointwise_layer(bound, TRUTH)
    if x not in FLOATS or y in FLOATS:
        return pointwise_layer(bound, _CAST)
    low, high = y.range
    limits = (
        Param("lowest", x.c_type, float(low), "from here down x gives low"),
        Param("highest", x.c_type, float(high + 1), "from here up x gives high"),
        Param("low", y.c_type, low),
        Param("high", y.c_type, high),
    )
    return pointwise_layer(bound, _SATURATED, limits)


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four integers at a time to float32."""
    layer = lower(bound)
    if bound.input(0).dtype not in _TO_REALS or bound.output.dtype is not DType.FLOAT32:
        return "there is code from int8, uint8, int16 and int32 to float32"
    headers = ("emitc_bits.h", "emitc_mve.h", "emitc_mve_uint32.h")
    return replace(layer, template="quantization/cast_real_mve", formula=None, variant="mve", headers=headers)


def lower_fpu(bound: BoundNode) -> Layer | str:
    """Loads of four int32 at a time."""
    if bound.input(0).dtype is not DType.INT32 or bound.output.dtype is not DType.FLOAT32:
        return "there is code from int32 to float32"
    headers = ("emitc_fpu_elementwise.h",)
    return replace(
        lower(bound), template="quantization/cast_real_fpu", formula=None, variant="fpu", headers=headers, spec=PLAIN
    )


KERNELS = (
    KernelDef(
        Cast, "elements as another type", tuple(DType), ("CAST",), from_tflite, check, reference, lower,
        onnx=("Cast", "CastLike"), from_onnx=from_onnx, elementwise=True,
        variants=(
            Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, _TO_REALS),
            Variant("fpu", "fpu", lower_fpu, UNKNOWN_PAIRS, (DType.INT32,)),
        ),
    ),
)  # fmt: skip
