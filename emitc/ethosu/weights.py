"""Weights and scales of a convolution, out of the bytes that the NPU reads.

The weights come in the order in which the NPU's blocks take them; `weight_order` says which weight of the kernel each
place of the stream holds, so that the executor sees them as [O, H, W, I].

The stream of 9-bit signed weights is compressed. It is a sequence of slices, bits from the lowest of each byte on. A slice has a
header, perhaps a new palette, and chunks. In them three things alternate: quotients of weight indices (up to 12), quotients of
zero runs (8 or 12), and the remainders of the chunk before. A weight index names a palette entry or, above the palette, a value
by itself; values are a magnitude with the sign in bit 0. A zero run says how many zeros follow a weight, and in a slice with a
new palette also how many stand before the first. Source: the format as vela's open-source weight codec has it; checked against
the codec in vela's wheel on random weights.
"""

from functools import lru_cache

import numpy as np

from emitc.ethosu.commands import Array
from emitc.records import dataclass

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


_NO_ZERO_RUNS, _END_OF_STREAM = 6, 7
_UNCOMPRESSED = 7
_CHUNK = 12
_SHORT_CHUNK = 8
_LEAD = 8
"""Weights by which their chunks may run ahead of the zero runs."""
_MAX_INDEX = 512


class StreamFault(Exception):
    """The stream is not a weight stream; the text says why."""


class _Bits:
    """Numbers from a byte string, lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self._data = data + bytes(8)
        self.position = 0
        self.end = 8 * len(data)

    def take(self, count: int) -> int:
        """The next `count` (up to 48) bits. Raises StreamFault at the end."""
        start = self.skip(count)
        window = int.from_bytes(self._data[start >> 3 : (start >> 3) + 8], "little")
        return window >> (start & 7) & ((1 << count) - 1)

    def skip(self, count: int) -> int:
        """Passes over `count` bits; the position of the first."""
        start = self.position
        self.position = start + count
        if self.position > self.end:
            raise StreamFault(f"it ends after {self.end // 8} bytes, inside a slice")
        return start


@dataclass(frozen=True, slots=True)
class _Palette:
    """values: of the first indices; the others are index - len(values) + offset. bits: of an index without a palette."""

    values: tuple[int, ...]
    offset: int
    bits: int


@lru_cache(maxsize=1 << 16)
def _quotients(ones: int, seconds: int, places: int, truncated: bool) -> tuple[tuple[int, ...], int]:
    """(quotients of a chunk of weights, what the next chunk's first one starts from).

    Each place adds 0, 1 or 2, the second 1 from `seconds`; a place below 2 ends a quotient, and with `truncated` every one.
    """
    quotients: list[int] = []
    count = 0
    for place in range(places):
        code = 0
        if ones >> place & 1:
            code = 1 + (seconds & 1)
            seconds >>= 1
        count += code
        if code < 2 or truncated:
            quotients.append(count)
            count = 0
    return tuple(quotients), count


@lru_cache(maxsize=1 << 13)
def _runs(ones: int, places: int) -> tuple[tuple[int, ...], int]:
    """The same for zero runs, whose places add 0 or 1 and end at a 0."""
    runs: list[int] = []
    count = 0
    for place in range(places):
        if ones >> place & 1:
            count += 1
        else:
            runs.append(count)
            count = 0
    return tuple(runs), count


class _Numbers:
    """Numbers of one slice: quotients now, the places of their remainders later, all remainders at the end."""

    def __init__(self, count: int, divisor: int) -> None:
        self.count = count
        self.divisor = divisor
        self.quotients: list[int] = []
        self._carry = 0
        self._pending = 0
        self._located = 0
        self._starts: list[int] = []
        self._lengths: list[int] = []

    @property
    def open(self) -> bool:
        """Whether quotients are missing."""
        return len(self.quotients) < self.count

    def add(self, chunk: tuple[tuple[int, ...], int]) -> None:
        quotients, carry = chunk
        if quotients:
            self.quotients.append(quotients[0] + self._carry)
            self.quotients.extend(quotients[1:])
            self._carry = carry
        else:
            self._carry += carry

    def remainders(self, bits: _Bits, added: int) -> None:
        """Passes over the remainders of `added` quotients of the chunk before."""
        count = min(added, self.count - self._located)
        if count > 0:
            self._starts.append(bits.skip(count * self.divisor))
            self._lengths.append(count)
            self._located += count

    def values(self, stream_bits: Array) -> Array:
        high = np.array(self.quotients[: self.count], np.int64) << self.divisor
        if self.divisor == 0 or not self._starts:
            return high
        lengths = np.array(self._lengths)
        within = np.arange(self.count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        first = np.repeat(np.array(self._starts), lengths) + within * self.divisor
        places = np.arange(self.divisor)
        low: Array = (stream_bits[first[:, None] + places] << places).sum(1)
        return high + low


def decode_weights(stream: bytes, limit: int) -> Array:
    """The weights of the stream, int16 [at most limit]. Raises StreamFault when it is damaged or holds more."""
    bits = _Bits(stream)
    stream_bits = np.unpackbits(np.frombuffer(stream, np.uint8), bitorder="little").astype(np.int64)
    parts: list[Array] = []
    total = 0
    palette: _Palette | None = None
    had_runs = False
    while bits.end - bits.position >= 8:
        run_code = bits.take(3)
        if run_code == _END_OF_STREAM:
            bits.position = -(-bits.position // 8) * 8
            palette = None
            continue
        if run_code > 3 and run_code != _NO_ZERO_RUNS:
            raise StreamFault(f"a slice has the zero-run code {run_code}")
        with_runs = run_code != _NO_ZERO_RUNS
        count = bits.take(15) + 1
        divisor, truncated, new = bits.take(3), bool(bits.take(1)), bool(bits.take(1))
        if not new and (palette is None or had_runs != with_runs):
            raise StreamFault("a slice continues a palette that it cannot use")
        if new:
            palette = _palette(bits)
        had_runs = with_runs
        assert palette is not None
        weights, runs = _slice(bits, count, divisor, truncated, palette, run_code if with_runs else None, new)
        values = _values(weights.values(stream_bits), palette)
        part = values if runs is None else _interleaved(values, runs.values(stream_bits), new, limit)
        total += len(part)
        if total > limit:
            raise StreamFault(f"it holds more than {limit} weights")
        parts.append(part)
    return np.concatenate(parts).astype(np.int16) if parts else np.zeros(0, np.int16)


def _palette(bits: _Bits) -> _Palette:
    offset, size, width = bits.take(5), bits.take(5), bits.take(3) + 2
    return _Palette(tuple(bits.take(width) for _ in range(size + 1 if size else 0)), offset, width)


def _slice(
    bits: _Bits, count: int, divisor: int, truncated: bool, palette: _Palette, run_divisor: int | None, new: bool
) -> tuple[_Numbers, _Numbers | None]:
    """Weight indices and zero runs of one slice; every turn of the loop takes bits or ends a chunk before."""
    plain = divisor == _UNCOMPRESSED
    if plain:
        divisor = max(len(palette.values) - 1, 0).bit_length() if palette.values else palette.bits
    elif divisor == 6:
        raise StreamFault("a slice has the weight divisor 6")
    weights = _Numbers(count, divisor)
    runs = None if run_divisor is None else _Numbers(count + new, run_divisor)
    run_places = _CHUNK if run_divisor is None or run_divisor < 3 else _SHORT_CHUNK
    plain_places = _SHORT_CHUNK if divisor > 5 else _CHUNK
    weights_before = runs_before = 0
    while True:
        lead = 0 if runs is None else len(weights.quotients) - len(runs.quotients)
        take_weights = weights.open and lead < _LEAD
        take_runs = runs is not None and runs.open and lead >= 0
        weights_at, runs_at = len(weights.quotients), 0 if runs is None else len(runs.quotients)
        ones = bits.take(_CHUNK) if take_weights and not plain else 0
        if runs is not None and take_runs:
            runs.add(_runs(bits.take(run_places), run_places))
        if take_weights:
            seconds = bits.take(ones.bit_count())
            weights.add(_quotients(ones, seconds, plain_places if plain else _CHUNK, truncated))
        weights.remainders(bits, weights_before)
        weights_before = len(weights.quotients) - weights_at
        if runs is not None:
            runs.remainders(bits, runs_before)
            runs_before = len(runs.quotients) - runs_at
        if not take_weights and not take_runs:
            return weights, runs


def _values(indices: Array, palette: _Palette) -> Array:
    if len(indices) and int(indices.max()) >= _MAX_INDEX:
        raise StreamFault(f"a weight has the index {int(indices.max())}; {_MAX_INDEX - 1} is the largest")
    size = len(palette.values)
    codes = indices - size + palette.offset
    if size:
        table = np.array(palette.values, np.int64)
        codes = np.where(indices < size, table[np.minimum(indices, size - 1)], codes)
    magnitude = codes >> 1
    return np.where(codes & 1 == 1, -magnitude, magnitude)


def _interleaved(values: Array, runs: Array, leading: bool, limit: int) -> Array:
    """The weights with their zeros; `leading`: the first run stands before the first weight."""
    after = runs[1:] if leading else runs
    start = int(runs[0]) if leading else 0
    size = start + len(values) + int(after.sum())
    if size > limit:
        raise StreamFault(f"it holds more than {limit} weights")
    weights = np.zeros(size, np.int64)
    weights[start + np.arange(len(values)) + np.cumsum(after) - after] = values
    return weights
