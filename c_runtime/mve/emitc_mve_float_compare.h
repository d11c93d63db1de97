/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: four numbers of float32 at a time, compared as C compares them.
 *
 * Part of a package whose kernels use it; see emitc_mve_float32.h. By the bits, since comparisons of vectors take
 * numbers under 2^-126 for 0.
 */
#ifndef EMITC_MVE_FLOAT_COMPARE_H
#define EMITC_MVE_FLOAT_COMPARE_H

#include "emitc_mve_float32.h"

#if EMITC_MVE_FLOAT
#define EMITC_REALS_INFINITE 0x7f800000

/* Integers in the order of four numbers, -0 right below 0, what is no number outside of both infinities; and back
 * again. */
EMITC_ALWAYS_INLINE int32x4_t emitc_float32x4_order(int32x4_t bits)
{
    const uint32x4_t negative = vreinterpretq_u32_s32(vshrq_n_s32(bits, 31));
    return veorq_s32(bits, vreinterpretq_s32_u32(vshrq_n_u32(negative, 1)));
}
#endif

/* four[k] becomes x[k] where that is larger, at n taps each of `rows` rows. x_step: values from one tap to the next.
 * x_row: from one row to the next. */
EMITC_NOINLINE void emitc_window_largest_strided(
    const float *x, int32_t rows, int32_t n, int32_t x_row, int32_t x_step, float *restrict four)
{
    for (int32_t row = 0; row < rows; row++) {
        const float *v = x + row * x_row;
        for (int32_t tap = 0; tap < n; tap++) {
            for (int32_t k = 0; k < 4; k++) {
                four[k] = v[k] > four[k] ? v[k] : four[k];
            }
            v += x_step;
        }
    }
}

#if EMITC_MVE_FLOAT
/* The same of integers in the order of numbers. 1 where no value is -0 or no number: then `four` are the largest. */
EMITC_ALWAYS_INLINE int32_t emitc_window_order(
    const float *x, int32_t rows, int32_t n, int32_t x_row, int32_t x_step, int32x4_t *four)
{
    int32x4_t order = *four;
    int32x4_t bits = vdupq_n_s32(0);
    for (int32_t row = 0; row < rows; row++) {
        const float *v = x + row * x_row;
        for (int32_t tap = 0; tap < n; tap++) {
            const int32x4_t value = vreinterpretq_s32_f32(emitc_float32x4_at(v));
            order = vmaxq_s32(order, emitc_float32x4_order(value));
            bits = vminq_s32(bits, value);
            v += x_step;
        }
    }
    *four = order;
    return vmaxvq_s32(0, order) <= EMITC_REALS_INFINITE && vminvq_s32(0, bits) != INT32_MIN;
}
#endif

/* Stores the largest of four channels' values in a window, the first of equal ones, as emitc_window_largest_strided has
 * it. Nothing is larger than what is no number, and that than nothing. */
EMITC_ALWAYS_INLINE void emitc_window_largest_mve(
    const float *x, int32_t rows, int32_t n, int32_t x_row, int32_t x_step, float *y)
{
#if EMITC_MVE_FLOAT
    int32x4_t order = emitc_float32x4_order(vreinterpretq_s32_f32(emitc_float32x4_at(x)));
    if (vminvq_s32(0, order) >= ~EMITC_REALS_INFINITE && emitc_window_order(x, rows, n, x_row, x_step, &order)) {
        emitc_float32x4_to(y, vreinterpretq_f32_s32(emitc_float32x4_order(order)));
        return;
    }
#endif
    float four[4];
    memcpy(four, x, sizeof four);
    emitc_window_largest_strided(x, rows, n, x_row, x_step, four);
    memcpy(y, four, sizeof four);
}

/* The same within low and high; what is no number is passed over. */
EMITC_ALWAYS_INLINE void emitc_window_limited_mve(
    const float *x, int32_t rows, int32_t n, int32_t x_row, int32_t x_step, float low, float high, float *y)
{
#if EMITC_MVE_FLOAT
    const int32x4_t highest = emitc_float32x4_order(vreinterpretq_s32_f32(vdupq_n_f32(high)));
    int32x4_t order = emitc_float32x4_order(vreinterpretq_s32_f32(vdupq_n_f32(low)));
    if (emitc_window_order(x, rows, n, x_row, x_step, &order)) {
        emitc_float32x4_to(y, vreinterpretq_f32_s32(emitc_float32x4_order(vminq_s32(order, highest))));
        return;
    }
#endif
    float four[4] = {-3.40282347e+38f, -3.40282347e+38f, -3.40282347e+38f, -3.40282347e+38f};
    emitc_window_largest_strided(x, rows, n, x_row, x_step, four);
    for (int32_t k = 0; k < 4; k++) {
        y[k] = four[k] < low ? low : four[k] > high ? high : four[k];
    }
}

#endif
