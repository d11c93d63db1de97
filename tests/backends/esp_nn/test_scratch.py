"""Scratch that functions of ESP-NN need: recorded numbers of version 1.2.3, and its own functions where they are there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import cffi
import numpy as np
import pytest

from emitc.backends.esp_nn.scratch import Chip, Shape, conv_bytes, depthwise_bytes, softmax_bytes
from tests.support.esp_nn.library import REAL, SKIPPED

SOURCES = {
    "esp_nn_get_conv_scratch_size_esp32s3": "src/convolution/esp_nn_conv_esp32s3.c",
    "esp_nn_get_conv_scratch_size_esp32p4": "src/convolution/esp_nn_conv_esp32p4.c",
    "esp_nn_get_conv_scratch_size_opt": "src/convolution/esp_nn_conv_opt.c",
    "esp_nn_get_depthwise_conv_scratch_size_esp32s3": "src/convolution/esp_nn_depthwise_conv_s8_esp32s3.c",
    "esp_nn_get_depthwise_conv_scratch_size_esp32p4": "src/convolution/esp_nn_depthwise_conv_esp32p4.c",
    "esp_nn_get_depthwise_conv_scratch_size_opt": "src/convolution/esp_nn_depthwise_conv_opt.c",
}
"""By function: the file that defines it. The files also have assembly for the chips, and the functions alone have none."""
SIZES: dict[str, Callable[[Shape], int]] = {
    "esp_nn_get_conv_scratch_size_esp32s3": lambda s: conv_bytes(Chip.S3, s),
    "esp_nn_get_conv_scratch_size_esp32p4": lambda s: conv_bytes(Chip.P4, s),
    "esp_nn_get_conv_scratch_size_opt": lambda s: conv_bytes(Chip.GENERIC, s),
    "esp_nn_get_depthwise_conv_scratch_size_esp32s3": lambda s: depthwise_bytes(Chip.S3, s),
    "esp_nn_get_depthwise_conv_scratch_size_esp32p4": lambda s: depthwise_bytes(Chip.P4, s),
    "esp_nn_get_depthwise_conv_scratch_size_opt": lambda s: depthwise_bytes(Chip.GENERIC, s),
}
"""The same by emitc."""


def random_shape(rng: np.random.Generator, *, depthwise: bool) -> Shape:
    """A window as TensorFlow Lite can make it, over small and over large images."""
    channels = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 32, 40, 64, 72, 96, 128]))
    height, width = (int(n) for n in rng.integers(1, int(rng.choice([9, 33, 161])), 2))
    kernel_h, kernel_w = (int(rng.choice([1, 1, 2, 3, 3, 3, 5, 8])) for _ in range(2))
    stride_h, stride_w = (int(rng.choice([1, 1, 2, 3])) for _ in range(2))
    multiplier = int(rng.choice([1, 1, 1, 2, 3, 4, 8])) if depthwise else 1
    kernel_h, kernel_w = min(kernel_h, height), min(kernel_w, width)
    same = bool(rng.integers(2))
    out = [-(-n // s) if same else (n - k) // s + 1 for n, k, s in zip(
        (height, width), (kernel_h, kernel_w), (stride_h, stride_w), strict=True
    )]  # fmt: skip
    pads = [
        max(0, (o - 1) * s + k - n) // 2 if same else 0
        for o, n, k, s in zip(out, (height, width), (kernel_h, kernel_w), (stride_h, stride_w), strict=True)
    ]
    out_channels = channels * multiplier if depthwise else int(rng.integers(1, 130))
    return Shape(height, width, channels, kernel_h, kernel_w, *out, out_channels, *pads, stride_h, stride_w, multiplier)


RECORDED: dict[str, tuple[int, ...]] = {
    "esp_nn_get_conv_scratch_size_esp32s3": (
        235356,
        2324,
        51976,
        174208,
        1684,
        55462,
        4824,
        11472,
        9948,
        10408,
        17000,
        4148,
        25540,
        1120,
        5563,
        950732,
        18924,
        75068,
        24424,
        4190,
    ),
    "esp_nn_get_conv_scratch_size_esp32p4": (
        75068,
        297,
        25640,
        102944,
        852,
        43180,
        432,
        4912,
        4348,
        7200,
        1544,
        385,
        368,
        656,
        4445,
        36588,
        11532,
        12060,
        12296,
        1632,
    ),
    "esp_nn_get_conv_scratch_size_opt": (0,) * 20,
    "esp_nn_get_depthwise_conv_scratch_size_esp32s3": (
        26144,
        3680,
        32,
        31072,
        32,
        32,
        1712,
        32,
        32,
        32,
        32,
        752,
        32,
        224,
        32,
        69152,
        4480,
        5664,
        32,
        2822,
    ),
    "esp_nn_get_depthwise_conv_scratch_size_esp32p4": (0,) * 20,
    "esp_nn_get_depthwise_conv_scratch_size_opt": (0,) * 20,
}
"""By function: what ESP-NN 1.2.3 says of the first twenty shapes of seed 7."""


def shapes(function: str, count: int, seed: int) -> list[Shape]:
    rng = np.random.default_rng(seed)
    return [random_shape(rng, depthwise="depthwise" in function) for _ in range(count)]


@pytest.mark.parametrize("function", SIZES)
def test_the_bytes_are_those_that_the_library_has_said(function: str) -> None:
    assert tuple(map(SIZES[function], shapes(function, len(RECORDED[function]), 7))) == RECORDED[function]


def test_softmax_needs_a_word_for_each_value() -> None:
    assert softmax_bytes(256) == 1024


def extracted(root: Path, function: str) -> str:
    """The text of a function and of the constants that it may use, from the library's source."""
    text = (root / SOURCES[function]).read_text(encoding="utf-8")
    found = re.search(rf"^int {function}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    constants = re.findall(r"^#define L1D_BUDGET .*$", text, re.MULTILINE)
    return "\n".join([*constants, found[0]])


DRIVER = """\
int sized(const int32_t *v)
{
    const data_dims_t x = {v[1], v[0], v[2], 1}, w = {v[4], v[3], v[2], 1}, y = {v[6], v[5], v[7], 1};
    @PARAMS@ p = {.stride = {v[11], v[10]}, .padding = {v[9], v[8]}, .dilation = {1, 1}};
    @MULTIPLIER@
    return @FUNCTION@(&x, &w, &y, &p);
}
"""


def own_sizes(root: Path, function: str, folder: Path) -> Callable[[Shape], int]:
    """The library's function of a shape, compiled from its source."""
    depthwise = "depthwise" in function
    driver = DRIVER.replace("@FUNCTION@", function).replace("@PARAMS@", f"{'dw_' if depthwise else ''}conv_params_t")
    driver = driver.replace("@MULTIPLIER@", "p.ch_mult = v[12];" if depthwise else "")
    text = f'#include "esp_nn_defs.h"\n#include "common_functions.h"\n{extracted(root, function)}\n{driver}'
    (folder / "sized.c").write_text(text, encoding="utf-8")
    command = ["gcc", "-w", "-O1", "-shared", "-fPIC", "-I", str(root / "include"), "-I", str(root / "src" / "common")]
    subprocess.run([*command, "sized.c", "-o", "sized.so"], cwd=folder, check=True)
    ffi = cffi.FFI()
    ffi.cdef("int sized(const int32_t *);")
    library = ffi.dlopen(str(folder / "sized.so"))

    def sized(s: Shape) -> int:
        values = [s.height, s.width, s.channels, s.kernel_h, s.kernel_w, s.out_h, s.out_w, s.out_channels,
                  s.pad_h, s.pad_w, s.stride_h, s.stride_w, s.multiplier]  # fmt: skip
        return int(library.sized(ffi.new("int32_t[]", values)))

    return sized


@pytest.mark.parametrize("function", SIZES)
def test_the_bytes_are_those_of_the_librarys_own_function(function: str, tmp_path: Path) -> None:
    if REAL is None:
        pytest.skip(SKIPPED)
    own, cases = own_sizes(REAL, function, tmp_path), shapes(function, 5000, 11)
    assert [(s, own(s)) for s in cases] == [(s, SIZES[function](s)) for s in cases]
    assert tuple(map(own, shapes(function, 20, 7))) == RECORDED[function]
