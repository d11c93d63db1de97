/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with thirty-one registers and no instructions for pairs or vectors (RV32IM): convolutions with
 * windows of three columns by Winograd's minimal filtering.
 *
 * F(4, 3) makes four neighbouring outputs of six columns with six products for each row of the window, not twelve:
 * y = A ((G g) * (B d)), g being the weights and d the columns. G and B have small integers here, so that transformed
 * weights and values fit int16. A has what is left of the factors; it gives 24 y without a remainder.
 */
#ifndef EMITC_SCALAR_WINOGRAD_H
#define EMITC_SCALAR_WINOGRAD_H

#include "emitc_scalar.h"

/* A sum for a place of 16 bits. A compiler that knows of them would narrow each part of the sum. */
EMITC_ALWAYS_INLINE int16_t emitc_winograd_narrow(int32_t sum)
{
    return (int16_t)emitc_opaque(sum);
}

/* B d of a channel of six columns that are at x: six values into every second place from v on. At most 10 times a
 * value. */
EMITC_ALWAYS_INLINE void emitc_scalar_winograd_values(const int8_t *const x[6], int32_t channel, int16_t *v)
{
    const int32_t d1 = x[1][channel];
    const int32_t d2 = x[2][channel];
    const int32_t d3 = x[3][channel];
    const int32_t d4 = x[4][channel];
    const int32_t even = d4 - d2;
    const int32_t even4 = d4 - 4 * d2;
    const int32_t odd = 2 * (d3 - d1);
    const int32_t odd4 = d3 - 4 * d1;
    v[0] = emitc_winograd_narrow(4 * (x[0][channel] - d2) + even);
    v[2] = emitc_winograd_narrow(even4 + odd4);
    v[4] = emitc_winograd_narrow(even4 - odd4);
    v[6] = emitc_winograd_narrow(even + odd);
    v[8] = emitc_winograd_narrow(even - odd);
    v[10] = emitc_winograd_narrow(x[5][channel] - d3 - 2 * odd);
}

/* The same of all channels, at a distance of `step`. Returns where the next values go. It has every register to
 * itself. */
EMITC_NOINLINE int16_t *emitc_scalar_winograd_columns(
    const int8_t *const columns[6], int32_t channels, int16_t *v, int32_t step)
{
    const int8_t *const x[6] = {columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]};
    int32_t channel = 0;
    for (; channel + 1 < channels; channel += 2) {
        emitc_scalar_winograd_values(x, channel, v);
        v += step;
        emitc_scalar_winograd_values(x, channel + 1, v);
        v += step;
    }
    if (channel < channels) {
        emitc_scalar_winograd_values(x, channel, v);
        v += step;
    }
    return v;
}

/* Compilers that load what comes later do not find registers for it. */
#if EMITC_ASM
#define EMITC_WINOGRAD_FENCE __asm__ volatile("" ::: "memory");
#else
#define EMITC_WINOGRAD_FENCE
#endif

/* A weight meets the values of the windows; the next weight is loaded. */
#define EMITC_WINOGRAD_MAC(channel, next) \
    { \
        const int32_t after = next; \
        a##channel += weight * first; \
        b##channel += weight * second; \
        EMITC_WINOGRAD_MORE(channel) \
        weight = after; \
        EMITC_WINOGRAD_FENCE \
    }

/* The products of eight channels and two windows in all six places: six sums of each channel with each window. filters:
 * eight of every 48 are in the same place; values: two of every twelve. rounds: each of three of those of one place. */
EMITC_NOINLINE void emitc_scalar_winograd_two(
    const int16_t *filters, const int16_t *values, int32_t rounds, int32_t *sums)
{
#define EMITC_WINOGRAD_MORE(channel)
#define EMITC_WINOGRAD_SUMS(channel) \
    sums[12 * channel] = a##channel; \
    sums[12 * channel + 6] = b##channel;
#define EMITC_WINOGRAD_STEP(v, w, last) \
    first = (v)[0]; \
    second = (v)[1]; \
    EMITC_WINOGRAD_MAC(0, (w)[1]) \
    EMITC_WINOGRAD_MAC(1, (w)[2]) \
    EMITC_WINOGRAD_MAC(2, (w)[3]) \
    EMITC_WINOGRAD_MAC(3, (w)[4]) \
    EMITC_WINOGRAD_MAC(4, (w)[5]) \
    EMITC_WINOGRAD_MAC(5, (w)[6]) \
    EMITC_WINOGRAD_MAC(6, (w)[7]) \
    EMITC_WINOGRAD_MAC(7, last)
    for (const int32_t *const last = sums + 6; sums != last; sums++) {
        const int16_t *w = filters;
        const int16_t *v = values;
        int32_t first, second;
        int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, a4 = 0, a5 = 0, a6 = 0, a7 = 0;
        int32_t b0 = 0, b1 = 0, b2 = 0, b3 = 0, b4 = 0, b5 = 0, b6 = 0, b7 = 0;
        for (const int16_t *const end = v + 36 * rounds; v != end; v += 36) {
            int32_t weight = w[0];
            EMITC_WINOGRAD_STEP(v, w, w[48])
            EMITC_WINOGRAD_STEP(v + 12, w + 48, w[96])
            EMITC_WINOGRAD_STEP(v + 24, w + 96, 0)
            w += 144;
        }
        EMITC_WINOGRAD_SUMS(0)
        EMITC_WINOGRAD_SUMS(1)
        EMITC_WINOGRAD_SUMS(2)
        EMITC_WINOGRAD_SUMS(3)
        EMITC_WINOGRAD_SUMS(4)
        EMITC_WINOGRAD_SUMS(5)
        EMITC_WINOGRAD_SUMS(6)
        EMITC_WINOGRAD_SUMS(7)
        filters += 8;
        values += 2;
    }
#undef EMITC_WINOGRAD_MORE
#undef EMITC_WINOGRAD_SUMS
#undef EMITC_WINOGRAD_STEP
}

/* The same of four channels and four windows. filters: four of every 24 are in the same place; values: two of every
 * twelve, first those of two windows, then those of the other two. */
EMITC_NOINLINE void emitc_scalar_winograd_four(
    const int16_t *filters, const int16_t *values, int32_t rounds, int32_t *sums)
{
#define EMITC_WINOGRAD_MORE(channel) \
    c##channel += weight * third; \
    d##channel += weight * fourth;
#define EMITC_WINOGRAD_SUMS(channel) \
    sums[24 * channel] = a##channel; \
    sums[24 * channel + 6] = b##channel; \
    sums[24 * channel + 12] = c##channel; \
    sums[24 * channel + 18] = d##channel;
#define EMITC_WINOGRAD_STEP(v, w, last) \
    first = (v)[0]; \
    second = (v)[1]; \
    third = (v)[12]; \
    fourth = (v)[13]; \
    EMITC_WINOGRAD_MAC(0, (w)[1]) \
    EMITC_WINOGRAD_MAC(1, (w)[2]) \
    EMITC_WINOGRAD_MAC(2, (w)[3]) \
    EMITC_WINOGRAD_MAC(3, last)
    for (const int32_t *const last = sums + 6; sums != last; sums++) {
        const int16_t *w = filters;
        const int16_t *v = values;
        int32_t first, second, third, fourth;
        int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
        int32_t c0 = 0, c1 = 0, c2 = 0, c3 = 0, d0 = 0, d1 = 0, d2 = 0, d3 = 0;
        for (const int16_t *const end = v + 72 * rounds; v != end; v += 72) {
            int32_t weight = w[0];
            EMITC_WINOGRAD_STEP(v, w, w[24])
            EMITC_WINOGRAD_STEP(v + 24, w + 24, w[48])
            EMITC_WINOGRAD_STEP(v + 48, w + 48, 0)
            w += 72;
        }
        EMITC_WINOGRAD_SUMS(0)
        EMITC_WINOGRAD_SUMS(1)
        EMITC_WINOGRAD_SUMS(2)
        EMITC_WINOGRAD_SUMS(3)
        filters += 4;
        values += 2;
    }
#undef EMITC_WINOGRAD_MORE
#undef EMITC_WINOGRAD_SUMS
#undef EMITC_WINOGRAD_STEP
}

/* Four times four neighbouring outputs from six sums of products, and the bias. 24 y is 8 y times 3, and multiplying by
 * the inverse of 3 modulo 2^32 divides it, since there is no remainder. 8 y fits int32. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_scalar_winograd_outputs(const int32_t *sums, int32_t bias)
{
    const uint32_t third = 0xaaaaaaabu;
    const uint32_t start = 4 * (uint32_t)bias;
    const uint32_t m0 = (uint32_t)sums[0];
    const uint32_t m5 = (uint32_t)sums[5];
    const uint32_t p = (uint32_t)sums[1] + (uint32_t)sums[2];
    const uint32_t q = (uint32_t)sums[1] - (uint32_t)sums[2];
    const uint32_t r = (uint32_t)sums[3] + (uint32_t)sums[4];
    const uint32_t s = (uint32_t)sums[3] - (uint32_t)sums[4];
    const emitc_acc4 acc = {
        ((int32_t)((6 * m0 - 4 * p + r) * third) >> 1) + (int32_t)start,
        (int32_t)((s - 2 * q) * third + start),
        (int32_t)((r - p) * (2 * third) + start),
        (int32_t)((6 * m5 - q + 2 * s) * (2 * third) + start),
    };
    return acc;
}

#endif
