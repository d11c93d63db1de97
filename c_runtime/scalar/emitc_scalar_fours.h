/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with thirty-one registers and no instructions for pairs or vectors (RV32IM): four products at a time.
 *
 * Part of a package whose kernels use it. Every core compiles the same functions, with the same results.
 *
 * As in emitc_scalar.h a word holds the values of two pixels, and its sums are split at 16 bits. The products of four
 * weights are added before that. Where they could have more than 16 bits together, a weight is smaller than the
 * model's. What it lost follows the filter's weights: a count of such parts, and for each part two numbers. The first
 * one says by how many weights its weight comes after that of the part before, the second one is the part.
 */
#ifndef EMITC_SCALAR_FOURS_H
#define EMITC_SCALAR_FOURS_H

#include "emitc_scalar.h"

/* The running sums of four pixels: of the whole words, modulo 2^32, and of the upper halves. */
typedef struct emitc_split_sums {
    uint32_t s01;
    uint32_t s23;
    int32_t h01;
    int32_t h23;
} emitc_split_sums;

/* The sums before the first product. fours: of the filter's weights. */
EMITC_ALWAYS_INLINE emitc_split_sums emitc_fours_start(int32_t bias, int32_t fours)
{
    const uint32_t words = (uint32_t)bias * 0x10001u - (uint32_t)fours * EMITC_HALF;
    const emitc_split_sums start = {words, words, bias, bias};
    return start;
}

/* Adds four products of two pixels to their sums. x: the words of the pixels, w: the weights. */
EMITC_ALWAYS_INLINE void emitc_fours_add(uint32_t *words, int32_t *high, const uint32_t *x, const uint32_t *w)
{
    const uint32_t sum = x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3] + EMITC_HALF;
    *words += sum;
    *high += (int32_t)sum >> 16;
}

/* Four weights as words. */
#define EMITC_FOURS_WEIGHTS(w) {(uint32_t)(w)[0], (uint32_t)(w)[1], (uint32_t)(w)[2], (uint32_t)(w)[3]}

/* Every second word of eight. */
#define EMITC_FOURS_VALUES(x) {(x)[0], (x)[2], (x)[4], (x)[6]}

/* The compiler is not to load what comes after this any earlier: registers would not do for it. */
#if EMITC_ASM
#define EMITC_FOURS_LATER __asm__ volatile("" : : : "memory")
#else
#define EMITC_FOURS_LATER (void)0
#endif

/* Adds what is missing of weights, which is at `w`, and gives the sums of the pixels. x: the filter's first words. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_fours_end(emitc_split_sums sums, const uint32_t *x, const int8_t *w)
{
    for (const int8_t *const end = w + 2 * (uint8_t)*w; w != end; w += 2) {
        const uint32_t part = (uint32_t)w[2];
        x += 2 * (uint8_t)w[1];
        const uint32_t p01 = x[0] * part;
        const uint32_t p23 = x[1] * part;
        sums.s01 += p01;
        sums.s23 += p23;
        sums.h01 += (int32_t)(p01 + EMITC_HALF) >> 16;
        sums.h23 += (int32_t)(p23 + EMITC_HALF) >> 16;
    }
    const emitc_acc4 ends = {(int32_t)(sums.s01 - ((uint32_t)sums.h01 << 16)), sums.h01,
        (int32_t)(sums.s23 - ((uint32_t)sums.h23 << 16)), sums.h23};
    return ends;
}

/* The weights of the next filter. */
EMITC_ALWAYS_INLINE const int8_t *emitc_fours_next(const int8_t *w, int32_t fours)
{
    return w + 4 * fours + 1 + 2 * (uint8_t)w[4 * fours];
}

/* The sums of four pixels and one channel: bias + the products of its weights, past which *weights is advanced. x: for
 * each weight the words of the first two and of the last two pixels. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_fours_sums(int32_t bias, const uint32_t *x, const int8_t **weights, int32_t fours)
{
    const int8_t *w = *weights;
    const uint32_t *at = x;
    emitc_split_sums sums = emitc_fours_start(bias, fours);
    *weights = emitc_fours_next(w, fours);
    for (const int8_t *const end = w + 4 * fours; w != end; w += 4) {
        const uint32_t weights_of[4] = EMITC_FOURS_WEIGHTS(w);
        const uint32_t first[4] = EMITC_FOURS_VALUES(at);
        const uint32_t second[4] = EMITC_FOURS_VALUES(at + 1);
        emitc_fours_add(&sums.s01, &sums.h01, first, weights_of);
        emitc_fours_add(&sums.s23, &sums.h23, second, weights_of);
        at += 8;
    }
    return emitc_fours_end(sums, x, w);
}

/* emitc_fours_sums of two channels, whose values are read once. */
EMITC_ALWAYS_INLINE emitc_eight emitc_fours_two(
    int32_t bias_a, int32_t bias_b, const uint32_t *x, const int8_t **weights, int32_t fours)
{
    const int8_t *w = *weights;
    const int8_t *v = emitc_fours_next(w, fours);
    const uint32_t *at = x;
    emitc_split_sums a = emitc_fours_start(bias_a, fours);
    emitc_split_sums b = emitc_fours_start(bias_b, fours);
    *weights = emitc_fours_next(v, fours);
    for (const int8_t *const end = w + 4 * fours; w != end; w += 4) {
        const uint32_t weights_a[4] = EMITC_FOURS_WEIGHTS(w);
        const uint32_t weights_b[4] = EMITC_FOURS_WEIGHTS(v);
        const uint32_t first[4] = EMITC_FOURS_VALUES(at);
        emitc_fours_add(&a.s01, &a.h01, first, weights_a);
        emitc_fours_add(&b.s01, &b.h01, first, weights_b);
        EMITC_FOURS_LATER;
        const uint32_t second[4] = EMITC_FOURS_VALUES(at + 1);
        emitc_fours_add(&a.s23, &a.h23, second, weights_a);
        emitc_fours_add(&b.s23, &b.h23, second, weights_b);
        EMITC_FOURS_LATER;
        at += 8;
        v += 4;
    }
    const emitc_eight sums = {emitc_fours_end(a, x, w), emitc_fours_end(b, x, v)};
    return sums;
}

#endif
