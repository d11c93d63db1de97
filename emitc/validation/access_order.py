"""Whether a kernel whose output overlaps its input reads everything before it is overwritten, by executing its order.

The planner has a formula for the least distance. Here every reading is looked at by itself, at the places that the buffers have,
with the taps of each window listed one by one.
"""

import numpy as np
from numpy.typing import NDArray

from emitc.layer import AccessOrder, ChannelOrder, ElementwiseOrder, ReadAllFirst, WindowOrder

Int64 = NDArray[np.int64]


def overwritten(order: AccessOrder, input_offset: int, output_offset: int) -> int:
    """Readings of an input at one offset that meet a byte which the kernel has stored before, of an output at another one."""
    if isinstance(order, ReadAllFirst):
        return 0
    if isinstance(order, ElementwiseOrder):
        element = np.arange(order.count, dtype=np.int64)
        start = input_offset + order.first + element * order.in_bytes
        stored = output_offset + element * order.out_bytes
        return int(((stored > start) & (start + order.in_bytes > output_offset) & (element > 0)).sum())
    if isinstance(order, ChannelOrder):
        return _of_channels(order, output_offset - input_offset)
    assert isinstance(order, WindowOrder), order
    if (output_offset - input_offset) % order.multiple:
        return _shared(order, output_offset - input_offset)
    low, met = _first_bytes(order)
    pixel = np.arange(low.size, dtype=np.int64)
    later = np.append(np.minimum.accumulate(low[::-1])[::-1], np.iinfo(np.int64).max // 2)
    # Whole pixels that are stored: before the window of each, what it and all later windows read.
    whole = (output_offset + pixel * order.out_pixel > input_offset + later[:-1]) & (pixel > 0)
    whole &= later[:-1] < order.batches * order.in_h * order.in_w * order.in_pixel  # something is still to be read
    if order.ahead is None:
        return int(whole.sum())
    image = order.out_h * order.out_w
    inside = pixel % image
    tiled = inside < image // order.tile * order.tile
    waiting = np.where(tiled, order.tile - 1 - inside % order.tile, 0) * order.out_pixel
    stored = output_offset + pixel * order.out_pixel + waiting + order.ahead
    return int((whole | (met & (stored > input_offset + low))).sum())


def _shared(order: WindowOrder, above: int) -> int:
    """Bytes of the input that the output lies over. above: the output's offset less the input's."""
    in_bytes = order.batches * order.in_h * order.in_w * order.in_pixel
    out_bytes = order.batches * order.out_h * order.out_w * order.out_pixel
    return max(0, min(in_bytes, above + out_bytes) - max(0, above))


def _of_channels(order: ChannelOrder, above: int) -> int:
    """Values that are read after an output is stored there. above: the output's offset less the input's."""
    channels, size = order.multiple, order.batches * order.out_pixels * order.multiple

    def turn(value: Int64, pixels: int) -> Int64:
        """When the kernel reads, or stores, a value of an image of so many pixels."""
        pixel, channel = value // channels, value % channels
        return (pixel // pixels * channels + channel // 4) * order.in_pixels + pixel % pixels

    value = np.arange(order.batches * order.in_pixels * channels, dtype=np.int64)
    stored = value - above
    within = (stored >= 0) & (stored < size)
    return int((within & (turn(stored, order.out_pixels) < turn(value, order.in_pixels))).sum())


def _first_bytes(order: WindowOrder) -> tuple[Int64, NDArray[np.bool_]]:
    """For each output pixel the first byte of the input that its window reads, and whether it reads any; else the input's end."""
    end = order.batches * order.in_h * order.in_w * order.in_pixel
    low = np.full((order.batches, order.out_h, order.out_w), end, np.int64)
    for tap_h in range(order.kernel_h):
        rows = np.arange(order.out_h) * order.stride_h - order.pad_top + tap_h * order.dilation_h
        for tap_w in range(order.kernel_w):
            columns = np.arange(order.out_w) * order.stride_w - order.pad_left + tap_w * order.dilation_w
            inside = ((rows >= 0) & (rows < order.in_h))[:, None] & ((columns >= 0) & (columns < order.in_w))[None, :]
            place = (rows[:, None] * order.in_w + columns[None, :]) * order.in_pixel
            for image in range(order.batches):
                first = image * order.in_h * order.in_w * order.in_pixel
                low[image] = np.where(inside, np.minimum(low[image], first + place), low[image])
    starts = low.reshape(-1)
    return starts, starts < end
