"""Products of bytes in int32, of ONNX: MatMulInteger and ConvInteger.

MatMulInteger: y = (a - a_zero) @ (b - b_zero), with numpy's rules for ranks and for broadcasting of leading dimensions.
Shapes  a [..., M, K] or [K], b [..., K, N] or [K], y [..., M, N].   Types  a, b uint8 or int8; y int32.
a_zero one value or M, b_zero one value or N.
A constant matrix is stored by columns, as int8: what is uint8 is moved by 128 together with its zero point. With
centred[n] = sum over k of (b[k][n] - b_zero[n]), a row x of a gives x @ b - b_zero * sum(x) - a_zero * centred. So the inner
loop only multiplies and adds.

ConvInteger: y = sum over window and channels of (x - x_zero) * (w - w_zero).
Shapes  x [N, H, W, I], w [O, KH, KW, I / groups] OHWI, y [N, OH, OW, O].   Types  x, w uint8 or int8; y int32.
x_zero one value, w_zero one value or O; constant or computed, like the weights. Outside the input x is x_zero, which adds
nothing.

Source  ONNX's specification, opset 10.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_rank, unsupported
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import dsp_int8, mve_int8
from emitc.kernels.mac.accumulation import convolved, groups_param
from emitc.kernels.mac.operand_checks import (
    A_ZERO,
    B_ZERO,
    BYTE_TYPES,
    A,
    B,
    constant_zero,
    onnx_convolution_window,
    parsed,
    require_bytes,
    values,
    window_shape,
    zero_points,
    zero_step,
)
from emitc.kernels.mac.weight_packing import blocks_of_four, pack_dsp_blocks, pack_mve_blocks
from emitc.kernels.shared.broadcast import OUTER_LOOPS, common_shape, walk_params, walks_of
from emitc.kernels.shared.pointwise import typed
from emitc.kernels.shared.windows import Window, require_output, window_params
from emitc.layer import Layer, Param, Scratch, Table, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_TOGETHER = 4
"""Columns."""
_LAYOUTS: Mapping[str, tuple[Callable[[Array], NDArray[np.int8]], str]] = {
    "dsp": (pack_dsp_blocks, "four by four, pairs side by side"),
    "mve": (pack_mve_blocks, "arranged for registers of 16"),
}
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "dsp": (dsp_int8.HEADER, dsp_int8.BYTES_HEADER),
    "mve": (*mve_int8.HEADERS, "emitc_mve_copy.h"),
}
"""The third is for rows of uint8."""


@dataclass(frozen=True, slots=True)
class MatMulInteger(Op):
    """A product of two matrices of bytes."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """a [*a_batch, rows, depth], b [*b_batch, depth, columns], y [*batch, rows, columns]."""

    a_batch: Shape
    b_batch: Shape
    batch: Shape
    rows: int
    depth: int
    columns: int
    output: Shape


def _sizes(bound: BoundNode) -> _Sizes:
    a, b = bound.input(A).shape, bound.input(B).shape
    wide_a, wide_b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    batch = common_shape([wide_a[:-2], wide_b[:-2]]) if len(wide_a) > 1 and len(wide_b) > 1 else None
    if batch is None or wide_a[-1] != wide_b[-2]:
        what = "has matrices whose shapes do not fit each other"
        raise illegal(bound, what, f"{list(a)} and {list(b)}", tensor=bound.input(B))
    output = (*batch, *wide_a[-2:-1][: len(a) - 1], *wide_b[-1:][: len(b) - 1])
    return _Sizes(wide_a[:-2], wide_b[:-2], batch, wide_a[-2], wide_a[-1], wide_b[-1], output)


def check(bound: BoundNode) -> None:
    """Refuses types and zero points without code, and matrices that do not fit each other."""
    sizes = _sizes(bound)
    require_bytes(bound, sizes.depth)
    zero_step(bound, A_ZERO, sizes.rows)
    zero_step(bound, B_ZERO, sizes.columns)
    if len(walks_of([sizes.a_batch, sizes.b_batch], sizes.batch)) > OUTER_LOOPS + 1:
        what = "repeats its inputs along too many alternating dimensions"
        why = f"{list(sizes.a_batch)} and {list(sizes.b_batch)} need more than {OUTER_LOOPS + 1} nested loops"
        raise unsupported(bound, what, why, "expand one input first")


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The product of the matrices without their zero points, in int64."""
    sizes = _sizes(bound)
    a, b, a_zero, b_zero = (values(bound, inputs, position) for position in (A, B, A_ZERO, B_ZERO))
    left = a.reshape(*sizes.a_batch, sizes.rows, sizes.depth) - a_zero.reshape(-1, 1)
    right = b.reshape(*sizes.b_batch, sizes.depth, sizes.columns) - b_zero.reshape(1, -1)
    return ((left @ right).astype(np.int32).reshape(sizes.output),)


def work(bound: BoundNode) -> int:
    sizes = _sizes(bound)
    return math.prod(sizes.batch) * sizes.rows * sizes.depth * sizes.columns


def lower(bound: BoundNode) -> Layer:
    """A constant matrix by columns, four at a time; two computed ones element by element."""
    sizes, b = _sizes(bound), bound.input(B)
    per_row = zero_step(bound, A_ZERO, sizes.rows)
    one_matrix = math.prod(sizes.b_batch) == 1 and not (per_row and math.prod(sizes.a_batch) > 1)
    if b.is_constant and one_matrix and constant_zero(bound, B_ZERO):
        return _constant_matrix(bound, sizes, per_row)
    present, absent = zero_points(bound, (A_ZERO, B_ZERO))
    size = _params(sizes, sizes.rows, per_row, zero_step(bound, B_ZERO, sizes.columns))
    walk = walk_params([sizes.a_batch, sizes.b_batch], sizes.batch)
    spec = typed(bound.input(A).dtype, DType.INT32, b.dtype)
    return Layer(
        "matrix/matmul_integer", "portable", (A, B, *present), absent, (*size, *walk), macs=work(bound), spec=spec
    )


def _params(sizes: _Sizes, rows: int, a_zero_step: int, b_zero_step: int) -> tuple[Param, ...]:
    return integers(
        rows=rows,
        depth=sizes.depth,
        columns=sizes.columns,
        a_zero_step=(a_zero_step, "0: one zero point for all rows"),
        b_zero_step=(b_zero_step, "0: one for all columns"),
    )


def _by_columns(bound: BoundNode, variant: str) -> Layer | str:
    """Four columns of a constant matrix at a time, each row as int8: two values to an instruction of DSP, sixteen of MVE."""
    layer, sizes = lower(bound), _sizes(bound)
    if layer.template != "matrix/matmul_integer_constant":
        return "its matrix is computed at run time"
    if sizes.columns < _TOGETHER:
        return f"there is code for {_TOGETHER} columns"
    layout, order = _LAYOUTS[variant]
    weights = tuple(layout(_constant_columns(bound, sizes)).tolist())
    comment = f"matrix by columns {sizes.columns}x{sizes.depth}, {order}"
    tables = tuple(
        replace(table, values=weights, comment=comment, alignment=4) if table.role == "weights" else table
        for table in layer.tables
    )
    unsigned = bound.input(A).dtype is DType.UINT8
    scratch = (Scratch("lowered", sizes.depth),) if unsigned else ()
    headers = _HEADERS[variant] if unsigned else _HEADERS[variant][:2]
    return replace(layer, tables=tables, scratch=scratch, headers=headers)


def _constant_columns(bound: BoundNode, sizes: _Sizes) -> NDArray[np.int64]:
    """The constant matrix [columns, depth] as int8; what is uint8 is 128 lower."""
    b = bound.input(B)
    moved = 128 if b.dtype is DType.UINT8 else 0
    return np.asarray(b.array().astype(np.int64).reshape(sizes.depth, sizes.columns).T - moved)


def _constant_matrix(bound: BoundNode, sizes: _Sizes, per_row: int) -> Layer:
    b, zero = bound.input(B), bound.optional(B_ZERO)
    moved = 128 if b.dtype is DType.UINT8 else 0
    weights = _constant_columns(bound, sizes)
    zeros = np.zeros(1, np.int64) if zero is None else zero.array().astype(np.int64).reshape(-1)
    zeros = zeros - moved
    centred = (weights - zeros[:, None]).sum(axis=1)
    present, absent = zero_points(bound, (A_ZERO,))
    tables = (
        Table(
            "weights",
            "int8_t",
            tuple(blocks_of_four(weights).tolist()),
            f"matrix by columns {sizes.columns}x{sizes.depth}, four by four interleaved",
            pixels_per_load=0,
        ),
        Table("centred", "int32_t", tuple(centred.tolist()), "sum of each column without its zero point"),
        Table("b_zero", "int8_t", tuple(zeros.tolist()), "zero point of the matrix"),
    )
    params = _params(sizes, math.prod(sizes.batch) * sizes.rows, per_row, int(len(zeros) > 1))
    spec = typed(bound.input(A).dtype, DType.INT32)
    return Layer(
        "matrix/matmul_integer_constant",
        operands=(A, *present),
        tables=(*tables, *absent),
        params=params,
        macs=work(bound),
        spec=spec,
    )


@dataclass(frozen=True, slots=True)
class ConvInteger(Op):
    """window: strides, dilations, padding."""

    window: Window


def from_onnx(node: SourceNode) -> Parsed:
    """A convolution on NHWC; the kernel size is the weights'."""
    node.counts((2, 4))
    return parsed(ConvInteger(onnx_convolution_window(node)), node)


def _check_convolution(bound: BoundNode) -> None:
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


def _convolved(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap: a matrix product of each tap's input slice with its weights, in int64."""
    x, w, x_zero, w_zero = (values(bound, inputs, position) for position in (A, B, A_ZERO, B_ZERO))
    image, weights = x - x_zero.reshape(-1), w - w_zero.reshape(-1, 1, 1, 1)
    acc = convolved(bound.op(ConvInteger).window, image, weights, np.zeros(bound.output.shape, np.int64))
    return (acc.astype(np.int32),)


def _macs(bound: BoundNode) -> int:
    _, kernel_h, kernel_w, in_c = bound.input(B).shape
    return bound.output.elements * kernel_h * kernel_w * in_c


def _lower_convolution(bound: BoundNode) -> Layer:
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
    return Layer("convolution/conv_integer", "portable", (A, B, *present), absent, params, macs=_macs(bound), spec=spec)


KERNELS = (
    KernelDef(
        MatMulInteger, "product of matrices of bytes, to int32", BYTE_TYPES, (), None, check, reference, lower,
        output_shapes=lambda bound: (_sizes(bound).output,), work=work,
        onnx=("MatMulInteger",), from_onnx=partial(parsed, MatMulInteger()),
        variants=(
            Variant(
                "mve", "mve", partial(_by_columns, variant="mve"),
                Costs("qemu_m55 at fe62567, 2026-11-23", Cost(mac=0.35, output=10, once=60)), BYTE_TYPES, template="_mve",
            ),
            Variant(
                "dsp", "dsp", partial(_by_columns, variant="dsp"),
                Costs("qemu_m4 at fe62567, 2026-11-23", Cost(mac=1.5, output=18, once=30)), BYTE_TYPES, template="_dsp",
            ),
        ),
        cost=Costs("qemu_m4 at fe62567, 2026-11-23", Cost(mac=2.5, output=25)),
    ),
    KernelDef(
        ConvInteger, "2-D convolution of bytes, to int32", BYTE_TYPES, (), None, _check_convolution, _convolved,
        _lower_convolution, work=_macs,
        output_shapes=lambda bound: (window_shape(bound, bound.op(ConvInteger).window, bound.input(B).shape),),
        onnx=("ConvInteger",), from_onnx=from_onnx,
    ),
)  # fmt: skip
