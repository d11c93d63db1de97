"""How much of its scratch memory a command stream touches.

vela plans the tensors between operators of the core in the same memory as those of the NPU and states the size of all. emitc
plans the former on its own, so that the scratch memory need only hold what the stream reaches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emitc.errors import CannotCompile
from emitc.host.ethosu.commands import Command, Convolution, Dma, Elementwise, FeatureMap, Wait
from emitc.host.ethosu.decode import decode


def touched_bytes(payload: bytes, regions: frozenset[int], all_bytes: int) -> int:
    """Bytes from the start of any of these regions of the driver to the last one that the stream reads or writes.

    all_bytes: the answer for a stream that has operations which emitc does not know. Raises EmitcError for a damaged payload.
    """
    try:
        commands = decode(payload).commands
    except CannotCompile:
        return all_bytes
    return max((end for command in commands for region, end in _ends(command) if region in regions), default=0)


def _ends(command: Command) -> Iterator[tuple[int, int]]:
    """Region, and the byte behind the last one of each access."""
    if isinstance(command, Wait):
        return
    if isinstance(command, Dma):
        if command.source_region is not None:
            yield command.source_region, command.source + command.size
        if command.destination_region is not None:
            yield command.destination_region, command.destination + command.size
        return
    for feature_map in (command.ifm, command.output.feature_map):
        yield from _feature_map(feature_map)
    if isinstance(command, Elementwise) and isinstance(command.ifm2, FeatureMap):
        yield from _feature_map(command.ifm2)
    if isinstance(command, Convolution):
        for span in (command.weights, command.scales):
            yield span.region, span.offset + span.size


def _feature_map(fm: FeatureMap) -> Iterator[tuple[int, int]]:
    """For each of the four tiles, with whole bricks of 16 channels where the layout has them."""
    element = np.dtype(fm.dtype).itemsize
    left, right = min(fm.width0, fm.width), fm.width - fm.width0
    sizes = (
        (min(fm.height0, fm.height), left),
        (min(fm.height1, fm.height), right),
        (fm.height - fm.height0, left),
        (fm.height - fm.height1, right),
    )
    for base, (height, width) in zip(fm.bases, sizes, strict=True):
        if height <= 0 or width <= 0:
            continue
        if fm.bricks:
            row = [((fm.depth - 1) // 16, fm.stride_c), (width - 1, 16 * element), (15, element)]
        else:
            row = [(width - 1, fm.stride_x), (fm.depth - 1, element)]
        yield fm.region, base + sum(max(0, n * step) for n, step in (*row, (height - 1, fm.stride_y))) + element
