/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: the outputs of two pixels of a convolution, four channels at a time.
 *
 * Part of a package whose kernels use it; see emitc_mve_dot_int8.h. The loops are in assembly, since compilers place
 * the loads badly and spill the sums. Where EMITC_MVE_LOOPS is 0, the kernels have them in C.
 */
#ifndef EMITC_MVE_PAIRS_H
#define EMITC_MVE_PAIRS_H

#include "emitc_mve_dot_int8.h"

/* What the functions below read and count on. x, y: values and outputs of two pixels; the second pixel may be the first
 * one again. values_end: the end of the first pixel's values. n: values of a pixel. w: the weights. waiting: where
 * outputs wait until the values of their pixels are read, 8 bytes for four channels. channels: of y. pairs: how many
 * more are made, each where the one before ends. */
struct emitc_pairs {
    const int8_t *x[2];
    int8_t *y[2];
    const int8_t *values_end, *w;
    int8_t *waiting, *waiting_end;
    int32_t n, channels, pairs;
};

EMITC_ALWAYS_INLINE void emitc_pairs_begin(
    struct emitc_pairs *at, const int8_t *w, int8_t *waiting, int32_t n, int32_t channels)
{
    at->w = w;
    at->waiting = waiting;
    at->waiting_end = waiting + 8 * ((channels + 3) >> 2);
    at->n = n;
    at->channels = channels;
}

/* Outputs of two pixels that wait, moved to their places; the next two pixels. */
EMITC_ALWAYS_INLINE void emitc_pairs_next(struct emitc_pairs *at)
{
    for (int32_t i = 0; i < at->channels; i++) {
        at->y[0][i] = at->waiting[2 * i];
        at->y[1][i] = at->waiting[2 * i + 1];
    }
    for (int32_t pixel = 0; pixel < 2; pixel++) {
        at->x[pixel] += 2 * at->n;
        at->y[pixel] += 2 * at->channels;
    }
    at->pairs--;
}

/* Sums of the products of the n values of two pixels with the weights of four channels, which lie as emitc_dots_of_pair
 * reads them; returns the end of the weights. */
EMITC_ALWAYS_INLINE const int8_t *emitc_pair_sums(
    int32_t *sums, const int8_t *x0, const int8_t *x1, const int8_t *w, int32_t n)
{
    memset(sums, 0, 8 * sizeof *sums);
    int32_t block = n & 15;
    for (int32_t i = 0; i < n; i += block, block = 16) {
        if (block == 0) {
            continue;
        }
        for (int32_t channel = 0; channel < 4; channel++) {
            sums[channel] += emitc_dot(x0 + i, w, block);
            sums[4 + channel] += emitc_dot(x1 + i, w, block);
            w += block;
        }
    }
    return w;
}

#if EMITC_MVE_LOOPS
/* Vector instructions of two units (load and store, multiply, other) overlap: the order is chosen for that.
 * q0 has values of the first pixel, q1 of the second one, q2 and q3 weights, q4 and q5 sums, q7 the output's offset. */
#define EMITC_TWO_W(q) "vldrb.8 " q ", [%[w]], #16\n\t"
#define EMITC_TWO_X0 "vldrb.8 q0, [%[x0]], #16\n\t"
#define EMITC_TWO_X1 "vldrb.8 q1, [%[x1]], #16\n\t"
#define EMITC_TWO_MAC(mac, sum, x, w) mac " %[" sum "], " x ", " w "\n\t"
/* 16 values of two pixels and of four channels, except for the last channel; q0, q1 and q2 are loaded before. */
#define EMITC_TWO_HALF(mac) \
    EMITC_TWO_MAC(mac, "a0", "q0", "q2") EMITC_TWO_W("q3") \
    EMITC_TWO_MAC(mac, "b0", "q1", "q2") EMITC_TWO_W("q2") \
    EMITC_TWO_MAC(mac, "a1", "q0", "q3") EMITC_TWO_MAC(mac, "b1", "q1", "q3") EMITC_TWO_W("q3") \
    EMITC_TWO_MAC(mac, "a2", "q0", "q2") EMITC_TWO_MAC(mac, "b2", "q1", "q2")
#define EMITC_TWO_BLOCK(mac) \
    EMITC_TWO_HALF(mac) EMITC_TWO_W("q2") \
    EMITC_TWO_MAC(mac, "a3", "q0", "q3") EMITC_TWO_X0 \
    EMITC_TWO_MAC(mac, "b3", "q1", "q3") EMITC_TWO_X1
/* The last products, and sums in registers: even channels first. */
#define EMITC_TWO_LAST(mac) \
    "vmov q4[2], q4[0], %[a0], %[a2]\n\t" EMITC_TWO_MAC(mac, "a3", "q0", "q3") \
    "vmov q5[2], q5[0], %[b0], %[b2]\n\t" EMITC_TWO_MAC(mac, "b3", "q1", "q3")
/* Sums with bias times multipliers, or factors for F32; then q2 has shifts. */
#define EMITC_TWO_ADDED \
    "vmov q4[3], q4[1], %[a1], %[a3]\n\tvldrw.32 q2, [%[w]], #16\n\t" \
    "vmov q5[3], q5[1], %[b1], %[b3]\n\tvldrw.32 q3, [%[w]], #16\n\t"
#define EMITC_TWO_PRODUCTS \
    EMITC_TWO_ADDED \
    "vadd.i32 q4, q4, q2\n\tvqrdmulh.s32 q4, q4, q3\n\tvadd.i32 q5, q5, q2\n\tvldrb.s32 q2, [%[w]], #4\n\t"
/* One less where the value is negative and something is shifted out, as emitc_int32x4_scaled_away; %[end] is 1. */
#define EMITC_TWO_LESS(q) "vand q6, " q ", q2\n\tvqdmlah.s32 " q ", q6, %[end]\n\t"
/* Sums as integers of 16 bits, those of the second pixel in odd places; next0 and next1 are done meanwhile. UP rounds
 * halves up, AWAY away from zero. */
#define EMITC_TWO_SCALED_UP(next0, next1) \
    EMITC_TWO_PRODUCTS \
    "vrshl.s32 q4, q4, q2\n\tvqrdmulh.s32 q5, q5, q3\n\tvqmovnb.s32 q4, q4\n\t" next0 \
    "vrshl.s32 q5, q5, q2\n\t" next1 "vqmovnt.s32 q4, q5\n\t"
#define EMITC_TWO_SCALED_AWAY(next0, next1) \
    EMITC_TWO_PRODUCTS EMITC_TWO_LESS("q4") \
    "vrshl.s32 q4, q4, q2\n\tvqrdmulh.s32 q5, q5, q3\n\tvqmovnb.s32 q4, q4\n\t" next0 EMITC_TWO_LESS("q5") \
    "vrshl.s32 q5, q5, q2\n\t" next1 "vqmovnt.s32 q4, q5\n\t"
#define EMITC_TWO_SCALED_F32(next0, next1) \
    EMITC_TWO_ADDED \
    "vadd.i32 q4, q4, q2\n\tvadd.i32 q5, q5, q2\n\t" \
    "vcvt.f32.s32 q4, q4\n\tvmul.f32 q4, q4, q3\n\tvcvt.f32.s32 q5, q5\n\tvmul.f32 q5, q5, q3\n\t" \
    "vcvtn.s32.f32 q4, q4\n\t" next0 "vqmovnb.s32 q4, q4\n\t" next1 "vcvtn.s32.f32 q5, q5\n\tvqmovnt.s32 q4, q5\n\t"
#define EMITC_TWO_ONE_UP
#define EMITC_TWO_ONE_AWAY "mov %[end], #1\n\t"
#define EMITC_TWO_ONE_F32
/* Those as bytes, stored; next2 loads the weights that come next. */
#define EMITC_TWO_STORED_FULL(next2) \
    next2 "vqadd.s16 q4, q4, q7\n\tvqmovnb.s16 q4, q4\n\tvstrb.16 q4, [%[s]], #8\n\t"
#define EMITC_TWO_STORED_LIMITED(next2) \
    "vldrw.32 q2, %[low]\n\tvqadd.s16 q4, q4, q7\n\tvldrw.32 q3, %[high]\n\tvmax.s16 q4, q4, q2\n\t" \
    next2 "vmin.s16 q4, q4, q3\n\tvstrb.16 q4, [%[s]], #8\n\t"
#define EMITC_TWO_OUTPUTS(kind, range, next0, next1) \
    EMITC_TWO_SCALED_##kind(next0, next1) EMITC_TWO_STORED_##range(EMITC_TWO_W("q2"))
#define EMITC_TWO_AGAIN "ldr %[end], %[last]\n\tcmp %[s], %[end]\n\tbne 1b"
/* Four channels, whose first values are loaded before; `first`: their blocks of 16 values, except for an even number of
 * them. */
#define EMITC_TWO_BLOCKS(first, kind, range) \
    EMITC_TWO_X0 EMITC_TWO_X1 EMITC_TWO_W("q2") \
    "\n1:\n\tldr %[end], %[x0_end]\n\t" first \
    "cmp %[x0], %[end]\n\tbeq 3f\n2:\n\t" \
    EMITC_TWO_BLOCK("vmladava.s8") EMITC_TWO_BLOCK("vmladava.s8") \
    "cmp %[x0], %[end]\n\tbne 2b\n3:\n\t" \
    "ldrd %[x0], %[x1], %[x]\n\t" EMITC_TWO_ONE_##kind \
    EMITC_TWO_HALF("vmladava.s8") EMITC_TWO_LAST("vmladava.s8") \
    EMITC_TWO_OUTPUTS(kind, range, EMITC_TWO_X0, EMITC_TWO_X1) \
    EMITC_TWO_AGAIN
/* One channel for the first values, as many as %[end] says: lanes of q0 and q1 after them are 0. */
#define EMITC_TWO_PART(a, b) \
    "vldrb.8 q2, [%[w]]\n\t" \
    "vmladav.s8 %[" a "], q0, q2\n\t" \
    "add %[w], %[end]\n\t" \
    "vmladav.s8 %[" b "], q1, q2\n\t"
/* The next two pixels: where their values end is noted, and the kernel for their number is chosen. */
#define EMITC_TWO_BEGIN \
    "ldr %[end], %[n]\n\tldrd %[x0], %[x1], %[x]\n\tldr %[w], %[weights]\n\tldr %[s], %[waiting]\n\t" \
    "add %[a0], %[x0], %[end]\n\tstr %[a0], %[x0_end]\n\t" \
    "lsls %[a0], %[end], #27\n\tbeq 30f\n\t" \
    "cmp %[end], #8\n\tbeq 10f\n\tcmp %[end], #16\n\tbeq 20f\n\tcmp %[a0], #1 << 31\n\tbeq 40f\n\t"
/* Outputs that wait are stored. Whether there are more pixels decides whether that begins again. */
#define EMITC_TWO_END \
    "ldr %[end], %[waiting]\n\tldr %[w], %[channels]\n\tldrd %[x0], %[x1], %[y]\n\t" \
    "wlstp.16 lr, %[w], 6f\n" \
    "5:\n\t" \
    "vldrh.16 q0, [%[end]], #16\n\tvstrb.16 q0, [%[x0]], #8\n\t" \
    "vshr.u16 q0, q0, #8\n\tvstrb.16 q0, [%[x1]], #8\n\t" \
    "letp lr, 5b\n" \
    "6:\n\t" \
    "ldr %[s], %[pairs]\n\tldrd %[x0], %[x1], %[y]\n\tldr %[end], %[n]\n\t" \
    "add %[x0], %[x0], %[w], lsl #1\n\tadd %[x1], %[x1], %[w], lsl #1\n\tstrd %[x0], %[x1], %[y]\n\t" \
    "ldrd %[x0], %[x1], %[x]\n\t" \
    "add %[x0], %[x0], %[end], lsl #1\n\tadd %[x1], %[x1], %[end], lsl #1\n\tstrd %[x0], %[x1], %[x]\n\t" \
    "subs %[s], #1\n\tstr %[s], %[pairs]\n\tbne 0b"
/* Loops for 8 values, for 16, for 32 and more, for 48 and more where the number of registers is odd, and for others. */
#define EMITC_TWO_8(kind, range) \
    /* Two channels' weights fill a register. The predicate is that of the first channel, then that of the second. */ \
    "vctp.8 %[end]\n\t" \
    "vpstt\n\tvldrbt.8 q0, [%[x0]]\n\tvldrbt.8 q1, [%[x1]]\n\tvpnot\n\t" \
    "vpstt\n\tvldrbt.8 q2, [%[x0], #-8]\n\tvldrbt.8 q3, [%[x1], #-8]\n\tvpnot\n\t" \
    "vorr q0, q0, q2\n\tvorr q1, q1, q3\n\t" \
    EMITC_TWO_W("q2") \
    "\n1:\n\t" \
    "vpstete\n\t" \
    "vmladavt.s8 %[a0], q0, q2\n\tvmladave.s8 %[a1], q0, q2\n\t" \
    "vmladavt.s8 %[b0], q1, q2\n\tvmladave.s8 %[b1], q1, q2\n\t" \
    EMITC_TWO_W("q3") EMITC_TWO_ONE_##kind \
    "vpstete\n\t" \
    "vmladavt.s8 %[a3], q0, q3\n\tvmladave.s8 %[a2], q0, q3\n\t" \
    "vmladavt.s8 %[b3], q1, q3\n\tvmladave.s8 %[b2], q1, q3\n\t" \
    "vmov q4[2], q4[0], %[a0], %[a2]\n\tvmov q5[2], q5[0], %[b0], %[b2]\n\t" \
    EMITC_TWO_OUTPUTS(kind, range, "", "") \
    EMITC_TWO_AGAIN
#define EMITC_TWO_16(kind, range) \
    "vldrb.8 q0, [%[x0]]\n\tvldrb.8 q1, [%[x1]]\n\t" EMITC_TWO_W("q2") \
    "\n1:\n\t" EMITC_TWO_ONE_##kind \
    EMITC_TWO_HALF("vmladav.s8") EMITC_TWO_LAST("vmladav.s8") \
    EMITC_TWO_OUTPUTS(kind, range, "", "") \
    EMITC_TWO_AGAIN
#define EMITC_TWO_OTHER(kind, range) \
    "and %[end], #15\n\tvctp.8 %[end]\n" \
    "1:\n\t" \
    "vpstt\n\t" \
    "vldrbt.8 q0, [%[x0]]\n\tvldrbt.8 q1, [%[x1]]\n\t" \
    "add %[x0], %[end]\n\tadd %[x1], %[end]\n\t" \
    EMITC_TWO_PART("a0", "b0") EMITC_TWO_PART("a1", "b1") \
    EMITC_TWO_PART("a2", "b2") EMITC_TWO_PART("a3", "b3") \
    "ldr %[end], %[x0_end]\n\t" \
    "cmp %[x0], %[end]\n\tbeq 3f\n" \
    "2:\n\t" \
    EMITC_TWO_X0 EMITC_TWO_W("q2") \
    EMITC_TWO_MAC("vmladava.s8", "a0", "q0", "q2") EMITC_TWO_X1 \
    EMITC_TWO_MAC("vmladava.s8", "b0", "q1", "q2") EMITC_TWO_W("q3") \
    EMITC_TWO_MAC("vmladava.s8", "a1", "q0", "q3") EMITC_TWO_W("q2") \
    EMITC_TWO_MAC("vmladava.s8", "b1", "q1", "q3") EMITC_TWO_W("q3") \
    EMITC_TWO_MAC("vmladava.s8", "a2", "q0", "q2") EMITC_TWO_MAC("vmladava.s8", "b2", "q1", "q2") \
    EMITC_TWO_MAC("vmladava.s8", "a3", "q0", "q3") EMITC_TWO_MAC("vmladava.s8", "b3", "q1", "q3") \
    "cmp %[x0], %[end]\n\tbne 2b\n3:\n\t" \
    "ldrd %[x0], %[x1], %[x]\n\t" EMITC_TWO_ONE_##kind \
    "vmov q4[2], q4[0], %[a0], %[a2]\n\tvmov q5[2], q5[0], %[b0], %[b2]\n\t" \
    EMITC_TWO_SCALED_##kind("", "") EMITC_TWO_STORED_##range("") \
    "ldr %[end], %[last]\n\tcmp %[s], %[end]\n\t" \
    "ldr %[end], %[n]\n\tand %[end], #15\n\tbne 1b"
#define EMITC_TWO_LIMITS_FULL
#define EMITC_TWO_LIMITS_LIMITED , int16_t(*limits)[8]
#define EMITC_TWO_LOW_HIGH_FULL
#define EMITC_TWO_LOW_HIGH_LIMITED , [low] "m"(limits[0]), [high] "m"(limits[1])

/* A function that makes outputs of at->pairs times two pixels. w: for each four channels the weights as
 * emitc_dots_of_pair reads them, bias, multipliers and shifts, or bias and factors for F32; 16 bytes follow that may be
 * read. limits: the lowest and the highest output, eight times each. */
#define EMITC_PAIRS(name, kind, range) \
    EMITC_ALWAYS_INLINE void name(struct emitc_pairs *at, int32_t offset EMITC_TWO_LIMITS_##range) \
    { \
        int32_t a0, a1, a2, a3, b0, b1, b2, b3; \
        const int8_t *x0, *x1, *w, *end; \
        int32_t s = offset; \
        __asm__ volatile( \
            "vdup.16 q7, %[s]\n" \
            "0:\n\t" \
            EMITC_TWO_BEGIN \
            EMITC_TWO_OTHER(kind, range) "\n\tb 50f\n" \
            "10:\n\t" EMITC_TWO_8(kind, range) "\n\tb 50f\n" \
            "20:\n\t" EMITC_TWO_16(kind, range) "\n\tb 50f\n" \
            "40:\n\t" EMITC_TWO_BLOCKS(EMITC_TWO_BLOCK("vmladav.s8") EMITC_TWO_BLOCK("vmladava.s8"), kind, range) \
            "\n\tb 50f\n" \
            "30:\n\t" EMITC_TWO_BLOCKS(EMITC_TWO_BLOCK("vmladav.s8"), kind, range) \
            "\n50:\n\t" \
            EMITC_TWO_END \
            : [a0] "=&Te"(a0), [a1] "=&Te"(a1), [a2] "=&Te"(a2), [a3] "=&Te"(a3), [b0] "=&Te"(b0), [b1] "=&Te"(b1), \
              [b2] "=&Te"(b2), [b3] "=&Te"(b3), [x0] "=&l"(x0), [x1] "=&l"(x1), [w] "=&l"(w), [s] "+l"(s), \
              [end] "=&r"(end), [x] "+m"(at->x), [y] "+m"(at->y), [x0_end] "+m"(at->values_end), \
              [pairs] "+m"(at->pairs) \
            : [weights] "m"(at->w), [waiting] "m"(at->waiting), [last] "m"(at->waiting_end), [n] "m"(at->n), \
              [channels] "m"(at->channels) EMITC_TWO_LOW_HIGH_##range \
            : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory"); \
    }
EMITC_PAIRS(emitc_pairs_up, UP, FULL)
EMITC_PAIRS(emitc_pairs_up_clamped, UP, LIMITED)
EMITC_PAIRS(emitc_pairs_away, AWAY, FULL)
EMITC_PAIRS(emitc_pairs_away_clamped, AWAY, LIMITED)
#if EMITC_MVE_FLOAT
EMITC_PAIRS(emitc_pairs_f32, F32, FULL)
EMITC_PAIRS(emitc_pairs_f32_clamped, F32, LIMITED)
#endif
#endif

#endif
