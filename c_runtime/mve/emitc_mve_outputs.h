/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: sums of 16 channels at a time as int8 outputs, for convolutions and
 * matrix products.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. The loops are in assembly, since what compilers make of the
 * same loop in C has twice as many instructions. Where EMITC_MVE_LOOPS is 0, the kernels have them in C.
 */
#ifndef EMITC_MVE_OUTPUTS_H
#define EMITC_MVE_OUTPUTS_H

#include "emitc_mve.h"

#if EMITC_MVE_LOOPS
/* How the sums in one register become outputs without their zero point, once they are multiplied; q2 has the shifts, or
 * for F32 the factors. UP rounds halves up, AWAY as emitc_words_scaled_away. */
#define EMITC_LANES_UP(q) "vrshl.s32 " q ", " q ", q2\n\t"
#define EMITC_LANES_AWAY(q) \
    "vand q3, " q ", q2\n\t" \
    "vshr.s32 q3, q3, #31\n\t" \
    "vadd.i32 " q ", " q ", q3\n\t" \
    EMITC_LANES_UP(q)
#define EMITC_LANES_F32(q) \
    "vcvt.f32.s32 " q ", " q "\n\t" \
    "vmul.f32 " q ", " q ", q2\n\t" \
    "vcvtn.s32.f32 " q ", " q "\n\t"
/* Sums plus bias: q0 has four channels of the first pixel, q1 those of the second one. */
#define EMITC_SUMS_1 \
    "vldrw.32 q0, [%[sums]], #16\n\t" \
    "vldrw.32 q2, [%[bias]], #16\n\t" \
    "vadd.i32 q0, q0, q2\n\t"
#define EMITC_SUMS_2 \
    "vldrw.32 q0, [%[sums]], #16\n\t" \
    "vldrw.32 q1, [%[sums]], #16\n\t" \
    "vldrw.32 q2, [%[bias]], #16\n\t" \
    "vadd.i32 q0, q0, q2\n\t" \
    "vadd.i32 q1, q1, q2\n\t"
/* Times the multipliers in q2; then q2 has the shifts. */
#define EMITC_TIMES_1(quad) \
    "vqrdmulh.s32 q0, q0, q2\n\t" \
    "vldrb.s32 q2, [%[shift], #4 * " #quad "]\n\t"
#define EMITC_TIMES_2(quad) \
    "vqrdmulh.s32 q0, q0, q2\n\t" \
    "vqrdmulh.s32 q1, q1, q2\n\t" \
    "vldrb.s32 q2, [%[shift], #4 * " #quad "]\n\t"
#define EMITC_SCALED_UP_1(quad) EMITC_TIMES_1(quad) EMITC_LANES_UP("q0")
#define EMITC_SCALED_UP_2(quad) EMITC_TIMES_2(quad) EMITC_LANES_UP("q0") EMITC_LANES_UP("q1")
#define EMITC_SCALED_AWAY_1(quad) EMITC_TIMES_1(quad) EMITC_LANES_AWAY("q0")
#define EMITC_SCALED_AWAY_2(quad) EMITC_TIMES_2(quad) EMITC_LANES_AWAY("q0") EMITC_LANES_AWAY("q1")
#define EMITC_SCALED_F32_1(quad) EMITC_LANES_F32("q0")
#define EMITC_SCALED_F32_2(quad) EMITC_LANES_F32("q0") EMITC_LANES_F32("q1")
/* Four channels, into the even or odd halves of a register for each pixel: `first` for one, `second` for the other. */
#define EMITC_NARROW_1(part, first, second) "vqmovn" part ".s32 " first ", q0\n\t"
#define EMITC_NARROW_2(part, first, second) EMITC_NARROW_1(part, first, second) "vqmovn" part ".s32 " second ", q1\n\t"
#define EMITC_QUAD(kind, pixels, quad, part, first, second) \
    EMITC_SUMS_##pixels \
    "vldrw.32 q2, [%[multiplier], #16 * " #quad "]\n\t" \
    EMITC_SCALED_##kind##_##pixels(quad) \
    EMITC_NARROW_##pixels(part, first, second)
/* 16 halves in two registers as 16 bytes in the first. */
#define EMITC_BYTES(even, odd) \
    "vqadd.s16 " even ", " even ", %[offset]\n\t" \
    "vqadd.s16 " odd ", " odd ", %[offset]\n\t" \
    "vqmovnb.s16 " even ", " even "\n\t" \
    "vqmovnt.s16 " even ", " odd "\n\t"
#define EMITC_LIMIT(q) "vmax.s8 " q ", " q ", q0\n\tvmin.s8 " q ", " q ", q1\n\t"
#define EMITC_STORE_1 "vstrb.8 q4, [%[y]], #16\n\t"
#define EMITC_STORE_2 "vstrb.8 q6, [%[y1]], #16\n\t" EMITC_STORE_1
#define EMITC_FINISH_FULL_1 EMITC_BYTES("q4", "q5") EMITC_STORE_1
#define EMITC_FINISH_FULL_2 EMITC_BYTES("q4", "q5") EMITC_BYTES("q6", "q7") EMITC_STORE_2
#define EMITC_FINISH_LIMITED_1 \
    EMITC_BYTES("q4", "q5") "vdup.8 q0, %[low]\n\tvdup.8 q1, %[high]\n\t" EMITC_LIMIT("q4") EMITC_STORE_1
#define EMITC_FINISH_LIMITED_2 \
    EMITC_BYTES("q4", "q5") EMITC_BYTES("q6", "q7") "vdup.8 q0, %[low]\n\tvdup.8 q1, %[high]\n\t" EMITC_LIMIT("q4") \
    EMITC_LIMIT("q6") EMITC_STORE_2
/* What the kinds have as parameters and operands. */
#define EMITC_FACTORS_UP const int32_t **multiplier, const int8_t **shift
#define EMITC_FACTORS_AWAY EMITC_FACTORS_UP
#define EMITC_FACTORS_F32 const float **multiplier
#define EMITC_SHIFT_UP , [shift] "+l"(*shift)
#define EMITC_SHIFT_AWAY EMITC_SHIFT_UP
#define EMITC_SHIFT_F32
#define EMITC_NEXT_SHIFT_UP "add %[shift], %[shift], %[step], lsl #2\n\t"
#define EMITC_NEXT_SHIFT_AWAY EMITC_NEXT_SHIFT_UP
#define EMITC_NEXT_SHIFT_F32
#define EMITC_TO_1 int8_t **y
#define EMITC_TO_2 int8_t **y, int8_t **y1
#define EMITC_Y_1 , [y] "+r"(*y)
#define EMITC_Y_2 , [y] "+r"(*y), [y1] "+r"(*y1)
#define EMITC_LIMITS_FULL
#define EMITC_LIMITS_LIMITED , int32_t low, int32_t high
#define EMITC_LOW_HIGH_FULL
#define EMITC_LOW_HIGH_LIMITED , [low] "r"(low), [high] "r"(high)

/* A function that makes 16 outputs of one pixel, or of two, `groups` times, and moves the pointers on; groups > 0.
 * *sums: four of the first pixel and four of the second one take turns. step: 4, or 0 where all channels have the same
 * factors. */
#define EMITC_OUTPUTS_16(name, kind, pixels, range) \
    EMITC_ALWAYS_INLINE void name(const int32_t **sums, const int32_t **bias, EMITC_FACTORS_##kind, EMITC_TO_##pixels, \
        int32_t groups, int32_t offset, int32_t step EMITC_LIMITS_##range) \
    { \
        __asm__ volatile( \
            "dls lr, %[groups]\n" \
            "1:\n\t" \
            EMITC_QUAD(kind, pixels, 0, "b", "q4", "q6") \
            EMITC_QUAD(kind, pixels, 1, "t", "q4", "q6") \
            EMITC_QUAD(kind, pixels, 2, "b", "q5", "q7") \
            EMITC_QUAD(kind, pixels, 3, "t", "q5", "q7") \
            EMITC_FINISH_##range##_##pixels \
            "add %[multiplier], %[multiplier], %[step], lsl #4\n\t" \
            EMITC_NEXT_SHIFT_##kind \
            "le lr, 1b" \
            : [sums] "+r"(*sums), [bias] "+r"(*bias), [multiplier] "+r"(*multiplier) EMITC_SHIFT_##kind \
              EMITC_Y_##pixels \
            : [groups] "r"(groups), [offset] "r"(offset), [step] "r"(step) EMITC_LOW_HIGH_##range \
            : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory"); \
    }
EMITC_OUTPUTS_16(emitc_outputs_16_up_1, UP, 1, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_up_2, UP, 2, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_up_clamped_1, UP, 1, LIMITED)
EMITC_OUTPUTS_16(emitc_outputs_16_up_clamped_2, UP, 2, LIMITED)
EMITC_OUTPUTS_16(emitc_outputs_16_away_1, AWAY, 1, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_away_2, AWAY, 2, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_away_clamped_1, AWAY, 1, LIMITED)
EMITC_OUTPUTS_16(emitc_outputs_16_away_clamped_2, AWAY, 2, LIMITED)
#if EMITC_MVE_FLOAT
EMITC_OUTPUTS_16(emitc_outputs_16_f32_1, F32, 1, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_f32_2, F32, 2, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_f32_clamped_1, F32, 1, LIMITED)
EMITC_OUTPUTS_16(emitc_outputs_16_f32_clamped_2, F32, 2, LIMITED)
#endif
#endif

#endif
