"""PRelu: y = x, below zero slope * x, with a slope for each element, channel or tensor.

Shapes  x any, slope any that broadcasts onto x (numpy's rule), y as x.
Types   float32. int8 with scales where DequantizeLinear and QuantizeLinear stand around the operator: the slope is a constant
        then; x is dequantized in float32, multiplied, divided by y_scale, rounded half to even and saturated. With one slope
        for all of x that is a table. TFLite: int8 and int16 with a slope of int8, each with its own scale, requantized by
        x_scale / y_scale, below zero by x_scale * slope_scale / y_scale.
A NaN stays one, and so does -0.   Source  ONNX's specification; the order of operations is ONNX Runtime's. TFLite Micro's kernel.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, Variant, require_dtypes, require_quantization, unsupported
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.kernels.shared import int16x8, pointwise
from emitc.kernels.shared.broadcast import broadcast_layer, require_broadcast, walk_params
from emitc.layer import Formula, KernelSpec, Layer, Param, Table, integers
from emitc.numerics.float_functions import FUNCTIONS
from emitc.numerics.requantize import BYTES, Float32, Int64, multiplier_of, requantize
from emitc.records import dataclass, replace

_REAL = Formula("prelu", "va < 0.0f ? vb * va : va", "a, b * a where a is negative")
_FIXED = Formula(
    "prelu_fixed",
    "({y})emitc_clamp((va + p->x_offset < 0"
    " ? emitc_requantize((va + p->x_offset) * (vb + p->slope_offset), p->slope_multiplier, p->slope_shift)"
    " : emitc_requantize(va + p->x_offset, p->multiplier, p->shift)) + p->y_offset, p->clamp_low, p->clamp_high)",
    "a requantized, and where it is negative a * b",
)


@dataclass(frozen=True, slots=True)
class PRelu(Op):
    """A rectifier with slopes below zero."""


def _check_fixed(bound: BoundNode) -> None:
    x, slope, y = bound.input(0), bound.input(1), bound.output
    require_dtypes(bound, [(DType.INT8,) * 3, (DType.INT16, DType.INT8, DType.INT16)])
    require_quantization(bound, x, slope, y)
    int16x8.require_symmetric(bound)
    require_broadcast(bound, onto_first=True)
    reach = 255 if x.dtype is DType.INT8 else 1 << 15
    pointwise.require_factor(bound, _factors(bound)[0], reach)
    pointwise.require_factor(bound, _factors(bound)[1], reach * 255)


def check(bound: BoundNode) -> None:
    """Refuses types without code, a slope of another shape, and a quantized slope that is computed."""
    if bound.node.op.numerics is Numerics.TFLITE:
        _check_fixed(bound)
        return
    x, slope = bound.input(0), bound.input(1)
    pointwise.require_types(bound, [(t, t, t) for t in (DType.FLOAT32, DType.INT8)], "float32, and int8 with scales")
    require_broadcast(bound, onto_first=True)
    if x.dtype is DType.FLOAT32:
        return
    require_quantization(bound, x, bound.output)
    if not slope.is_constant or slope.quantization is None:
        what = "of int8 with a computed slope is not supported"
        why = "there is code for float32, and for a quantized constant"
        raise unsupported(bound, what, why, "leave the operator in float32", slope)


def _real_slope(bound: BoundNode) -> Float32:
    """The slope of quantized tensors as float32; one scale, or one for each slice of an axis."""
    slope = bound.input(1)
    q = slope.quantization
    assert q
    scales, zero_points = q.spread(len(slope.shape))
    return np.asarray((slope.array().astype(np.int64) - zero_points).astype(np.float32) * scales)


def _by_scales(bound: BoundNode, q: Array | Int64, slope: Float32) -> Int64:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    real = pointwise.dequantized(q, x)
    with np.errstate(all="ignore"):
        return pointwise.quantized(np.where(real < 0, slope * real, real), y, bound.output.dtype)


def _factors(bound: BoundNode) -> tuple[float, float]:
    """TFLite: what x is multiplied with from zero on, and x times slope below it."""
    x, slope, y = bound.input(0), bound.input(1), bound.output
    return x.scale / y.scale, x.scale * slope.scale / y.scale


def _fixed(bound: BoundNode, q: Int64, slopes: Int64) -> Int64:
    """TFLite: quantized values from quantized values and slopes that broadcast."""
    x, slope, y = bound.input(0), bound.input(1), bound.output
    above, below = (multiplier_of(factor) for factor in _factors(bound))
    centred = q - x.zero_point
    sloped = requantize(centred * (slopes - slope.zero_point), below.q31, below.shift)
    result = np.where(centred >= 0, requantize(centred, above.q31, above.shift), sloped) + y.zero_point
    return np.asarray(np.clip(result, *bound.output.dtype.range), np.int64)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """float32 throughout; TFLite's integers in fixed point."""
    value = pointwise.operand(bound, inputs, 0)
    if bound.node.op.numerics is Numerics.TFLITE:
        outputs = _fixed(bound, value.astype(np.int64), pointwise.operand(bound, inputs, 1).astype(np.int64))
        return (outputs.astype(bound.output.dtype.value),)
    if value.dtype == np.int8:
        return (_by_scales(bound, value, _real_slope(bound)).astype(np.int8),)
    x, slope = np.asarray(value, np.float32), np.asarray(pointwise.operand(bound, inputs, 1), np.float32)
    with np.errstate(all="ignore"):
        return (np.where(x < 0, slope * x, x),)


def _lower_fixed(bound: BoundNode) -> Layer:
    x, slope, y = bound.input(0), bound.input(1), bound.output
    if slope.is_constant and slope.elements == 1 and x.dtype is DType.INT8:
        return pointwise.byte_table(bound, 0, _fixed(bound, BYTES, slope.array().reshape(()).astype(np.int64)))
    above, below = (multiplier_of(factor) for factor in _factors(bound))
    params = integers(
        x_offset=(-x.zero_point, "minus the zero point"),
        slope_offset=-slope.zero_point,
        multiplier=(above.q31, "Q31, from zero on"),
        shift=(above.shift, "positive left"),
        slope_multiplier=(below.q31, "Q31, of products below zero"),
        slope_shift=below.shift,
        y_offset=y.zero_point,
        clamp_low=y.dtype.range[0],
        clamp_high=y.dtype.range[1],
    )
    return broadcast_layer(bound, _FIXED, params, spec=pointwise.typed(x.dtype, y.dtype, slope.dtype))


def lower(bound: BoundNode) -> Layer:
    """A LeakyRelu where one constant is the slope; of int8 a table, or arithmetic for each element."""
    if bound.node.op.numerics is Numerics.TFLITE:
        return _lower_fixed(bound)
    x, slope, y = bound.input(0), bound.input(1), bound.output
    if x.dtype is DType.FLOAT32:
        if slope.is_constant and slope.elements == 1:
            alpha = float(slope.array().reshape(-1)[0])
            return pointwise.real_layer(bound, FUNCTIONS["LeakyRelu"], (alpha,))
        return broadcast_layer(bound, _REAL)
    slopes = _real_slope(bound)
    if slopes.size == 1:
        return pointwise.byte_table(bound, 0, _by_scales(bound, BYTES, slopes.reshape(())))
    params = (
        Param("x_offset", "int32_t", -x.zero_point, "minus the zero point"),
        Param("x_scale", "float", x.scale),
        Param("y_scale", "float", y.scale),
        Param("y_offset", "float", float(y.zero_point)),
        *walk_params([x.shape, slope.shape], y.shape),
    )
    table = Table("slope", "float", tuple(slopes.reshape(-1).tolist()), "slopes below zero")
    spec = KernelSpec(x="int8_t", w="float", y="int8_t")
    return Layer(
        "activation/prelu_quantized", "portable", (0,), (table,), params, overlaps=pointwise.in_place(bound), spec=spec
    )


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four floats at a time along the rows, or a table of bytes by vectors."""
    layer = lower(bound)
    if layer.kernel_name != _REAL.name:
        return pointwise.vector_layer(layer)
    steps = {param.name: param.value for param in layer.params}
    if steps["a_step"] != 1 or steps["b_step"] > 1:
        return "its slopes are not contiguous"
    # One slope for a row is loaded once.
    spec = layer.spec.extended("_shared", per_tensor=True) if steps["b_step"] == 0 else layer.spec
    return replace(
        layer, template="activation/prelu_mve", formula=None, headers=("emitc_mve.h", "emitc_mve_float32.h"), spec=spec
    )


KERNELS = (
    KernelDef(
        PRelu, "rectifier with slopes below zero, broadcasting", (DType.FLOAT32, DType.INT8), ("PRELU",),
        pointwise.parser_of(PRelu, 2), check, reference, lower, onnx=("PRelu",), from_onnx=pointwise.parser_of(PRelu, 2),
        elementwise=True, tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32),
        variants=(Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.INT8, DType.FLOAT32)),),
    ),
)  # fmt: skip
