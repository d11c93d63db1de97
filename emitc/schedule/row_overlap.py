"""Which bytes of a segment's buffers hold something, row by row: how close the buffers may lie to one another.

The source shrinks from its first row on, and the target grows. A line buffer holds the rows from the first one that is still
read, and scratch is in use while its layer makes a row. Two buffers may share memory where at no step both hold something there.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emitc.records import dataclass, replace
from emitc.schedule.stages import OUTSIDE, Segment, Stage, first_rows_read, lines_name, scratch_of, turns

SOURCE, TARGET = "source", "target"
"""In place of buffers' names: the tensors that the segment reads and writes."""
_CACHED = 2048
_FAR = 1 << 40
"""Further than any offset, for a buffer that holds nothing at a step."""


def _run(segment: Segment, source_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every step the layer that makes a row, and [step, buffer, 2]: first byte in use and byte after the last, of the
    source, the target, and the line buffers of all layers but the last. What a full line buffer drops is in use at that step.
    """
    layers, in_place_of, capacities = segment.layers, segment.in_place_of, segment.capacities
    count = len(layers)
    row_bytes = source_bytes // segment.source_rows if segment.source else 0
    made, first = [0] * count, [0] * count
    readers = first_rows_read(layers)
    sizes = [layer.row_bytes for layer in layers]
    moves = [  # the line buffers that change with a row of each layer
        [p for p in {place, *(r.source for r in layer.reads)} - {OUTSIDE, count - 1} if capacities[p]]
        for place, layer in zip(in_place_of, layers, strict=True)
    ]
    outside = [bool(segment.source) and any(r.source == OUTSIDE for r in layer.reads) for layer in layers]

    def needed(place: int) -> int:
        row = made[place]
        for j, rows in readers[place]:
            if rows[made[j]] < row:
                row = rows[made[j]]
        return row

    now = [0] * (2 * count + 2)  # first byte and end of each, one after the other
    now[1] = source_bytes
    steps: list[int] = []
    makers = turns(layers, segment.on_demand)
    assert makers is not None, "a segment's rows can be made"
    for i in makers:
        place = in_place_of[i]
        size, at = sizes[place], 4 + 2 * place
        step = now.copy()
        if place == count - 1:
            now[3] = step[3] = (made[place] + 1) * size
        elif made[place] - first[place] == capacities[place]:
            first[place] = needed(place)
            step[at : at + 2] = 0, capacities[place] * size
        else:
            step[at + 1] = (made[place] - first[place] + 1) * size
        steps += step
        made[i] += 1
        if outside[i]:
            left = [rows[made[j]] for j, rows in readers[OUTSIDE] if made[j] < layers[j].rows]
            now[0] = min(left, default=segment.source_rows) * row_bytes
        for p in moves[i]:
            now[4 + 2 * p] = (needed(p) - first[p]) * sizes[p]
            now[5 + 2 * p] = (made[p] - first[p]) * sizes[p]
    return np.array(makers, np.int64), np.array(steps, np.int64).reshape(len(makers), -1, 2)


@dataclass(frozen=True, slots=True)
class Near:
    """How close the buffers of a segment may lie. names: SOURCE, TARGET, line buffers, working memory; sizes: bytes of each.
    above[i, j]: the least (offset of i - offset of j) at which i may lie above j.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    above: NDArray[np.int64]


def near(stage: Stage, source_bytes: int) -> Near:
    """Of a segment's stage. source_bytes: of the tensor that it reads, 0 where there is none."""
    segment, scratch = stage.segment, scratch_of(stage)
    assert segment is not None
    lines = [lines_name(node) for node in stage.nodes[:-1]]
    working = tuple(tuple(buffer.size_bytes for buffer in node.layer.scratch) for node in stage.nodes)
    # Where the segment stands in the graph, and what its tensors are called, changes no distance.
    alike = replace(
        segment, first=0, end=0, source="x" if segment.source else "", target="y", distance_bytes=0, order=()
    )
    used, sizes, above = _distances(alike, source_bytes, working, tuple(size for _, size in scratch))
    names = (SOURCE, TARGET, *lines, *(name for name, _ in scratch))
    return Near(tuple(names[number] for number in used), sizes, above)


@lru_cache(maxsize=_CACHED)
def _extents(segment: Segment, source_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of the source, the target and the line buffers, whatever the scratch: the most that the end of what the second one of two
    buffers holds lies after the start of what the first one holds, at any step; and by layer the least start and the last end
    while it makes rows.
    """
    makers, steps = _run(segment, source_bytes)
    empty = steps[..., 0] >= steps[..., 1]
    low, high = np.where(empty, _FAR, steps[..., 0]), np.where(empty, -_FAR, steps[..., 1])
    own = [makers == layer for layer in range(len(segment.layers))]
    least = np.array([low[at].min(axis=0, initial=_FAR) for at in own])
    most = np.array([high[at].max(axis=0, initial=-_FAR) for at in own])
    extents = (high[:, np.newaxis, :] - low[:, :, np.newaxis]).max(axis=0), least, most
    for shared in extents:
        shared.flags.writeable = False
    return extents


@lru_cache(maxsize=_CACHED)
def _distances(
    segment: Segment, source_bytes: int, working_bytes: tuple[tuple[int, ...], ...], scratch_bytes: tuple[int, ...]
) -> tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the buffers that are not empty, counted from the source, and `sizes` and `above` of `Near` for these.

    working_bytes: of each layer's scratch; scratch_bytes: of the buffers that the layers share for it.
    """
    pairs, least, most = _extents(segment, source_bytes)
    working = np.zeros((len(working_bytes), len(scratch_bytes)), np.int64)
    for row, own in zip(working, working_bytes, strict=True):
        row[: len(own)] = own
    target_bytes = segment.layers[-1].rows * segment.layers[-1].row_bytes
    sizes = (source_bytes, target_bytes, *segment.line_bytes, *scratch_bytes)
    used = [number for number, size in enumerate(sizes) if size]
    low = np.hstack([least, np.where(working, 0, _FAR)])
    high = np.hstack([most, np.where(working, working, -_FAR)])
    above = (high[:, np.newaxis, :] - low[:, :, np.newaxis]).max(axis=0)
    above[: len(pairs), : len(pairs)] = pairs
    above = np.maximum(above[np.ix_(used, used)], -max(sizes))
    own_sizes = np.array([sizes[number] for number in used], np.int64)
    for shared in (own_sizes, above):
        shared.flags.writeable = False
    return tuple(used), own_sizes, above


def saved(near: Near, alignment: int, *, source: bool) -> int:
    """About how many bytes the buffers share when they lie in pairs.

    The target is in two pairs, every other buffer in one at most. source: whether the source may be in a pair.
    """
    sizes = -(-near.sizes // alignment) * alignment
    above = -(-near.above // alignment) * alignment
    shared = np.minimum(np.minimum(sizes[:, np.newaxis], sizes[np.newaxis]), sizes[np.newaxis] - above)
    np.fill_diagonal(shared, 0)
    if not source and near.names[0] == SOURCE:
        shared[0] = shared[:, 0] = 0
    left = [2 if name == TARGET else 1 for name in near.names]
    total = 0
    while (most := int(shared.max(initial=0))) > 0:
        pair = [int(number) for number in np.unravel_index(int(shared.argmax()), shared.shape)]
        shared[*pair] = shared[*reversed(pair)] = 0
        for number in pair:
            left[number] -= 1
            if not left[number]:
                shared[number] = shared[:, number] = 0
        total += most
    return total
