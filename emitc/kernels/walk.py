"""In which order a kernel reads an input and stores its output, and from that how close the two may lie.

A kernel walks forward: what it stores only grows, and so, but for what a window reads again, does what it reads. Where the
input starts `distance_bytes` above the output, every byte is read for the last time before a store reaches it:

    distance = max over all readings of (end of what is stored before it - first byte that it or a later one reads)

Readings before the first store ask for nothing. The distance may be negative (the input may even start below the output):
minus the input's size, where all is read before anything is stored. It never has to be more than the output's size.
Offsets are in bytes from the start of the input and of the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_CACHED = 2048


class Walk(Protocol):
    """What a kernel declares about one input and one output."""

    def distance_bytes(self) -> int:
        """The least (input offset - output offset) at which both may share memory."""


@dataclass(frozen=True, slots=True)
class ElementWalk:
    """Element by element: element i is read for the last time, then output element i is stored.

    count: elements. in_bytes, out_bytes: of one element. first: byte of the input at which element 0 lies.
    """

    count: int
    in_bytes: int = 1
    out_bytes: int = 1
    first: int = 0

    def distance_bytes(self) -> int:
        """i * out_bytes are stored before element i is read: the difference is greatest at element 1 or at the last one."""
        if self.count < 2:
            return -self.first - self.in_bytes
        growth = self.out_bytes - self.in_bytes
        return max(growth, (self.count - 1) * growth) - self.first


@dataclass(frozen=True, slots=True)
class WholeWalk:
    """All of the input is read before anything is stored, or moved to where the output lies. size_bytes: of the input."""

    size_bytes: int

    def distance_bytes(self) -> int:
        """Any place will do: with the input right below the output, the two are apart."""
        return -self.size_bytes


@dataclass(frozen=True, slots=True)
class WindowWalk:
    """Image by image, row by row, pixel by pixel; each output pixel is stored while its window is read.

    Heights, widths, strides, dilations and pads are in pixels, as in the kernel's parameters. in_pixel, out_pixel: bytes of
    one. ahead: bytes of an output pixel that are stored before its window is read for the last time, less the byte of
    the window's first pixel at which that reading starts (see `whole_window` and `by_channel`); None where the window is
    read once, before anything of the pixel is stored. tile: pixels of an image that are made at a time, so that `ahead` counts
    from the last one of them; what is left of an image is made pixel by pixel.
    """

    batches: int
    in_h: int
    in_w: int
    out_h: int
    out_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    pad_top: int
    pad_left: int
    in_pixel: int
    out_pixel: int
    ahead: int | None = None
    tile: int = 1

    def distance_bytes(self) -> int:
        """The greatest of all pixels', for what is read later of its own window and of every later one."""
        return _window_distance(self)


@lru_cache(maxsize=_CACHED)
def _window_distance(walk: WindowWalk) -> int:
    """`WindowWalk.distance_bytes`; plans of many schedules ask for the same one."""
    rows = first_inside(walk.out_h, walk.stride_h, walk.dilation_h, walk.kernel_h, walk.pad_top, walk.in_h)
    columns = first_inside(walk.out_w, walk.stride_w, walk.dilation_w, walk.kernel_w, walk.pad_left, walk.in_w)
    low = (rows[:, None] * walk.in_w + columns[None, :]).reshape(-1) * walk.in_pixel
    images = np.arange(walk.batches, dtype=np.int64)[:, None] * (walk.in_h * walk.in_w * walk.in_pixel)
    low = (images + low[None, :]).reshape(-1)
    later = np.minimum.accumulate(low[::-1])[::-1]
    start = np.arange(low.size, dtype=np.int64) * walk.out_pixel
    nothing = -walk.batches * walk.in_h * walk.in_w * walk.in_pixel
    # Of the first pixel nothing is stored yet where each pixel is stored at once.
    if walk.ahead is None:
        inside = (start - low)[1:].max(initial=nothing)
    else:
        pixel = np.arange(walk.out_h * walk.out_w, dtype=np.int64)
        tiled = pixel < pixel.size // walk.tile * walk.tile
        waits = np.tile(np.where(tiled, walk.tile - 1 - pixel % walk.tile, 0), walk.batches) * walk.out_pixel
        inside = (start + waits + walk.ahead - low).max()
    return int((start[1:] - later[1:]).max(initial=inside))


def first_inside(outputs: int, stride: int, dilation: int, kernel: int, pad: int, size: int) -> NDArray[np.int64]:
    """Along one dimension: the first input that the window of each output meets; the input's end where it meets none.

    >>> first_inside(3, 1, 1, 3, 1, 3).tolist()
    [0, 0, 1]
    """
    start = np.arange(outputs, dtype=np.int64) * stride - pad
    tap = np.maximum(0, -(start // dilation))
    found = start + tap * dilation
    met = (tap < kernel) & (found < size)
    return np.where(met, found, size)


def window_walk(values: Mapping[str, int], in_bytes: int, out_bytes: int, ahead: int | None) -> WindowWalk:
    """The walk of a kernel whose parameters start with the window's.

    values: those parameters. in_bytes, out_bytes: of one element. ahead: bytes, as `WindowWalk` says.
    """
    names = (
        "batches", "in_h", "in_w", "out_h", "out_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h",
        "dilation_w", "pad_top", "pad_left",
    )  # fmt: skip
    geometry = {name: values[name] for name in names}
    return WindowWalk(
        **geometry, in_pixel=values["in_c"] * in_bytes, out_pixel=values["out_c"] * out_bytes, ahead=ahead
    )


def whole_window(channels: int, together: int, out_bytes: int) -> int | None:
    """Bytes ahead, where the whole window is read for every `together` output channels and what is left one by one.

    >>> whole_window(16, 4, 1), whole_window(10, 4, 1), whole_window(4, 4, 1)
    (12, 9, None)
    """
    return (channels - (1 if channels % together else together)) * out_bytes or None


def by_channel(channels: int, groups: int, depth: int, in_bytes: int, out_bytes: int) -> int | None:
    """Bytes ahead, where each output channel reads the `depth` input channels of its group only.

    >>> by_channel(16, 16, 1, 1, 1), by_channel(16, 8, 1, 1, 1), by_channel(8, 2, 4, 1, 1), by_channel(1, 1, 9, 1, 1)
    (0, 8, 3, None)
    """
    each = channels // groups
    lasts = [(group, (group + 1) * each - 1) for group in (0, min(1, groups - 1), groups - 1)]
    return max((last * out_bytes - group * depth * in_bytes for group, last in lasts if last > 0), default=None)
