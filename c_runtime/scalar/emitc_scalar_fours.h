/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with thirty-one registers and no instructions for pairs or vectors (RV32IM): four products at a time.
 *
 * Part of a package whose kernels use it. Every core compiles the same functions, with the same results.
 *
 * As in emitc_scalar.h a word holds the values of two pixels, and its sums are split at 16 bits. The products of four
 * weights are added before that. Where they could have more than 16 bits together, a weight is smaller than the
 * model's. What it lost follows the filter's weights in runs of such parts, whose products have 16 bits together: the
 * length of a run, and for each part two numbers; a run of none is the last. The first number says by how many weights
 * the part's weight comes after that of the part before, the second one is the part.
 *
 * Two filters lie four weights of each by four weights of each, then come their parts, filter by filter. The filter
 * that may be left over lies by itself.
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

/* emitc_joined for more than a few values. */
EMITC_ALWAYS_INLINE uint32_t *emitc_fours_joined(uint32_t *to, const int8_t *first, const int8_t *second, int32_t n)
{
    for (; n > 3; n -= 4) {
        to[0] = (uint32_t)first[0] + ((uint32_t)second[0] << 16);
        to[2] = (uint32_t)first[1] + ((uint32_t)second[1] << 16);
        to[4] = (uint32_t)first[2] + ((uint32_t)second[2] << 16);
        to[6] = (uint32_t)first[3] + ((uint32_t)second[3] << 16);
        first += 4;
        second += 4;
        to += 8;
    }
    return emitc_joined(to, first, second, n);
}

/* The sums before the first product. fours: of the filter's weights. */
EMITC_ALWAYS_INLINE emitc_split_sums emitc_fours_start(int32_t bias, int32_t fours)
{
    const uint32_t words = (uint32_t)bias * 0x10001u - (uint32_t)fours * EMITC_HALF;
    const emitc_split_sums start = {words, words, bias, bias};
    return start;
}

/* Adds the products of all fours of weights. x: for each weight the words of the first two and of the last two pixels.
 * step: from four weights to the next ones. */
EMITC_ALWAYS_INLINE void emitc_fours_add(
    emitc_split_sums *sums, const uint32_t *x, const int8_t *w, int32_t step, int32_t fours)
{
    for (; fours > 0; fours--) {
        const uint32_t w0 = (uint32_t)w[0];
        const uint32_t w1 = (uint32_t)w[1];
        const uint32_t w2 = (uint32_t)w[2];
        const uint32_t w3 = (uint32_t)w[3];
        const uint32_t p01 = x[0] * w0 + x[2] * w1 + x[4] * w2 + x[6] * w3 + EMITC_HALF;
        const uint32_t p23 = x[1] * w0 + x[3] * w1 + x[5] * w2 + x[7] * w3 + EMITC_HALF;
        sums->s01 += p01;
        sums->s23 += p23;
        sums->h01 += (int32_t)p01 >> 16;
        sums->h23 += (int32_t)p23 >> 16;
        x += 8;
        w += step;
    }
}

/* Adds what is missing of a filter's weights, which is at *parts and past which that is advanced, and gives the sums of
 * the pixels. x: the filter's first words. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_fours_end(emitc_split_sums sums, const uint32_t *x, const int8_t **parts)
{
    const int8_t *w = *parts;
    for (int32_t run = (uint8_t)*w++; run != 0; run = (uint8_t)*w++) {
        uint32_t p01 = 0;
        uint32_t p23 = 0;
        for (const int8_t *const end = w + 2 * run; w != end; w += 2) {
            const uint32_t part = (uint32_t)w[1];
            x += 2 * (uint8_t)w[0];
            p01 += x[0] * part;
            p23 += x[1] * part;
        }
        sums.s01 += p01;
        sums.s23 += p23;
        sums.h01 += (int32_t)(p01 + EMITC_HALF) >> 16;
        sums.h23 += (int32_t)(p23 + EMITC_HALF) >> 16;
    }
    *parts = w;
    const emitc_acc4 ends = {(int32_t)(sums.s01 - ((uint32_t)sums.h01 << 16)), sums.h01,
        (int32_t)(sums.s23 - ((uint32_t)sums.h23 << 16)), sums.h23};
    return ends;
}

/* The sums of four pixels and one channel: bias + the products of its weights, past which *weights is advanced. x: as
 * above. fours > 0. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_fours_one(int32_t bias, const uint32_t *x, const int8_t **weights, int32_t fours)
{
    emitc_split_sums sums = emitc_fours_start(bias, fours);
    emitc_fours_add(&sums, x, *weights, 4, fours);
    *weights += 4 * fours;
    return emitc_fours_end(sums, x, weights);
}

#if defined(EMITC_SCALAR_RV32)
/* A weight of each of the two filters times the words of its values; at first, and added to what there is. */
#define EMITC_FOURS_READ(k, x01, x23) \
    "lw %[v01], " x01 "(%[at])\n\t" \
    "lb %[u], " k "(%[w])\n\t" \
    "lw %[v23], " x23 "(%[at])\n\t" \
    "lb %[t], 4+" k "(%[w])\n\t"
#define EMITC_FOURS_FIRST(k, x01, x23) \
    EMITC_FOURS_READ(k, x01, x23) \
    "mul %[a01], %[u], %[v01]\n\t" \
    "mul %[a23], %[u], %[v23]\n\t" \
    "mul %[b01], %[t], %[v01]\n\t" \
    "mul %[b23], %[t], %[v23]\n\t"
#define EMITC_FOURS_NEXT(k, x01, x23) \
    EMITC_FOURS_READ(k, x01, x23) \
    "mul ra, %[u], %[v01]\n\t" \
    "mul %[u], %[u], %[v23]\n\t" \
    "add %[a01], %[a01], ra\n\t" \
    "mul %[v01], %[t], %[v01]\n\t" \
    "add %[a23], %[a23], %[u]\n\t" \
    "mul %[v23], %[t], %[v23]\n\t" \
    "add %[b01], %[b01], %[v01]\n\t" \
    "add %[b23], %[b23], %[v23]\n\t"
/* The running sums of a word and of its upper half. */
#define EMITC_FOURS_SPLIT(p, words, high) \
    "add %[" p "], %[" p "], %[half]\n\t" \
    "add %[" words "], %[" words "], %[" p "]\n\t" \
    "srai %[" p "], %[" p "], 16\n\t" \
    "add %[" high "], %[" high "], %[" p "]\n\t"
#endif

/* emitc_fours_one of two channels, whose values are read once. */
EMITC_ALWAYS_INLINE emitc_eight emitc_fours_two(
    int32_t bias_a, int32_t bias_b, const uint32_t *x, const int8_t **weights, int32_t fours)
{
    emitc_split_sums a = emitc_fours_start(bias_a, fours);
    emitc_split_sums b = emitc_fours_start(bias_b, fours);
#if defined(EMITC_SCALAR_RV32)
    const int8_t *w = *weights;
    const uint32_t *at = x;
    uint32_t a01;
    uint32_t a23;
    uint32_t b01;
    uint32_t b23;
    uint32_t v01;
    uint32_t v23;
    uint32_t t;
    uint32_t u;
    /* Two fours a round; of an odd number, the first round makes its second one only. A round begins at a whole word,
     * where the core jumps to in a cycle less. */
    __asm__(
        "sub ra, %[end], %[w]\n\t"
        "andi ra, ra, 8\n\t"
        "bnez ra, 3f\n\t"
        ".balign 4\n"
        "1:\n\t"
        EMITC_FOURS_FIRST("0", "0", "4")
        EMITC_FOURS_NEXT("1", "8", "12")
        EMITC_FOURS_NEXT("2", "16", "20")
        EMITC_FOURS_NEXT("3", "24", "28")
        EMITC_FOURS_SPLIT("a01", "a0", "a1")
        EMITC_FOURS_SPLIT("a23", "a2", "a3")
        EMITC_FOURS_SPLIT("b01", "b0", "b1")
        EMITC_FOURS_SPLIT("b23", "b2", "b3")
        "2:\n\t"
        EMITC_FOURS_FIRST("8", "32", "36")
        EMITC_FOURS_NEXT("9", "40", "44")
        EMITC_FOURS_NEXT("10", "48", "52")
        EMITC_FOURS_NEXT("11", "56", "60")
        "addi %[w], %[w], 16\n\t"
        "addi %[at], %[at], 64\n\t"
        EMITC_FOURS_SPLIT("a01", "a0", "a1")
        EMITC_FOURS_SPLIT("a23", "a2", "a3")
        EMITC_FOURS_SPLIT("b01", "b0", "b1")
        EMITC_FOURS_SPLIT("b23", "b2", "b3")
        "bne %[w], %[end], 1b\n\t"
        ".subsection 1\n"
        "3:\n\taddi %[w], %[w], -8\n\taddi %[at], %[at], -32\n\tj 2b\n\t"
        ".previous"
        : [a0] "+r"(a.s01), [a1] "+r"(a.h01), [a2] "+r"(a.s23), [a3] "+r"(a.h23),
          [b0] "+r"(b.s01), [b1] "+r"(b.h01), [b2] "+r"(b.s23), [b3] "+r"(b.h23), [w] "+r"(w), [at] "+r"(at),
          [a01] "=&r"(a01), [a23] "=&r"(a23), [b01] "=&r"(b01), [b23] "=&r"(b23),
          [v01] "=&r"(v01), [v23] "=&r"(v23), [t] "=&r"(t), [u] "=&r"(u)
        : [end] "r"(w + 8 * fours), [half] "r"(EMITC_HALF)
        : "ra", "memory");
    *weights = w;
#else
    emitc_fours_add(&a, x, *weights, 8, fours);
    emitc_fours_add(&b, x, *weights + 4, 8, fours);
    *weights += 8 * fours;
#endif
    emitc_eight sums;
    sums.a = emitc_fours_end(a, x, weights);
    sums.b = emitc_fours_end(b, x, weights);
    return sums;
}

/* The sums of one pixel and two channels. */
typedef struct emitc_pixel_sums {
    int32_t a;
    int32_t b;
} emitc_pixel_sums;

/* The value of the first pixel in a word. */
EMITC_ALWAYS_INLINE int32_t emitc_fours_value(uint32_t word)
{
    return (int16_t)(uint16_t)word;
}

/* emitc_fours_end for the first pixel alone. */
EMITC_ALWAYS_INLINE int32_t emitc_fours_last(int32_t acc, const uint32_t *x, const int8_t **parts)
{
    const int8_t *w = *parts;
    for (int32_t run = (uint8_t)*w++; run != 0; run = (uint8_t)*w++) {
        for (const int8_t *const end = w + 2 * run; w != end; w += 2) {
            x += 2 * (uint8_t)w[0];
            acc += emitc_fours_value(*x) * w[1];
        }
    }
    *parts = w;
    return acc;
}

/* emitc_fours_two for the first pixel alone, whose products need no splitting. next: from four weights of the first
 * channel to those of the second one; 0 where there is none, whose sum is then nothing. */
EMITC_ALWAYS_INLINE emitc_pixel_sums emitc_fours_pixel(
    emitc_pixel_sums acc, const uint32_t *x, const int8_t **weights, int32_t next, int32_t fours)
{
    const int8_t *w = *weights;
    const uint32_t *at = x;
    for (const uint32_t *const end = x + 8 * fours; at != end; at += 8) {
        const int32_t v0 = emitc_fours_value(at[0]);
        const int32_t v1 = emitc_fours_value(at[2]);
        const int32_t v2 = emitc_fours_value(at[4]);
        const int32_t v3 = emitc_fours_value(at[6]);
        acc.a += v0 * w[0] + v1 * w[1] + v2 * w[2] + v3 * w[3];
        w += next;
        acc.b += v0 * w[0] + v1 * w[1] + v2 * w[2] + v3 * w[3];
        w += 4;
    }
    *weights = w;
    acc.a = emitc_fours_last(acc.a, x, weights);
    if (next != 0) {
        acc.b = emitc_fours_last(acc.b, x, weights);
    }
    return acc;
}

#endif
