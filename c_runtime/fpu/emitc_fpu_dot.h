/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: sums of products of float32 for four output channels at a time.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C. Each sum is made front
 * to back, and every step is rounded: a multiplication and an addition take less time than a fused instruction.
 */
#ifndef EMITC_FPU_DOT_H
#define EMITC_FPU_DOT_H

#include "emitc_runtime.h"

#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 4) != 0
#define EMITC_FPU_PRODUCTS 1
#else
#define EMITC_FPU_PRODUCTS 0
#endif

/* sums[k] += x[i] * w[4 * i + k], of n values each of `rows` rows, with x_row and w_row values from one row to the
 * next. */
EMITC_ALWAYS_INLINE void emitc_window_sums_fpu(
    const float *x, const float *w, int32_t rows, int32_t n, int32_t x_row, int32_t w_row, float *restrict sums)
{
    float a = sums[0];
    float b = sums[1];
    float c = sums[2];
    float d = sums[3];
    for (int32_t row = 0; row < rows; row++) {
        const float *v = x + row * x_row;
        const float *f = w + row * w_row;
        int32_t left = n;
#if EMITC_FPU_PRODUCTS
        int32_t pairs = n >> 1;
        if (pairs > 0) { /* the loop is here, so that no compiler copies the sums in it */
            __asm__("1:\n\t"
                    "vldmia %4!, {s4-s5}\n\tvldmia %5!, {s8-s15}\n\t"
                    "vmul.f32 s8, s8, s4\n\tvmul.f32 s9, s9, s4\n\tvmul.f32 s10, s10, s4\n\tvmul.f32 s11, s11, s4\n\t"
                    "vadd.f32 %0, %0, s8\n\tvadd.f32 %1, %1, s9\n\tvadd.f32 %2, %2, s10\n\tvadd.f32 %3, %3, s11\n\t"
                    "vmul.f32 s12, s12, s5\n\tvmul.f32 s13, s13, s5\n\t"
                    "vmul.f32 s14, s14, s5\n\tvmul.f32 s15, s15, s5\n\t"
                    "subs %6, %6, #1\n\t"
                    "vadd.f32 %0, %0, s12\n\tvadd.f32 %1, %1, s13\n\tvadd.f32 %2, %2, s14\n\tvadd.f32 %3, %3, s15\n\t"
                    "bne 1b"
                    : "+t"(a), "+t"(b), "+t"(c), "+t"(d), "+r"(v), "+r"(f), "+r"(pairs)
                    :
                    : "s4", "s5", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", "cc", "memory");
            left = n & 1;
        }
#endif
        for (; left > 0; left--) {
            a += v[0] * f[0];
            b += v[0] * f[1];
            c += v[0] * f[2];
            d += v[0] * f[3];
            v++;
            f += 4;
        }
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* sum + x[i] * w[i], of n values. */
EMITC_ALWAYS_INLINE float emitc_dot_fpu(float sum, const float *x, const float *w, int32_t n)
{
#if EMITC_FPU_PRODUCTS
    int32_t fours = n >> 2;
    if (fours > 0) {
        __asm__("1:\n\t"
                "vldmia %1!, {s4-s7}\n\tvldmia %2!, {s8-s11}\n\t"
                "vmul.f32 s4, s4, s8\n\tvmul.f32 s5, s5, s9\n\tvmul.f32 s6, s6, s10\n\tvmul.f32 s7, s7, s11\n\t"
                "subs %3, %3, #1\n\t"
                "vadd.f32 %0, %0, s4\n\tvadd.f32 %0, %0, s5\n\tvadd.f32 %0, %0, s6\n\tvadd.f32 %0, %0, s7\n\t"
                "bne 1b"
                : "+t"(sum), "+r"(x), "+r"(w), "+r"(fours)
                :
                : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "cc", "memory");
        n &= 3;
    }
#endif
    for (; n > 0; n--) {
        sum += *x++ * *w++;
    }
    return sum;
}

/* sums[k] += x[i] * w[4 * i + k], of n values. */
EMITC_ALWAYS_INLINE void emitc_run_sums_fpu(const float *x, const float *w, int32_t n, float *restrict sums)
{
    emitc_window_sums_fpu(x, w, 1, n, 0, 0, sums);
}

/* sums[k] += x[k] * w[k] at n taps each of `rows` rows. x_step and w_step: values from one tap to the next. x_row and
 * w_row: from one row to the next. */
EMITC_ALWAYS_INLINE void emitc_tap_sums_fpu(
    const float *x, const float *w, int32_t rows, int32_t n, int32_t x_row, int32_t w_row, int32_t x_step,
    int32_t w_step,
    float *restrict sums)
{
    float a = sums[0];
    float b = sums[1];
    float c = sums[2];
    float d = sums[3];
    for (int32_t row = 0; row < rows; row++) {
        for (int32_t tap = 0; tap < n; tap++) {
            const float *v = x + row * x_row + tap * x_step;
            const float *f = w + row * w_row + tap * w_step;
#if EMITC_FPU_PRODUCTS
            __asm__("vldmia %4, {s4-s7}\n\tvldmia %5, {s8-s11}\n\t"
                    "vmul.f32 s4, s4, s8\n\tvmul.f32 s5, s5, s9\n\tvmul.f32 s6, s6, s10\n\tvmul.f32 s7, s7, s11\n\t"
                    "vadd.f32 %0, %0, s4\n\tvadd.f32 %1, %1, s5\n\tvadd.f32 %2, %2, s6\n\tvadd.f32 %3, %3, s7"
                    : "+t"(a), "+t"(b), "+t"(c), "+t"(d)
                    : "r"(v), "r"(f)
                    : "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "memory");
#else
            a += v[0] * f[0];
            b += v[1] * f[1];
            c += v[2] * f[2];
            d += v[3] * f[3];
#endif
        }
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* The sums of a[i] * b[columns * i + k] and of second[i] * b[columns * i + k], of `depth` values each: four columns of
 * two rows. */
EMITC_ALWAYS_INLINE void emitc_column_sums_fpu(
    const float *a, const float *second, const float *b, int32_t depth, int32_t columns, float *y, float *of_second)
{
    float s0 = 0.0f;
    float s1 = 0.0f;
    float s2 = 0.0f;
    float s3 = 0.0f;
    float t0 = 0.0f;
    float t1 = 0.0f;
    float t2 = 0.0f;
    float t3 = 0.0f;
    for (int32_t left = depth; left > 0; left--) {
#if EMITC_FPU_PRODUCTS
        __asm__("vldmia %8!, {s4}\n\tvldmia %9!, {s5}\n\tvldmia %10, {s8-s11}\n\t"
                "vmul.f32 s12, s8, s4\n\tvmul.f32 s13, s9, s4\n\tvmul.f32 s14, s10, s4\n\tvmul.f32 s15, s11, s4\n\t"
                "vmul.f32 s8, s8, s5\n\tvmul.f32 s9, s9, s5\n\tvmul.f32 s10, s10, s5\n\tvmul.f32 s11, s11, s5\n\t"
                "vadd.f32 %0, %0, s12\n\tvadd.f32 %1, %1, s13\n\tvadd.f32 %2, %2, s14\n\tvadd.f32 %3, %3, s15\n\t"
                "vadd.f32 %4, %4, s8\n\tvadd.f32 %5, %5, s9\n\tvadd.f32 %6, %6, s10\n\tvadd.f32 %7, %7, s11"
                : "+t"(s0), "+t"(s1), "+t"(s2), "+t"(s3), "+t"(t0), "+t"(t1), "+t"(t2), "+t"(t3), "+r"(a), "+r"(second)
                : "r"(b)
                : "s4", "s5", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", "memory");
#else
        s0 += a[0] * b[0];
        s1 += a[0] * b[1];
        s2 += a[0] * b[2];
        s3 += a[0] * b[3];
        t0 += second[0] * b[0];
        t1 += second[0] * b[1];
        t2 += second[0] * b[2];
        t3 += second[0] * b[3];
        a++;
        second++;
#endif
        b += columns;
    }
    y[0] = s0;
    y[1] = s1;
    y[2] = s2;
    y[3] = s3;
    of_second[0] = t0;
    of_second[1] = t1;
    of_second[2] = t2;
    of_second[3] = t3;
}

#endif
