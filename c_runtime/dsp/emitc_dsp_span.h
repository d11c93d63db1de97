/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: the inner loops of convolutions whose neighbouring windows overlap.
 *
 * Part of a package whose kernels use it; see emitc_dsp_pixels.h. A kernel prints its loops for the size of its window.
 * It states the words of one row of the windows, each by one of the macros below.
 * Their names in the assembly: a0 to a3 and b0 to b3 are the sums of the pixels, for the first channel and for the
 * second one; x is the place in the widened values, w the place in the weights.
 */
#ifndef EMITC_DSP_SPAN_H
#define EMITC_DSP_SPAN_H

#include "emitc_dsp_pixels.h"

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
/* Adds the products of the pair of values in the register `from` to both sums of a pixel. */
#define EMITC_SPAN_MAC(pixel, from) \
    "smlad %[a" #pixel "], %[" #from "], %[even], %[a" #pixel "]\n\t" \
    "smlad %[b" #pixel "], %[" #from "], %[odd], %[b" #pixel "]\n\t"
#define EMITC_SPAN_WEIGHTS(number) "ldr %[odd], [%[w], #4*" #number "]\n\t"
#define EMITC_SPAN_VALUES(to, at) "ldr %[" #to "], [%[x], #" at "]\n\t"
#define EMITC_SPAN_WIDEN(joined) "sxtb16 %[even], %[odd]\n\t" EMITC_TILE_WIDEN_##joined

/* One word of weights meets the values of four pixels, or of three. joined: 1 where the weights are. number: of the
 * word in the row. at: bytes from x to the first pixel's values. pitch: bytes from a pixel's to the next one's. */
#if !defined(EMITC_SPAN_4) /* where the core begins one instruction in a cycle: see emitc_dsp_dual.h */
#define EMITC_SPAN_4(joined, number, at, pitch) \
    EMITC_SPAN_WEIGHTS(number) EMITC_SPAN_VALUES(p, #at) EMITC_SPAN_VALUES(q, #at "+" #pitch) EMITC_SPAN_WIDEN(joined) \
    EMITC_SPAN_MAC(0, p) EMITC_SPAN_MAC(1, q) \
    EMITC_SPAN_VALUES(p, #at "+2*" #pitch) EMITC_SPAN_VALUES(q, #at "+3*" #pitch) \
    EMITC_SPAN_MAC(2, p) EMITC_SPAN_MAC(3, q)
/* Of three pixels there is no fourth sum, whose register takes values. */
#define EMITC_SPAN_3(joined, number, at, pitch) \
    EMITC_SPAN_WEIGHTS(number) EMITC_SPAN_VALUES(p, #at) EMITC_SPAN_VALUES(q, #at "+" #pitch) \
    EMITC_SPAN_VALUES(a3, #at "+2*" #pitch) EMITC_SPAN_WIDEN(joined) \
    EMITC_SPAN_MAC(0, p) EMITC_SPAN_MAC(1, q) EMITC_SPAN_MAC(2, a3)
/* The same of three pixels at a distance of one word: the first two words are there, and the third one is loaded. The
 * registers change places from one word to the next. A row begins with EMITC_SPAN_SLIDE. */
#define EMITC_SPAN_SLIDE_3(joined, number, first, second, third) \
    EMITC_SPAN_WEIGHTS(number) EMITC_SPAN_VALUES(third, "4*" #number "+8") EMITC_SPAN_WIDEN(joined) \
    EMITC_SPAN_MAC(0, first) EMITC_SPAN_MAC(1, second) EMITC_SPAN_MAC(2, third)
#endif
/* Where the first two words of a row are loaded. */
#define EMITC_SPAN_SLIDE EMITC_SPAN_VALUES(p, "0") EMITC_SPAN_VALUES(q, "4")
/* All rows of the windows, of `pitch` words each, which meet `words` words of weights each. */
#define EMITC_SPAN_ROWS(row, pitch, words) \
    EMITC_TILE_COPY \
    "1:\n\t" row \
    "add %[w], %[w], #4*" #words "\n\t" \
    "add %[x], %[x], #4*" #pitch "\n\t" \
    "ldr %[p], %[end]\n\t" \
    "cmp %[x], %[p]\n\t" \
    "bne 1b\n\t"
/* The same in its operands, from the sums a and b on. */
#define EMITC_SPAN_ADD(row, pitch, words) \
    __asm__ volatile(EMITC_SPAN_ROWS(row, pitch, words) \
        : EMITC_TILE_REGISTERS("+", a, b) : [end] "m"(end) : "cc", "memory");
/* What the loop reads, as EMITC_PIXELS takes it. words: rows of the windows. */
#define EMITC_SPAN_PLACES(pitch) const uint32_t *const end = x + (pitch) * words;
#endif

#endif
