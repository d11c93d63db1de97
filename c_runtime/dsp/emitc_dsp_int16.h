/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: sums of products of int16 values with int8 weights, and of such values.
 *
 * Part of a package whose kernels use it; see emitc_dsp.h. A word of memory holds two int16 values. A word of weights
 * holds two int8 weights of each of two channels: those of the first channel in its even bytes, those of the second
 * one in its odd bytes.
 */
#ifndef EMITC_DSP_INT16_H
#define EMITC_DSP_INT16_H

#include "emitc_dsp.h"

/* Two values as they lie in memory. */
EMITC_ALWAYS_INLINE uint32_t emitc_two(const int16_t *values)
{
    uint32_t word;
    memcpy(&word, values, sizeof word);
    return word;
}

/* Copies a run of n values of one pixel into every fourth word from `to` on, and returns where the next run goes. An
 * odd last value is paired with 0. */
EMITC_ALWAYS_INLINE uint32_t *emitc_int16_strided(uint32_t *to, const int16_t *values, int32_t n)
{
    for (int32_t four = n >> 2; four > 0; four--) {
        to[0] = emitc_two(values);
        to[4] = emitc_two(values + 2);
        to += 8;
        values += 4;
    }
    if ((n & 2) != 0) {
        *to = emitc_two(values);
        to += 4;
        values += 2;
    }
    if ((n & 1) != 0) {
        *to = (uint16_t)*values;
        to += 4;
    }
    return to;
}

/* The same for a run of which only values [first, end) are inside the input; the others are 0. */
EMITC_NOINLINE uint32_t *emitc_int16_edge(uint32_t *to, const int16_t *x, int32_t first, int32_t end, int32_t n)
{
    for (int32_t i = 0; i < n; i += 2) {
        const uint32_t low = i >= first && i < end ? (uint16_t)x[i] : 0;
        const uint32_t high = i + 1 >= first && i + 1 < end ? (uint16_t)x[i + 1] : 0;
        *to = low | (high << 16);
        to += 4;
    }
    return to;
}

/* acc + the products of n values with the weights of four channels: for two values, a word of the first two channels
 * and one of the others. */
EMITC_INLINE_FOR_SPEED emitc_acc4 emitc_int16_dot4(emitc_acc4 acc, const int16_t *x, const int8_t *w, int32_t n)
{
#if EMITC_DSP && defined(__OPTIMIZE__)
    uint32_t value;
    uint32_t first;
    uint32_t second;
    uint32_t pair;
    if (n >= 4) {
        const int16_t *const end = x + (n & ~3);
        __asm__(
            "1:\n\t"
            "ldr %[value], [%[x]], #4\n\t"
            "ldrd %[first], %[second], [%[w]], #8\n\t"
            EMITC_DOT_WORDS(value)
            "ldr %[value], [%[x]], #4\n\t"
            "ldrd %[first], %[second], [%[w]], #8\n\t"
            EMITC_DOT_WORDS(value)
            "cmp %[x], %[end]\n\t"
            "bne 1b"
            : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w),
              [value] "=&r"(value), [first] "=&r"(first), [second] "=&r"(second), [pair] "=&r"(pair)
            : [end] "r"(end)
            : "cc", "memory");
        n &= 3;
    }
#endif
    for (; n > 0; n -= 2) {
        const uint32_t two = n > 1 ? emitc_two(x) : (uint16_t)*x;
        const uint32_t w01 = emitc_four(w);
        const uint32_t w23 = emitc_four(w + 4);
        acc.a0 = emitc_pair_mac(acc.a0, two, emitc_even(w01));
        acc.a1 = emitc_pair_mac(acc.a1, two, emitc_odd(w01));
        acc.a2 = emitc_pair_mac(acc.a2, two, emitc_even(w23));
        acc.a3 = emitc_pair_mac(acc.a3, two, emitc_odd(w23));
        x += 2;
        w += 8;
    }
    return acc;
}

/* acc + the products of n values with as many weights. */
EMITC_ALWAYS_INLINE int32_t emitc_int16_dot(int32_t acc, const int16_t *x, const int8_t *w, int32_t n)
{
    for (; n > 0; n--) {
        acc += *x++ * *w++;
    }
    return acc;
}

/* acc * q31 / 2^(31 + right) with the two roundings of TFLite Micro, the second away from zero; start = 2^(right - 1),
 * right in 1..30, acc from -2^30 to less than 2^30. */
EMITC_ALWAYS_INLINE int32_t emitc_scaled_away(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    const int32_t scaled = emitc_scaled(acc, q31, 0);
    return (scaled + (scaled >> 31) + start) >> right;
}

/* The nearest of -32768..32767. */
EMITC_ALWAYS_INLINE int16_t emitc_saturated_short(int32_t x)
{
#if EMITC_DSP
    int32_t limited;
    __asm__("ssat %0, #16, %1" : "=r"(limited) : "r"(x));
    return (int16_t)limited;
#else
    return (int16_t)emitc_clamp(x, -32768, 32767);
#endif
}

#endif
