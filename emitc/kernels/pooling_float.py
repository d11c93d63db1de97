"""AVERAGE_POOL_2D and MAX_POOL_2D of a TFLite model in float32, over the part of each window that lies inside the input.

Average  the sum of the values row by row, divided by their number.
Max      the largest value; a NaN is passed over, and a window without a number gives the lowest finite value.
Both are limited by the fused activation.
Source   TFLite Micro's float kernels: order of the sum, NaN.
"""

from __future__ import annotations

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import Flavour, Layer, Param
from emitc.kernels.real_activation import bound_params, bounded
from emitc.kernels.spatial import BY_ROWS, Window, window_overlap
from emitc.kernels.walk import by_channel
from emitc.quantize import Float32

_LOWEST = np.float32(np.finfo(np.float32).min)
_FLAVOUR = Flavour("_bounded", x="float", y="float")


def reference(
    bound: BoundNode, window: Window, kernel: tuple[int, int], activation: str, image: Float32, *, average: bool
) -> Array:
    """Tap by tap, in float32. image: [N, H, W, C]. kernel: height and width of the window."""
    y = bound.output
    if not average:
        largest = np.full(y.shape, _LOWEST, np.float32)
        for _, _, met in window.taps(image, -np.inf, *kernel):
            largest = np.where(met > largest, met, largest)
        return bounded(largest, activation, y.dtype)
    total = np.zeros(y.shape, np.float32)
    count = np.zeros((1, *y.shape[1:3], 1), np.float32)
    ones = np.ones((1, *image.shape[1:3], 1), np.float32)
    with np.errstate(all="ignore"):
        for (_, _, met), (_, _, inside) in zip(
            window.taps(image, 0.0, *kernel), window.taps(ones, 0.0, *kernel), strict=True
        ):
            total += met
            count += inside
        return bounded(total / count, activation, DType.FLOAT32)


def layer(bound: BoundNode, params: tuple[Param, ...], activation: str, *, average: bool) -> Layer:
    """Channels innermost. params: the window's."""
    x = bound.input(0)
    overlaps = window_overlap(
        bound, params, by_channel(x.shape[3], x.shape[3], 1, x.dtype.bytes, bound.output.dtype.bytes)
    )
    return Layer(
        "average_pool_2d_float" if average else "max_pool_2d_taps",
        "portable",
        (0,),
        params=(*params, *bound_params(activation, bound.output.dtype)),
        overlaps=overlaps,
        flavour=_FLAVOUR,
        by_rows=BY_ROWS,
    )
