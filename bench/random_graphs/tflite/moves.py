"""Operators that move elements: TFLite's TRANSPOSE, RESHAPE, slices, joins, pads and the like."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.tflite.graph_builder import ANY, GraphBuilder, Unfit, offers


def axis_of(d: GraphBuilder, x: Value) -> tuple[int, int]:
    """A dimension, and the same as a file may state it (negative half of the time)."""
    if not x.shape:
        raise Unfit
    axis = d.between(0, len(x.shape) - 1)
    return axis, axis - len(x.shape) if d.chance(0.4) else axis


@offers(ANY, "TRANSPOSE", weight=4.0)
def transpose(d: GraphBuilder, x: Value) -> Sequence[Value]:
    rank = len(x.shape)
    if not 1 <= rank <= 5:
        raise Unfit
    order = [int(i) for i in d.rng.permutation(rank)]
    return [d.moved("TRANSPOSE", (x, d.integers(order)), [x.shape[i] for i in order])]


@offers(ANY, "RESHAPE", weight=2.0)
def reshape(d: GraphBuilder, x: Value) -> Sequence[Value]:
    shape = d.factors(x.elements, d.between(1, 5))
    stated = list(shape)
    if d.chance(0.3):
        stated[d.between(0, len(stated) - 1)] = -1
    y = d.computed(x.dtype, shape, (x.scales, x.zero_points))
    d.node("RESHAPE", (x, d.integers(stated)), (y,), new_shape=tuple(stated))
    return [y]


@offers(ANY, "EXPAND_DIMS")
def expand_dims(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if len(x.shape) > 4:
        raise Unfit
    axis = d.between(-len(x.shape) - 1, len(x.shape))
    shape = list(x.shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 1)
    return [d.moved("EXPAND_DIMS", (x, d.integers([axis])), shape)]


@offers(ANY, "SQUEEZE")
def squeeze(d: GraphBuilder, x: Value) -> Sequence[Value]:
    ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    if not ones:
        x = expand_dims(d, x)[0]
        ones = [i for i, extent in enumerate(x.shape) if extent == 1]
    if d.chance(0.3):
        return [d.moved("SQUEEZE", (x,), [e for e in x.shape if e != 1])]
    gone = sorted({d.pick(ones) for _ in range(d.between(1, 2))})
    stated = tuple(i - len(x.shape) if d.chance(0.3) else i for i in gone)
    return [d.moved("SQUEEZE", (x,), [e for i, e in enumerate(x.shape) if i not in gone], squeeze_dims=stated)]


@offers(ANY, "CONCATENATION", weight=2.0)
def concatenation(d: GraphBuilder, x: Value) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    parts = [x]
    for _ in range(d.between(1, 3)):
        candidates = [
            v
            for v in d.pool
            if v.dtype == x.dtype and len(v.shape) == len(x.shape)
            and v.shape[:axis] + v.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
            and (v.scales, v.zero_points) == (x.scales, x.zero_points)
        ]  # fmt: skip
        if candidates and d.chance(0.8):
            parts.append(d.pick(candidates))
        else:
            shape = list(x.shape)
            shape[axis] = d.between(1, 5)
            parts.append(d.numbers(x.dtype, shape, (x.scales, x.zero_points)))
    order = d.rng.permutation(len(parts))
    parts = [parts[i] for i in order]
    shape = list(x.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    y = d.computed(x.dtype, shape, (x.scales, x.zero_points))
    d.node("CONCATENATION", parts, (y,), axis=stated)
    return [y]


@offers(ANY, "SPLIT", weight=1.5)
def split(d: GraphBuilder, x: Value) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    counts = [k for k in range(1, 6) if x.shape[axis] % k == 0]
    count = d.pick(counts)
    shape = list(x.shape)
    shape[axis] //= count
    outs = [d.computed(x.dtype, shape, (x.scales, x.zero_points)) for _ in range(count)]
    d.node("SPLIT", (d.constant(np.array(stated, np.int32)), x), outs, num_splits=count)
    return outs


@offers(ANY, "SPLIT_V")
def split_v(d: GraphBuilder, x: Value) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    left = x.shape[axis]
    sizes: list[int] = []
    while left and len(sizes) < 4:
        size = left if len(sizes) == 3 else d.between(1, left)
        sizes.append(size)
        left -= size
    outs = []
    for size in sizes:
        shape = list(x.shape)
        shape[axis] = size
        outs.append(d.computed(x.dtype, shape, (x.scales, x.zero_points)))
    written = list(sizes)
    operands = (x, d.integers(written), d.constant(np.array(stated, np.int32)))
    d.node("SPLIT_V", operands, outs, num_splits=len(sizes))
    return outs


@offers(ANY, "PACK")
def pack(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if len(x.shape) > 4:
        raise Unfit
    parts = [x]
    for _ in range(d.between(0, 3)):
        candidates = [v for v in d.pool if v.dtype == x.dtype and v.shape == x.shape
                 and (v.scales, v.zero_points) == (x.scales, x.zero_points)]  # fmt: skip
        constant = not candidates or d.chance(0.2)
        parts.append(d.numbers(x.dtype, x.shape, (x.scales, x.zero_points)) if constant else d.pick(candidates))
    axis = d.between(-len(x.shape) - 1, len(x.shape))
    shape = list(x.shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(parts))
    y = d.computed(x.dtype, shape, (x.scales, x.zero_points))
    d.node("PACK", parts, (y,), axis=axis, values_count=len(parts))
    return [y]


@offers(ANY, "UNPACK")
def unpack(d: GraphBuilder, x: Value) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    if x.shape[axis] > 8:
        raise Unfit
    shape = [e for i, e in enumerate(x.shape) if i != axis]
    outs = [d.computed(x.dtype, shape, (x.scales, x.zero_points)) for _ in range(x.shape[axis])]
    d.node("UNPACK", (x,), outs, axis=stated, num=len(outs))
    return outs


@offers(ANY, "SLICE", weight=1.5)
def slice_(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 5:
        raise Unfit
    begin = [d.between(0, e - 1) for e in x.shape]
    size = [d.between(1, e - b) for e, b in zip(x.shape, begin, strict=True)]
    stated = [-1 if s == e - b and d.chance(0.4) else s for s, e, b in zip(size, x.shape, begin, strict=True)]
    return [d.moved("SLICE", (x, d.integers(begin), d.integers(stated)), size)]


@offers(ANY, "STRIDED_SLICE", weight=1.5)
def strided_slice(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 5:
        raise Unfit
    begin, end, strides, shape = [], [], [], []
    masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
    for i, extent in enumerate(x.shape):
        stride = d.pick((1, 1, 1, 2, 3, -1, -2))
        low, high = 0, extent
        if d.chance(0.15):
            at = d.between(-extent, extent - 1)
            begin.append(at)
            end.append(at + 1)
            strides.append(1)
            masks["shrink_axis_mask"] |= 1 << i
            continue
        if d.chance(0.5):
            low = d.between(0, extent - 1)
            high = d.between(low + 1, extent)
        first, last = (low, high) if stride > 0 else (high - 1, low - 1)
        count = len(range(first, last, stride))
        free_begin = first == (0 if stride > 0 else extent - 1) and d.chance(0.5)
        free_end = last == (extent if stride > 0 else -1)
        masks["begin_mask"] |= free_begin << i
        masks["end_mask"] |= free_end << i
        begin.append(0 if free_begin else first - extent if d.chance(0.3) else first)
        end.append(0 if free_end else last)
        strides.append(stride)
        shape.append(count)
    operands = (x, d.integers(begin), d.integers(end), d.integers(strides))
    return [d.moved("STRIDED_SLICE", operands, shape, **masks)]


@offers(ANY, "PAD", "PADV2", weight=1.5)
def pad(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 4:
        raise Unfit
    widths = [(d.between(0, 2), d.between(0, 2)) if d.chance(0.6) else (0, 0) for _ in x.shape]
    shape = [e + a + b for e, (a, b) in zip(x.shape, widths, strict=True)]
    operands: list[Value | None] = [x, d.constant(np.array(widths, np.int32))]
    if op == "PADV2":
        operands.append(d.numbers(x.dtype, (), (x.scales, x.zero_points)))
    return [d.moved(op, operands, shape)]


@offers(ANY, "MIRROR_PAD")
def mirror_pad(d: GraphBuilder, x: Value) -> Sequence[Value]:
    mode = d.pick(("REFLECT", "SYMMETRIC"))
    most = [e - 1 if mode == "REFLECT" else e for e in x.shape]
    if not most:
        raise Unfit
    widths = [(d.between(0, min(m, 2)), d.between(0, min(m, 2))) for m in most]
    shape = [e + a + b for e, (a, b) in zip(x.shape, widths, strict=True)]
    return [d.moved("MIRROR_PAD", (x, d.constant(np.array(widths, np.int32))), shape, mode=mode)]


@offers(ANY, "TILE")
def tile(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 5:
        raise Unfit
    times = [d.pick((1, 1, 2, 3)) for _ in x.shape]
    return [d.moved("TILE", (x, d.integers(times)), [e * t for e, t in zip(x.shape, times, strict=True)])]


@offers(ANY, "REVERSE_V2")
def reverse(d: GraphBuilder, x: Value) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    axes = [stated]
    if d.chance(0.4) and len(x.shape) > 1:
        axes = [stated, (axis + 1) % len(x.shape)]
    return [d.moved("REVERSE_V2", (x, d.integers(axes)), x.shape)]


@offers(ANY, "BROADCAST_TO")
def broadcast_to(d: GraphBuilder, x: Value) -> Sequence[Value]:
    shape = [d.between(2, 5) if e == 1 and d.chance(0.7) else e for e in x.shape]
    while len(shape) < 5 and d.chance(0.4):
        shape.insert(0, d.between(1, 3))
    if not shape:
        raise Unfit
    return [d.moved("BROADCAST_TO", (x, d.integers(shape)), shape, version=2)]


@offers(ANY, "GATHER")
def gather(d: GraphBuilder, x: Value) -> Sequence[Value]:
    axis, stated = axis_of(d, x)
    shape = d.draw_shape(d.between(0, 2), 8)
    where = d.constant(d.rng.integers(0, x.shape[axis], shape).astype(np.int32))
    if d.chance(0.3) and shape:
        where = d.model_input("int32", shape, (0, x.shape[axis] - 1))
        d.pool.pop()
    result = (*x.shape[:axis], *shape, *x.shape[axis + 1 :])
    return [d.moved("GATHER", (x, where), result, axis=stated)]


@offers(ANY, "GATHER_ND")
def gather_nd(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 5:
        raise Unfit
    depth = d.between(1, len(x.shape))
    lead = d.draw_shape(d.between(1, 2), 8)
    columns = [d.rng.integers(0, x.shape[i], lead) for i in range(depth)]
    where = d.constant(np.stack(columns, -1).astype(np.int32))
    return [d.moved("GATHER_ND", (x, where), (*lead, *x.shape[depth:]))]


@offers(ANY, "DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth_space(d: GraphBuilder, x: Value, op: str) -> Sequence[Value]:
    x = d.ranked(x, 4)
    n, h, w, c = x.shape
    if op == "DEPTH_TO_SPACE":
        sizes = [b for b in (1, 2, 3) if c % (b * b) == 0]
        block = sizes[-1] if d.chance(0.8) else d.pick(sizes)
        return [d.moved(op, (x,), (n, h * block, w * block, c // block // block), block_size=block)]
    sizes = [b for b in (1, 2, 3) if h % b == 0 and w % b == 0]
    block = sizes[-1] if d.chance(0.8) else d.pick(sizes)
    return [d.moved(op, (x,), (n, h // block, w // block, c * block * block), block_size=block)]


@offers(ANY, "SPACE_TO_BATCH_ND")
def space_to_batch(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = d.ranked(x, 4)
    n, h, w, c = x.shape
    blocks = [d.between(1, 3), d.between(1, 3)]
    pads = []
    for extent, block in zip((h, w), blocks, strict=True):
        before = d.between(0, 2)
        pads.append((before, -(extent + before) % block))
    sizes = [(e + a + b) // k for e, (a, b), k in zip((h, w), pads, blocks, strict=True)]
    operands = (x, d.integers(blocks), d.constant(np.array(pads, np.int32)))
    return [d.moved("SPACE_TO_BATCH_ND", operands, (n * math.prod(blocks), *sizes, c))]


@offers(ANY, "BATCH_TO_SPACE_ND")
def batch_to_space(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = d.ranked(x, 4)
    n, h, w, c = x.shape
    pairs = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if n % (a * b) == 0]
    blocks = d.pick(pairs[-2:]) if d.chance(0.7) else d.pick(pairs)
    crops = []
    for extent, block in zip((h, w), blocks, strict=True):
        left = d.between(0, min(1, extent * block - 1))
        crops.append((left, d.between(0, min(1, extent * block - 1 - left))))
    sizes = [e * k - a - b for e, (a, b), k in zip((h, w), crops, blocks, strict=True)]
    operands = (x, d.integers(blocks), d.constant(np.array(crops, np.int32)))
    return [d.moved("BATCH_TO_SPACE_ND", operands, (n // math.prod(blocks), *sizes, c))]


@offers(ANY, "DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(d: GraphBuilder, x: Value) -> Sequence[Value]:
    if not 1 <= len(x.shape) <= 5:
        raise Unfit
    shape = [d.between(1, e) for e in x.shape]
    update = d.other(x.dtype, shape)
    if update is None or update.scales != x.scales or update.zero_points != x.zero_points:
        update = d.numbers(x.dtype, shape, (x.scales, x.zero_points))
    start = d.integers([d.between(0, e) for e in x.shape])
    return [d.moved("DYNAMIC_UPDATE_SLICE", (x, update, start), x.shape)]


@offers(ANY, "RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = d.ranked(x, 4)
    return [resized(d, x, "RESIZE_NEAREST_NEIGHBOR")]


@offers(("int8", "float32", "uint8"), "RESIZE_BILINEAR")
def resize_bilinear(d: GraphBuilder, x: Value) -> Sequence[Value]:
    x = d.ranked(x, 4)
    return [resized(d, x, "RESIZE_BILINEAR")]


def resized(d: GraphBuilder, x: Value, op: str) -> Value:
    """x with another height and width."""
    size = [d.between(1, 12), d.between(1, 12)]
    corners = d.chance(0.3)
    centers = not corners and d.chance(0.4)
    shape = (x.shape[0], *size, x.shape[3])
    return d.moved(op, (x, d.integers(size)), shape, align_corners=corners, half_pixel_centers=centers)
