/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: sums over the taps of a window whose values are gathered from several
 * channels.
 *
 * Part of a package whose kernels use it; see emitc_dsp.h. The weights of four outputs are together, tap by tap.
 */
#ifndef EMITC_DSP_DEPTHWISE_H
#define EMITC_DSP_DEPTHWISE_H

#include "emitc_dsp_int16.h"

/* Input channels that four outputs read. */
typedef struct emitc_channels {
    int32_t c0;
    int32_t c1;
    int32_t c2;
    int32_t c3;
} emitc_channels;

/* acc + the product of a's low half and b's high one. */
EMITC_ALWAYS_INLINE int32_t emitc_low_high_mac(int32_t acc, uint32_t a, uint32_t b)
{
#if EMITC_DSP
    int32_t sum;
    __asm__("smlabt %0, %1, %2, %3" : "=r"(sum) : "r"(a), "r"(b), "r"(acc));
    return sum;
#else
    return acc + emitc_low(a) * emitc_high(b);
#endif
}

/* acc + for each of the `taps` pixels listed at `at`, its values of the four channels times four weights from w on. */
#define EMITC_GATHERED_FUNCTION(name, type) \
    EMITC_ALWAYS_INLINE emitc_acc4 name(emitc_acc4 acc, const type *const *at, emitc_channels from, const int8_t *w, \
        int32_t taps) \
    { \
        for (; taps > 0; taps--) { \
            const type *const values = *at++; \
            const uint32_t four = emitc_four(w); \
            const uint32_t even = emitc_even(four); \
            const uint32_t odd = emitc_odd(four); \
            acc.a0 = emitc_low_mac(acc.a0, (uint32_t)values[from.c0], even); \
            acc.a1 = emitc_low_mac(acc.a1, (uint32_t)values[from.c1], odd); \
            acc.a2 = emitc_low_high_mac(acc.a2, (uint32_t)values[from.c2], even); \
            acc.a3 = emitc_low_high_mac(acc.a3, (uint32_t)values[from.c3], odd); \
            w += 4; \
        } \
        return acc; \
    }
EMITC_GATHERED_FUNCTION(emitc_gathered_mac4, int8_t)
EMITC_GATHERED_FUNCTION(emitc_gathered_int16_mac4, int16_t)

/* The same of four channels side by side, from `channel` on. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_adjacent_int16_mac4(emitc_acc4 acc, const int16_t *const *at, int32_t channel,
    const int8_t *w, int32_t taps)
{
    for (; taps > 0; taps--) {
        const int16_t *const values = *at++ + channel;
        const uint32_t first = emitc_two(values);
        const uint32_t second = emitc_two(values + 2);
        const uint32_t four = emitc_four(w);
        const uint32_t even = emitc_even(four);
        const uint32_t odd = emitc_odd(four);
        acc.a0 = emitc_low_mac(acc.a0, first, even);
        acc.a1 = emitc_low_high_mac(acc.a1, odd, first);
        acc.a2 = emitc_low_high_mac(acc.a2, second, even);
        acc.a3 = emitc_high_mac(acc.a3, second, odd);
        w += 4;
    }
    return acc;
}

#endif
