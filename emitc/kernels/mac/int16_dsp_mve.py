"""Convolutions and matrix products of int16 activations with int8 weights: layers for cores with DSP instructions or vectors.

The values are pairs of int16 as they lie, so that only weights are widened. Such activations are symmetric: where a window
reaches outside the input there are zeros, and no sum has a share of a zero point. Sums have 32 bits; layers whose sums need
64 have the portable kernels. The requantization is that of the portable kernels, output by output.

Source of the arithmetic: TFLite 16x8 quantization specification (int16x8.py); ONNX's float32 factor (requantization.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import Array, BoundNode, DType
from emitc.kernels.mac import accumulation, dsp_int8
from emitc.kernels.mac.requantization import output_params, requantization, requantization_tables
from emitc.kernels.shared.windows import BY_ROWS, Window, window_overlap, window_params
from emitc.layer import ByRows, KernelSpec, Layer, Param, Scratch, Table, whole_window
from emitc.numerics.requantize import activation_clamp

DSP_HEADER = "emitc_dsp_int16.h"
MVE_HEADERS = ("emitc_mve.h", "emitc_mve_int16.h")
_BYTES = 2
"""Of a value."""
_FEW_ROWS = 4
"""Less of them are made one by one."""


def applies(bound: BoundNode) -> bool:
    """Whether inputs and outputs are int16."""
    return bound.input(0).dtype is DType.INT16 and bound.output.dtype is DType.INT16


def adjacent(length: int) -> NDArray[np.int64]:
    """Indices of a run's values as they lie in words, two each; -1 for none.

    >>> adjacent(4).tolist(), adjacent(3).tolist()
    ([[0, 1], [2, 3]], [[0, 1], [2, -1]])
    """
    order = np.arange(length + length % 2, dtype=np.int64)
    order[length:] = -1
    return order.reshape(-1, 2)


def _kind(bound: BoundNode, filters: Array, *, folded: bool) -> KernelSpec | str:
    """What the kernels are printed for, or why there is none. filters: [O, ...]."""
    x = bound.input(0)
    if bound.input(1).dtype.packed or filters.dtype != np.int8:
        return (
            Reason("its weights have four bits", "weights of eight bits")
            if bound.input(1).dtype.packed
            else "weights with zero points"
        )
    if not folded and x.quantization and any(x.quantization.zero_points):
        return "its int16 values have a zero point"
    kind = accumulation.spec(bound, filters)
    return kind if kind.acc == "int32_t" else "sums of 64 bits"


def _tables(
    bound: BoundNode, values: NDArray[np.int8], out: int, kind: KernelSpec, arranged: str, *, pixels_per_load: int
) -> tuple[Table, ...]:
    what = f"weights {'x'.join(map(str, bound.input(1).shape))}, {arranged}"
    weights = Table("weights", "int8_t", tuple(values.tolist()), what, 4, pixels_per_load)
    return (weights, *_bias_and_scale(bound, out, kind))


def _bias_and_scale(bound: BoundNode, out: int, kind: KernelSpec) -> tuple[Table, ...]:
    return (
        Table("bias", "int32_t", tuple(accumulation.bias_of(bound, out).tolist()), "bias per output channel"),
        *requantization_tables(requantization(bound), kind),
    )


def _tail(bound: BoundNode, activation: str) -> tuple[Param, ...]:
    return output_params(bound, requantization(bound), activation_clamp(activation, bound.output))


def numbers(
    bound: BoundNode, activation: str, filters: Array, *, folded: bool
) -> tuple[KernelSpec, tuple[Table, ...], tuple[Param, ...]] | str:
    """What a kernel of filters [O, K] is printed for, its tables besides the weights, and what turns sums into outputs.

    Or why there is none.
    """
    kind = _kind(bound, filters, folded=folded)
    return (
        kind if isinstance(kind, str) else (kind, _bias_and_scale(bound, len(filters), kind), _tail(bound, activation))
    )


def paired_convolution(
    bound: BoundNode, window: Window, activation: str, filters: Array, *, folded: bool
) -> Layer | str:
    """The DSP layer of a convolution without groups, filters [O, KH, KW, I]: four pixels and two channels at a time."""
    kind = _kind(bound, filters, folded=folded)
    if isinstance(kind, str):
        return kind
    out, kernel_h, kernel_w, _ = filters.shape
    if window.dilation_w != 1:
        return Reason("it is dilated along the row", "a dilation of 1 there")
    rows = bound.output.elements // out
    plain = (kernel_h, kernel_w, window.stride_h, window.stride_w) == (1, 1, 1, 1) and not window.padding.any
    if plain and rows < _FEW_ROWS:
        return _row(bound, activation, filters.reshape(out, -1), kind, rows)
    return _tiles(bound, window_params(bound, window, kernel_h, kernel_w), activation, filters, kind, BY_ROWS)


def paired_product(bound: BoundNode, activation: str, rows: int, *, folded: bool) -> Layer | str:
    """The DSP layer of a fully connected layer of `rows` rows."""
    filters = accumulation.weights_of(bound).reshape(bound.input(1).shape[0], -1)
    kind = _kind(bound, filters, folded=folded)
    if isinstance(kind, str):
        return kind
    if rows < _FEW_ROWS or len(filters) < 2:
        return _row(bound, activation, filters, kind, rows)
    return _tiles(bound, _pixels(rows, filters), activation, filters.reshape(len(filters), 1, 1, -1), kind, None)


def vector_convolution(
    bound: BoundNode, window: Window, activation: str, filters: Array, *, folded: bool
) -> Layer | str:
    """The MVE layer of a convolution without groups, filters [O, KH, KW, I]: four channels at a time."""
    kind = _kind(bound, filters, folded=folded)
    if isinstance(kind, str):
        return kind
    if window.dilation_w != 1:
        return Reason("it is dilated along the row", "a dilation of 1 there")
    _, kernel_h, kernel_w, _ = filters.shape
    return _vectors(bound, window_params(bound, window, kernel_h, kernel_w), activation, filters, kind, BY_ROWS)


def vector_product(bound: BoundNode, activation: str, rows: int, *, folded: bool) -> Layer | str:
    """The MVE layer of a fully connected layer of `rows` rows."""
    filters = accumulation.weights_of(bound).reshape(bound.input(1).shape[0], -1)
    kind = _kind(bound, filters, folded=folded)
    if isinstance(kind, str):
        return kind
    return _vectors(bound, _pixels(rows, filters), activation, filters, kind, None)


def _pixels(rows: int, filters: Array) -> tuple[Param, ...]:
    """Window parameters of a matrix product: a column of `rows` pixels."""
    out, depth = filters.shape
    sizes = {"in_h": rows, "out_h": rows, "in_c": depth, "out_c": out}
    params, _ = accumulation.pixels(1, depth, out)
    return tuple(Param(p.name, p.c_type, sizes.get(p.name, p.value)) for p in params)


def _vectors(
    bound: BoundNode,
    params: tuple[Param, ...],
    activation: str,
    filters: Array,
    kind: KernelSpec,
    by_rows: ByRows | None,
) -> Layer:
    out, values = len(filters), filters.reshape(-1).astype(np.int8)
    tables = _tables(bound, values, out, kind, "filter by filter", pixels_per_load=1)
    return Layer(
        "convolution/conv_2d_shorts_mve", "mve", (0,), tables, (*params, *_tail(bound, activation)),
        macs=bound.output.elements * filters.size // out, spec=kind,
        overlaps=window_overlap(bound, params, whole_window(out, accumulation.TOGETHER, _BYTES)), by_rows=by_rows,
        headers=MVE_HEADERS,
    )  # fmt: skip


def _tiles(
    bound: BoundNode,
    params: tuple[Param, ...],
    activation: str,
    filters: Array,
    kind: KernelSpec,
    by_rows: ByRows | None,
) -> Layer | str:
    out, kernel_h, kernel_w, depth = filters.shape
    if out == 1:
        return Reason("it has one output channel", "two output channels or more")
    runs = filters.reshape(out, kernel_h, kernel_w * depth)
    values, words = dsp_int8.paired_weights(runs, adjacent(kernel_w * depth))
    of_pair = Param("words", "int32_t", words, "of the weights of two channels")
    arranged = "arranged for pairs of channels"
    tables = _tables(bound, values, out, kind, arranged, pixels_per_load=dsp_int8.PIXELS)
    return Layer(
        "convolution/conv_2d_shorts_dsp", "dsp", (0,), tables,
        (*params, of_pair, *_tail(bound, activation)), scratch=(Scratch("windows", 4 * dsp_int8.PIXELS * words),),
        macs=bound.output.elements * filters.size // out, spec=kind, overlaps=window_overlap(bound, params, None),
        by_rows=by_rows, headers=(*dsp_int8.HEADERS, DSP_HEADER),
    )  # fmt: skip


def _row(bound: BoundNode, activation: str, filters: Array, kind: KernelSpec, rows: int) -> Layer:
    out, depth = filters.shape
    whole = out // 4 * 4
    fours = np.zeros(0, np.int8)
    if whole:
        fours, _ = dsp_int8.foursome_weights(filters[:whole].reshape(whole, 1, depth), adjacent(depth))
    values = np.concatenate([fours, filters[whole:].reshape(-1).astype(np.int8)])
    params, _ = accumulation.pixels(rows, depth, out)
    size = (Param("rows", "int32_t", rows), Param("in", "int32_t", depth), Param("out_c", "int32_t", out))
    tables = _tables(bound, values, out, kind, "four channels at a time", pixels_per_load=1)
    return Layer(
        "matrix/row_shorts_dsp", "dsp", (0,), tables,
        (*size, *_tail(bound, activation)), macs=rows * filters.size, spec=kind,
        overlaps=window_overlap(bound, params, whole_window(out, accumulation.TOGETHER, _BYTES)),
        by_rows=ByRows(counted="rows"), headers=(dsp_int8.HEADER, DSP_HEADER),
    )  # fmt: skip
