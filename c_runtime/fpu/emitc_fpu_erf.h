/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: the error function of one number of float32 in few instructions.
 *
 * Part of a package whose kernels use it; see emitc_erf.h, whose bits these are, and emitc_fpu_tanh.h for how
 * coefficients are loaded.
 */
#ifndef EMITC_FPU_ERF_H
#define EMITC_FPU_ERF_H

#include "emitc_erf.h"

/* erf(x) */
EMITC_ALWAYS_INLINE float emitc_fpu_erf(float x)
{
#if EMITC_FUSED && defined(__arm__)
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits & 0x80000000u;
    bits ^= sign;
    float v;
    memcpy(&v, &bits, sizeof v);
    if (v > EMITC_ERF_SPLIT) {
        v = v > EMITC_ERF_LAST ? EMITC_ERF_LAST : v;
        /* The share that is added to v, then exp of minus that. */
        __asm__("vldmia %2, {s4-s10}\n\t"
                "vfma.f32 s5, s4, %0\n\tvfma.f32 s6, s5, %0\n\tvfma.f32 s7, s6, %0\n\tvfma.f32 s8, s7, %0\n\t"
                "vfma.f32 s9, s8, %0\n\tvfma.f32 s10, s9, %0\n\tvfma.f32 %0, s10, %0\n\tvneg.f32 %0, %0\n\t"
                "vldmia %3, {s4-s13}\n\t"
                "vmov.f32 s15, %4\n\tvfma.f32 s15, %0, s11\n\tvmov %1, s15\n\tvsub.f32 s14, s15, %4\n\t"
                "vfma.f32 %0, s14, s12\n\tvfma.f32 %0, s14, s13\n\t"
                "vfma.f32 s5, s4, %0\n\tvfma.f32 s6, s5, %0\n\tvfma.f32 s7, s6, %0\n\tvfma.f32 s8, s7, %0\n\t"
                "vfma.f32 s9, s8, %0\n\tvfma.f32 s10, s9, %0\n\tvmov.f32 %0, s10"
                : "+&t"(v), "=&r"(bits)
                : "r"(emitc_erf_terms + EMITC_ERF_FAR), "r"(emitc_erf_terms + EMITC_ERF_EXP), "t"(EMITC_ERF_WHOLE)
                : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15");
        uint32_t power;
        memcpy(&power, &v, sizeof power);
        power += bits << 23;
        memcpy(&v, &power, sizeof v);
        v = 1.0f - v;
    } else {
        __asm__("vldmia %1, {s4-s9}\n\t"
                "vfma.f32 s5, s4, %2\n\tvfma.f32 s6, s5, %2\n\tvfma.f32 s7, s6, %2\n\t"
                "vfma.f32 s8, s7, %2\n\tvfma.f32 s9, s8, %2\n\t"
                "vfma.f32 %0, s9, %0"
                : "+t"(v)
                : "r"(emitc_erf_terms), "t"(v * v)
                : "s4", "s5", "s6", "s7", "s8", "s9");
    }
    memcpy(&bits, &v, sizeof bits);
    bits |= sign;
    memcpy(&x, &bits, sizeof x);
    return x;
#else
    return emitc_erf(x);
#endif
}

#endif
