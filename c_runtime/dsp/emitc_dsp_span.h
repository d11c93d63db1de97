/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: the inner loops of convolutions whose neighbouring windows overlap.
 *
 * Part of a package whose kernels use it; see emitc_dsp_tile.h. A kernel prints its loops for the size of its window.
 * It states the words of one row of the windows, each by one of the macros below; this file makes functions of them.
 * Their names in the assembly: a0 to a3 and b0 to b3 are the sums of the pixels, for the first channel and for the
 * second one; x is the place in the widened values, w the place in the weights.
 */
#ifndef EMITC_DSP_SPAN_H
#define EMITC_DSP_SPAN_H

#include "emitc_dsp_tile.h"

/* Sets the bytes from `first` up to `end`. They are so few that a call of memset, which compilers make of such a loop,
 * takes longer; `volatile` keeps them from it. */
EMITC_ALWAYS_INLINE void emitc_fill_few(int8_t *to, int32_t first, int32_t end, int32_t value)
{
    volatile int8_t *const each = to;
    for (int32_t i = first; i < end; i++) {
        each[i] = (int8_t)value;
    }
}

#if EMITC_TILE_ASM
/* Loads one word of weights and widens it: `even` has the first channel's pair, `odd` the second one's. */
#define EMITC_SPAN_LOAD "ldr %[odd], [%[w]], #4\n\t"
#define EMITC_SPAN_WIDEN "sxtb16 %[even], %[odd]\n\tsxtb16 %[odd], %[odd], ror #8\n\t"
/* Adds the products of the pair of values in the register `from` to both sums of a pixel. */
#define EMITC_SPAN_MAC(pixel, from) \
    "smlad %[a" #pixel "], %[" #from "], %[even], %[a" #pixel "]\n\t" \
    "smlad %[b" #pixel "], %[" #from "], %[odd], %[b" #pixel "]\n\t"
/* The same with a pair that is loaded first, or with two neighbouring pairs for two pixels. at: bytes from x on. */
#define EMITC_SPAN_ONE(pixel, to, at) "ldr %[" #to "], [%[x], #" at "]\n\t" EMITC_SPAN_MAC(pixel, to)
#define EMITC_SPAN_TWO(pixel, next, at) \
    "ldrd %[p], %[q], [%[x], #" at "]\n\t" EMITC_SPAN_MAC(pixel, p) EMITC_SPAN_MAC(next, q)

/* One word of weights meets the values of four pixels, or of three. _EVEN_: pixels are a whole number of words apart,
 * and their words follow each other. _ODD_: pixels are `step` values apart, an odd number. at: bytes from x on. */
#define EMITC_SPAN_EVEN_4(at) \
    EMITC_SPAN_LOAD EMITC_SPAN_WIDEN EMITC_SPAN_TWO(0, 1, #at) EMITC_SPAN_TWO(2, 3, #at " + 8")
#define EMITC_SPAN_EVEN_3(at) \
    EMITC_SPAN_LOAD EMITC_SPAN_WIDEN EMITC_SPAN_TWO(0, 1, #at) EMITC_SPAN_ONE(2, p, #at " + 8")
#define EMITC_SPAN_ODD_3(at, step) \
    EMITC_SPAN_LOAD EMITC_SPAN_WIDEN EMITC_SPAN_ONE(0, p, #at) EMITC_SPAN_ONE(1, q, #at " + 2 * " #step) \
    EMITC_SPAN_ONE(2, p, #at " + 4 * " #step)
#define EMITC_SPAN_ODD_4(at, step) EMITC_SPAN_ODD_3(at, step) EMITC_SPAN_ONE(3, q, #at " + 6 * " #step)
/* The same of three pixels that are one word apart: the first two words are there, and the third one is loaded. The
 * registers change places from one word to the next. A row begins with EMITC_SPAN_SLIDE. */
#define EMITC_SPAN_SLIDE "ldrd %[p], %[q], [%[x]]\n\t"
#define EMITC_SPAN_SLIDE_3(first, second, third, at) \
    EMITC_SPAN_LOAD "ldr %[" #third "], [%[x], #" #at "]\n\t" EMITC_SPAN_WIDEN \
    EMITC_SPAN_MAC(0, first) EMITC_SPAN_MAC(1, second) EMITC_SPAN_MAC(2, third)

/* All rows of the windows, which are `pitch` words apart. */
#define EMITC_SPAN_ROWS(row, pitch) \
    "1:\n\t" row \
    "add %[x], %[x], #4 * " #pitch "\n\t" \
    "ldr %[p], %[end]\n\t" \
    "cmp %[x], %[p]\n\t" \
    "bne 1b\n\t"
/* The operands of three or four pixels: the sums, whose names begin with a and b, as `mode` says, the places x and w,
 * and the registers that the loops need. */
#define EMITC_SPAN_OPERANDS_3(mode, a, b, x_mode) \
    [a0] mode(a##0), [a1] mode(a##1), [a2] mode(a##2), [b0] mode(b##0), [b1] mode(b##1), [b2] mode(b##2), \
    [x] x_mode(x), [w] "+r"(w), [even] "=&r"(even), [odd] "=&r"(odd), [p] "=&r"(p), [q] "=&r"(q), [r] "=&r"(r)
#define EMITC_SPAN_OPERANDS_4(mode, a, b, x_mode) \
    [a0] mode(a##0), [a1] mode(a##1), [a2] mode(a##2), [a3] mode(a##3), [b0] mode(b##0), [b1] mode(b##1), \
    [b2] mode(b##2), [b3] mode(b##3), [x] x_mode(x), [w] "+r"(w), [even] "=&r"(even), [odd] "=&r"(odd), \
    [p] "=&r"(p), [q] "=&r"(q)
#define EMITC_SPAN_REGISTERS_3 uint32_t even, odd, p, q, r;
#define EMITC_SPAN_REGISTERS_4 uint32_t even, odd, p, q;

/* A function that adds up the products of three or four pixels and two channels, from the bias on; *weights is advanced
 * past the weights. x: the widened values, up to end. */
#define EMITC_SPAN_SUMS(name, pixels, row, pitch) \
    static inline emitc_tile name( \
        int32_t bias_a, int32_t bias_b, const uint32_t *x, const uint32_t *end, const int8_t **weights) \
    { \
        emitc_tile t = {bias_a, bias_a, bias_a, bias_a, bias_b, bias_b, bias_b, bias_b}; \
        const int8_t *w = *weights; \
        EMITC_SPAN_REGISTERS_##pixels \
        __asm__ volatile(EMITC_SPAN_ROWS(row, pitch) \
            : EMITC_SPAN_OPERANDS_##pixels("+r", t.a, t.b, "+r") \
            : [end] "m"(end) \
            : "cc", "memory"); \
        *weights = w; \
        return t; \
    }

/* The multiplier and the shift of a channel, and what is added before the shift: in even, odd and q, where
 * EMITC_TILE_UP and EMITC_TILE_AWAY take them. _NEXT: of channels that have their own; the next channel's follow.
 * _SHARED: of channels that have the same, which are loaded once. */
#define EMITC_SPAN_START \
    "ldr %[q], %[offset]\n\t" \
    "sub %[p], %[odd], #1\n\t" \
    "lsl %[q], %[q], %[p]\n\t"
#define EMITC_SPAN_SHARED \
    "ldr %[p], %[right]\n\t" \
    "ldrsb %[odd], [%[p]]\n\t" \
    "ldr %[p], %[q31]\n\t" \
    "ldr %[even], [%[p]]\n\t" \
    EMITC_SPAN_START
#define EMITC_SPAN_NEXT \
    "ldr %[p], %[right]\n\t" \
    "ldrsb %[odd], [%[p]], #1\n\t" \
    "str %[p], %[right]\n\t" \
    "ldr %[p], %[q31]\n\t" \
    "ldr %[even], [%[p]], #4\n\t" \
    "str %[p], %[q31]\n\t" \
    EMITC_SPAN_START
/* The outputs of one channel, of the last pixel first; x is where that of pixel 0 goes, and is moved on by 1. */
#define EMITC_SPAN_STORE(output, sum, pixel) \
    output(sum) "ldr %[p], %[to_" #pixel "]\n\tstrb %[" #sum "], [%[x], %[p]]\n\t"
#define EMITC_SPAN_STORE_3(output, c) \
    EMITC_SPAN_STORE(output, c##2, 2) EMITC_SPAN_STORE(output, c##1, 1) \
    output(c##0) "strb %[" #c "0], [%[x]], #1\n\t"
#define EMITC_SPAN_STORE_4(output, c) EMITC_SPAN_STORE(output, c##3, 3) EMITC_SPAN_STORE_3(output, c)
#define EMITC_SPAN_COPY_3 \
    "mov %[a1], %[a0]\n\tmov %[b1], %[b0]\n\tmov %[a2], %[a0]\n\tmov %[b2], %[b0]\n\t"
#define EMITC_SPAN_COPY_4 EMITC_SPAN_COPY_3 "mov %[a3], %[a0]\n\tmov %[b3], %[b0]\n\t"
#define EMITC_SPAN_OUTPUT_LOCALS_3 \
    const int32_t to_1 = to[1], to_2 = to[2]; \
    int32_t a0, a1, a2, b0, b1, b2;
#define EMITC_SPAN_OUTPUT_LOCALS_4 \
    const int32_t to_1 = to[1], to_2 = to[2], to_3 = to[3]; \
    int32_t a0, a1, a2, a3, b0, b1, b2, b3;
#define EMITC_SPAN_PLACES_3 [to_1] "m"(to_1), [to_2] "m"(to_2)
#define EMITC_SPAN_PLACES_4 EMITC_SPAN_PLACES_3, [to_3] "m"(to_3)

/* A function that makes the outputs of three or four pixels and of `pairs` pairs of channels. output: EMITC_TILE_UP or
 * EMITC_TILE_AWAY. factors, more: EMITC_SPAN_NEXT twice, or EMITC_SPAN_SHARED and nothing. offset: 2 * zero point + 1.
 * to: where each pixel's output is, from y on. Returns the weights that follow. */
#define EMITC_SPAN_OUTPUTS(name, pixels, row, pitch, output, factors, more) \
    static inline const int8_t *name( \
        const uint32_t *values, const uint32_t *end, const int8_t *w, const int32_t *bias, int32_t pairs, \
        const int32_t *q31, const int8_t *right, int32_t offset, int8_t *y, const int32_t *to) \
    { \
        const int32_t *const last = bias + 2 * pairs; \
        const uint32_t *x; \
        EMITC_SPAN_REGISTERS_##pixels \
        EMITC_SPAN_OUTPUT_LOCALS_##pixels \
        __asm__ volatile( \
            "2:\n\t" \
            "ldr %[p], %[bias]\n\t" \
            "ldrd %[a0], %[b0], [%[p]], #8\n\t" \
            "str %[p], %[bias]\n\t" \
            EMITC_SPAN_COPY_##pixels \
            "ldr %[x], %[values]\n" \
            EMITC_SPAN_ROWS(row, pitch) \
            "ldr %[x], %[y]\n\t" \
            factors EMITC_SPAN_STORE_##pixels(output, a) more EMITC_SPAN_STORE_##pixels(output, b) \
            "str %[x], %[y]\n\t" \
            "ldr %[p], %[bias]\n\t" \
            "ldr %[q], %[last]\n\t" \
            "cmp %[p], %[q]\n\t" \
            "bne 2b" \
            : EMITC_SPAN_OPERANDS_##pixels("=&r", a, b, "=&r"), [bias] "+m"(bias), [q31] "+m"(q31), \
              [right] "+m"(right), [y] "+m"(y) \
            : [values] "m"(values), [end] "m"(end), [last] "m"(last), [offset] "m"(offset), EMITC_SPAN_PLACES_##pixels \
            : "cc", "memory"); \
        return w; \
    }
#endif

#endif
