"""An ESP-NN on this machine: its version, the C files of its functions, and the scratch that they need, by chip.

The sizes are those that version 1.2.3 computes itself. Its functions get their scratch through a variable of the library and
never learn its size: too small a buffer is written over its end. `tests/backends/esp_nn` compares each number with the
library's own function, on random shapes.
"""

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path

from emitc.errors import EmitcError, Where
from emitc.records import dataclass
from emitc.target import Target

KNOWN_VERSIONS = ("1.2.3",)
"""Versions whose sizes of buffers are known here: other ones differ."""
_VERSION = re.compile(r"""^version:\s*["']?(\d+\.\d+\.\d+)["']?\s*$""", re.MULTILINE)
_LONGEST_MANIFEST = 1 << 16
_CONVOLUTION, _POOLING = "src/convolution/esp_nn_", "src/pooling/esp_nn_"
SOURCES = {
    "esp_nn_conv_s8": (f"{_CONVOLUTION}conv_ansi.c", f"{_CONVOLUTION}conv_opt.c"),
    "esp_nn_depthwise_conv_s8": (f"{_CONVOLUTION}depthwise_conv_ansi.c", f"{_CONVOLUTION}depthwise_conv_opt.c"),
    "esp_nn_fully_connected_s8": ("src/fully_connected/esp_nn_fully_connected_ansi.c",),
    "esp_nn_fully_connected_per_ch_s8": ("src/fully_connected/esp_nn_fully_connected_ansi.c",),
    "esp_nn_avg_pool_s8": (f"{_POOLING}avg_pool_ansi.c",),
    "esp_nn_max_pool_s8": (f"{_POOLING}max_pool_ansi.c",),
    "esp_nn_add_elementwise_s8": ("src/basic_math/esp_nn_add_ansi.c",),
    "esp_nn_mul_elementwise_s8": ("src/basic_math/esp_nn_mul_ansi.c",),
    "esp_nn_softmax_s8": ("src/softmax/esp_nn_softmax_ansi.c", "src/softmax/esp_nn_softmax_opt.c"),
}
"""By function: the files of its versions in C. Those for the ESP32-S3 and ESP32-P4 are compiled by ESP-IDF only."""
FOLDERS = ("include", "src/common")


class Chip(Enum):
    """Which of its versions of a function the library takes: by the chip that it is compiled for."""

    GENERIC = "C"
    S3 = "ESP32-S3"
    P4 = "ESP32-P4"


def chip_of(target: Target) -> Chip:
    """The chip that a target is compiled for; C for all but two of them."""
    return {"esp32s3": Chip.S3, "esp32p4": Chip.P4}.get(target.name, Chip.GENERIC)


@dataclass(frozen=True, slots=True)
class Tree:
    """A copy of the library whose version is known."""

    root: Path
    version: str

    def sources(self, functions: Iterable[str]) -> tuple[str, ...]:
        """The C files of the functions, relative to the root, sorted. Raises EmitcError where one is missing."""
        files = tuple(sorted({file for function in functions for file in SOURCES[function]}))
        for file in files:
            if not (self.root / file).is_file():
                why = f"{self.root} has no {file}"
                raise _refused(f"ESP-NN {self.version} at this path is not complete", why, "give a whole copy of it")
        return files


def _refused(what: str, why: str, hint: str) -> EmitcError:
    return EmitcError(what, Where(option="--esp-nn"), why, hint)


def read_tree(path: Path) -> Tree:
    """The library in a folder. Raises EmitcError for a folder without one, and for a version that is not known."""
    hint = "the folder that has its include, src and idf_component.yml"
    if "\0" in str(path) or not (path / "include" / "esp_nn.h").is_file():
        raise _refused("there is no ESP-NN at this path", f"{str(path)!r} has no include/esp_nn.h", hint)
    manifest = path / "idf_component.yml"
    try:
        with manifest.open("rb") as file:
            text = file.read(_LONGEST_MANIFEST).decode("utf-8", errors="replace")
    except OSError as error:
        raise _refused("the version of this ESP-NN cannot be read", f"{manifest}: {error.strerror}", hint) from error
    stated = _VERSION.search(text)
    version = stated[1] if stated else "without a version"
    if version not in KNOWN_VERSIONS:
        why = f"the sizes of its buffers are not known; known is {', '.join(KNOWN_VERSIONS)}"
        raise _refused(f"ESP-NN {version} is not supported", why, f"take ESP-NN {KNOWN_VERSIONS[-1]}")
    return Tree(path, version)


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
