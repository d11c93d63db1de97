"""Layers with weights and windows: convolutions, fully connected layers, matrix products, pools."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import (
    ACTIVATIONS,
    PLAIN,
    QUANTIZED,
    GraphBuilder,
    Quantization,
    Unfit,
    offers,
    scale_of,
)
from emitc.ir import packed

MOST_MACS = 600_000
MOST_TERMS = 3000
"""Products that a sum of a layer with a large bias may have, each of at most 2**15."""
FLOATS = ("float32",)


def weights(d: GraphBuilder, x: Value, shape: Sequence[int], axis: int) -> Value:
    """Weights for x, with one scale or one for each output channel; hybrid ones for some floats, sparse ones for some layers."""
    made = _dense_weights(d, x, shape, axis)
    stored = d.engine == "litert" and made.constant and made.dtype in ("int8", "float32") and d.chance(0.05)
    return _densified(d, made) if stored else made


def _densified(d: GraphBuilder, w: Value) -> Value:
    """Constant weights most of which are zero and not in the file, so that a DENSIFY reads them."""
    array = np.where(d.rng.random(w.shape) < 0.7, 0, w.array()).astype(w.dtype)
    levels = tuple(level for level in range(len(w.shape)) if d.chance(0.5)) or (len(w.shape) - 1,)
    stored = d.add(replace(w, name=d.name(), data=array.tobytes(), sparse=levels))
    whole = d.add(replace(w, name=d.name(), data=None))
    d.node("DENSIFY", (stored,), (whole,))
    return whole


def _dense_weights(d: GraphBuilder, x: Value, shape: Sequence[int], axis: int) -> Value:
    count = math.prod(shape)
    if d.chance(0.06) and x.dtype in ("int8", "int16", "float32"):
        return computed_weights(d, x, shape)
    if x.dtype == "float32":
        if d.engine == "tflm" or d.chance(0.6):
            return d.constant((d.rng.normal(0, 1 / math.sqrt(max(count // shape[axis], 1)), shape)).astype(np.float32))
        return d.constant(
            d.rng.integers(-127, 128, shape).astype(np.int8), scales_of(d, shape[axis], d.chance(0.5)), axis
        )
    if x.dtype == "uint8":
        point = d.pick((0, 128, 255, d.between(0, 255)))
        return d.constant(d.contents("uint8", shape), ((d.power(-3, -1),), (point,)))
    array = d.rng.integers(-127, 128, shape).astype(np.int8)
    if array.size and array.flat[0] % 5 < 2:  # mostly small, as training leaves them: some kernels take only these
        array = (array.astype(np.int64) ** 3 // 127**2).astype(np.int8)
    if d.chance(0.1):
        array[d.rng.random(shape) < 0.8] = 0
    if d.chance(0.1):
        array[...] = d.pick((-128, 127, 0))
    if d.odd(0.04):
        array = d.rng.choice(np.array([-128, 127, d.between(-128, 127)], np.int8), shape)
    return d.constant(array, scales_of(d, shape[axis], d.chance(0.65)), axis)


def computed_weights(d: GraphBuilder, x: Value, shape: Sequence[int]) -> Value:
    """Weights that an operator computes, or that are an input."""
    dtype = "float32" if x.dtype == "float32" else "int8"
    quantization: Quantization = PLAIN if dtype == "float32" else ((d.power(-3, -1),), (0,))
    candidates = [v for v in d.pool if v.dtype == dtype and v.elements == math.prod(shape) and not v.constant]
    if not candidates:
        value = d.add(Value(d.name(), dtype, tuple(shape), None, *quantization))
        d.inputs.append(value.name)
        return value
    weights = d.pick(candidates)
    weights = weights if weights.shape == tuple(shape) else d.reshaped(weights, shape)
    if dtype == "float32" or weights.zero_points == (0,):
        return weights
    return d.unary("QUANTIZE", (weights,), shape, dtype, quantization)


def nibbles(d: GraphBuilder, x: Value, w: Value) -> Value:
    """The same weights with four bits each, for some layers on int8."""
    if x.dtype != "int8" or not w.constant or not d.chance(0.15) or (len(w.shape) == 2 and len(w.scales) > 1):
        return w
    numbers = np.clip(w.array() // 16, -8, 7).astype(np.int8)
    return d.add(replace(w, name=d.name(), dtype="int4", data=packed(numbers.reshape(-1))))


def scales_of(d: GraphBuilder, count: int, several: bool) -> Quantization:
    """Scales of weights."""
    if not several:
        return (d.power(-4, -0.5),), (0,)
    base = d.rng.uniform(-3.5, -1)
    spread = 2.0 if d.chance(0.15) else 0.3
    scales = [float(np.float32(10 ** (base + d.rng.uniform(-spread, spread)))) for _ in range(count)]
    return tuple(scales), (0,) * count


def bias(d: GraphBuilder, x: Value, w: Value, count: int) -> Value | None:
    """Biases, or none."""
    hybrid = x.dtype == "float32" and w.dtype == "int8"
    if d.chance(0.25) and not hybrid and d.engine == "tflm":
        return None
    if x.dtype == "float32":
        return d.constant(d.rng.normal(0, 0.5, count).astype(np.float32))
    scales = tuple(float(np.float32(scale_of(x) * scale)) for scale in w.scales)
    limit = 1 << 24 if d.chance(0.05) else 3000
    if d.odd(0.03):  # what the products add may not leave the type
        limit = (1 << 31) - 1 - MOST_TERMS * (1 << 15) if x.dtype != "int16" else 1 << d.between(24, 40)
    array = d.rng.integers(-limit, limit + 1, count)
    if d.chance(0.04) and x.dtype == "int8" and len(scales) == 1:
        source = Value(d.name(), "int32", (count,), None, scales, (0,), bounds=(-limit, limit))
        d.inputs.append(d.add(source).name)
        return source
    return d.constant(array.astype(np.int64 if x.dtype == "int16" else np.int32), (scales, (0,) * len(scales)))


def result(d: GraphBuilder, x: Value, w: Value, terms: int) -> Quantization:
    """A scale for sums of `terms` products: one that spreads them, sometimes one that saturates or one that loses all."""
    if x.dtype not in QUANTIZED:
        return PLAIN
    _, points = d.quantization(x.dtype)
    typical = scale_of(x) * max(w.scales) * math.sqrt(terms) * 40
    factor = 10 ** d.rng.uniform(-3, 3) if d.chance(0.1) else 10 ** d.rng.uniform(-0.3, 0.6)
    if d.odd(0.02):
        factor = 10 ** d.rng.uniform(-8, 9)
    return (float(np.float32(typical * factor)),), points


def image(d: GraphBuilder, x: Value) -> Value:
    """x as [batch, height, width, channels]."""
    if len(x.shape) == 4:
        return x
    return d.reshaped(x, (1, *d.factors(x.elements, 3)))


def windowed(extent: int, size: int, stride: int, dilation: int, padding: str) -> int:
    """Windows along a dimension. Raises Unfit where there is none."""
    reach = (size - 1) * dilation + 1
    count = -(-extent // stride) if padding == "SAME" else (extent - reach) // stride + 1
    if count < 1:
        raise Unfit
    return count


def window(d: GraphBuilder, x: Value, most: int = 5) -> tuple[list[int], list[int], list[int], str]:
    """Size, stride, dilation of a window on an image, height first, and the padding."""
    padding = d.pick(("SAME", "VALID"))
    sizes = []
    for extent in x.shape[1:3]:
        limit = min(most, extent) if padding == "VALID" else most
        sizes.append(d.pick((1, 1, 2, 3, 3, 3, 5)) if limit >= 5 else d.between(1, max(1, limit)))
    if d.odd(0.05):
        sizes = [d.between(1, min(9, extent) if padding == "VALID" else 9) for extent in x.shape[1:3]]
    strides = [d.pick((1, 1, 1, 2, 3)) for _ in range(2)] if d.chance(0.5) else [d.pick((1, 2))] * 2
    if d.odd(0.05):
        strides = [d.between(1, 7) for _ in range(2)]
    dilations = [d.pick((1, 2, 3)) for _ in range(2)] if d.chance(0.12) else [1, 1]
    return sizes, strides, dilations, padding


@offers((*QUANTIZED, "float32"), "CONV_2D", weight=4.0)
def conv_2d(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = image(d, x)
    n, height, width, channels = x.shape
    (kh, kw), (sh, sw), (dh, dw), padding = window(d, x)
    rows, columns = windowed(height, kh, sh, dh, padding), windowed(width, kw, sw, dw, padding)
    groups = d.pick([g for g in range(2, channels + 1) if channels % g == 0] or [1]) if d.chance(0.08) else 1
    out = groups * d.pick((1, 1, 2, 3, 4, 5, 8)) if d.chance(0.85) else groups * d.between(1, 20)
    if n * rows * columns * out * kh * kw * channels // groups > MOST_MACS:
        raise Unfit
    w = nibbles(d, x, weights(d, x, (out, kh, kw, channels // groups), 0))
    y = d.unary("CONV_2D", (x, w, bias(d, x, w, out)), (n, rows, columns, out), x.dtype,
                result(d, x, w, kh * kw * channels // groups), padding=padding, stride_h=sh, stride_w=sw, dilation_h_factor=dh,
                dilation_w_factor=dw, fused_activation_function=d.pick(ACTIVATIONS))  # fmt: skip
    return [y]


@offers((*QUANTIZED, "float32"), "DEPTHWISE_CONV_2D", weight=3.0)
def depthwise(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = image(d, x)
    n, height, width, channels = x.shape
    (kh, kw), (sh, sw), (dh, dw), padding = window(d, x)
    if x.dtype != "float32" and not d.odd(0.05):
        sw = sh
    rows, columns = windowed(height, kh, sh, dh, padding), windowed(width, kw, sw, dw, padding)
    times = d.pick((1, 1, 1, 2, 3, 4))
    out = channels * times
    if n * rows * columns * out * kh * kw > MOST_MACS:
        raise Unfit
    w = nibbles(d, x, weights(d, x, (1, kh, kw, out), 3))
    if w.dtype == "int8" and x.dtype == "float32" and len(w.scales) != out:
        raise Unfit
    y = d.unary("DEPTHWISE_CONV_2D", (x, w, bias(d, x, w, out)), (n, rows, columns, out), x.dtype, result(d, x, w, kh * kw),
                padding=padding, stride_h=sh, stride_w=sw, dilation_h_factor=dh, dilation_w_factor=dw,
                depth_multiplier=times, fused_activation_function=d.pick(ACTIVATIONS))  # fmt: skip
    return [y]


@offers((*QUANTIZED, "float32"), "FULLY_CONNECTED", weight=3.0)
def fully_connected(d: GraphBuilder, x: Value) -> Sequence[Value]:
    keep = d.chance(0.4)
    if not x.shape:
        raise Unfit
    if not keep and len(x.shape) != 2 and d.chance(0.5):
        x = d.reshaped(x, (1, x.elements))
    depth = x.shape[-1]
    out = d.pick((1, 2, 3, 4, 5, 7, 8, 10, 16, 33))
    if x.elements * out > MOST_MACS:
        raise Unfit
    w = nibbles(d, x, weights(d, x, (out, depth), 0))
    if x.dtype == "uint8" and len(w.scales) > 1:
        raise Unfit
    shape = (*x.shape[:-1], out) if keep else (x.elements // depth, out)
    return [d.unary("FULLY_CONNECTED", (x, w, bias(d, x, w, out)), shape, x.dtype, result(d, x, w, depth), keep_num_dims=keep,
                    fused_activation_function=d.pick(ACTIVATIONS))]  # fmt: skip


@offers(("int8", "int16", "float32"), "TRANSPOSE_CONV", weight=1.5)
def transpose_conv(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = image(d, x)
    n, height, width, channels = x.shape
    kh, kw, sh, sw = d.between(1, 4), d.between(1, 4), d.between(1, 3), d.between(1, 3)
    padding = d.pick(("SAME", "VALID"))
    sizes = []
    for extent, size, stride in ((height, kh, sh), (width, kw, sw)):
        full = extent * stride if padding == "SAME" else (extent - 1) * stride + max(size, stride)
        least = (extent - 1) * stride + (1 if padding == "SAME" else size)
        most = full if padding == "SAME" else extent * stride + size - 1
        sizes.append(d.between(least, most) if d.odd(0.1) and least <= most else full)
    out = d.pick((1, 2, 3, 4, 8))
    if x.elements * out * kh * kw > MOST_MACS:
        raise Unfit
    w = weights(d, x, (out, kh, kw, channels), 0)
    if x.dtype == "float32" and w.dtype == "int8":
        raise Unfit
    shape = (n, *sizes, out)
    operands: list[Value | None] = [d.integers(shape), w, x]
    b = bias(d, x, w, out)
    if b is not None:
        operands.append(b)
    y = d.computed(x.dtype, shape, result(d, x, w, kh * kw * channels))
    fused = d.pick(ACTIVATIONS)
    d.node("TRANSPOSE_CONV", operands, (y,), padding=padding, stride_h=sh, stride_w=sw, fused_activation_function=fused)
    return [y]


@offers((*QUANTIZED, "float32"), "AVERAGE_POOL_2D", "MAX_POOL_2D", weight=1.5)
@offers(FLOATS, "L2_POOL_2D")
def pool(d: GraphBuilder, x: Value, op: str = "L2_POOL_2D") -> Sequence[Value]:
    x = image(d, x)
    (kh, kw), (sh, sw), _, padding = window(d, x, 6)
    if d.chance(0.1):
        kh, kw, padding = x.shape[1], x.shape[2], "VALID"
    rows, columns = windowed(x.shape[1], kh, sh, 1, padding), windowed(x.shape[2], kw, sw, 1, padding)
    shape = (x.shape[0], rows, columns, x.shape[3])
    return [d.moved(op, (x,), shape, padding=padding, stride_h=sh, stride_w=sw, filter_height=kh, filter_width=kw,
                    fused_activation_function=d.pick(ACTIVATIONS))]  # fmt: skip


@offers(("int8", "int16", "float32"), "BATCH_MATMUL", weight=1.5)
def batch_matmul(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 2 <= len(x.shape) <= 4:
        raise Unfit
    adj_x, adj_y = d.chance(0.25), d.chance(0.35)
    rows, depth = (x.shape[-1], x.shape[-2]) if adj_x else (x.shape[-2], x.shape[-1])
    columns = d.pick((1, 2, 3, 4, 5, 8))
    lead = x.shape[:-2]
    if d.chance(0.2):
        lead = tuple(1 for _ in lead)
    if d.odd(0.05):
        lead = tuple(d.between(1, 3) if e == 1 else d.pick((1, e)) for e in lead)
    inner = (columns, depth) if adj_y else (depth, columns)
    other = d.other(x.dtype, (*lead, *inner))
    scale: Quantization = d.quantization(x.dtype)
    y = other if other is not None and d.chance(0.7) else d.numbers(x.dtype, (*lead, *inner), scale)
    quantization = result(d, x, y, depth)
    shape = (*map(max, x.shape[:-2], lead), rows, columns)
    return [d.unary("BATCH_MATMUL", (x, y), shape, x.dtype, quantization, adj_x=adj_x, adj_y=adj_y)]
