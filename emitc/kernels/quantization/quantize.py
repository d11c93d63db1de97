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
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Tensor
from emitc.kernels.contract import KernelDef, Variant, illegal, require_dtypes, require_quantization
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.mac.requantization import SMALLEST_NORMAL
from emitc.kernels.shared.byte_lookup import TABLE_ENTRIES, by_vectors, byte_table, require_factor
from emitc.kernels.shared.int16x8 import throughout
from emitc.kernels.shared.pointwise import in_place, operand, parser_of
from emitc.layer import Layer, Param, Table, in_step, integers
from emitc.numerics.requantize import BYTES, Int64, multiplier_of, requantize

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


def _quantization(tensor: Tensor) -> Quantization:
    assert tensor.quantization
    return tensor.quantization


def _require_scales(bound: BoundNode, tensor: Tensor) -> None:
    """Refuses a quantized tensor without scale, or with scales that do not fit its axis."""
    q = tensor.quantization
    if q is None or (not q.per_tensor and (q.axis >= len(tensor.shape) or tensor.shape[q.axis] != len(q.scales))):
        what = "has scales that do not fit its tensor"
        raise illegal(bound, what, "one, or one for each slice of an axis", tensor=tensor)


def _spread(tensor: Tensor) -> tuple[NDArray[np.float32], Int64]:
    """Scales and zero points in a shape that broadcasts against the tensor."""
    q = _quantization(tensor)
    shape = tuple(-1 if i == q.axis else 1 for i in range(len(tensor.shape))) if not q.per_tensor else ()
    return np.array(q.scales, np.float32).reshape(shape), np.array(q.zero_points, np.int64).reshape(shape)


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
        require_factor(bound, x.scale / y.scale, reach)


def check_dequantize(bound: BoundNode) -> None:
    if bound.node.op.numerics.float_scale:
        require_dtypes(bound, [(dtype, DType.FLOAT32) for dtype in _ONNX_INTEGERS])
        _require_scales(bound, bound.input(0))
        return
    require_quantization(bound, bound.input(0))
    require_dtypes(bound, _DEQUANTIZED, [(DType.INT32, DType.FLOAT32)])


def _from_real(bound: BoundNode, x: NDArray[np.float32]) -> Array:
    y = bound.output
    scale, zero_point = _spread(y)
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
    value = inputs[0]
    assert value is not None
    if bound.input(0).dtype is DType.FLOAT32:
        return (_from_real(bound, value.astype(np.float32)),)
    return (_rescaled(bound, value.astype(np.int64)).astype(bound.output.dtype.value),)


def dequantize_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The product in float32: its factors are exact there, so that it is rounded once."""
    scale, zero_point = _spread(bound.input(0))
    centred = (operand(bound, inputs, 0).astype(np.int64) - zero_point).astype(np.float32)
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
        return Layer(template, "portable", (0,), _slice_tables(y), params, overlaps=in_place(bound))
    if x.dtype.bytes == y.dtype.bytes == 1 and y.elements >= TABLE_ENTRIES:
        return byte_table(bound, 0, _rescaled(bound, BYTES + 128 if x.dtype is DType.UINT8 else BYTES))
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
    return Layer(template, "portable", (0,), params=params, overlaps=in_place(bound))


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


KERNELS = (
    KernelDef(
        Quantize,
        "float32 to integers, and integers to another scale",
        (DType.FLOAT32, *_INTEGERS, DType.INT32),
        tflite={"QUANTIZE": parser_of(Quantize, tflite=Numerics.TFLITE)},
        check=check_quantize,
        reference=quantize_reference,
        lower=lower_quantize,
        variants=(
            Variant("mve", "mve", lambda bound: by_vectors(lower_quantize(bound)), UNKNOWN_VECTORS),
            Variant("fpu", "fpu", lower_quantize_fpu, UNKNOWN_PAIRS, (DType.FLOAT32,)),
        ),
        onnx={"Quantize": parser_of(Quantize)},
    ),
    KernelDef(
        Dequantize,
        "integers to float32",
        _INTEGERS,
        tflite={"DEQUANTIZE": parser_of(Dequantize, tflite=Numerics.TFLITE)},
        check=check_dequantize,
        reference=dequantize_reference,
        lower=lower_dequantize,
        variants=(Variant("mve", "mve", lower_dequantize_mve, UNKNOWN_VECTORS, (DType.INT8, DType.INT16)),),
        onnx={"Dequantize": parser_of(Dequantize)},
    ),
)
