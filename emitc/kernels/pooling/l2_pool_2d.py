"""L2_POOL_2D: the root of the mean of the squares in each window, over the part of it that lies inside the input.

Shapes  x [N, H, W, C], y [N, OH, OW, C].   Types  float32.   The fused activation limits the result.
Source  TFLite Micro's kernel: the squares are added row by row.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import KernelDef, require_dtypes, require_rank
from emitc.kernels.pooling.pool_ops import Pool2D, output_shapes, pool_from_tflite, pool_layer, pool_params, work
from emitc.kernels.shared.float_activation import bound_params, bounded
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.windows import require_output
from emitc.layer import KernelSpec, Layer


class L2Pool2D(Pool2D):
    """Root of the mean square."""


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, and windows that do not fit."""
    op = bound.op(L2Pool2D)
    require_rank(bound, bound.input(0), 4)
    require_dtypes(bound, [(DType.FLOAT32, DType.FLOAT32)], [(t, t) for t in (DType.INT8, DType.UINT8)])
    require_output(bound, op.window, op.kernel_h, op.kernel_w)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap, in float32."""
    op, y = bound.op(L2Pool2D), bound.output
    image = operand(bound, inputs, 0).astype(np.float32)
    ones = np.ones((1, *image.shape[1:3], 1), np.float32)
    total, count = np.zeros(y.shape, np.float32), np.zeros((1, *y.shape[1:3], 1), np.float32)
    with np.errstate(all="ignore"):
        for _, _, met in op.window.taps(image, 0.0, op.kernel_h, op.kernel_w):
            total += met * met
        for _, _, inside in op.window.taps(ones, 0.0, op.kernel_h, op.kernel_w):
            count += inside
        return (bounded(np.sqrt(total / count), op.activation, y.dtype),)


def lower(bound: BoundNode) -> Layer:
    """Channels innermost."""
    params = (*pool_params(bound), *bound_params(bound.op(L2Pool2D).activation, bound.output.dtype))
    return pool_layer(bound, "pooling/l2_pool_2d", params, KernelSpec(x="float", y="float"))


KERNELS = (
    KernelDef(
        L2Pool2D, "root of the mean square of a window, fused activation", (DType.FLOAT32,), ("L2_POOL_2D",),
        partial(pool_from_tflite, L2Pool2D), check, reference, lower, output_shapes=output_shapes, work=work,
    ),
)  # fmt: skip
