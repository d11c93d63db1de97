/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores without instructions for pairs or vectors (Cortex-M0, M0+, M3, RV32IMC, ...): two products by one
 * multiplication of 32 bits.
 *
 * Part of a package whose kernels use it. Every core compiles the same functions from plain C, with the same results.
 *
 * A word holds the same value of two pixels: first + 2^16 * second. A weight times that word holds both products in the
 * same way, and so does the sum of two such products, which have 16 bits. Two running sums separate them: one of the
 * whole words, modulo 2^32, and one of the upper halves; what the upper halves add up to is the second pixel's sum, and
 * the rest of the words the first one's. Half of 2^16 is added to each word first, so that a negative lower half
 * borrows nothing from the upper one.
 *
 * A gcc that keeps a register for itself, by -fno-omit-frame-pointer or the like, says that the constraints of an
 * operand are impossible or inconsistent: compile without that option, or with EMITC_NO_ASM.
 */
#ifndef EMITC_SCALAR_H
#define EMITC_SCALAR_H

#include "emitc_runtime.h"

#if EMITC_ASM && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#if defined(__ARM_ARCH_6M__)
#define EMITC_SCALAR_V6M 1
#elif defined(__ARM_ARCH_7M__)
#define EMITC_SCALAR_V7M 1
#elif defined(__riscv) && __riscv_xlen == 32 && !defined(__riscv_32e)
#define EMITC_SCALAR_RV32 1
#endif
#endif

/* Output channels whose sums are made at once: as many as there are registers for. */
#if defined(__thumb__) || defined(__riscv_32e)
#define EMITC_SCALAR_TOGETHER 1
#else
#define EMITC_SCALAR_TOGETHER 2
#endif

#define EMITC_HALF 0x8000u

/* A condition that seldom holds, so that what depends on it lies out of the way. */
#if defined(EMITC_SCALAR_RV32)
#define EMITC_SELDOM(condition) __builtin_expect(condition, 0)
#else
#define EMITC_SELDOM(condition) (condition)
#endif

/* The same number, of which a compiler knows nothing more. It derives other numbers from it where they are needed. */
EMITC_ALWAYS_INLINE int32_t emitc_opaque(int32_t x)
{
#if EMITC_ASM
    __asm__("" : "+r"(x));
#endif
    return x;
}

/* The high word of a * b; b >= 0. */
EMITC_ALWAYS_INLINE int32_t emitc_scalar_high(int32_t a, int32_t b)
{
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__) || defined(EMITC_NARROW_MULTIPLY)
    /* No multiplication gives 64 bits there. */
    const int32_t a_high = a >> 16;
    const int32_t b_high = b >> 16;
    const uint32_t a_low = (uint32_t)a & 0xffffu;
    const uint32_t b_low = (uint32_t)b & 0xffffu;
    const int32_t side = a_high * (int32_t)b_low;
    const uint32_t middle = a_low * (uint32_t)b_high + ((a_low * b_low) >> 16);
    const uint32_t carry = (((uint32_t)side & 0xffffu) + (middle & 0xffffu)) >> 16;
    return a_high * b_high + (side >> 16) + (int32_t)(middle >> 16) + (int32_t)carry;
#else
    return (int32_t)(((int64_t)a * b) >> 32);
#endif
}

/* The nearest of -128..127, which a store narrows: as an int8_t it would be extended again first. */
EMITC_ALWAYS_INLINE int32_t emitc_nearest_s8(int32_t x)
{
#if defined(__ARM_ARCH_7M__) && EMITC_ASM
    int32_t limited;
    __asm__("ssat %0, #8, %1" : "=r"(limited) : "r"(x));
    return limited;
#elif defined(__riscv)
    const int32_t sign = x >> 31;
    return x >> 7 == sign ? x : sign ^ 127;
#else
    const int32_t low = (int32_t)((uint32_t)x << 24) >> 24;
    /* Cortex-M0 gets fewer instructions for this. */
    return (int8_t)(low == x ? x : (x >> 31) ^ 127);
#endif
}

/* A sum as the int8 output, where the output's lower limit is its zero point: the two roundings of TFLite Micro's
 * requantization agree with halves up from there on. acc << left: four times the sum, under 2^31; left: 0 or 2. right
 * in 1..22, start = (2 * zero point + 1) * 2^right + 1. */
EMITC_ALWAYS_INLINE int32_t emitc_rounded_up(int32_t acc, int32_t left, int32_t q31, int32_t right, int32_t start)
{
#if defined(EMITC_SCALAR_RV32)
    /* A sum that is not positive has the lower limit, without a product. A result within the limits takes no branch. */
    int32_t y;
    __asm__("li %[y], -128\n\t"
            "blez %[acc], 1f\n\t"
            ".if %[left]\n\tslli %[acc], %[acc], %[left]\n\t.endif\n\t"
            "mulh %[y], %[acc], %[q31]\n\t"
            "add %[y], %[y], %[start]\n\tsra %[y], %[y], %[shift]\n\t"
            "srai %[acc], %[y], 7\n\tbgtz %[acc], 2f\n1:\n\t"
            ".subsection 1\n2:\n\tli %[y], 127\n\tj 1b\n\t.previous"
            : [y] "=&r"(y), [acc] "+r"(acc)
            : [left] "i"(left), [q31] "r"(q31), [start] "r"(start), [shift] "r"(right + 1));
    return y;
#else
    return emitc_nearest_s8((emitc_scalar_high(left != 0 ? 4 * acc : acc, q31) + start) >> (right + 1));
#endif
}

/* The same of four times the sum. */
EMITC_ALWAYS_INLINE int32_t emitc_result_up_times4(int32_t acc4, int32_t q31, int32_t right, int32_t start)
{
    return emitc_rounded_up(acc4, 0, q31, right, start);
}

/* The same of the sum; acc under 2^29. */
EMITC_ALWAYS_INLINE int32_t emitc_result_up(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    return emitc_rounded_up(acc, 2, q31, right, start);
}

/* emitc_result_up_times4 for outputs of either sign: the second rounding is away from zero, so that a negative value is
 * 1 less before it. */
EMITC_ALWAYS_INLINE int32_t emitc_result_away_times4(int32_t acc4, int32_t q31, int32_t right, int32_t start)
{
    const int32_t scaled = (emitc_scalar_high(acc4, q31) + 1) >> 1;
    return emitc_nearest_s8((scaled + (scaled >> 31) + (start >> 1)) >> right);
}

/* The same of the sum; acc under 2^29. */
EMITC_ALWAYS_INLINE int32_t emitc_result_away(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    return emitc_result_away_times4(4 * acc, q31, right, start);
}

/* acc * q31 / 2^21 rounded down, by products of 32 bits: for cores that have no others. acc under 2^20. */
EMITC_ALWAYS_INLINE int32_t emitc_scaled_small(int32_t acc, int32_t q31)
{
    const int32_t low = (acc * (q31 & 0x7ff)) >> 11;
    return acc * (q31 >> 21) + ((acc * ((q31 >> 11) & 0x3ff) + low) >> 10);
}

/* emitc_result_up for acc under 2^20 and right in 1..13. */
EMITC_ALWAYS_INLINE int32_t emitc_result_up_small(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    return emitc_nearest_s8((emitc_scaled_small(acc, q31) + start * 512) >> (right + 10));
}

/* emitc_result_away for acc under 2^20 and right in 1..13. */
EMITC_ALWAYS_INLINE int32_t emitc_result_away_small(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    const int32_t scaled = (emitc_scaled_small(acc, q31) + 512) >> 10;
    return emitc_nearest_s8((scaled + (scaled >> 31) + (start >> 1)) >> right);
}

/* emitc_rint_f32 by the parts of the factor. */
EMITC_NOINLINE int32_t emitc_rint_parts(int32_t acc, int32_t mantissa, int32_t left)
{
    const uint32_t bits = ((uint32_t)(left + 111) << 23) | (((uint32_t)mantissa >> 7) & 0x7fffffu);
#if EMITC_FLOAT_HARDWARE
    float factor;
    memcpy(&factor, &bits, sizeof factor);
    return emitc_rint_f32(acc, factor);
#else
    return emitc_rint_f32_exact(acc, bits);
#endif
}

/* A sum as the int8 output by a float32 factor, mantissa * 2^(left - 46), without a float: emitc_output_f32 where the
 * limits are those of the type. mantissa in 2^30..2^31, left in 0..30, acc * 2^left within int32. */
EMITC_ALWAYS_INLINE int32_t emitc_result_exact(int32_t acc, int32_t mantissa, int32_t left, int32_t offset)
{
    /* The product with 14 bits of fraction, rounded down, half of them and half of the range below added:
     * emitc_rint_f32 of the runtime says why to nearest is right farther than 72 of these units from a half. */
    const int32_t fixed = emitc_scalar_high((int32_t)((uint32_t)acc << left), mantissa) + (1 << 13) + 72;
    if (((uint32_t)fixed & 0x3fffu) < 144u) {
        return emitc_nearest_s8(emitc_rint_parts(acc, mantissa, left) + offset);
    }
    return emitc_nearest_s8((fixed >> 14) + offset);
}

/* Values of two pixels as words, every second one from `to` on; returns where the next ones go. */
EMITC_ALWAYS_INLINE uint32_t *emitc_joined(uint32_t *to, const int8_t *first, const int8_t *second, int32_t n)
{
    for (; n > 0; n--) {
        *to = (uint32_t)*first++ + ((uint32_t)*second++ << 16);
        to += 2;
    }
    return to;
}

#if defined(EMITC_SCALAR_V7M)
#define EMITC_HALVES_PAIR \
    "ldm %[x]!, {r0, r1, r2, r3}\n\t" \
    "ldrsb %[a], [%[w]], #1\n\t" \
    "mla r0, r0, %[a], %[half]\n\t" \
    "mla r1, r1, %[a], %[half]\n\t" \
    "ldrsb %[a], [%[w]], #1\n\t" \
    "mla r0, r2, %[a], r0\n\t" \
    "mla r1, r3, %[a], r1\n\t" \
    "add %[s01], r0\n\t" \
    "add %[s23], r1\n\t" \
    "add %[h01], %[h01], r0, asr #16\n\t" \
    "add %[h23], %[h23], r1, asr #16\n\t"
#endif

/* The sums of four pixels and one channel: bias + the products of 2 * pairs weights, which *weights moves past; pairs
 * > 0. x: for each weight the words of the first two and of the last two pixels. The products of two weights from an
 * even place on have 16 bits together. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_halves_sums(int32_t bias, const uint32_t *x, const int8_t **weights, int32_t pairs)
{
    const int8_t *w = *weights;
    uint32_t s01 = (uint32_t)bias * 0x10001u - (uint32_t)pairs * EMITC_HALF;
    int32_t h01 = bias;
    int32_t h23 = bias;
#if defined(EMITC_SCALAR_V6M)
    uint32_t s23 = s01;
    const int8_t *const end = w + 2 * pairs;
    int32_t place = -2 * pairs;
    register uint32_t half __asm__("r12") = EMITC_HALF;
    register uint32_t p0 __asm__("r0");
    register uint32_t p1 __asm__("r1");
    register uint32_t p2 __asm__("r2");
    register uint32_t p3 __asm__("r3");
    register uint32_t t01 __asm__("r8") = s01;
    register uint32_t t23 __asm__("r9") = s01;
    register int32_t u01 __asm__("r10") = bias;
    register int32_t u23 __asm__("r11") = bias;
    int32_t a;
    __asm__(
        ".syntax unified\n"
        "1:\n\t"
        "ldmia %[x]!, {r0, r1, r2, r3}\n\t"
        "ldrsb %[a], [%[w], %[place]]\n\t"
        "adds %[place], #1\n\t"
        "muls r0, %[a], r0\n\t"
        "muls r1, %[a], r1\n\t"
        "ldrsb %[a], [%[w], %[place]]\n\t"
        "muls r2, %[a], r2\n\t"
        "muls r3, %[a], r3\n\t"
        "adds r0, r0, r2\n\t"
        "adds r1, r1, r3\n\t"
        "add r0, %[half]\n\t"
        "add r1, %[half]\n\t"
        "add %[s01], r0\n\t"
        "add %[s23], r1\n\t"
        "asrs r0, r0, #16\n\t"
        "asrs r1, r1, #16\n\t"
        "add %[h01], r0\n\t"
        "add %[h23], r1\n\t"
        "adds %[place], #1\n\t"
        "bne 1b\n\t"
        : [s01] "+h"(t01), [s23] "+h"(t23), [h01] "+h"(u01), [h23] "+h"(u23), [x] "+l"(x), [place] "+l"(place),
            [a] "=&l"(a), "=&l"(p0), "=&l"(p1), "=&l"(p2), "=&l"(p3)
        : [w] "l"(end), [half] "h"(half)
        : "cc", "memory");
    w = end;
    s01 = t01;
    s23 = t23;
    h01 = u01;
    h23 = u23;
#elif defined(EMITC_SCALAR_V7M)
    uint32_t s23 = s01;
    const uint32_t *const end = x + 4 * pairs;
    const uint32_t *const most = end - (pairs & 3) * 4;
    const uint32_t half = EMITC_HALF;
    register uint32_t p0 __asm__("r0");
    register uint32_t p1 __asm__("r1");
    register uint32_t p2 __asm__("r2");
    register uint32_t p3 __asm__("r3");
    const uint32_t *a;
    __asm__(
        "b 2f\n"
        "1:\n\t" EMITC_HALVES_PAIR EMITC_HALVES_PAIR EMITC_HALVES_PAIR EMITC_HALVES_PAIR
        "2:\n\t"
        "ldr %[a], %[most]\n\t"
        "cmp %[x], %[a]\n\t"
        "bne 1b\n\t"
        "b 4f\n"
        "3:\n\t" EMITC_HALVES_PAIR
        "4:\n\t"
        "ldr %[a], %[end]\n\t"
        "cmp %[x], %[a]\n\t"
        "bne 3b\n\t"
        : [s01] "+r"(s01), [s23] "+r"(s23), [h01] "+r"(h01), [h23] "+r"(h23), [x] "+r"(x), [w] "+r"(w),
            [a] "=&r"(a), "=&r"(p0), "=&r"(p1), "=&r"(p2), "=&r"(p3)
        : [most] "m"(most), [end] "m"(end), [half] "r"(half)
        : "cc", "memory");
#else
    uint32_t s23 = s01;
    for (; pairs > 0; pairs--) {
        const uint32_t first = (uint32_t)w[0];
        const uint32_t second = (uint32_t)w[1];
        const uint32_t p01 = x[0] * first + x[2] * second + EMITC_HALF;
        const uint32_t p23 = x[1] * first + x[3] * second + EMITC_HALF;
        s01 += p01;
        s23 += p23;
        h01 += (int32_t)p01 >> 16;
        h23 += (int32_t)p23 >> 16;
        x += 4;
        w += 2;
    }
#endif
    *weights = w;
    const emitc_acc4 sums = {(int32_t)(s01 - ((uint32_t)h01 << 16)), h01, (int32_t)(s23 - ((uint32_t)h23 << 16)), h23};
    return sums;
}

/* Sums of four pixels for a first channel and for a second one. */
typedef struct emitc_eight {
    emitc_acc4 a;
    emitc_acc4 b;
} emitc_eight;

/* emitc_halves_sums of two channels, whose values are read once; the second one's weights follow the first one's. */
EMITC_ALWAYS_INLINE emitc_eight emitc_halves_two(int32_t bias_a, int32_t bias_b, const uint32_t *x,
    const int8_t **weights, int32_t pairs)
{
    const int8_t *w = *weights;
    const int8_t *v = w + 2 * pairs;
    const int8_t *const end = v;
    uint32_t a01 = (uint32_t)bias_a * 0x10001u - (uint32_t)pairs * EMITC_HALF;
    uint32_t a23 = a01;
    int32_t a1 = bias_a;
    int32_t a3 = bias_a;
    uint32_t b01 = (uint32_t)bias_b * 0x10001u - (uint32_t)pairs * EMITC_HALF;
    uint32_t b23 = b01;
    int32_t b1 = bias_b;
    int32_t b3 = bias_b;
    while (w != end) {
        const uint32_t w0 = (uint32_t)w[0];
        const uint32_t w1 = (uint32_t)w[1];
        const uint32_t v0 = (uint32_t)v[0];
        const uint32_t v1 = (uint32_t)v[1];
        const uint32_t p01 = x[0] * w0 + x[2] * w1 + EMITC_HALF;
        const uint32_t p23 = x[1] * w0 + x[3] * w1 + EMITC_HALF;
        const uint32_t q01 = x[0] * v0 + x[2] * v1 + EMITC_HALF;
        const uint32_t q23 = x[1] * v0 + x[3] * v1 + EMITC_HALF;
        a01 += p01;
        a23 += p23;
        b01 += q01;
        b23 += q23;
        a1 += (int32_t)p01 >> 16;
        a3 += (int32_t)p23 >> 16;
        b1 += (int32_t)q01 >> 16;
        b3 += (int32_t)q23 >> 16;
        x += 4;
        w += 2;
        v += 2;
    }
    *weights = v;
    const emitc_eight sums = {
        {(int32_t)(a01 - ((uint32_t)a1 << 16)), a1, (int32_t)(a23 - ((uint32_t)a3 << 16)), a3},
        {(int32_t)(b01 - ((uint32_t)b1 << 16)), b1, (int32_t)(b23 - ((uint32_t)b3 << 16)), b3},
    };
    return sums;
}

#if defined(EMITC_SCALAR_V7M)
#define EMITC_SCALAR_VALUE \
    "ldrsb %[value], [%[x]], #1\n\t" \
    "ldrsb %[weight], [%[w]], #1\n\t" \
    "mla %[a0], %[value], %[weight], %[a0]\n\t" \
    "ldrsb %[weight], [%[w]], #1\n\t" \
    "mla %[a1], %[value], %[weight], %[a1]\n\t" \
    "ldrsb %[weight], [%[w]], #1\n\t" \
    "mla %[a2], %[value], %[weight], %[a2]\n\t" \
    "ldrsb %[weight], [%[w]], #1\n\t" \
    "mla %[a3], %[value], %[weight], %[a3]\n\t"
#define EMITC_SCALAR_TAP \
    "ldm %[at]!, {r0, r1, r2, r3}\n\t" \
    "ldrsb %[a], [%[w]], #1\n\t" \
    "ldrsb r0, [r0, %[channel]]\n\t" \
    "ldrsb r1, [r1, %[channel]]\n\t" \
    "ldrsb r2, [r2, %[channel]]\n\t" \
    "ldrsb r3, [r3, %[channel]]\n\t" \
    "mla %[a0], r0, %[a], %[a0]\n\t" \
    "mla %[a1], r1, %[a], %[a1]\n\t" \
    "mla %[a2], r2, %[a], %[a2]\n\t" \
    "mla %[a3], r3, %[a], %[a3]\n\t"
#endif

/* The sums of four pixels and one channel of its own weights: bias + the products of `taps` of these, past which
 * *weights is advanced. at: for each tap, the four places that the pixels read. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_taps_sums(int32_t bias, const int8_t *const *at, int32_t channel,
    const int8_t **weights, int32_t taps)
{
    const int8_t *w = *weights;
    emitc_acc4 acc = {bias, bias, bias, bias};
#if defined(EMITC_SCALAR_V7M)
    const int8_t *const *const end = at + 4 * taps;
    register uint32_t p0 __asm__("r0");
    register uint32_t p1 __asm__("r1");
    register uint32_t p2 __asm__("r2");
    register uint32_t p3 __asm__("r3");
    int32_t a;
    if (__builtin_constant_p(taps % 3) && taps % 3 == 0) {
        __asm__(
            "1:\n\t" EMITC_SCALAR_TAP EMITC_SCALAR_TAP EMITC_SCALAR_TAP
            "cmp %[at], %[end]\n\t"
            "bne 1b\n\t"
            : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [at] "+r"(at), [w] "+r"(w),
                [a] "=&r"(a), "=&r"(p0), "=&r"(p1), "=&r"(p2), "=&r"(p3)
            : [channel] "r"(channel), [end] "r"(end)
            : "cc", "memory");
        *weights = w;
        return acc;
    }
    __asm__(
        "1:\n\t" EMITC_SCALAR_TAP
        "cmp %[at], %[end]\n\t"
        "beq 2f\n\t" EMITC_SCALAR_TAP
        "cmp %[at], %[end]\n\t"
        "beq 2f\n\t" EMITC_SCALAR_TAP
        "cmp %[at], %[end]\n\t"
        "bne 1b\n"
        "2:\n\t"
        : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [at] "+r"(at), [w] "+r"(w),
            [a] "=&r"(a), "=&r"(p0), "=&r"(p1), "=&r"(p2), "=&r"(p3)
        : [channel] "r"(channel), [end] "r"(end)
        : "cc", "memory");
#elif defined(EMITC_SCALAR_V6M)
    register uint32_t p0 __asm__("r0");
    register uint32_t p1 __asm__("r1");
    register uint32_t p2 __asm__("r2");
    register uint32_t p3 __asm__("r3");
    register const int8_t *const *end __asm__("r12") = at + 4 * taps;
    register int32_t a0 __asm__("r8") = bias;
    register int32_t a1 __asm__("r9") = bias;
    register int32_t a2 __asm__("r10") = bias;
    register int32_t a3 __asm__("r11") = bias;
    int32_t a;
    __asm__(
        ".syntax unified\n"
        "1:\n\t"
        "ldmia %[at]!, {r0, r1, r2, r3}\n\t"
        "movs %[a], #0\n\t"
        "ldrsb %[a], [%[w], %[a]]\n\t"
        "adds %[w], #1\n\t"
        "ldrsb r0, [r0, %[channel]]\n\t"
        "ldrsb r1, [r1, %[channel]]\n\t"
        "ldrsb r2, [r2, %[channel]]\n\t"
        "ldrsb r3, [r3, %[channel]]\n\t"
        "muls r0, %[a], r0\n\t"
        "muls r1, %[a], r1\n\t"
        "muls r2, %[a], r2\n\t"
        "muls r3, %[a], r3\n\t"
        "add %[a0], r0\n\t"
        "add %[a1], r1\n\t"
        "add %[a2], r2\n\t"
        "add %[a3], r3\n\t"
        "cmp %[at], %[end]\n\t"
        "bne 1b\n\t"
        : [a0] "+h"(a0), [a1] "+h"(a1), [a2] "+h"(a2), [a3] "+h"(a3), [at] "+l"(at), [w] "+l"(w), [a] "=&l"(a),
            "=&l"(p0), "=&l"(p1), "=&l"(p2), "=&l"(p3)
        : [channel] "l"(channel), [end] "h"(end)
        : "cc", "memory");
    acc.a0 = a0;
    acc.a1 = a1;
    acc.a2 = a2;
    acc.a3 = a3;
#else
    for (; taps > 0; taps--) {
        const int32_t weight = *w++;
        acc.a0 += at[0][channel] * weight;
        acc.a1 += at[1][channel] * weight;
        acc.a2 += at[2][channel] * weight;
        acc.a3 += at[3][channel] * weight;
        at += 4;
    }
#endif
    *weights = w;
    return acc;
}

/* emitc_taps_sums of two channels, for which the places are read once. */
EMITC_ALWAYS_INLINE emitc_eight emitc_taps_two(
    int32_t bias_a, int32_t bias_b, const int8_t *const *at, int32_t channel, const int8_t **weights, int32_t taps)
{
    const int8_t *w = *weights;
    emitc_eight sums = {{bias_a, bias_a, bias_a, bias_a}, {bias_b, bias_b, bias_b, bias_b}};
    const int8_t *v = w + taps;
    for (; taps > 0; taps--) {
        const int32_t weight = *w++;
        const int32_t other = *v++;
        sums.a.a0 += at[0][channel] * weight;
        sums.b.a0 += at[0][channel + 1] * other;
        sums.a.a1 += at[1][channel] * weight;
        sums.b.a1 += at[1][channel + 1] * other;
        sums.a.a2 += at[2][channel] * weight;
        sums.b.a2 += at[2][channel + 1] * other;
        sums.a.a3 += at[3][channel] * weight;
        sums.b.a3 += at[3][channel + 1] * other;
        at += 4;
    }
    *weights = v;
    return sums;
}

/* The sums of four channels of one row: acc + the products of n values and of four filters, each of n contiguous
 * weights; *weights is advanced past them. n > 0. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_filters_sums(emitc_acc4 acc, const int8_t *x, const int8_t **weights, int32_t n)
{
    const int8_t *w0 = *weights;
    const int8_t *w1 = w0 + n;
    const int8_t *w2 = w1 + n;
    const int8_t *w3 = w2 + n;
#if defined(EMITC_SCALAR_V6M)
    register int32_t a0 __asm__("r8") = acc.a0;
    register int32_t a1 __asm__("r9") = acc.a1;
    register int32_t a2 __asm__("r10") = acc.a2;
    register int32_t a3 __asm__("r11") = acc.a3;
    const int8_t *const end = x + n;
    int32_t place = -n;
    int32_t value;
    int32_t weight;
    w0 += n;
    w1 += n;
    w2 += n;
    w3 += n;
    __asm__(
        ".syntax unified\n"
        "1:\n\t"
        "ldrsb %[value], [%[x], %[place]]\n\t"
        "ldrsb %[weight], [%[w0], %[place]]\n\t"
        "muls %[weight], %[value], %[weight]\n\t"
        "add %[a0], %[weight]\n\t"
        "ldrsb %[weight], [%[w1], %[place]]\n\t"
        "muls %[weight], %[value], %[weight]\n\t"
        "add %[a1], %[weight]\n\t"
        "ldrsb %[weight], [%[w2], %[place]]\n\t"
        "muls %[weight], %[value], %[weight]\n\t"
        "add %[a2], %[weight]\n\t"
        "ldrsb %[weight], [%[w3], %[place]]\n\t"
        "muls %[weight], %[value], %[weight]\n\t"
        "add %[a3], %[weight]\n\t"
        "adds %[place], #1\n\t"
        "bne 1b\n\t"
        : [a0] "+h"(a0), [a1] "+h"(a1), [a2] "+h"(a2), [a3] "+h"(a3), [place] "+l"(place), [value] "=&l"(value),
            [weight] "=&l"(weight)
        : [x] "l"(end), [w0] "l"(w0), [w1] "l"(w1), [w2] "l"(w2), [w3] "l"(w3)
        : "cc", "memory");
    acc.a0 = a0;
    acc.a1 = a1;
    acc.a2 = a2;
    acc.a3 = a3;
#else
    for (; n > 0; n--) {
        acc.a0 += *x * *w0++;
        acc.a1 += *x * *w1++;
        acc.a2 += *x * *w2++;
        acc.a3 += *x * *w3++;
        x++;
    }
#endif
    *weights = w3;
    return acc;
}

/* The same of filters that lie value by value; *weights is advanced past them. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_blocks_sums(emitc_acc4 acc, const int8_t *x, const int8_t **weights, int32_t n)
{
#if defined(EMITC_SCALAR_V7M)
    const int8_t *w = *weights;
    const int8_t *const end = x + n;
    const int8_t *const most = end - (n & 3);
    int32_t value;
    int32_t weight;
    __asm__(
        "b 2f\n"
        "1:\n\t" EMITC_SCALAR_VALUE EMITC_SCALAR_VALUE EMITC_SCALAR_VALUE EMITC_SCALAR_VALUE
        "2:\n\t"
        "cmp %[x], %[most]\n\t"
        "bne 1b\n\t"
        "b 4f\n"
        "3:\n\t" EMITC_SCALAR_VALUE
        "4:\n\t"
        "cmp %[x], %[end]\n\t"
        "bne 3b\n\t"
        : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w),
          [value] "=&r"(value), [weight] "=&r"(weight)
        : [most] "r"(most), [end] "r"(end)
        : "cc", "memory");
    *weights = w;
    return acc;
#else
    const int8_t *const w = *weights;
    *weights = w + 4 * n;
    return emitc_dot4(acc, x, w, n);
#endif
}

#endif
