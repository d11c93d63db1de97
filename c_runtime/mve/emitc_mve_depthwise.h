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
/* The products of one tap, even channels in q2, odd ones in q3, as 16 bits. */
#define EMITC_TAP(at) \
    "vldrb.8 q0, [" at "], #16\n\t" \
    "vldrb.8 q1, [%[record]], #16\n\t" \
    "vmullb.s8 q2, q0, q1\n\t" \
    "vmullt.s8 q3, q0, q1\n\t"
/* Those of a second tap are added; with a register to spare, or the weights are loaded twice. */
#define EMITC_FIRST_PAIR(at) \
    "vldrb.8 q0, [" at "], #16\n\t" \
    "vldrb.8 q1, [%[record]], #16\n\t" \
    "vmullb.s8 q4, q0, q1\n\t" \
    "vadd.i16 q2, q2, q4\n\t" \
    "vmullt.s8 q0, q0, q1\n\t" \
    "vadd.i16 q3, q3, q0\n\t"
#define EMITC_PAIR(at) \
    "vldrb.8 q0, [" at "], #16\n\t" \
    "vldrb.8 q1, [%[record]]\n\t" \
    "vmullb.s8 q1, q0, q1\n\t" \
    "vadd.i16 q2, q2, q1\n\t" \
    "vldrb.8 q1, [%[record]], #16\n\t" \
    "vmullt.s8 q0, q0, q1\n\t" \
    "vadd.i16 q3, q3, q0\n\t"
/* Both are added to the sums of 32 bits: q4 0 4 8 12, q6 2 6 10 14, q5 1 5 9 13, q7 3 7 11 15. */
#define EMITC_WIDEN_ADD(sum, half, from) "vmovl" half ".s16 q0, " from "\n\tvadd.i32 " sum ", " sum ", q0\n\t"
#define EMITC_ADD_TAPS \
    EMITC_WIDEN_ADD("q4", "b", "q2") EMITC_WIDEN_ADD("q6", "t", "q2") \
    EMITC_WIDEN_ADD("q5", "b", "q3") EMITC_WIDEN_ADD("q7", "t", "q3")
/* The sums of four channels as outputs without their zero point. The record has shifts, bias and multipliers of 16
 * channels, or bias and factors. quad: which four. */
#define EMITC_RECORD_FIXED(sum, quad, rounded) \
    "vldrw.32 q0, [%[record], #16 + 16 * " #quad "]\n\t" \
    "vadd.i32 " sum ", " sum ", q0\n\t" \
    "vldrw.32 q0, [%[record], #80 + 16 * " #quad "]\n\t" \
    "vqrdmulh.s32 " sum ", " sum ", q0\n\t" \
    "vldrb.s32 q0, [%[record], #4 * " #quad "]\n\t" \
    rounded(sum) \
    "vrshl.s32 " sum ", " sum ", q0\n\t"
#define EMITC_RECORD_NOTHING(sum)
#define EMITC_RECORD_LESS(sum) "vand q1, " sum ", q0\n\tvshr.s32 q1, q1, #31\n\tvadd.i32 " sum ", " sum ", q1\n\t"
#define EMITC_RECORD_UP(sum, quad) EMITC_RECORD_FIXED(sum, quad, EMITC_RECORD_NOTHING)
#define EMITC_RECORD_AWAY(sum, quad) EMITC_RECORD_FIXED(sum, quad, EMITC_RECORD_LESS)
#define EMITC_RECORD_F32(sum, quad) \
    "vldrw.32 q0, [%[record], #16 * " #quad "]\n\t" \
    "vadd.i32 " sum ", " sum ", q0\n\t" \
    "vldrw.32 q0, [%[record], #64 + 16 * " #quad "]\n\t" \
    "vcvt.f32.s32 " sum ", " sum "\n\t" \
    "vmul.f32 " sum ", " sum ", q0\n\t" \
    "vcvtn.s32.f32 " sum ", " sum "\n\t"

/* A function that makes the outputs of *pixels neighbours, which it counts down, 16 * blocks bytes each, and moves the
 * nine taps on by as many and by `step` more. records: for every 16 channels the weights of nine taps, then what
 * EMITC_RECORD_ takes, `bytes` bytes of it. */
#define EMITC_DEPTHWISE_3X3(name, record_outputs, bytes) \
    EMITC_ALWAYS_INLINE void name( \
        const int8_t **taps, const int8_t *records, int8_t *y, int32_t *pixels, int32_t blocks, int32_t step, \
        int32_t offset) \
    { \
        const int8_t *record; \
        __asm__ volatile( \
            "ldm %[taps], {r3-r11}\n" \
            "1:\n\t" \
            "ldr lr, %[blocks]\n\t" \
            "ldr %[record], %[records]\n" \
            "2:\n\t" \
            EMITC_TAP("r3") EMITC_FIRST_PAIR("r4") \
            "vmovlb.s16 q4, q2\n\t" \
            "vmovlt.s16 q6, q2\n\t" \
            "vmovlb.s16 q5, q3\n\t" \
            "vmovlt.s16 q7, q3\n\t" \
            EMITC_TAP("r5") EMITC_PAIR("r6") EMITC_ADD_TAPS \
            EMITC_TAP("r7") EMITC_PAIR("r8") EMITC_ADD_TAPS \
            EMITC_TAP("r9") EMITC_PAIR("r10") EMITC_ADD_TAPS \
            EMITC_TAP("r11") EMITC_ADD_TAPS \
            record_outputs("q4", 0) record_outputs("q6", 1) record_outputs("q5", 2) record_outputs("q7", 3) \
            "vqmovnb.s32 q4, q4\n\t" \
            "vqmovnt.s32 q4, q6\n\t" \
            "vqmovnb.s32 q5, q5\n\t" \
            "vqmovnt.s32 q5, q7\n\t" \
            EMITC_BYTES("q4", "q5") \
            "vstrb.8 q4, [%[y]], #16\n\t" \
            "add %[record], #" #bytes "\n\t" \
            "le lr, 2b\n\t" \
            "ldr lr, %[step]\n\t" \
            "cmp lr, #0\n\t" \
            "beq 3f\n\t" \
            "add r3, lr\n\tadd r4, lr\n\tadd r5, lr\n\tadd r6, lr\n\tadd r7, lr\n\t" \
            "add r8, lr\n\tadd r9, lr\n\tadd r10, lr\n\tadd r11, lr\n\t" \
            "3:\n\t" \
            "ldr lr, %[pixels]\n\t" \
            "subs lr, #1\n\t" \
            "str lr, %[pixels]\n\t" \
            "bne 1b\n\t" \
            "stm %[taps], {r3-r11}" \
            : [record] "=&l"(record), [y] "+r"(y), [pixels] "+m"(*pixels) \
            : [taps] "r"(taps), [offset] "r"(offset), [blocks] "m"(blocks), [records] "m"(records), [step] "m"(step) \
            : "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "lr", "q0", "q1", "q2", "q3", "q4", "q5", \
              "q6", "q7", "cc", "memory"); \
    }
EMITC_DEPTHWISE_3X3(emitc_depthwise_3x3_up, EMITC_RECORD_UP, 144)
EMITC_DEPTHWISE_3X3(emitc_depthwise_3x3_away, EMITC_RECORD_AWAY, 144)
#if EMITC_MVE_FLOAT
EMITC_DEPTHWISE_3X3(emitc_depthwise_3x3_f32, EMITC_RECORD_F32, 128)
#endif
#endif

#endif
