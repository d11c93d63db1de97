"""Cast and CastLike, CAST of TFLite: every element as another type.

Shapes  x any, y the same.   Types  all of emitc's among each other (float16, bfloat16, float8 and strings are none of them).
To bool       whether a value differs from 0; a NaN does.
To integers   from integers: the low bits, so that what does not fit wraps. From floats: without the fraction; ONNX and TFLite
              leave open what becomes of values that do not fit. Here they give the end of the type's range, and a NaN gives 0.
To floats     the nearest value, ties to even; from float64 what is too large becomes infinite.
Source        ONNX's specification of Cast.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import Condition, KernelDef, Parsed, Variant, requires
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.shared.pointwise import FLOATS, TRUTH, copied, operand, parser_of, pointwise_layer
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


def from_onnx(node: SourceNode) -> Parsed:
    """Cast; of CastLike's second operand only the type counts, which the output has already."""
    node.counts((2, 2) if node.kind == "CastLike" else (1, 1))
    return Parsed(Cast())


def check(bound: BoundNode) -> None:
    """Nothing to refuse: all types have code."""


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's conversion where it is defined; floats are limited to the integer type before."""
    x, y = operand(bound, inputs, 0), bound.output.dtype
    if x.dtype.kind != "f" or y in (*FLOATS, DType.BOOL):
        with np.errstate(over="ignore"):
            return (x.astype(y.value),)
    low, high = y.range
    # float64 holds every float32. The largest 64-bit values are no floats: they are put in after the conversion.
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


def _to_reals(*dtypes: DType) -> Condition:
    """Of variants that convert to float32."""
    names = " and ".join(", ".join(dtype.value for dtype in dtypes).rsplit(", ", 1))
    return requires(
        lambda bound: bound.input(0).dtype in dtypes and bound.output.dtype is DType.FLOAT32,
        f"there is code from {names} to float32",
    )


KERNELS = (
    KernelDef(
        # CAST of TFLite takes the numbers as they are, whatever scale they have.
        Cast, "elements as another type", tuple(DType), ("CAST",), parser_of(Cast, tflite=Numerics.PLAIN), check,
        reference, lower,
        onnx=("Cast", "CastLike"), from_onnx=from_onnx, elementwise=True,
        variants=(
            Variant(
                "mve", "mve", lambda bound: replace(lower(bound), formula=None), UNKNOWN_VECTORS, _TO_REALS,
                (_to_reals(*_TO_REALS),), "quantization/cast_real_mve",
                ("emitc_bits.h", "emitc_mve.h", "emitc_mve_uint32.h"),
            ),
            Variant(
                "fpu", "fpu", lambda bound: replace(lower(bound), formula=None, spec=PLAIN), UNKNOWN_PAIRS,
                (DType.INT32,), (_to_reals(DType.INT32),), "quantization/cast_real_fpu", ("emitc_fpu_elementwise.h",),
            ),
        ),
    ),
)  # fmt: skip
