"""emitc_fused by integers, and the reference's fused step: products and sums rounded once, next to ties and zeros too."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cffi
import numpy as np
import pytest

from emitc.numerics.engine_functions import fused
from emitc.numerics.requantize import Float32
from emitc.verify.build import WARNINGS, run_compiler
from tests.support.runtime import INCLUDES

COUNT = 20_000
SOURCE = """
#include "emitc_tanh.h"
void steps(int32_t n, const float *a, const float *b, const float *c, float *y);
void steps(int32_t n, const float *a, const float *b, const float *c, float *y)
{
    for (int32_t i = 0; i < n; i++) {
        y[i] = emitc_fused(a[i], b[i], c[i]);
    }
}
"""


def operands() -> tuple[Float32, Float32, Float32]:
    """Of any sizes; sums that cancel; products one bit from a tie of c; products that are ties; zeros."""
    rng = np.random.default_rng(0)

    def reals(low: int, high: int) -> Float32:
        sign = rng.choice([-1.0, 1.0], COUNT)
        return np.asarray((sign * rng.uniform(1, 2, COUNT) * 2.0 ** rng.integers(low, high, COUNT)).astype(np.float32))

    a, b, c = reals(-12, 13), reals(-12, 13), reals(-30, 30)
    quarter = COUNT // 4
    c[:quarter] = -(a[:quarter] * b[:quarter])
    # Half a unit of c's last place, and 2**-46 of that more or less.
    tie = slice(quarter, 2 * quarter)
    c[tie] = np.float32(2.0**23) + rng.integers(0, 1000, quarter).astype(np.float32)
    a[tie] = np.float32(0.5) * (1 + np.float32(2.0**-23) * rng.choice([-1, 0, 1], quarter).astype(np.float32))
    b[tie] = 1 + np.float32(2.0**-23) * rng.choice([-1, 0, 1], quarter).astype(np.float32)
    # Products of 25 bits, which are ties, and sums so far below them that only their sign counts.
    far = slice(2 * quarter, 3 * quarter)
    a[far] = 4097.0 + 2.0 * rng.integers(0, 1000, quarter).astype(np.float32)
    b[far] = 4097.0 + 2.0 * rng.integers(0, 300, quarter).astype(np.float32)
    c[far] = reals(-60, -10)[far]
    a[-10:], c[-5:] = 0.0, 0.0
    return a, b, c


def exactly(a: Float32, b: Float32, c: Float32) -> Float32:
    """The exact sums, rounded half to even by way of integers."""
    found = []
    for values in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        x, y, z = (Fraction(value) for value in values)
        total = x * y + z
        if total == 0:
            found.append(0.0)
            continue
        places = 23 - (abs(total).numerator.bit_length() - total.denominator.bit_length())
        scaled = total * Fraction(2) ** places
        if abs(scaled) < 1 << 23:
            places += 1
        found.append(float(round(total * Fraction(2) ** places) / Fraction(2) ** places))
    return np.array(found, np.float32)


def by_integers(folder: Path, values: tuple[Float32, Float32, Float32]) -> Float32:
    """emitc_fused as machines have it for which the runtime knows no instruction."""
    source, library = folder / "steps.c", folder / "steps.so"
    source.write_text(SOURCE, encoding="ascii")
    run_compiler(["-O2", *WARNINGS, "-shared", "-fPIC", *INCLUDES, str(source), "-o", str(library)])
    ffi = cffi.FFI()
    ffi.cdef("void steps(int32_t n, const float *a, const float *b, const float *c, float *y);")
    y = np.empty(COUNT, np.float32)
    pointers = [ffi.cast("float *", array.ctypes.data) for array in (*values, y)]
    ffi.dlopen(str(library)).steps(COUNT, *pointers)
    return y


@pytest.mark.parametrize("form", ["integers", "reference"])
def test_every_step_is_rounded_once(form: str, tmp_path: Path) -> None:
    values = operands()
    found = by_integers(tmp_path, values) if form == "integers" else fused(*values)
    expected = exactly(*values)
    assert np.count_nonzero(found != expected) == 0
