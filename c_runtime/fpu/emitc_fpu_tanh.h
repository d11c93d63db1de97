/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: hyperbolic tangent and logistic function of one number of float32 in few
 * instructions.
 *
 * Part of a package whose kernels use it; see emitc_tanh.h, whose bits these are. All coefficients are loaded by one
 * instruction, next to each other into registers, where each step adds its product to the next one. Numbers that need a
 * limit are left to emitc_tanh.h.
 */
#ifndef EMITC_FPU_TANH_H
#define EMITC_FPU_TANH_H

#include "emitc_tanh.h"

#if EMITC_FUSED && defined(__arm__)
#define EMITC_FPU_RATIONAL 1
#else
#define EMITC_FPU_RATIONAL 0
#endif

#if EMITC_FPU_RATIONAL
/* Whether |x| is at most the number with these bits; a NaN is above all. */
EMITC_ALWAYS_INLINE int32_t emitc_fpu_near(float x, uint32_t limit)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits << 1 <= limit << 1;
}

/* Of numbers that are rare, in functions of their own: in the loop they would take the registers of the others. */
static __attribute__((noinline, unused)) float emitc_tanh_far(float x)
{
    return emitc_tanh(x);
}

static __attribute__((noinline, unused)) float emitc_logistic_far(float x)
{
    return emitc_logistic(x);
}
#endif

/* tanh(x) */
EMITC_ALWAYS_INLINE float emitc_fpu_tanh(float x)
{
#if EMITC_FPU_RATIONAL
    if (emitc_fpu_near(x, 0x41100000u)) { /* 9 */
        __asm__("vldmia %1, {s4-s14}\n\t"
                "vfma.f32 s12, s11, %2\n\tvfma.f32 s5, s4, %2\n\t"
                "vfma.f32 s13, s12, %2\n\tvfma.f32 s6, s5, %2\n\t"
                "vfma.f32 s14, s13, %2\n\tvfma.f32 s7, s6, %2\n\t"
                "vfma.f32 s8, s7, %2\n\tvfma.f32 s9, s8, %2\n\tvfma.f32 s10, s9, %2\n\t"
                "vmul.f32 s10, s10, %0\n\tvdiv.f32 %0, s10, s14"
                : "+t"(x)
                : "r"(emitc_tanh_terms), "t"(x * x)
                : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14");
        return x;
    }
    return emitc_tanh_far(x);
#else
    return emitc_tanh(x);
#endif
}

/* 1 / (1 + exp(-x)). The result needs no limits up to 16.246 in magnitude, as all numbers of float32 show. */
EMITC_ALWAYS_INLINE float emitc_fpu_logistic(float x)
{
#if EMITC_FPU_RATIONAL
    if (emitc_fpu_near(x, 0x41800000u)) { /* 16 */
        __asm__("vldmia %1, {s4-s15}\n\t"
                "vfma.f32 s10, s9, %2\n\tvfma.f32 s5, s4, %2\n\t"
                "vfma.f32 s11, s10, %2\n\tvfma.f32 s6, s5, %2\n\t"
                "vfma.f32 s12, s11, %2\n\tvfma.f32 s7, s6, %2\n\t"
                "vfma.f32 s13, s12, %2\n\tvfma.f32 s8, s7, %2\n\t"
                "vfma.f32 s14, s13, %2\n\tvmul.f32 s8, s8, %0\n\t"
                "vdiv.f32 s8, s8, s14\n\tvadd.f32 %0, s8, s15"
                : "+t"(x)
                : "r"(emitc_logistic_terms), "t"(x * x)
                : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15");
        return x;
    }
    return emitc_logistic_far(x);
#else
    return emitc_logistic(x);
#endif
}

#endif
