/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: sums, means and largest values of four bytes at a time.
 *
 * Part of a package whose kernels use it. Four bytes v0 v1 v2 v3 lie in one word; as pairs of int16 they are (v0, v2)
 * and (v1, v3).
 */
#ifndef EMITC_DSP_POOL_H
#define EMITC_DSP_POOL_H

#include "emitc_dsp.h"

/* The lower halves of two words. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_of(uint32_t low, uint32_t high)
{
#if EMITC_DSP
    uint32_t pair;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(pair) : "r"(low), "r"(high));
    return pair;
#else
    return (low & 0xffffu) | (high << 16);
#endif
}

/* pair + bytes 0 and 2. */
EMITC_ALWAYS_INLINE uint32_t emitc_even_sum(uint32_t pair, uint32_t word)
{
#if EMITC_DSP
    uint32_t sum;
    __asm__("sxtab16 %0, %1, %2" : "=r"(sum) : "r"(pair), "r"(word));
    return sum;
#else
    const uint32_t even = emitc_even(word);
    return emitc_pair_of(pair + even, (pair >> 16) + (even >> 16));
#endif
}

/* pair + bytes 1 and 3. */
EMITC_ALWAYS_INLINE uint32_t emitc_odd_sum(uint32_t pair, uint32_t word)
{
#if EMITC_DSP
    uint32_t sum;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(sum) : "r"(pair), "r"(word));
    return sum;
#else
    return emitc_even_sum(pair, word >> 8);
#endif
}

/* Moves `n` bytes one place to the front, over the one before them; their sum less `zero` each, times the weights. */
EMITC_ALWAYS_INLINE int32_t emitc_moved_pairs(int8_t *memory, const int8_t *weights, int32_t zero, int32_t n)
{
    const uint32_t zeros = emitc_twice(-zero);
    int32_t sum = 0;
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t values = emitc_four(memory + 1);
        const uint32_t word = emitc_four(weights);
        memcpy(memory, &values, sizeof values);
        sum = emitc_pair_mac(sum, emitc_even_sum(zeros, values), emitc_even(word));
        sum = emitc_pair_mac(sum, emitc_odd_sum(zeros, values), emitc_odd(word));
        memory += 4;
        weights += 4;
    }
    for (int32_t i = 0; i < (n & 3); i++) {
        memory[i] = memory[i + 1];
        sum += (memory[i] - zero) * weights[i];
    }
    return sum;
}

/* a - b of both halves. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_difference(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t difference;
    __asm__("ssub16 %0, %1, %2" : "=r"(difference) : "r"(a), "r"(b) : "cc");
    return difference;
#else
    return emitc_pair_of(a - b, (a >> 16) - (b >> 16));
#endif
}

/* (a + b) / 2 of both halves, rounded down. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_half_sum(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t half;
    __asm__("shadd16 %0, %1, %2" : "=r"(half) : "r"(a), "r"(b));
    return half;
#else
    return emitc_pair_of((uint32_t)((emitc_low(a) + emitc_low(b)) >> 1), (uint32_t)((emitc_high(a) + emitc_high(b))
        >> 1));
#endif
}

/* The low bytes of the halves of two pairs, as they lie in memory. */
EMITC_ALWAYS_INLINE uint32_t emitc_interleaved(uint32_t even, uint32_t odd)
{
#if EMITC_DSP
    __asm__("uxtb16 %0, %1" : "=r"(even) : "r"(even));
    __asm__("uxtb16 %0, %1" : "=r"(odd) : "r"(odd));
    return even | (odd << 8);
#else
    return (even & 0xff00ffu) | ((odd & 0xff00ffu) << 8);
#endif
}

EMITC_ALWAYS_INLINE void emitc_store_four(int8_t *to, uint32_t word)
{
    memcpy(to, &word, sizeof word);
}

/* The upper halves of two words. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_above(uint32_t low, uint32_t high)
{
#if EMITC_DSP
    uint32_t pair;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(pair) : "r"(high), "r"(low));
    return pair;
#else
    return (low >> 16) | (high & 0xffff0000u);
#endif
}

/* Sum of n bytes. */
EMITC_ALWAYS_INLINE int32_t emitc_pair_total(const int8_t *x, int32_t n)
{
    int32_t sum = 0;
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t values = emitc_four(x);
        sum = emitc_pair_mac(sum, emitc_odd_sum(emitc_even(values), values), 0x10001u);
        x += 4;
    }
    for (n &= 3; n > 0; n--) {
        sum += *x++;
    }
    return sum;
}

/* n values of uint8, each 128 lower, four to a word. */
EMITC_ALWAYS_INLINE void emitc_lowered_dsp(int8_t *to, const uint8_t *from, int32_t n)
{
    for (int32_t four = n >> 2; four > 0; four--) {
        emitc_store_four(to, emitc_four((const int8_t *)from) ^ 0x80808080u);
        from += 4;
        to += 4;
    }
    for (n &= 3; n > 0; n--) {
        *to++ = (int8_t)(*from++ - 128);
    }
}

/* Stores the first n of four bytes, or all of them; returns where the next ones go. */
EMITC_ALWAYS_INLINE int8_t *emitc_some_of_four(int8_t *to, const int8_t *four, int32_t n)
{
    if (n >= 4) {
        emitc_store_four(to, emitc_four(four));
        return to + 4;
    }
    for (int32_t i = 0; i < n; i++) {
        to[i] = four[i];
    }
    return to + n;
}

/* Bytes of the columns that there are, the last one of these for the others. */
EMITC_ALWAYS_INLINE uint32_t emitc_four_columns(const int8_t *values, int32_t count)
{
    if (count >= 4) {
        return emitc_four(values);
    }
    const int8_t row[4] = {values[0], values[count > 1], values[count > 2 ? 2 : count - 1], values[count - 1]};
    return emitc_four(row);
}

/* Copies four adjacent columns, with a distance of `step` between the values of a column, as emitc_pair_sums4 reads
 * them. Computes the sum of each. n: at most 255, so that sums have 16 bits. count: of the columns that there are; for
 * others the last one of these is taken. */
EMITC_ALWAYS_INLINE void emitc_pair_columns4(int32_t *sums, int8_t *to, const int8_t *from, int32_t n, int32_t step,
    int32_t count)
{
    uint32_t even = 0;
    uint32_t odd = 0;
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t row0 = emitc_four_columns(from, count);
        const uint32_t row1 = emitc_four_columns(from + step, count);
        const uint32_t row2 = emitc_four_columns(from + 2 * step, count);
        const uint32_t row3 = emitc_four_columns(from + 3 * step, count);
        even = emitc_even_sum(emitc_even_sum(emitc_even_sum(emitc_even_sum(even, row0), row1), row2), row3);
        odd = emitc_odd_sum(emitc_odd_sum(emitc_odd_sum(emitc_odd_sum(odd, row0), row1), row2), row3);
        const uint32_t words[4] = {
            emitc_pair_of(row0, row2), emitc_pair_above(row0, row2), emitc_pair_of(row1, row3), emitc_pair_above(row1,
                row3)};
        memcpy(to, words, sizeof words);
        from += 4 * step;
        to += 16;
    }
    for (n &= 3; n > 0; n--) {
        const uint32_t row = emitc_four_columns(from, count);
        even = emitc_even_sum(even, row);
        odd = emitc_odd_sum(odd, row);
        emitc_store_four(to, row);
        from += step;
        to += 4;
    }
    sums[0] = emitc_low(even);
    sums[1] = emitc_low(odd);
    sums[2] = emitc_high(even);
    sums[3] = emitc_high(odd);
}

/* The last n of four bytes, n in 1..3. */
EMITC_ALWAYS_INLINE void emitc_store_end(int8_t *to, uint32_t word, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        to[i] = (int8_t)(uint8_t)(word >> (8 * (4 - n + i)));
    }
}

/* The larger, or the smaller, of each of four bytes. */
EMITC_ALWAYS_INLINE uint32_t emitc_larger(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t larger;
    __asm__("ssub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(larger) : "r"(a), "r"(b) : "cc");
    return larger;
#else
    uint32_t larger = 0;
    for (uint32_t bit = 0; bit < 32; bit += 8) {
        const int8_t of_a = (int8_t)(uint8_t)(a >> bit);
        const int8_t of_b = (int8_t)(uint8_t)(b >> bit);
        larger |= (uint32_t)(uint8_t)(of_a > of_b ? of_a : of_b) << bit;
    }
    return larger;
#endif
}

EMITC_ALWAYS_INLINE uint32_t emitc_smaller(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t smaller;
    __asm__("ssub8 %0, %1, %2\n\tsel %0, %2, %1" : "=&r"(smaller) : "r"(a), "r"(b) : "cc");
    return smaller;
#else
    return ~emitc_larger(~a, ~b);
#endif
}

/* The larger of each of four bytes without a sign. */
EMITC_ALWAYS_INLINE uint32_t emitc_larger_unsigned(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t larger;
    __asm__("usub8 %0, %1, %2\n\tsel %0, %1, %2" : "=&r"(larger) : "r"(a), "r"(b) : "cc");
    return larger;
#else
    return emitc_larger(a ^ 0x80808080u, b ^ 0x80808080u) ^ 0x80808080u;
#endif
}

/* The largest of n bytes without a sign. */
EMITC_ALWAYS_INLINE uint8_t emitc_largest_unsigned(const uint8_t *bytes, int32_t n)
{
    uint32_t most = bytes[0];
    if (n < 4) {
        for (int32_t i = 1; i < n; i++) {
            most = bytes[i] > most ? bytes[i] : most;
        }
        return (uint8_t)most;
    }
    memcpy(&most, bytes, sizeof most);
    for (int32_t i = n & 3; i < n; i += 4) { /* what whole fours leave over is among the first four */
        uint32_t four;
        memcpy(&four, bytes + i, sizeof four);
        most = emitc_larger_unsigned(most, four);
    }
    most = emitc_larger_unsigned(most, most >> 16);
    return (uint8_t)emitc_larger_unsigned(most, most >> 8);
}

/* The same byte four times. */
EMITC_ALWAYS_INLINE uint32_t emitc_four_times(int32_t value)
{
    return (uint32_t)(uint8_t)value * 0x01010101u;
}

EMITC_ALWAYS_INLINE uint32_t emitc_limited_four(uint32_t word, int32_t low, int32_t high)
{
    return emitc_smaller(emitc_larger(word, emitc_four_times(low)), emitc_four_times(high));
}

/* Bytes 0 and 2, or 1 and 3, as pairs of 256 times their values. */
EMITC_ALWAYS_INLINE uint32_t emitc_even_high(uint32_t word)
{
#if EMITC_DSP
    uint32_t pair; /* gcc has the mask as a constant of the instruction, which then cannot shift */
    __asm__("and %0, %1, %2, lsl #8" : "=r"(pair) : "r"(0xff00ff00u), "r"(word));
    return pair;
#else
    return (word << 8) & 0xff00ff00u;
#endif
}

EMITC_ALWAYS_INLINE uint32_t emitc_odd_high(uint32_t word)
{
    return word & 0xff00ff00u;
}

/* acc + weight * the low, or the high half / 2^16, rounded down. */
EMITC_ALWAYS_INLINE int32_t emitc_low_weighted(int32_t acc, int32_t weight, uint32_t pair)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smlawb %0, %1, %2, %3" : "=r"(sum) : "r"(weight), "r"(pair), "r"(acc));
    return sum;
#else
    return acc + (int32_t)(((int64_t)weight * emitc_low(pair)) >> 16);
#endif
}

EMITC_ALWAYS_INLINE int32_t emitc_high_weighted(int32_t acc, int32_t weight, uint32_t pair)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smlawt %0, %1, %2, %3" : "=r"(sum) : "r"(weight), "r"(pair), "r"(acc));
    return sum;
#else
    return acc + (int32_t)(((int64_t)weight * emitc_high(pair)) >> 16);
#endif
}

/* Four values of int16 as bytes, each the nearest that there is. */
EMITC_ALWAYS_INLINE uint32_t emitc_saturated_four(int32_t v0, int32_t v1, int32_t v2, int32_t v3)
{
    uint32_t even = emitc_pair_of((uint32_t)v0, (uint32_t)v2);
    uint32_t odd = emitc_pair_of((uint32_t)v1, (uint32_t)v3);
#if EMITC_DSP
    __asm__("ssat16 %0, #8, %1" : "=r"(even) : "r"(even));
    __asm__("ssat16 %0, #8, %1" : "=r"(odd) : "r"(odd));
#else
    even = emitc_pair_of((uint32_t)emitc_saturated(emitc_low(even)), (uint32_t)emitc_saturated(emitc_high(even)));
    odd = emitc_pair_of((uint32_t)emitc_saturated(emitc_low(odd)), (uint32_t)emitc_saturated(emitc_high(odd)));
#endif
    return emitc_interleaved(even, odd);
}

/* acc + the upper half of a * b. */
EMITC_ALWAYS_INLINE int32_t emitc_high_sum(int32_t acc, int32_t a, int32_t b)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smmla %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    return sum;
#else
    return acc + (int32_t)(((int64_t)a * b) >> 32);
#endif
}

/* A sum of bytes over their number, at most 256, with start = 514 * number and reciprocal = 2^30 / number, rounded up:
 * half up, or away from zero.
 * floor((4 sum + 514 number) / (4 number)) is 128 more than the mean half up, as all quarters are integers; one less
 * above tells ties from what is above them. */
EMITC_ALWAYS_INLINE int32_t emitc_mean_up(int32_t sum, int32_t start, int32_t reciprocal)
{
    return emitc_high_sum(-128, start + 4 * sum, reciprocal);
}

EMITC_ALWAYS_INLINE int32_t emitc_mean_away(int32_t sum, int32_t start, int32_t reciprocal)
{
    return emitc_mean_up(sum, start + (sum >> 31), reciprocal);
}

/* Means of four from pairs of sums, rounded half up, or away from zero. */
EMITC_ALWAYS_INLINE uint32_t emitc_quarter_up(uint32_t pair)
{
    return emitc_pair_half_sum(emitc_pair_half_sum(pair, 0x20002u), 0);
}

EMITC_ALWAYS_INLINE uint32_t emitc_quarter_away(uint32_t pair)
{
    return emitc_quarter_up(emitc_pair_difference(pair, (pair >> 15) & 0x10001u));
}

#endif
