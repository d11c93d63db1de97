/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: the exponential of one number of float32 in few instructions.
 *
 * Part of a package whose kernels use it; see emitc_exp.h, whose bits these are, and emitc_fpu_tanh.h for how
 * coefficients are loaded.
 */
#ifndef EMITC_FPU_EXP_H
#define EMITC_FPU_EXP_H

#include "emitc_exp.h"

/* exp(x); of what is above 0 it may be anything. */
EMITC_ALWAYS_INLINE float emitc_fpu_exp(float x)
{
#if EMITC_FUSED && defined(__arm__)
    if (x < EMITC_EXP_LOWEST) {
        return 0.0f;
    }
    uint32_t bits;
    __asm__("vldmia %2, {s4-s14}\n\t"
            "vmov.f32 s15, s12\n\tvfma.f32 s15, %0, s11\n\tvmov %1, s15\n\tvsub.f32 s12, s15, s12\n\t"
            "vfma.f32 %0, s12, s13\n\tvfma.f32 %0, s12, s14\n\t"
            "lsl %1, %1, #23\n\t"
            "vfma.f32 s5, s4, %0\n\tvfma.f32 s6, s5, %0\n\tvfma.f32 s7, s6, %0\n\tvfma.f32 s8, s7, %0\n\t"
            "add %1, %1, #0x3f800000\n\t"
            "vfma.f32 s9, s8, %0\n\tvfma.f32 s10, s9, %0\n\tvmov s15, %1\n\tvmul.f32 %0, s10, s15"
            : "+t"(x), "=&r"(bits)
            : "r"(emitc_exp_terms)
            : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15");
    return x;
#else
    return emitc_exp(x);
#endif
}

#endif
