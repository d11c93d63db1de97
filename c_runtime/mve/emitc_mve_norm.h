/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: sums over rows of float32 and their normalization, four numbers at a
 * time.
 *
 * Part of a package whose kernels use it; see emitc_mve_float32.h. Sums are made front to back, by the float unit, to
 * which a vector's numbers are four registers. Every step is rounded, as C has it.
 */
#ifndef EMITC_MVE_NORM_H
#define EMITC_MVE_NORM_H

#include "emitc_mve_float32.h"

/* sum + the four numbers, one after the other. */
EMITC_ALWAYS_INLINE float emitc_float32x4_added(float sum, emitc_float32x4 x)
{
#if EMITC_MVE_FLOAT
    register float32x4_t lanes __asm__("q1") = x;
    __asm__("vadd.f32 %0, %0, s4\n\tvadd.f32 %0, %0, s5\n\tvadd.f32 %0, %0, s6\n\tvadd.f32 %0, %0, s7" : "+t"(sum)
        : "w"(lanes));
#else
    for (int32_t i = 0; i < 4; i++) {
        sum += x.lane[i];
    }
#endif
    return sum;
}

/* The sum of n numbers; n is a multiple of four here and below. */
EMITC_ALWAYS_INLINE float emitc_row_sum_mve(const float *x, int32_t n)
{
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i += 4) {
        sum = emitc_float32x4_added(sum, emitc_float32x4_at(x + i));
    }
    return sum;
}

/* The sum of the squares of n numbers' distances from the mean. */
EMITC_ALWAYS_INLINE float emitc_row_squares_mve(const float *x, int32_t n, float mean)
{
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i += 4) {
        const emitc_float32x4 value = emitc_float32x4_at(x + i);
        const emitc_float32x4 distance = emitc_float32x4_difference(value, emitc_float32x4_all(mean));
        sum = emitc_float32x4_added(sum, emitc_float32x4_product(distance, distance));
    }
    return sum;
}

/* y = (x - mean) * inverse * scale + bias, of n numbers. y may be x, or lie before it. */
EMITC_ALWAYS_INLINE void emitc_row_scaled_mve(
    const float *x, int32_t n, float mean, float inverse, const float *scale, const float *bias, float *y)
{
    for (int32_t i = 0; i < n; i += 4) {
        const emitc_float32x4 value = emitc_float32x4_at(x + i);
        const emitc_float32x4 distance = emitc_float32x4_difference(value, emitc_float32x4_all(mean));
        const emitc_float32x4 unit = emitc_float32x4_product(distance, emitc_float32x4_all(inverse));
        const emitc_float32x4 scaled = emitc_float32x4_product(unit, emitc_float32x4_at(scale + i));
        emitc_float32x4_to(y + i, emitc_float32x4_sum(scaled, emitc_float32x4_at(bias + i)));
    }
}

#endif
