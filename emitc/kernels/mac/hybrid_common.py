"""What the two kinds of hybrid layers share: float32 values, int8 weights, sums in integers.

hybrid_conv_2d.py quantizes values symmetrically, hybrid_offset_conv_2d.py with a zero point. A fully connected layer is a 1x1
convolution of one image per row, its window is None.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Shape
from emitc.kernels.contract import illegal, require_dtypes, unsupported
from emitc.kernels.mac.requantization import BIAS, WEIGHTS
from emitc.kernels.shared.windows import (
    ACTIVATIONS,
    WINDOW_PARAMS,
    Padding,
    Window,
    image_size,
    window_of,
    window_params,
)
from emitc.layer import Param, Table
from emitc.numerics.requantize import INT32_MAX
from emitc.source import SourceNode

Float32 = NDArray[np.float32]


class Hybrid(Protocol):
    """The attributes of either operator. keep_dims: as in FULLY_CONNECTED."""

    @property
    def window(self) -> Window | None: ...
    @property
    def keep_dims(self) -> bool: ...


def settings_of(node: SourceNode) -> tuple[Window | None, str, bool]:
    """Window (None of FULLY_CONNECTED), activation and keep_num_dims of an operator of either kind of hybrid layer."""
    node.counts((2, 3))
    weights = node.input(WEIGHTS)
    rank = 2 if node.op_type == "FULLY_CONNECTED" else 4
    if len(weights.shape) != rank:
        raise node.refusal(
            f"{node.op_type} has weights of the wrong rank", f"{rank} dimensions are expected", tensor=weights
        )
    activation = node.fused_activation(ACTIVATIONS)
    if node.op_type == "FULLY_CONNECTED":
        node.text("weights_format", ("DEFAULT",))
        return None, activation, bool(node.attribute("keep_num_dims", False))
    window = window_of(node, *image_size(node), weights.shape[1], weights.shape[2], dilated=True)
    return window, activation, False


def require_operands(bound: BoundNode, op: Hybrid, out: int) -> None:
    """Refuses other types than float32 with int8 weights, computed weights or bias, and sizes that do not fit; out: channels."""
    x, w, bias = bound.input(0), bound.input(WEIGHTS), bound.optional(BIAS)
    kind = bound.node.op_type
    floats = (DType.FLOAT32,) * (2 if bias else 1)
    require_dtypes(bound, [(DType.FLOAT32, DType.INT8, *floats)])
    if not w.is_constant or (bias is not None and not bias.is_constant):
        raise unsupported(
            bound, f"{kind} with computed weights is not supported", "weights and bias must be constants",
            "export the model with constant weights", w,
        )  # fmt: skip
    if min(w.shape) < 1 or (bias is not None and bias.shape != (out,)):
        raise illegal(bound, f"{kind} has operands that do not fit", f"weights {list(w.shape)}", tensor=w)
    if op.window is None:
        depth = w.shape[1]
        if x.elements % depth or (op.keep_dims and x.shape[-1:] != (depth,)):
            raise illegal(bound, f"{kind} has an input that does not fit its weights", f"rows of {depth}", tensor=x)


def require_int32_sums(bound: BoundNode, filters: Array, largest: int) -> None:
    """Refuses weights [O, ...] whose sum with values of that magnitude can leave int32."""
    worst = int(np.abs(filters.astype(np.int64).reshape(len(filters), -1)).sum(axis=1).max()) * largest
    if worst > INT32_MAX:
        raise illegal(
            bound, "an accumulator can overflow 32 bits", f"it can reach {worst}", "use smaller layers",
            bound.input(WEIGHTS),
        )  # fmt: skip


def as_filters(weights: Array) -> Array:
    """Weights [O, KH, KW, I], or those [O, I] of a fully connected layer, as [O, KH, KW, I]."""
    return weights if weights.ndim == 4 else weights.reshape(weights.shape[0], 1, 1, weights.shape[1])


def window_or_pixel(op: Hybrid) -> Window:
    """The window; a fully connected layer's is one pixel."""
    return op.window if op.window is not None else Window(1, 1, Padding())


def shape_of(bound: BoundNode, op: Hybrid, out: int) -> tuple[Shape, ...]:
    """[N, OH, OW, out]; [rows, out], or [..., out] with keep_num_dims."""
    x, w = bound.input(0), bound.input(WEIGHTS)
    if op.window is None:
        return ((*x.shape[:-1], out) if op.keep_dims else (x.elements // w.shape[1], out),)
    rows, columns = op.window.output(x.shape[1], x.shape[2], w.shape[1], w.shape[2])
    return ((x.shape[0], rows, columns, out),)


def window_and_image(bound: BoundNode, op: Hybrid, out: int) -> tuple[tuple[Param, ...], int]:
    """The window's parameters, and the values of one image, in elements."""
    x, w = bound.input(0), bound.input(WEIGHTS)
    if op.window is not None:
        return window_params(bound, op.window, w.shape[1], w.shape[2]), x.elements // x.shape[0]
    depth = w.shape[1]
    pixel = {"batches": x.elements // depth, "in_c": depth, "out_c": out, "pad_top": 0, "pad_left": 0}
    return tuple(Param(name, "int32_t", pixel.get(name, 1)) for name in WINDOW_PARAMS), depth


def tables_of(bound: BoundNode, filters: Array) -> tuple[Table, Table]:
    """Weights as the kernel reads them, and the bias per output channel: zeros without one."""
    bias = bound.optional(BIAS)
    biases = (0.0,) * len(filters) if bias is None else tuple(bias.array().tolist())
    return (
        Table(
            "weights",
            "int8_t",
            tuple(filters.reshape(-1).tolist()),
            f"weights {'x'.join(map(str, filters.shape))}",
            pixels_per_load=0,
        ),
        Table("bias", "float", biases, "bias per output channel"),
    )


def half_away(values: Float32) -> NDArray[np.int64]:
    """Rounded to whole numbers, halves away from zero."""
    whole = np.trunc(values)
    rest = values - whole
    return (whole + (rest >= 0.5) - (rest <= -0.5)).astype(np.int64)
