"""The fixed-point helpers: Python against exact fractions, the C header against Python, around ties and at the ends."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from numpy.typing import NDArray

from emitc.ir import DType, Quantization, Tensor
from emitc.numerics import gemmlowp
from emitc.numerics.requantize import (
    INT32_MAX,
    INT32_MIN,
    Clamp,
    Int64,
    Multiplier,
    activation_clamp,
    multiplier_of,
    quantize_real,
    requantize,
    rounding_doubling_high_mul,
    rounding_shift_right,
    scale_ratio,
)
from emitc.verify.build import SANITIZE, WARNINGS, run_compiler
from tests.support.runtime import INCLUDES

EXTREMES = (INT32_MIN, INT32_MIN + 1, INT32_MIN + 2, -2, -1, 0, 1, 2, INT32_MAX - 2, INT32_MAX - 1, INT32_MAX)
FACTORS = (0, 1, 2**30, 2**30 + 1, 1518500250, 2**31 - 2, 2**31 - 1)

_LOOPS = """
#include "emitc_runtime.h"
void high_mul(size_t count, const int32_t *a, const int32_t *b, int32_t *y);
void round_shift(size_t count, const int32_t *x, const int32_t *right, int32_t *y);
void requantize(size_t count, const int32_t *acc, const int32_t *q31, const int32_t *shift, int32_t *y);
void output_s8(size_t count, const int32_t *acc, const int32_t *q31, const int32_t *shift, const int32_t *offset, int8_t *y);
void high_mul(size_t count, const int32_t *a, const int32_t *b, int32_t *y)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = emitc_high_mul(a[i], b[i]);
    }
}
void round_shift(size_t count, const int32_t *x, const int32_t *right, int32_t *y)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = emitc_round_shift(x[i], right[i]);
    }
}
void requantize(size_t count, const int32_t *acc, const int32_t *q31, const int32_t *shift, int32_t *y)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = emitc_requantize(acc[i], q31[i], shift[i]);
    }
}
void output_s8(size_t count, const int32_t *acc, const int32_t *q31, const int32_t *shift, const int32_t *offset, int8_t *y)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = emitc_output_s8(acc[i], q31[i], shift[i], offset[i], -128, 127);
    }
}
"""
_DECLARATIONS = "".join(line + "\n" for line in _LOOPS.splitlines() if line.startswith("void") and line.endswith(";"))
# Every helper at the ends of its domain, under the undefined-behaviour sanitizer.
_EDGES = """
#include "emitc_runtime.h"
static const int32_t values[] = {INT32_MIN, INT32_MIN + 1, -3, -2, -1, 0, 1, 2, 3, INT32_MAX - 1, INT32_MAX};
static const int32_t factors[] = {0, 1, 1 << 30, (1 << 30) + 1, INT32_MAX - 1, INT32_MAX};
int main(void)
{
    volatile int32_t sink = 0;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        for (int32_t right = 0; right <= 31; right++) {
            sink = emitc_round_shift(values[i], right);
        }
        for (size_t k = 0; k < sizeof factors / sizeof factors[0]; k++) {
            sink = emitc_high_mul(values[i], factors[k]);
            for (int32_t shift = -31; shift <= 30; shift++) {
                sink = emitc_requantize(values[i], factors[k], shift);
                sink = emitc_output_s8(values[i], factors[k], shift, 127, -128, 127);
                sink = emitc_output_s8(values[i], factors[k], shift, -128, -128, 127);
            }
        }
    }
    return (int)(sink & 0);
}
"""


def _vector(values: Iterable[int] | Int64) -> NDArray[np.int32]:
    array = np.fromiter(values, np.int64) if not isinstance(values, np.ndarray) else values
    assert array.min() >= INT32_MIN and array.max() <= INT32_MAX
    return np.ascontiguousarray(array, np.int32)


class Header:
    """The helpers of emitc_runtime.h over arrays."""

    def __init__(self, workdir: Path) -> None:
        source, library = workdir / "loops.c", workdir / "loops.so"
        source.write_text(_LOOPS, encoding="ascii")
        run_compiler([*WARNINGS, "-O2", "-shared", "-fPIC", *INCLUDES, str(source), "-o", str(library)])
        self._ffi = cffi.FFI()
        self._ffi.cdef(_DECLARATIONS)
        self._lib: Any = self._ffi.dlopen(str(library))

    def __call__(self, function: str, *operands: Int64, dtype: str = "int32") -> Int64:
        """The helper applied element by element to int32 operands that broadcast against each other."""
        arrays = [_vector(a.reshape(-1)) for a in np.broadcast_arrays(*operands)]
        result = np.empty(arrays[0].size, dtype)
        pointers = [self._ffi.from_buffer("int32_t[]", a) for a in arrays]
        output = self._ffi.from_buffer(f"{dtype}_t[]", result)
        getattr(self._lib, function)(arrays[0].size, *pointers, output)
        return result.astype(np.int64).reshape(np.broadcast_shapes(*(np.shape(a) for a in operands)))


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    """The compiled header."""
    return Header(tmp_path_factory.mktemp("header"))


def half_up(value: Fraction) -> int:
    """Nearest integer, ties up."""
    return math.floor(value + Fraction(1, 2))


def half_away(value: Fraction) -> int:
    """Nearest integer, ties away from zero."""
    return half_up(value) if value >= 0 else -half_up(-value)


def wrapped(value: int) -> int:
    """The int32 value of the same 32 low bits."""
    return (value + 2**31) % 2**32 - 2**31


def exact_requantize(acc: int, q31: int, shift: int) -> int:
    """The two roundings on exact fractions."""
    high = half_up(Fraction(wrapped(acc << max(shift, 0)) * q31, 2**31))
    return half_away(Fraction(high, 2 ** max(-shift, 0)))


def around_ties(right: int) -> list[int]:
    """int32 values two on either side of every kind of tie of a shift by `right`, and the extremes."""
    span = 1 << right
    multiples = {0, 1, 2, 3, 7, (1 << 30) // span, (INT32_MAX - span // 2) // span}
    centres = [sign * (k * span + span // 2) for k in multiples for sign in (-1, 1)]
    values = {c + d for c in centres for d in range(-2, 3)} | set(EXTREMES)
    return sorted(v for v in values if INT32_MIN <= v <= INT32_MAX)


def test_python_shift_rounds_half_away_exactly() -> None:
    for right in range(32):
        values = around_ties(right)
        found = rounding_shift_right(np.array(values, np.int64), right)
        assert found.tolist() == [half_away(Fraction(v, 1 << right)) for v in values], right


def test_python_high_mul_rounds_half_up_exactly() -> None:
    values = sorted(
        {*EXTREMES, *range(-300, 301), *(k * 2**20 + d for k in range(-2047, 2048, 89) for d in (-1, 0, 1))}
    )
    for q31 in FACTORS:
        found = rounding_doubling_high_mul(np.array(values, np.int64), q31)
        assert found.tolist() == [half_up(Fraction(v * q31, 2**31)) for v in values], q31
        assert gemmlowp.high_mul(np.array(values, np.int64), q31).tolist() == found.tolist()


def test_python_requantize_is_exact_for_every_shift() -> None:
    rng = np.random.default_rng(1)
    for shift in range(-31, 31):
        right = max(-shift, 0)
        values = sorted({*around_ties(right), *rng.integers(INT32_MIN, INT32_MAX, 40, endpoint=True).tolist()})
        for q31 in FACTORS:
            found = requantize(np.array(values, np.int64), q31, shift)
            assert found.tolist() == [exact_requantize(v, q31, shift) for v in values], (q31, shift)


def test_header_shift_equals_python(header: Header) -> None:
    for right in range(32):
        values = np.array(around_ties(right), np.int64)
        assert np.array_equal(header("round_shift", values, np.array(right)), rounding_shift_right(values, right)), (
            right
        )


def test_header_shift_equals_python_on_every_small_value(header: Header) -> None:
    values = np.arange(-(1 << 13), 1 << 13, dtype=np.int64)
    for right in range(32):
        assert np.array_equal(header("round_shift", values, np.array(right)), rounding_shift_right(values, right)), (
            right
        )


def test_header_high_mul_equals_python(header: Header) -> None:
    rng = np.random.default_rng(2)
    ends = np.array([*EXTREMES, *FACTORS, *(-f for f in FACTORS)], np.int64)
    a, b = np.meshgrid(ends, ends)
    both_lowest = (a == INT32_MIN) & (b == INT32_MIN)
    b = np.where(both_lowest, INT32_MAX, b)
    assert np.array_equal(header("high_mul", a, b), gemmlowp.high_mul(a, b))
    # An odd value times 2^30 is a tie every time.
    odd = np.arange(-4095, 4096, 2, dtype=np.int64)
    assert np.array_equal(header("high_mul", odd, np.array(2**30)), gemmlowp.high_mul(odd, 2**30))
    a, b = rng.integers(INT32_MIN, INT32_MAX, (2, 200_000), endpoint=True)
    assert np.array_equal(header("high_mul", a, b), gemmlowp.high_mul(a, b))


def test_header_requantize_equals_python_around_ties(header: Header) -> None:
    for shift in range(-31, 31):
        values = np.array(around_ties(max(-shift, 0)), np.int64)[:, None]
        q31 = np.array(FACTORS, np.int64)[None, :]
        assert np.array_equal(header("requantize", values, q31, np.array(shift)), requantize(values, q31, shift)), shift


def test_header_requantize_equals_python_on_every_small_accumulator(header: Header) -> None:
    values = np.arange(-(1 << 12), 1 << 12, dtype=np.int64)[:, None]
    q31 = np.array(FACTORS, np.int64)[None, :]
    for shift in range(-31, 31):
        assert np.array_equal(header("requantize", values, q31, np.array(shift)), requantize(values, q31, shift)), shift


def test_header_requantize_equals_python_on_a_million_random_triples(header: Header) -> None:
    rng = np.random.default_rng(3)
    count = 1_000_000
    # Half of the accumulators are of the size of a real layer's.
    acc = rng.integers(INT32_MIN, INT32_MAX, count, endpoint=True) >> (
        rng.integers(0, 2, count) * rng.integers(0, 24, count)
    )
    q31 = rng.integers(2**30, 2**31, count)
    shift = rng.integers(-31, 31, count)
    assert np.array_equal(header("requantize", acc, q31, shift), requantize(acc, q31, shift))


def test_header_output_is_requantized_moved_and_clamped(header: Header) -> None:
    rng = np.random.default_rng(4)
    acc = rng.integers(-(2**24), 2**24, 100_000)
    q31, shift = rng.integers(2**30, 2**31, acc.size), rng.integers(-31, 1, acc.size)
    for offset in (-128, 0, 127):
        expected = np.clip(requantize(acc, q31, shift) + offset, -128, 127)
        assert np.array_equal(header("output_s8", acc, q31, shift, np.array(offset), dtype="int8"), expected)


def test_header_output_wraps_where_the_requantized_value_leaves_int32(header: Header) -> None:
    # A left shift can bring the requantized value within the offset of an end of int32; the sum wraps like the shift.
    acc, q31, shift = np.array([INT32_MAX, INT32_MAX, INT32_MIN]), np.array(2**31 - 1), np.array(0)
    assert requantize(acc, q31, shift).tolist() == [2**31 - 2, 2**31 - 2, -(2**31) + 1]
    offset = np.array([1, 127, -128])
    assert header("output_s8", acc, q31, shift, offset, dtype="int8").tolist() == [127, -128, 127]


def test_header_has_no_undefined_behaviour_at_the_ends(tmp_path: Path) -> None:
    source, program = tmp_path / "edges.c", tmp_path / "edges"
    source.write_text(_EDGES, encoding="ascii")
    run_compiler(["-std=c11", *SANITIZE, *INCLUDES, str(source), "-o", str(program)])
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        pytest.param(0.0, Multiplier(0, 0), id="zero"),
        pytest.param(1.0, Multiplier(2**30, 1), id="one"),
        pytest.param(0.5, Multiplier(2**30, 0), id="smallest_multiplier"),
        pytest.param(1.0 - 2.0**-31, Multiplier(2**31 - 1, 0), id="largest_multiplier"),
        pytest.param(1.0 - 2.0**-32, Multiplier(2**30, 1), id="tie_rounds_up_into_the_next_exponent"),
        pytest.param(1.0 - 2.0**-33, Multiplier(2**30, 1), id="rounds_up_into_the_next_exponent"),
        pytest.param(0.5 + 2.0**-32, Multiplier(2**30 + 1, 0), id="tie_away_from_zero"),
        pytest.param(0.5 + 2.0**-32 - 2.0**-53, Multiplier(2**30, 0), id="under_a_tie"),
        pytest.param(2.0**-32, Multiplier(2**30, -31), id="smallest_factor"),
        pytest.param(2.0**-32 - 2.0**-60, Multiplier(0, 0), id="too_small_is_zero"),
        pytest.param(2.0**-32 * (1 - 2.0**-33), Multiplier(2**30, -31), id="rounds_up_to_the_smallest"),
        pytest.param(2.0**-200, Multiplier(0, 0), id="tiny"),
        pytest.param(2.0**30 - 1.0, Multiplier(2**31 - 2, 30), id="largest_factor"),
    ],
)
def test_multiplier(factor: float, expected: Multiplier) -> None:
    assert multiplier_of(factor) == expected


@pytest.mark.parametrize("factor", [2.0**30, 2.0**30 - 2.0**-4, 2.0**31, 1e300])
def test_multiplier_refuses_a_factor_that_needs_a_shift_over_30(factor: float) -> None:
    with pytest.raises(ValueError, match=r"factor .* is over 2\*\*30"):
        multiplier_of(factor)


def test_multiplier_is_the_nearest_of_its_exponent() -> None:
    rng = np.random.default_rng(5)
    for factor in np.exp2(rng.uniform(-31.9, 29.9, 5000)).tolist():
        m = multiplier_of(factor)
        assert 2**30 <= m.q31 < 2**31 and -31 <= m.shift <= 30
        exact = Fraction(factor) * Fraction(2) ** (31 - m.shift)
        assert abs(m.q31 - exact) <= Fraction(1, 2)


@pytest.mark.parametrize(
    ("value", "scale", "zero_point", "expected"),
    [
        pytest.param(6.0, 4.0, 0, 2, id="tie_up"),
        pytest.param(-1.0, 2.0, 0, -1, id="negative_tie_away"),
        pytest.param(-1.0, 2.0, 5, 4, id="zero_point"),
        pytest.param(6.0, 0.1, -128, -68, id="float32_quotient"),
        pytest.param(6.0, 0.0235294122248888, -128, 127, id="relu6_scale"),
        pytest.param(0.0, 1e-30, 3, 3, id="zero"),
    ],
)
def test_quantized_real(value: float, scale: float, zero_point: int, expected: int) -> None:
    assert quantize_real(value, float(np.float32(scale)), zero_point) == expected


@pytest.mark.parametrize(
    ("activation", "scale", "zero_point", "expected"),
    [
        pytest.param("NONE", 0.1, 5, Clamp(-128, 127), id="none"),
        pytest.param("RELU", 0.1, 5, Clamp(5, 127), id="relu"),
        pytest.param("RELU", 0.1, -128, Clamp(-128, 127), id="relu_low_zero_point"),
        pytest.param("RELU", 0.1, 127, Clamp(127, 127), id="relu_high_zero_point"),
        pytest.param("RELU6", 0.1, 5, Clamp(5, 65), id="relu6"),
        pytest.param("RELU6", 0.01, 5, Clamp(5, 127), id="relu6_over_the_type"),
        pytest.param("RELU6", 1e9, -3, Clamp(-3, -3), id="relu6_of_one_value"),
        pytest.param("RELU_N1_TO_1", 0.1, 5, Clamp(-5, 15), id="relu_n1_to_1"),
        pytest.param("RELU_N1_TO_1", 0.001, 5, Clamp(-128, 127), id="relu_n1_to_1_over_the_type"),
        pytest.param("RELU_N1_TO_1", 2.0, 0, Clamp(-1, 1), id="relu_n1_to_1_ties"),
        pytest.param("RELU6", 1e-44, 0, Clamp(0, 127), id="quotient_over_float32"),
        pytest.param("RELU_N1_TO_1", 1e-44, 0, Clamp(-128, 127), id="quotients_over_float32"),
    ],
)
def test_activation_clamp(activation: str, scale: float, zero_point: int, expected: Clamp) -> None:
    output = Tensor("y", DType.INT8, (1,), Quantization((float(np.float32(scale)),), (zero_point,)))
    assert activation_clamp(activation, output) == expected


def test_clamp_limits_before_it_narrows() -> None:
    values = np.array([-1000, -128, 0, 127, 300], np.int64)
    assert Clamp(-128, 127).apply(values, DType.INT8).tolist() == [-128, -128, 0, 127, 127]
    assert Clamp(-5, 5).apply(values, DType.INT8).dtype == np.int8


def test_scale_ratio_keeps_the_order_of_the_doubles() -> None:
    a, b, c = (float(np.float32(v)) for v in (0.1, 0.3, 0.7))
    assert scale_ratio(a, b, over=c) == a * b / c
