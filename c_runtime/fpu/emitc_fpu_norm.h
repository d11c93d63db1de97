/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: sums over rows of float32 and their normalization, four numbers to a load.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C. Sums are made front to
 * back, and every step is rounded, as C has it.
 */
#ifndef EMITC_FPU_NORM_H
#define EMITC_FPU_NORM_H

#include "emitc_runtime.h"

#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
#define EMITC_FPU_ROWS 1
#else
#define EMITC_FPU_ROWS 0
#endif

/* The sum of n numbers. */
EMITC_ALWAYS_INLINE float emitc_row_sum_fpu(const float *x, int32_t n)
{
    float sum = 0.0f;
    int32_t left = n;
#if EMITC_FPU_ROWS
    for (left = n & 3, n >>= 2; n > 0; n--) {
        __asm__("vldmia %1!, {s4-s7}\n\t"
                "vadd.f32 %0, %0, s4\n\tvadd.f32 %0, %0, s5\n\tvadd.f32 %0, %0, s6\n\tvadd.f32 %0, %0, s7"
                : "+t"(sum), "+r"(x)
                :
                : "s4", "s5", "s6", "s7", "memory");
    }
#endif
    for (; left > 0; left--) {
        sum += *x++;
    }
    return sum;
}

/* The sum of the squares of n numbers' distances from the mean. */
EMITC_ALWAYS_INLINE float emitc_row_squares_fpu(const float *x, int32_t n, float mean)
{
    float sum = 0.0f;
    int32_t left = n;
#if EMITC_FPU_ROWS
    for (left = n & 3, n >>= 2; n > 0; n--) {
        __asm__("vldmia %1!, {s4-s7}\n\t"
                "vsub.f32 s4, s4, %2\n\tvsub.f32 s5, s5, %2\n\tvsub.f32 s6, s6, %2\n\tvsub.f32 s7, s7, %2\n\t"
                "vmul.f32 s4, s4, s4\n\tvmul.f32 s5, s5, s5\n\tvmul.f32 s6, s6, s6\n\tvmul.f32 s7, s7, s7\n\t"
                "vadd.f32 %0, %0, s4\n\tvadd.f32 %0, %0, s5\n\tvadd.f32 %0, %0, s6\n\tvadd.f32 %0, %0, s7"
                : "+t"(sum), "+r"(x)
                : "t"(mean)
                : "s4", "s5", "s6", "s7", "memory");
    }
#endif
    for (; left > 0; left--) {
        const float distance = *x++ - mean;
        sum += distance * distance;
    }
    return sum;
}

/* y = (x - mean) * inverse * scale + bias, of n numbers. y may be x, or lie before it. */
EMITC_ALWAYS_INLINE void emitc_row_scaled_fpu(
    const float *x, int32_t n, float mean, float inverse, const float *scale, const float *bias, float *y)
{
    int32_t left = n;
#if EMITC_FPU_ROWS
    for (left = n & 3, n >>= 2; n > 0; n--) {
        /* Nothing may need the pointers afterwards, and the compiler would drop the stores with them. */
        __asm__ volatile(
                "vldmia %0!, {s4-s7}\n\tvldmia %1!, {s8-s11}\n\tvldmia %2!, {s12-s15}\n\t"
                "vsub.f32 s4, s4, %4\n\tvsub.f32 s5, s5, %4\n\tvsub.f32 s6, s6, %4\n\tvsub.f32 s7, s7, %4\n\t"
                "vmul.f32 s4, s4, %5\n\tvmul.f32 s5, s5, %5\n\tvmul.f32 s6, s6, %5\n\tvmul.f32 s7, s7, %5\n\t"
                "vmul.f32 s4, s4, s8\n\tvmul.f32 s5, s5, s9\n\tvmul.f32 s6, s6, s10\n\tvmul.f32 s7, s7, s11\n\t"
                "vadd.f32 s4, s4, s12\n\tvadd.f32 s5, s5, s13\n\tvadd.f32 s6, s6, s14\n\tvadd.f32 s7, s7, s15\n\t"
                "vstmia %3!, {s4-s7}"
                : "+r"(x), "+r"(scale), "+r"(bias), "+r"(y)
                : "t"(mean), "t"(inverse)
                : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", "memory");
    }
#endif
    for (; left > 0; left--) {
        *y++ = (*x++ - mean) * inverse * *scale++ + *bias++;
    }
}

#endif
