/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: the outputs of one row of values, eight channels at a time.
 *
 * Part of a package whose kernels use it; see emitc_mve_dot_int8.h. The loops are in assembly, since compilers spill
 * the sums. Where EMITC_MVE_LOOPS is 0, the kernels have them in C.
 */
#ifndef EMITC_MVE_ROW_H
#define EMITC_MVE_ROW_H

#include "emitc_mve_dot_int8.h"

/* Sums of the products of n values with the weights of eight channels: n % 16 of each channel, then 16 of each at a
 * time. Returns the end of the weights. */
EMITC_ALWAYS_INLINE const int8_t *emitc_row_sums(int32_t *sums, const int8_t *x, const int8_t *w, int32_t n)
{
    memset(sums, 0, 8 * sizeof *sums);
    int32_t block = n & 15;
    for (int32_t i = 0; i < n; i += block, block = 16) {
        for (int32_t channel = 0; channel < 8 && block != 0; channel++) {
            sums[channel] += emitc_dot(x + i, w, block);
            w += block;
        }
    }
    return w;
}

#if EMITC_MVE_LOOPS
/* Vector instructions of two units (load and store, multiply, other) overlap: the order is chosen for that. a0 to a3
 * are the sums of even channels, b0 to b3 those of odd ones; their weights follow one another. */
#define EMITC_ROW_W(q) "vldrb.8 " q ", [%[w]], #16\n\t"
#define EMITC_ROW_MAC(sum, q) "vmladava.s8 %[" sum "], q0, " q "\n\t"
#define EMITC_ROW_BLOCK \
    "vldrb.8 q0, [%[x]], #16\n\t" \
    EMITC_ROW_W("q2") EMITC_ROW_MAC("a0", "q2") EMITC_ROW_W("q3") EMITC_ROW_MAC("a1", "q3") \
    EMITC_ROW_W("q2") EMITC_ROW_MAC("a2", "q2") EMITC_ROW_W("q3") EMITC_ROW_MAC("a3", "q3") \
    EMITC_ROW_W("q2") EMITC_ROW_MAC("b0", "q2") EMITC_ROW_W("q3") EMITC_ROW_MAC("b1", "q3") \
    EMITC_ROW_W("q2") EMITC_ROW_MAC("b2", "q2") EMITC_ROW_W("q3") EMITC_ROW_MAC("b3", "q3")
/* The first n % 16 values, as many as %[end] says; lanes of q0 after them are 0. */
#define EMITC_ROW_PART(sum) "vldrb.8 q2, [%[w]]\n\tadd %[w], %[end]\n\t" EMITC_ROW_MAC(sum, "q2")
#define EMITC_ROW_BEGIN \
    "mov %[a0], #0\n\tmov %[a1], #0\n\tmov %[a2], #0\n\tmov %[a3], #0\n\t" \
    "mov %[b0], #0\n\tmov %[b1], #0\n\tmov %[b2], #0\n\tmov %[b3], #0\n\tldr %[x], %[values]\n\t"
/* Sums with bias, q4 of even channels and q5 of odd ones, times multipliers, or factors for F32. AWAY rounds halves
 * away from zero, as emitc_int32x4_scaled_away. */
#define EMITC_ROW_ADDED \
    "vmov q4[2], q4[0], %[a0], %[a2]\n\tvldrw.32 q0, [%[w]], #16\n\t" \
    "vmov q4[3], q4[1], %[a1], %[a3]\n\tvldrw.32 q1, [%[w]], #16\n\t" \
    "vmov q5[2], q5[0], %[b0], %[b2]\n\tvldrw.32 q2, [%[w]], #16\n\t" \
    "vmov q5[3], q5[1], %[b1], %[b3]\n\tvldrw.32 q3, [%[w]], #16\n\t"
#define EMITC_ROW_SCALED_AWAY \
    EMITC_ROW_ADDED \
    "vadd.i32 q4, q4, q0\n\tvqrdmulh.s32 q4, q4, q2\n\tvadd.i32 q5, q5, q1\n\tvqrdmulh.s32 q5, q5, q3\n\t" \
    "vldrb.s32 q0, [%[w]], #4\n\tvand q2, q4, q0\n\tvqdmlah.s32 q4, q2, %[end]\n\t" \
    "vldrb.s32 q1, [%[w]], #4\n\tvand q3, q5, q1\n\tvqdmlah.s32 q5, q3, %[end]\n\t" \
    "vrshl.s32 q4, q4, q0\n\tvqmovnb.s32 q4, q4\n\tvrshl.s32 q5, q5, q1\n\tvqmovnt.s32 q4, q5\n\t"
#define EMITC_ROW_SCALED_F32 \
    EMITC_ROW_ADDED \
    "vadd.i32 q4, q4, q0\n\tvadd.i32 q5, q5, q1\n\tvcvt.f32.s32 q4, q4\n\tvmul.f32 q4, q4, q2\n\t" \
    "vcvt.f32.s32 q5, q5\n\tvmul.f32 q5, q5, q3\n\tvcvtn.s32.f32 q4, q4\n\tvcvtn.s32.f32 q5, q5\n\t" \
    "vqmovnb.s32 q4, q4\n\tvqmovnt.s32 q4, q5\n\t"
#define EMITC_ROW_STORED_FULL "vqadd.s16 q4, q4, q7\n\tvqmovnb.s16 q4, q4\n\tvstrb.16 q4, [%[s]], #8\n\t"
#define EMITC_ROW_STORED_LIMITED \
    "vldrw.32 q0, %[low]\n\tvqadd.s16 q4, q4, q7\n\tvldrw.32 q1, %[high]\n\t" \
    "vmax.s16 q4, q4, q0\n\tvmin.s16 q4, q4, q1\n\tvstrb.16 q4, [%[s]], #8\n\t"
#define EMITC_ROW_END(kind, range) \
    "mov %[end], #1\n\t" EMITC_ROW_SCALED_##kind EMITC_ROW_STORED_##range \
    "ldr %[end], %[last]\n\tcmp %[s], %[end]\n\tbne 1b"
#define EMITC_ROW_OPERANDS(range) \
    : [a0] "=&Te"(a0), [a1] "=&Te"(a1), [a2] "=&Te"(a2), [a3] "=&Te"(a3), [b0] "=&Te"(b0), [b1] "=&Te"(b1), \
      [b2] "=&Te"(b2), [b3] "=&Te"(b3), [x] "=&r"(x), [w] "+l"(*w), [s] "+l"(s), [end] "+r"(end) \
    : [values] "m"(place[0]), [x_end] "m"(place[1]), [last] "m"(place[2]), [n] "m"(size[0]) EMITC_ROW_LIMITS_##range \
    : "q0", "q1", "q2", "q3", "q4", "q5", "q7", "cc", "memory"
#define EMITC_ROW_LIMITS_FULL
#define EMITC_ROW_LIMITS_LIMITED , [low] "m"(limits[0]), [high] "m"(limits[1])
#define EMITC_ROW_PARAMETER_FULL
#define EMITC_ROW_PARAMETER_LIMITED , int16_t(*limits)[8]

/* A function that makes outputs of `groups` times eight channels from n values. *w: for every eight channels the
 * weights as emitc_row_sums reads them, bias, multipliers and shifts, or bias and factors for F32, each with the even
 * channels first; moved on. limits: the lowest and the highest output, eight times each. groups > 0. */
#define EMITC_ROW_OUTPUTS(name, kind, range) \
    EMITC_ALWAYS_INLINE void name(int8_t *s, const int8_t *values, const int8_t **w, int32_t n, int32_t groups, \
        int32_t offset EMITC_ROW_PARAMETER_##range) \
    { \
        const int8_t *const place[3] = {values, values + n, s + 8 * groups}; \
        const int32_t size[1] = {n}; \
        int32_t a0, a1, a2, a3, b0, b1, b2, b3, end = offset; \
        const int8_t *x; \
        if ((n & 63) == 0) { \
            __asm__ volatile( \
                "vdup.16 q7, %[end]\n" \
                "1:\n\t" \
                EMITC_ROW_BEGIN "ldr %[end], %[x_end]\n" \
                "2:\n\t" \
                EMITC_ROW_BLOCK EMITC_ROW_BLOCK EMITC_ROW_BLOCK EMITC_ROW_BLOCK \
                "cmp %[x], %[end]\n\tbne 2b\n\t" \
                EMITC_ROW_END(kind, range) \
                EMITC_ROW_OPERANDS(range)); \
        } else { \
            __asm__ volatile( \
                "vdup.16 q7, %[end]\n" \
                "1:\n\t" \
                EMITC_ROW_BEGIN \
                "ldr %[end], %[n]\n\tands %[end], #15\n\tbeq 3f\n\t" \
                "vctp.8 %[end]\n\tvpst\n\tvldrbt.8 q0, [%[x]]\n\tadd %[x], %[end]\n\t" \
                EMITC_ROW_PART("a0") EMITC_ROW_PART("a1") EMITC_ROW_PART("a2") EMITC_ROW_PART("a3") \
                EMITC_ROW_PART("b0") EMITC_ROW_PART("b1") EMITC_ROW_PART("b2") EMITC_ROW_PART("b3") \
                "\n3:\n\t" \
                "ldr %[end], %[x_end]\n\tcmp %[x], %[end]\n\tbeq 4f\n" \
                "2:\n\t" \
                EMITC_ROW_BLOCK \
                "cmp %[x], %[end]\n\tbne 2b\n" \
                "4:\n\t" \
                EMITC_ROW_END(kind, range) \
                EMITC_ROW_OPERANDS(range)); \
        } \
    }
EMITC_ROW_OUTPUTS(emitc_row_away, AWAY, FULL)
EMITC_ROW_OUTPUTS(emitc_row_away_clamped, AWAY, LIMITED)
#if EMITC_MVE_FLOAT
EMITC_ROW_OUTPUTS(emitc_row_f32, F32, FULL)
EMITC_ROW_OUTPUTS(emitc_row_f32_clamped, F32, LIMITED)
#endif
#endif

#endif
