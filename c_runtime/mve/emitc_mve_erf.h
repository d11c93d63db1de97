/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: the error function of four numbers of float32 at a time.
 *
 * Part of a package whose kernels use it; see emitc_mve_tanh.h and emitc_erf.h, whose bits these are.
 */
#ifndef EMITC_MVE_ERF_H
#define EMITC_MVE_ERF_H

#include "emitc_erf.h"
#include "emitc_mve_tanh.h"

/* erf(x) of each. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_erf(emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    if (emitc_float32x4_stray(x)) {
        return emitc_float32x4_one_by_one(emitc_erf, x);
    }
    const float *const a = emitc_erf_terms;
    const float *const b = emitc_erf_terms + EMITC_ERF_FAR;
    const float *const e = emitc_erf_terms + EMITC_ERF_EXP;
    const float *const ln2 = emitc_erf_terms + EMITC_ERF_LN2;
    const float32x4_t v = vminnmq_f32(vabsq_f32(x), vdupq_n_f32(EMITC_ERF_LAST));
    const float32x4_t near = vfmaq_f32(v, emitc_float32x4_six_terms(a, vmulq_f32(v, v)), v);
    const float32x4_t share = emitc_float32x4_step(emitc_float32x4_six_terms(b, v), v, b[6]);
    const float32x4_t power = vnegq_f32(vfmaq_f32(v, share, v));
    const float32x4_t sum = emitc_float32x4_step(power, vdupq_n_f32(ln2[0]), EMITC_ERF_WHOLE);
    const float32x4_t whole = vsubq_n_f32(sum, EMITC_ERF_WHOLE);
    const float32x4_t rest = vfmaq_n_f32(vfmaq_n_f32(power, whole, ln2[1]), whole, ln2[2]);
    const float32x4_t y = emitc_float32x4_step(emitc_float32x4_six_terms(e, rest), rest, e[6]);
    /* y * 2^whole */
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(y), vshlq_n_s32(vreinterpretq_s32_f32(sum), 23));
    const float32x4_t far = vsubq_f32(vdupq_n_f32(1.0f), vreinterpretq_f32_s32(scaled));
    const float32x4_t size = vpselq_f32(far, near, vcmpgtq_n_f32(v, EMITC_ERF_SPLIT));
    const uint32x4_t sign = vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(0x80000000u));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(size), sign));
#else
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] = emitc_erf(x.lane[i]);
    }
    return x;
#endif
}

#endif
