/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the CORE-V extension of RISC-V (CV32E40P with COREV_PULP, once called Xpulp): four products of
 * bytes in one instruction, loads that move their pointer on, and loops without branches.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C, with the same results.
 * So a package can be proved and stepped through on a host. Compilers without the extension assemble the instructions
 * too: they are written by their fields. So the option EMITC_XPULP_CORE says that the core has them where the compiler
 * does not.
 *
 * The registers of hardware loop 0 belong to the code that runs: an interrupt handler that uses hardware loops saves
 * them. Words are loaded from any address; the core takes a cycle more where one is no multiple of four.
 */
#ifndef EMITC_XPULP_H
#define EMITC_XPULP_H

#include "emitc_scalar.h"

#if EMITC_ASM && defined(__riscv) && __riscv_xlen == 32 && (defined(__riscv_xcvsimd) || defined(EMITC_XPULP_CORE))
#define EMITC_XPULP 1
#else
#define EMITC_XPULP 0
#endif
/* Loops in assembly need all registers but one, which only optimizing compilers have free. */
#if EMITC_XPULP && defined(__OPTIMIZE__)
#define EMITC_XPULP_LOOPS 1
#else
#define EMITC_XPULP_LOOPS 0
#endif

/* cv.setup 0, count, instructions + 1; cv.lw to, (from), 4; cv.lw to, (from), step; cv.sw from, (to), 4;
 * cv.sw from, (to), step; cv.sdotsp.b sum, a, b; cv.shuffle2.b to, a, places; cv.pack (0x78) or cv.pack.h (0x79). */
#define EMITC_CV_LOOP(count, end) \
    ".balign 4\n\t.option push\n\t.option norvc\n\t.insn i 0x2b, 4, x14, %[" #count "], " #end "\n\t"
#define EMITC_CV_LOOP_END ".option pop"
#define EMITC_CV_LW(to, from) ".insn i 0x0b, 2, %[" #to "], %[" #from "], 4\n\t"
#define EMITC_CV_LW_BY(to, from, step) ".insn r 0x2b, 3, 2, %[" #to "], %[" #from "], %[" #step "]\n\t"
#define EMITC_CV_SW(from, to) ".insn s 0x2b, 2, %[" #from "], 4(%[" #to "])\n\t"
#define EMITC_CV_SW_BY(from, to, step) ".insn r 0x2b, 3, 0x12, %[" #step "], %[" #to "], %[" #from "]\n\t"
#define EMITC_CV_SHUFFLE(to, a, places) ".insn r 0x7b, 1, 0x70, %[" #to "], %[" #a "], %[" #places "]\n\t"
#define EMITC_CV_PACK(to, a, b, which) ".insn r 0x7b, 0, " which ", %[" #to "], %[" #a "], %[" #b "]\n\t"
#define EMITC_CV_DOT(sum, a, b) ".insn r 0x7b, 1, 0x54, %[" #sum "], %[" #a "], %[" #b "]\n\t"

/* Four bytes as they lie in memory. */
EMITC_ALWAYS_INLINE uint32_t emitc_xpulp_word(const int8_t *from)
{
    uint32_t word;
#if EMITC_XPULP
    struct four {
        int8_t bytes[4];
    };
    __asm__("lw %0, %1" : "=r"(word) : "m"(*(const struct four *)(const void *)from));
#else
    memcpy(&word, from, sizeof word);
#endif
    return word;
}

/* The same of `offset` bytes farther. */
EMITC_ALWAYS_INLINE uint32_t emitc_xpulp_word_at(const int8_t *from, int32_t offset)
{
#if EMITC_XPULP
    uint32_t word;
    __asm__ volatile(".insn r 0x2b, 3, 6, %0, %1, %2" : "=r"(word) : "r"(from), "r"(offset) : "memory");
    return word;
#else
    return emitc_xpulp_word(from + offset);
#endif
}

EMITC_ALWAYS_INLINE void emitc_xpulp_store(int8_t *to, uint32_t word)
{
#if EMITC_XPULP
    struct four {
        int8_t bytes[4];
    };
    __asm__("sw %1, %0" : "=m"(*(struct four *)(void *)to) : "r"(word));
#else
    memcpy(to, &word, sizeof word);
#endif
}

/* acc + the four products of the bytes. */
EMITC_ALWAYS_INLINE int32_t emitc_xpulp_dot(int32_t acc, uint32_t a, uint32_t b)
{
#if EMITC_XPULP
    __asm__(".insn r 0x7b, 1, 0x54, %0, %1, %2" : "+r"(acc) : "r"(a), "r"(b));
#else
    for (int32_t right = 0; right < 32; right += 8) {
        acc += (int8_t)(uint8_t)(a >> right) * (int8_t)(uint8_t)(b >> right);
    }
#endif
    return acc;
}

/* (a + b) >> right, as the nearest of -128..127: cv.addNr and cv.clip. */
EMITC_ALWAYS_INLINE int8_t emitc_xpulp_narrowed(int32_t a, int32_t b, int32_t right)
{
#if EMITC_XPULP
    __asm__(".insn r 0x2b, 3, 0x40, %0, %1, %2" : "+r"(a) : "r"(b), "r"(right));
    __asm__(".insn r 0x2b, 3, 0x38, %0, %1, x8" : "=r"(a) : "r"(a));
    return (int8_t)a;
#else
    return (int8_t)emitc_nearest_s8((a + b) >> right);
#endif
}

/* Stores an output, and returns where the next pixel's goes. */
EMITC_ALWAYS_INLINE int8_t *emitc_xpulp_stored(int8_t *y, int8_t value, int32_t step)
{
#if EMITC_XPULP
    __asm__ volatile(".insn r 0x2b, 3, 0x10, %2, %0, %1" : "+r"(y) : "r"(value), "r"(step) : "memory");
    return y;
#else
    *y = value;
    return y + step;
#endif
}

/* emitc_result_up and emitc_result_away by these instructions. */
EMITC_ALWAYS_INLINE int8_t emitc_result_up_xpulp(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    return emitc_xpulp_narrowed(emitc_scalar_high(4 * acc, q31), start, right + 1);
}

EMITC_ALWAYS_INLINE int8_t emitc_result_away_xpulp(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    const int32_t scaled = (emitc_scalar_high(4 * acc, q31) + 1) >> 1;
    return emitc_xpulp_narrowed(scaled + (scaled >> 31), start >> 1, right);
}

/* acc + a * b */
EMITC_ALWAYS_INLINE int32_t emitc_xpulp_mac(int32_t acc, int32_t a, int32_t b)
{
#if EMITC_XPULP
    __asm__(".insn r 0x2b, 3, 0x48, %0, %1, %2" : "+r"(acc) : "r"(a), "r"(b));
    return acc;
#else
    return acc + a * b;
#endif
}

/* The parts of a short multiplier, each of 16 bits with a sign: it is high * 2^13 + low. They are read in this order,
 * so that neither is used at once. */
EMITC_ALWAYS_INLINE int32_t emitc_xpulp_low(const int32_t *multiplier)
{
#if EMITC_XPULP
    int32_t low;
    __asm__ volatile("lh %0, %1" : "=r"(low) : "m"(*multiplier));
    return low;
#else
    return (int16_t)(uint16_t)((uint32_t)*multiplier & 0xffffu);
#endif
}

EMITC_ALWAYS_INLINE int32_t emitc_xpulp_high(const int32_t *multiplier)
{
#if EMITC_XPULP
    struct two {
        int8_t bytes[2];
    };
    int32_t high;
    __asm__ volatile("lh %0, %1"
                     : "=r"(high)
                     : "m"(*(const struct two *)((const int8_t *)multiplier + 2)), "m"(*multiplier));
    return high;
#else
    return *multiplier >> 16;
#endif
}

/* A start for short multipliers: with half a unit of the Q31 product, of which a multiplier without its last `dropped`
 * bits leaves 18 - dropped. */
EMITC_ALWAYS_INLINE int32_t emitc_xpulp_start(int32_t start, int32_t dropped)
{
    return (start + (1 << (18 - dropped))) >> 1;
}

/* emitc_result_up_xpulp by two short products, each a cycle where the upper half of a long one takes five. acc under
 * 2^19; the compiler has made the multiplier short for these sums. `right` is for what the first 13 bits leave. */
EMITC_ALWAYS_INLINE int8_t emitc_xpulp_result(int32_t acc, int32_t low, int32_t high, int32_t right, int32_t start)
{
    return emitc_xpulp_narrowed(emitc_xpulp_mac((acc * low) >> 13, acc, high), start, right);
}

EMITC_ALWAYS_INLINE int8_t emitc_result_up_xpulp_small(int32_t acc, int32_t q31, int32_t right, int32_t start)
{
    return emitc_xpulp_result(acc, emitc_xpulp_low(&q31), emitc_xpulp_high(&q31), right, emitc_xpulp_start(start, 6));
}

/* Copies n bytes, and returns where the next ones go. */
EMITC_ALWAYS_INLINE int8_t *emitc_xpulp_copied(int8_t *to, const int8_t *from, int32_t n)
{
#if EMITC_XPULP_LOOPS
    const int32_t pairs = n >> 3;
    if (__builtin_constant_p(n) && pairs == 1) { /* no loop to set up */
        const uint32_t first = emitc_xpulp_word(from);
        const uint32_t second = emitc_xpulp_word(from + 4);
        emitc_xpulp_store(to, first);
        emitc_xpulp_store(to + 4, second);
        from += 8;
        to += 8;
    } else if (pairs > 0) {
        int32_t v0;
        int32_t v1;
        __asm__ volatile(
            EMITC_CV_LOOP(pairs, 5)
            EMITC_CV_LW(v0, from)
            EMITC_CV_LW(v1, from)
            EMITC_CV_SW(v0, to)
            EMITC_CV_SW(v1, to)
            EMITC_CV_LOOP_END
            : [v0] "=&r"(v0), [v1] "=&r"(v1), [from] "+r"(from), [to] "+r"(to)
            : [pairs] "r"(pairs)
            : "memory");
    }
    if ((n & 4) != 0) {
        emitc_xpulp_store(to, emitc_xpulp_word(from));
        from += 4;
        to += 4;
    }
    if ((n & 2) != 0) {
        int32_t half;
        __asm__ volatile("lh %0, 0(%1)\n\tsh %0, 0(%2)" : "=&r"(half) : "r"(from), "r"(to) : "memory");
        from += 2;
        to += 2;
    }
    if ((n & 1) != 0) {
        *to++ = *from;
    }
    return to;
#else
    memcpy(to, from, (size_t)n);
    return to + n;
#endif
}

/* n bytes of one value; returns where the next ones go. */
EMITC_ALWAYS_INLINE int8_t *emitc_xpulp_filled(int8_t *to, int32_t value, int32_t n)
{
#if EMITC_XPULP_LOOPS
    const uint32_t word = ((uint32_t)value & 0xffu) * 0x01010101u;
    const int32_t pairs = n >> 3;
    if (pairs > 0) {
        __asm__ volatile(
            EMITC_CV_LOOP(pairs, 4)
            EMITC_CV_SW(word, to)
            EMITC_CV_SW(word, to)
            "nop\n\t" /* a loop has three instructions or more */
            EMITC_CV_LOOP_END
            : [to] "+r"(to)
            : [pairs] "r"(pairs), [word] "r"(word)
            : "memory");
    }
    if ((n & 4) != 0) {
        emitc_xpulp_store(to, word);
        to += 4;
    }
    n &= 3;
    for (; n > 0; n--) {
        *to++ = (int8_t)value;
    }
    return to;
#else
    if (n > 0) { /* gcc -O3 warns of the size without it */
        memset(to, value, (size_t)n);
    }
    return to + n;
#endif
}

/* y = (bias + a * a_weight + b * b_weight) >> right, limited to low..high, of n > 0 elements. y may lie over a or b. */
EMITC_ALWAYS_INLINE void emitc_xpulp_weighted(const int8_t *a, const int8_t *b, int8_t *y, int32_t n, int32_t bias,
    int32_t a_weight, int32_t b_weight, int32_t right, int32_t low, int32_t high)
{
#if EMITC_XPULP_LOOPS
    int32_t v;
    int32_t u;
    int32_t sum;
    __asm__ volatile(
        EMITC_CV_LOOP(n, 10)
        ".insn i 0x0b, 0, %[v], %[a], 1\n\t" /* cv.lb v, (a), 1 */
        ".insn i 0x0b, 0, %[u], %[b], 1\n\t"
        "mv %[sum], %[bias]\n\t"
        ".insn r 0x2b, 3, 0x48, %[sum], %[v], %[a_weight]\n\t" /* cv.mac */
        ".insn r 0x2b, 3, 0x48, %[sum], %[u], %[b_weight]\n\t"
        "sra %[sum], %[sum], %[right]\n\t"
        ".insn r 0x2b, 3, 0x2d, %[sum], %[sum], %[low]\n\t"  /* cv.max */
        ".insn r 0x2b, 3, 0x2b, %[sum], %[sum], %[high]\n\t" /* cv.min */
        ".insn s 0x2b, 0, %[sum], 1(%[y])\n\t"               /* cv.sb sum, (y), 1 */
        EMITC_CV_LOOP_END
        : [v] "=&r"(v), [u] "=&r"(u), [sum] "=&r"(sum), [a] "+r"(a), [b] "+r"(b), [y] "+r"(y)
        : [n] "r"(n), [bias] "r"(bias), [a_weight] "r"(a_weight), [b_weight] "r"(b_weight), [right] "r"(right),
          [low] "r"(low), [high] "r"(high)
        : "memory");
#else
    for (; n > 0; n--) {
        const int32_t sum = (bias + *a++ * a_weight + *b++ * b_weight) >> right;
        *y++ = (int8_t)emitc_clamp(sum, low, high);
    }
#endif
}

/* Four channels of 4 * quads pixels, `step` bytes from each other, as a row of values of each: that of the next
 * channel lies `plane` bytes farther. */
EMITC_ALWAYS_INLINE void emitc_xpulp_planes(int8_t *to, int32_t plane, const int8_t *x, int32_t step, int32_t quads)
{
#if EMITC_XPULP_LOOPS
    const int32_t back = 4 - 3 * plane;
    int32_t v0;
    int32_t v1;
    int32_t v2;
    int32_t v3;
    int32_t low;
    int32_t high;
    __asm__ volatile(
        EMITC_CV_LOOP(quads, 19)
        EMITC_CV_LW_BY(v0, x, step)
        EMITC_CV_LW_BY(v1, x, step)
        EMITC_CV_LW_BY(v2, x, step)
        EMITC_CV_LW_BY(v3, x, step)
        "mv %[low], %[v0]\n\t"
        "mv %[high], %[v2]\n\t"
        EMITC_CV_SHUFFLE(low, v1, lows) /* channels 0 and 1 of pixels 0 and 1 */
        EMITC_CV_SHUFFLE(v0, v1, highs) /* channels 2 and 3 of them */
        EMITC_CV_SHUFFLE(high, v3, lows)
        EMITC_CV_SHUFFLE(v2, v3, highs)
        EMITC_CV_PACK(v1, high, low, "0x78")
        EMITC_CV_PACK(low, high, low, "0x79")
        EMITC_CV_PACK(high, v2, v0, "0x78")
        EMITC_CV_PACK(v0, v2, v0, "0x79")
        EMITC_CV_SW_BY(v1, to, plane)
        EMITC_CV_SW_BY(low, to, plane)
        EMITC_CV_SW_BY(high, to, plane)
        EMITC_CV_SW_BY(v0, to, back)
        EMITC_CV_LOOP_END
        : [v0] "=&r"(v0), [v1] "=&r"(v1), [v2] "=&r"(v2), [v3] "=&r"(v3), [low] "=&r"(low), [high] "=&r"(high),
          [x] "+r"(x), [to] "+r"(to)
        : [quads] "r"(quads), [step] "r"(step), [plane] "r"(plane), [back] "r"(back), [lows] "r"(0x05010400),
          [highs] "r"(0x07030602)
        : "memory");
#else
    for (int32_t pixel = 0; pixel < 4 * quads; pixel++) {
        for (int32_t channel = 0; channel < 4; channel++) {
            to[channel * plane + pixel] = x[pixel * step + channel];
        }
    }
#endif
}

/* Sums of four pixels, each a row of four channels. */
typedef struct emitc_sums16 {
    emitc_acc4 p0;
    emitc_acc4 p1;
    emitc_acc4 p2;
    emitc_acc4 p3;
} emitc_sums16;

/* The sums of four channels of four pixels: bias + the products of `words` > 0 words of values. x: the first pixel's
 * values, to which those of the next one are `step` bytes away. *weights: four words for each word of values, past
 * which it is advanced. */
EMITC_ALWAYS_INLINE emitc_sums16 emitc_xpulp_tile(
    const int32_t *bias, const int8_t *x, int32_t step, const int8_t **weights, int32_t words)
{
    const int8_t *w = *weights;
    emitc_sums16 s;
#if EMITC_XPULP_LOOPS
    const int32_t back = 4 - 3 * step;
    int32_t v0 = words;
    int32_t v1 = (int32_t)bias;
    int32_t w0;
    int32_t w1;
    int32_t w2;
    int32_t w3;
    __asm__ volatile(
        "lw %[a0], 0(%[v1])\n\t"
        "lw %[a1], 4(%[v1])\n\t"
        "lw %[a2], 8(%[v1])\n\t"
        "lw %[a3], 12(%[v1])\n\t"
        "mv %[b0], %[a0]\n\t"
        "mv %[c0], %[a0]\n\t"
        "mv %[d0], %[a0]\n\t"
        "mv %[b1], %[a1]\n\t"
        "mv %[c1], %[a1]\n\t"
        "mv %[d1], %[a1]\n\t"
        "mv %[b2], %[a2]\n\t"
        "mv %[c2], %[a2]\n\t"
        "mv %[d2], %[a2]\n\t"
        "mv %[b3], %[a3]\n\t"
        "mv %[c3], %[a3]\n\t"
        "mv %[d3], %[a3]\n\t"
        EMITC_CV_LOOP(v0, 25)
        EMITC_CV_LW(w0, w)
        EMITC_CV_LW(w1, w)
        EMITC_CV_LW(w2, w)
        EMITC_CV_LW(w3, w)
        EMITC_CV_LW_BY(v0, x, step)
        EMITC_CV_LW_BY(v1, x, step)
        EMITC_CV_DOT(a0, v0, w0)
        EMITC_CV_DOT(a1, v0, w1)
        EMITC_CV_DOT(a2, v0, w2)
        EMITC_CV_DOT(a3, v0, w3)
        EMITC_CV_LW_BY(v0, x, step)
        EMITC_CV_DOT(b0, v1, w0)
        EMITC_CV_DOT(b1, v1, w1)
        EMITC_CV_DOT(b2, v1, w2)
        EMITC_CV_DOT(b3, v1, w3)
        EMITC_CV_LW_BY(v1, x, back)
        EMITC_CV_DOT(c0, v0, w0)
        EMITC_CV_DOT(c1, v0, w1)
        EMITC_CV_DOT(c2, v0, w2)
        EMITC_CV_DOT(c3, v0, w3)
        EMITC_CV_DOT(d0, v1, w0)
        EMITC_CV_DOT(d1, v1, w1)
        EMITC_CV_DOT(d2, v1, w2)
        EMITC_CV_DOT(d3, v1, w3)
        EMITC_CV_LOOP_END
        : [a0] "=&r"(s.p0.a0), [a1] "=&r"(s.p0.a1), [a2] "=&r"(s.p0.a2), [a3] "=&r"(s.p0.a3),
          [b0] "=&r"(s.p1.a0), [b1] "=&r"(s.p1.a1), [b2] "=&r"(s.p1.a2), [b3] "=&r"(s.p1.a3),
          [c0] "=&r"(s.p2.a0), [c1] "=&r"(s.p2.a1), [c2] "=&r"(s.p2.a2), [c3] "=&r"(s.p2.a3),
          [d0] "=&r"(s.p3.a0), [d1] "=&r"(s.p3.a1), [d2] "=&r"(s.p3.a2), [d3] "=&r"(s.p3.a3),
          [w0] "=&r"(w0), [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3),
          [v0] "+r"(v0), [v1] "+r"(v1), [w] "+r"(w), [x] "+r"(x)
        : [step] "r"(step), [back] "r"(back)
        : "memory");
    *weights = w;
#else
    emitc_acc4 *const rows[4] = {&s.p0, &s.p1, &s.p2, &s.p3};
    for (int32_t pixel = 0; pixel < 4; pixel++) {
        const emitc_acc4 start = {bias[0], bias[1], bias[2], bias[3]};
        *rows[pixel] = start;
    }
    for (; words > 0; words--) {
        for (int32_t pixel = 0; pixel < 4; pixel++) {
            const uint32_t value = emitc_xpulp_word(x + pixel * step);
            emitc_acc4 *const to = rows[pixel];
            to->a0 = emitc_xpulp_dot(to->a0, value, emitc_xpulp_word(w));
            to->a1 = emitc_xpulp_dot(to->a1, value, emitc_xpulp_word(w + 4));
            to->a2 = emitc_xpulp_dot(to->a2, value, emitc_xpulp_word(w + 8));
            to->a3 = emitc_xpulp_dot(to->a3, value, emitc_xpulp_word(w + 12));
        }
        x += 4;
        w += 16;
    }
    *weights = w;
#endif
    return s;
}

/* The sums of four channels of one pixel: acc + the products of n values. *weights, past which it is advanced: four
 * words for each word of values; what is left of n follows value by value, four channels each. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_xpulp_four(emitc_acc4 acc, const int8_t *x, const int8_t **weights, int32_t n)
{
    const int8_t *w = *weights;
    int32_t words = n >> 2;
#if EMITC_XPULP_LOOPS
    if (words > 0) {
        uint32_t value;
        uint32_t w0;
        uint32_t w1;
        uint32_t w2;
        uint32_t w3;
        __asm__ volatile(
            EMITC_CV_LOOP(words, 10)
            EMITC_CV_LW(value, x)
            EMITC_CV_LW(w0, w)
            EMITC_CV_LW(w1, w)
            EMITC_CV_LW(w2, w)
            EMITC_CV_LW(w3, w)
            EMITC_CV_DOT(a0, value, w0)
            EMITC_CV_DOT(a1, value, w1)
            EMITC_CV_DOT(a2, value, w2)
            EMITC_CV_DOT(a3, value, w3)
            EMITC_CV_LOOP_END
            : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w),
              [value] "=&r"(value), [w0] "=&r"(w0), [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3)
            : [words] "r"(words)
            : "memory");
    }
#else
    for (; words > 0; words--) {
        const uint32_t value = emitc_xpulp_word(x);
        acc.a0 = emitc_xpulp_dot(acc.a0, value, emitc_xpulp_word(w));
        acc.a1 = emitc_xpulp_dot(acc.a1, value, emitc_xpulp_word(w + 4));
        acc.a2 = emitc_xpulp_dot(acc.a2, value, emitc_xpulp_word(w + 8));
        acc.a3 = emitc_xpulp_dot(acc.a3, value, emitc_xpulp_word(w + 12));
        x += 4;
        w += 16;
    }
#endif
    for (n &= 3; n > 0; n--) {
        acc = emitc_mac4(acc, *x++, w);
        w += 4;
    }
    *weights = w;
    return acc;
}

/* acc + the products of `words` words of values and of weights. */
EMITC_ALWAYS_INLINE int32_t emitc_xpulp_sum(int32_t acc, const int8_t *x, const int8_t *w, int32_t words)
{
    for (; words > 0; words--) {
        acc = emitc_xpulp_dot(acc, emitc_xpulp_word(x), emitc_xpulp_word(w));
        x += 4;
        w += 4;
    }
    return acc;
}

#endif
