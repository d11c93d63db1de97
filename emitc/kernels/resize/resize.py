"""RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR: an image with other numbers of rows and columns.

Shapes  x [N, H, W, C], y [N, OH, OW, C].   Scale and zero point must not change.
Nearest: any type; output row i shows input row floor(i * H / OH), computed in float32 (with half_pixel_centers i + 0.5
instead of i; with align_corners the factor is (H - 1) / (OH - 1) and the product is rounded half up). The rows and columns are
tables: the float32 arithmetic is done here.
Bilinear: int8, in integers: positions are Q10, their factor rounded half up; the weighted sum of four values is Q20, rounded
half away from zero.
Bilinear float32, and uint8 of legacy models: the position of an output row is i * H / OH. With half_pixel_centers it is (i +
0.5) * H / OH - 0.5, with align_corners i * (H - 1) / (OH - 1). It is computed in float32 while compiling: rows, columns and
weights are tables. uint8: the same sum of the values, which are 128 higher than those of the graph, and 0.5 more, without its
fraction.
Source  TFLite Micro's reference kernels for both, and for uint8 LiteRT's: order of the products and sums.
Errors  bilinear sizes whose rounded factor leads beyond the input, where TFLite Micro reads foreign memory.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes, require_quantization, require_rank, unsupported
from emitc.kernels.shared.byte_moves import data_operands, require_same_type
from emitc.kernels.shared.pointwise import operand
from emitc.layer import KernelSpec, Layer, Table, integers
from emitc.numerics.requantize import Float32, Int64, rounding_shift_right
from emitc.records import dataclass
from emitc.source import SourceNode

_HALF, _UNIT = np.float32(0.5), np.float32(1)
_LIFT = np.int16(128)
_FLOATS = KernelSpec(fixed_point=False, x="float", y="float")
_UNSIGNED = KernelSpec("_u8", fixed_point=False, unsigned=True)
"""Of the kernel for values that the model has 128 higher."""


@dataclass(frozen=True, slots=True)
class Resize(Op):
    """height, width: of the output. align_corners: first and last centers coincide.

    half_pixel_centers: pixels have areas.
    """

    height: int
    width: int
    align_corners: bool
    half_pixel_centers: bool


def _float_neighbours(op: Resize, size: int, wanted: int) -> tuple[Int64, Int64, Float32]:
    """Per output row (or column): the two input rows that it lies between, and the weight of the second one.

    Above the first row the weight is negative, and both rows are the same.
    """
    aligned = op.align_corners and wanted > 1
    factor = np.float32(size - 1) / np.float32(wanted - 1) if aligned else np.float32(size) / np.float32(wanted)
    centers = np.arange(wanted).astype(np.float32)
    positions = (centers + _HALF) * factor - _HALF if op.half_pixel_centers else centers * factor
    low = np.clip(np.floor(positions), 0, size - 1).astype(np.int64)
    high = np.clip(np.ceil(positions), 0, size - 1).astype(np.int64)
    return low, high, positions - low.astype(np.float32)


def _float_reference(op: Resize, x: Array) -> Array:
    """The four neighbours of each pixel times their weights. Those of uint8 are 128 higher, and rounded half up."""
    lift = _LIFT if op.numerics is Numerics.UNSIGNED else np.int16(0)
    tops, bottoms, down = _float_neighbours(op, x.shape[1], op.height)
    lefts, rights, across = _float_neighbours(op, x.shape[2], op.width)
    v, u = down[None, :, None, None], across[None, None, :, None]

    def corner(rows: Int64, columns: Int64) -> Float32:
        return np.take(np.take(x.astype(np.float32) + np.float32(lift), rows, 1), columns, 2)

    with np.errstate(all="ignore"):
        total = corner(tops, lefts) * (_UNIT - v) * (_UNIT - u) + corner(bottoms, lefts) * v * (_UNIT - u)
        total = total + corner(tops, rights) * (_UNIT - v) * u + corner(bottoms, rights) * v * u
    if op.numerics is Numerics.UNSIGNED:
        return np.asarray((total + _HALF).astype(np.int16) - _LIFT, np.int8)
    return np.asarray(total + np.float32(0))


def _float_layer(op: Resize, bound: BoundNode) -> Layer:
    x = bound.input(0)
    batches, height, width, channels = x.shape
    _, rows, columns, _ = bound.output.shape
    operands, tables = data_operands(x)
    row_bytes, pixel = width * channels, channels
    for name, size, wanted, step in (("row", height, rows, row_bytes), ("column", width, columns, pixel)):
        low, high, weights = _float_neighbours(op, size, wanted)
        tables += (
            Table(f"{name}_low", "int32_t", tuple((low * step).tolist()), f"first element of the {name} before each"),
            Table(f"{name}_high", "int32_t", tuple((high * step).tolist()), f"first element of the {name} after it"),
            Table(f"{name}_weight", "float", tuple(weights.tolist()), f"weight of the {name} after it"),
        )
    image = (height * width * channels, "elements of an image")
    params = integers(batches=batches, image=image, out_h=rows, out_w=columns, channels=channels)
    spec = _UNSIGNED if op.numerics is Numerics.UNSIGNED else _FLOATS
    return Layer("resize/resize_bilinear_float", "portable", operands, tables, params, spec=spec)


_MAX_SIZE = (1 << 16) - 1
"""Rows or columns: positions are uint16 in the tables and stay below 2**31 as Q10."""
_ONE = 1 << 10
"""1.0 as a Q10 position."""


class ResizeNearestNeighbor(Resize):
    """Each output pixel is one of the input."""


class ResizeBilinear(Resize):
    """Each output pixel is a mean of four of the input, weighted by nearness."""


def _from_tflite(op: type[Resize], node: SourceNode) -> Parsed:
    node.counts((2, 2))
    size = node.constant_integers(1, "size")
    if len(size) != 2 or not all(0 < s <= _MAX_SIZE for s in size):
        raise node.refusal(f"asks for the size {list(size)}", f"two numbers, 1 to {_MAX_SIZE}")
    corners, half = (bool(node.attribute(name, False)) for name in ("align_corners", "half_pixel_centers"))
    if op is ResizeBilinear and corners and half:
        raise node.refusal("has align_corners and half_pixel_centers", "only one of them can hold")
    return Parsed(op(*size, corners, half))


def _check_image(bound: BoundNode) -> None:
    x = bound.input(0)
    require_rank(bound, x, 4)
    require_same_type(bound)
    if not all(0 < size <= _MAX_SIZE for size in x.shape[1:3]):
        what = f"of an image of {x.shape[1]}x{x.shape[2]}"
        raise unsupported(bound, what, f"{_MAX_SIZE} is the limit", "resize before the model", x)


def _check_bilinear(bound: BoundNode) -> None:
    _check_image(bound)
    require_dtypes(bound, [(DType.INT8, DType.INT8), (DType.FLOAT32, DType.FLOAT32)])
    if bound.input(0).dtype is DType.FLOAT32:
        return
    require_quantization(bound, bound.input(0), bound.output)
    op, (_, height, width, _) = bound.op(Resize), bound.input(0).shape
    if op.numerics is Numerics.UNSIGNED:
        return
    for what, size, wanted in (("rows", height, op.height), ("columns", width, op.width)):
        factor, offset = _factor(op, size, wanted)
        if (wanted - 1) * factor + offset >= size * _ONE:
            raise unsupported(
                bound,
                f"from {size} to {wanted} {what} reads outside its input",
                "positions are kept to 10 bits, and the rounding of the factor adds up to more than a pixel",
                "resize in two steps",
                bound.input(0),
            )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, C]."""
    op, (batches, _, _, channels) = bound.op(Resize), bound.input(0).shape
    return ((batches, op.height, op.width, channels),)


def _nearest(op: Resize, size: int, wanted: int) -> tuple[int, ...]:
    """The input row (or column) of each output row, with the roundings of float32."""
    corners = op.align_corners and wanted > 1
    factor = np.float32(size - 1) / np.float32(wanted - 1) if corners else np.float32(size) / np.float32(wanted)
    centers = np.arange(wanted).astype(np.float32) + np.float32(0.5 if op.half_pixel_centers else 0.0)
    positions = (centers * factor).astype(np.float64)
    rounded = np.floor(positions + 0.5) if op.align_corners else np.floor(positions)
    return tuple(int(p) for p in np.minimum(rounded, size - 1))


def _nearest_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Rows picked, then columns."""
    op, (_, height, width, _) = bound.op(Resize), bound.input(0).shape
    rows, columns = _nearest(op, height, op.height), _nearest(op, width, op.width)
    return (np.take(np.take(operand(bound, inputs, 0), rows, 1), columns, 2),)


def _nearest_lower(bound: BoundNode) -> Layer:
    """Pixel by pixel, each one a run of C elements."""
    op, x = bound.op(Resize), bound.input(0)
    batches, height, width, channels = x.shape
    operands, tables = data_operands(x)
    rows = Table("rows", "uint16_t", _nearest(op, height, op.height), "input row of each output row")
    columns = Table("columns", "uint16_t", _nearest(op, width, op.width), "input column of each output column")
    params = integers(
        batches=batches, in_h=height, in_w=width, out_h=op.height, out_w=op.width, pixel_bytes=channels * x.dtype.bytes
    )
    return Layer("resize/resize_nearest_neighbor", "portable", operands, (*tables, rows, columns), params)


def _factor(op: Resize, size: int, wanted: int) -> tuple[int, int]:
    """Input pixels per output pixel and the position of the first output pixel, both Q10."""
    corners = op.align_corners and wanted > 1
    top, below = (size - 1, wanted - 1) if corners else (size, wanted)
    factor = (_ONE * top + below // 2) // below
    return factor, factor // 2 - _ONE // 2 if op.half_pixel_centers else 0


def _neighbours(op: Resize, size: int, wanted: int) -> tuple[Int64, Int64, Int64]:
    """Per output row (or column): the two input rows that it lies between, and the weight of the second one, Q10.

    The weight may be negative at the border, where both rows are the same.
    """
    factor, offset = _factor(op, size, wanted)
    positions = np.arange(wanted, dtype=np.int64) * factor + offset
    low = np.maximum(positions // _ONE, 0)
    high = np.minimum(-(-positions // _ONE), size - 1)
    return low, high, positions - low * _ONE


def _bilinear_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Row by row of the output: two rows weighted, then two columns, one rounding at the end."""
    op, x = bound.op(Resize), operand(bound, inputs, 0)
    if x.dtype == np.float32 or op.numerics is Numerics.UNSIGNED:
        return (_float_reference(op, x),)
    tops, bottoms, row_weights = _neighbours(op, x.shape[1], op.height)
    lefts, rights, weights = _neighbours(op, x.shape[2], op.width)
    weight = weights[None, :, None]
    out = np.empty(output_shapes(bound)[0], np.int8)
    for i, (top, bottom, down) in enumerate(zip(tops, bottoms, row_weights, strict=True)):
        row = x[:, top].astype(np.int64) * (_ONE - down) + x[:, bottom].astype(np.int64) * down
        total = row[:, lefts] * (_ONE - weight) + row[:, rights] * weight
        out[:, i] = rounding_shift_right(total, 20)
    return (out,)


def _bilinear_lower(bound: BoundNode) -> Layer:
    """Positions limited to the input: below its first and above its last pixel all weight is on that pixel."""
    op, x = bound.op(Resize), bound.input(0)
    if x.dtype is DType.FLOAT32 or op.numerics is Numerics.UNSIGNED:
        return _float_layer(op, bound)
    batches, height, width, channels = x.shape
    operands, tables = data_operands(x)
    factor_h, offset_h = _factor(op, height, op.height)
    factor_w, offset_w = _factor(op, width, op.width)
    params = integers(
        batches=batches,
        in_h=height,
        in_w=width,
        channels=channels,
        out_h=op.height,
        out_w=op.width,
        factor_h=(factor_h, "input rows per output row, Q10"),
        factor_w=(factor_w, "input columns per output column, Q10"),
        offset_h=(offset_h, "position of the first output row, Q10"),
        offset_w=(offset_w, "position of the first output column, Q10"),
    )
    return Layer("resize/resize_bilinear", "portable", operands, tables, params)


KERNELS = (
    KernelDef(
        ResizeNearestNeighbor,
        "an image enlarged or reduced by picking pixels",
        tuple(DType),
        tflite={"RESIZE_NEAREST_NEIGHBOR": partial(_from_tflite, ResizeNearestNeighbor)},
        check=_check_image,
        reference=_nearest_reference,
        lower=_nearest_lower,
        output_shapes=output_shapes,
    ),
    KernelDef(
        ResizeBilinear,
        "an image enlarged or reduced by weighting four pixels",
        (DType.INT8, DType.FLOAT32),
        tflite={"RESIZE_BILINEAR": partial(_from_tflite, ResizeBilinear)},
        check=_check_bilinear,
        reference=_bilinear_reference,
        lower=_bilinear_lower,
        output_shapes=output_shapes,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.FLOAT32),
    ),
)
