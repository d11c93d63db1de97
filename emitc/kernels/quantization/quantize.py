"""QUANTIZE between float32 and integers or between integer scales, and DEQUANTIZE.

Shapes  any, y the same.   Types  QUANTIZE float32 to int8, uint8, int16; int8, uint8, int16 among each other (not between
uint8 and uint8 or int16), int8 and int16 to and from int32. DEQUANTIZE int8, uint8, int16 to float32.
From float   y = clamp(y_zero + round(x / y_scale)), division in float32, round half away from zero. Beyond the type's range
             the result is its end, also for infinities; a NaN gives y_zero. (TFLite Micro leaves quotients from 2**31 on
             and NaN to the processor; on a Cortex-M they come out as here.)
To integers  y = clamp(y_zero + requantize(x - x_zero)), factor x_scale / y_scale.
DEQUANTIZE   y = x_scale * (x - x_zero), one rounding to float32.
ONNX         QuantizeLinear rounds half to even, and a NaN gives the type's smallest value; DequantizeLinear is the same. Both
             also have one scale for each slice of an axis. int8 to int8 occurs as a Reinterpret only.
Source       TFLite Micro's kernels; float32 to uint8, which it does not have, as LiteRT's reference kernel.

DynamicQuantizeLinear: float32 to uint8, with a scale and a zero point that are computed from the values themselves.

Shapes  x any, y the same; scale and zero_point of rank 0.   Types  float32 to uint8, float32, uint8.
low = min(x, 0), high = max(x, 0); scale = (high - low) / 255, or 1 where both are 0; zero_point = rint(-low / scale) within
0..255; y = rint(x / scale) + zero_point within 0..255. All in float32, rint to nearest, ties to even.
What is not a number counts for neither low nor high, and becomes 0.
Source  ONNX's specification, opset 11; scale 1, and what is not a number, as ONNX Runtime has it.

ShiftSign: int8 to uint8 of the same real values, and back. uint8 tensors of ONNX, and of TFLite's
legacy models, are int8 inside.

Shapes  x any, y the same.   Types  int8 to uint8 or uint8 to int8, of one scale; the zero point of uint8 is 128 higher.
Adding or taking away 128 is turning over the highest bit: y = x ^ 0x80, byte by byte, in place where x is not needed any more.

Cast and CastLike, CAST of TFLite: every element as another type.

Shapes  x any, y the same.   Types  all of emitc's among each other (float16, bfloat16, float8 and strings are none of them).
To bool       whether a value differs from 0; a NaN does.
To integers   from integers: the low bits, so that what does not fit wraps. From floats: without the fraction; ONNX and TFLite
              leave open what becomes of values that do not fit. Here they give the end of the type's range, and a NaN gives 0.
To floats     the nearest value, ties to even; from float64 what is too large becomes infinite.
Source        ONNX's specification of Cast.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Tensor
from emitc.kernels.contract import (
    Condition,
    KernelDef,
    Parsed,
    Variant,
    illegal,
    parser,
    require_dtypes,
    require_quantization,
    requires,
    unsupported,
)
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.mac.accumulation import SMALLEST_NORMAL
from emitc.kernels.shared import pointwise
from emitc.kernels.shared.int16x8 import throughout
from emitc.kernels.shared.pointwise import FLOATS, TRUTH, copied, operand, parser_of, pointwise_layer
from emitc.layer import PLAIN, Formula, Layer, Param, Table, in_step, integers
from emitc.numerics.requantize import BYTES, Float32, Int64, multiplier_of, requantize
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16)
_REQUANTIZED = (
    (DType.INT8, DType.INT8),
    (DType.INT8, DType.UINT8),
    (DType.INT8, DType.INT16),
    (DType.UINT8, DType.INT8),
    (DType.INT16, DType.INT8),
    (DType.INT16, DType.INT16),
    (DType.INT8, DType.INT32),
    (DType.INT16, DType.INT32),
    (DType.INT32, DType.INT8),
    (DType.INT32, DType.INT16),
)
_ONNX_INTEGERS = (*_INTEGERS, DType.UINT16, DType.INT32)
_QUANTIZED = tuple((DType.FLOAT32, dtype) for dtype in _INTEGERS) + _REQUANTIZED
_DEQUANTIZED = tuple((dtype, DType.FLOAT32) for dtype in _INTEGERS)


class Quantize(Op):
    """To a quantized tensor."""


class Dequantize(Op):
    """To real values."""


def _require_scales(bound: BoundNode, tensor: Tensor) -> None:
    """Refuses a quantized tensor without scale, or with scales that do not fit its axis."""
    q = tensor.quantization
    if q is None or (not q.per_tensor and (q.axis >= len(tensor.shape) or tensor.shape[q.axis] != len(q.scales))):
        what = "has scales that do not fit its tensor"
        raise illegal(bound, what, "one, or one for each slice of an axis", tensor=tensor)


def _quantization(tensor: Tensor) -> Quantization:
    assert tensor.quantization
    return tensor.quantization


def check_quantize(bound: BoundNode) -> None:
    """Refuses other types, tensors with more than one scale, and a ratio of scales beyond fixed point."""
    x, y = bound.input(0), bound.output
    if bound.node.op.numerics.float_scale:
        require_dtypes(bound, [(DType.FLOAT32, dtype) for dtype in _ONNX_INTEGERS])
        _require_scales(bound, y)
        return
    require_quantization(bound, *(tensor for tensor in (x, y) if tensor.dtype in (*_INTEGERS, DType.INT32)))
    others = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.INT32)
    require_dtypes(bound, _QUANTIZED, [(a, b) for a in others for b in others if b is not DType.FLOAT32])
    for tensor in (x, y):
        if tensor.dtype is DType.INT32 and tensor.zero_point != 0:
            what = "has an int32 tensor with a zero point"
            raise illegal(bound, what, "TFLite's int32 tensors are symmetric", "quantize the model again", tensor)
    if x.dtype is not DType.FLOAT32:
        low, high = x.dtype.range
        # A left shift of int32 wraps, as TFLite Micro's does.
        reach = 0 if x.dtype is DType.INT32 else max(high - x.zero_point, x.zero_point - low)
        pointwise.require_factor(bound, x.scale / y.scale, reach)


def check_dequantize(bound: BoundNode) -> None:
    if bound.node.op.numerics.float_scale:
        require_dtypes(bound, [(dtype, DType.FLOAT32) for dtype in _ONNX_INTEGERS])
        _require_scales(bound, bound.input(0))
        return
    require_quantization(bound, bound.input(0))
    require_dtypes(bound, _DEQUANTIZED, [(DType.INT32, DType.FLOAT32)])


def _from_real(bound: BoundNode, x: NDArray[np.float32]) -> Array:
    y = bound.output
    scale, zero_point = _quantization(y).spread(len(y.shape))
    with np.errstate(all="ignore"):
        ratio = (x / scale).astype(np.float64)
    if bound.node.op.numerics.float_scale:
        whole, of_nan = np.rint(ratio), -np.inf
    else:
        # In float64 the sum with a half is exact, so that its floor rounds halves away from zero.
        whole, of_nan = np.copysign(np.floor(np.abs(ratio) + 0.5), ratio), 0.0
    limited = np.clip(np.where(np.isnan(whole), of_nan, whole) + zero_point, *y.dtype.range)
    return np.asarray(limited.astype(y.dtype.value))


def _rescaled(bound: BoundNode, q: Int64) -> Int64:
    x, y = bound.input(0), bound.output
    multiplier = multiplier_of(x.scale / y.scale)
    moved = requantize(q - x.zero_point, multiplier.q31, multiplier.shift) + y.zero_point
    return np.clip(moved.astype(np.int32).astype(np.int64), *y.dtype.range)


def quantize_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """float32 where the input is real, integers otherwise."""
    value = pointwise.operand(bound, inputs, 0)
    if bound.input(0).dtype is DType.FLOAT32:
        return (_from_real(bound, value.astype(np.float32)),)
    return (_rescaled(bound, value.astype(np.int64)).astype(bound.output.dtype.value),)


def dequantize_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The product in float32: its factors are exact there, so that it is rounded once."""
    scale, zero_point = _quantization(bound.input(0)).spread(len(bound.output.shape))
    centred = (pointwise.operand(bound, inputs, 0).astype(np.int64) - zero_point).astype(np.float32)
    with np.errstate(over="ignore"):  # infinite then, as in the C
        return (np.asarray(scale * centred, np.float32),)


def _slices(tensor: Tensor) -> tuple[Param, ...]:
    """A tensor as [outer, slices, inner] round its quantized axis."""
    axis = _quantization(tensor).axis
    return integers(
        outer=math.prod(tensor.shape[:axis]), slices=tensor.shape[axis], inner=math.prod(tensor.shape[axis + 1 :])
    )


def _slice_tables(tensor: Tensor) -> tuple[Table, ...]:
    q = _quantization(tensor)
    return (
        Table("scale", "float", q.scales, "scale of each slice"),
        Table("zero_point", "int32_t", q.zero_points, "zero point of each slice"),
    )


def lower_quantize(bound: BoundNode) -> Layer:
    """From float: a division per element. Bytes: a table where the tensor is no smaller; else a requantization each."""
    x, y, even = bound.input(0), bound.output, bound.node.op.numerics.float_scale
    low, high = y.dtype.range
    limits = integers(clamp_low=low, clamp_high=high)
    if even and not _quantization(y).per_tensor:
        template, params = "quantization/quantize_slices", (*_slices(y), *limits)
        return Layer(template, "portable", (0,), _slice_tables(y), params, overlaps=pointwise.in_place(bound))
    if x.dtype.bytes == y.dtype.bytes == 1 and y.elements >= pointwise.TABLE_ENTRIES:
        return pointwise.byte_table(bound, 0, _rescaled(bound, BYTES + 128 if x.dtype is DType.UINT8 else BYTES))
    count, offset = integers(count=y.elements, output_offset=y.zero_point)
    if x.dtype is DType.FLOAT32:
        template = "quantization/quantize_even" if even else "quantization/quantize"
        params = (
            count,
            Param("scale", "float", y.scale),
            Param("lowest", "float", float(low - y.zero_point), "quotients from here down give clamp_low"),
            Param("highest", "float", float(high - y.zero_point), "quotients from here up give clamp_high"),
            *limits,
            offset,
        )
    else:
        template, multiplier = "quantization/requantized", multiplier_of(x.scale / y.scale)
        params = (
            count,
            Param("input_offset", "int32_t", -x.zero_point, "minus the zero point"),
            Param("multiplier", "int32_t", multiplier.q31, "Q31"),
            Param("shift", "int32_t", multiplier.shift, "positive left"),
            offset,
            *limits,
        )
    return Layer(template, "portable", (0,), params=params, overlaps=pointwise.in_place(bound))


def lower_quantize_fpu(bound: BoundNode) -> Layer | str:
    """The float unit's own roundings."""
    layer = lower_quantize(bound)
    if layer.template not in ("quantization/quantize", "quantization/quantize_even"):
        return f"{layer.kernel_name} has a portable version only"
    return replace(layer, template=f"{layer.template}_fpu", headers=("emitc_fpu.h",))


def lower_dequantize_mve(bound: BoundNode) -> Layer | str:
    layer, dtype = lower_dequantize(bound), bound.input(0).dtype
    if layer.template != "quantization/dequantize" or dtype not in (DType.INT8, DType.INT16):
        return f"{dtype.value} to float: there is code for int8 and int16 of one scale"
    if bound.input(0).scale < SMALLEST_NORMAL:
        return "its scale is subnormal, which MVE flushes to zero"
    spec = throughout(dtype)
    return replace(layer, template="quantization/dequantize_mve", headers=("emitc_mve.h",), spec=spec)


def lower_dequantize(bound: BoundNode) -> Layer:
    """One multiplication per element. A byte input may lie at the end of its output, which follows four times as fast."""
    x, y = bound.input(0), bound.output
    if not _quantization(x).per_tensor:
        return Layer("quantization/dequantize_slices", "portable", (0,), _slice_tables(x), _slices(x))
    params = (
        *integers(count=y.elements, input_offset=(-x.zero_point, "minus the zero point")),
        Param("scale", "float", x.scale),
    )
    overlaps = (in_step(bound),) if x.dtype.bytes == 1 else ()
    return Layer("quantization/dequantize", "portable", (0,), params=params, overlaps=overlaps)


_DYNAMIC_TYPES = (DType.UINT8, DType.FLOAT32, DType.UINT8)


@dataclass(frozen=True, slots=True)
class DynamicQuantize(Op):
    """To uint8 by the range of the values."""


def _check_dynamic(bound: BoundNode) -> None:
    """Refuses other types, which the format does not have."""
    dtypes = tuple(t.dtype for t in bound.outputs)
    if bound.input(0).dtype is not DType.FLOAT32 or dtypes != _DYNAMIC_TYPES:
        what = f"from {bound.input(0).dtype.value} to {', '.join(t.value for t in dtypes)} is not supported"
        why = "there is code for float32 to uint8, float32 and uint8"
        raise unsupported(bound, what, why, "export the model again")


def quantized_by_range(x: Float32) -> tuple[Array, np.float32, int]:
    """y, scale and zero point by the specification in float32; rint of a quotient is exact in float64 as well."""
    with np.errstate(all="ignore"):
        low = np.fmin.reduce(x, axis=None, initial=np.float32(0))
        high = np.fmax.reduce(x, axis=None, initial=np.float32(0))
        scale = np.float32(1) if low == high else np.float32((high - low) / np.float32(255))
        zero = np.float64(-low / scale)
        zero_point = 255.0 if np.isnan(zero) else np.rint(np.clip(zero, 0.0, 255.0))
        y = np.rint((x / scale).astype(np.float64)) + zero_point
    y = np.clip(np.nan_to_num(y, nan=0.0), 0, 255).astype(np.uint8)
    return y, np.float32(scale), int(zero_point)


def _dynamic_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The specification in float32."""
    y, scale, zero_point = quantized_by_range(np.asarray(inputs[0], np.float32))
    return y, np.asarray(scale, np.float32), np.asarray(zero_point, np.uint8)


def _in_step(template: str) -> Callable[[BoundNode], Layer]:
    """The lowering to a template that takes the number of elements alone; y may lie over x, as its elements are no wider."""
    return lambda bound: Layer(template, params=integers(count=bound.output.elements), overlaps=(in_step(bound),))


_lower_dynamic = _in_step("quantization/dynamic_quantize")
"""Two passes."""


@dataclass(frozen=True, slots=True)
class ShiftSign(Op):
    """Between int8 and uint8, whose values differ by 128."""


def _bias(bound: BoundNode) -> int:
    """By how much the zero point and the numbers of y are higher."""
    return 128 if bound.output.dtype is DType.UINT8 else -128


def _check_sign(bound: BoundNode) -> None:
    """Refuses other types, and quantizations that do not stand for the same real values."""
    require_dtypes(bound, [(DType.INT8, DType.UINT8), (DType.UINT8, DType.INT8)])
    x, y = bound.input(0), bound.output
    if x.quantization is None or y.quantization is None:
        return
    bias = _bias(bound)
    moved = tuple(zero_point + bias for zero_point in x.quantization.zero_points)
    if (x.quantization.scales, moved) != (y.quantization.scales, y.quantization.zero_points):
        why = f"the scales must be equal, and the zero points must differ by {bias}"
        raise illegal(bound, "changes real values", why, tensor=y)


def _sign_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """128 more or less."""
    return ((operand(bound, inputs, 0).astype(np.int16) + _bias(bound)).astype(bound.output.dtype.value),)


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


def _cast_from_onnx(node: SourceNode) -> Parsed:
    """Cast; of CastLike's second operand only the type counts, which the output has already."""
    node.counts((2, 2) if node.kind == "CastLike" else (1, 1))
    return Parsed(Cast())


def _cast_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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


def _lower_cast(bound: BoundNode) -> Layer:
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
        Quantize,
        "float32 to integers, and integers to another scale",
        (DType.FLOAT32, *_INTEGERS, DType.INT32),
        tflite={"QUANTIZE": pointwise.parser_of(Quantize, tflite=Numerics.TFLITE)},
        check=check_quantize,
        reference=quantize_reference,
        lower=lower_quantize,
        variants=(
            Variant("mve", "mve", lambda bound: pointwise.by_vectors(lower_quantize(bound)), UNKNOWN_VECTORS),
            Variant("fpu", "fpu", lower_quantize_fpu, UNKNOWN_PAIRS, (DType.FLOAT32,)),
        ),
        onnx={"Quantize": pointwise.parser_of(Quantize)},
    ),
    KernelDef(
        Dequantize,
        "integers to float32",
        _INTEGERS,
        tflite={"DEQUANTIZE": pointwise.parser_of(Dequantize, tflite=Numerics.TFLITE)},
        check=check_dequantize,
        reference=dequantize_reference,
        lower=lower_dequantize,
        variants=(Variant("mve", "mve", lower_dequantize_mve, UNKNOWN_VECTORS, (DType.INT8, DType.INT16)),),
        onnx={"Dequantize": pointwise.parser_of(Dequantize)},
    ),
    KernelDef(
        DynamicQuantize, "float32 to uint8 by the range of the values", (DType.FLOAT32,), (), None, _check_dynamic,
        _dynamic_reference, _lower_dynamic, output_shapes=lambda bound: (bound.input(0).shape, (), ()),
        onnx=("DynamicQuantizeLinear",), from_onnx=parser(DynamicQuantize(), outputs=3),
        variants=(
            Variant(
                "fpu", "fpu", _lower_dynamic, UNKNOWN_PAIRS, (DType.FLOAT32,), template="quantization/dynamic_quantize_fpu",
                headers=("emitc_fpu.h",),
            ),
        ),
    ),
    KernelDef(
        ShiftSign,
        "int8 as uint8 of the same real values, or back",
        (DType.INT8, DType.UINT8),
        tflite={"ShiftSign": pointwise.parser_of(ShiftSign, tflite=Numerics.TFLITE)},
        check=_check_sign,
        reference=_sign_reference,
        lower=_in_step("quantization/rebias"),
        onnx={"ShiftSign": pointwise.parser_of(ShiftSign)},
        elementwise=True,
    ),
    KernelDef(
        # CAST of TFLite takes the numbers as they are, whatever scale they have.
        Cast, "elements as another type", tuple(DType), ("CAST",), parser_of(Cast, tflite=Numerics.PLAIN),
        reference=_cast_reference, lower=_lower_cast,
        onnx=("Cast", "CastLike"), from_onnx=_cast_from_onnx, elementwise=True,
        variants=(
            Variant(
                "mve", "mve", lambda bound: replace(_lower_cast(bound), formula=None), UNKNOWN_VECTORS, _TO_REALS,
                (_to_reals(*_TO_REALS),), "quantization/cast_real_mve",
                ("emitc_bits.h", "emitc_mve.h", "emitc_mve_uint32.h"),
            ),
            Variant(
                "fpu", "fpu", lambda bound: replace(_lower_cast(bound), formula=None, spec=PLAIN), UNKNOWN_PAIRS,
                (DType.INT32,), (_to_reals(DType.INT32),), "quantization/cast_real_fpu", ("emitc_fpu_elementwise.h",),
            ),
        ),
    ),
)  # fmt: skip
