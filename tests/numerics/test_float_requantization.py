"""emitc_scale_f32 and emitc_output_f32: every body against numpy's float32, around ties and at the ends; nothing fused.

numpy multiplies and rounds one by one, so requantize_float is the reference. The bodies are compiled for the host and
run on emulated cores with and without a float unit.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray

from emitc.numerics.requantize import INT32_MAX, INT32_MIN, Float32, Int64, requantize_float
from emitc.verify.build import WARNINGS, run_compiler
from tests.support.firmware import printed_by, run
from tests.support.runtime import INCLUDES
from tests.support.runtime import SOURCE as RUNTIME_SOURCE

LIMIT = 65536
FAST = ("-O2",)
FUSING = ("-O3", "-std=gnu11", "-ffp-contract=fast")
CHECKED = ("-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
BODIES = {
    "hardware": (*FAST, "-DEMITC_FLOAT_HARDWARE=1"),
    "integer": (*FAST, "-DEMITC_FLOAT_HARDWARE=0"),
    "narrow": (*FAST, "-DEMITC_FLOAT_HARDWARE=0", "-DEMITC_NARROW_MULTIPLY"),
    "hardware_checked": (*CHECKED, "-DEMITC_FLOAT_HARDWARE=1"),
    "integer_checked": (*CHECKED, "-DEMITC_FLOAT_HARDWARE=0"),
    "narrow_checked": (*CHECKED, "-DEMITC_FLOAT_HARDWARE=0", "-DEMITC_NARROW_MULTIPLY"),
}
CPU = Path("/proc/cpuinfo")
if platform.machine() == "x86_64" and CPU.is_file() and " fma " in CPU.read_text(encoding="utf-8"):
    BODIES["hardware_fusing"] = (*FUSING, "-mfma", "-DEMITC_FLOAT_HARDWARE=1")

SOURCE = """
#include "emitc_runtime.h"
void outputs(int32_t n, const int32_t *acc, const float *scale, int32_t offset, int32_t low, int32_t high, int32_t *y);
void outputs(int32_t n, const int32_t *acc, const float *scale, int32_t offset, int32_t low, int32_t high, int32_t *y)
{
    for (int32_t i = 0; i < n; i++) {
        y[i] = emitc_output_f32(acc[i], scale[i], offset, low, high);
    }
}
void exact(int32_t n, const int32_t *acc, const float *scale, int32_t *y);
void exact(int32_t n, const int32_t *acc, const float *scale, int32_t *y)
{
    for (int32_t i = 0; i < n; i++) {
#if EMITC_FLOAT_HARDWARE
        y[i] = emitc_scale_f32(acc[i], scale[i], -EMITC_FLOAT_LIMIT, EMITC_FLOAT_LIMIT);
#else
        const float factor = scale[i];
        uint32_t bits;
        memcpy(&bits, &factor, sizeof bits);
        y[i] = emitc_rint_f32_exact(acc[i], bits);
#endif
    }
}
"""
DECLARATIONS = " ".join(re.findall(r"^void .*;$", SOURCE, re.M))


@dataclass(frozen=True, slots=True)
class Body:
    """One build of the header as a library."""

    name: str
    ffi: cffi.FFI
    lib: Any

    def _pointers(self, acc: NDArray[np.int32], scale: Float32, y: NDArray[np.int32]) -> tuple[Any, Any, Any]:
        assert len(acc) == len(scale) == len(y)
        buffer = self.ffi.from_buffer
        return buffer("int32_t[]", acc), buffer("float[]", scale), buffer("int32_t[]", y)

    def outputs(self, acc: NDArray[np.int32], scale: Float32, offset: int, low: int, high: int) -> NDArray[np.int32]:
        """emitc_output_f32 of each pair."""
        y = np.empty(len(acc), np.int32)
        a, s, to = self._pointers(acc, scale, y)
        self.lib.outputs(len(acc), a, s, offset, low, high, to)
        return y

    def exact(self, acc: NDArray[np.int32], scale: Float32) -> NDArray[np.int32]:
        """emitc_rint_f32_exact of each pair, which the integer bodies call near a tie only."""
        y = np.empty(len(acc), np.int32)
        self.lib.exact(len(acc), *self._pointers(acc, scale, y))
        return y


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> list[Body]:
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "bodies.c").write_text(SOURCE, encoding="ascii")
    built = []
    for name, flags in BODIES.items():
        library = folder / f"{name}.so"
        files = [str(folder / "bodies.c"), str(RUNTIME_SOURCE)]
        run_compiler([*WARNINGS, *flags, "-shared", "-fPIC", *INCLUDES, *files, "-o", str(library)])
        ffi = cffi.FFI()
        ffi.cdef(DECLARATIONS)
        built.append(Body(name, ffi, ffi.dlopen(str(library))))
    return built


def compare(bodies: list[Body], acc: Int64, scale: Float32, *ranges: tuple[int, int, int]) -> None:
    """Asserts that every body gives numpy's value for all pairs; ranges: offset, low, high."""
    acc, scale = np.broadcast_arrays(np.asarray(acc, np.int64), np.asarray(scale, np.float32))
    acc, scale = acc.ravel(), np.ascontiguousarray(scale.ravel())
    assert acc.min() >= INT32_MIN and acc.max() <= INT32_MAX
    assert scale.min() >= np.finfo(np.float32).tiny and np.isfinite(scale).all()
    rounded = requantize_float(acc, scale)
    narrow = np.ascontiguousarray(acc.astype(np.int32))
    for offset, low, high in ranges or ((0, -LIMIT, LIMIT),):
        expected = np.clip(rounded + offset, low, high)
        for body in bodies:
            found = body.outputs(narrow, scale, offset, low, high)
            wrong = np.flatnonzero(found != expected)
            shown = [(int(acc[i]), float(scale[i]), int(found[i]), int(expected[i])) for i in wrong[:5]]
            assert not len(wrong), f"{body.name}: {len(wrong)} wrong, (acc, scale, found, expected): {shown}"


def magnitudes(rng: np.random.Generator, count: int) -> Int64:
    """Accumulators with every number of bits alike."""
    return rng.integers(INT32_MIN, INT32_MAX, count, endpoint=True) >> rng.integers(0, 32, count)


def random_chunks(count: int, chunks: int) -> Iterator[tuple[Int64, Float32]]:
    """Half with any scale, half with one that takes the accumulator to a result of -1..17 bits."""
    rng = np.random.default_rng(5)
    for _ in range(chunks):
        acc = magnitudes(rng, count)
        exponent = rng.uniform(-40, 4, count)
        size = np.log2(np.maximum(np.abs(acc), 1))
        exponent[::2] = (rng.uniform(-1.5, 17, count) - size)[::2]
        yield acc, np.exp2(exponent).astype(np.float32)


def test_ten_million_random_pairs(bodies: list[Body]) -> None:
    fast = [body for body in bodies if not body.name.endswith("_checked")]
    assert len(fast) >= 3
    for acc, scale in random_chunks(500_000, 20):
        compare(fast, acc, scale)


def test_random_pairs_without_undefined_behaviour(bodies: list[Body]) -> None:
    for acc, scale in random_chunks(200_000, 2):
        compare(bodies, acc, scale, (0, -LIMIT, LIMIT), (-128, -128, 127))


def test_the_exact_way_alone(bodies: list[Body]) -> None:
    for acc, scale in random_chunks(200_000, 2):
        expected = np.clip(requantize_float(acc, scale), -LIMIT, LIMIT)
        for body in bodies:
            assert (body.exact(acc.astype(np.int32), scale) == expected).all(), body.name


def float32(bits: int) -> float:
    """The float32 with these bits."""
    return float(np.array(bits, np.uint32).view(np.float32))


SCALES = [
    *(2.0**k for k in range(-22, 4)),
    *(1 / d for d in (3, 5, 6, 7, 9, 10, 11, 13, 100, 127, 255, 257, 1000, 4095, 65535)),
    *(n / 3 * 2.0**-k for n in (1, 2, 4, 5) for k in (6, 9, 12, 15, 17)),
    # Mantissas that end in many ones, or in zeros except for one.
    *(float32((127 - k) << 23 | m) for k in (1, 5, 8, 11, 14, 16) for m in (0x7FFFFF, 0x3FFFFF, 0x000FFF, 1, 0x400001)),
    # x_scale * w_scale / y_scale of quantized image and audio models.
    0.003921568859368563 * 0.0078125 / 0.0235294122248888,
    0.0235294122248888 * 0.0049123 / 0.0473841,
    0.5847029089927673 * 0.0037128 / 0.6212887763977051,
    0.0207548 * 0.0003618 / 0.0118342,
    0.10170751 * 0.01371989 / 0.13369,
]


@pytest.mark.parametrize("scale", [np.float32(s) for s in SCALES], ids=lambda s: f"{s:.9g}")
def test_around_every_half(scale: np.float32, bodies: list[Body]) -> None:
    """All accumulators within 3 of k + 1/2, for small k and for some up to the ends of 16 bits."""
    near = np.arange(-301, 301)
    far = np.unique(np.geomspace(301, 65537, 300).astype(np.int64))
    halves = np.concatenate([near, far, -far]) + 0.5
    middle = np.rint(halves / np.float64(scale)).astype(np.int64)
    acc = (middle[:, np.newaxis] + np.arange(-3, 4)).ravel()
    acc = acc[(acc >= INT32_MIN) & (acc <= INT32_MAX)]
    assert len(acc) > 5
    compare(bodies, acc, np.array(scale))


def test_scales_that_bring_the_product_next_to_a_half(bodies: list[Body]) -> None:
    """The float32 nearest to (k + 1/2) / acc and its neighbours: only the product's rounding tells the side."""
    rng = np.random.default_rng(6)
    fast = [body for body in bodies if not body.name.endswith("_checked")]
    acc = magnitudes(rng, 400_000)
    acc = acc[acc != 0]
    k = rng.integers(-(2**16), 2**16, len(acc)) >> rng.integers(0, 17, len(acc))
    scale = np.abs((k + 0.5) / acc).astype(np.float32)
    ties = 0
    for ulps in range(-2, 3):
        moved = (scale.view(np.int32) + ulps).view(np.float32)
        compare(fast, acc, moved)
        product = acc.astype(np.float32) * moved
        ties += int(np.count_nonzero(np.abs(product - np.trunc(product)) == 0.5))
    assert ties > 100_000


def test_accumulators_that_the_conversion_rounds(bodies: list[Body]) -> None:
    """Around the powers of two from 2**23 up, where float32 has no odd numbers any more, and odd ones in between."""
    rng = np.random.default_rng(7)
    for power in range(23, 32):
        near = (1 << power) + np.arange(-300, 301)
        between = rng.integers(1 << power, 1 << (power + 1), 2000) | 1
        # Halves of the float32 spacing above the power, times odd numbers: all of them ties of the conversion.
        ties = (1 << power) + (2 * rng.integers(0, 1 << 22, 2000) + 1) * (1 << max(power - 24, 0))
        acc = np.concatenate([near, between, ties])
        acc = np.concatenate([acc, -acc])
        acc = acc[(acc >= INT32_MIN) & (acc <= INT32_MAX)]
        for shift in (power - 16, power - 8, power - 2, power, power + 1, power + 2):
            for mantissa in (0, 1, 0x2AAAAB, 0x400000, 0x7FFFFF):
                compare(bodies, acc, np.array(float32((127 - shift) << 23 | mantissa), np.float32))


def test_both_roundings_at_their_worst_near_the_largest_results(bodies: list[Body]) -> None:
    """Ties of the conversion, a mantissa near its end, a product next to k + 1/2: the farthest that rounding moves."""
    rng = np.random.default_rng(9)
    fast = [body for body in bodies if not body.name.endswith("_checked")]
    power = rng.integers(24, 31, 400_000)
    acc = (1 << power) + (2 * rng.integers(0, 1 << 23, len(power)) + 1) * (1 << (power - 24))
    k = np.floor(acc * np.exp2(14.0 - power) * rng.uniform(1.8, 2, len(power)))
    scale = ((k + 0.5) / acc).astype(np.float32)
    acc *= rng.choice([-1, 1], len(power))
    for ulps in range(-2, 3):
        compare(fast, acc, (scale.view(np.int32) + ulps).view(np.float32))


def test_ends_of_accumulators_and_scales(bodies: list[Body]) -> None:
    ends = [INT32_MIN, INT32_MIN + 1, -LIMIT, -2, -1, 0, 1, 2, 3, LIMIT, 2**24 + 1, INT32_MAX - 1, INT32_MAX]
    # Every exponent of a normal number, with the mantissas at its ends.
    bits = [e << 23 | m for e in range(1, 255) for m in (0, 1, 0x400000, 0x7FFFFF)]
    scale = np.array(bits, np.uint32).view(np.float32)
    ranges = ((0, -LIMIT, LIMIT), (-128, -128, 127), (0, -32768, 32767), (65535, 0, 65535), (0, 0, 65535))
    compare(bodies, np.array(ends)[:, np.newaxis], scale[np.newaxis, :], *ranges)


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param([(o, -128, 127) for o in (-128, -1, 0, 5, 127)], id="int8"),
        pytest.param([(o, 0, 255) for o in (0, 1, 127, 128, 255)], id="uint8"),
        pytest.param([(o, -32768, 32767) for o in (-32768, 0, 32767)], id="int16"),
        pytest.param([(o, 0, 65535) for o in (0, 32768, 65535)], id="uint16"),
        pytest.param([(-128, -128, -128), (-5, -5, 19), (3, 3, 127), (128, 128, 255), (0, 0, 0)], id="activations"),
    ],
)
def test_offsets_and_limits(ranges: list[tuple[int, int, int]], bodies: list[Body]) -> None:
    rng = np.random.default_rng(8)
    acc = magnitudes(rng, 5000)
    wanted = rng.uniform(0, 1.2 * max(high - low for _, low, high in ranges) + 1, 5000)
    scale = (wanted / np.maximum(np.abs(acc), 1)).astype(np.float32)
    scale = np.maximum(scale, np.float32(1e-30))
    compare(bodies, acc, scale, *ranges)
    every = np.arange(-70_000, 70_000)
    compare(bodies, every, np.array(1.0, np.float32), *ranges)
    compare(bodies, every, np.array(0.5, np.float32), *ranges)


M4 = ["arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
M7 = ["arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard"]
RV32F = ["riscv64-unknown-elf-gcc", "--specs=picolibc.specs", "-march=rv32imafc", "-mabi=ilp32f"]
FUSED = re.compile(r"\b(vfn?m[as]|vn?ml[as]|v?fn?m(add|sub))[\w.]*")
MULTIPLY_ADD = """
float multiply_add(float a, float b, float c);
float multiply_add(float a, float b, float c)
{
    return a * b + c;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="-mfma is an option for x86-64")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_nothing_is_fused_on_x86(compiler: str, tmp_path: Path) -> None:
    nothing_is_fused([compiler, "-mfma", "-mavx2", "-DEMITC_FLOAT_HARDWARE=1"], tmp_path)


@pytest.mark.parametrize("command", [M4, M7, RV32F], ids=["cortex-m4", "cortex-m7", "rv32imafc"])
def test_nothing_is_fused(command: list[str], tmp_path: Path) -> None:
    nothing_is_fused(command, tmp_path)


def nothing_is_fused(command: list[str], folder: Path) -> None:
    """Asserts it for a compiler that does fuse a * b + c."""
    (folder / "bodies.c").write_text(SOURCE, encoding="ascii")
    (folder / "control.c").write_text(MULTIPLY_ADD, encoding="ascii")
    for level in ("-O2", "-O3", "-Os"):
        full = [*command, *FUSING, level, *INCLUDES, "-S", "-o", "-"]
        assert FUSED.search(run([*full, "control.c"], folder))
        assert not FUSED.search(run([*full, "bodies.c"], folder))


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m23"])
def test_without_a_float_unit_no_float_is_computed(core: str, tmp_path: Path) -> None:
    (tmp_path / "bodies.c").write_text(SOURCE, encoding="ascii")
    compile_both = ["arm-none-eabi-gcc", "-mthumb", f"-mcpu={core}", "-O2", "-std=c11", *INCLUDES, "-c"]
    run([*compile_both, "bodies.c", str(RUNTIME_SOURCE)], tmp_path)
    needed = set(re.findall(r" U (\w+)", run(["arm-none-eabi-nm", "bodies.o", "emitc_runtime.o"], tmp_path)))
    assert "emitc_rint_f32_exact" in needed
    assert needed <= {"emitc_rint_f32_exact", "__aeabi_lmul", "__aeabi_llsl", "__aeabi_llsr"}


FIRMWARE = """
#include "emitc_board.h"
#include "emitc_runtime.h"

static uint32_t mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

int main(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < PAIRS; i++) {
        const uint32_t r = mix(2 * i + 1);
        const uint32_t s = mix(2 * i + 2);
        const int32_t acc = (int32_t)r >> (s & 31);
        const uint32_t exponent = 127 - 30 + (s & 31) + ((s >> 5) & 15);
        const uint32_t mantissa = (s >> 9) & ((r & 1) != 0 ? 0x7fffffu : 0x700000u);
        const uint32_t bits = (exponent << 23) | mantissa;
        float scale;
        memcpy(&scale, &bits, sizeof scale);
        sum = sum * 31 + (uint32_t)emitc_output_f32(acc, scale, 3, -60000, 60000);
    }
    emitc_print("sum ");
    emitc_print_u32(sum);
    emitc_print("\\n");
    return 0;
}
"""
PAIRS = 100_000


def mix(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The firmware's function of the same name."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return np.asarray(x ^ (x >> np.uint32(16)), np.uint32)


def firmware_sum() -> int:
    """What the firmware prints, by numpy."""
    i = np.arange(PAIRS, dtype=np.uint32)
    r, s = mix(2 * i + 1), mix(2 * i + 2)
    acc = r.view(np.int32).astype(np.int64) >> (s & 31)
    exponent = 127 - 30 + (s & 31) + ((s >> 5) & 15)
    mantissa = (s >> 9) & np.where(r & 1 != 0, np.uint32(0x7FFFFF), np.uint32(0x700000))
    scale = (exponent << 23 | mantissa).astype(np.uint32).view(np.float32)
    rounded = requantize_float(acc, scale)
    assert np.count_nonzero((np.abs(rounded) < 60000) & (rounded != 0)) > PAIRS / 4
    total = 0
    for y in np.clip(rounded + 3, -60000, 60000).tolist():
        total = (total * 31 + y) % 2**32
    return total


BOARDS = {
    "m0": ("qemu_m0", ()),
    "m3": ("qemu_m3", ()),
    "m4f": ("qemu_m4", FUSING),
    "m4_integer": ("qemu_m4", ("-DEMITC_FLOAT_HARDWARE=0",)),
    "rv32imac": ("qemu_rv32", ()),
    "rv32imafc": ("qemu_rv32", ("-march=rv32imafc", "-mabi=ilp32f", *FUSING)),
}


@pytest.mark.board
@pytest.mark.parametrize("case", BOARDS)
def test_emulated_cores_give_the_same(case: str, tmp_path: Path) -> None:
    name, flags = BOARDS[case]
    assert f"sum {firmware_sum()}\n" in printed_by(FIRMWARE, name, (f"-DPAIRS={PAIRS}", *flags), tmp_path)
