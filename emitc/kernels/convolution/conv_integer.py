"""ConvInteger: y = sum over window and channels of (x - x_zero) * (w - w_zero), in int32.

Shapes  x [N, H, W, I], w [O, KH, KW, I / groups] OHWI, y [N, OH, OW, O].   Types  x, w uint8 or int8; y int32.
x_zero one value, w_zero one value or O; constant or computed, like the weights. Outside the input x is x_zero, which adds
nothing. Source: ONNX's specification, opset 10.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_rank
from emitc.kernels.mac.accumulation import convolved, groups_param
from emitc.kernels.mac.operand_checks import (
    A_ZERO,
    B_ZERO,
    BYTE_TYPES,
    A,
    B,
    onnx_convolution_window,
    parsed,
    require_bytes,
    values,
    window_shape,
    zero_points,
    zero_step,
)
from emitc.kernels.shared.pointwise import typed
from emitc.kernels.shared.windows import Window, require_output, window_params
from emitc.layer import Layer, Param
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class ConvInteger(Op):
    """window: strides, dilations, padding."""

    window: Window


def from_onnx(node: SourceNode) -> Parsed:
    """A convolution on NHWC; the kernel size is the weights'."""
    node.counts((2, 4))
    return parsed(ConvInteger(onnx_convolution_window(node)), node)


def check(bound: BoundNode) -> None:
    """Refuses types and zero points without code, and weights that do not fit the input."""
    x, w = bound.input(A), bound.input(B)
    require_rank(bound, x, 4)
    require_rank(bound, w, 4)
    out_c, kernel_h, kernel_w, in_c = w.shape
    if min(w.shape) < 1 or x.shape[3] % in_c or out_c % (x.shape[3] // in_c):
        what = "has weights that do not fit its input"
        raise illegal(bound, what, f"weights {list(w.shape)} (OHWI), input channels {x.shape[3]}", tensor=w)
    require_bytes(bound, kernel_h * kernel_w * in_c)
    zero_step(bound, A_ZERO, 1)
    zero_step(bound, B_ZERO, out_c)
    require_output(bound, bound.op(ConvInteger).window, kernel_h, kernel_w)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]."""
    return (window_shape(bound, bound.op(ConvInteger).window, bound.input(B).shape),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap: a matrix product of each tap's input slice with its weights, in int64."""
    x, w, x_zero, w_zero = (values(bound, inputs, position) for position in (A, B, A_ZERO, B_ZERO))
    image, weights = x - x_zero.reshape(-1), w - w_zero.reshape(-1, 1, 1, 1)
    acc = convolved(bound.op(ConvInteger).window, image, weights, np.zeros(bound.output.shape, np.int64))
    return (acc.astype(np.int32),)


def work(bound: BoundNode) -> int:
    _, kernel_h, kernel_w, in_c = bound.input(B).shape
    return bound.output.elements * kernel_h * kernel_w * in_c


def lower(bound: BoundNode) -> Layer:
    """One loop over taps for every kind of operand."""
    x, w = bound.input(A), bound.input(B)
    out_c, kernel_h, kernel_w, in_c = w.shape
    present, absent = zero_points(bound, (A_ZERO, B_ZERO))
    params = (
        *window_params(bound, bound.op(ConvInteger).window, kernel_h, kernel_w),
        groups_param(x.shape[3] // in_c),
        Param("b_zero_step", "int32_t", zero_step(bound, B_ZERO, out_c), "0: one zero point for all channels"),
    )
    spec = typed(x.dtype, DType.INT32, w.dtype)
    return Layer("convolution/conv_integer", "portable", (A, B, *present), absent, params, macs=work(bound), spec=spec)


KERNELS = (
    KernelDef(
        ConvInteger, "2-D convolution of bytes, to int32", BYTE_TYPES, (), None, check, reference, lower,
        output_shapes=output_shapes,
        work=work, onnx=("ConvInteger",), from_onnx=from_onnx,
    ),
)  # fmt: skip
