/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension (Cortex-M4, M7, M33, ...): two products of 16 bits in one instruction.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C, with the same results.
 * So a package can be proved and stepped through on a host.
 *
 * Values are widened to pairs of int16 in one word, the first in its low half. Of four bytes v0 v1 v2 v3, one
 * instruction gives the pair (v0, v2) and another one (v1, v3); weights are arranged for that order when the model is
 * compiled.
 */
#ifndef EMITC_DSP_H
#define EMITC_DSP_H

#include "emitc_runtime.h"

#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP && defined(__thumb2__) && EMITC_ASM
#define EMITC_DSP 1
#else
#define EMITC_DSP 0
#endif

/* Four bytes as they lie in memory. */
EMITC_ALWAYS_INLINE uint32_t emitc_four(const int8_t *values)
{
    uint32_t word;
    memcpy(&word, values, sizeof word);
    return word;
}

/* Bytes 0 and 2 as a pair. */
EMITC_ALWAYS_INLINE uint32_t emitc_even(uint32_t word)
{
#if EMITC_DSP
    uint32_t pair;
    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(word));
    return pair;
#else
    return ((uint32_t)(int8_t)(uint8_t)word & 0xffffu) | ((uint32_t)(int8_t)(uint8_t)(word >> 16) << 16);
#endif
}

/* Bytes 1 and 3 as a pair. */
EMITC_ALWAYS_INLINE uint32_t emitc_odd(uint32_t word)
{
#if EMITC_DSP
    uint32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
#else
    return emitc_even(word >> 8);
#endif
}

/* Halves of a pair. */
EMITC_ALWAYS_INLINE int32_t emitc_low(uint32_t pair)
{
    return (int16_t)(uint16_t)(pair & 0xffffu);
}

EMITC_ALWAYS_INLINE int32_t emitc_high(uint32_t pair)
{
    return (int16_t)(uint16_t)(pair >> 16);
}

/* acc + both products of the halves. */
EMITC_ALWAYS_INLINE int32_t emitc_pair_mac(int32_t acc, uint32_t a, uint32_t b)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smlad %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    return sum;
#else
    return acc + emitc_low(a) * emitc_low(b) + emitc_high(a) * emitc_high(b);
#endif
}

/* acc + the product of both low, or both high halves. */
EMITC_ALWAYS_INLINE int32_t emitc_low_mac(int32_t acc, uint32_t a, uint32_t b)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    return sum;
#else
    return acc + emitc_low(a) * emitc_low(b);
#endif
}

EMITC_ALWAYS_INLINE int32_t emitc_high_mac(int32_t acc, uint32_t a, uint32_t b)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smlatt %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    return sum;
#else
    return acc + emitc_high(a) * emitc_high(b);
#endif
}

/* round(acc * q31 / 2^31) + start, halves up; acc under 2^30. */
EMITC_ALWAYS_INLINE int32_t emitc_scaled(int32_t acc, int32_t q31, int32_t start)
{
#if EMITC_DSP
    int32_t scaled;
    __asm__("smmlar %0, %1, %2, %3" : "=r"(scaled) : "r"(2 * acc), "r"(q31), "r"(start));
    return scaled;
#else
    return emitc_high_mul(acc, q31) + start;
#endif
}

/* The nearest of -128..127. */
EMITC_ALWAYS_INLINE int8_t emitc_saturated(int32_t x)
{
#if EMITC_DSP
    int32_t limited;
    __asm__("ssat %0, #8, %1" : "=r"(limited) : "r"(x));
    return (int8_t)limited;
#else
    return (int8_t)emitc_clamp(x, -128, 127);
#endif
}

/* What makes int8 outputs of the sums of one channel: its Q31 multiplier, its shift to the right, and what is added
 * before the shift. */
typedef struct emitc_output {
    int32_t q31;
    int32_t right;
    int32_t start;
} emitc_output;

/* An output is round(round(acc * q31 / 2^31) / 2^right) + zero point. A shift to the right rounds down. Half of
 * 2^right, added before it, makes it round to nearest, halves up. 2^right times the zero point is added there too: the
 * shift leaves the zero point of it. So start = 2^(right - 1) + zero point * 2^right = offset * 2^(right - 1), with
 * offset = 2 * zero point + 1. right in 1..22. */
EMITC_ALWAYS_INLINE emitc_output emitc_output_of(int32_t q31, int32_t right, int32_t offset)
{
    const emitc_output by = {q31, right, offset * (1 << (right - 1))};
    return by;
}

/* A sum as the int8 output, where the output's lower limit is its zero point: the two roundings of TFLite Micro's
 * requantization agree with halves up from there on. acc under 2^30. */
EMITC_ALWAYS_INLINE int8_t emitc_output_up(int32_t acc, emitc_output by)
{
    return emitc_saturated(emitc_scaled(acc, by.q31, by.start) >> by.right);
}

/* The same for outputs of either sign: the second rounding is away from zero, so that a negative value is 1 less before
 * it. */
EMITC_ALWAYS_INLINE int8_t emitc_output_away(int32_t acc, emitc_output by)
{
    const int32_t scaled = emitc_scaled(acc, by.q31, 0);
    return emitc_saturated((by.start + scaled + (scaled >> 31)) >> by.right);
}

/* A sum as the int8 output by a float32 factor: emitc_output_f32 where the limits are those of the type. */
EMITC_ALWAYS_INLINE int8_t emitc_output_float(int32_t acc, float factor, int32_t offset)
{
#if EMITC_DSP && defined(__ARM_FP)
    int32_t moved; /* saturates, as the conversion does */
    __asm__("qadd %0, %1, %2" : "=r"(moved) : "r"(emitc_rint_f32(acc, factor)), "r"(offset));
    return emitc_saturated(moved);
#else
    return (int8_t)emitc_output_f32(acc, factor, offset, -128, 127);
#endif
}

/* Four channels of one pixel from their sums: emitc_output_up or emitc_output_away of each. offset: 2 * zero point + 1.
 * each: 1 where every channel has a multiplier and a shift of its own, 0 where all have the first. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_FOUR_OUTPUTS(output) \
    const int32_t sums[4] = {acc->a0, acc->a1, acc->a2, acc->a3}; \
    for (int32_t c = 0; c < 4; c++) { \
        y[c] = output(sums[c], emitc_output_of(multiplier[c * each], right[c * each], offset)); \
    }
#else
#define EMITC_FOUR_OUTPUTS(output) \
    y[0] = output(acc->a0, emitc_output_of(multiplier[0], right[0], offset)); \
    y[1] = output(acc->a1, emitc_output_of(multiplier[each], right[each], offset)); \
    y[2] = output(acc->a2, emitc_output_of(multiplier[2 * each], right[2 * each], offset)); \
    y[3] = output(acc->a3, emitc_output_of(multiplier[3 * each], right[3 * each], offset));
#endif
EMITC_INLINE_FOR_SPEED void emitc_four_up(
    const emitc_acc4 *acc, const int32_t *multiplier, const int8_t *right, int32_t each, int32_t offset, int8_t *y)
{
    EMITC_FOUR_OUTPUTS(emitc_output_up)
}

EMITC_INLINE_FOR_SPEED void emitc_four_away(
    const emitc_acc4 *acc, const int32_t *multiplier, const int8_t *right, int32_t each, int32_t offset, int8_t *y)
{
    EMITC_FOUR_OUTPUTS(emitc_output_away)
}

/* acc + four channels, from `channel` on, of the pixel at *at, times the four weights at *w. *w is advanced past
 * them. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_tap_mac4(emitc_acc4 acc, const int8_t *const *at, int32_t channel,
    const int8_t **w)
{
#if EMITC_DSP
    uint32_t value;
    uint32_t tap;
    uint32_t value_even;
    uint32_t tap_even;
    __asm__ volatile( /* in this order, or the compiler reads all taps first and has no registers left */
        "ldr %[value], %[at]\n\t"
        "ldr %[tap], [%[w]], #4\n\t"
        "ldr %[value], [%[value], %[channel]]\n\t"
        "sxtb16 %[tap_even], %[tap]\n\t"
        "sxtb16 %[tap], %[tap], ror #8\n\t"
        "sxtb16 %[value_even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[a0], %[value_even], %[tap_even], %[a0]\n\t"
        "smlatt %[a2], %[value_even], %[tap_even], %[a2]\n\t"
        "smlabb %[a1], %[value], %[tap], %[a1]\n\t"
        "smlatt %[a3], %[value], %[tap], %[a3]"
        : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [w] "+r"(*w),
            [value] "=&r"(value),
          [tap] "=&r"(tap), [value_even] "=&r"(value_even), [tap_even] "=&r"(tap_even)
        : [at] "m"(*at), [channel] "r"(channel)
        : "memory");
#else
    const uint32_t value = emitc_four(*at + channel);
    const uint32_t tap = emitc_four(*w);
    acc.a0 = emitc_low_mac(acc.a0, emitc_even(value), emitc_even(tap));
    acc.a1 = emitc_low_mac(acc.a1, emitc_odd(value), emitc_odd(tap));
    acc.a2 = emitc_high_mac(acc.a2, emitc_even(value), emitc_even(tap));
    acc.a3 = emitc_high_mac(acc.a3, emitc_odd(value), emitc_odd(tap));
    *w += 4;
#endif
    return acc;
}

/* Widens a run of `n` values of one pixel into every `step`th word from `to` on, and returns where its next run
 * goes. */
EMITC_ALWAYS_INLINE uint32_t *emitc_widened_strided(uint32_t *to, int32_t step, const int8_t *values, int32_t n)
{
#if !defined(__OPTIMIZE_SIZE__)
    for (int32_t eight = n >> 3; eight > 0; eight--) { /* two loads next to each other take three cycles */
        const uint32_t word = emitc_four(values);
        const uint32_t next = emitc_four(values + 4);
        to[0] = emitc_even(word);
        to[step] = emitc_odd(word);
        to[2 * step] = emitc_even(next);
        to[3 * step] = emitc_odd(next);
        to += 4 * step;
        values += 8;
    }
    n &= 7;
#endif
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t word = emitc_four(values);
        to[0] = emitc_even(word);
        to[step] = emitc_odd(word);
        to += 2 * step;
        values += 4;
    }
    if ((n & 3) == 1) {
        to[0] = (uint32_t)values[0] & 0xffffu;
        to += step;
    } else if ((n & 3) == 2) {
        to[0] = ((uint32_t)values[0] & 0xffffu) | ((uint32_t)values[1] << 16);
        to += step;
    } else if ((n & 3) == 3) {
        to[0] = ((uint32_t)values[0] & 0xffffu) | ((uint32_t)values[2] << 16);
        to[step] = (uint32_t)values[1] & 0xffffu;
        to += 2 * step;
    }
    return to;
}

/* Writes `pair` into every `step`th of `words` words, and returns where the next one goes. */
EMITC_NOINLINE uint32_t *emitc_filled_strided(uint32_t *to, int32_t step, uint32_t pair, int32_t words)
{
    for (int32_t two = words >> 1; two > 0; two--) {
        to[0] = pair;
        to[step] = pair;
        to += 2 * step;
    }
    if (words & 1) {
        to[0] = pair;
        to += step;
    }
    return to;
}

/* The low half of a value in both halves of a word. */
EMITC_ALWAYS_INLINE uint32_t emitc_twice(int32_t value)
{
    return ((uint32_t)value & 0xffffu) | ((uint32_t)value << 16);
}

/* Widens a run of which only values [first, end), some but not all, are inside the input; the others are `zero`, and 0
 * follows the last one. */
EMITC_INLINE_FOR_SPEED uint32_t *emitc_widened_edge(
    uint32_t *to, int32_t step, const int8_t *x, int32_t first, int32_t end, int32_t n, int32_t zero)
{
    for (int32_t i = 0; i < n; i += 4) {
        uint32_t word = 0;
        if (i >= first && i + 4 <= end) {
            word = emitc_four(x + i);
        } else {
            for (int32_t at = i + 3; at >= i; at--) {
                word = word << 8 | (uint8_t)(at >= n ? 0 : at >= first && at < end ? x[at] : zero);
            }
        }
        if (n - i == 2) { /* both values in one word */
            word = (word & 0xffu) | ((word & 0xff00u) << 8);
        }
        to[0] = emitc_even(word);
        to += step;
        if (n - i > 2) {
            to[0] = emitc_odd(word);
            to += step;
        }
    }
    return to;
}

/* The same into every fourth word. */
EMITC_ALWAYS_INLINE uint32_t *emitc_widened(uint32_t *to, const int8_t *values, int32_t n)
{
    return emitc_widened_strided(to, 4, values, n);
}

/* The windows of a convolution. in_h: rows of the input; row: values of each. rows, down: of a window, and from one of
 * its rows to the next; run: values of each. zero: stands where the input has nothing. */
struct emitc_windows {
    int32_t in_h;
    int32_t row;
    int32_t rows;
    int32_t down;
    int32_t run;
    int32_t zero;
};

/* Widens one window into every `step`th word from `to` on, and returns where the next window goes. The window begins in
 * row `top`, at the row's value `from`. */
EMITC_NOINLINE uint32_t *emitc_widened_window(
    const struct emitc_windows *s, const int8_t *x, int32_t top, int32_t from, uint32_t *to, int32_t step)
{
    const int32_t first = from < 0 ? -from : 0;
    const int32_t end = from + s->run > s->row ? s->row - from : s->run;
    const bool fours = (first & 3) == 0 && ((end & 3) == 0 || end == s->run);
    const uint32_t zeros = emitc_twice(s->zero);
#if !defined(__OPTIMIZE_SIZE__)
    if (s->run == 4) { /* a word for each row, as of one channel */
        for (int32_t ky = s->rows; ky > 0; ky--) {
            uint32_t word = 0x01010101u * (uint8_t)s->zero;
            if (top >= 0 && top < s->in_h) {
                const int8_t *const at = x + top * s->row + from;
                if (end - first == 4) {
                    word = emitc_four(at);
                } else {
                    for (int32_t i = first; i < end; i++) {
                        word ^= (uint32_t)(uint8_t)(at[i] ^ s->zero) << 8 * i;
                    }
                }
            }
            to[0] = emitc_even(word);
            to[step] = emitc_odd(word);
            to += 2 * step;
            top += s->down;
        }
        return to;
    }
#endif
    for (int32_t ky = s->rows; ky > 0; ky--) {
        const int32_t at = top * s->row + from;
        if (top < 0 || top >= s->in_h || first >= end) {
            to = emitc_filled_strided(to, step, zeros, (s->run + 1) >> 1);
        } else if (fours) {
            if (first > 0) {
                to = emitc_filled_strided(to, step, zeros, first >> 1);
            }
            to = emitc_widened_strided(to, step, x + at + first, end - first);
            if (end < s->run) {
                to = emitc_filled_strided(to, step, zeros, (s->run - end + 1) >> 1);
            }
        } else {
            to = emitc_widened_edge(to, step, x + at, first, end, s->run, s->zero);
        }
        if (s->run & 1) {
            to[-step] &= 0xffffu; /* the last value has no partner */
        }
        top += s->down;
    }
    return to;
}

/* After a pixel's values, in every fourth word from `first` up to `to`: minus their sum, in `words` words. The kernel
 * multiplies it by the zero point of all weights. */
EMITC_ALWAYS_INLINE void emitc_negative_sum(const uint32_t *first, uint32_t *to, int32_t words)
{
    int32_t sum = 0;
    for (; first != to; first += 4) {
        sum = emitc_pair_mac(sum, *first, 0xffffffffu);
    }
    const int32_t each = sum / (2 * words);
    for (; words > 1; words--) {
        *to = ((uint32_t)each & 0xffffu) | ((uint32_t)each << 16);
        to += 4;
        sum -= 2 * each;
    }
    *to = ((uint32_t)each & 0xffffu) | ((uint32_t)(sum - each) << 16);
}

/* emitc_tap_mac4 with weights of 16 bits: the first and third of the four in one word, the others in the next. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_tap_mac4_wide(emitc_acc4 acc, const int8_t *const *at, int32_t channel,
    const int16_t **w)
{
#if EMITC_DSP
    uint32_t value;
    uint32_t even;
    uint32_t first;
    uint32_t second;
    __asm__ volatile( /* in this order, as above */
        "ldr %[value], %[at]\n\t"
        "ldrd %[first], %[second], [%[w]], #8\n\t"
        "ldr %[value], [%[value], %[channel]]\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[a0], %[even], %[first], %[a0]\n\t"
        "smlatt %[a2], %[even], %[first], %[a2]\n\t"
        "smlabb %[a1], %[value], %[second], %[a1]\n\t"
        "smlatt %[a3], %[value], %[second], %[a3]"
        : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [w] "+r"(*w),
            [value] "=&r"(value),
          [even] "=&r"(even), [first] "=&r"(first), [second] "=&r"(second)
        : [at] "m"(*at), [channel] "r"(channel)
        : "memory");
#else
    uint32_t taps[2];
    memcpy(taps, *w, sizeof taps);
    *w += 4;
    const uint32_t value = emitc_four(*at + channel);
    const uint32_t even = emitc_even(value);
    const uint32_t odd = emitc_odd(value);
    acc.a0 = emitc_low_mac(acc.a0, even, taps[0]);
    acc.a1 = emitc_low_mac(acc.a1, odd, taps[1]);
    acc.a2 = emitc_high_mac(acc.a2, even, taps[0]);
    acc.a3 = emitc_high_mac(acc.a3, odd, taps[1]);
#endif
    return acc;
}

/* Widens four values into two words, as they follow each other. */
EMITC_ALWAYS_INLINE void emitc_in_order(uint32_t *first, uint32_t *second, const int8_t *values)
{
    const uint32_t word = emitc_four(values);
    const uint32_t even = emitc_even(word);
    const uint32_t odd = emitc_odd(word);
#if EMITC_DSP
    uint32_t low;
    uint32_t high;
    __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(low) : "r"(even), "r"(odd));
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(high) : "r"(odd), "r"(even));
    *first = low;
    *second = high;
#else
    *first = (even & 0xffffu) | (odd << 16);
    *second = (even >> 16) | (odd & 0xffff0000u);
#endif
}

#if EMITC_DSP
/* Two values of one pixel meet their weights of four channels, which are in two words. */
#define EMITC_DOT_WORDS(values) \
    "sxtb16 %[pair], %[first]\n\t" \
    "sxtb16 %[first], %[first], ror #8\n\t" \
    "smlad %[a0], %[" #values "], %[pair], %[a0]\n\t" \
    "sxtb16 %[pair], %[second]\n\t" \
    "smlad %[a1], %[" #values "], %[first], %[a1]\n\t" \
    "sxtb16 %[second], %[second], ror #8\n\t" \
    "smlad %[a2], %[" #values "], %[pair], %[a2]\n\t" \
    "smlad %[a3], %[" #values "], %[second], %[a3]\n\t"
#endif

#if EMITC_DSP
/* Four values of one pixel meet their weights of four channels. */
#define EMITC_DOT_FOUR \
    "ldr %[odd], [%[x]], #4\n\t" \
    "ldrd %[first], %[second], [%[w]], #8\n\t" \
    "sxtb16 %[even], %[odd]\n\t" \
    "sxtb16 %[odd], %[odd], ror #8\n\t" \
    EMITC_DOT_WORDS(even) \
    "ldrd %[first], %[second], [%[w]], #8\n\t" \
    EMITC_DOT_WORDS(odd)
#endif

/* One four of values in a round: shorter, and without optimization, and with clang, a register is missing for two. */
#if defined(__OPTIMIZE_SIZE__) || !defined(__OPTIMIZE__) || defined(__clang__)
#define EMITC_DOT_ONCE 1
#else
#define EMITC_DOT_ONCE 0
#endif

/* Adds to the sums of four channels of one pixel. w: for four values, two words with the even ones of two channels
 * each, then the odd ones; what is left of n follows value by value, four channels each. */
EMITC_INLINE_FOR_SPEED void emitc_pair_dot4(emitc_acc4 *sums, const int8_t *x, const int8_t *w, int32_t n)
{
    emitc_acc4 acc = *sums;
#if EMITC_DSP
    if (n >= 4) {
        const int8_t *const end = x + (n & ~3);
        uint32_t even;
        uint32_t odd;
        uint32_t first;
        uint32_t second;
        uint32_t pair;
        __asm__(
#if EMITC_DOT_ONCE
            "1:\n\t"
#else
            "lsls %[pair], %[n], #29\n\t" /* negative where the fours are odd in number */
            "bmi 2f\n"
            "1:\n\t"
            EMITC_DOT_FOUR
            "2:\n\t"
#endif
            EMITC_DOT_FOUR
            "cmp %[x], %[end]\n\t"
            "bne 1b"
            : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w),
              [even] "=&r"(even), [odd] "=&r"(odd), [first] "=&r"(first), [second] "=&r"(second), [pair] "=&r"(pair)
            : [end] "r"(end)
#if !EMITC_DOT_ONCE
              , [n] "r"(n)
#endif
            : "cc", "memory");
    }
#else
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t values = emitc_four(x);
        const uint32_t even = emitc_even(values);
        const uint32_t odd = emitc_odd(values);
        const uint32_t w01 = emitc_four(w);
        const uint32_t w23 = emitc_four(w + 4);
        acc.a0 = emitc_pair_mac(acc.a0, even, emitc_even(w01));
        acc.a1 = emitc_pair_mac(acc.a1, even, emitc_odd(w01));
        acc.a2 = emitc_pair_mac(acc.a2, even, emitc_even(w23));
        acc.a3 = emitc_pair_mac(acc.a3, even, emitc_odd(w23));
        const uint32_t v01 = emitc_four(w + 8);
        const uint32_t v23 = emitc_four(w + 12);
        acc.a0 = emitc_pair_mac(acc.a0, odd, emitc_even(v01));
        acc.a1 = emitc_pair_mac(acc.a1, odd, emitc_odd(v01));
        acc.a2 = emitc_pair_mac(acc.a2, odd, emitc_even(v23));
        acc.a3 = emitc_pair_mac(acc.a3, odd, emitc_odd(v23));
        x += 4;
        w += 16;
    }
#endif
    for (int32_t rest = n & 3; rest > 0; rest--) {
        acc = emitc_mac4(acc, *x, w);
        x += 1;
        w += 4;
    }
    *sums = acc;
}

/* emitc_pair_dot4 from `acc` on. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_pair_sums4(emitc_acc4 acc, const int8_t *x, const int8_t *w, int32_t n)
{
    emitc_pair_dot4(&acc, x, w, n);
    return acc;
}

/* acc + the products of n values with as many weights. */
EMITC_ALWAYS_INLINE int32_t emitc_pair_dot(int32_t acc, const int8_t *x, const int8_t *w, int32_t n)
{
#if !defined(__OPTIMIZE_SIZE__)
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t values = emitc_four(x);
        const uint32_t weights = emitc_four(w);
        acc = emitc_pair_mac(acc, emitc_even(values), emitc_even(weights));
        acc = emitc_pair_mac(acc, emitc_odd(values), emitc_odd(weights));
        x += 4;
        w += 4;
    }
    n &= 3;
#endif
    for (; n > 0; n--) {
        acc += *x++ * *w++;
    }
    return acc;
}

#endif
