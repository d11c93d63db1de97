"""Weights and scales of a convolution, out of the bytes that the NPU reads.

The weights come in the order in which the NPU's blocks take them; `weight_order` says which weight of the kernel each
place of the stream holds, so that the executor sees them as [O, H, W, I].
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emitc.ethosu.commands import Array
from emitc.ethosu.weight_bits import StreamFault, decode_weights

SCALE_BYTES = 10
"""One channel: bias of 40 bits, multiplier of 32, shift of 6."""

_INPUT_BLOCK = 8
_SUBKERNEL = 8
_MAX_PLACES = 1 << 25
_MAX_PARTS = 1 << 16


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """What the order of a weight stream depends on.

    block_depth: output channels of a block; block_channels: those that it interleaves (4 or 8). wide: 16-bit inputs.
    """

    outputs: int
    height: int
    width: int
    inputs: int
    depthwise: bool
    part_kernel_first: bool
    wide: bool
    block_depth: int
    block_channels: int
    dilation_y: int
    dilation_x: int


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@lru_cache(maxsize=256)
def weight_order(layout: WeightLayout) -> Array:
    """Index into the flat [O, H, W, I] kernel for each place of the stream, -1 for padding; int32 [places].

    From the outside in: blocks of output channels; blocks of input channels (32, or 16 where part of the kernel goes first
    or inputs are wide; one for depthwise); parts of the kernel of at most 8x8, less under dilation. Inside, depth first:
    groups of output channels, kernel elements, groups of 8 input channels; part kernel first: groups of input channels,
    groups of output channels, elements. Innermost are the output channels of a group, each with its 8 input channels.
    Elements are padded to 4 (part kernel first and depthwise; to 2 where part kernel first has wide inputs). Depth first
    pads the input channels to the whole block, part kernel first to a multiple of 8.
    Raises StreamFault for a volume that is too large.
    """
    depth = 1 if layout.depthwise else layout.inputs
    part_first = layout.part_kernel_first and not layout.depthwise
    block = 16 if part_first or layout.wide else 32
    rows, columns = _SUBKERNEL // layout.dilation_y, _SUBKERNEL // layout.dilation_x
    blocks = -(-layout.outputs // layout.block_depth) * -(-depth // block)
    parts = blocks * -(-layout.height // rows) * -(-layout.width // columns)
    largest = _up(min(layout.block_depth, layout.outputs), layout.block_channels) * (1 if layout.depthwise else block)
    if parts > _MAX_PARTS or blocks * largest * (layout.height * layout.width + 3) > _MAX_PLACES:
        raise StreamFault(f"a kernel of {layout.outputs}x{layout.height}x{layout.width}x{depth} is too large")
    indices: list[Array] = []
    for first_output in range(0, layout.outputs, layout.block_depth):
        block_end = min(first_output + layout.block_depth, layout.outputs)
        outputs = np.arange(first_output, first_output + _up(block_end - first_output, layout.block_channels))
        for first_input in range(0, depth, block):
            inputs = _block_inputs(layout.depthwise, part_first, first_input, min(block, depth - first_input), block)
            for top in range(0, layout.height, rows):
                for left in range(0, layout.width, columns):
                    height, width = min(rows, layout.height - top), min(columns, layout.width - left)
                    count = height * width
                    if part_first or layout.depthwise:
                        count = _up(count, 2 if part_first and layout.wide else 4)
                    places = np.arange(count)
                    y, x = places // width, places % width
                    # Axes: element, group of outputs, output, group of inputs, input.
                    e = (slice(None), None, None, None, None)
                    o = outputs.reshape(1, -1, layout.block_channels, 1, 1)
                    i = inputs[None, None, None]
                    index = ((o * layout.height + top + y[e]) * layout.width + left + x[e]) * depth + i
                    index = np.where((y[e] >= height) | (o >= block_end) | (i >= depth), -1, index)
                    order = (3, 1, 0, 2, 4) if part_first else (1, 0, 3, 2, 4)
                    indices.append(index.transpose(order).reshape(-1))
    return np.concatenate(indices).astype(np.int32)


def _block_inputs(depthwise: bool, part_first: bool, first: int, count: int, block: int) -> Array:
    """Input channels of a block, [groups, channels of a group]."""
    if depthwise:
        return np.array([[first]])
    count = _up(count, _INPUT_BLOCK) if part_first else block
    return (first + np.arange(count)).reshape(-1, _INPUT_BLOCK)


@lru_cache(maxsize=512)
def kernel_weights(stream: bytes, layout: WeightLayout) -> Array:
    """The weights [O, H, W, I] (I is 1 for depthwise) of a stream, int16, read-only.

    Raises StreamFault when it is damaged, too short, has more than its padding, or padding that is not zero.
    """
    order = weight_order(layout)
    places = len(order)
    flat = decode_weights(stream, places)
    if len(flat) < places:
        raise StreamFault(f"it holds {len(flat)} weights, {places} are expected")
    if flat[order < 0].any():
        raise StreamFault("a weight that belongs to no channel is not zero")
    depth = 1 if layout.depthwise else layout.inputs
    kernel = np.zeros(layout.outputs * layout.height * layout.width * depth, np.int16)
    kernel[order[order >= 0]] = flat[order >= 0]
    kernel.flags.writeable = False
    return kernel.reshape(layout.outputs, layout.height, layout.width, depth)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelScales:
    """bias, multiplier and right shift by output channel, int64 [O]."""

    bias: Array
    multiplier: Array
    shift: Array


def channel_scales(data: bytes, channels: int) -> ChannelScales:
    """The scales of the first `channels` channels. Raises StreamFault when `data` is too short."""
    if len(data) < SCALE_BYTES * channels:
        raise StreamFault(f"{len(data)} bytes of scales for {channels} channels of {SCALE_BYTES}")
    table = np.frombuffer(data, np.uint8)[: SCALE_BYTES * channels].reshape(channels, SCALE_BYTES).astype(np.int64)
    bias = (table[:, :5] << np.arange(0, 40, 8)).sum(1)
    multiplier = (table[:, 5:9] << np.arange(0, 32, 8)).sum(1)
    return ChannelScales(np.where(bias >> 39 == 1, bias - (1 << 40), bias), multiplier, table[:, 9] & 63)
