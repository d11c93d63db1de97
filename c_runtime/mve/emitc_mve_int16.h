/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: sums of products of int16 values with int8 weights.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. Eight weights are widened as they are loaded.
 */
#ifndef EMITC_MVE_INT16_H
#define EMITC_MVE_INT16_H

#include "emitc_mve.h"

/* acc + the products of n values with the weights of four channels, which lie `filter` bytes from each other. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_int16_mac4(emitc_acc4 acc, const int16_t *x, const int8_t *w, int32_t filter,
    int32_t n)
{
#if EMITC_MVE
    const int8_t *w1 = w + filter;
    const int8_t *w2 = w1 + filter;
    const int8_t *w3 = w2 + filter;
    for (int32_t eight = n >> 3; eight > 0; eight--) {
        const int16x8_t values = vldrhq_s16(x);
        acc.a0 = vmladavaq_s16(acc.a0, values, vldrbq_s16(w));
        acc.a1 = vmladavaq_s16(acc.a1, values, vldrbq_s16(w1));
        acc.a2 = vmladavaq_s16(acc.a2, values, vldrbq_s16(w2));
        acc.a3 = vmladavaq_s16(acc.a3, values, vldrbq_s16(w3));
        x += 8;
        w += 8;
        w1 += 8;
        w2 += 8;
        w3 += 8;
    }
    if ((n & 7) != 0) {
        const mve_pred16_t some = vctp16q((uint32_t)(n & 7));
        const int16x8_t values = vldrhq_z_s16(x, some);
        acc.a0 = vmladavaq_s16(acc.a0, values, vldrbq_z_s16(w, some));
        acc.a1 = vmladavaq_s16(acc.a1, values, vldrbq_z_s16(w1, some));
        acc.a2 = vmladavaq_s16(acc.a2, values, vldrbq_z_s16(w2, some));
        acc.a3 = vmladavaq_s16(acc.a3, values, vldrbq_z_s16(w3, some));
    }
#else
    for (int32_t i = 0; i < n; i++) {
        acc.a0 += x[i] * w[i];
        acc.a1 += x[i] * w[filter + i];
        acc.a2 += x[i] * w[2 * filter + i];
        acc.a3 += x[i] * w[3 * filter + i];
    }
#endif
    return acc;
}

/* emitc_output_s16 of four sums; step: 1 where each has a multiplier of its own, else 0. */
EMITC_ALWAYS_INLINE void emitc_int16_outputs(
    int16_t *y, emitc_acc4 acc, const int16_t *m, const int8_t *right, int32_t step, int32_t low, int32_t high)
{
#if EMITC_MVE
    int32x4_t x = vdupq_n_s32(acc.a0);
    x = vsetq_lane_s32(acc.a1, x, 1);
    x = vsetq_lane_s32(acc.a2, x, 2);
    x = vsetq_lane_s32(acc.a3, x, 3);
    const int32x4_t factors = step != 0 ? vldrhq_s32(m) : vdupq_n_s32(*m);
    const int32x4_t places = step != 0 ? vldrbq_s32(right) : vdupq_n_s32(*right);
    x = vrshlq_s32(vmulhq_s32(x, vshlq_n_s32(factors, 16)), vnegq_s32(places));
    vstrhq_s32(y, vminq_s32(vmaxq_s32(x, vdupq_n_s32(low)), vdupq_n_s32(high)));
#else
    y[0] = emitc_output_s16(acc.a0, m[0], right[0], low, high);
    y[1] = emitc_output_s16(acc.a1, m[step], right[step], low, high);
    y[2] = emitc_output_s16(acc.a2, m[2 * step], right[2 * step], low, high);
    y[3] = emitc_output_s16(acc.a3, m[3 * step], right[3 * step], low, high);
#endif
}

/* acc + the products of n values with as many weights. */
EMITC_ALWAYS_INLINE int32_t emitc_int16_mac(int32_t acc, const int16_t *x, const int8_t *w, int32_t n)
{
#if EMITC_MVE
    for (; n > 0; n -= 8) {
        const mve_pred16_t some = vctp16q((uint32_t)n);
        acc = vmladavaq_s16(acc, vldrhq_z_s16(x, some), vldrbq_z_s16(w, some));
        x += 8;
        w += 8;
    }
#else
    for (int32_t i = 0; i < n; i++) {
        acc += x[i] * w[i];
    }
#endif
    return acc;
}

#endif
