"""Layers that keep state: SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import PLAIN, GraphBuilder, Quantization, Unfit, offers, scale_of


def single(number: float) -> float:
    """The nearest float32."""
    return float(np.float32(number))


def memory(d: GraphBuilder, dtype: str, shape: Sequence[int], quantization: Quantization = PLAIN) -> Value:
    """A variable that the operator keeps."""
    return d.add(Value(d.name(), dtype, tuple(shape), None, *quantization, variable=True))


@offers(("int8", "float32"), "SVDF")
def svdf(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if x.elements > 256 or x.elements < 1:
        raise Unfit
    if len(x.shape) != 2:
        x = d.reshaped(x, d.factors(x.elements, 2))
    batches, depth = x.shape
    units, rank, steps = d.between(1, 6), d.between(1, 3), d.between(1, 5)
    filters = units * rank
    fused = d.pick(("NONE", "RELU"))
    if x.dtype == "float32":
        shapes = ((filters, depth), (filters, steps), (units,))
        operands: list[Value | None] = [x, *(d.constant(d.rng.normal(0, 0.5, s).astype(np.float32)) for s in shapes)]
        if d.chance(0.3):
            operands[3] = None
        operands.append(memory(d, "float32", (batches, filters * steps)))
        return [d.unary("SVDF", operands, (batches, units), "float32", rank=rank, fused_activation_function=fused)]
    kind = d.pick(("int8", "int16"))
    end = np.iinfo(kind).max
    feature = d.constant(d.rng.integers(-127, 128, (filters, depth)).astype(np.int8), ((d.power(-3, -1),), (0,)))
    time_scale = single(0.01 if kind == "int8" else 2.0**-15)
    time = d.constant(d.rng.integers(-end, end + 1, (filters, steps)).astype(kind), ((time_scale,), (0,)))
    kept = scale_of(x) * feature.scales[0] * np.sqrt(depth) * 127 * 60 / end * d.rng.uniform(0.3, 2)
    memory_scale = single(kept)
    biases = d.rng.integers(-3000, 3001, units).astype(np.int32)
    b = d.constant(biases, ((single(memory_scale * time_scale),), (0,)))
    state = memory(
        d, kind, (batches, filters * steps), ((memory_scale,), (d.between(-10, 10) if kind == "int8" else 0,))
    )
    scale = single(memory_scale * time_scale * end * np.sqrt(steps * rank) * (20 if kind == "int8" else 1500) / 40)
    y = d.computed("int8", (batches, units), ((scale,), (d.between(-128, 127),)))
    d.node("SVDF", (x, feature, time, b, state), (y,), rank=rank, fused_activation_function="RELU")
    return [y]


@offers(("int8", "int16", "float32"), "UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if x.elements > 200:
        raise Unfit
    x = d.ranked(x, 3)
    time_major = d.chance(0.3)
    batches = x.shape[1] if time_major else x.shape[0]
    depth, units = x.shape[2], d.between(1, 6)
    operands: list[Value | None] = [None] * 24
    operands[0] = x
    for gate in range(4):
        shapes = ((1 + gate, (units, depth)), (5 + gate, (units, units)))
        if x.dtype == "float32":
            for position, shape in (*shapes, (12 + gate, (units,))):
                operands[position] = d.constant(d.rng.normal(0, 0.6, shape).astype(np.float32))
            continue
        scale = d.power(-2.5, -1.5)
        for position, shape in shapes:
            operands[position] = d.constant(d.rng.integers(-127, 128, shape).astype(np.int8), ((scale,), (0,)))
        limit, kind = (4000, np.int32) if x.dtype == "int8" else (10**6, np.int64)
        biases = d.rng.integers(-limit, limit + 1, units).astype(kind)
        operands[12 + gate] = d.constant(biases, ((single(scale_of(x) * scale),), (0,)))
    kept: Quantization = PLAIN
    cell: Quantization = PLAIN
    if x.dtype != "float32":
        kept = (
            (single(1 / 128) if x.dtype == "int8" else 2.0**-15,),
            (d.between(-20, 20) if x.dtype == "int8" else 0,),
        )
        cell = ((2.0 ** -d.between(9, 13),), (0,))
    operands[18] = memory(d, x.dtype, (batches, units), kept)
    operands[19] = memory(d, "float32" if x.dtype == "float32" else "int16", (batches, units), cell)
    y = d.computed(x.dtype, (*x.shape[:2], units), kept)
    d.node("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, (y,), fused_activation_function="TANH", proj_clip=0.0,
           cell_clip=d.pick((0.0, 10.0, 1.0)), time_major=time_major)  # fmt: skip
    return [y]
