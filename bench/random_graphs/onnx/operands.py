"""Operands and results of random ONNX operators: dequantized and quantized round them where the graph's style asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.random_graphs.onnx.net import BYTES, FLOAT, Known, Net, Unfit
from emitc.ir import Array, Shape

Wanted = Callable[[Known], bool]
QUANTIZED_STYLES = ("qdq", "qdq16", "mixed")


def anything(value: Known) -> bool:
    """Every value fits."""
    return True


def factored(net: Net, elements: int, rank: int) -> Shape:
    """A shape of this rank with so many elements."""
    sizes = [1] * rank
    rest, factor = elements, 2
    while rest > 1 and rank:
        while rest % factor:
            factor += 1 if factor * factor <= rest else rest - factor
        sizes[net.rng.randrange(rank)] *= factor
        rest //= factor
    return tuple(sizes)


def reshaped(net: Net, value: Known, shape: Shape) -> Known:
    """The value in another shape of as many elements."""
    if value.shape == shape:
        return value
    target = list(shape)
    if net.rng.random() < 0.3 and target:
        target[net.rng.randrange(len(target))] = -1
    return same(net, "Reshape", [value, net.ints(target)], value, shape)


def same(
    net: Net, op_type: str, inputs: Sequence[Known | str], source: Known, shape: Shape, **attributes: Any
) -> Known:
    """An operator that only moves the values of `source`, whatever they are."""
    (made,) = net.add(
        op_type, inputs, (source.dtype, shape), top=source.top, exact=True, quantized=(source.scale, source.zero),
        codes=source.codes, **attributes,
    )  # fmt: skip
    return made


def transposed(net: Net, value: Known) -> Known:
    """The value with its dimensions in another order; the usual ones of images more often."""
    order = list(range(value.rank))
    net.rng.shuffle(order)
    if value.rank == 4 and net.rng.random() < 0.5:
        order = net.rng.choice(([0, 2, 3, 1], [0, 3, 1, 2]))
    stated = None if order == order[::-1] and net.rng.random() < 0.2 else order
    if stated is None:
        order = list(range(value.rank))[::-1]
    return same(net, "Transpose", [value], value, tuple(value.shape[i] for i in order), perm=stated)


def dressed(net: Net, value: Known) -> Known:
    """The value, sometimes moved."""
    if net.rng.random() < 0.12 and value.rank > 1:
        return transposed(net, value)
    return value


def fresh(net: Net, shape: Shape) -> Known:
    """A graph input for real numbers."""
    if net.style in QUANTIZED_STYLES and net.rng.random() < 0.4:
        dtype = net.byte_type()
        scale, zero = net.scales_for(4.0, dtype)
        return net.input(dtype, shape, scale, zero)
    return net.input(FLOAT, shape)


def is_real(value: Known) -> bool:
    """Whether it stands for real numbers."""
    return value.dtype == FLOAT or value.quantized


def operand(net: Net, wanted: Wanted = anything, shape: Shape | None = None) -> Known:
    """A float32 value that fits, dequantized where the style is so. shape: of a graph input that may be made where none fits."""
    if shape is not None and len(net.inputs) < net.most_inputs and net.rng.random() < 0.25:
        return _as_float(net, fresh(net, shape))
    try:
        value = net.pick(lambda v: is_real(v) and wanted(v))
    except Unfit:
        if shape is None:
            raise
        value = _made(net, shape)
    return _as_float(net, value)


def _made(net: Net, shape: Shape) -> Known:
    """A value of a shape: another one reshaped or cut, or a graph input."""
    elements = math.prod(shape)
    candidates = net.candidates(lambda v: is_real(v) and v.elements == elements)
    if candidates:
        return reshaped(net, net.rng.choice(candidates), shape)
    return fresh(net, shape)


def _as_float(net: Net, value: Known) -> Known:
    value = dressed(net, value) if len(set(value.shape)) == 1 else value
    if value.quantized:
        return net.dequantize(value)
    if net.style in ("qdq", "qdq16") and net.rng.random() < 0.8:
        return net.dequantize(net.quantize(value, pool=net.rng.random() < 0.3))
    return value


def ranked(net: Net, ranks: Sequence[int]) -> Known:
    """A float32 operand of one of these ranks, others reshaped to it."""
    rank = net.rng.choice(tuple(ranks))
    if net.rng.random() < 0.6:
        try:
            return operand(net, lambda v: v.rank in ranks and v.elements > 1)
        except Unfit:
            pass
    candidates = net.candidates(lambda v: is_real(v) and v.elements >= 4)
    if candidates and net.rng.random() < 0.7:
        value = net.rng.choice(candidates)
        return _as_float(net, reshaped(net, value, factored(net, value.elements, rank)))
    return operand(net, lambda v: v.rank == rank, net.shape(rank))


def result(
    net: Net,
    op_type: str,
    inputs: Sequence[Known | str],
    shape: Shape,
    top: float,
    *,
    exact: bool = False,
    **attributes: Any,
) -> Known:
    """A float32 operator of one output, quantized where the style is so. Returns what the next operator may read."""
    quantized = net.style in QUANTIZED_STYLES and net.rng.random() < (0.92 if net.style != "mixed" else 0.6)
    keep = not quantized or net.rng.random() < 0.06
    (made,) = net.add(op_type, inputs, (FLOAT, shape), top=top, exact=exact, pool=keep, **attributes)
    return net.quantize(made) if quantized else made


def weights(net: Net, shape: Sequence[int], axis: int, top: float = 1.0) -> Known:
    """Float32 weights, constant except for a few, from codes where the style is so. axis: of one scale per slice, if several."""
    if net.rng.random() < 0.06 and len(shape) > 1:
        computed = operand(net, lambda v: v.shape == tuple(shape), tuple(shape))
        return computed if computed.top <= 64 else net.constant_value(net.reals(shape, top), top)
    if net.style not in QUANTIZED_STYLES or net.rng.random() < (0.05 if net.style != "mixed" else 0.4):
        return net.constant_value(net.reals(shape, top), top)
    dtype = net.rng.choice(("int8", "int8", "int8", "uint8"))
    if net.rng.random() < 0.08:
        value = net.constant_value(net.reals(shape, top), top)
        return net.dequantize(net.quantize(value, dtype, pool=False))
    turned = len(shape) > 1 and net.rng.random() < 0.08
    order = list(range(len(shape)))
    if turned:
        net.rng.shuffle(order)
    stored = tuple(shape[order.index(i)] for i in range(len(shape))) if turned else tuple(shape)
    scaled = order[axis] if turned else axis
    if net.rng.random() < 0.06:  # one scale per input channel, say, with which the operator stays in float32
        scaled = net.rng.randrange(len(stored))
    value = _codes(net, stored, scaled, dtype, top)
    return same(net, "Transpose", [value], value, tuple(shape), perm=order, pool=False) if turned else value


def _codes(net: Net, shape: Sequence[int], axis: int, dtype: str, top: float) -> Known:
    codes = net.integers(shape, dtype)
    if net.odd(0.04):
        info = np.iinfo(dtype)
        codes = net.data.choice(np.array([info.min, info.max, net.integers((), dtype)], dtype), tuple(shape))
    per_channel = net.opset >= 13 and net.rng.random() < 0.5 and len(shape) > 0
    count = shape[axis] if per_channel else 1
    scales = net.spread(np.float32(top / 127) * net.data.uniform(0.3, 1.2, count).astype(np.float32))
    symmetric = net.rng.random() < 0.75
    zeros: Array = np.full(count, 0 if dtype == "int8" else 128, dtype)
    if not symmetric:
        zeros = net.integers((count,), dtype)
    names = [net.constant(codes), net.constant(scales if per_channel else scales[0])]
    if not (dtype == "int8" and symmetric and net.rng.random() < 0.15):
        names.append(net.constant(zeros if per_channel else zeros[0]))
    elif dtype == "int8":
        names = names[:2]  # a zero point that is left out takes the type of the codes
    used = None if not per_channel else axis if net.rng.random() < 0.7 else axis - len(shape)
    (made,) = net.add(
        "DequantizeLinear", names, (FLOAT, tuple(shape)), top=top, exact=True, pool=False, axis=used
    )  # fmt: skip
    return net.output_of(made, constant=True)


def bias(net: Net, count: int, x: Known, w: Known) -> Known | None:
    """A bias for products of two operands: none, float32, or int32 with the product of the scales that their codes have."""
    if net.rng.random() < 0.25:
        return None
    scale_x, scale_w = _scales_of(net, x), _scales_of(net, w)
    if scale_x is None or scale_w is None or net.rng.random() < 0.1:
        return net.constant_value(net.reals((count,), x.top), x.top)
    step = np.multiply(scale_x, scale_w, dtype=np.float32).reshape(-1)
    if len(step) not in (1, count):
        return net.constant_value(net.reals((count,), x.top), x.top)
    limit = 1 << 29 if net.odd(0.03) else 3000
    codes = net.data.integers(-limit, limit, count).astype(np.int32)
    per_channel = len(step) > 1
    names = [net.constant(codes), net.constant(step if per_channel else step[0])]
    if net.rng.random() < 0.6:
        zeros = np.zeros(len(step), np.int32)
        names.append(net.constant(zeros if per_channel else zeros[0]))
    (made,) = net.add(
        "DequantizeLinear", names, (FLOAT, (count,)), top=float(limit * step.max()), exact=True, pool=False,
        axis=0 if per_channel and net.opset >= 13 else None,
    )  # fmt: skip
    return made


def _scales_of(net: Net, value: Known) -> Array | None:
    """The scales with which a value is dequantized, where it is."""
    for node in net.nodes:
        if value.name in node.outputs and node.op == "Transpose":
            return _scales_of(net, net.find(node.inputs[0]))
        if value.name in node.outputs and node.op.endswith("DequantizeLinear"):
            return net.array_of(node.inputs[1])
    return None


def is_bytes(value: Known) -> bool:
    """Whether it is quantized to bytes."""
    return value.quantized and value.dtype in BYTES


def codes_operand(net: Net, wanted: Wanted = anything, shape: Shape | None = None) -> Known:
    """A quantized value of bytes that fits, made where there is none."""
    try:
        return net.pick(lambda v: is_bytes(v) and wanted(v))
    except Unfit:
        floats = net.candidates(lambda v: v.dtype == FLOAT and wanted(v))
        if floats and net.rng.random() < 0.7:
            return net.quantize(net.rng.choice(floats), net.byte_type())
        if shape is None:
            raise
        dtype = net.byte_type()
        if net.rng.random() < 0.5:
            return net.input(dtype, shape, *net.scales_for(4.0, dtype))
        return net.quantize(net.input(FLOAT, shape), dtype)
