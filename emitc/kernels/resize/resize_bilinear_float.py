"""RESIZE_BILINEAR of float32, and of legacy uint8 models: each pixel is a mean of four, weighted by nearness.

The position of an output row is i * H / OH. With half_pixel_centers it is (i + 0.5) * H / OH - 0.5, with align_corners i * (H -
1) / (OH - 1). It is computed in float32 while compiling: rows, columns and weights are tables. uint8: the same sum of the
values, which are 128 higher than those of the graph, and 0.5 more, without its fraction.
Source  TFLite Micro's reference kernel, and for uint8 LiteRT's: order of the products and sums.
"""

from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, Numerics, Op
from emitc.kernels.shared.strided_copy import data_operands
from emitc.layer import KernelSpec, Layer, Param, Table
from emitc.numerics.requantize import Float32, Int64

_HALF, _ONE = np.float32(0.5), np.float32(1)
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


def _neighbours(op: Resize, size: int, wanted: int) -> tuple[Int64, Int64, Float32]:
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


def reference(op: Resize, x: Array) -> Array:
    """The four neighbours of each pixel times their weights. Those of uint8 are 128 higher, and rounded half up."""
    lift = _LIFT if op.numerics is Numerics.UNSIGNED else np.int16(0)
    tops, bottoms, down = _neighbours(op, x.shape[1], op.height)
    lefts, rights, across = _neighbours(op, x.shape[2], op.width)
    v, u = down[None, :, None, None], across[None, None, :, None]

    def corner(rows: Int64, columns: Int64) -> Float32:
        return np.take(np.take(x.astype(np.float32) + np.float32(lift), rows, 1), columns, 2)

    with np.errstate(all="ignore"):
        total = corner(tops, lefts) * (_ONE - v) * (_ONE - u) + corner(bottoms, lefts) * v * (_ONE - u)
        total = total + corner(tops, rights) * (_ONE - v) * u + corner(bottoms, rights) * v * u
    if op.numerics is Numerics.UNSIGNED:
        return np.asarray((total + _HALF).astype(np.int16) - _LIFT, np.int8)
    return np.asarray(total + np.float32(0))


def layer(op: Resize, bound: BoundNode) -> Layer:
    x = bound.input(0)
    batches, height, width, channels = x.shape
    _, rows, columns, _ = bound.output.shape
    operands, tables = data_operands(x)
    row_bytes, pixel = width * channels, channels
    for name, size, wanted, step in (("row", height, rows, row_bytes), ("column", width, columns, pixel)):
        low, high, weights = _neighbours(op, size, wanted)
        tables += (
            Table(f"{name}_low", "int32_t", tuple((low * step).tolist()), f"first element of the {name} before each"),
            Table(f"{name}_high", "int32_t", tuple((high * step).tolist()), f"first element of the {name} after it"),
            Table(f"{name}_weight", "float", tuple(weights.tolist()), f"weight of the {name} after it"),
        )
    params = (
        Param("batches", "int32_t", batches),
        Param("image", "int32_t", height * width * channels, "elements of an image"),
        Param("out_h", "int32_t", rows),
        Param("out_w", "int32_t", columns),
        Param("channels", "int32_t", channels),
    )
    spec = _UNSIGNED if op.numerics is Numerics.UNSIGNED else _FLOATS
    return Layer("resize/resize_bilinear_float", "portable", operands, tables, params, spec=spec)
