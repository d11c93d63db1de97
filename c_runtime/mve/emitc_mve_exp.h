/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: the exponential of four numbers of float32 at a time, and rows of
 * them.
 *
 * Part of a package whose kernels use it; see emitc_mve_tanh.h and emitc_exp.h, whose bits these are.
 */
#ifndef EMITC_MVE_EXP_H
#define EMITC_MVE_EXP_H

#include "emitc_exp.h"
#include "emitc_mve_tanh.h"

/* exp(x) of each; of what is above 0 it may be anything. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_exp(emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    const float *const e = emitc_exp_terms;
    const float32x4_t lowest = vdupq_n_f32(EMITC_EXP_LOWEST);
    const float32x4_t sum = emitc_float32x4_step(x, vdupq_n_f32(e[EMITC_EXP_LOG2]), e[EMITC_EXP_WHOLE]);
    const float32x4_t whole = vsubq_n_f32(sum, e[EMITC_EXP_WHOLE]);
    const float32x4_t rest = vfmaq_n_f32(vfmaq_n_f32(x, whole, e[EMITC_EXP_HIGH]), whole, e[EMITC_EXP_LOW]);
    const float32x4_t y = emitc_float32x4_step(emitc_float32x4_six_terms(e, rest), rest, e[6]);
    const int32x4_t power = vaddq_n_s32(vshlq_n_s32(vreinterpretq_s32_f32(sum), 23), 0x3f800000); /* of 2^whole */
    return vpselq_f32(vdupq_n_f32(0.0f), vmulq_f32(y, vreinterpretq_f32_s32(power)), vcmpgtq_f32(lowest, x));
#else
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] = emitc_exp(x.lane[i]);
    }
    return x;
#endif
}

/* The largest of n numbers. What is not a number does not count, unless nothing else is there. */
EMITC_ALWAYS_INLINE float emitc_row_largest_mve(const float *x, int32_t n)
{
#if EMITC_MVE_FLOAT
    float32x4_t most = vdupq_n_f32(x[0]);
    for (int32_t i = 0; i < n; i += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)(n - i));
        most = vmaxnmq_m_f32(most, most, emitc_float32x4_some(x + i, n - i), some);
    }
    return vmaxnmvq_f32(x[0], most);
#else
    float most = x[0];
    for (int32_t i = 1; i < n; i++) {
        most = x[i] > most || most != most ? x[i] : most;
    }
    return most;
#endif
}

/* y = exp(x - largest), of n numbers. y may be x. */
EMITC_ALWAYS_INLINE void emitc_row_exp_mve(const float *x, int32_t n, float largest, float *y)
{
    const emitc_float32x4 most = emitc_float32x4_all(largest);
    for (int32_t i = 0; i < n; i += 4) {
        const emitc_float32x4 value = emitc_float32x4_difference(emitc_float32x4_some(x + i, n - i), most);
        emitc_float32x4_store(y + i, emitc_float32x4_exp(value), n - i);
    }
}

/* y /= divisor, of n numbers. */
EMITC_ALWAYS_INLINE void emitc_row_over_mve(float *y, int32_t n, float divisor)
{
#if EMITC_MVE_FLOAT
    const float32x4_t below = vdupq_n_f32(divisor);
    for (int32_t i = 0; i < n; i += 4) {
        emitc_float32x4_store(y + i, emitc_float32x4_quotient(emitc_float32x4_some(y + i, n - i), below), n - i);
    }
#else
    for (int32_t i = 0; i < n; i++) {
        y[i] /= divisor;
    }
#endif
}

#endif
