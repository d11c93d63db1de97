"""Elements picked axis by axis: what Gather, Tile, Expand, PAD by reflection and Resize by the nearest share, for every type.

y[i, j, ...] = x[positions[0][i], positions[1][j], ...]. Positions at equal distances along every axis are a walk without
tables (`strided_copy.py`); otherwise each axis whose positions are not simply 0, 1, 2, ... gets a table of byte offsets.
"""

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from emitc.ir import Array, BoundNode, Shape
from emitc.kernels.contract import unsupported
from emitc.kernels.shared import strided_copy
from emitc.layer import Layer, Param, Table
from emitc.numerics.requantize import Int64

OUTSIDE = -1
"""A position that lies in no element: y gets the fill value there."""
_OUTSIDE_BYTES = -(1 << 28)
"""Its offset: so low that the sum with the offsets of other axes is negative, and that eight of them fit int32."""
_MAX_POSITIONS = (1 << 16) - 1
"""Of one axis with a table."""
_MAX_FILL = 256
"""Elements of the largest run that is written from a table of fill values."""


def progression(positions: Int64) -> tuple[int, int] | None:
    """First position and distance of positions at equal distances, None for others and for positions outside.

    >>> progression(np.array([4, 2, 0])), progression(np.array([0, 1, 1]))
    ((4, -2), None)
    """
    first = int(positions[0])
    step = int(positions[1]) - first if positions.size > 1 else 1
    regular = positions.min() >= 0 and bool((positions == first + step * np.arange(positions.size)).all())
    return (first, step) if regular else None


def _is_whole(positions: Int64, size: int) -> bool:
    return positions.size == size and progression(positions) == (0, 1)


def picked_walk(shape: Shape, positions: Sequence[Int64], element_bytes: int) -> strided_copy.StridedLoop | None:
    """The walk through x of `shape` that picks the positions; None where it needs tables, or too many loops."""
    lines = [progression(axis) for axis in positions]
    if None in lines:
        return None
    steps = strided_copy.strides(shape, element_bytes)
    counts = tuple(axis.size for axis in positions)
    start = sum(line[0] * step for line, step in zip(lines, steps, strict=True) if line)
    x_steps = [line[1] * step for line, step in zip(lines, steps, strict=True) if line]
    loops = strided_copy.walk(counts, x_steps, strided_copy.strides(counts, element_bytes), element_bytes, start)
    return loops if len(loops.loops) <= strided_copy.MAX_LOOPS else None


def require_pickable(bound: BoundNode, shape: Shape, positions: Sequence[Int64]) -> None:
    """Refuses positions that need a table of more than 65535 entries along one axis."""
    if picked_walk(shape, positions, bound.input(0).dtype.bytes) is not None:
        return
    for size, axis in zip(shape, positions, strict=True):
        if axis.size > _MAX_POSITIONS and not _is_whole(axis, size):
            what = f"with {axis.size} positions along one dimension is not supported"
            why = f"they go into a table, and {_MAX_POSITIONS} is the limit"
            raise unsupported(bound, what, why, "split the operator", bound.output)


def picked(x: Array, positions: Sequence[Int64], fill: int | float = 0) -> Array:
    """The reference: numpy's take along every axis, with `fill` for positions outside."""
    values: Array = x[np.ix_(*(np.maximum(chosen, 0) for chosen in positions))]
    for axis, chosen in enumerate(positions):
        if (chosen == OUTSIDE).any():
            outside = (chosen == OUTSIDE).reshape([-1 if i == axis else 1 for i in range(len(positions))])
            values = np.where(outside, np.array(fill, x.dtype), values)
    return np.asarray(values)


def pick_layer(bound: BoundNode, shape: Shape, positions: Sequence[Int64], fill: int | float = 0) -> Layer:
    """The layer that picks `positions` of input 0, seen as a tensor of `shape`, in the order of the output.

    fill: value at positions outside, in the tensor's own type.
    """
    x = bound.input(0)
    loops = picked_walk(shape, positions, x.dtype.bytes)
    if loops is not None:
        return strided_copy.move_layer(bound, loops)
    filled = any(bool((axis == OUTSIDE).any()) for axis in positions)
    axes: list[tuple[int, Int64 | None]] = []
    pairs = zip(shape, positions, strict=True)
    for whole, group in groupby(pairs, key=lambda pair: _is_whole(pair[1], pair[0])):
        members = list(group)
        axes += [(math.prod(size for size, _ in members), None)] if whole else members
    run = 1
    if axes[-1][1] is None and (not filled or axes[-1][0] <= _MAX_FILL):
        run = axes.pop()[0]
    planes = axes.pop(0)[0] if len(axes) > 1 and axes[0][1] is None else 1
    run_bytes = run * x.dtype.bytes
    steps = strided_copy.strides(tuple(size for size, _ in axes), run_bytes)
    walked = [np.arange(size) if chosen is None else chosen for size, chosen in axes]
    counts = tuple(loop.size for loop in walked)
    offsets = tuple(
        int(v) * step if v != OUTSIDE else _OUTSIDE_BYTES
        for indices, step in zip(walked, steps, strict=True)
        for v in indices
    )
    operands, tables = strided_copy.data_operands(x)
    tables += (
        Table("counts", "int32_t", counts, "positions along each dimension, the last is the innermost loop"),
        Table("offsets", "int32_t", offsets, "bytes to the positions along each dimension, one after the other"),
    )
    if filled:
        values = np.full(run, fill, x.dtype.value)
        tables += (strided_copy.values_table("fill", values, "what a run outside the input holds"),)
    params = (
        Param("planes", "int32_t", planes),
        Param("plane_bytes", "int32_t", math.prod(size for size, _ in axes) * run_bytes),
        Param("levels", "int32_t", len(counts), "dimensions with positions"),
        Param("run_bytes", "int32_t", run_bytes, "copied at a time"),
    )
    return Layer("movement/pick", "portable", operands, tables, params)
