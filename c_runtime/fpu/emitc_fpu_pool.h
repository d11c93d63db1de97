/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: the largest values of windows of float32, four channels at a time.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C.
 */
#ifndef EMITC_FPU_POOL_H
#define EMITC_FPU_POOL_H

#include "emitc_runtime.h"

#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
#define EMITC_FPU_WINDOWS 1
#else
#define EMITC_FPU_WINDOWS 0
#endif

/* four[k] becomes x[k] where that is larger, at n taps each of `rows` rows. x_step: values from one tap to the next.
 * x_row: from one row to the next. */
EMITC_ALWAYS_INLINE void emitc_window_largest_fpu(
    const float *x, int32_t rows, int32_t n, int32_t x_row, int32_t x_step, float *restrict four)
{
    float a = four[0];
    float b = four[1];
    float c = four[2];
    float d = four[3];
    for (int32_t row = 0; row < rows; row++) {
        const float *v = x + row * x_row;
        for (int32_t left = n; left > 0; left--) {
#if EMITC_FPU_WINDOWS
            __asm__("vldmia %4, {s4-s7}\n\t"
                    "vcmp.f32 s4, %0\n\tvmrs APSR_nzcv, FPSCR\n\tit gt\n\tvmovgt.f32 %0, s4\n\t"
                    "vcmp.f32 s5, %1\n\tvmrs APSR_nzcv, FPSCR\n\tit gt\n\tvmovgt.f32 %1, s5\n\t"
                    "vcmp.f32 s6, %2\n\tvmrs APSR_nzcv, FPSCR\n\tit gt\n\tvmovgt.f32 %2, s6\n\t"
                    "vcmp.f32 s7, %3\n\tvmrs APSR_nzcv, FPSCR\n\tit gt\n\tvmovgt.f32 %3, s7"
                    : "+t"(a), "+t"(b), "+t"(c), "+t"(d)
                    : "r"(v)
                    : "s4", "s5", "s6", "s7", "cc", "memory");
#else
            a = v[0] > a ? v[0] : a;
            b = v[1] > b ? v[1] : b;
            c = v[2] > c ? v[2] : c;
            d = v[3] > d ? v[3] : d;
#endif
            v += x_step;
        }
    }
    four[0] = a;
    four[1] = b;
    four[2] = c;
    four[3] = d;
}

#endif
