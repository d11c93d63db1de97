"""AVERAGE_POOL_2D and MAX_POOL_2D of a TFLite model in float32, over the part of each window that lies inside the input.

Average  the sum of the values row by row, divided by their number.
Max      the largest value; a NaN is passed over, and a window without a number gives the lowest finite value.
Both are limited by the fused activation.
Source   TFLite Micro's float kernels: order of the sum, NaN.
"""

from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.pooling.pool_ops import pool_layer, pool_params
from emitc.kernels.shared.float_activation import bound_params, bounded
from emitc.kernels.shared.windows import Window, window_overlap
from emitc.layer import KernelSpec, Layer, by_channel
from emitc.numerics.requantize import Float32

_LOWEST = np.float32(np.finfo(np.float32).min)
_BOUNDED = KernelSpec("_bounded", x="float", y="float", clamped=True)
_TOGETHER = 4
_HEADERS = {"fpu": ("emitc_fpu_pool.h",), "mve": ("emitc_mve.h", "emitc_mve_float32.h", "emitc_mve_float_compare.h")}


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


def layer(bound: BoundNode, activation: str, *, average: bool) -> Layer:
    """Channels innermost."""
    params = (*pool_params(bound), *bound_params(activation, bound.output.dtype))
    template = "pooling/average_pool_2d_float" if average else "pooling/max_pool_2d_taps"
    return pool_layer(bound, template, params, _BOUNDED)


def by_fours(bound: BoundNode, portable: Layer, variant: str) -> Layer | str:
    """The `portable` layer of largest values, in TFLite or ONNX, for four channels at a time; or why there is none."""
    if portable.template != "pooling/max_pool_2d_taps" or bound.input(0).dtype is not DType.FLOAT32:
        return f"{portable.kernel_name}{portable.spec.suffix} has a portable version only"
    channels = bound.output.shape[3]
    if channels % _TOGETHER:
        return "the number of channels is not a multiple of 4"
    if any(param.value != 1 for param in portable.params if param.name in ("dilation_h", "dilation_w")):
        return "dilated"
    # Four channels at a time are as one channel of four numbers.
    ahead = by_channel(channels // _TOGETHER, channels // _TOGETHER, 1, 4 * _TOGETHER, 4 * _TOGETHER)
    return replace(
        portable,
        template=f"pooling/max_pool_2d_float_{variant}",
        overlaps=window_overlap(bound, portable.params, ahead),
        headers=_HEADERS[variant],
        spec=replace(portable.spec, suffix="_bounded" if portable.spec.clamped else ""),
    )
