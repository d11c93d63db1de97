/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: sums, differences and products of two rows of float32, and integers as floats,
 * four numbers to a load.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C. Each operand is a row,
 * or one number for all where its step is 0; y may be an operand that is a row.
 */
#ifndef EMITC_FPU_ELEMENTWISE_H
#define EMITC_FPU_ELEMENTWISE_H

#include "emitc_runtime.h"

#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
/* The fours of n, by an instruction of two rows, or of a row and one number on either side. */
#define EMITC_FPU_FOURS(instruction) \
    int32_t fours = n >> 2; \
    if (fours > 0 && a_step != 0 && b_step != 0) { \
        __asm__ volatile("1:\n\tvldmia %0!, {s4-s7}\n\tvldmia %1!, {s8-s11}\n\tsubs %3, %3, #1\n\t" \
                instruction " s4, s4, s8\n\t" instruction " s5, s5, s9\n\t" \
                instruction " s6, s6, s10\n\t" instruction " s7, s7, s11\n\t" \
                "vstmia %2!, {s4-s7}\n\tbne 1b" \
                : "+r"(a), "+r"(b), "+r"(y), "+r"(fours) \
                : \
                : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "cc", "memory"); \
        n &= 3; \
    } else if (fours > 0 && a_step != 0) { \
        __asm__ volatile("1:\n\tvldmia %0!, {s4-s7}\n\tsubs %2, %2, #1\n\t" \
                instruction " s4, s4, %3\n\t" instruction " s5, s5, %3\n\t" \
                instruction " s6, s6, %3\n\t" instruction " s7, s7, %3\n\t" \
                "vstmia %1!, {s4-s7}\n\tbne 1b" \
                : "+r"(a), "+r"(y), "+r"(fours) \
                : "t"(*b) \
                : "s4", "s5", "s6", "s7", "cc", "memory"); \
        n &= 3; \
    } else if (fours > 0 && b_step != 0) { \
        __asm__ volatile("1:\n\tvldmia %0!, {s4-s7}\n\tsubs %2, %2, #1\n\t" \
                instruction " s4, %3, s4\n\t" instruction " s5, %3, s5\n\t" \
                instruction " s6, %3, s6\n\t" instruction " s7, %3, s7\n\t" \
                "vstmia %1!, {s4-s7}\n\tbne 1b" \
                : "+r"(b), "+r"(y), "+r"(fours) \
                : "t"(*a) \
                : "s4", "s5", "s6", "s7", "cc", "memory"); \
        n &= 3; \
    }
#else
#define EMITC_FPU_FOURS(instruction)
#endif

/* y = a + b, of n numbers. */
EMITC_ALWAYS_INLINE void emitc_sums_fpu(const float *a, int32_t a_step, const float *b, int32_t b_step, float *y,
    int32_t n)
{
    EMITC_FPU_FOURS("vadd.f32")
    for (; n > 0; n--) {
        *y++ = *a + *b;
        a += a_step;
        b += b_step;
    }
}

/* y = a - b, of n numbers. */
EMITC_ALWAYS_INLINE void emitc_differences_fpu(const float *a, int32_t a_step, const float *b, int32_t b_step, float *y,
    int32_t n)
{
    EMITC_FPU_FOURS("vsub.f32")
    for (; n > 0; n--) {
        *y++ = *a - *b;
        a += a_step;
        b += b_step;
    }
}

/* y = a * b, of n numbers. */
EMITC_ALWAYS_INLINE void emitc_products_fpu(const float *a, int32_t a_step, const float *b, int32_t b_step, float *y,
    int32_t n)
{
    EMITC_FPU_FOURS("vmul.f32")
    for (; n > 0; n--) {
        *y++ = *a * *b;
        a += a_step;
        b += b_step;
    }
}

/* y = x as float, of n numbers. */
EMITC_ALWAYS_INLINE void emitc_words_as_reals_fpu(const int32_t *x, float *y, int32_t n)
{
#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
    int32_t fours = n >> 2;
    if (fours > 0) {
        __asm__ volatile("1:\n\tvldmia %0!, {s4-s7}\n\tsubs %2, %2, #1\n\t"
                         "vcvt.f32.s32 s4, s4\n\tvcvt.f32.s32 s5, s5\n\tvcvt.f32.s32 s6, s6\n\tvcvt.f32.s32 s7, s7\n\t"
                         "vstmia %1!, {s4-s7}\n\tbne 1b"
                         : "+r"(x), "+r"(y), "+r"(fours)
                         :
                         : "s4", "s5", "s6", "s7", "cc", "memory");
        n &= 3;
    }
#endif
    for (; n > 0; n--) {
        *y++ = (float)*x++;
    }
}

#endif
