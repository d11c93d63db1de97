/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the CORE-V extension of RISC-V: rows of outputs of 3x3 windows, from planes of one channel.
 *
 * Part of a package whose kernels use it; emitc_xpulp.h says what other cores compile.
 */
#ifndef EMITC_XPULP_WINDOWS_H
#define EMITC_XPULP_WINDOWS_H

#include "emitc_xpulp.h"

/* A filter of 3x3 weights, in words of a row each, and what makes outputs of its sums: a short multiplier in two parts,
 * or a Q31 one as `high`, what is added to the product, and the shift. */
typedef struct emitc_filter3x3 {
    uint32_t w0;
    uint32_t w1;
    uint32_t w2;
    int32_t bias;
    int32_t low;
    int32_t high;
    int32_t right;
    int32_t start;
} emitc_filter3x3;

/* The output of the window at `at`, from whose rows to the next ones it is `down` bytes. */
EMITC_ALWAYS_INLINE int8_t emitc_xpulp_window(
    const emitc_filter3x3 *f, const int8_t *at, int32_t down, int32_t is_short)
{
    int32_t acc = emitc_xpulp_dot(f->bias, emitc_xpulp_word(at), f->w0);
    at += down;
    acc = emitc_xpulp_dot(acc, emitc_xpulp_word(at), f->w1);
    at += down;
    acc = emitc_xpulp_dot(acc, emitc_xpulp_word(at), f->w2);
    if (is_short) {
        return emitc_xpulp_result(acc, f->low, f->high, f->right, f->start);
    }
    return emitc_xpulp_narrowed(emitc_scalar_high(4 * acc, f->high), f->start, f->right);
}

/* The last one is cv.mac. */
#define EMITC_CV_SCALED(to, acc) \
    "mul %[" #to "], %[" #acc "], %[low]\n\tsrai %[" #to "], %[" #to "], 13\n\t" \
    ".insn r 0x2b, 3, 0x48, %[" #to "], %[" #acc "], %[high]\n\t"
#define EMITC_CV_SCALED_LONG(to, acc) \
    "slli %[" #acc "], %[" #acc "], 2\n\tmulh %[" #to "], %[" #acc "], %[high]\n\t"
/* cv.addnr, cv.clip, and cv.sb with a step. */
#define EMITC_CV_RESULT(acc) \
    ".insn r 0x2b, 3, 0x40, %[" #acc "], %[start], %[right]\n\t" \
    ".insn r 0x2b, 3, 0x38, %[" #acc "], %[" #acc "], x8\n\t" \
    ".insn r 0x2b, 3, 0x10, %[step], %[y], %[" #acc "]\n\t"

#define EMITC_CV_WINDOWS(end, scaled) \
    __asm__ volatile( \
        EMITC_CV_LOOP(n, end) \
        EMITC_CV_LW_BY(v0, at, down) \
        EMITC_CV_LW_BY(v1, at, down) \
        EMITC_CV_LW_BY(v2, at, back) \
        "mv %[acc], %[bias]\n\t" \
        EMITC_CV_DOT(acc, v0, w0) \
        EMITC_CV_DOT(acc, v1, w1) \
        EMITC_CV_DOT(acc, v2, w2) \
        scaled(v0, acc) \
        EMITC_CV_RESULT(v0) \
        EMITC_CV_LOOP_END \
        : [v0] "=&r"(v0), [v1] "=&r"(v1), [v2] "=&r"(v2), [acc] "=&r"(acc), [at] "+r"(at), [y] "+r"(y) \
        : [n] "r"(n), [w0] "r"(f->w0), [w1] "r"(f->w1), [w2] "r"(f->w2), [bias] "r"(f->bias), [low] "r"(f->low), \
          [high] "r"(f->high), [start] "r"(f->start), [right] "r"(f->right), [down] "r"(down), \
          [back] "r"(stride - 2 * down), [step] "r"(step) \
        : "memory")

/* n > 0 outputs of a row, `stride` values of `at` from each other; returns where the next one goes. */
EMITC_ALWAYS_INLINE int8_t *emitc_xpulp_windows(const emitc_filter3x3 *f, const int8_t *at, int32_t down,
    int32_t stride, int8_t *y, int32_t step, int32_t n, int32_t is_short)
{
#if EMITC_XPULP_LOOPS
    uint32_t v0;
    uint32_t v1;
    uint32_t v2;
    int32_t acc;
    if (is_short) {
        EMITC_CV_WINDOWS(14, EMITC_CV_SCALED);
    } else {
        EMITC_CV_WINDOWS(13, EMITC_CV_SCALED_LONG);
    }
#else
    for (; n > 0; n--) {
        y = emitc_xpulp_stored(y, emitc_xpulp_window(f, at, down, is_short), step);
        at += stride;
    }
#endif
    return y;
}

/* The same of n outputs by short multipliers whose stride is 1: a word has the values of two windows. */
EMITC_ALWAYS_INLINE int8_t *emitc_xpulp_window_pairs(
    const emitc_filter3x3 *f, const int8_t *at, int32_t down, int8_t *y, int32_t step, int32_t n)
{
    const int32_t pairs = n >> 1;
#if EMITC_XPULP_LOOPS
    if (pairs > 0) {
        uint32_t v0;
        uint32_t v1;
        uint32_t v2;
        int32_t first;
        int32_t second;
        __asm__ volatile(
            EMITC_CV_LOOP(pairs, 24)
            EMITC_CV_LW_BY(v0, at, down)
            EMITC_CV_LW_BY(v1, at, down)
            EMITC_CV_LW_BY(v2, at, back)
            "mv %[first], %[bias]\n\t"
            "mv %[second], %[bias]\n\t"
            EMITC_CV_DOT(first, v0, w0)
            EMITC_CV_DOT(second, v0, u0)
            EMITC_CV_DOT(first, v1, w1)
            EMITC_CV_DOT(second, v1, u1)
            EMITC_CV_DOT(first, v2, w2)
            EMITC_CV_DOT(second, v2, u2)
            EMITC_CV_SCALED(v0, first)
            EMITC_CV_RESULT(v0)
            EMITC_CV_SCALED(v1, second)
            EMITC_CV_RESULT(v1)
            EMITC_CV_LOOP_END
            : [v0] "=&r"(v0), [v1] "=&r"(v1), [v2] "=&r"(v2), [first] "=&r"(first), [second] "=&r"(second),
              [at] "+r"(at), [y] "+r"(y)
            : [pairs] "r"(pairs), [w0] "r"(f->w0), [w1] "r"(f->w1), [w2] "r"(f->w2), [u0] "r"(f->w0 << 8),
              [u1] "r"(f->w1 << 8), [u2] "r"(f->w2 << 8), [bias] "r"(f->bias), [low] "r"(f->low), [high] "r"(f->high),
              [start] "r"(f->start), [right] "r"(f->right), [down] "r"(down), [back] "r"(2 - 2 * down), [step] "r"(step)
            : "memory");
    }
#else
    emitc_filter3x3 next = *f;
    next.w0 <<= 8;
    next.w1 <<= 8;
    next.w2 <<= 8;
    for (int32_t pair = 0; pair < pairs; pair++) {
        y = emitc_xpulp_stored(y, emitc_xpulp_window(f, at, down, 1), step);
        y = emitc_xpulp_stored(y, emitc_xpulp_window(&next, at, down, 1), step);
        at += 2;
    }
#endif
    if ((n & 1) != 0) {
        y = emitc_xpulp_stored(y, emitc_xpulp_window(f, at, down, 1), step);
    }
    return y;
}

#endif
