"""emitc_output_s16 and emitc_output_s16_wide against the Python rule: round every tie, at the ends, at random; both bodies."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import cffi
import numpy as np
import pytest

from emitc.numerics.requantize import REDUCED_SUM_LIMIT, Int64, reduced_multiplier, requantize_reduced
from emitc.verify.build import WARNINGS, run_compiler
from tests.support.runtime import INCLUDES

CHECKED = ("-O1", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
BODIES = {
    "usual": ("-O2",),
    "narrow": ("-O2", "-DEMITC_NARROW_MULTIPLY"),
    "usual_checked": CHECKED,
    "narrow_checked": (*CHECKED, "-DEMITC_NARROW_MULTIPLY"),
}
DECLARED = """
void outputs(int32_t n, const int64_t *acc, int32_t m, int32_t shift, int16_t *y);
void wide_outputs(int32_t n, const int64_t *acc, int32_t m, int32_t shift, int16_t *y);
"""
SOURCE = f"""#include "emitc_runtime.h"
{DECLARED}
void outputs(int32_t n, const int64_t *acc, int32_t m, int32_t shift, int16_t *y)
{{
    for (int32_t i = 0; i < n; i++) {{
        y[i] = emitc_output_s16((int32_t)acc[i], m, -shift - 1, -32768, 32767);
    }}
}}
void wide_outputs(int32_t n, const int64_t *acc, int32_t m, int32_t shift, int16_t *y)
{{
    for (int32_t i = 0; i < n; i++) {{
        y[i] = emitc_output_s16_wide(acc[i], m, 15 - shift, -32768, 32767);
    }}
}}
"""
Q31 = (0, 1 << 30, (1 << 30) + (1 << 15), 1518500250, 0x7FFEFFFF, 0x7FFF0000, (1 << 31) - 1)
Outputs = Callable[[str, Int64, int, int], Int64]


@pytest.fixture(scope="module", params=BODIES)
def outputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """The functions of one body: name, sums, Q31 multiplier, shift."""
    folder = tmp_path_factory.mktemp("int16")
    source, library = folder / "outputs.c", folder / "outputs.so"
    source.write_text(SOURCE, encoding="ascii")
    flags = [*WARNINGS, *BODIES[request.param], "-shared", "-fPIC", *INCLUDES]
    run_compiler([*flags, str(source), "-o", str(library)])
    ffi = cffi.FFI()
    ffi.cdef(DECLARED)
    loaded = ffi.dlopen(str(library))

    def run(name: str, acc: Int64, q31: int, shift: int) -> Int64:
        values, found = np.ascontiguousarray(acc, np.int64), np.zeros(acc.size, np.int16)
        sums, results = ffi.from_buffer("int64_t[]", values), ffi.from_buffer("int16_t[]", found)
        getattr(loaded, name)(acc.size, sums, reduced_multiplier(q31), shift, results)
        return found.astype(np.int64)

    return run


def sums(limit: int, q31: int, shift: int, seed: int) -> Int64:
    """Up to `limit` in magnitude: small ones, the ends, at random in every octave, and those at ties."""
    rng = np.random.default_rng(seed)
    ends = np.array([0, 1, limit - 1, limit - 2, 32767, 65536], np.int64)
    octaves = np.concatenate([rng.integers(0, 1 << bits, 300) for bits in range(1, limit.bit_length())])
    m, step = max(1, reduced_multiplier(q31)), 1 << (15 - shift)
    ties = ((2 * np.arange(-(2**11), 2**11, dtype=object) + 1) * (step // 2)) // m
    near = np.array([t + d for t in ties for d in (0, 1) if abs(t + d) < limit], np.int64)
    found = np.concatenate([np.arange(1000), ends, octaves])
    return np.concatenate([found, -found, near])


@pytest.mark.parametrize("shift", [-31, -30, -17, -16, -9, -5, -3, -2])
def test_sums_of_32_bits(outputs: Outputs, shift: int) -> None:
    for q31 in Q31:
        acc = sums(1 << 31, q31, shift, -shift)
        assert np.array_equal(
            outputs("outputs", acc, q31, shift), np.clip(requantize_reduced(acc, q31, shift), -32768, 32767)
        )


@pytest.mark.parametrize("shift", [-31, -30, -17, -9, -2, -1, 0, 1, 6, 7])
def test_sums_of_64_bits(outputs: Outputs, shift: int) -> None:
    for q31 in Q31:
        acc = sums(REDUCED_SUM_LIMIT, q31, shift, 40 - shift)
        expected = np.clip(requantize_reduced(acc, q31, shift), -32768, 32767)
        assert np.array_equal(outputs("wide_outputs", acc, q31, shift), expected)


def test_the_rule_is_half_up() -> None:
    """By exact fractions."""
    for q31, shift in ((1 << 30, -3), (1518500250, -8), (0x7FFF0000, 2), ((1 << 31) - 1, -20)):
        acc = sums(1 << 20, q31, shift, 5)[:4000]
        factor = Fraction(reduced_multiplier(q31), 1 << (15 - shift))
        exact = [int((int(a) * factor + Fraction(1, 2)).__floor__()) for a in acc]
        assert requantize_reduced(acc, q31, shift).tolist() == exact
