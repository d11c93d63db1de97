/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension (Cortex-M55, M85, ...: MVE, "Helium"): sixteen products of bytes in one
 * instruction.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C, with the same results.
 * So a package can be proved and stepped through on a host.
 *
 * A register holds 16 bytes: emitc_int8x16, or 8 values of 16 bits: emitc_int16x8, or 4 of 32: emitc_int32x4. Where a
 * function takes `n`, it reads or stores the first n lanes only.
 *
 * A gcc that keeps a register for itself, by -fno-omit-frame-pointer or the like, says "impossible constraints" or
 * names the register: compile without that option, or with EMITC_NO_ASM.
 */
#ifndef EMITC_MVE_H
#define EMITC_MVE_H

#include "emitc_runtime.h"

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1) && EMITC_ASM
#define EMITC_MVE 1
#include <arm_mve.h>
#else
#define EMITC_MVE 0
#endif
#if EMITC_MVE && (__ARM_FEATURE_MVE & 2)
#define EMITC_MVE_FLOAT 1
#else
#define EMITC_MVE_FLOAT 0
#endif

/* The inner loops in assembly take every register, which only an optimizing gcc can give. */
#if EMITC_MVE && defined(__OPTIMIZE__) && !defined(__clang__)
#define EMITC_MVE_LOOPS 1
#else
#define EMITC_MVE_LOOPS 0
#endif

#if EMITC_MVE
typedef int32x4_t emitc_int32x4;
typedef int16x8_t emitc_int16x8;
typedef int8x16_t emitc_int8x16;
#else
typedef struct emitc_int32x4 {
    int32_t lane[4];
} emitc_int32x4;
typedef struct emitc_int16x8 {
    int16_t lane[8];
} emitc_int16x8;
typedef struct emitc_int8x16 {
    int8_t lane[16];
} emitc_int8x16;
#endif

/* A function that makes a vector: by instructions of the core, and in plain C element by element, of which i is the
 * number. */
#if EMITC_MVE
#define EMITC_LANES(type, name, parameters, instructions, element) \
    EMITC_ALWAYS_INLINE type name parameters \
    { \
        return instructions; \
    }
#else
#define EMITC_LANES(type, name, parameters, instructions, element) \
    EMITC_ALWAYS_INLINE type name parameters \
    { \
        type r; \
        for (int32_t i = 0; i < (int32_t)(sizeof r.lane / sizeof r.lane[0]); i++) { \
            r.lane[i] = element; \
        } \
        return r; \
    }
#endif

/* ---- four words ---- */

EMITC_LANES(emitc_int32x4, emitc_int32x4_at, (const int32_t *values), vldrwq_s32(values), values[i])

/* Four bytes, widened. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_of_bytes, (const int8_t *values), vldrbq_s32(values), values[i])

/* The first n bytes, widened; the other lanes are 0. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_of_some, (const int8_t *values, int32_t n),
    vldrbq_z_s32(values, vctp32q((uint32_t)n)),
    i < n ? values[i] : 0)

/* The same of int16 values. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_of_some_int16, (const int16_t *values, int32_t n),
    vldrhq_z_s32(values, vctp32q((uint32_t)n)),
    i < n ? values[i] : 0)

/* The values at four places. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_gathered, (const int8_t *values, emitc_int32x4 places),
    vldrbq_gather_offset_s32(values, vreinterpretq_u32_s32(places)),
    values[places.lane[i]])

/* The same of int16 values. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_gathered_int16, (const int16_t *values, emitc_int32x4 places),
    vldrhq_gather_shifted_offset_s32(values, vreinterpretq_u32_s32(places)),
    values[places.lane[i]])

EMITC_LANES(emitc_int32x4, emitc_int32x4_all, (int32_t value), vdupq_n_s32(value), value)

/* a + b, which wraps. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_sum, (emitc_int32x4 a, emitc_int32x4 b),
    vaddq_s32(a, b),
    (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]))

/* x + more, which wraps. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_plus(emitc_int32x4 x, int32_t more)
{
#if EMITC_MVE
    return vaddq_n_s32(x, more);
#else
    return emitc_int32x4_sum(x, emitc_int32x4_all(more));
#endif
}

/* a - b, which wraps. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_difference, (emitc_int32x4 a, emitc_int32x4 b),
    vsubq_s32(a, b),
    (int32_t)((uint32_t)a.lane[i] - (uint32_t)b.lane[i]))

/* Whether any of the four is another one. */
EMITC_ALWAYS_INLINE int32_t emitc_int32x4_differ(emitc_int32x4 a, emitc_int32x4 b)
{
#if EMITC_MVE
    return vcmpneq_s32(a, b) != 0;
#else
    return memcmp(a.lane, b.lane, sizeof a.lane) != 0;
#endif
}

EMITC_LANES(emitc_int32x4, emitc_int32x4_limited, (emitc_int32x4 x, emitc_int32x4 low, emitc_int32x4 high),
    vminq_s32(vmaxq_s32(x, low), high),
    emitc_clamp(x.lane[i], low.lane[i], high.lane[i]))

/* x * factor, which wraps. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_times, (emitc_int32x4 x, int32_t factor),
    vmulq_n_s32(x, factor),
    (int32_t)((uint32_t)x.lane[i] * (uint32_t)factor))

/* a * b, which wraps. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_product, (emitc_int32x4 a, emitc_int32x4 b),
    vmulq_s32(a, b),
    (int32_t)((uint32_t)a.lane[i] * (uint32_t)b.lane[i]))

/* The upper half of a * b. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_high, (emitc_int32x4 a, emitc_int32x4 b),
    vmulhq_s32(a, b),
    (int32_t)(((int64_t)a.lane[i] * b.lane[i]) >> 32))

/* acc + x * factor, which wraps. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_mac(emitc_int32x4 acc, emitc_int32x4 x, int32_t factor)
{
#if EMITC_MVE
    return vmlaq_n_s32(acc, x, factor);
#else
    return emitc_int32x4_sum(acc, emitc_int32x4_times(x, factor));
#endif
}

/* x / 2^places rounded down; places in 0..31. */
EMITC_LANES(emitc_int32x4, emitc_int32x4_down, (emitc_int32x4 x, int32_t places),
    vshlq_r_s32(x, -places),
    x.lane[i] >> places)

/* Sums of `count` values as their mean, halves away from zero. The sums are those of bytes, reciprocal is 2^31 / count
 * + 1. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_mean(emitc_int32x4 sums, int32_t count, uint32_t reciprocal)
{
#if EMITC_MVE
    const uint32x4_t twice = vshlq_n_u32(vreinterpretq_u32_s32(vaddq_n_s32(vabsq_s32(sums), count >> 1)), 1);
    const int32x4_t mean = vreinterpretq_s32_u32(vmulhq_u32(twice, vdupq_n_u32(reciprocal)));
    const int32x4_t sign = vshrq_n_s32(sums, 31);
    return vsubq_s32(veorq_s32(mean, sign), sign);
#else
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t magnitude = (uint32_t)(sums.lane[i] < 0 ? -sums.lane[i] : sums.lane[i]) + (uint32_t)(count >> 1);
        const int32_t mean = (int32_t)(((uint64_t)magnitude * reciprocal) >> 31);
        sums.lane[i] = sums.lane[i] < 0 ? -mean : mean;
    }
    return sums;
#endif
}

/* Stores the lowest byte of the first n. */
EMITC_ALWAYS_INLINE void emitc_store_some_bytes(int8_t *to, emitc_int32x4 x, int32_t n)
{
#if EMITC_MVE
    vstrbq_p_s32(to, x, vctp32q((uint32_t)n));
#else
    for (int32_t i = 0; i < 4 && i < n; i++) {
        to[i] = (int8_t)x.lane[i];
    }
#endif
}

/* Stores the lower half of the first n. */
EMITC_ALWAYS_INLINE void emitc_store_some_int16(int16_t *to, emitc_int32x4 x, int32_t n)
{
#if EMITC_MVE
    vstrhq_p_s32(to, x, vctp32q((uint32_t)n));
#else
    for (int32_t i = 0; i < 4 && i < n; i++) {
        to[i] = (int16_t)x.lane[i];
    }
#endif
}

/* Stores the lowest byte of each. */
EMITC_ALWAYS_INLINE void emitc_store_bytes(int8_t *to, emitc_int32x4 x)
{
#if EMITC_MVE
    vstrbq_s32(to, x);
#else
    for (int32_t i = 0; i < 4; i++) {
        to[i] = (int8_t)x.lane[i];
    }
#endif
}

/* ---- eight halves, sixteen bytes ---- */

EMITC_ALWAYS_INLINE emitc_int8x16 emitc_int8x16_all(int32_t value)
{
#if EMITC_MVE
    return vdupq_n_s8((int8_t)value);
#else
    emitc_int8x16 r;
    memset(r.lane, value, sizeof r.lane);
    return r;
#endif
}

/* a in the even lanes, b in the odd ones, each the nearest value of 16 bits. */
EMITC_ALWAYS_INLINE emitc_int16x8 emitc_int16x8_of(emitc_int32x4 a, emitc_int32x4 b)
{
#if EMITC_MVE
    return vqmovntq_s32(vqmovnbq_s32(vreinterpretq_s16_s32(a), a), b);
#else
    emitc_int16x8 r;
    for (int32_t i = 0; i < 4; i++) {
        r.lane[2 * i] = (int16_t)emitc_clamp(a.lane[i], -32768, 32767);
        r.lane[2 * i + 1] = (int16_t)emitc_clamp(b.lane[i], -32768, 32767);
    }
    return r;
#endif
}

/* a + offset in the even lanes, b + offset in the odd ones, each the nearest byte; the offset is a byte. */
EMITC_ALWAYS_INLINE emitc_int8x16 emitc_int8x16_of(emitc_int16x8 a, emitc_int16x8 b, int32_t offset)
{
#if EMITC_MVE
    const int16x8_t even = vqaddq_n_s16(a, (int16_t)offset);
    return vqmovntq_s16(vqmovnbq_s16(vreinterpretq_s8_s16(even), even), vqaddq_n_s16(b, (int16_t)offset));
#else
    emitc_int8x16 r;
    for (int32_t i = 0; i < 8; i++) {
        r.lane[2 * i] = (int8_t)emitc_clamp(a.lane[i] + offset, -128, 127);
        r.lane[2 * i + 1] = (int8_t)emitc_clamp(b.lane[i] + offset, -128, 127);
    }
    return r;
#endif
}

EMITC_LANES(emitc_int8x16, emitc_int8x16_limited, (emitc_int8x16 x, emitc_int8x16 low, emitc_int8x16 high),
    vminq_s8(vmaxq_s8(x, low), high),
    (int8_t)emitc_clamp(x.lane[i], low.lane[i], high.lane[i]))

/* The larger one of each x and the first n bytes. */
EMITC_ALWAYS_INLINE emitc_int8x16 emitc_int8x16_largest(emitc_int8x16 x, const int8_t *values, int32_t n)
{
#if EMITC_MVE
    const mve_pred16_t some = vctp8q((uint32_t)n);
    return vmaxq_m_s8(x, x, vldrbq_z_s8(values, some), some);
#else
    for (int32_t i = 0; i < 16 && i < n; i++) {
        x.lane[i] = values[i] > x.lane[i] ? values[i] : x.lane[i];
    }
    return x;
#endif
}

EMITC_ALWAYS_INLINE int32_t emitc_int8x16_maximum(emitc_int8x16 x)
{
#if EMITC_MVE
    return vmaxvq_s8(-128, x);
#else
    int32_t largest = x.lane[0];
    for (int32_t i = 1; i < 16; i++) {
        largest = x.lane[i] > largest ? x.lane[i] : largest;
    }
    return largest;
#endif
}

EMITC_ALWAYS_INLINE void emitc_store(int8_t *to, emitc_int8x16 x)
{
#if EMITC_MVE
    vstrbq_s8(to, x);
#else
    memcpy(to, x.lane, sizeof x.lane);
#endif
}

/* Moves n bytes in ascending order. The destination must lie below the source, or not overlap it. */
EMITC_ALWAYS_INLINE void emitc_moved_down(uint8_t *to, const uint8_t *from, int32_t n)
{
#if EMITC_MVE
    __asm__ volatile(
        "wlstp.8 lr, %[n], 2f\n"
        "1:\n\t"
        "vldrb.8 q0, [%[from]], #16\n\t"
        "vstrb.8 q0, [%[to]], #16\n\t"
        "letp lr, 1b\n"
        "2:"
        : [from] "+r"(from), [to] "+r"(to)
        : [n] "r"(n)
        : "q0", "lr", "cc", "memory");
#else
    memmove(to, from, (size_t)n);
#endif
}

/* Stores eight bytes: x + offset limited to low..high. */
EMITC_ALWAYS_INLINE void emitc_store_eight(int8_t *to, emitc_int16x8 x, int32_t offset, int32_t low, int32_t high)
{
#if EMITC_MVE
    const int16x8_t moved = vqaddq_n_s16(x, (int16_t)offset);
    vstrbq_s16(to, vminq_s16(vmaxq_s16(moved, vdupq_n_s16((int16_t)low)), vdupq_n_s16((int16_t)high)));
#else
    for (int32_t i = 0; i < 8; i++) {
        to[i] = (int8_t)emitc_clamp(x.lane[i] + offset, low, high);
    }
#endif
}

/* Stores the first n. */
EMITC_ALWAYS_INLINE void emitc_store_some(int8_t *to, emitc_int8x16 x, int32_t n)
{
#if EMITC_MVE
    vstrbq_p_s8(to, x, vctp8q((uint32_t)n));
#else
    memcpy(to, x.lane, (size_t)(n < 16 ? n : 16));
#endif
}

/* Of a table of 256, the entries at the first n bytes; the other lanes may be anything. */
EMITC_ALWAYS_INLINE emitc_int8x16 emitc_int8x16_looked_up(const int8_t *table, const uint8_t *at, int32_t n)
{
#if EMITC_MVE
    return vldrbq_gather_offset_s8(table, vldrbq_z_u8(at, vctp8q((uint32_t)n)));
#else
    emitc_int8x16 r;
    memset(r.lane, 0, sizeof r.lane);
    for (int32_t i = 0; i < 16 && i < n; i++) {
        r.lane[i] = table[at[i]];
    }
    return r;
#endif
}

#if EMITC_MVE_FLOAT
/* GCC takes floats that vectors load and store for integers, which loads and stores of single floats may pass by. These
 * keep the order: `at`, for a load after all stores there, and for a store between two calls. */
struct emitc_four_floats {
    float value[4];
};

struct emitc_four_integers {
    int32_t value[4];
};

EMITC_ALWAYS_INLINE const float *emitc_floats_stored(const float *at)
{
    __asm__("" : "+r"(at) : "m"(*(const struct emitc_four_floats *)(const void *)at));
    return at;
}

EMITC_ALWAYS_INLINE void emitc_floats_in_order(float *at)
{
    __asm__("" : "+m"(*(struct emitc_four_floats *)(void *)at), "+m"(*(struct emitc_four_integers *)(void *)at));
}
#endif

/* Stores the first n as floats, times the scale. */
EMITC_ALWAYS_INLINE void emitc_store_some_float32(float *to, emitc_int32x4 x, float scale, int32_t n)
{
#if EMITC_MVE_FLOAT
    emitc_floats_in_order(to);
    vstrwq_p_f32(to, vmulq_n_f32(vcvtq_f32_s32(x), scale), vctp32q((uint32_t)n));
    emitc_floats_in_order(to);
#else
    int32_t lane[4];
#if EMITC_MVE
    vstrwq_s32(lane, x);
#else
    memcpy(lane, x.lane, sizeof lane);
#endif
    for (int32_t i = 0; i < 4 && i < n; i++) {
        to[i] = scale * (float)lane[i];
    }
#endif
}

/* ---- sums to outputs, each like the function of the runtime that it names ---- */

/* emitc_requantize of sums whose negative results do not matter: halves up. shift in -31..0. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_scaled_up(emitc_int32x4 acc, emitc_int32x4 q31, emitc_int32x4 shift)
{
#if EMITC_MVE
    return vrshlq_s32(vqrdmulhq_s32(acc, q31), shift);
#else
    for (int32_t i = 0; i < 4; i++) {
        const int32_t x = emitc_high_mul(acc.lane[i], q31.lane[i]);
        acc.lane[i] = shift.lane[i] == 0 ? x : ((x >> (-shift.lane[i] - 1)) + 1) >> 1;
    }
    return acc;
#endif
}

/* emitc_requantize; shift in -31..0. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_scaled_away(emitc_int32x4 acc, emitc_int32x4 q31, emitc_int32x4 shift)
{
#if EMITC_MVE
    /* One less where the value is negative and something is shifted out: halves up become halves away from zero.
     * Twice a negative number has an upper half of -1. */
    const int32x4_t x = vqrdmulhq_s32(acc, q31);
    return vrshlq_s32(vqdmlahq_n_s32(x, vandq_s32(x, shift), 1), shift);
#else
    for (int32_t i = 0; i < 4; i++) {
        acc.lane[i] = emitc_requantize(acc.lane[i], q31.lane[i], shift.lane[i]);
    }
    return acc;
#endif
}

/* emitc_requantize; shift in -31..30. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_scaled_any(emitc_int32x4 acc, emitc_int32x4 q31, emitc_int32x4 shift)
{
#if EMITC_MVE
    const int32x4_t none = vdupq_n_s32(0);
    return emitc_int32x4_scaled_away(vshlq_s32(acc, vmaxq_s32(shift, none)), q31, vminq_s32(shift, none));
#else
    for (int32_t i = 0; i < 4; i++) {
        acc.lane[i] = emitc_requantize(acc.lane[i], q31.lane[i], shift.lane[i]);
    }
    return acc;
#endif
}

/* emitc_output_s16 without limits; the multipliers are shifted left by 16 bits. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_scaled_q15(
    emitc_int32x4 acc, emitc_int32x4 multiplier, emitc_int32x4 right)
{
#if EMITC_MVE
    return vrshlq_s32(vmulhq_s32(acc, multiplier), vnegq_s32(right));
#else
    for (int32_t i = 0; i < 4; i++) {
        const int32_t x = emitc_high_mul_q15(acc.lane[i], multiplier.lane[i] >> 16);
        acc.lane[i] = right.lane[i] == 0 ? x : (x + (1 << (right.lane[i] - 1))) >> right.lane[i];
    }
    return acc;
#endif
}

/* emitc_rint_f32. */
EMITC_ALWAYS_INLINE emitc_int32x4 emitc_int32x4_scaled_f32(emitc_int32x4 acc, const float *factor)
{
#if EMITC_MVE_FLOAT
    /* Each of the three steps rounds to nearest, ties to even; the last one saturates. */
    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(acc), vldrwq_f32(factor)));
#else
    int32_t lane[4];
#if EMITC_MVE
    vstrwq_s32(lane, acc);
#else
    memcpy(lane, acc.lane, sizeof lane);
#endif
    for (int32_t i = 0; i < 4; i++) {
        lane[i] = emitc_rint_f32(lane[i], factor[i]);
    }
    return emitc_int32x4_at(lane);
#endif
}

#endif
