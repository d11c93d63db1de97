/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: values in fixed point as shares of their sum, as a softmax has them.
 *
 * Part of a package whose kernels use it; see emitc_mve.h.
 */
#ifndef EMITC_MVE_SOFTMAX_H
#define EMITC_MVE_SOFTMAX_H

#include "emitc_mve.h"

/* The entries of a table at four places; the last one for places that it does not have. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_entries(const int32_t *table, emitc_int32x4 places, int32_t last)
{
#if EMITC_MVE
    return vldrwq_gather_shifted_offset_s32(table, vminq_u32(vreinterpretq_u32_s32(places),
        vdupq_n_u32((uint32_t)last)));
#else
    for (int32_t i = 0; i < 4; i++) {
        const int32_t place = places.lane[i];
        places.lane[i] = table[place >= 0 && place < last ? place : last];
    }
    return places;
#endif
}

/* The largest one of x and the first n of eight int16 values. */
EMITC_ALWAYS_INLINE int32_t emitc_int16_largest(int32_t x, const int16_t *values, int32_t n)
{
#if EMITC_MVE
    const mve_pred16_t some = vctp16q((uint32_t)n);
    return vmaxvq_p_s16((int16_t)x, vldrhq_z_s16(values, some), some);
#else
    for (int32_t i = 0; i < 8 && i < n; i++) {
        x = values[i] > x ? values[i] : x;
    }
    return x;
#endif
}

/* sum + the first n of the four, which wraps. */
EMITC_ALWAYS_INLINE int32_t emitc_int32x4_total(int32_t sum, emitc_int32x4 x, int32_t n)
{
#if EMITC_MVE
    return vaddvaq_p_s32(sum, x, vctp32q((uint32_t)n));
#else
    for (int32_t i = 0; i < 4 && i < n; i++) {
        sum = (int32_t)((uint32_t)sum + (uint32_t)x.lane[i]);
    }
    return sum;
#endif
}

EMITC_LANES(emitc_int32x4, emitc_int32x4_at_most, (emitc_int32x4 x, int32_t limit),
    vminq_s32(x, vdupq_n_s32(limit)),
    x.lane[i] < limit ? x.lane[i] : limit)

/* x / 2^places, halves up; places in 1..32. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_halves_up, (emitc_int32x4 x, int32_t places),
    vrshlq_n_s32(x, -places),
    ((x.lane[i] >> (places - 1)) + 1) >> 1)

/* emitc_high_mul. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_high_mul, (emitc_int32x4 a, emitc_int32x4 b),
    vqrdmulhq_s32(a, b),
    emitc_high_mul(a.lane[i], b.lane[i]))

/* About 2^61 / x, at most INT32_MAX, for x from 2^30 on: three Newton steps on d = x / 2^31 from 48/17 - 32/17 d, in
 * Q2.29. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_reciprocal(emitc_int32x4 x)
{
    const emitc_int32x4 one = emitc_int32x4_all(1 << 29);
    emitc_int32x4 estimate = emitc_int32x4_sum(emitc_int32x4_all(1515870810), emitc_int32x4_high_mul(x,
        emitc_int32x4_all(-1010580540)));
    for (int32_t i = 0; i < 3; i++) {
        const emitc_int32x4 error = emitc_int32x4_difference(one, emitc_int32x4_high_mul(x, estimate));
        estimate = emitc_int32x4_mac(estimate, emitc_int32x4_high_mul(estimate, error), 4);
    }
#if EMITC_MVE
    return vqaddq_s32(estimate, estimate);
#else
    for (int32_t i = 0; i < 4; i++) {
        estimate.lane[i] = estimate.lane[i] > INT32_MAX / 2 ? INT32_MAX : estimate.lane[i] * 2;
    }
    return estimate;
#endif
}

#endif
