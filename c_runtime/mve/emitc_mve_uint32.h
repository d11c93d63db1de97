/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: numbers without a sign: four of 32 bits, sums and products of 64 bits
 * of them.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. Sums wrap.
 */
#ifndef EMITC_MVE_UINT32_H
#define EMITC_MVE_UINT32_H

#include "emitc_bits.h"
#include "emitc_mve.h"

#if EMITC_MVE
typedef uint32x4_t emitc_uint32x4;
#else
typedef struct emitc_uint32x4 {
    uint32_t lane[4];
} emitc_uint32x4;
#endif

/* The largest of n bytes. */
EMITC_ALWAYS_INLINE uint8_t emitc_int8x16_largest_unsigned(const uint8_t *bytes, int32_t n)
{
#if EMITC_MVE
    uint8x16_t most = vdupq_n_u8(0);
    for (int32_t i = 0; i < n; i += 16) {
        most = vmaxq_u8(most, vldrbq_z_u8(bytes + i, vctp8q((uint32_t)(n - i))));
    }
    return vmaxvq_u8(0, most);
#else
    uint8_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        most = bytes[i] > most ? bytes[i] : most;
    }
    return most;
#endif
}

/* The first n words; the other lanes are 0. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_some, (const int32_t *values, int32_t n),
    vldrwq_z_s32(values, vctp32q((uint32_t)n)),
    i < n ? values[i] : 0)

/* The first n bytes, widened; the other lanes are 0. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_of_some_unsigned, (const uint8_t *values, int32_t n),
    vreinterpretq_s32_u32(vldrbq_z_u32(values, vctp32q((uint32_t)n))),
    i < n ? values[i] : 0)

/* Four numbers of 64 bits. */
typedef struct emitc_uint64x4 {
    emitc_uint32x4 low;
    emitc_uint32x4 high;
} emitc_uint64x4;

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_all, (uint32_t value), vdupq_n_u32(value), value)

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_at, (const uint32_t *values), vldrwq_u32(values), values[i])

/* The first n of four; the other lanes are 0. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_of_some, (const uint32_t *values, int32_t n),
    vldrwq_z_u32(values, vctp32q((uint32_t)n)),
    i < n ? values[i] : 0)

/* Four numbers of 64 bits. */
EMITC_ALWAYS_INLINE emitc_uint64x4 emitc_uint64x4_at(const uint64_t *values)
{
    emitc_uint64x4 r;
#if EMITC_MVE
    /* The load is one of words. The compiler must not move it before stores of 64-bit numbers. */
    struct emitc_four_longs {
        uint64_t value[4];
    };
    __asm__("" : "+r"(values) : "m"(*(const struct emitc_four_longs *)(const void *)values));
    const uint32x4x2_t halves = vld2q_u32((const uint32_t *)(const void *)values);
    r.low = halves.val[0];
    r.high = halves.val[1];
#else
    for (int32_t i = 0; i < 4; i++) {
        r.low.lane[i] = (uint32_t)values[i];
        r.high.lane[i] = (uint32_t)(values[i] >> 32);
    }
#endif
    return r;
}

EMITC_ALWAYS_INLINE void emitc_store_some_uint32(uint32_t *to, emitc_uint32x4 x, int32_t n)
{
#if EMITC_MVE
    vstrwq_p_u32(to, x, vctp32q((uint32_t)n));
#else
    for (int32_t i = 0; i < 4 && i < n; i++) {
        to[i] = x.lane[i];
    }
#endif
}

EMITC_ALWAYS_INLINE void emitc_store_uint32(uint32_t *to, emitc_uint32x4 x)
{
#if EMITC_MVE
    vstrwq_u32(to, x);
#else
    memcpy(to, x.lane, sizeof x.lane);
#endif
}

EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_of(emitc_uint32x4 x)
{
#if EMITC_MVE
    return vreinterpretq_s32_u32(x);
#else
    emitc_int32x4 r;
    memcpy(r.lane, x.lane, sizeof r.lane);
    return r;
#endif
}

EMITC_ALWAYS_INLINE emitc_uint32x4 emitc_uint32x4_of(emitc_int32x4 x)
{
#if EMITC_MVE
    return vreinterpretq_u32_s32(x);
#else
    emitc_uint32x4 r;
    memcpy(r.lane, x.lane, sizeof r.lane);
    return r;
#endif
}

/* The zeros in front of each; 32 where it is 0. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_zeros, (emitc_uint32x4 x),
    vclzq_u32(x),
    (uint32_t)(32 - emitc_bits(x.lane[i])))

/* x * 2^places, or x / 2^-places rounded down; 0 where no bit stays. places in -64..64, by the lane. */
EMITC_ALWAYS_INLINE emitc_uint32x4 emitc_uint32x4_shifted(emitc_uint32x4 x, emitc_int32x4 places)
{
#if EMITC_MVE
    return vshlq_u32(x, places);
#else
    for (int32_t i = 0; i < 4; i++) {
        const int32_t by = places.lane[i];
        x.lane[i] = by >= 32 || by <= -32 ? 0 : by >= 0 ? x.lane[i] << by : x.lane[i] >> -by;
    }
    return x;
#endif
}

/* The same with one number of places. */
EMITC_ALWAYS_INLINE emitc_uint32x4 emitc_uint32x4_shifted_all(emitc_uint32x4 x, int32_t places)
{
#if EMITC_MVE
    return vshlq_r_u32(x, places);
#else
    return emitc_uint32x4_shifted(x, emitc_int32x4_all(places));
#endif
}

/* x / 2^places, halves up; places in 0..32, by the lane. */
EMITC_ALWAYS_INLINE emitc_uint32x4 emitc_uint32x4_rounded(emitc_uint32x4 x, emitc_int32x4 places)
{
#if EMITC_MVE
    return vrshlq_u32(x, vnegq_s32(places));
#else
    for (int32_t i = 0; i < 4; i++) {
        const uint64_t twice = (uint64_t)x.lane[i] << 1 >> places.lane[i];
        x.lane[i] = (uint32_t)((twice + (places.lane[i] > 0)) >> 1);
    }
    return x;
#endif
}

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_sum, (emitc_uint32x4 a, emitc_uint32x4 b),
    vaddq_u32(a, b),
    a.lane[i] + b.lane[i])

/* x + more, of one number. */
EMITC_ALWAYS_INLINE emitc_uint32x4 emitc_uint32x4_plus(emitc_uint32x4 x, uint32_t more)
{
#if EMITC_MVE
    return vaddq_n_u32(x, more);
#else
    return emitc_uint32x4_sum(x, emitc_uint32x4_all(more));
#endif
}

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_difference, (emitc_uint32x4 a, emitc_uint32x4 b),
    vsubq_u32(a, b),
    a.lane[i] - b.lane[i])

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_product, (emitc_uint32x4 a, emitc_uint32x4 b),
    vmulq_u32(a, b),
    a.lane[i] * b.lane[i])

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_smaller, (emitc_uint32x4 a, emitc_uint32x4 b),
    vminq_u32(a, b),
    a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])

EMITC_LANES(emitc_uint32x4, emitc_uint32x4_larger, (emitc_uint32x4 a, emitc_uint32x4 b),
    vmaxq_u32(a, b),
    a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])

/* The largest of the four. */
EMITC_ALWAYS_INLINE uint32_t emitc_uint32x4_largest(emitc_uint32x4 x)
{
#if EMITC_MVE
    return vmaxvq_u32(0, x);
#else
    uint32_t largest = 0;
    for (int32_t i = 0; i < 4; i++) {
        largest = x.lane[i] > largest ? x.lane[i] : largest;
    }
    return largest;
#endif
}

/* a + b, or 2^32 - 1 where that is less. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_saturated_sum, (emitc_uint32x4 a, emitc_uint32x4 b),
    vqaddq_u32(a, b),
    a.lane[i] > UINT32_MAX - b.lane[i] ? UINT32_MAX : a.lane[i] + b.lane[i])

/* a * b / 2^32 rounded down. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_high, (emitc_uint32x4 a, emitc_uint32x4 b),
    vmulhq_u32(a, b),
    (uint32_t)(((uint64_t)a.lane[i] * b.lane[i]) >> 32))

/* The same, halves up. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_high_rounded, (emitc_uint32x4 a, emitc_uint32x4 b),
    vrmulhq_u32(a, b),
    (uint32_t)(((uint64_t)a.lane[i] * b.lane[i] + (1u << 31)) >> 32))

/* The lanes of `yes` where x > limit, those of `no` elsewhere. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_chosen, (emitc_uint32x4 x, uint32_t limit, emitc_uint32x4 yes, emitc_uint32x4
    no),
    vpselq_u32(yes, no, vcmphiq_n_u32(x, limit)),
    x.lane[i] > limit ? yes.lane[i] : no.lane[i])

/* x + more where a > b. */
EMITC_LANES(emitc_uint32x4, emitc_uint32x4_more_where, (emitc_uint32x4 x, uint32_t more, emitc_uint32x4 a,
    emitc_uint32x4 b),
    vaddq_m_u32(x, x, vdupq_n_u32(more), vcmphiq_u32(a, b)),
    x.lane[i] + (a.lane[i] > b.lane[i] ? more : 0))

/* sum + a product of four numbers with four of 16 bits. */
EMITC_ALWAYS_INLINE uint64_t emitc_uint32x4_dot(uint64_t sum, emitc_uint32x4 x, const uint16_t *weights)
{
#if EMITC_MVE
    return vmlaldavaq_u32(sum, x, vldrhq_u32(weights));
#else
    for (int32_t i = 0; i < 4; i++) {
        sum += (uint64_t)x.lane[i] * weights[i];
    }
    return sum;
#endif
}

EMITC_ALWAYS_INLINE emitc_uint64x4 emitc_uint64x4_product(emitc_uint32x4 a, emitc_uint32x4 b)
{
    emitc_uint64x4 r;
    r.low = emitc_uint32x4_product(a, b);
    r.high = emitc_uint32x4_high(a, b);
    return r;
}

EMITC_ALWAYS_INLINE emitc_uint64x4 emitc_uint64x4_sum(emitc_uint64x4 a, emitc_uint64x4 b)
{
    emitc_uint64x4 r;
    r.low = emitc_uint32x4_sum(a.low, b.low);
    r.high = emitc_uint32x4_more_where(emitc_uint32x4_sum(a.high, b.high), 1, a.low, r.low);
    return r;
}

EMITC_ALWAYS_INLINE emitc_uint64x4 emitc_uint64x4_difference(emitc_uint64x4 a, emitc_uint64x4 b)
{
    emitc_uint64x4 r;
    r.low = emitc_uint32x4_difference(a.low, b.low);
    r.high = emitc_uint32x4_more_where(emitc_uint32x4_difference(a.high, b.high), UINT32_MAX, b.low, a.low);
    return r;
}

/* The lower 32 bits of x / 2^places; places in 0..63. */
EMITC_ALWAYS_INLINE emitc_uint32x4 emitc_uint64x4_down(emitc_uint64x4 x, int32_t places)
{
    return emitc_uint32x4_sum(emitc_uint32x4_shifted_all(x.low, -places), emitc_uint32x4_shifted_all(x.high, 32
        - places));
}

#endif
