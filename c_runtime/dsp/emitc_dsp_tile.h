/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: sums of several pixels and channels at once, with inner loops in assembly
 * where gcc compiles. A gcc that keeps a register for itself, by -fno-omit-frame-pointer or the like, says "impossible
 * constraints": compile without that option, or with EMITC_NO_ASM.
 */
#ifndef EMITC_DSP_TILE_H
#define EMITC_DSP_TILE_H

#include "emitc_dsp.h"

#if EMITC_DSP
/* Two words of the pixel, with two double words of weights. */
#define EMITC_ONE_WORDS \
    "ldrd %[p], %[q], [%[x]], #8\n\t" \
    "ldrd %[first], %[second], [%[w]], #8\n\t" \
    EMITC_DOT_WORDS(p) \
    "ldrd %[first], %[second], [%[w]], #8\n\t" \
    EMITC_DOT_WORDS(q)
#endif

/* To the sums of one pixel and four channels adds what emitc_two_more does. x: one word for each double word of
 * weights. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_one_more(emitc_acc4 acc, const uint32_t *x, const int8_t **weights, int32_t words)
{
    const int8_t *w = *weights;
    int32_t rest = words;
#if EMITC_DSP
    if (words >= 4) {
        const uint32_t *const end = x + (words & ~3);
        uint32_t p;
        uint32_t q;
        uint32_t first;
        uint32_t second;
        uint32_t pair;
        __asm__ volatile(
            "1:\n\t"
            EMITC_ONE_WORDS
            EMITC_ONE_WORDS
            "cmp %[x], %[end]\n\t"
            "bne 1b"
            : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w),
              [p] "=&r"(p), [q] "=&r"(q), [first] "=&r"(first), [second] "=&r"(second), [pair] "=&r"(pair)
            : [end] "r"(end)
            : "cc", "memory");
        rest = words & 3;
    }
#endif
    for (; rest > 0; rest--) {
        const uint32_t low = emitc_four(w);
        const uint32_t high = emitc_four(w + 4);
        acc.a0 = emitc_pair_mac(acc.a0, x[0], emitc_even(low));
        acc.a1 = emitc_pair_mac(acc.a1, x[0], emitc_odd(low));
        acc.a2 = emitc_pair_mac(acc.a2, x[0], emitc_even(high));
        acc.a3 = emitc_pair_mac(acc.a3, x[0], emitc_odd(high));
        x += 1;
        w += 8;
    }
    *weights = w;
    return acc;
}

/* The same from the bias on. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_one_sums(const int32_t *bias, const uint32_t *x, const int8_t **weights,
    int32_t words)
{
    const emitc_acc4 acc = {bias[0], bias[1], bias[2], bias[3]};
    return emitc_one_more(acc, x, weights, words);
}

/* Sums of four pixels, for a first channel and for a second one. */
typedef struct emitc_tile {
    int32_t a0;
    int32_t a1;
    int32_t a2;
    int32_t a3;
    int32_t b0;
    int32_t b1;
    int32_t b2;
    int32_t b3;
} emitc_tile;

/* The inner loops in assembly take every register, which only an optimizing gcc can give. */
#if EMITC_DSP && defined(__OPTIMIZE__) && !defined(__clang__) && !defined(__ARM_FEATURE_MVE)
#define EMITC_TILE_ASM 1
#else
#define EMITC_TILE_ASM 0
#endif

#if EMITC_TILE_ASM
/* One word of weights, two values of two channels, meets the same two values of four pixels: 16 products. */
#define EMITC_TILE_WORD \
    "ldr %[odd], [%[w]], #4\n\t" \
    "sxtb16 %[even], %[odd]\n\t" \
    "sxtb16 %[odd], %[odd], ror #8\n\t" \
    "ldrd %[p], %[q], [%[x]], #8\n\t" \
    "smlad %[a0], %[p], %[even], %[a0]\n\t" \
    "smlad %[b0], %[p], %[odd], %[b0]\n\t" \
    "smlad %[a1], %[q], %[even], %[a1]\n\t" \
    "smlad %[b1], %[q], %[odd], %[b1]\n\t" \
    "ldrd %[p], %[q], [%[x]], #8\n\t" \
    "smlad %[a2], %[p], %[even], %[a2]\n\t" \
    "smlad %[b2], %[p], %[odd], %[b2]\n\t" \
    "smlad %[a3], %[q], %[even], %[a3]\n\t" \
    "smlad %[b3], %[q], %[odd], %[b3]\n\t"
/* Four words a turn until w is at `most`, then one until it is at `end`. Both are in memory: the fourteen registers
 * that there are hold the rest. */
#define EMITC_TILE_TEXT \
    "mov %[a1], %[a0]\n\t" \
    "mov %[a2], %[a0]\n\t" \
    "mov %[a3], %[a0]\n\t" \
    "mov %[b1], %[b0]\n\t" \
    "mov %[b2], %[b0]\n\t" \
    "mov %[b3], %[b0]\n\t" \
    "b 2f\n" \
    "1:\n\t" EMITC_TILE_WORD EMITC_TILE_WORD EMITC_TILE_WORD EMITC_TILE_WORD \
    "2:\n\t" \
    "ldr %[p], %[most]\n\t" \
    "cmp %[w], %[p]\n\t" \
    "bne 1b\n\t" \
    "b 4f\n" \
    "3:\n\t" EMITC_TILE_WORD \
    "4:\n\t" \
    "ldr %[p], %[end]\n\t" \
    "cmp %[w], %[p]\n\t" \
    "bne 3b\n\t"
/* One sum as an output; even is its multiplier, odd the shift, q what is added before it. */
#define EMITC_TILE_UP(sum) \
    "lsl %[" #sum "], %[" #sum "], #1\n\t" \
    "smmlar %[" #sum "], %[" #sum "], %[even], %[q]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[odd]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_TILE_AWAY(sum) \
    "lsl %[" #sum "], %[" #sum "], #1\n\t" \
    "smmulr %[" #sum "], %[" #sum "], %[even]\n\t" \
    "add %[" #sum "], %[" #sum "], %[" #sum "], asr #31\n\t" \
    "add %[" #sum "], %[" #sum "], %[q]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[odd]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
/* All four of one channel by its float32 factor, in even; q is the output's zero point. */
#define EMITC_TILE_FLOAT(c) \
    "ldr %[even], %[factor_" #c "]\n\tldr %[q], %[offset]\n\tvmov s4, %[even]\n\t" \
    "vmov s0, s1, %[" #c "0], %[" #c "1]\n\tvmov s2, s3, %[" #c "2], %[" #c "3]\n\t" \
    "vcvt.f32.s32 s0, s0\n\tvcvt.f32.s32 s1, s1\n\tvcvt.f32.s32 s2, s2\n\tvcvt.f32.s32 s3, s3\n\t" \
    "vmul.f32 s0, s0, s4\n\tvmul.f32 s1, s1, s4\n\tvmul.f32 s2, s2, s4\n\tvmul.f32 s3, s3, s4\n\t" \
    "vcvtr.s32.f32 s0, s0\n\tvcvtr.s32.f32 s1, s1\n\tvcvtr.s32.f32 s2, s2\n\tvcvtr.s32.f32 s3, s3\n\t" \
    "vmov %[" #c "0], %[" #c "1], s0, s1\n\tvmov %[" #c "2], %[" #c "3], s2, s3\n\t" \
    EMITC_TILE_PLACE(c##0) "strb %[" #c "0], [%[x]]\n\t" \
    EMITC_TILE_PLACE(c##1) "strb %[" #c "1], [%[x], %[p]]\n\t" \
    EMITC_TILE_PLACE(c##2) "strb %[" #c "2], [%[x], %[p], lsl #1]\n\tadd %[x], %[x], %[p]\n\t" \
    EMITC_TILE_PLACE(c##3) "strb %[" #c "3], [%[x], %[p], lsl #1]\n\t"
#define EMITC_TILE_PLACE(sum) "qadd %[" #sum "], %[" #sum "], %[q]\n\tssat %[" #sum "], #8, %[" #sum "]\n\t"
/* All four of one channel, from x on and p apart. */
#define EMITC_TILE_STORE(output, c) \
    "ldr %[even], %[q31_" #c "]\n\t" \
    "ldr %[odd], %[right_" #c "]\n\t" \
    "ldr %[q], %[start_" #c "]\n\t" \
    output(c##0) "strb %[" #c "0], [%[x]]\n\t" \
    output(c##1) "strb %[" #c "1], [%[x], %[p]]\n\t" \
    output(c##2) "strb %[" #c "2], [%[x], %[p], lsl #1]\n\t" \
    "add %[x], %[x], %[p]\n\t" \
    output(c##3) "strb %[" #c "3], [%[x], %[p], lsl #1]\n\t"
#define EMITC_TILE_REGISTERS \
    [a0] "+r"(sum_a), [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "+r"(sum_b), [b1] "=&r"(b1), \
        [b2] "=&r"(b2), \
        [b3] "=&r"(b3), [x] "+r"(x), [w] "+r"(w), [even] "=&r"(even), [odd] "=&r"(odd), [p] "=&r"(p), [q] "=&r"(q)
/* Sums and outputs: store(a) and store(b) have those of a channel. */
#define EMITC_TILE_BOTH(store) \
    EMITC_TILE_TEXT \
    "ldr %[x], %[y]\n\t" \
    "ldr %[p], %[step]\n\t" store(a) \
    "sub %[x], %[x], %[p]\n\t" \
    "add %[x], %[x], #1\n\t" store(b)
#define EMITC_TILE_UP_STORE(c) EMITC_TILE_STORE(EMITC_TILE_UP, c)
#define EMITC_TILE_AWAY_STORE(c) EMITC_TILE_STORE(EMITC_TILE_AWAY, c)
#define EMITC_TILE(store) \
    __asm__ volatile(EMITC_TILE_BOTH(store) \
        : EMITC_TILE_REGISTERS \
        : [most] "m"(most), [end] "m"(end), [y] "m"(y), [step] "m"(step), [q31_a] "m"(a.q31), [right_a] "m"(a.right), \
          [start_a] "m"(a.start), [q31_b] "m"(b.q31), [right_b] "m"(b.right), [start_b] "m"(b.start) \
        : "cc", "memory")
/* What its functions start with. */
#define EMITC_TILE_START \
    const int8_t *w = *weights; \
    const int8_t *const end = w + words * 4; \
    const int8_t *const most = end - (words & 3) * 4; \
    int32_t sum_a = bias_a; \
    int32_t sum_b = bias_b; \
    int32_t a1, a2, a3, b1, b2, b3; \
    uint32_t even, odd, p, q;
#endif

/* The sums of four pixels and two channels: from bias on the products of `words` words of weights, past which *weights
 * is advanced. x: four words for each of them, one of every pixel. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tile_sums(int32_t bias_a, int32_t bias_b, const uint32_t *x,
    const int8_t **weights, int32_t words)
{
#if EMITC_TILE_ASM
    EMITC_TILE_START
    __asm__ volatile(EMITC_TILE_TEXT : EMITC_TILE_REGISTERS : [most] "m"(most), [end] "m"(end) : "cc", "memory");
    const emitc_tile t = {sum_a, a1, a2, a3, sum_b, b1, b2, b3};
#else
    emitc_tile t = {bias_a, bias_a, bias_a, bias_a, bias_b, bias_b, bias_b, bias_b};
    const int8_t *w = *weights;
    for (int32_t word = words; word > 0; word--) {
        const uint32_t two = emitc_four(w);
        const uint32_t even = emitc_even(two);
        const uint32_t odd = emitc_odd(two);
        t.a0 = emitc_pair_mac(t.a0, x[0], even);
        t.b0 = emitc_pair_mac(t.b0, x[0], odd);
        t.a1 = emitc_pair_mac(t.a1, x[1], even);
        t.b1 = emitc_pair_mac(t.b1, x[1], odd);
        t.a2 = emitc_pair_mac(t.a2, x[2], even);
        t.b2 = emitc_pair_mac(t.b2, x[2], odd);
        t.a3 = emitc_pair_mac(t.a3, x[3], even);
        t.b3 = emitc_pair_mac(t.b3, x[3], odd);
        x += 4;
        w += 4;
    }
#endif
    *weights = w;
    return t;
}

#if EMITC_TILE_ASM
#define EMITC_TILE_FUNCTION(name, text) \
    EMITC_ALWAYS_INLINE void name( \
        int32_t bias_a, int32_t bias_b, const uint32_t *x, const int8_t **weights, int32_t words, int8_t *y, \
        int32_t step, \
        emitc_output a, emitc_output b) \
    { \
        EMITC_TILE_START \
        EMITC_TILE(text##_STORE); \
        *weights = w; \
    }
#else
#define EMITC_TILE_FUNCTION(name, text) \
    EMITC_ALWAYS_INLINE void name( \
        int32_t bias_a, int32_t bias_b, const uint32_t *x, const int8_t **weights, int32_t words, int8_t *y, \
        int32_t step, \
        emitc_output a, emitc_output b) \
    { \
        const emitc_tile t = emitc_tile_sums(bias_a, bias_b, x, weights, words); \
        y[0] = text(t.a0, a); \
        y[step] = text(t.a1, a); \
        y[2 * step] = text(t.a2, a); \
        y[3 * step] = text(t.a3, a); \
        y[1] = text(t.b0, b); \
        y[step + 1] = text(t.b1, b); \
        y[2 * step + 1] = text(t.b2, b); \
        y[3 * step + 1] = text(t.b3, b); \
    }
#define EMITC_TILE_UP emitc_output_up
#define EMITC_TILE_AWAY emitc_output_away
#endif

/* The outputs of four pixels and two channels: emitc_tile_sums, then emitc_output_up or emitc_output_away of each.
 * step: bytes from one pixel's output to the next. */
EMITC_TILE_FUNCTION(emitc_tile_up, EMITC_TILE_UP)
EMITC_TILE_FUNCTION(emitc_tile_away, EMITC_TILE_AWAY)

#if EMITC_TILE_ASM
/* Two words of weights, two values of four channels, meet the same two values of two pixels: 16 products. */
#define EMITC_TWO_WORD \
    "ldrd %[p], %[q], [%[x]], #8\n\t" \
    "ldr %[odd], [%[w]], #4\n\t" \
    "sxtb16 %[even], %[odd]\n\t" \
    "sxtb16 %[odd], %[odd], ror #8\n\t" \
    "smlad %[a0], %[p], %[even], %[a0]\n\t" \
    "smlad %[b0], %[q], %[even], %[b0]\n\t" \
    "smlad %[a1], %[p], %[odd], %[a1]\n\t" \
    "smlad %[b1], %[q], %[odd], %[b1]\n\t" \
    "ldr %[odd], [%[w]], #4\n\t" \
    "sxtb16 %[even], %[odd]\n\t" \
    "sxtb16 %[odd], %[odd], ror #8\n\t" \
    "smlad %[a2], %[p], %[even], %[a2]\n\t" \
    "smlad %[b2], %[q], %[even], %[b2]\n\t" \
    "smlad %[a3], %[p], %[odd], %[a3]\n\t" \
    "smlad %[b3], %[q], %[odd], %[b3]\n\t"
#endif

/* To the sums t of two pixels (a, b) and four channels adds the products of `words` double words of weights, the first
 * with two values of channels 0 and 1, the second of 2 and 3; *weights is advanced past them. x: two words for each of
 * them, one of either pixel. */
EMITC_ALWAYS_INLINE emitc_tile emitc_two_more(emitc_tile t, const uint32_t *x, const int8_t **weights, int32_t words)
{
    const int8_t *w = *weights;
#if EMITC_TILE_ASM && !defined(__OPTIMIZE_SIZE__) /* gcc inlines it there where a register is missing */
    const int8_t *const end = w + 8 * words;
    const int8_t *const most = end - 8 * (words & 3);
    uint32_t even, odd, p, q;
    __asm__ volatile(
        "b 2f\n"
        "1:\n\t" EMITC_TWO_WORD EMITC_TWO_WORD EMITC_TWO_WORD EMITC_TWO_WORD
        "2:\n\t"
        "ldr %[p], %[most]\n\t"
        "cmp %[w], %[p]\n\t"
        "bne 1b\n\t"
        "b 4f\n"
        "3:\n\t" EMITC_TWO_WORD
        "4:\n\t"
        "ldr %[p], %[end]\n\t"
        "cmp %[w], %[p]\n\t"
        "bne 3b"
        : [a0] "+r"(t.a0), [a1] "+r"(t.a1), [a2] "+r"(t.a2), [a3] "+r"(t.a3), [b0] "+r"(t.b0), [b1] "+r"(t.b1),
          [b2] "+r"(t.b2), [b3] "+r"(t.b3), [x] "+r"(x), [w] "+r"(w), [even] "=&r"(even), [odd] "=&r"(odd),
          [p] "=&r"(p), [q] "=&r"(q)
        : [most] "m"(most), [end] "m"(end)
        : "cc", "memory");
#else
    for (int32_t word = words; word > 0; word--) {
        const uint32_t first = emitc_four(w);
        const uint32_t second = emitc_four(w + 4);
        t.a0 = emitc_pair_mac(t.a0, x[0], emitc_even(first));
        t.b0 = emitc_pair_mac(t.b0, x[1], emitc_even(first));
        t.a1 = emitc_pair_mac(t.a1, x[0], emitc_odd(first));
        t.b1 = emitc_pair_mac(t.b1, x[1], emitc_odd(first));
        t.a2 = emitc_pair_mac(t.a2, x[0], emitc_even(second));
        t.b2 = emitc_pair_mac(t.b2, x[1], emitc_even(second));
        t.a3 = emitc_pair_mac(t.a3, x[0], emitc_odd(second));
        t.b3 = emitc_pair_mac(t.b3, x[1], emitc_odd(second));
        x += 2;
        w += 8;
    }
#endif
    *weights = w;
    return t;
}

/* emitc_two_more from the bias on. */
EMITC_ALWAYS_INLINE emitc_tile emitc_two_sums(const int32_t *bias, const uint32_t *x, const int8_t **weights,
    int32_t words)
{
    const emitc_tile t = {bias[0], bias[1], bias[2], bias[3], bias[0], bias[1], bias[2], bias[3]};
    return emitc_two_more(t, x, weights, words);
}

/* emitc_two_more for `blocks` contiguous sums, whose weights are `step` bytes apart. */
EMITC_NOINLINE void emitc_two_more_each(
    emitc_tile *sums, int32_t blocks, const uint32_t *x, const int8_t *weights, int32_t words, int32_t step)
{
    for (int32_t block = 0; block < blocks; block++) {
        const int8_t *w = weights;
        sums[block] = emitc_two_more(sums[block], x, &w, words);
        weights += step;
    }
}

/* The same for the first pixel alone; x: its words, contiguous. */
EMITC_NOINLINE void emitc_first_more_each(
    emitc_tile *sums, int32_t blocks, const uint32_t *x, const int8_t *weights, int32_t words, int32_t step)
{
    for (int32_t block = 0; block < blocks; block++) {
        const int8_t *w = weights;
        emitc_tile *const t = &sums[block];
        const emitc_acc4 start = {t->a0, t->a1, t->a2, t->a3};
        const emitc_acc4 acc = emitc_one_more(start, x, &w, words);
        t->a0 = acc.a0;
        t->a1 = acc.a1;
        t->a2 = acc.a2;
        t->a3 = acc.a3;
        weights += step;
    }
}

/* emitc_tile_sums by float32 factors: emitc_output_float of each. */
EMITC_ALWAYS_INLINE void emitc_tile_float(
    int32_t bias_a, int32_t bias_b, const uint32_t *x, const int8_t **weights, int32_t words, int8_t *y, int32_t step,
    float factor_a, float factor_b, int32_t offset)
{
#if EMITC_TILE_ASM && defined(__ARM_FP)
    EMITC_TILE_START
    __asm__ volatile(EMITC_TILE_BOTH(EMITC_TILE_FLOAT)
        : EMITC_TILE_REGISTERS
        : [most] "m"(most), [end] "m"(end), [y] "m"(y), [step] "m"(step), [factor_a] "m"(factor_a),
            [factor_b] "m"(factor_b),
          [offset] "m"(offset)
        : "cc", "memory", "s0", "s1", "s2", "s3", "s4");
    *weights = w;
#else
    const emitc_tile t = emitc_tile_sums(bias_a, bias_b, x, weights, words);
    y[0] = emitc_output_float(t.a0, factor_a, offset);
    y[step] = emitc_output_float(t.a1, factor_a, offset);
    y[2 * step] = emitc_output_float(t.a2, factor_a, offset);
    y[3 * step] = emitc_output_float(t.a3, factor_a, offset);
    y[1] = emitc_output_float(t.b0, factor_b, offset);
    y[step + 1] = emitc_output_float(t.b1, factor_b, offset);
    y[2 * step + 1] = emitc_output_float(t.b2, factor_b, offset);
    y[3 * step + 1] = emitc_output_float(t.b3, factor_b, offset);
#endif
}

/* emitc_tap_mac4 for two pixels, with the sums a and b; one is at *first, the other one at *second. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac4_twice(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int8_t **w)
{
    const int8_t *again = *w;
    const emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3};
    const emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3};
    const emitc_acc4 sum_a = emitc_tap_mac4(a, first, channel, w);
    const emitc_acc4 sum_b = emitc_tap_mac4(b, second, channel, &again);
    const emitc_tile sums = {sum_a.a0, sum_a.a1, sum_a.a2, sum_a.a3, sum_b.a0, sum_b.a1, sum_b.a2, sum_b.a3};
    return sums;
}

/* The same with weights of 16 bits. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac4_wide_twice(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int16_t **w)
{
    const int16_t *again = *w;
    const emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3};
    const emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3};
    const emitc_acc4 sum_a = emitc_tap_mac4_wide(a, first, channel, w);
    const emitc_acc4 sum_b = emitc_tap_mac4_wide(b, second, channel, &again);
    const emitc_tile sums = {sum_a.a0, sum_a.a1, sum_a.a2, sum_a.a3, sum_b.a0, sum_b.a1, sum_b.a2, sum_b.a3};
    return sums;
}

/* emitc_tap_mac4_twice in one piece, which takes every register there is. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac8(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int8_t **w)
{
#if EMITC_TILE_ASM
    uint32_t value;
    uint32_t tap;
    uint32_t even;
    uint32_t tap_even;
    __asm__ volatile(
        "ldr %[value], %[first]\n\t"
        "ldr %[tap], [%[w]], #4\n\t"
        "ldr %[value], [%[value], %[channel]]\n\t"
        "sxtb16 %[tap_even], %[tap]\n\t"
        "sxtb16 %[tap], %[tap], ror #8\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[a0], %[even], %[tap_even], %[a0]\n\t"
        "smlatt %[a2], %[even], %[tap_even], %[a2]\n\t"
        "ldr %[even], %[second]\n\t"
        "smlabb %[a1], %[value], %[tap], %[a1]\n\t"
        "smlatt %[a3], %[value], %[tap], %[a3]\n\t"
        "ldr %[value], [%[even], %[channel]]\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[b0], %[even], %[tap_even], %[b0]\n\t"
        "smlatt %[b2], %[even], %[tap_even], %[b2]\n\t"
        "smlabb %[b1], %[value], %[tap], %[b1]\n\t"
        "smlatt %[b3], %[value], %[tap], %[b3]"
        : [a0] "+r"(t.a0), [a1] "+r"(t.a1), [a2] "+r"(t.a2), [a3] "+r"(t.a3), [b0] "+r"(t.b0), [b1] "+r"(t.b1),
          [b2] "+r"(t.b2), [b3] "+r"(t.b3), [w] "+r"(*w), [value] "=&r"(value), [tap] "=&r"(tap), [even] "=&r"(even),
          [tap_even] "=&r"(tap_even)
        : [first] "m"(*first), [second] "m"(*second), [channel] "r"(channel)
        : "memory");
    return t;
#else
    return emitc_tap_mac4_twice(t, first, second, channel, w);
#endif
}

/* emitc_tap_mac4_wide_twice in one piece. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac8_wide(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int16_t **w)
{
#if EMITC_TILE_ASM
    uint32_t value;
    uint32_t tap;
    uint32_t even;
    uint32_t tap_even;
    __asm__ volatile(
        "ldr %[value], %[first]\n\t"
        "ldrd %[tap_even], %[tap], [%[w]], #8\n\t"
        "ldr %[value], [%[value], %[channel]]\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[a0], %[even], %[tap_even], %[a0]\n\t"
        "smlatt %[a2], %[even], %[tap_even], %[a2]\n\t"
        "ldr %[even], %[second]\n\t"
        "smlabb %[a1], %[value], %[tap], %[a1]\n\t"
        "smlatt %[a3], %[value], %[tap], %[a3]\n\t"
        "ldr %[value], [%[even], %[channel]]\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[b0], %[even], %[tap_even], %[b0]\n\t"
        "smlatt %[b2], %[even], %[tap_even], %[b2]\n\t"
        "smlabb %[b1], %[value], %[tap], %[b1]\n\t"
        "smlatt %[b3], %[value], %[tap], %[b3]"
        : [a0] "+r"(t.a0), [a1] "+r"(t.a1), [a2] "+r"(t.a2), [a3] "+r"(t.a3), [b0] "+r"(t.b0), [b1] "+r"(t.b1),
          [b2] "+r"(t.b2), [b3] "+r"(t.b3), [w] "+r"(*w), [value] "=&r"(value), [tap] "=&r"(tap), [even] "=&r"(even),
          [tap_even] "=&r"(tap_even)
        : [first] "m"(*first), [second] "m"(*second), [channel] "r"(channel)
        : "memory");
    return t;
#else
    return emitc_tap_mac4_wide_twice(t, first, second, channel, w);
#endif
}

#endif
