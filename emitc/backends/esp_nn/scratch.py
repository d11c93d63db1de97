"""Bytes of scratch that ESP-NN's functions need, by chip, as version 1.2.3 computes them itself.

The functions get their scratch through a variable of the library and never learn its size: too small a buffer is written
over its end. `tests/backends/esp_nn` compares each number with the library's own function, on random shapes.
"""

from dataclasses import dataclass

from emitc.backends.esp_nn.tree import Chip

_L1_BUDGET = 32 * 1024
"""Bytes of the ESP32-P4's data cache that its convolutions count on."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A window over an image, in values and pixels. multiplier: output channels for each input channel, of depthwise ones."""

    height: int
    width: int
    channels: int
    kernel_h: int
    kernel_w: int
    out_h: int
    out_w: int
    out_channels: int
    pad_h: int
    pad_w: int
    stride_h: int
    stride_w: int
    multiplier: int = 1

    @property
    def pixels(self) -> int:
        """Of the input."""
        return self.height * self.width

    @property
    def window(self) -> int:
        """Values of one channel in a window."""
        return self.kernel_h * self.kernel_w

    @property
    def padded(self) -> bool:
        """Whether the window begins outside of the image."""
        return bool(self.pad_h or self.pad_w)

    @property
    def pointwise(self) -> bool:
        return self.window == 1 and not self.padded and self.stride_h == self.stride_w == 1

    @property
    def beyond(self) -> tuple[int, int]:
        """Rows and columns by which the last windows leave the image, as the library counts them."""
        return (
            self.out_h * self.stride_h + self.kernel_h - 1 - self.height,
            self.out_w * self.stride_w + self.kernel_w - 1 - self.width,
        )


def _up(value: int, to: int) -> int:
    """`value` rounded up to a multiple."""
    return -(-value // to) * to


def conv_bytes(chip: Chip, s: Shape) -> int:
    """Of esp_nn_conv_s8."""
    return {Chip.GENERIC: lambda _: 0, Chip.S3: _conv_s3, Chip.P4: _conv_p4}[chip](s)


def depthwise_bytes(chip: Chip, s: Shape) -> int:
    """Of esp_nn_depthwise_conv_s8."""
    return _depthwise_s3(s) if chip is Chip.S3 else 0


def softmax_bytes(width: int) -> int:
    """Of esp_nn_softmax_s8, for rows of that many values: 32 bits for each."""
    return 4 * width


def _pointwise(s: Shape) -> int:
    """Of a product of matrices with channels in groups of eight."""
    channels = _up(s.channels, 8)
    image = s.pixels * channels if s.channels % 8 else 0
    return image + channels * s.out_channels + (16 * channels if s.pixels >= 8 else 0)


def _conv_s3(s: Shape) -> int:
    margin = 64
    if s.pointwise:
        return _pointwise(s) + margin
    row, window = s.kernel_w * s.channels, s.window * s.channels
    sums = 4 * s.out_channels
    if row < 16 <= window:
        return sums + 32 + (s.out_channels + 1) * _up(window, 16) + margin
    image = (s.width + 2 * s.pad_w) * (s.height + 2 * s.pad_h) * s.channels if s.padded else 0
    filters = s.window * _up(s.channels, 16) * s.out_channels + _up(row, 16) * s.kernel_h * s.out_channels
    below, right = (max(0, size) for size in s.beyond)
    border = (s.width + right) * (s.height + below) * s.channels if below or right else 0
    return image + filters + border + margin + sums


def _conv_p4(s: Shape) -> int:
    margin, sums = 32, 4 * s.out_channels
    if s.pointwise:
        return (sums + 16 * s.out_channels + 32 if s.channels < 16 else _pointwise(s)) + margin
    window, row = s.window * s.channels, s.kernel_w * s.channels
    filters = s.window * _up(s.channels, 16) * s.out_channels
    if not s.padded and row >= 16:
        return filters + margin + sums
    if window >= 16:
        return sums + window + margin
    wide = _up(-(-16 // s.kernel_w), 16)
    if not s.padded:
        return sums + s.window * wide * s.out_channels + s.pixels * wide + margin
    width = s.width + 2 * s.pad_w
    image = width * (s.height + 2 * s.pad_h) * s.channels
    if image + sums <= _L1_BUDGET:
        return image + filters + margin + sums
    return _conv_p4_tiles(s, width, wide) + margin + sums


def _conv_p4_tiles(s: Shape, width: int, wide: int) -> int:
    """Of a padded image that is larger than the cache: some of its rows, and the filters where a row of them is short."""
    short = s.kernel_w * s.channels < 16
    row = width * (wide if short else s.channels)
    filters = s.window * wide * s.out_channels if short else 0
    left = _L1_BUDGET - 4 * s.out_channels - filters
    tile = 1
    if left > 0 and s.kernel_h * row <= left:
        tile = min((left - s.kernel_h * row) // (s.stride_h * row) + 1, s.out_h)
    return ((tile - 1) * s.stride_h + s.kernel_h + 2 * s.pad_h) * row + filters


def _depthwise_s3(s: Shape) -> int:
    filters, image = s.window * s.channels * s.multiplier, s.pixels * s.channels
    if s.multiplier == 1 and s.channels % 8 == 0:
        if (s.kernel_h, s.kernel_w) == (3, 3):
            return _depthwise_3x3_s3(s, filters, image)
        whole = 2 * (filters + image)
        return (whole if whole <= 48 * 1024 else 2 * (filters + s.width * s.kernel_h * s.channels)) + 32
    if s.multiplier == 1 and s.channels > 3:
        channels = _up(s.channels, 8)
        end = _up(2 * s.window * channels, 16)
        end = _up(end + 2 * s.pixels * channels, 16)
        end = _up(end + s.out_h * s.out_w * channels, 16)
        return end + 12 * channels + 16
    return 2 * (filters + image) + 32 if s.multiplier % 4 == 0 else 32


def _depthwise_3x3_s3(s: Shape, filters: int, image: int) -> int:
    below, right = s.beyond
    if s.channels % 16 == 0:
        more_h, more_w = (2 * s.pad_h, 2 * s.pad_w) if s.padded else (below, right)
        if not (more_h or more_w):
            return filters + 16
        whole = (s.width + more_w) * (s.height + more_h) * s.channels
        return filters + (whole if whole <= 40 * 1024 else (s.width + more_w) * 3 * s.channels) + 16
    if s.channels >= 12:
        channels = _up(s.channels, 16)
        width, height = s.width + 2 * s.pad_w + max(0, right), s.height + 2 * s.pad_h + max(0, below)
        return (9 + width * height + s.out_h * s.out_w) * channels + 64
    return 2 * (filters + image) + 32
