/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit of single precision: quotients rounded to integers in few instructions.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C, with the same results.
 * The unit is in its default mode, to nearest.
 */
#ifndef EMITC_FPU_H
#define EMITC_FPU_H

#include "emitc_runtime.h"

#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
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
EMITC_ALWAYS_INLINE float emitc_scaled_plus(float x, float factor, float more)
{
#if EMITC_FPU_ARM && defined(__ARM_FEATURE_FMA)
    __asm__("vfma.f32 %0, %1, %2" : "+t"(more) : "t"(x), "t"(factor));
    return more;
#else
    return (float)((double)x * (double)factor + (double)more);
#endif
}

/* A number of less than 31 bits rounded half to even. */
EMITC_ALWAYS_INLINE int32_t emitc_nearest_even(float x)
{
#if EMITC_FPU_ARM
    int32_t rounded;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(rounded) : "t"(x));
    return rounded;
#elif EMITC_ASM && defined(__riscv_flen)
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

/* ratio rounded half to even, within lowest..highest, plus the offset; the smallest value for a NaN. The limits are
 * integers. */
EMITC_ALWAYS_INLINE int32_t emitc_quantized_even(float ratio, float lowest, float highest, int32_t offset)
{
#if EMITC_FPU_ARM8
    int32_t rounded; /* of a number and a NaN the maximum is the number */
    __asm__("vmaxnm.f32 %0, %1, %2\n\tvminnm.f32 %0, %0, %3\n\tvcvtn.s32.f32 %0, %0" : "=&t"(rounded) : "t"(ratio),
        "t"(lowest), "t"(highest));
    return rounded + offset;
#else
    const float above = ratio > lowest ? ratio : lowest;
    return emitc_nearest_even(above < highest ? above : highest) + offset;
#endif
}

/* A number rounded half to even, within low..high, which are less than 31 bits. */
EMITC_ALWAYS_INLINE int32_t emitc_nearest_within(float x, int32_t low, int32_t high)
{
#if EMITC_FPU_ARM
    return emitc_clamp(emitc_nearest_even(x), low, high); /* the conversion saturates */
#else
    return emitc_quantized_even(x, (float)low, (float)high, 0);
#endif
}

/* A number rounded half to even, plus the offset, as the nearest int16; the offset is one itself. */
EMITC_ALWAYS_INLINE int16_t emitc_nearest_s16(float x, int32_t offset)
{
#if EMITC_FPU_ARM && defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP
    int32_t limited;
    __asm__("qadd %0, %1, %2\n\tssat %0, #16, %0" : "=r"(limited) : "r"(emitc_nearest_even(x)), "r"(offset));
    return (int16_t)limited;
#else
    return (int16_t)(emitc_nearest_within(x, -32768 - offset, 32767 - offset) + offset);
#endif
}

/* ratio rounded half away from zero, within lowest..highest, plus the offset; the offset for a NaN. The limits are
 * integers. */
EMITC_ALWAYS_INLINE int32_t emitc_quantized_away(float ratio, float lowest, float highest, int32_t offset)
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

/* The least and the largest of some numbers and 0. finite: all of them are known to be finite. */
typedef struct {
    float low;
    float high;
    int32_t finite;
} emitc_range;

/* The range of n numbers; what is not a number does not count. */
EMITC_ALWAYS_INLINE emitc_range emitc_range_fpu(const float *x, int32_t n)
{
    emitc_range range = {0.0f, 0.0f, 0};
#if EMITC_FPU_ARM8
    for (int32_t i = 0; i < n; i++) { /* of a number and a NaN these give the number */
        __asm__("vminnm.f32 %0, %0, %2\n\tvmaxnm.f32 %1, %1, %2" : "+t"(range.low), "+t"(range.high) : "t"(x[i]));
    }
#else
    /* As integers, bits with a sign count down from the least int32, the others up from 0. Infinities and NaNs are
     * farther than every finite number. */
    int32_t largest = 0;
    uint32_t least = 0x80000000u;
    for (int32_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        largest = bits > largest ? bits : largest;
        least = (uint32_t)bits > least ? (uint32_t)bits : least;
    }
    range.finite = largest < 0x7f800000 && least < 0xff800000u;
    if (range.finite != 0) {
        memcpy(&range.high, &largest, sizeof largest);
        memcpy(&range.low, &least, sizeof least);
    } else {
        for (int32_t i = 0; i < n; i++) {
            range.low = x[i] < range.low ? x[i] : range.low;
            range.high = x[i] > range.high ? x[i] : range.high;
        }
    }
#endif
    return range;
}

/* n numbers in steps, plus the zero point, rounded half to even, within 0..255; 0 for a NaN. finite: of the numbers. */
EMITC_ALWAYS_INLINE void emitc_bytes_in_steps(uint8_t *y, const float *x, int32_t n, float step, int32_t zero_point,
    int32_t finite)
{
#if EMITC_FPU_ARM && !EMITC_FPU_ARM8
    if (finite != 0 && step > 0.0f) {
        for (int32_t i = 0; i < n; i++) {
            y[i] = (uint8_t)emitc_clamp(emitc_nearest_even(x[i] / step) + zero_point, 0, 255);
        }
        return;
    }
#else
    (void)finite;
#endif
    const float lowest = (float)-zero_point;
    const float highest = (float)(255 - zero_point);
    for (int32_t i = 0; i < n; i++) {
        y[i] = (uint8_t)emitc_quantized_even(x[i] / step, lowest, highest, zero_point);
    }
}

#endif
