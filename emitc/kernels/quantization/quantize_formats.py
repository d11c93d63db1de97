"""QuantizeLinear and DequantizeLinear beyond int8 with constant scales: any element type, computed scales, scales per block.

Shapes  x any, y the same; scale and zero point one value, or one for each slice of an axis; or one for each block of
        `block_size` neighbours along the axis (the last may be shorter). Both may be constants or computed.
Types   float32 to a code and back. A code is an integer (int2 to uint16; int32 only back) or the bits of a small float
        (float8e4m3fn, float8e5m2, float4e2m1, and float16 in steps of 1). Types of less than a byte have a byte for each.
To integers   y = clamp(rint(x / scale) + zero_point), ties to even, within the element type; a NaN gives its smallest value.
To floats     the nearest value to x / scale, ties to the even code; what is too large becomes the largest finite value
              (float16: infinite). A NaN becomes the type's, or 6 in float4e2m1, which has none. No zero point but 0; where
              float4e2m1 has one, it makes 0 of -0.
From codes    y = (float32)(code - zero_point) * scale, one rounding.
Source        ONNX's specification of both operators and its tables for float8 and float4; the codes of NaNs in float8 as ONNX
              Runtime has them. In an integer type, ONNX Runtime leaves a NaN and quotients from 2^31 on to the processor, where
              its kernel is not vectorized; here the specification's saturation holds.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, unsupported
from emitc.kernels.shared.pointwise import in_place, typed
from emitc.layer import Layer, Param, in_step, integers
from emitc.numerics.requantize import Float32, Int64
from emitc.records import dataclass
from emitc.source import SourceNode

X, SCALE, ZERO = 0, 1, 2


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A float of a sign, exponent bits with a bias, and mantissa bits. The codes here are without the sign.

    highest: of the largest finite value. overflow: of what is larger. infinite: -1 where there is none. nan: what a NaN
    becomes; nan_signed: whether it keeps its sign. zero_point_adds: whether a zero point of 0 makes 0 of -0.
    """

    storage: DType
    sign_bit: int
    mantissa_bits: int
    bias: int
    highest: int
    overflow: int
    infinite: int
    nan: int
    nan_signed: bool = True
    zero_point_adds: bool = False

    def values(self) -> Float32:
        """What each code without sign stands for, up to `highest`; exact in float32."""
        codes = np.arange(self.highest + 1)
        exponent, mantissa = codes >> self.mantissa_bits, codes & ((1 << self.mantissa_bits) - 1)
        whole = np.where(exponent > 0, mantissa + (1 << self.mantissa_bits), mantissa).astype(np.float64)
        return np.asarray(np.ldexp(whole, np.maximum(exponent, 1) - self.bias - self.mantissa_bits), np.float32)


SMALL_FLOATS = {
    "float8e4m3fn": SmallFloat(DType.UINT8, 7, 3, 7, 0x7E, 0x7E, -1, 0x7F),
    "float8e5m2": SmallFloat(DType.UINT8, 7, 2, 15, 0x7B, 0x7B, 0x7C, 0x7F),
    "float4e2m1": SmallFloat(DType.UINT8, 3, 1, 1, 7, 7, -1, 7, nan_signed=False, zero_point_adds=True),
    "float16": SmallFloat(DType.UINT16, 15, 10, 15, 0x7BFF, 0x7C00, 0x7C00, 0x7E00, nan_signed=False),
}
"""By ONNX's name in lower case."""
INTEGERS = {
    "int2": (DType.INT8, -2, 1),
    "uint2": (DType.UINT8, 0, 3),
    "int4": (DType.INT8, -8, 7),
    "uint4": (DType.UINT8, 0, 15),
    **{t.value: (t, *t.range) for t in (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)},
}
"""The type that holds an element, and the element's range."""


@dataclass(frozen=True, slots=True)
class Codes(Op):
    """axis: counted from the front. block_size: 0 without blocks."""

    element: str
    axis: int
    block_size: int


class QuantizeCodes(Codes):
    """To codes."""


class DequantizeCodes(Codes):
    """From codes."""


def _from_onnx(op: type[Codes], node: SourceNode) -> Parsed:
    node.counts((2, 3))
    rank = len(node.input(X).shape)
    block_size = node.integer("block_size", 0, low=0)
    axis = node.integer("axis", 1)
    needs_axis = block_size > 0 or node.input(SCALE).elements != 1
    if needs_axis and not -rank <= axis < rank:
        raise node.refusal(f"has axis {axis}", f"the tensor has {rank} dimensions")
    fields = str(node.attribute("element")), axis % rank if needs_axis else 0, block_size
    return Parsed(op(*fields), tuple(range(len(node.inputs))))


def _scale_shape(bound: BoundNode) -> Shape:
    """The shape that the scale has to have, where it is not one value."""
    op, shape = bound.op(Codes), bound.input(X).shape
    if op.block_size == 0:
        return shape[op.axis : op.axis + 1]
    return (*shape[: op.axis], -(-shape[op.axis] // op.block_size), *shape[op.axis + 1 :])


def _spread(bound: BoundNode, values: Array) -> Array:
    """Scales or zero points in a shape that broadcasts against x."""
    op, shape = bound.op(Codes), bound.input(X).shape
    if op.block_size:
        size = min(op.block_size, shape[op.axis])
        return np.repeat(values, size, axis=op.axis)[(slice(None),) * op.axis + (slice(shape[op.axis]),)]
    return values.reshape(()) if values.size == 1 else values.reshape(-1, *(1,) * (len(shape) - op.axis - 1))


def _require_scales(bound: BoundNode) -> None:
    """Refuses scales of another shape than the tensor's, axis' or blocks', and zero points of another than the scale's."""
    scale, zero = bound.input(SCALE), bound.optional(ZERO)
    expected = _scale_shape(bound)
    if scale.shape != expected and (bound.op(Codes).block_size > 0 or scale.elements != 1):
        why = f"{list(expected)}{'' if bound.op(Codes).block_size else ', or one value'} is expected"
        raise illegal(bound, f"has scales of shape {list(scale.shape)}", why, tensor=scale)
    if zero is not None and zero.shape != scale.shape and not zero.elements == scale.elements == 1:
        why = f"there is one for each of the scales {list(scale.shape)}"
        raise illegal(bound, f"has zero points of shape {list(zero.shape)}", why, tensor=zero)
    values = scale.array().astype(np.float64).reshape(-1) if scale.is_constant else np.zeros(1)
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if wrong.size:
        what = "has a scale that is negative or not finite"
        raise illegal(bound, what, f"{wrong[0]:g}", "quantize the model again", scale)


def _require_zero_point_0(bound: BoundNode) -> None:
    """Refuses a zero point that is not known to be 0, for types that have no other."""
    zero = bound.optional(ZERO)
    if zero is not None and not (zero.is_constant and not zero.array().any()):
        what = f"of {bound.op(Codes).element} has a zero point that is not 0"
        raise illegal(bound, what, "this type has none", "export the model again, without zero points", zero)


_TO = (*(name for name in INTEGERS if name != "int32"), *SMALL_FLOATS)


def check(bound: BoundNode) -> None:
    """Refuses other types, scales that do not fit the tensor, and zero points where the type has none."""
    element = bound.op(Codes).element
    real, code, elements = bound.output, bound.input(X), (*INTEGERS, *SMALL_FLOATS)
    if isinstance(bound.node.op, QuantizeCodes):
        real, code, elements = code, real, _TO
    storage = SMALL_FLOATS[element].storage if element in SMALL_FLOATS else INTEGERS[element][0]
    zero = bound.optional(ZERO)
    dtypes = (real.dtype, bound.input(SCALE).dtype, code.dtype, storage if zero is None else zero.dtype)
    if element not in elements or dtypes != (DType.FLOAT32, DType.FLOAT32, storage, storage):
        what = f"between {real.dtype.value} and {element} is not supported"
        why = f"there is code for float32 with {', '.join(elements)}, and scale and zero point of these types"
        raise unsupported(bound, what, why, "quantize the model to int8", code)
    _require_scales(bound)
    if element in SMALL_FLOATS or element == "int32":
        _require_zero_point_0(bound)


def _operands(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, Float32, Int64]:
    """x, and scale and zero point spread over it."""
    x, scale = inputs[X], inputs[SCALE]
    zero = inputs[ZERO] if len(inputs) > ZERO else None
    assert x is not None and scale is not None
    spread = np.zeros((), np.int64) if zero is None else _spread(bound, zero).astype(np.int64)
    return x, np.asarray(_spread(bound, scale), np.float32), spread


def nearest_codes(kind: SmallFloat, values: Float32, signs: NDArray[np.bool_]) -> Array:
    """Codes of the values nearest to `values`, looked up among the values of all codes; signs: of what is not a number."""
    known = kind.values().astype(np.float64)
    step = known[-1] - known[-2]
    nodes = np.append(known, known[-1] + step)  # the first value beyond the largest, as if there were one
    size = np.minimum(np.abs(values.astype(np.float64)), nodes[-1])
    size = np.where(np.isnan(values), 0.0, size)
    above = np.searchsorted(nodes, size)
    below = np.maximum(above - 1, 0)
    low, high = size - nodes[below], nodes[above] - size
    codes = np.where((high < low) | ((high == low) & (above % 2 == 0)), above, below)
    codes = np.where(codes > kind.highest, kind.overflow, codes)
    sign = np.where(np.isnan(values), signs & np.bool_(kind.nan_signed), np.signbit(values))
    codes = np.where(np.isnan(values), kind.nan, codes)
    return np.asarray(codes + sign * (1 << kind.sign_bit)).astype(kind.storage.value)


def quantize_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The quotient in float32, rounded by numpy or by looking for the nearest value."""
    op = bound.op(Codes)
    operands, scale, zero = _operands(bound, inputs)
    x = operands.astype(np.float32)
    with np.errstate(all="ignore"):
        ratio = np.asarray(x / scale, np.float32)
    kind = SMALL_FLOATS.get(op.element)
    if kind is None:
        storage, low, high = INTEGERS[op.element]
        whole = np.rint(ratio).astype(np.float64)
        limited = np.clip(np.where(np.isnan(whole), -np.inf, whole) + zero, low, high)
        return (np.asarray(limited.astype(storage.value)),)
    if kind.zero_point_adds and bound.optional(ZERO) is not None:
        ratio = ratio + np.float32(0)
    return (nearest_codes(kind, ratio, np.signbit(x)),)


def dequantize_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The product in float32."""
    x, scale, zero = _operands(bound, inputs)
    kind = SMALL_FLOATS.get(bound.op(Codes).element)
    if kind is None:
        real = np.asarray(x.astype(np.int64) - zero, np.float32)
    else:
        codes = x.astype(np.int64)
        size, sign = codes & ((1 << kind.sign_bit) - 1), (codes >> kind.sign_bit) & 1
        beyond = np.where(size == kind.infinite, np.float32(np.inf), np.float32(np.nan))
        magnitude = np.where(size <= kind.highest, kind.values()[np.minimum(size, kind.highest)], beyond)
        real = np.asarray(np.where(sign == 1, -magnitude, magnitude), np.float32)
    with np.errstate(all="ignore"):
        return (np.asarray(real * scale, np.float32),)


def _params(bound: BoundNode) -> tuple[Param, ...]:
    """The tensor as [outer, slices, inner], and by how many scales each of these moves."""
    op, shape = bound.op(Codes), bound.input(X).shape
    if op.block_size == 0 and bound.input(SCALE).elements == 1:
        outer, slices, inner, steps = 1, 1, math.prod(shape), (0, 0, 0)
    else:
        outer, slices, inner = math.prod(shape[: op.axis]), shape[op.axis], math.prod(shape[op.axis + 1 :])
        blocks = -(-slices // op.block_size) if op.block_size else 0
        steps = (blocks * inner, inner, 1) if op.block_size else (0, 1, 0)
    return integers(
        outer=outer,
        slices=(slices, "along the axis"),
        inner=inner,
        block=(op.block_size or 1, "slices that share their scales"),
        outer_step=(steps[0], "scales to the next of outer"),
        block_step=(steps[1], "to the next block"),
        inner_step=(steps[2], "to the next of inner"),
    )


def _floats(kind: SmallFloat) -> tuple[Param, ...]:
    return (
        Param("sign_bit", "int32_t", kind.sign_bit),
        Param("mantissa_bits", "int32_t", kind.mantissa_bits),
        Param("least", "int32_t", 128 - kind.bias, "float32 exponent of the smallest normal value"),
        Param("highest", "uint32_t", kind.highest, "code of the largest finite value"),
    )


def lower_quantize(bound: BoundNode) -> Layer:
    op, y = bound.op(Codes), bound.output
    zero = bound.optional(ZERO)
    spec, overlaps = typed(DType.FLOAT32, y.dtype), in_place(bound, (X,))
    kind = SMALL_FLOATS.get(op.element)
    if kind is None:
        _, low, high = INTEGERS[op.element]
        params = (*_params(bound), *integers(clamp_low=low, clamp_high=high))
        operands = (X, SCALE) if zero is None else (X, SCALE, ZERO)
        template = "quantization/quantize_codes" if zero is None else "quantization/quantize_codes_zero"
        return Layer(template, "portable", operands, params=params, overlaps=overlaps, spec=spec)
    adds = kind.zero_point_adds and zero is not None
    params = (
        *_params(bound),
        *_floats(kind),
        Param("overflow", "uint32_t", kind.overflow, "code of what is larger"),
        Param("nan", "uint32_t", kind.nan, "code of what is not a number"),
        Param("nan_sign", "uint32_t", int(kind.nan_signed), "1: with its sign"),
        Param("zero_sign", "uint32_t", int(not adds), "1: -0 stays -0"),
    )
    return Layer("quantization/quantize_floats", "portable", (X, SCALE), params=params, overlaps=overlaps, spec=spec)


def lower_dequantize(bound: BoundNode) -> Layer:
    """A multiplication per element. A byte may lie at the end of the output, which follows four times as fast."""
    x = bound.input(X)
    kind = SMALL_FLOATS.get(bound.op(Codes).element)
    spec = typed(x.dtype, DType.FLOAT32)
    overlaps = (in_step(bound, X),) if x.dtype.bytes == 1 else ()
    params, template = _params(bound), "quantization/dequantize_codes"
    operands: tuple[int, ...] = (X, SCALE)
    if kind is not None:
        infinite = kind.infinite if kind.infinite >= 0 else 1 << kind.sign_bit
        params = (*params, *_floats(kind), Param("infinite", "uint32_t", infinite, "code of infinity"))
        template = "quantization/dequantize_floats"
    elif bound.optional(ZERO) is not None and x.dtype is not DType.INT32:  # that of int32 is 0
        operands, template = (X, SCALE, ZERO), "quantization/dequantize_codes_zero"
    return Layer(template, "portable", operands, params=params, overlaps=overlaps, spec=spec)


_HELD = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)
KERNELS = (
    KernelDef(
        QuantizeCodes, "float32 to codes of any element type, scales computed or per block", _HELD, (), None,
        check, quantize_reference, lower_quantize,
        onnx=("QuantizeCodes",), from_onnx=partial(_from_onnx, QuantizeCodes),
    ),
    KernelDef(
        DequantizeCodes, "codes of any element type to float32, scales computed or per block", _HELD, (), None,
        check, dequantize_reference, lower_dequantize,
        onnx=("DequantizeCodes",), from_onnx=partial(_from_onnx, DequantizeCodes),
    ),
)  # fmt: skip
