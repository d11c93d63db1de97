/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: signals of int16, two values or one complex number in a word, whose real part
 * is its low half.
 *
 * Part of a package whose kernels use it; see emitc_dsp.h. Sums wrap at 16 bits.
 */
#ifndef EMITC_DSP_SIGNAL_H
#define EMITC_DSP_SIGNAL_H

#include "emitc_dsp_pool.h"
#include "emitc_dsp_int16.h"

EMITC_ALWAYS_INLINE void emitc_store_two(int16_t *to, uint32_t pair)
{
    memcpy(to, &pair, sizeof pair);
}

/* The lower half of one word and the upper one of another. */
EMITC_ALWAYS_INLINE uint32_t emitc_ends(uint32_t low, uint32_t high)
{
#if EMITC_DSP
    uint32_t pair;
    __asm__("pkhbt %0, %1, %2" : "=r"(pair) : "r"(low), "r"(high));
    return pair;
#else
    return (low & 0xffffu) | (high & 0xffff0000u);
#endif
}

/* a + b of both halves. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_sum(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t sum;
    __asm__("sadd16 %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b) : "cc");
    return sum;
#else
    return emitc_pair_of(a + b, (a >> 16) + (b >> 16));
#endif
}

/* Both halves without their signs, as numbers of 16 bits. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_magnitudes(uint32_t pair)
{
#if EMITC_DSP
    uint32_t magnitudes;
    __asm__("ssub16 %0, %1, %2\n\tsel %0, %0, %2" : "=&r"(magnitudes) : "r"(0), "r"(pair) : "cc");
    return magnitudes;
#else
    const uint32_t low = (uint32_t)(emitc_low(pair) < 0 ? -emitc_low(pair) : emitc_low(pair));
    const uint32_t high = (uint32_t)(emitc_high(pair) < 0 ? -emitc_high(pair) : emitc_high(pair));
    return emitc_pair_of(low, high);
#endif
}

/* Both halves times 2^places. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_up(uint32_t pair, int32_t places)
{
    return emitc_pair_of(pair << places, (pair >> 16) << places);
}

/* Two numbers, each the nearest of 16 bits. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_saturated(int32_t low, int32_t high)
{
#if EMITC_DSP
    __asm__("ssat %0, #16, %0" : "+r"(low));
    __asm__("ssat %0, #16, %0" : "+r"(high));
    return emitc_pair_of((uint32_t)low, (uint32_t)high);
#else
    return emitc_pair_of((uint32_t)emitc_clamp(low, INT16_MIN, INT16_MAX), (uint32_t)emitc_clamp(high, INT16_MIN,
        INT16_MAX));
#endif
}

/* (a - b) / 2 of both halves, rounded down. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_half_difference(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t half;
    __asm__("shsub16 %0, %1, %2" : "=r"(half) : "r"(a), "r"(b));
    return half;
#else
    return emitc_pair_of((uint32_t)((emitc_low(a) - emitc_low(b)) >> 1), (uint32_t)((emitc_high(a) - emitc_high(b))
        >> 1));
#endif
}

/* Both halves times a Q16 factor under 1/2, which both halves of `factors` are; rounded half up. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_scaled(uint32_t pair, uint32_t factors)
{
    const int32_t half = 1 << 15;
    return emitc_pair_above((uint32_t)emitc_low_mac(half, pair, factors), (uint32_t)emitc_high_mac(half, pair,
        factors));
}

/* The same of the conjugate. */
EMITC_ALWAYS_INLINE uint32_t emitc_conjugate_scaled(uint32_t v, uint32_t factors)
{
    const int32_t half = 1 << 15;
    const uint32_t opposite = emitc_pair_difference(0, v);
    return emitc_pair_above((uint32_t)emitc_low_mac(half, v, factors), (uint32_t)emitc_high_mac(half, opposite,
        factors));
}

/* v times a Q15 turn, rounded half up. */
EMITC_ALWAYS_INLINE uint32_t emitc_complex_turned(uint32_t v, uint32_t turn)
{
    const int32_t half = 1 << 14;
#if EMITC_DSP
    int32_t re;
    uint32_t im;
    __asm__("smlsd %0, %1, %2, %3" : "=r"(re) : "r"(v), "r"(turn), "r"(half));
    __asm__("smladx %0, %1, %2, %3" : "=r"(im) : "r"(v), "r"(turn), "r"(half));
    __asm__("pkhbt %0, %1, %2, lsl #1" : "=r"(im) : "r"(re >> 15), "r"(im));
    return im;
#else
    const int32_t re = emitc_low(v) * emitc_low(turn) - emitc_high(v) * emitc_high(turn) + half;
    const int32_t im = emitc_low(v) * emitc_high(turn) + emitc_high(v) * emitc_low(turn) + half;
    return emitc_pair_of((uint32_t)(re >> 15), (uint32_t)(im >> 15));
#endif
}

/* The square of the magnitude. */
EMITC_ALWAYS_INLINE uint32_t emitc_complex_energy(uint32_t v)
{
#if EMITC_DSP
    uint32_t energy;
    __asm__("smuad %0, %1, %1" : "=r"(energy) : "r"(v));
    return energy;
#else
    return (uint32_t)(emitc_low(v) * emitc_low(v)) + (uint32_t)(emitc_high(v) * emitc_high(v));
#endif
}

/* a - b * i. */
EMITC_ALWAYS_INLINE uint32_t emitc_complex_back(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t sum;
    __asm__("ssax %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b) : "cc");
    return sum;
#else
    return emitc_pair_of(a + (b >> 16), (a >> 16) - b);
#endif
}

/* a + b * i. */
EMITC_ALWAYS_INLINE uint32_t emitc_complex_forth(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t sum;
    __asm__("sasx %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b) : "cc");
    return sum;
#else
    return emitc_pair_of(a - (b >> 16), (a >> 16) + b);
#endif
}

typedef struct {
    uint64_t first;
    uint64_t second;
} emitc_band_sums;

/* Adds products of `pairs`, one or more, of numbers: for each pair there are factors of the first sum, then of the
 * second. Returns where the factors end. By instructions where sums of 64 bits keep their registers: compilers build
 * them of parts that take too many. */
EMITC_ALWAYS_INLINE const uint16_t *emitc_band_sums_of(emitc_band_sums *sums, const uint32_t *x,
    const uint16_t *factors, int32_t pairs)
{
    uint64_t first = sums->first;
    uint64_t second = sums->second;
#if EMITC_DSP && defined(__OPTIMIZE__)
    uint32_t low;
    uint32_t high;
    uint32_t factor;
    __asm__(
        "1:\n\t"
        "ldrd %[low], %[high], [%[x]], #8\n\t"
        "ldrh %[factor], [%[factors]], #2\n\t"
        "umlal %Q[first], %R[first], %[low], %[factor]\n\t"
        "ldrh %[factor], [%[factors]], #2\n\t"
        "umlal %Q[first], %R[first], %[high], %[factor]\n\t"
        "ldrh %[factor], [%[factors]], #2\n\t"
        "umlal %Q[second], %R[second], %[low], %[factor]\n\t"
        "ldrh %[factor], [%[factors]], #2\n\t"
        "subs %[pairs], #1\n\t"
        "umlal %Q[second], %R[second], %[high], %[factor]\n\t"
        "bne 1b"
        : [first] "+r"(first), [second] "+r"(second), [x] "+r"(x), [factors] "+r"(factors), [pairs] "+r"(pairs),
          [low] "=&r"(low), [high] "=&r"(high), [factor] "=&r"(factor)
        :
        : "cc", "memory");
#else
    for (; pairs > 0; pairs--) {
        first += (uint64_t)x[0] * factors[0] + (uint64_t)x[1] * factors[1];
        second += (uint64_t)x[0] * factors[2] + (uint64_t)x[1] * factors[3];
        x += 2;
        factors += 4;
    }
#endif
    sums->first = first;
    sums->second = second;
    return factors;
}

#endif
