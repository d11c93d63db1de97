"""Rows of tables, ring buffers, detections, and shapes that are computed of constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.elementwise import broadcast
from bench.random_graphs.tflite.graph_builder import ANY, PLAIN, GraphBuilder, Quantization, Unfit, offers
from bench.random_graphs.tflite.signal import custom


@offers(ANY, "BROADCAST_ARGS", weight=0.4)
def broadcast_args(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """A BROADCAST_TO whose shape is that which two constant shapes have together."""
    if not 1 <= len(x.shape) <= 4:
        raise Unfit
    other = [d.between(2, 4) if extent == 1 else d.pick((1, extent)) for extent in x.shape]
    if d.chance(0.3):
        other.insert(0, d.between(1, 3))
    dtype = d.pick(("int32", "int64"))
    shape = broadcast(x.shape, other)
    stated = d.unary("BROADCAST_ARGS", (d.integers(x.shape, dtype), d.integers(other, dtype)), (len(shape),), dtype)
    return [d.moved("BROADCAST_TO", (x, stated), shape, version=2)]


@offers(("int8", "float32"), "EMBEDDING_LOOKUP", weight=0.7)
def embedding_lookup(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """Rows of x, or of a constant table, by constant or computed indices."""
    if len(x.shape) < 2:
        raise Unfit
    table, quantization = x, (x.scales, x.zero_points)
    dtype = x.dtype
    if d.chance(0.5):
        table = d.numbers(x.dtype, (d.between(1, 9), *x.shape[1:]), quantization)
    elif d.chance(0.4):  # bytes whose scale makes floats of them
        table = d.numbers("int8", (d.between(1, 9), *x.shape[1:]), ((d.power(-3, 0),), (0,)))
        dtype, quantization = "float32", PLAIN
    count = d.between(1, 6)
    indices: Value
    if d.chance(0.5):
        indices = d.constant(d.rng.integers(0, table.shape[0], count).astype(np.int32))
    else:
        indices = d.model_input("int32", (count,), (0, table.shape[0] - 1))
        d.pool.pop()
    return [d.unary("EMBEDDING_LOOKUP", (indices, table), (count, *table.shape[1:]), dtype, quantization)]


@offers(("int8",), "CUSTOM:CIRCULAR_BUFFER", weight=0.7)
def circular_buffer(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """The last slots of one row; a buffer that gives them in every run."""
    if d.depth or x.elements > 300:
        raise Unfit
    if len(x.shape) != 4 or x.shape[:2] != (1, 1):
        x = d.reshaped(x, (1, 1, *d.factors(x.elements, 2)))
    slots = d.pick((1, 2, 3, 5, 13))
    y = d.computed("int8", (1, slots, *x.shape[2:]), (x.scales, x.zero_points))
    y = d.add(replace(y, variable=True))
    if slots in (5, 13) and d.chance(0.5):
        d.node("CUSTOM:CIRCULAR_BUFFER", (x,), (y,))
    else:
        custom(d, "CIRCULAR_BUFFER", (x,), (y,), cycles_max=1)
    return []  # the buffer is the operator's own memory


@offers(("float32", "uint8"), "CUSTOM:TFLite_Detection_PostProcess", weight=0.4)
def detections(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """Boxes of random encodings, scores and anchors, in either way of choosing."""
    if d.depth:
        raise Unfit
    boxes, classes, most = d.between(1, 30), d.between(1, 4), d.between(1, 8)
    columns = classes + d.chance(0.6)
    kinds: list[Quantization] = [PLAIN] * 3
    if x.dtype == "uint8":
        kinds = [((d.power(-1.5, -0.8),), (d.between(100, 200),)), ((1 / 256,), (0,)), ((0.006,), (0,))]
    corners = np.concatenate([d.rng.uniform(0, 1, (boxes, 2)), d.rng.uniform(0.1, 0.5, (boxes, 2))], axis=1)
    anchors = corners.astype(np.float32) if x.dtype == "float32" else (corners / 0.006).astype(np.uint8)
    operands_drawn = []
    for shape, quantization, bounds in (((1, boxes, 4), kinds[0], (-4, 4)), ((1, boxes, columns), kinds[1], (0, 1))):
        limits = bounds if x.dtype == "float32" else None
        value = d.add(Value(d.name(), x.dtype, shape, None, *quantization, bounds=limits))
        d.inputs.append(value.name)
        operands_drawn.append(value)
    outputs = [d.computed("float32", shape) for shape in ((1, most, 4), (1, most), (1, most), (1,))]
    operands = (*operands_drawn, d.constant(anchors, kinds[2]))
    custom(d, "TFLite_Detection_PostProcess", operands, outputs, max_detections=most, num_classes=classes,
           max_classes_per_detection=d.between(1, classes), detections_per_class=d.between(1, 100),
           use_regular_nms=d.chance(0.5), nms_score_threshold=d.pick((0.0, 0.2, 0.5)), nms_iou_threshold=d.pick((0.3, 0.5, 0.9)),
           y_scale=10.0, x_scale=10.0, h_scale=5.0, w_scale=5.0)  # fmt: skip
    return outputs[:3]
