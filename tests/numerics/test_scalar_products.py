"""emitc_scalar.h on this machine: requantization by products of 32 bits, and products of two pixels in one word."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.runtime import INCLUDES

PROGRAM = r"""
#include "emitc_scalar.h"

#include <stdio.h>

static uint32_t state = 1;

static uint32_t next(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* What TFLite Micro computes, with the output's offset and the limits of its type. */
static int8_t expected(int32_t acc, int32_t q31, int32_t right, int32_t zero)
{
    return emitc_output_s8(acc, q31, -right, zero, -128, 127);
}

static int wrong(int32_t acc, int32_t q31, int32_t right, int32_t zero)
{
    const int32_t start = (2 * zero + 1) * (1 << right) + 1;
    const int8_t whole = expected(acc, q31, right, zero);
    const int8_t rectified = (int8_t)(whole < zero ? zero : whole);
    const int32_t up = emitc_result_up(acc, q31, right, start);
    int differ = emitc_result_away(acc, q31, right, start) != whole || (up < zero ? zero : up) != rectified;
    if (acc > -(1 << 20) && acc < 1 << 20 && right <= 13) {
        const int32_t small = emitc_result_up_small(acc, q31, right, start);
        differ |= emitc_result_away_small(acc, q31, right, start) != whole || (small < zero ? zero : small) != rectified;
    }
    return differ;
}

/* Whether float32 factors by their parts give what floats give; acc stays within int32 where it is moved. */
static int wrong_parts(int64_t wanted, int32_t mantissa, int32_t left, int32_t zero)
{
    const int64_t most = INT32_MAX >> left;
    const int32_t acc = (int32_t)(wanted > most ? most : wanted < -most ? -most : wanted);
    const uint32_t bits = ((uint32_t)(left + 111) << 23) | (((uint32_t)mantissa >> 7) & 0x7fffffu);
    float factor;
    memcpy(&factor, &bits, sizeof factor);
    if (emitc_result_exact(acc, mantissa, left, zero) != emitc_output_f32(acc, factor, zero, -128, 127)) {
        printf("parts %d * %d << %d + %d\n", (int)acc, (int)mantissa, (int)left, (int)zero);
        return 1;
    }
    return 0;
}

int main(void)
{
    static const int32_t mantissas[] = {0x800000, 0x800001, 0xaaaaaa, 0xc00000, 0xfffffe, 0xffffff};
    for (int32_t left = 0; left <= 30; left++) {
        for (int32_t f = 0; f < 6; f++) {
            for (int32_t i = -2000; i < 2000; i++) {
                /* Sums near every half of an output: (k + 1/2) * 2^(46 - left) / mantissa. */
                const int64_t half = ((int64_t)(i / 8) * 2 + 1) * ((int64_t)1 << (45 - left)) / ((int64_t)mantissas[f] << 7);
                if (wrong_parts(half + i % 8, mantissas[f] << 7, left, i & 127)) {
                    return 1;
                }
            }
        }
    }
    for (int32_t i = 0; i < 2000000; i++) {
        const int32_t left = (int32_t)(next() % 31);
        const int32_t mantissa = (int32_t)((next() & 0x7fffffu) | 0x800000u) << 7;
        if (wrong_parts((int32_t)next() >> (left + (int32_t)(next() % (uint32_t)(32 - left))), mantissa, left, 3)) {
            return 1;
        }
    }
    static const int32_t factors[] = {1 << 30, (1 << 30) + 1, 0x55555555, 0x7fffffff, 0x7ffff801, 0x400007ff};
    static const int32_t zeros[] = {-128, -127, -1, 0, 5, 127};
    for (int32_t right = 1; right <= 22; right++) {
        for (int32_t f = 0; f < 6; f++) {
            for (int32_t z = 0; z < 6; z++) {
                for (int32_t i = -2000; i < 2000; i++) {
                    /* Sums near every half of an output, and the largest ones. */
                    const int64_t half = ((int64_t)(i / 8) * 2 + 1) * ((int64_t)1 << (31 + right));
                    const int32_t near = (int32_t)(half / (2 * (int64_t)factors[f])) + i % 8;
                    const int32_t acc = near > -(1 << 29) && near < 1 << 29 ? near : (1 << 29) - 1 - (i & 7);
                    if (wrong(acc, factors[f], right, zeros[z]) || wrong(-acc, factors[f], right, zeros[z])) {
                        printf("requantize %d * %d >> %d + %d\n", (int)acc, (int)factors[f], (int)right, (int)zeros[z]);
                        return 1;
                    }
                }
            }
        }
    }
    for (int32_t i = 0; i < 2000000; i++) {
        const int32_t acc = (int32_t)next() >> (3 + next() % 20);
        const int32_t q31 = (int32_t)(next() >> 2) | 1 << 30;
        if (wrong(acc, q31, 1 + (int32_t)(next() % 22), (int32_t)(next() & 255) - 128)) {
            printf("requantize %d * %d\n", (int)acc, (int)q31);
            return 1;
        }
    }
    for (int32_t i = 0; i < 100000; i++) {
        const int32_t a = (int32_t)next();
        const int32_t b = (int32_t)(next() >> 1);
        if (emitc_scalar_high(a, b) != (int32_t)(((int64_t)a * b) >> 32)) {
            printf("high %d * %d\n", (int)a, (int)b);
            return 1;
        }
    }
    for (int32_t pairs = 1; pairs < 9; pairs++) {
        for (int32_t i = 0; i < 3000; i++) {
            int8_t values[4][16];
            int8_t weights[32];
            uint32_t words[32];
            int32_t sums[2][4];
            for (int32_t k = 0; k < 2 * pairs; k++) {
                for (int32_t pixel = 0; pixel < 4; pixel++) {
                    values[pixel][k] = (int8_t)((i & 3) == 0 ? -128 : (i & 3) == 1 ? 127 : (int32_t)(next() & 255) - 128);
                }
                weights[k] = (int8_t)((i & 7) < 2 ? -127 : (i & 7) == 2 ? 127 : (int32_t)(next() % 255) - 127);
                weights[2 * pairs + k] = (int8_t)((int32_t)(next() % 255) - 127);
            }
            const int32_t bias[2] = {(int32_t)next() >> 4, (int32_t)next() >> 12};
            for (int32_t channel = 0; channel < 2; channel++) {
                for (int32_t pixel = 0; pixel < 4; pixel++) {
                    sums[channel][pixel] = bias[channel];
                    for (int32_t k = 0; k < 2 * pairs; k++) {
                        sums[channel][pixel] += values[pixel][k] * weights[2 * pairs * channel + k];
                    }
                }
            }
            (void)emitc_joined(words, values[0], values[1], 2 * pairs);
            (void)emitc_joined(words + 1, values[2], values[3], 2 * pairs);
            const int8_t *w = weights;
            const emitc_acc4 one = emitc_halves_sums(bias[0], words, &w, pairs);
            const int8_t *v = weights;
            const emitc_eight two = emitc_halves_two(bias[0], bias[1], words, &v, pairs);
            if (w != weights + 2 * pairs || v != weights + 4 * pairs || one.a0 != sums[0][0] || one.a1 != sums[0][1] ||
                one.a2 != sums[0][2] || one.a3 != sums[0][3] || two.a.a0 != sums[0][0] || two.a.a1 != sums[0][1] ||
                two.a.a2 != sums[0][2] || two.a.a3 != sums[0][3] || two.b.a0 != sums[1][0] || two.b.a1 != sums[1][1] ||
                two.b.a2 != sums[1][2] || two.b.a3 != sums[1][3]) {
                printf("sums of %d pairs\n", (int)pairs);
                return 1;
            }
        }
    }
    return 0;
}
"""


@pytest.mark.parametrize("options", [(), ("-DEMITC_NARROW_MULTIPLY",)], ids=["long", "narrow"])
def test_products_and_requantization(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "main.c").write_text(PROGRAM, encoding="ascii")
    flags = (
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-fsanitize=undefined",
        "-fno-sanitize-recover",
    )
    command = ["gcc", *flags, *options, *INCLUDES, "main.c", "-o", "main"]
    subprocess.run(command, check=True, cwd=tmp_path)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
