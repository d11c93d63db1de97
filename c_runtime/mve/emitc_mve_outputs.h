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
/* Vector instructions of two units overlap: loads for the next four channels stand between the arithmetic of these.
 * q0 has sums, b bias, t multipliers, or factors for F32. */
#define EMITC_LOAD_SUMS(q) "vldrw.32 " q ", [%[sums]], #16\n\t"
#define EMITC_LOAD_BIAS(q) "vldrw.32 " q ", [%[bias]], #16\n\t"
#define EMITC_LOAD_TIMES(q, quad) "vldrw.32 " q ", [%[multiplier], #16 * " #quad "]\n\t"
#define EMITC_LOAD_SHIFT(q, quad) "vldrb.s32 " q ", [%[shift], #4 * " #quad "]\n\t"
#define EMITC_ADDED(q, b) "vadd.i32 " q ", " q ", " b "\n\t"
#define EMITC_TIMES(q, t) "vqrdmulh.s32 " q ", " q ", " t "\n\t"
/* One less where the value is negative and something is shifted out, as emitc_int32x4_scaled_away. */
#define EMITC_LESS(q, b, t) "vand " t ", " q ", " b "\n\tvqdmlah.s32 " q ", " t ", %[one]\n\t"
#define EMITC_SCALED(q, t) "vcvt.f32.s32 " q ", " q "\n\tvmul.f32 " q ", " q ", " t "\n\t"
/* Products; then b has the shifts. UP rounds halves up, AWAY away from zero. */
#define EMITC_PRODUCTS_UP(quad, b, t) \
    EMITC_ADDED("q0", b) EMITC_LOAD_TIMES(t, quad) EMITC_TIMES("q0", t) EMITC_LOAD_SHIFT(b, quad)
#define EMITC_PRODUCTS_AWAY(quad, b, t) EMITC_PRODUCTS_UP(quad, b, t) EMITC_LESS("q0", b, t)
#define EMITC_PRODUCTS_F32(quad, b, t) EMITC_ADDED("q0", b) EMITC_LOAD_TIMES(t, quad) EMITC_SCALED("q0", t)
#define EMITC_ROUNDED_UP(q, b) "vrshl.s32 " q ", " q ", " b "\n\t"
#define EMITC_ROUNDED_AWAY(q, b) EMITC_ROUNDED_UP(q, b)
#define EMITC_ROUNDED_F32(q, b) "vcvtn.s32.f32 " q ", " q "\n\t"
/* Four channels, into the even or odd halves of a register. */
#define EMITC_NARROW(part, to, q) "vqmovn" part ".s32 " to ", " q "\n\t"
/* next: what is loaded for the next four channels, nothing after the last; their bias is in t. */
#define EMITC_NEXT(load) load
#define EMITC_LAST(load)
#define EMITC_QUAD(kind, quad, b, t, part, to, next) \
    EMITC_PRODUCTS_##kind(quad, b, t) \
    EMITC_ROUNDED_##kind("q0", b) next(EMITC_LOAD_BIAS(t)) \
    EMITC_NARROW(part, to, "q0") next(EMITC_LOAD_SUMS("q0"))
/* 16 halves in two registers as 16 bytes in the first. */
#define EMITC_BYTES(even, odd) \
    "vqadd.s16 " even ", " even ", %[offset]\n\t" \
    "vqadd.s16 " odd ", " odd ", %[offset]\n\t" \
    "vqmovnb.s16 " even ", " even "\n\t" \
    "vqmovnt.s16 " even ", " odd "\n\t"
#define EMITC_FINISH_FULL EMITC_BYTES("q4", "q5") "vstrb.8 q4, [%[y]], #16\n\t"
#define EMITC_FINISH_LIMITED \
    EMITC_BYTES("q4", "q5") "vdup.8 q0, %[low]\n\tvdup.8 q1, %[high]\n\t" \
    "vmax.s8 q4, q4, q0\n\tvmin.s8 q4, q4, q1\n\tvstrb.8 q4, [%[y]], #16\n\t"
/* What the kinds have as parameters and operands. */
#define EMITC_FACTORS_UP const int32_t **multiplier, const int8_t **shift
#define EMITC_FACTORS_AWAY EMITC_FACTORS_UP
#define EMITC_FACTORS_F32 const float **multiplier
#define EMITC_SHIFT_UP , [shift] "+l"(*shift)
#define EMITC_SHIFT_AWAY EMITC_SHIFT_UP
#define EMITC_SHIFT_F32
#define EMITC_ONE_UP
#define EMITC_ONE_AWAY , [one] "r"(1)
#define EMITC_ONE_F32
#define EMITC_NEXT_SHIFT_UP "add %[shift], %[shift], %[step], lsl #2\n\t"
#define EMITC_NEXT_SHIFT_AWAY EMITC_NEXT_SHIFT_UP
#define EMITC_NEXT_SHIFT_F32
#define EMITC_LIMITS_FULL
#define EMITC_LIMITS_LIMITED , int32_t low, int32_t high
#define EMITC_LOW_HIGH_FULL
#define EMITC_LOW_HIGH_LIMITED , [low] "r"(low), [high] "r"(high)

/* A function that makes 16 outputs, `groups` times, and moves the pointers on; groups > 0. step: 4, or 0 where all
 * channels have the same factors. */
#define EMITC_OUTPUTS_16(name, kind, range) \
    EMITC_ALWAYS_INLINE void name(const int32_t **sums, const int32_t **bias, EMITC_FACTORS_##kind, int8_t **y, \
        int32_t groups, int32_t offset, int32_t step EMITC_LIMITS_##range) \
    { \
        __asm__ volatile( \
            "dls lr, %[groups]\n" \
            "1:\n\t" \
            EMITC_LOAD_BIAS("q2") EMITC_LOAD_SUMS("q0") \
            EMITC_QUAD(kind, 0, "q2", "q3", "b", "q4", EMITC_NEXT) \
            EMITC_QUAD(kind, 1, "q3", "q2", "t", "q4", EMITC_NEXT) \
            EMITC_QUAD(kind, 2, "q2", "q3", "b", "q5", EMITC_NEXT) \
            EMITC_QUAD(kind, 3, "q3", "q2", "t", "q5", EMITC_LAST) \
            EMITC_FINISH_##range \
            "add %[multiplier], %[multiplier], %[step], lsl #4\n\t" \
            EMITC_NEXT_SHIFT_##kind \
            "le lr, 1b" \
            : [sums] "+r"(*sums), [bias] "+r"(*bias), [multiplier] "+r"(*multiplier) EMITC_SHIFT_##kind, [y] "+r"(*y) \
            : [groups] "r"(groups), [offset] "r"(offset), [step] "r"(step) EMITC_LOW_HIGH_##range EMITC_ONE_##kind \
            : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "cc", "memory"); \
    }
EMITC_OUTPUTS_16(emitc_outputs_16_up, UP, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_up_clamped, UP, LIMITED)
EMITC_OUTPUTS_16(emitc_outputs_16_away, AWAY, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_away_clamped, AWAY, LIMITED)
#if EMITC_MVE_FLOAT
EMITC_OUTPUTS_16(emitc_outputs_16_f32, F32, FULL)
EMITC_OUTPUTS_16(emitc_outputs_16_f32_clamped, F32, LIMITED)
#endif
#endif

#endif
