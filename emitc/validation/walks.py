"""Whether a kernel whose output overlaps its input reads everything before it is overwritten, by executing its walk.

The planner has a formula for the least distance. Here every reading is looked at by itself, at the places that the buffers have,
with the taps of each window listed one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emitc.layer import AccessOrder, ElementwiseOrder, ReadAllFirst, WindowOrder

Int64 = NDArray[np.int64]


def overwritten(walk: AccessOrder, input_offset: int, output_offset: int) -> int:
    """Readings of an input at one offset that meet a byte which the kernel has stored before, of an output at another one."""
    if isinstance(walk, ReadAllFirst):
        return 0
    if isinstance(walk, ElementwiseOrder):
        element = np.arange(walk.count, dtype=np.int64)
        start = input_offset + walk.first + element * walk.in_bytes
        stored = output_offset + element * walk.out_bytes
        return int(((stored > start) & (start + walk.in_bytes > output_offset) & (element > 0)).sum())
    assert isinstance(walk, WindowOrder), walk
    low, met = _first_bytes(walk)
    pixel = np.arange(low.size, dtype=np.int64)
    later = np.append(np.minimum.accumulate(low[::-1])[::-1], np.iinfo(np.int64).max // 2)
    # Whole pixels that are stored: before the window of each, what it and all later windows read.
    whole = (output_offset + pixel * walk.out_pixel > input_offset + later[:-1]) & (pixel > 0)
    whole &= later[:-1] < walk.batches * walk.in_h * walk.in_w * walk.in_pixel  # something is still to be read
    if walk.ahead is None:
        return int(whole.sum())
    image = walk.out_h * walk.out_w
    inside = pixel % image
    tiled = inside < image // walk.tile * walk.tile
    waiting = np.where(tiled, walk.tile - 1 - inside % walk.tile, 0) * walk.out_pixel
    stored = output_offset + pixel * walk.out_pixel + waiting + walk.ahead
    return int((whole | (met & (stored > input_offset + low))).sum())


def _first_bytes(walk: WindowOrder) -> tuple[Int64, NDArray[np.bool_]]:
    """For each output pixel the first byte of the input that its window reads, and whether it reads any; else the input's end."""
    end = walk.batches * walk.in_h * walk.in_w * walk.in_pixel
    low = np.full((walk.batches, walk.out_h, walk.out_w), end, np.int64)
    for tap_h in range(walk.kernel_h):
        rows = np.arange(walk.out_h) * walk.stride_h - walk.pad_top + tap_h * walk.dilation_h
        for tap_w in range(walk.kernel_w):
            columns = np.arange(walk.out_w) * walk.stride_w - walk.pad_left + tap_w * walk.dilation_w
            inside = ((rows >= 0) & (rows < walk.in_h))[:, None] & ((columns >= 0) & (columns < walk.in_w))[None, :]
            place = (rows[:, None] * walk.in_w + columns[None, :]) * walk.in_pixel
            for image in range(walk.batches):
                first = image * walk.in_h * walk.in_w * walk.in_pixel
                low[image] = np.where(inside, np.minimum(low[image], first + place), low[image])
    found = low.reshape(-1)
    return found, found < end
