"""exp and reciprocal in fixed point: against exact fractions of their definition, and against the real functions."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal, getcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest

from emitc.emit.render import environment
from emitc.layer import PLAIN
from emitc.numerics import gemmlowp
from emitc.numerics.gemmlowp import exp_on_negative_values, high_mul, one_over_one_plus_x, saturating_shift_left
from emitc.numerics.requantize import INT32_MAX, INT32_MIN
from emitc.verify.build import WARNINGS, run_compiler
from tests.support.runtime import INCLUDES

ROOT = Path(__file__).resolve().parents[2]


def test_high_mul_saturates_for_the_lowest_pair() -> None:
    assert high_mul(np.array([INT32_MIN]), INT32_MIN).tolist() == [INT32_MAX]
    assert high_mul(np.array([INT32_MIN]), INT32_MIN + 1).tolist() == [2**31 - 1]
    assert high_mul(np.array([INT32_MIN]), INT32_MAX).tolist() == [-(2**31) + 1]


def test_high_mul_rounds_half_up() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(INT32_MIN + 1, INT32_MAX, (2, 2000), endpoint=True)
    expected = [math.floor(Fraction(int(x) * int(y), 2**31) + Fraction(1, 2)) for x, y in zip(a, b, strict=True)]
    assert high_mul(a, b).tolist() == expected
    assert high_mul(np.array([1, -1, 3, -3]), 2**30).tolist() == [1, 0, 2, -1]


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        (1, 30, 2**30),
        (1, 31, INT32_MAX),
        (-1, 31, INT32_MIN),
        (-1, 32, INT32_MIN),
        (3, 30, INT32_MAX),
        (-5, 1, -10),
        (0, 31, 0),
    ],
)
def test_saturating_shift(value: int, bits: int, expected: int) -> None:
    assert int(saturating_shift_left(np.array(value), bits)) == expected


def taylor(raw: int, integer_bits: int) -> Decimal:
    """The definition in 40 digits, times 2**31: degree 4 around -1/8 within a quarter, exact for the whole quarters."""
    getcontext().prec = 40
    a = Decimal(raw) / 2 ** (31 - integer_bits)
    quarters = int((-a * 4).to_integral_value(ROUND_CEILING)) - 1
    x = a + Decimal(quarters) / 4 + Decimal(1) / 8
    polynomial = 1 + x + x**2 / 2 + x**3 / 6 + x**4 / 24
    return 2**31 * polynomial * (Decimal(-1) / 8).exp() * (-Decimal(quarters) / 4).exp()


@pytest.mark.parametrize("integer_bits", [0, 1, 2, 3, 4, 5])
def test_exp_is_its_definition(integer_bits: int) -> None:
    rng = np.random.default_rng(integer_bits)
    quarter = 1 << (29 - integer_bits)
    turns = [k * quarter + d for k in range(1, (2**31 // quarter) + 1) for d in (-1, 0, 1)]
    values = [1, 2, 3, 2**31, 2**31 - 1, *turns, *rng.integers(1, 2**31, 300).tolist()]
    raw = np.array([-v for v in values if 0 < v <= 2**31], np.int64)
    found = exp_on_negative_values(raw, integer_bits)
    assert found.min() >= 0
    errors = [abs(int(f) - taylor(int(r), integer_bits)) for f, r in zip(found, raw, strict=True)]
    assert max(errors) < 8


def test_constants_are_the_nearest_of_31_bits() -> None:
    getcontext().prec = 40

    def nearest(value: Decimal) -> int:
        return int((value * 2**31).to_integral_value(ROUND_HALF_EVEN))

    assert nearest((Decimal(-1) / 8).exp()) == gemmlowp._EXP_MINUS_EIGHTH
    assert nearest(Decimal(1) / 3) == gemmlowp._THIRD
    assert [power for power, _ in gemmlowp._EXP_OF_POWERS] == list(range(-2, 5))
    for power, factor in gemmlowp._EXP_OF_POWERS:
        assert nearest((-(Decimal(2) ** power)).exp()) == factor, power


def test_exp_is_close_to_the_real_one() -> None:
    raw = -np.arange(0, 2**31, 10007, dtype=np.int64)
    error = np.abs(exp_on_negative_values(raw, 5) / 2.0**31 - np.exp(raw / 2.0**26))
    # The polynomial leaves out x**5 / 120 at most 1/8 from its centre.
    assert error.max() < 2.0**-15 / 120


def test_exp_of_zero_is_the_largest_value() -> None:
    assert exp_on_negative_values(np.array([0]), 5).tolist() == [INT32_MAX]


def test_reciprocal_is_close_to_the_real_one() -> None:
    rng = np.random.default_rng(3)
    values = [0, 1, 2, 2**30, INT32_MAX - 1, INT32_MAX, *rng.integers(0, 2**31, 500).tolist()]
    for x in values:
        exact = Fraction(2**31) / (1 + Fraction(x, 2**31))
        assert abs(one_over_one_plus_x(x) - exact) < 16, x
    assert one_over_one_plus_x(0) == INT32_MAX


def test_c_reciprocal_equals_python(tmp_path: Path) -> None:
    members = "".join(
        f"    int32_t {name};\n" for name in ("rows", "depth", "steps", "bits", "clamp_low", "clamp_high")
    )
    template = environment().get_template("kernels/normalization/softmax.c.j2")
    kernel = f"struct emitc_softmax {{\n{members}}};\n{template.render(f=PLAIN)}"
    source, library = tmp_path / "reciprocal.c", tmp_path / "reciprocal.so"
    source.write_text(
        '#include "emitc_bits.h"\n'
        f"{kernel}\n"
        "void reciprocals(int32_t count, const int32_t *x, int32_t *y);\n"
        "void reciprocals(int32_t count, const int32_t *x, int32_t *y)\n"
        "{\n    for (int32_t i = 0; i < count; i++) {\n        y[i] = emitc_softmax_reciprocal(x[i]);\n    }\n}\n",
        encoding="ascii",
    )
    flags = [*WARNINGS, "-O2", "-Wno-unused-function", "-shared", "-fPIC"]
    run_compiler([*flags, *INCLUDES, str(source), "-o", str(library)])
    ffi = cffi.FFI()
    ffi.cdef("void reciprocals(int32_t count, const int32_t *x, int32_t *y);")
    lib: Any = ffi.dlopen(str(library))
    rng = np.random.default_rng(4)
    ends = [0, 1, 2, 3, 2**30 - 1, 2**30, 2**30 + 1, INT32_MAX - 1, INT32_MAX]
    x = np.array([*ends, *(2**k for k in range(31)), *rng.integers(0, 2**31, 3000)], np.int32)
    y = np.empty_like(x)
    lib.reciprocals(len(x), ffi.from_buffer("int32_t[]", x), ffi.from_buffer("int32_t[]", y))
    assert y.tolist() == [one_over_one_plus_x(int(v)) for v in x]
