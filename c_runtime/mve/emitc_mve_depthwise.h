/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: a depthwise filter of 3x3, 16 channels at a time.
 *
 * Part of a package whose kernels use it; see emitc_mve_outputs.h. Where EMITC_MVE_LOOPS is 0, the kernels have the
 * loop in C.
 */
#ifndef EMITC_MVE_DEPTHWISE_H
#define EMITC_MVE_DEPTHWISE_H

#include "emitc_mve_outputs.h"

#if EMITC_MVE_LOOPS
/* Vector instructions of two units (load, multiply, other) overlap: the order is chosen for that.
 * Sums of 32 bits: q4 0 4 8 12, q6 2 6 10 14, q5 1 5 9 13, q7 3 7 11 15. */
#define EMITC_X(at) "vldrb.8 q0, [" at "], #16\n\t"
#define EMITC_W "vldrb.8 q1, [%[record]], #16\n\t"
/* The products of one tap, even channels in q2, odd ones in q3, as 16 bits. `between` is done meanwhile. */
#define EMITC_TAP(between) "vmullb.s8 q2, q0, q1\n\t" between "vmullt.s8 q3, q0, q1\n\t"
/* The upper halves of pairs of 16 bits are added by a multiplication: sum + (2 * pair * 2^15 >> 32). */
#define EMITC_ADD_HIGH(sum, from) "vqdmlah.s32 " sum ", " from ", %[half]\n\t"
#define EMITC_WIDEN(q) "vmovlb.s16 " q ", " q "\n\t"
#define EMITC_ADD(sum, from) "vadd.i32 " sum ", " sum ", " from "\n\t"
/* Those of a second tap are added to q2 and q3, and both to the sums, except for the last addition: to q5 of q3. The
 * weights are loaded twice, for want of a register. `at`: of the tap after this. */
#define EMITC_PAIR(second, at) \
    EMITC_X(second) \
    "vldrb.8 q1, [%[record]]\n\t" \
    "vmullb.s8 q1, q0, q1\n\t" \
    "vadd.i16 q2, q2, q1\n\t" \
    EMITC_W \
    EMITC_ADD_HIGH("q6", "q2") EMITC_WIDEN("q2") \
    "vmullt.s8 q0, q0, q1\n\t" \
    EMITC_ADD("q4", "q2") \
    EMITC_W \
    "vadd.i16 q3, q3, q0\n\t" \
    EMITC_X(at) \
    EMITC_ADD_HIGH("q7", "q3") EMITC_WIDEN("q3") \
    EMITC_TAP(EMITC_ADD("q5", "q3"))
/* The sums of four channels, which start with the bias, as outputs without their zero point. The record has shifts,
 * bias and multipliers of 16 channels, or bias and factors. quad: which four. UP rounds halves up, AWAY away from 0. */
#define EMITC_RECORD_BIAS(q, at) "vldrw.32 " q ", [%[record], #" #at "]\n\t"
#define EMITC_RECORD_FACTOR_UP(q, quad) "vldrw.32 " q ", [%[record], #80 + 16 * " #quad "]\n\t"
#define EMITC_RECORD_FACTOR_AWAY(q, quad) EMITC_RECORD_FACTOR_UP(q, quad)
#define EMITC_RECORD_FACTOR_F32(q, quad) "vldrw.32 " q ", [%[record], #64 + 16 * " #quad "]\n\t"
#define EMITC_RECORD_TIMES_UP(sum, factor) "vqrdmulh.s32 " sum ", " sum ", " factor "\n\t"
#define EMITC_RECORD_TIMES_AWAY(sum, factor) EMITC_RECORD_TIMES_UP(sum, factor)
#define EMITC_RECORD_TIMES_F32(sum, factor) \
    "vcvt.f32.s32 " sum ", " sum "\n\tvmul.f32 " sum ", " sum ", " factor "\n\t"
#define EMITC_RECORD_SHIFT_UP(q, quad) "vldrb.s32 " q ", [%[record], #4 * " #quad "]\n\t"
#define EMITC_RECORD_SHIFT_AWAY(q, quad) EMITC_RECORD_SHIFT_UP(q, quad)
#define EMITC_RECORD_SHIFT_F32(q, quad)
#define EMITC_RECORD_ROUND_UP(sum, shift, other) "vrshl.s32 " sum ", " sum ", " shift "\n\t"
#define EMITC_RECORD_ROUND_AWAY(sum, shift, other) \
    "vand " other ", " sum ", " shift "\n\tvshr.s32 " other ", " other ", #31\n\t" \
    EMITC_ADD(sum, other) EMITC_RECORD_ROUND_UP(sum, shift, other)
#define EMITC_RECORD_ROUND_F32(sum, shift, other) "vcvtn.s32.f32 " sum ", " sum "\n\t"
/* The last products in q2 and q3 are added to the sums; these become bytes in q4. */
#define EMITC_RECORD_OUTPUTS(kind) \
    EMITC_ADD_HIGH("q6", "q2") EMITC_WIDEN("q2") EMITC_ADD_HIGH("q7", "q3") EMITC_ADD("q4", "q2") \
    EMITC_RECORD_FACTOR_##kind("q0", 0) EMITC_WIDEN("q3") EMITC_RECORD_TIMES_##kind("q4", "q0") EMITC_ADD("q5", "q3") \
    EMITC_RECORD_FACTOR_##kind("q1", 1) EMITC_RECORD_TIMES_##kind("q6", "q1") \
    EMITC_RECORD_SHIFT_##kind("q0", 0) EMITC_RECORD_ROUND_##kind("q4", "q0", "q3") \
    EMITC_RECORD_SHIFT_##kind("q1", 1) "vqmovnb.s32 q4, q4\n\t" \
    EMITC_RECORD_FACTOR_##kind("q2", 2) EMITC_RECORD_ROUND_##kind("q6", "q1", "q0") \
    EMITC_RECORD_TIMES_##kind("q5", "q2") "vqmovnt.s32 q4, q6\n\t" \
    EMITC_RECORD_FACTOR_##kind("q3", 3) "vqadd.s16 q4, q4, %[offset]\n\t" EMITC_RECORD_TIMES_##kind("q7", "q3") \
    EMITC_RECORD_SHIFT_##kind("q0", 2) EMITC_RECORD_ROUND_##kind("q5", "q0", "q2") \
    EMITC_RECORD_SHIFT_##kind("q1", 3) "vqmovnb.s32 q5, q5\n\t" \
    EMITC_RECORD_ROUND_##kind("q7", "q1", "q0") \
    "vqmovnt.s32 q5, q7\n\t" \
    "vqadd.s16 q5, q5, %[offset]\n\t" \
    "vqmovnb.s16 q4, q4\n\t" \
    "vqmovnt.s16 q4, q5\n\t"

/* A function that makes the outputs of *pixels neighbours, which it counts down. Each has `channels` bytes, a multiple
 * of 4. For each, the nine taps and y are moved on by that number rounded up to 16; then the taps by `step`, and y back
 * by `over`. records: for every 16 channels the weights of nine taps, then what EMITC_RECORD_ takes, `bytes` bytes of
 * it. The loop over channels sets the predicate of its last turn: of four channels all lanes are active, or none. */
#define EMITC_DEPTHWISE_3X3(name, kind, bytes, q4_bias, q6_bias, q5_bias, q7_bias) \
    EMITC_ALWAYS_INLINE void name( \
        const int8_t **taps, const int8_t *records, int8_t *y, int32_t *pixels, int32_t channels, int32_t step, \
        int32_t over, int32_t offset) \
    { \
        const int8_t *record; \
        const int32_t exact = step == 0 && over == 0; \
        __asm__ volatile( \
            "ldr lr, %[taps]\n\t" \
            "ldm lr, {r3-r11}\n" \
            "1:\n\t" \
            "ldr lr, %[channels]\n\t" \
            "ldr %[record], %[records]\n\t" \
            "dlstp.8 lr, lr\n" \
            "2:\n\t" \
            EMITC_RECORD_BIAS("q5", q5_bias) EMITC_RECORD_BIAS("q7", q7_bias) EMITC_RECORD_BIAS("q6", q6_bias) \
            EMITC_X("r3") EMITC_W EMITC_TAP(EMITC_RECORD_BIAS("q4", q4_bias - 16)) \
            EMITC_PAIR("r4", "r5") EMITC_PAIR("r6", "r7") EMITC_PAIR("r8", "r9") EMITC_PAIR("r10", "r11") \
            EMITC_RECORD_OUTPUTS(kind) \
            "vstrb.8 q4, [%[y]], #16\n\t" \
            "add %[record], #" #bytes "\n\t" \
            "letp lr, 2b\n\t" \
            "ldr lr, %[exact]\n\t" \
            "cmp lr, #0\n\t" \
            "bne 3f\n\t" \
            "ldr lr, %[over]\n\tsub %[y], lr\n\tldr lr, %[step]\n\t" \
            "add r3, lr\n\tadd r4, lr\n\tadd r5, lr\n\tadd r6, lr\n\tadd r7, lr\n\t" \
            "add r8, lr\n\tadd r9, lr\n\tadd r10, lr\n\tadd r11, lr\n\t" \
            "3:\n\t" \
            "ldr lr, %[pixels]\n\t" \
            "subs lr, #1\n\t" \
            "str lr, %[pixels]\n\t" \
            "bne 1b\n\t" \
            "ldr lr, %[taps]\n\t" \
            "stm lr, {r3-r11}" \
            : [record] "=&l"(record), [y] "+r"(y), [pixels] "+m"(*pixels) \
            : [taps] "m"(taps), [offset] "r"(offset), [half] "r"(1 << 15), [channels] "m"(channels), \
              [records] "m"(records), [step] "m"(step), [over] "m"(over), [exact] "m"(exact) \
            : "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "lr", "q0", "q1", "q2", "q3", "q4", "q5", \
              "q6", "q7", "cc", "memory"); \
    }
EMITC_DEPTHWISE_3X3(emitc_depthwise_3x3_up, UP, 144, 160, 176, 192, 208)
EMITC_DEPTHWISE_3X3(emitc_depthwise_3x3_away, AWAY, 144, 160, 176, 192, 208)
#if EMITC_MVE_FLOAT
EMITC_DEPTHWISE_3X3(emitc_depthwise_3x3_f32, F32, 128, 144, 160, 176, 192)
#endif
#endif

#endif
