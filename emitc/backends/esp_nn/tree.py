"""An ESP-NN on this machine: its version, and the C files of the functions that are called."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from emitc.errors import EmitcError, Where
from emitc.target import Target

KNOWN_VERSIONS = ("1.2.3",)
"""Versions whose sizes of buffers `scratch` computes: other ones differ."""
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
