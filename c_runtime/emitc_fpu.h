/* emitc for cores with a float unit of single precision: quotients rounded to integers in few instructions.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C, with the same results. The unit is in its
 * default mode, to nearest.
 */
#ifndef EMITC_FPU_H
#define EMITC_FPU_H

#include "emitc_runtime.h"

#if defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
#define EMITC_FPU_ARM 1
#else
#define EMITC_FPU_ARM 0
#endif
#if EMITC_FPU_ARM && __ARM_ARCH >= 8
#define EMITC_FPU_ARM8 1
#else
#define EMITC_FPU_ARM8 0
#endif

/* x * factor + more, rounded once; elsewhere by double, whose 53 bits must hold the sum. */
EMITC_INLINE float emitc_scaled_plus(float x, float factor, float more)
{
#if EMITC_FPU_ARM && defined(__ARM_FEATURE_FMA)
    __asm__("vfma.f32 %0, %1, %2" : "+t"(more) : "t"(x), "t"(factor));
    return more;
#else
    return (float)((double)x * (double)factor + (double)more);
#endif
}

/* A number of less than 31 bits rounded half to even. */
EMITC_INLINE int32_t emitc_nearest_even(float x)
{
#if EMITC_FPU_ARM
    int32_t rounded;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(rounded) : "t"(x));
    return rounded;
#elif defined(__GNUC__) && defined(__riscv_flen)
    int32_t rounded;
    __asm__("fcvt.w.s %0, %1, rne" : "=r"(rounded) : "f"(x));
    return rounded;
#else
    /* What truncation drops is exact in float. At exactly a half the even neighbour is the one without the last bit. */
    const int32_t whole = (int32_t)x;
    const float rest = x - (float)whole;
    const int32_t odd = whole & 1;
    return whole + (rest > 0.5f || (rest >= 0.5f && odd != 0)) - (rest < -0.5f || (rest <= -0.5f && odd != 0));
#endif
}

/* ratio rounded half to even, within lowest..highest, plus the offset; the smallest value for a NaN. The limits are integers. */
EMITC_INLINE int32_t emitc_quantized_even(float ratio, float lowest, float highest, int32_t offset)
{
#if EMITC_FPU_ARM8
    int32_t rounded; /* of a number and a NaN the maximum is the number */
    __asm__("vmaxnm.f32 %0, %1, %2\n\tvminnm.f32 %0, %0, %3\n\tvcvtn.s32.f32 %0, %0" : "=&t"(rounded) : "t"(ratio), "t"(lowest), "t"(highest));
    return rounded + offset;
#else
    const float above = ratio > lowest ? ratio : lowest;
    return emitc_nearest_even(above < highest ? above : highest) + offset;
#endif
}

/* A number rounded half to even, within low..high, which are less than 31 bits. */
EMITC_INLINE int32_t emitc_nearest_within(float x, int32_t low, int32_t high)
{
#if EMITC_FPU_ARM
    return emitc_clamp(emitc_nearest_even(x), low, high); /* the conversion saturates */
#else
    return emitc_quantized_even(x, (float)low, (float)high, 0);
#endif
}

/* A number rounded half to even, plus the offset, as the nearest int16; the offset is one itself. */
EMITC_INLINE int16_t emitc_nearest_s16(float x, int32_t offset)
{
#if EMITC_FPU_ARM && defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP
    int32_t limited;
    __asm__("qadd %0, %1, %2\n\tssat %0, #16, %0" : "=r"(limited) : "r"(emitc_nearest_even(x)), "r"(offset));
    return (int16_t)limited;
#else
    return (int16_t)(emitc_nearest_within(x, -32768 - offset, 32767 - offset) + offset);
#endif
}

/* ratio rounded half away from zero, within lowest..highest, plus the offset; the offset for a NaN. The limits are integers. */
EMITC_INLINE int32_t emitc_quantized_away(float ratio, float lowest, float highest, int32_t offset)
{
#if EMITC_FPU_ARM8
    int32_t rounded; /* 0 for a NaN */
    __asm__("vcvta.s32.f32 %0, %1" : "=t"(rounded) : "t"(ratio));
    return emitc_clamp(rounded, (int32_t)lowest, (int32_t)highest) + offset;
#else
    if (ratio > lowest && ratio < highest) {
        /* What truncation drops is exact in float, and so is twice that: it is 1 or more from a half on. */
        const int32_t whole = (int32_t)ratio;
        const float rest = ratio - (float)whole;
        return whole + (int32_t)(rest + rest) + offset;
    }
    return (ratio >= highest ? (int32_t)highest : ratio <= lowest ? (int32_t)lowest : 0) + offset;
#endif
}

#endif
