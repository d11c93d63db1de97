"""Resize and Upsample of ONNX: a tensor with other numbers of elements along its dimensions.

Shapes   x [d...], y [floor(d * scale)...] or the sizes that the model states.
nearest  any type and any dimensions: every element of y is one of x, by tables.
linear, cubic  float32, over two neighbouring dimensions: weighted sums of 2x2 or 4x4 elements, with weights from tables, row by
         row of the window: sum += (column_weight * row_weight) * x. int8 between a DequantizeLinear and a QuantizeLinear,
         linear only: the same on dequantized values, then rint(sum / y_scale), half to even, plus the zero point.
Outside the region of tf_crop_and_resize lies extrapolation_value.
Positions and weights are computed here, in the float32 steps of ONNX Runtime, so that the C has tables and no coordinates.
Source   the operators' specification (coordinate_transformation_mode, nearest_mode, mode); ONNX Runtime's CPU kernel for the
         order of the sums, for roundings, found by comparing indices, and for versions up to 10, whose nearest has its own rule.
Errors   antialias; weighted sums over three dimensions, or over two that are not neighbours.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes, require_quantization, unsupported
from emitc.kernels.shared import byte_moves
from emitc.kernels.shared.integer_attributes import axes_of, listed
from emitc.kernels.shared.pointwise import dequantized, filling, half_away, operand, quantized
from emitc.layer import Layer, Param, Table
from emitc.numerics.requantize import Float32, Int64
from emitc.records import dataclass, replace
from emitc.source import MAX_TENSOR_BYTES, SourceNode

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SIMPLE = "simple"
"""How versions up to 10 choose: the pixel below, or the one above where the tensor shrinks."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: elements before and after, the factor (a float32 value), and the region of tf_crop_and_resize."""

    size: int
    wanted: int
    scale: float = 1.0
    start: float = 0.0
    end: float = 1.0


def coordinates(axis: Axis, mode: str) -> Float32:
    """The position in the input, in elements, of each element of the output."""
    one, half = np.float32(1), np.float32(0.5)
    x = np.arange(axis.wanted).astype(np.float32)
    if axis.scale == 1.0:
        return x
    scale, size, wanted = np.float32(axis.scale), np.float32(axis.size), np.float32(axis.wanted)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and axis.wanted > 1):
        return (x + half) / scale - half
    if mode == "half_pixel_symmetric":
        center = size / np.float32(2)
        offset = center * (one - wanted / (scale * size))
        real = np.float64(offset) + (x.astype(np.float64) + 0.5) / np.float64(scale) - 0.5
        return real.astype(np.float32)
    if mode == "align_corners" and axis.wanted > 1:
        return x * (size - one) / (wanted - one)
    if mode == "tf_crop_and_resize":
        start, end = np.float32(axis.start), np.float32(axis.end)
        if axis.wanted > 1:
            return start * (size - one) + (x * (end - start) * (size - one)) / (wanted - one)
        return (0.5 * np.float64(start + end) * np.float64(size - one) + x.astype(np.float64)).astype(np.float32)
    return np.zeros_like(x)


def _outside(axis: Axis, positions: Float32) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (positions < 0) | (positions > np.float32(axis.size - 1))


def nearest(axis: Axis, mode: str, rounding: str, *, extrapolated: bool) -> Int64:
    """The element of the input that each element of the output is; OUTSIDE where it lies in none."""
    position = coordinates(axis, mode)
    if rounding == "round_prefer_ceil":
        chosen = half_away(position)
    elif rounding == "floor" or (rounding == SIMPLE and axis.scale >= 1.0):
        chosen = np.floor(position)
    elif rounding in ("ceil", SIMPLE):
        chosen = np.ceil(position)
    else:
        chosen = np.where(position == np.trunc(position) + np.float32(0.5), np.floor(position), half_away(position))
    inside = np.clip(chosen, 0, axis.size - 1).astype(np.int64)
    return np.where(_outside(axis, position), byte_moves.OUTSIDE, inside) if extrapolated else inside


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """Elements that each element of the output is made of, and their weights: [wanted, taps]; OUTSIDE where it lies in none."""

    positions: Int64
    weights: Float32


def linear(axis: Axis, mode: str) -> Taps:
    """The two neighbours by their nearness; at the end, where they are the same, half each."""
    position = coordinates(axis, mode)
    real = np.clip(position, 0, np.float32(axis.size - 1))
    low = np.minimum(real.astype(np.int64), axis.size - 1)
    high = np.minimum(low + 1, axis.size - 1)
    shares = np.stack([np.abs(real - high.astype(np.float32)), np.abs(real - low.astype(np.float32))], 1)
    shares[low == high] = 0.5
    return Taps(np.stack([low, high], 1), shares.astype(np.float32))


def cubic(axis: Axis, mode: str, a: float, *, exclude_outside: bool) -> Taps:
    """The four neighbours by Keys' convolution with coefficient `a`; those beyond the end are its last element, or left out."""
    position = coordinates(axis, mode)
    below = np.floor(position)
    s = (position - below).astype(np.float64)
    near, far = (np.abs(s + 1), np.abs(2 - s)), (s, 1 - s)
    outer = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in near]
    inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in far]
    weights = np.stack([outer[0], *inner, outer[1]], 1)
    positions = below.astype(np.int64)[:, None] + np.arange(-1, 3)
    if exclude_outside:
        weights[(positions < 0) | (positions >= axis.size)] = 0.0
        weights /= weights.sum(1, keepdims=True)
    return Taps(np.clip(positions, 0, axis.size - 1), weights.astype(np.float32))


_MAX_ROI = 1e6
_MAX_TABLE = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Resample(Op):
    """axes: what happens along each dimension. coordinates: the rule from an output position to one of the input."""

    axes: tuple[Axis, ...]
    coordinates: str


@dataclass(frozen=True, slots=True)
class NearestResample(Resample):
    """rounding: which neighbour is taken."""

    rounding: str


@dataclass(frozen=True, slots=True)
class CroppedResample(NearestResample):
    """value: real value of elements that lie outside the input."""

    value: float


@dataclass(frozen=True, slots=True)
class WeightedResample(Resample):
    """first: of the two neighbouring dimensions. mode: linear or cubic, with Keys' coefficient and whether elements beyond
    the end have no weight. value: of elements that lie outside the input, None where they are its last ones.
    """

    first: int
    mode: str
    coefficient: float
    exclude_outside: bool
    value: float | None


# ---- reading ----


def from_onnx(node: SourceNode) -> Parsed:
    """Resize (10 and up) and Upsample (7 to 9)."""
    node.counts((1, 4))
    opset = node.integer("opset", 19)
    old = node.kind == "Upsample" or opset < 11
    mode = node.text("mode", ("nearest", "linear", "cubic"), "nearest")
    rule = "asymmetric" if old else node.text("coordinate_transformation_mode", COORDINATES, "half_pixel")
    if node.integer("antialias", 0):
        hint = "export the model without antialias"
        raise node.unsupported("with antialias is not supported", "there is code without", hint)
    axes = _axes(node, rule, old)
    value = node.real("extrapolation_value", 0.0) if rule == "tf_crop_and_resize" else None
    if mode == "nearest":
        rounding = SIMPLE if old else node.text("nearest_mode", NEAREST, "round_prefer_floor")
        if value is not None:
            return Parsed(CroppedResample(axes, rule, rounding, value))
        return Parsed(NearestResample(axes, rule, rounding))
    coefficient, excluded = node.real("cubic_coeff_a", -0.75), bool(node.integer("exclude_outside", 0))
    weighting = _first(node, mode, axes), mode, coefficient, excluded, value
    return Parsed(WeightedResample(axes, rule, *weighting))


def _axes(node: SourceNode, rule: str, old: bool) -> tuple[Axis, ...]:
    """What happens along each dimension."""
    shape = node.input(0).shape
    rank = len(shape)
    named = listed(node, "axes")
    chosen = tuple(range(rank)) if named is None else axes_of(node, named, rank)
    scales = _reals(node, 1 if old else 2, "scales", old=old)
    sizes: tuple[int, ...] = ()
    if not old and node.has_input(3) and node.input(3).elements:
        sizes = node.constant_integers(3, "sizes")
    if len(sizes or scales) != len(chosen) or (sizes and scales):
        why = f"one or the other is expected for each of {len(chosen)} dimensions"
        raise node.refusal(f"has {len(scales)} scales and {len(sizes)} sizes", why)
    roi = _reals(node, 1, "roi") if rule == "tf_crop_and_resize" else ()
    if len(roi) not in (0, 2 * len(chosen)) or any(abs(r) > _MAX_ROI for r in roi):
        why = f"a start and an end for each of {len(chosen)} dimensions are expected, within a million"
        raise node.refusal(f"has the region {list(roi)}", why)
    axes = [Axis(size, size) for size in shape]
    for i, axis in enumerate(chosen):
        region = (roi[i], roi[len(chosen) + i]) if roi else (0.0, 1.0)
        size = shape[axis]
        if sizes:
            scale = np.float32(sizes[i]) / np.float32(max(size, 1))
            axes[axis] = Axis(size, sizes[i], float(scale), *region)
        else:
            axes[axis] = Axis(size, int(np.float32(scales[i]) * np.float32(size)), scales[i], *region)
    if sizes:
        axes = _in_proportion(node, axes, chosen)
    if any(not 0 < axis.wanted <= MAX_TENSOR_BYTES for axis in axes):
        raise node.refusal(f"to {[axis.wanted for axis in axes]}", "positive sizes are expected")
    unchanged = all(axis.wanted == axis.size for axis in axes)  # then ONNX Runtime copies, whatever the scales
    return tuple(Axis(axis.size, axis.size) for axis in axes) if unchanged else tuple(axes)


def _in_proportion(node: SourceNode, axes: list[Axis], chosen: tuple[int, ...]) -> list[Axis]:
    """keep_aspect_ratio_policy: one scale for all, so that no size is over (or under) what is stated."""
    policies = ("stretch", "not_larger", "not_smaller")
    policy = node.text("keep_aspect_ratio_policy", policies, "stretch")
    if policy == "stretch":
        return axes
    scales = [axes[axis].scale for axis in chosen]
    scale = min(scales, default=1.0) if policy == "not_larger" else max(scales, default=1.0)
    for axis in chosen:
        wanted = math.floor(float(np.float32(scale) * np.float32(axes[axis].size)) + 0.5)
        axes[axis] = replace(axes[axis], scale=scale, wanted=wanted)
    return axes


def _reals(node: SourceNode, position: int, what: str, *, old: bool = False) -> tuple[float, ...]:
    """A constant input of reals, () where it is empty; the attribute of old versions where there is no input."""
    values: tuple[float, ...] = ()
    if node.has_input(position):
        if node.input(position).elements:
            values = tuple(float(v) for v in node.value(position, what).reshape(-1)[:64].astype(np.float64))
    elif old:
        value = node.attribute(what)
        values = tuple(float(v) for v in value) if isinstance(value, tuple) else ()
    if not all(math.isfinite(v) and (what == "roi" or 0 < v <= 1 << 26) for v in values):
        raise node.refusal(f"has {what} {list(values)}", "finite, positive numbers")
    return values


def _first(node: SourceNode, mode: str, axes: tuple[Axis, ...]) -> int:
    """The first of the two neighbouring dimensions that hold all that are resized: rows, where the columns follow."""
    resized = [i for i, axis in enumerate(axes) if axis.scale != 1.0 or axis.wanted != axis.size]
    last = len(axes) - 2
    # ONNX Runtime takes the last two unless that leaves one out.
    for first in range(last, -1, -1):
        if all(i in (first, first + 1) for i in resized):
            return first
    what = f"with mode {mode} over dimensions {resized} is not supported"
    raise node.unsupported(what, "there is code for two neighbouring dimensions", "resize in several steps")


# ---- checks ----


def _positions(bound: BoundNode) -> tuple[Int64, ...]:
    op = bound.op(NearestResample)
    filled = isinstance(op, CroppedResample)
    return tuple(nearest(axis, op.coordinates, op.rounding, extrapolated=filled) for axis in op.axes)


def check(bound: BoundNode) -> None:
    """Refuses other types than there is code for, and tables that are too large."""
    op, x, y = bound.op(Resample), bound.input(0), bound.output
    if isinstance(op, NearestResample):
        byte_moves.require_same_values(bound, x, y)
        if isinstance(op, CroppedResample) and op.numerics is Numerics.QOPERATOR and x.quantization is not None:
            what = "of quantized integers with an extrapolation value is not supported"
            why = "the number means another value in int8 than it does in uint8"
            raise unsupported(bound, what, why, "resize the dequantized values", x)
        byte_moves.require_pickable(bound, x.shape, _positions(bound))
        return
    assert isinstance(op, WeightedResample)
    supported = [(DType.FLOAT32, DType.FLOAT32)]
    if op.numerics is Numerics.QDQ and op.mode == "linear":
        supported.append((DType.INT8, DType.INT8))
    require_dtypes(bound, supported, known=[(x.dtype, y.dtype)])
    if x.dtype is DType.INT8:
        require_quantization(bound, x, y)
    if any(axis.wanted > _MAX_TABLE for axis in op.axes[op.first : op.first + 2]):
        what = f"to {list(output_shapes(bound)[0])} is not supported"
        why = f"{_MAX_TABLE} rows or columns are the limit"
        raise unsupported(bound, what, why, "resize before or after the model", x)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    return (tuple(axis.wanted for axis in bound.op(Resample).axes),)


# ---- nearest ----


def _fill(bound: BoundNode) -> int | float:
    """The value outside, in the output's type: a real one is cut to an integer where nothing is quantized."""
    op = bound.op(NearestResample)
    if not isinstance(op, CroppedResample):
        return 0
    value = filling(bound, op.value)
    if bound.output.dtype in (DType.FLOAT32, DType.FLOAT64):
        return value
    if bound.output.dtype is DType.BOOL:
        return int(value != 0)
    low, high = bound.output.dtype.range
    return min(max(int(value), low), high)


# ---- linear and cubic ----


def _taps(op: WeightedResample) -> tuple[Taps, Taps]:
    """Of rows and columns."""
    weighting = linear if op.mode == "linear" else partial(cubic, a=op.coefficient, exclude_outside=op.exclude_outside)

    def taps(axis: Axis) -> Taps:
        inside = weighting(axis, op.coordinates)
        if op.value is not None:
            inside.positions[_outside(axis, coordinates(axis, op.coordinates))] = byte_moves.OUTSIDE
        return inside

    return taps(op.axes[op.first]), taps(op.axes[op.first + 1])


def _blocks(op: WeightedResample, shape: Shape) -> tuple[int, int, int, int]:
    """A shape as [outer, rows, columns, inner]."""
    first = op.first
    return math.prod(shape[:first]), shape[first], shape[first + 1], math.prod(shape[first + 2 :])


def _weighted_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap, in float32."""
    op, x, y = bound.op(WeightedResample), bound.input(0), bound.output
    assert inputs[0] is not None
    rows, columns = _taps(op)
    values = dequantized(inputs[0], x.quantization) if x.quantization else np.asarray(inputs[0], np.float32)
    blocks = values.reshape(_blocks(op, x.shape))
    (shape,) = output_shapes(bound)
    total = np.zeros(_blocks(op, shape), np.float32)
    with np.errstate(all="ignore"):
        for i in range(rows.positions.shape[1]):
            for j in range(columns.positions.shape[1]):
                weights = columns.weights[None, :, j] * rows.weights[:, None, i]
                part = blocks[:, np.maximum(rows.positions[:, i], 0)][:, :, np.maximum(columns.positions[:, j], 0)]
                total = total + weights[None, :, :, None] * part
    if op.value is not None:
        outside = (rows.positions[:, None, 0] == byte_moves.OUTSIDE) | (
            columns.positions[None, :, 0] == byte_moves.OUTSIDE
        )
        total = np.where(outside[None, :, :, None], np.float32(op.value), total)
    total = total.reshape(shape)
    return (quantized(total, y.quantization, y.dtype).astype(y.dtype.value) if y.quantization else total,)


def _weighted_lower(bound: BoundNode) -> Layer:
    """Pixel by pixel: offsets and weights of its window once, then a sum for each inner element."""
    op, x, y = bound.op(WeightedResample), bound.input(0), bound.output
    outer, height, width, inner = _blocks(op, x.shape)
    _, out_h, out_w, _ = _blocks(op, output_shapes(bound)[0])
    rows, columns = _taps(op)
    operands, tables = byte_moves.data_operands(x)

    def offsets(role: str, taps: Taps, step: int) -> Table:
        values = np.where(taps.positions == byte_moves.OUTSIDE, byte_moves.OUTSIDE, taps.positions * step).reshape(-1)
        outside = f", {byte_moves.OUTSIDE} outside the input" if op.value is not None else ""
        return Table(role, "int32_t", tuple(values.tolist()), f"elements to the {role} of the window{outside}")

    def weights(role: str, taps: Taps) -> Table:
        return Table(role, "float", tuple(float(w) for w in taps.weights.reshape(-1)), "of the elements of the window")

    tables += (
        offsets("rows", rows, width * inner),
        weights("row_weights", rows),
        offsets("columns", columns, inner),
        weights("column_weights", columns),
    )
    taps = rows.positions.shape[1]
    params: tuple[Param, ...] = (
        Param("planes", "int32_t", outer),
        Param("plane_elements", "int32_t", height * width * inner),
        Param("out_h", "int32_t", out_h),
        Param("out_w", "int32_t", out_w),
        Param("inner", "int32_t", inner, "elements at each row and column"),
        Param("taps", "int32_t", taps, "rows and columns of the window"),
        Param("outside", "float", op.value or 0.0, "what lies outside the input"),
    )
    macs = math.prod(output_shapes(bound)[0]) * taps * taps
    if x.dtype is DType.FLOAT32:
        return Layer("resize/resample", "portable", operands, tables, params, macs=macs)
    low, high = y.dtype.range
    params += (
        Param("input_offset", "int32_t", -x.zero_point),
        Param("x_scale", "float", x.scale),
        Param("y_scale", "float", y.scale),
        Param("lowest", "float", float(low - y.zero_point), "of the output, without its zero point"),
        Param("highest", "float", float(high - y.zero_point)),
        Param("output_offset", "int32_t", y.zero_point),
    )
    return Layer("resize/resample_quantized", "portable", operands, tables, params, macs=macs)


def transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op | None:
    """Each dimension's rule where the dimension was; None where that parts rows from columns."""
    op = bound.op(Resample)
    axes = tuple(op.axes[i] for i in np.argsort(permutation))
    if not isinstance(op, WeightedResample):
        return replace(op, axes=axes)
    first, second = permutation[op.first : op.first + 2]
    return replace(op, axes=axes, first=first) if second == first + 1 else None


_PICKED = KernelDef(
    NearestResample, "a tensor enlarged or reduced by picking elements", tuple(DType), (), None, check,
    lambda bound, inputs: (byte_moves.picked(operand(bound, inputs, 0), _positions(bound), _fill(bound)),),
    lambda bound: byte_moves.pick_layer(bound, bound.input(0).shape, _positions(bound), _fill(bound)),
    output_shapes=output_shapes, onnx=("Resize", "Upsample"), from_onnx=from_onnx,
    transposed=transposed, moves=True,
)  # fmt: skip
_NOT_PARSED = replace(_PICKED, onnx=(), from_onnx=None, moves=False)


KERNELS = (
    _PICKED,
    replace(_NOT_PARSED, op=CroppedResample, summary="a region of a tensor enlarged or reduced by picking elements"),
    replace(
        _NOT_PARSED,
        op=WeightedResample,
        summary="a tensor enlarged or reduced by weighting neighbours",
        dtypes=(DType.FLOAT32, DType.INT8),
        reference=_weighted_reference,
        lower=_weighted_lower,
        work=lambda bound: 16 * bound.output.elements,
    ),
)
