/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: hyperbolic tangent and logistic function of four numbers of float32 at
 * a time.
 *
 * Part of a package whose kernels use it; see emitc_mve.h and emitc_tanh.h, whose bits these are. Vectors have no
 * division: the quotients are those of the float unit.
 */
#ifndef EMITC_MVE_TANH_H
#define EMITC_MVE_TANH_H

#include "emitc_mve_float32.h"
#include "emitc_tanh.h"

#if EMITC_MVE_FLOAT
/* a * s + c, rounded once. */
EMITC_ALWAYS_INLINE float32x4_t emitc_float32x4_step(float32x4_t a, float32x4_t s, float c)
{
    return vfmasq_n_f32(a, s, c);
}

/* emitc_six_terms of each. */
EMITC_ALWAYS_INLINE float32x4_t emitc_float32x4_six_terms(const float *a, float32x4_t x)
{
    float32x4_t y = emitc_float32x4_step(vdupq_n_f32(a[0]), x, a[1]);
    y = emitc_float32x4_step(y, x, a[2]);
    y = emitc_float32x4_step(y, x, a[3]);
    y = emitc_float32x4_step(y, x, a[4]);
    return emitc_float32x4_step(y, x, a[5]);
}

/* above / below. A vector's numbers are four registers of the float unit. */
EMITC_ALWAYS_INLINE float32x4_t emitc_float32x4_quotient(float32x4_t above, float32x4_t below)
{
    register float32x4_t a __asm__("q0") = above;
    register float32x4_t b __asm__("q1") = below;
    __asm__("vdiv.f32 s0, s0, s4\n\tvdiv.f32 s1, s1, s5\n\tvdiv.f32 s2, s2, s6\n\tvdiv.f32 s3, s3, s7" : "+w"(a)
        : "w"(b));
    return a;
}

/* The function of one number for four. */
EMITC_ALWAYS_INLINE float32x4_t emitc_float32x4_one_by_one(float (*function)(float), float32x4_t x)
{
    float lane[4];
    memcpy(lane, &x, sizeof lane);
    for (int32_t i = 0; i < 4; i++) {
        lane[i] = function(lane[i]);
    }
    memcpy(&x, lane, sizeof lane);
    return x;
}

/* Whether any is not a number, or so small that vectors take it, or what becomes of it, for 0: under 2^-100, but not
 * 0. */
EMITC_ALWAYS_INLINE int32_t emitc_float32x4_stray(float32x4_t x)
{
    const uint32x4_t magnitude = vshlq_n_u32(vreinterpretq_u32_f32(x), 1); /* without the sign */
    const mve_pred16_t outside = vcmphiq_n_u32(vsubq_n_u32(magnitude, 0x1b000000u), 0xff000000u - 0x1b000000u);
    return vcmpneq_m_n_u32(magnitude, 0u, outside) != 0;
}
#endif

/* tanh(x) of each. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_tanh(emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    if (emitc_float32x4_stray(x)) {
        return emitc_float32x4_one_by_one(emitc_tanh, x);
    }
    const float *const a = emitc_tanh_terms;
    const float *const b = emitc_tanh_terms + EMITC_TANH_BELOW;
    const float32x4_t v = vminnmq_f32(vmaxnmq_f32(x, vdupq_n_f32(-9.0f)), vdupq_n_f32(9.0f));
    const float32x4_t s = vmulq_f32(v, v);
    const float32x4_t above = emitc_float32x4_step(emitc_float32x4_six_terms(a, s), s, a[6]);
    float32x4_t below = emitc_float32x4_step(vdupq_n_f32(b[0]), s, b[1]);
    below = emitc_float32x4_step(below, s, b[2]);
    below = emitc_float32x4_step(below, s, b[3]);
    return emitc_float32x4_quotient(vmulq_f32(above, v), below);
#else
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] = emitc_tanh(x.lane[i]);
    }
    return x;
#endif
}

/* 1 / (1 + exp(-x)) of each. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_logistic(emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    if (vcmpneq_f32(x, x) != 0) {
        return emitc_float32x4_one_by_one(emitc_logistic, x); /* one is not a number */
    }
    const float *const a = emitc_logistic_terms;
    const float *const b = emitc_logistic_terms + EMITC_LOGISTIC_BELOW;
    const float32x4_t v = vminnmq_f32(vmaxnmq_f32(x, vdupq_n_f32(-18.0f)), vdupq_n_f32(18.0f));
    const float32x4_t s = vmulq_f32(v, v);
    float32x4_t above = emitc_float32x4_step(vdupq_n_f32(a[0]), s, a[1]);
    above = emitc_float32x4_step(above, s, a[2]);
    above = emitc_float32x4_step(above, s, a[3]);
    above = emitc_float32x4_step(above, s, a[4]);
    const float32x4_t below = emitc_float32x4_six_terms(b, s);
    const float32x4_t y = vaddq_n_f32(emitc_float32x4_quotient(vmulq_f32(above, v), below), a[11]);
    return vminnmq_f32(vmaxnmq_f32(y, vdupq_n_f32(0.0f)), vdupq_n_f32(1.0f));
#else
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] = emitc_logistic(x.lane[i]);
    }
    return x;
#endif
}

#endif
