"""Operators over whole dimensions: means, sums, extremes, softmax, and the like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import PLAIN, QUANTIZED, GraphBuilder, Quantization, Unfit, offers
from bench.random_graphs.tflite.moves import axis_of


def reduced(d: GraphBuilder, x: Value, op: str, quantization: Quantization) -> Value:
    """x without some of its dimensions, or with ones in their place."""
    rank = len(x.shape)
    if not 1 <= rank <= 5:
        raise Unfit
    axes = sorted({d.between(0, rank - 1) for _ in range(d.between(1, rank))})
    if rank == 4 and d.chance(0.4):
        axes = [1, 2]
    if d.chance(0.3):
        axes = axes[::-1]
    stated = [axis - rank if d.chance(0.3) else axis for axis in axes]
    keep = d.chance(0.5)
    shape = [1 if i in axes else e for i, e in enumerate(x.shape) if keep or i not in axes]
    return d.unary(op, (x, d.integers(stated)), shape, x.dtype, quantization, keep_dims=keep)


@offers((*QUANTIZED, "float32"), "MEAN", weight=1.5)
def mean(d: GraphBuilder, x: Value) -> Sequence[Value]:
    to = d.far(x) if x.dtype in QUANTIZED and d.odd(0.05) else d.near(x, 0.2, 1.5)
    return [reduced(d, x, "MEAN", to)]


@offers((*QUANTIZED, "float32"), "SUM")
def total(d: GraphBuilder, x: Value) -> Sequence[Value]:
    to = d.far(x) if x.dtype in QUANTIZED and d.odd(0.05) else d.near(x, 1, 10)
    return [reduced(d, x, "SUM", to)]


@offers(("int8", "int16", "float32", "int32", "int64"), "REDUCE_MAX", "REDUCE_MIN", weight=0.7)
def extreme(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    return [reduced(d, x, op, (x.scales, x.zero_points))]


@offers(("float32", "int32", "int64"), "REDUCE_PROD", weight=0.6)
def product(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if x.dtype != "float32" and d.chance(0.5):  # others leave their type, and wrap
        low, high = (np.array(end, x.dtype) for end in (-1, 1))
        x = d.unary("MINIMUM", (x, d.constant(high)), x.shape, x.dtype)
        x = d.unary("MAXIMUM", (x, d.constant(low)), x.shape, x.dtype)
    return [reduced(d, x, "REDUCE_PROD", PLAIN)]


@offers(("bool",), "REDUCE_ALL")
def all_of(d: GraphBuilder, x: Value) -> Sequence[Value]:
    return [reduced(d, x, "REDUCE_ALL", PLAIN)]


@offers(("int8", "uint8", "float32"), "ARG_MAX", "ARG_MIN", weight=0.7)
def arg_extremum(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    shape = [e for i, e in enumerate(x.shape) if i != axis]
    return [d.unary(op, (x, d.constant(np.int32(stated))), shape, "int32", output_type="INT32")]


@offers(("int8", "float32"), "CUMSUM", weight=0.7)
def cumsum(d: GraphBuilder, x: Value) -> Sequence[Value]:
    _, stated = axis_of(d, x)
    axis = d.constant(np.int32(stated))
    return [d.unary("CUMSUM", (x, axis), x.shape, x.dtype, d.near(x), exclusive=d.chance(0.4), reverse=d.chance(0.4))]


@offers((*QUANTIZED, "float32"), "SOFTMAX", weight=2.0)
def softmax(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 4:
        raise Unfit
    to: tuple[str, Quantization] = {
        "int8": ("int8", ((1 / 256,), (-128,))),
        "int16": ("int16", ((1 / 32768,), (0,))),
        "uint8": ("uint8", ((1 / 256,), (0,))),
        "float32": ("float32", PLAIN),
    }[x.dtype]
    if x.dtype == "int8" and d.chance(0.15):
        d.unary("SOFTMAX", (x,), x.shape, "int16", ((1 / 65536,), (-32768,)), beta=1.0)
        return []  # no other operator takes such an int16
    return [d.unary("SOFTMAX", (x,), x.shape, *to, beta=d.pick((1.0, 1.0, 0.5, 2.0, 0.1)))]


@offers(("int8", "float32"), "LOG_SOFTMAX")
def log_softmax(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 4:
        raise Unfit
    quantization: Quantization = ((16 / 256,), (127,)) if x.dtype == "int8" else PLAIN
    return [d.unary("LOG_SOFTMAX", (x,), x.shape, x.dtype, quantization)]


@offers(("int8", "float32"), "L2_NORMALIZATION")
def l2_normalization(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 4:
        raise Unfit
    quantization: Quantization = ((1 / 128,), (0,)) if x.dtype == "int8" else PLAIN
    return [d.unary("L2_NORMALIZATION", (x,), x.shape, x.dtype, quantization)]
