/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: sums of products of float32 for four output channels at a time.
 *
 * Part of a package whose kernels use it; see emitc_mve_float32.h. Each sum is made front to back. Every step is
 * rounded, as C has it, except for products under 2^-126, which vectors take for 0.
 */
#ifndef EMITC_MVE_DOT_FLOAT_H
#define EMITC_MVE_DOT_FLOAT_H

#include "emitc_mve_float32.h"

/* The product of each of four numbers and factor, which is rounded before the sum that follows. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_times(emitc_float32x4 x, float factor)
{
#if EMITC_MVE_FLOAT
    emitc_float32x4 r = vmulq_n_f32(x, factor);
    __asm__("" : "+w"(r));
    return r;
#else
    return emitc_float32x4_product(x, emitc_float32x4_all(factor));
#endif
}

/* Four sums + x[i] * w[4 * i + k], of n values each of `rows` rows, with x_row and w_row values from one row to the
 * next. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_window_sums_mve(
    const float *x, const float *w, int32_t rows, int32_t n, int32_t x_row, int32_t w_row, emitc_float32x4 sum)
{
    for (int32_t row = 0; row < rows; row++) {
        const float *v = x + row * x_row;
        const float *f = w + row * w_row;
        for (int32_t left = n; left > 0; left--) {
            sum = emitc_float32x4_sum(sum, emitc_float32x4_times(emitc_float32x4_at(f), *v++));
            f += 4;
        }
    }
    return sum;
}

/* sums[k] += x[i] * w[4 * i + k], of n values. */
EMITC_ALWAYS_INLINE void emitc_run_sums_mve(const float *x, const float *w, int32_t n, float *restrict sums)
{
    emitc_float32x4_to(sums, emitc_window_sums_mve(x, w, 1, n, 0, 0, emitc_float32x4_at(sums)));
}

/* Four sums + x[k] * w[k] at n taps each of `rows` rows. x_step and w_step: values from one tap to the next. x_row and
 * w_row: from one row to the next. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_tap_sums_mve(
    const float *x, const float *w, int32_t rows, int32_t n, int32_t x_row, int32_t w_row, int32_t x_step,
    int32_t w_step,
    emitc_float32x4 sum)
{
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t tap = 0; tap < n; tap++) {
            const float *v = x + row * x_row + tap * x_step;
            const float *f = w + row * w_row + tap * w_step;
            emitc_float32x4 product = emitc_float32x4_product(emitc_float32x4_at(v), emitc_float32x4_at(f));
#if EMITC_MVE_FLOAT
            __asm__("" : "+w"(product)); /* no compiler may merge it with the sum */
#endif
            sum = emitc_float32x4_sum(sum, product);
        }
    }
    return sum;
}

/* Sums, or low where they are less, or else high where they are more; what is no number stays. Sums are never under
 * 2^-126 but 0; low is no more than high. */
EMITC_ALWAYS_INLINE emitc_float32x4 emitc_float32x4_limited(emitc_float32x4 x, float low, float high)
{
#if EMITC_MVE_FLOAT
    /* Vectors have "less" for all that is not "no less", which is true of what is no number. */
    const emitc_float32x4 least = vdupq_n_f32(low);
    const emitc_float32x4 raised = vpselq_f32(least, x, vcmpgtq_f32(least, x));
    return vpselq_f32(vdupq_n_f32(high), raised, vcmpgtq_n_f32(x, high));
#else
    for (int32_t i = 0; i < 4; i++) {
        const float v = x.lane[i];
        x.lane[i] = v < low ? low : v > high ? high : v;
    }
    return x;
#endif
}

/* The sums of a[i] * b[columns * i + k] and of second[i] * b[columns * i + k], of `depth` values each: four columns of
 * two rows. */
EMITC_ALWAYS_INLINE void emitc_column_sums_mve(
    const float *a, const float *second, const float *b, int32_t depth, int32_t columns, float *y, float *of_second)
{
    emitc_float32x4 sum = emitc_float32x4_all(0.0f);
    emitc_float32x4 other = sum;
    for (int32_t left = depth; left > 0; left--) {
        const emitc_float32x4 values = emitc_float32x4_at(b);
        sum = emitc_float32x4_sum(sum, emitc_float32x4_times(values, *a++));
        other = emitc_float32x4_sum(other, emitc_float32x4_times(values, *second++));
        b += columns;
    }
    emitc_float32x4_to(y, sum);
    emitc_float32x4_to(of_second, other);
}

#endif
