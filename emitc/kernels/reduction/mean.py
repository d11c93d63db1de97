"""MEAN and SUM over any dimensions, of TFLite; ReduceMean and ReduceSum of ONNX.

Shapes  x any, y without the reduced dimensions, or with size 1 in their place (keep_dims).
TFLite  int8 and int16, own scales. acc = sum(x - x_zero), int32; y = clamp(y_zero + requantize(acc)).
        MEAN: the multiplier x_scale / y_scale is divided by the number of elements n in integers: with k = floor(log2 n),
        its Q31 value times 2**k over n, rounded down, and k more bits of right shift. SUM takes it as it is.
        Source: TFLite Micro's integer reduction; it has one way for all dimensions.
        float32 as in ONNX.
        Errors: a sum that can leave int32; more than three separate groups of kept or of reduced dimensions.
ONNX    float32, int32 and int64, which wrap; int8 and int16 between DequantizeLinear and QuantizeLinear: an int32 sum times
        float32(x_scale / (y_scale * n)), half to even. ONNX Runtime sums float32 values there, in an order that depends on
        its processor: where the exact mean is a half, the results may differ by one step, nowhere else. With equal scales and n
        a power of two it often is a half.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    out_of_proportion,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.pointwise import plain_numerics
from emitc.kernels.shared.sums import groups_of, loop_params, onnx_axes, typed_layer, wrapping
from emitc.layer import Layer, Param, ReductionFormula, integers
from emitc.numerics.requantize import Multiplier, multiplier_of, requantize, requantize_float
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_GROUPS = 3
_INT32_BITS = 31
_QUANTIZED = (DType.INT8, DType.INT16)
_PLAIN = (DType.FLOAT32, DType.INT32, DType.INT64)


@dataclass(frozen=True, slots=True)
class Reduction(Op):
    """axes: dimensions that are summed up, ascending and not negative. keep_dims: they stay, with size 1."""

    axes: tuple[int, ...]
    keep_dims: bool


class Mean(Reduction):
    """Arithmetic mean."""


class Sum(Reduction):
    """Sum."""


def reduction_from_tflite(op: type[Reduction], node: SourceNode) -> Parsed:
    node.counts((2, 2))
    rank = len(node.input(0).shape)
    listed = node.constant_integers(1, "axes")
    # A scalar has no dimension to name; what is listed then goes unused.
    axes = [axis % rank if -rank <= axis < rank else -1 for axis in listed] if rank else []
    if -1 in axes:
        raise node.refusal(f"has axes {list(listed)}", f"the input has {rank} dimensions", tensor=node.input(0))
    keep_dims = bool(node.integer("keep_dims", 0, 0, 1))
    return Parsed(op(tuple(sorted(set(axes))), keep_dims, numerics=plain_numerics(node)))


def reduction_from_onnx(op: type[Reduction], node: SourceNode) -> Parsed:
    node.counts((1, 2))
    keep_dims = bool(node.integer("keepdims", 1, 0, 1))
    return Parsed(op(onnx_axes(node), keep_dims))


def require_elements(bound: BoundNode) -> None:
    if 0 in bound.input(0).shape:
        raise illegal(bound, "has an empty input", "a dimension is 0", tensor=bound.input(0))


def transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op | None:
    """The same reduction of dimensions in another order, where they keep their places.

    None also where float32 values would be met in another order: their sum depends on it, and so does which of 0 and -0 is the
    extremum.
    """
    op, x = bound.op(Reduction), bound.input(0)
    met = [permutation[axis] for axis in sorted(op.axes) if x.shape[axis] > 1]
    if not op.keep_dims or (x.dtype is DType.FLOAT32 and met != sorted(met)):
        return None
    return replace(op, axes=tuple(sorted(permutation[axis] for axis in op.axes)))


def work(bound: BoundNode) -> int:
    """Elements that are read."""
    return bound.input(0).elements


def _count(bound: BoundNode) -> int:
    shape = bound.input(0).shape
    return math.prod(shape[axis] for axis in bound.op(Reduction).axes)


def _factor(bound: BoundNode) -> float:
    x, y = bound.input(0), bound.output
    return x.scale / y.scale


def _multiplier(bound: BoundNode) -> Multiplier:
    """The requantization of the sum, its right shift at most 31."""
    whole = multiplier_of(_factor(bound))
    if isinstance(bound.node.op, Sum):
        return whole
    count = _count(bound)
    bits = min(count.bit_length() - 1, 32, 31 + whole.shift)
    return Multiplier((whole.q31 << bits) // count, whole.shift - bits)


def check(bound: BoundNode) -> None:
    """Refuses other types than int8 and int16, sums beyond int32, and too many separate groups of dimensions."""
    if bound.node.op.numerics.float_scale:
        _check_onnx(bound)
        return
    x = bound.input(0)
    known = [(dtype,) * 2 for dtype in (DType.INT32, DType.UINT8, DType.FLOAT32)]
    require_dtypes(bound, [(dtype,) * 2 for dtype in _QUANTIZED], known)
    require_quantization(bound, x, bound.output)
    int16x8.require_symmetric(bound)
    require_elements(bound)
    factor, reach = _factor(bound), _largest_sum(bound, 255 if x.dtype is DType.INT8 else 1 << 15)
    if not factor < 1 << 30 or reach << max(_multiplier(bound).shift, 0) >= 1 << _INT32_BITS:
        why = f"sums are multiplied by {factor!r}, which the fixed-point arithmetic cannot hold"
        raise out_of_proportion(bound, why)
    groups = groups_of(x.shape, bound.op(Reduction).axes)
    if max(sum(g.reduced for g in groups), sum(not g.reduced for g in groups)) > _GROUPS:
        what = f"over axes {list(bound.op(Reduction).axes)} of {list(x.shape)} is not supported"
        why = f"kept and reduced dimensions alternate more than {_GROUPS} times"
        raise unsupported(bound, what, why, "reduce in several steps", x)


def _largest_sum(bound: BoundNode, reach: int) -> int:
    """What a sum of values of at most `reach` in magnitude cannot exceed. Refuses what int32 does not hold."""
    if reach * _count(bound) >= 1 << _INT32_BITS:
        what = f"over {_count(bound)} elements"
        raise unsupported(bound, what, "their sum can leave int32", "reduce in several steps", bound.input(0))
    return reach * _count(bound)


def _check_onnx(bound: BoundNode) -> None:
    """Refuses types without code, int32 sums that can overflow, and factors that float32 cannot hold."""
    x, y = bound.input(0), bound.output
    quantized = _QUANTIZED if bound.node.op.numerics is Numerics.QDQ else ()
    plain = (DType.FLOAT32,) if bound.node.op.numerics is Numerics.PLAIN else _PLAIN
    require_dtypes(bound, [*((t, t) for t in plain), *((a, b) for a in quantized for b in quantized)])
    require_elements(bound)
    if x.dtype in _PLAIN:
        return
    require_quantization(bound, x, y)
    _largest_sum(bound, max(x.zero_point - x.dtype.range[0], x.dtype.range[1] - x.zero_point))
    if not 2.0**-126 <= _float_factor(bound) < 2.0**30:
        raise out_of_proportion(bound, f"sums are multiplied by {_float_factor(bound)!r}")


def _float_factor(bound: BoundNode) -> float:
    """x_scale / y_scale, for a mean over the number of elements, in float32."""
    x, y = bound.input(0), bound.output
    count = _count(bound) if isinstance(bound.node.op, Mean) else 1
    with np.errstate(all="ignore"):
        return float(np.float32(x.scale) / (np.float32(y.scale) * np.float32(count)))


def _plain_reference(bound: BoundNode, values: Array) -> Array:
    """Of numbers that stand for themselves."""
    dtype, axes = bound.input(0).dtype, bound.op(Reduction).axes
    if dtype is DType.FLOAT32:
        total = np.asarray(values.astype(np.float64).sum(axis=axes))
        return np.asarray(total / _count(bound) if isinstance(bound.node.op, Mean) else total, np.float32)
    whole = np.asarray(values.astype(np.int64).sum(axis=axes)).astype(dtype.value).astype(np.int64)
    if isinstance(bound.node.op, Mean):  # towards zero, as C divides
        whole = np.sign(whole) * (np.abs(whole) // _count(bound))
    return np.asarray(whole, dtype.value)


_TOTAL = wrapping("reduce_total", "Sum", "acc + v", "acc + (u{x})v")
_MEAN = (
    replace(_TOTAL[0], name="reduce_mean", comment="Mean", c="acc / (float)p->divisor"),
    replace(_TOTAL[1], name="reduce_mean", comment="Mean", c="({y})acc / p->divisor"),
)
_REQUANTIZED = ReductionFormula(
    "reduce_quantized",
    "({y})emitc_output_f32(acc, p->factor, p->output_offset, p->clamp_low, p->clamp_high)",
    "Requantized sum",
    accumulator="int32_t",
    start="p->sum_offset",
    step="acc + v",
)


def _lower_onnx(bound: BoundNode) -> Layer:
    x, axes = bound.input(0), bound.op(Reduction).axes
    if x.dtype in _PLAIN:
        mean = isinstance(bound.node.op, Mean)
        divisor = Param("divisor", "int32_t", _count(bound) if mean else 1, "elements of one mean")
        return typed_layer(bound, _MEAN if mean else _TOTAL, axes, (divisor,) if mean else ())
    factor = Param("factor", "float", _float_factor(bound), "x_scale / y_scale, for a mean over the number of elements")
    return typed_layer(bound, (_REQUANTIZED, _REQUANTIZED), axes, _output_params(bound, factor))


def _output_params(bound: BoundNode, *factor: Param) -> tuple[Param, ...]:
    """How a sum of quantized values becomes an output. factor: of scales."""
    x, y = bound.input(0), bound.output
    return (
        Param("sum_offset", "int32_t", -x.zero_point * _count(bound), "minus the zero point of every element"),
        *factor,
        *integers(output_offset=y.zero_point, clamp_low=y.dtype.range[0], clamp_high=y.dtype.range[1]),
    )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The kept dimensions, and 1 instead of the others with keep_dims."""
    op, shape = bound.op(Reduction), bound.input(0).shape
    if op.keep_dims:
        return (tuple(1 if axis in op.axes else size for axis, size in enumerate(shape)),)
    return (tuple(size for axis, size in enumerate(shape) if axis not in op.axes),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's sum over the axes, requantized."""
    x, y, axes = bound.input(0), bound.output, bound.op(Reduction).axes
    assert inputs[0] is not None
    if x.dtype in _PLAIN:
        return (_plain_reference(bound, inputs[0]).reshape(y.shape),)
    acc = np.asarray((inputs[0].astype(np.int64) - x.zero_point).sum(axis=axes))
    if bound.node.op.numerics.float_scale:
        scaled = requantize_float(acc, np.float32(_float_factor(bound)))
    else:
        multiplier = _multiplier(bound)
        scaled = requantize(acc, multiplier.q31, multiplier.shift)
    return (np.clip(scaled + y.zero_point, *y.dtype.range).astype(y.dtype.value).reshape(y.shape),)


def lower(bound: BoundNode) -> Layer:
    """Nested loops over kept and reduced groups; the input's zero point is taken off the sum once."""
    if bound.node.op.numerics.float_scale:
        return _lower_onnx(bound)
    loops = loop_params(groups_of(bound.input(0).shape, bound.op(Reduction).axes), _GROUPS)
    multiplier = _multiplier(bound)
    output = _output_params(
        bound,
        Param("multiplier", "int32_t", multiplier.q31, "Q31, over the number of elements for a mean"),
        Param("shift", "int32_t", multiplier.shift, "positive left"),
    )
    spec = int16x8.throughout(bound.output.dtype)
    return Layer("reduction/reduce_sum", "portable", (0,), params=(*loops, *output), spec=spec)


def _lower_mve(bound: BoundNode) -> Layer | str:
    """Four outputs that lie side by side at a time."""
    layer = lower(bound)
    if layer.template != "reduction/reduce_sum":
        return f"{layer.kernel_name} has a portable version only"
    values = {param.name: param.value for param in layer.params}
    if values["kept2_stride"] != 1:
        return "the values of its output are not contiguous"
    return replace(layer, template="reduction/reduce_sum_mve", headers=("emitc_mve.h",))


def _kernel(op: type[Reduction], name: str, onnx: str, summary: str) -> KernelDef:
    return KernelDef(
        op,
        summary,
        (*_QUANTIZED, *_PLAIN),
        tflite={name: partial(reduction_from_tflite, op)},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
        tflite_dtypes=(*_QUANTIZED, DType.UINT8, DType.FLOAT32),
        onnx={onnx: partial(reduction_from_onnx, op)},
        transposed=transposed,
        variants=(
            Variant(
                "mve",
                "mve",
                _lower_mve,
                Costs("qemu_m55 at 3f1c2be, 2026-11-22", Cost(mac=1.3, output=8, once=40)),
                _QUANTIZED,
            ),
        ),
        cost=Costs("qemu_m4 at 3f1c2be, 2026-11-22", Cost(mac=4.4, output=18)),
    )


KERNELS = (
    _kernel(Mean, "MEAN", "ReduceMean", "mean over any dimensions"),
    _kernel(Sum, "SUM", "ReduceSum", "sum over any dimensions"),
)
