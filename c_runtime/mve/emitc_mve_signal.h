/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: signals of int16, eight values or four complex numbers, whose real and
 * imaginary parts come in turn.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. Sums wrap at 16 bits. Values in memory are aligned to 2
 * bytes.
 */
#ifndef EMITC_MVE_SIGNAL_H
#define EMITC_MVE_SIGNAL_H

#include "emitc_mve.h"

EMITC_LANES(emitc_int16x8, emitc_int16x8_at, (const int16_t *values), vldrhq_s16(values), values[i])

/* Eight values from `at` on, 0 for those from `end` on. */
EMITC_LANES(emitc_int16x8, emitc_int16x8_before, (const int16_t *values, int32_t at, int32_t end),
    vldrhq_z_s16(values + at, vctp16q(at < end ? (uint32_t)(end - at) : 0)),
    at + i < end ? values[at + i] : 0)

/* Four complex numbers, the last one first. */
EMITC_LANES(emitc_int16x8, emitc_complex_reversed, (const int16_t *values),
    vldrhq_gather_shifted_offset_s16(values, veorq_u16(vidupq_n_u16(0, 1), vdupq_n_u16(6))),
    values[i ^ 6])

EMITC_ALWAYS_INLINE void emitc_store_halves(int16_t *to, emitc_int16x8 x)
{
#if EMITC_MVE
    vstrhq_s16(to, x);
#else
    memcpy(to, x.lane, sizeof x.lane);
#endif
}

EMITC_ALWAYS_INLINE void emitc_store_reversed(int16_t *to, emitc_int16x8 x)
{
#if EMITC_MVE
    vstrhq_scatter_shifted_offset_s16(to, veorq_u16(vidupq_n_u16(0, 1), vdupq_n_u16(6)), x);
#else
    for (int32_t i = 0; i < 8; i++) {
        to[i ^ 6] = x.lane[i];
    }
#endif
}

/* Each complex number at a place of its own, in complex numbers from `to`; `to` is aligned to 4 bytes. */
EMITC_ALWAYS_INLINE void emitc_store_scattered(int16_t *to, const uint16_t *places, emitc_int16x8 x)
{
#if EMITC_MVE
    vstrwq_scatter_shifted_offset_s32((int32_t *)(void *)to, vldrhq_u32(places), vreinterpretq_s32_s16(x));
#else
    for (int32_t i = 0; i < 4; i++) {
        memcpy(to + 2 * places[i], x.lane + 2 * i, 2 * sizeof *to);
    }
#endif
}

/* Stores those of eight values whose places, from `at` on, are before `end`. */
EMITC_ALWAYS_INLINE void emitc_store_before(int16_t *to, int32_t at, int32_t end, emitc_int16x8 x)
{
#if EMITC_MVE
    vstrhq_p_s16(to + at, x, vctp16q((uint32_t)(end - at)));
#else
    for (int32_t i = 0; i < 8 && at + i < end; i++) {
        to[at + i] = x.lane[i];
    }
#endif
}

/* The largest magnitude of eight values, or `largest`. */
EMITC_ALWAYS_INLINE uint32_t emitc_int16x8_magnitude(uint32_t largest, emitc_int16x8 x)
{
#if EMITC_MVE
    return vmaxavq_s16((uint16_t)largest, x);
#else
    for (int32_t i = 0; i < 8; i++) {
        const uint32_t magnitude = (uint32_t)(x.lane[i] < 0 ? -x.lane[i] : x.lane[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
#endif
}

/* x * 2^places. */
EMITC_LANES(emitc_int16x8, emitc_int16x8_up, (emitc_int16x8 x, int32_t places),
    vshlq_r_s16(x, places),
    (int16_t)(x.lane[i] * (1 << places)))

/* a * b / 2^right, rounded down, each the nearest number of 16 bits; right is 31 at most. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_int16x8_product(emitc_int16x8 a, emitc_int16x8 b, int32_t right)
{
#if EMITC_MVE
    const emitc_int32x4 even = vshlq_r_s32(vmullbq_int_s16(a, b), -right);
    return emitc_int16x8_of(even, vshlq_r_s32(vmulltq_int_s16(a, b), -right));
#else
    for (int32_t i = 0; i < 8; i++) {
        a.lane[i] = (int16_t)emitc_clamp(a.lane[i] * b.lane[i] >> right, INT16_MIN, INT16_MAX);
    }
    return a;
#endif
}

EMITC_LANES(emitc_int16x8, emitc_int16x8_sum, (emitc_int16x8 a, emitc_int16x8 b),
    vaddq_s16(a, b),
    (int16_t)(a.lane[i] + b.lane[i]))

EMITC_LANES(emitc_int16x8, emitc_int16x8_difference, (emitc_int16x8 a, emitc_int16x8 b),
    vsubq_s16(a, b),
    (int16_t)(a.lane[i] - b.lane[i]))

/* x times a positive Q15 factor, rounded half up. */
EMITC_LANES(emitc_int16x8, emitc_int16x8_scaled, (emitc_int16x8 x, int32_t factor),
    vqrdmulhq_n_s16(x, (int16_t)factor),
    (int16_t)((x.lane[i] * factor + (1 << 14)) >> 15))

/* v times Q15 turns, rounded half up; both parts of v are 2^14 at most. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_complex_turned_small(emitc_int16x8 v, emitc_int16x8 turns)
{
#if EMITC_MVE
    return vqrdmladhxq_s16(vqrdmlsdhq_s16(v, v, turns), v, turns);
#else
    for (int32_t i = 0; i < 8; i += 2) {
        const int32_t re = v.lane[i] * turns.lane[i] - v.lane[i + 1] * turns.lane[i + 1];
        const int32_t im = v.lane[i] * turns.lane[i + 1] + v.lane[i + 1] * turns.lane[i];
        v.lane[i] = (int16_t)((re + (1 << 14)) >> 15);
        v.lane[i + 1] = (int16_t)((im + (1 << 14)) >> 15);
    }
    return v;
#endif
}

/* The same of any v: what leaves 16 bits wraps. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_complex_turned_any(emitc_int16x8 v, emitc_int16x8 turns)
{
#if EMITC_MVE
    const int16x8_t across = vrev32q_s16(turns);
    const int32x4_t re = vsubq_s32(vmullbq_int_s16(v, turns), vmulltq_int_s16(v, turns));
    const int32x4_t im = vaddq_s32(vmullbq_int_s16(v, across), vmulltq_int_s16(v, across));
    return vrshrntq_n_s32(vrshrnbq_n_s32(v, re, 15), im, 15);
#else
    return emitc_complex_turned_small(v, turns);
#endif
}

/* a - b * i. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_int16x8_back(emitc_int16x8 a, emitc_int16x8 b)
{
#if EMITC_MVE
    return vcaddq_rot270_s16(a, b);
#else
    for (int32_t i = 0; i < 8; i += 2) {
        a.lane[i] = (int16_t)(a.lane[i] + b.lane[i + 1]);
        a.lane[i + 1] = (int16_t)(a.lane[i + 1] - b.lane[i]);
    }
    return a;
#endif
}

/* a + b * i. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_int16x8_forth(emitc_int16x8 a, emitc_int16x8 b)
{
#if EMITC_MVE
    return vcaddq_rot90_s16(a, b);
#else
    for (int32_t i = 0; i < 8; i += 2) {
        a.lane[i] = (int16_t)(a.lane[i] - b.lane[i + 1]);
        a.lane[i + 1] = (int16_t)(a.lane[i + 1] + b.lane[i]);
    }
    return a;
#endif
}

#if EMITC_MVE
/* The imaginary parts' lanes. GCC 12 makes another number of this one where it is a constant, 0xcccc. */
EMITC_ALWAYS_INLINE mve_pred16_t emitc_imaginary(void)
{
    return vcmpneq_n_u16(vreinterpretq_u16_u32(vdupq_n_u32(0xffff0000u)), 0);
}
#endif

/* The squares of the magnitudes of the first n numbers. */
EMITC_ALWAYS_INLINE void emitc_store_energies(uint32_t *to, emitc_int16x8 v, int32_t n)
{
#if EMITC_MVE
    const uint32x4_t re = vreinterpretq_u32_s32(vmullbq_int_s16(v, v));
    const uint32x4_t im = vreinterpretq_u32_s32(vmulltq_int_s16(v, v));
    vstrwq_p_u32(to, vaddq_u32(re, im), vctp32q((uint32_t)n));
#else
    for (int32_t i = 0; i < 4 && i < n; i++) {
        to[i] = (uint32_t)(v.lane[2 * i] * v.lane[2 * i]) + (uint32_t)(v.lane[2 * i + 1] * v.lane[2 * i + 1]);
    }
#endif
}

/* The conjugates of four numbers. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_complex_conjugate(emitc_int16x8 v)
{
#if EMITC_MVE
    return vnegq_m_s16(v, v, emitc_imaginary());
#else
    for (int32_t i = 1; i < 8; i += 2) {
        v.lane[i] = (int16_t)-v.lane[i];
    }
    return v;
#endif
}

/* (a + b) / 2, rounded down. */
EMITC_LANES(emitc_int16x8, emitc_int16x8_half_sum, (emitc_int16x8 a, emitc_int16x8 b),
    vhaddq_s16(a, b),
    (int16_t)((a.lane[i] + b.lane[i]) >> 1))

/* (a - b) / 2 of the real parts, (b - a) / 2 of the imaginary ones, rounded down. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_complex_half_difference(emitc_int16x8 a, emitc_int16x8 b)
{
#if EMITC_MVE
    return vhsubq_m_s16(vhsubq_s16(a, b), b, a, emitc_imaginary());
#else
    for (int32_t i = 0; i < 8; i += 2) {
        a.lane[i] = (int16_t)((a.lane[i] - b.lane[i]) >> 1);
        a.lane[i + 1] = (int16_t)((b.lane[i + 1] - a.lane[i + 1]) >> 1);
    }
    return a;
#endif
}

#endif
