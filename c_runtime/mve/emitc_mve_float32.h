/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: four numbers of float32 at a time, with the bits that C gives them one
 * by one.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. Cores whose vectors have no floats compile the plain C.
 * Vectors take numbers under 2^-126 for 0, so that no number here may get there. They round to nearest whatever the
 * float unit is set to.
 */
#ifndef EMITC_MVE_FLOAT32_H
#define EMITC_MVE_FLOAT32_H

#include "emitc_mve.h"

#if EMITC_MVE_FLOAT
typedef float32x4_t emitc_float32x4;
#else
typedef struct emitc_float32x4 {
    float lane[4];
} emitc_float32x4;

/* x, out of the compiler's sight: it may merge a product with the sum that follows, which leaves out a rounding. */
EMITC_ALWAYS_INLINE float emitc_float_unfused(float x)
{
    volatile float seen = x;
    return seen;
}

EMITC_ALWAYS_INLINE void emitc_int32x4_lanes(int32_t *lane, emitc_int32x4 x)
{
#if EMITC_MVE
    vstrwq_s32(lane, x);
#else
    memcpy(lane, x.lane, sizeof x.lane);
#endif
}
#endif

/* As EMITC_LANES, by instructions for floats. */
#if EMITC_MVE_FLOAT
#define EMITC_FLOAT_LANES(name, parameters, instructions, element) \
    EMITC_ALWAYS_INLINE emitc_float32x4 name parameters \
    { \
        return instructions; \
    }
#else
#define EMITC_FLOAT_LANES(name, parameters, instructions, element) \
    EMITC_ALWAYS_INLINE emitc_float32x4 name parameters \
    { \
        emitc_float32x4 r; \
        for (int32_t i = 0; i < 4; i++) { \
            r.lane[i] = element; \
        } \
        return r; \
    }
#endif

EMITC_FLOAT_LANES(emitc_float32x4_all, (float value), vdupq_n_f32(value), value)

/* A copy is one of floats; see emitc_floats_stored. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_at(const float *values)
{
    emitc_float32x4 r;
    memcpy(&r, values, sizeof r);
    return r;
}

/* The first n numbers; the other lanes are 0. */
EMITC_FLOAT_LANES(emitc_float32x4_some, (const float *values, int32_t n),
    vldrwq_z_f32(emitc_floats_stored(values), vctp32q((uint32_t)n)),
    i < n ? values[i] : 0.0f)

EMITC_ALWAYS_INLINE void emitc_float32x4_to(float *to, emitc_float32x4 x)
{
    memcpy(to, &x, sizeof x);
}

/* Stores the first n. */
EMITC_ALWAYS_INLINE void emitc_float32x4_store(float *to, emitc_float32x4 x, int32_t n)
{
#if EMITC_MVE_FLOAT
    emitc_floats_in_order(to);
    vstrwq_p_f32(to, x, vctp32q((uint32_t)n));
    emitc_floats_in_order(to);
#else
    for (int32_t i = 0; i < 4 && i < n; i++) {
        to[i] = x.lane[i];
    }
#endif
}

/* The numbers at the first n of four places; the other lanes are 0. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_gathered(const float *values, emitc_int32x4 places, int32_t n)
{
#if EMITC_MVE_FLOAT
    return vldrwq_gather_shifted_offset_z_f32(emitc_floats_stored(values), vreinterpretq_u32_s32(places),
        vctp32q((uint32_t)n));
#else
    int32_t lane[4];
    emitc_float32x4 r = emitc_float32x4_all(0.0f);
    emitc_int32x4_lanes(lane, places);
    for (int32_t i = 0; i < 4 && i < n; i++) {
        r.lane[i] = values[lane[i]];
    }
    return r;
#endif
}

/* Numbers of at most 24 bits times the scale. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_of(emitc_int32x4 x, float scale)
{
#if EMITC_MVE_FLOAT
    emitc_float32x4 r = vmulq_n_f32(vcvtq_f32_s32(x), scale);
    __asm__("" : "+w"(r)); /* no compiler may merge the product with a sum that follows */
    return r;
#else
    int32_t lane[4];
    emitc_float32x4 r;
    emitc_int32x4_lanes(lane, x);
    for (int32_t i = 0; i < 4; i++) {
        r.lane[i] = emitc_float_unfused((float)lane[i] * scale);
    }
    return r;
#endif
}

EMITC_FLOAT_LANES(emitc_float32x4_sum, (emitc_float32x4 a, emitc_float32x4 b),
    vaddq_f32(a, b),
    a.lane[i] + b.lane[i])

EMITC_FLOAT_LANES(emitc_float32x4_difference, (emitc_float32x4 a, emitc_float32x4 b),
    vsubq_f32(a, b),
    a.lane[i] - b.lane[i])

EMITC_FLOAT_LANES(emitc_float32x4_product, (emitc_float32x4 a, emitc_float32x4 b),
    vmulq_f32(a, b),
    a.lane[i] * b.lane[i])

/* x, or 0 where it is negative; a NaN and -0 stay. By the bits, of which vectors leave none out. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_positive(emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    const int32x4_t bits = vreinterpretq_s32_f32(x);
    const mve_pred16_t negative = vcmpleq_m_n_s32(bits, (int32_t)0xff800000, vcmpgtq_n_s32(bits, INT32_MIN));
    return vpselq_f32(vdupq_n_f32(0.0f), x, negative);
#else
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] = x.lane[i] < 0.0f ? 0.0f : x.lane[i];
    }
    return x;
#endif
}

#if EMITC_MVE_FLOAT
EMITC_NOINLINE float32x4_t emitc_float32x4_sloped_outline(float32x4_t x, float32x4_t slope)
{
    float lane[4];
    float factor[4];
    memcpy(lane, &x, sizeof lane);
    memcpy(factor, &slope, sizeof factor);
    for (int32_t i = 0; i < 4; i++) {
        lane[i] = lane[i] < 0.0f ? factor[i] * lane[i] : lane[i];
    }
    memcpy(&x, lane, sizeof lane);
    return x;
}
#endif

/* x, or slope * x where it is negative. Where such a product comes out as 0 or as no number, vectors may have taken
 * something for 0: then the float unit computes the four. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_sloped(emitc_float32x4 x, emitc_float32x4 slope)
{
#if EMITC_MVE_FLOAT
    const int32x4_t bits = vreinterpretq_s32_f32(x);
    const int32x4_t product = vreinterpretq_s32_f32(vmulq_f32(slope, x));
    const int32x4_t negative = vshrq_n_s32(bits, 31);
    /* Products without their sign, less 1: 0 and what is no number are the largest. */
    const uint32x4_t size = vsubq_n_u32(vshlq_n_u32(vreinterpretq_u32_s32(product), 1), 1u);
    if (vmaxvq_u32(0u, vandq_u32(size, vreinterpretq_u32_s32(negative))) >= 0xff000000u) {
        return emitc_float32x4_sloped_outline(x, slope);
    }
    return vreinterpretq_f32_s32(veorq_s32(bits, vandq_s32(veorq_s32(bits, product), negative)));
#else
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] = x.lane[i] < 0.0f ? slope.lane[i] * x.lane[i] : x.lane[i];
    }
    return x;
#endif
}

/* x / divisor as a division rounds it; inverse: 1 / divisor, rounded to nearest. Both corrections have the remainder
 * exactly: the first leaves less than a unit in the last place, from where the second rounds correctly (P. Markstein,
 * Computation of elementary functions on the IBM RISC System/6000 processor, 1990). divisor and inverse are within
 * 2^-123..2^123, x and the quotient 0, or within 2^-62..2^126; smaller quotients are under 2^-61 here too. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_over(emitc_float32x4 x, float divisor, emitc_float32x4 inverse)
{
#if EMITC_MVE_FLOAT
    const emitc_float32x4 minus = vdupq_n_f32(-divisor);
    const emitc_float32x4 about = vmulq_f32(x, inverse);
    const emitc_float32x4 near = vfmaq_f32(about, vfmaq_f32(x, about, minus), inverse);
    return vfmaq_f32(near, vfmaq_f32(x, near, minus), inverse);
#else
    (void)inverse;
    for (int32_t i = 0; i < 4; i++) {
        x.lane[i] /= divisor;
    }
    return x;
#endif
}

/* x within low and high; low for what is no number. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_within(emitc_float32x4 x, float low, float high)
{
#if EMITC_MVE_FLOAT
    return vminnmq_f32(vmaxnmq_f32(x, vdupq_n_f32(low)), vdupq_n_f32(high));
#else
    for (int32_t i = 0; i < 4; i++) {
        const float least = x.lane[i] > low ? x.lane[i] : low;
        x.lane[i] = least < high ? least : high;
    }
    return x;
#endif
}

/* x * factor + more, rounded once; where double holds that sum, or what comes is no number. */
EMITC_FLOAT_LANES(emitc_float32x4_scaled_plus, (emitc_float32x4 x, float factor, emitc_float32x4 more),
    vfmaq_n_f32(more, x, factor),
    (float)((double)x.lane[i] * (double)factor + (double)more.lane[i]))

/* Numbers rounded half to even; what 32 bits do not hold, to their nearest end. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_nearest(emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    return vcvtnq_s32_f32(x);
#else
    int32_t lane[4];
    for (int32_t i = 0; i < 4; i++) {
        const float above = x.lane[i] > -8388608.0f ? x.lane[i] : -8388608.0f;
        const float limited = above < 8388608.0f ? above : 8388608.0f;
        const int32_t whole = (int32_t)limited;
        const float rest = limited - (float)whole;
        const int32_t odd = whole & 1;
        lane[i] = whole + (rest > 0.5f || (rest >= 0.5f && odd != 0)) - (rest < -0.5f || (rest <= -0.5f && odd != 0));
    }
    return emitc_int32x4_at(lane);
#endif
}

#endif
