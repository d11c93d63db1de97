/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with thirty-one registers and no instructions for pairs or vectors (RV32IM): eight filters of a row.
 *
 * Part of a package whose kernels use it. Every core compiles the same functions, with the same results.
 *
 * A byte is a weight plus 128. The bytes of eight filters for one value lie next to each other, in two words. Of a word
 * b0 + 2^8 * b1 + 2^16 * b2 + 2^24 * b3, a mask leaves b0 + 2^16 * b2, and a shift leaves b1 + 2^8 * b2 + 2^16 * b3. A
 * value times each of them holds the products of two filters in 16 bits each, and those of b2 once more between them.
 * The products of eight values are added before they are split: with the weights themselves they have 16 bits together.
 * So 128 times the sum of the eight values is subtracted first, once for each byte. What b2 has between the other two
 * is known from the first word by then.
 */
#ifndef EMITC_SCALAR_EIGHTS_H
#define EMITC_SCALAR_EIGHTS_H

#include "emitc_scalar.h"

#if defined(EMITC_SCALAR_RV32)
/* The two words of value k, at first, and added to what there is. t3: the value; t4, t5: words of weights. */
#define EMITC_EIGHTS_READ(k, value) \
    "lb " value ", " #k "(%[x])\n\t" \
    "lw t4, 8*" #k "(%[w])\n\t" \
    "lw t5, 8*" #k "+4(%[w])\n\t"
#define EMITC_EIGHTS_FIRST \
    EMITC_EIGHTS_READ(0, "ra") \
    "and %[e0], t4, t0\n\t" \
    "srli t4, t4, 8\n\t" \
    "mul %[e0], %[e0], ra\n\t" \
    "mul %[o0], t4, ra\n\t" \
    "and %[e1], t5, t0\n\t" \
    "srli t5, t5, 8\n\t" \
    "mul %[e1], %[e1], ra\n\t" \
    "mul %[o1], t5, ra\n\t"
#define EMITC_EIGHTS_WORD(word, e, o) \
    "and t6, " word ", t0\n\t" \
    "srli " word ", " word ", 8\n\t" \
    "mul t6, t6, t3\n\t" \
    "mul " word ", " word ", t3\n\t" \
    "add %[" e "], %[" e "], t6\n\t" \
    "add %[" o "], %[" o "], " word "\n\t"
#define EMITC_EIGHTS_NEXT(k) \
    EMITC_EIGHTS_READ(k, "t3") \
    "add ra, ra, t3\n\t" \
    EMITC_EIGHTS_WORD("t4", "e0", "o0") \
    EMITC_EIGHTS_WORD("t5", "e1", "o1")
/* The running sums of a word and of its upper half, without what the bytes are larger than the weights by. */
#define EMITC_EIGHTS_SPLIT(e, o, even, even_high, odd, odd_high) \
    "add %[" e "], %[" e "], t3\n\t" \
    "add %[" o "], %[" o "], t4\n\t" \
    "add %[" even "], %[" even "], %[" e "]\n\t" \
    "srai %[" e "], %[" e "], 16\n\t" \
    "add %[" even_high "], %[" even_high "], %[" e "]\n\t" \
    "slli %[" e "], %[" e "], 8\n\t" \
    "sub %[" o "], %[" o "], %[" e "]\n\t" \
    "add %[" odd "], %[" odd "], %[" o "]\n\t" \
    "srai %[" o "], %[" o "], 16\n\t" \
    "add %[" odd_high "], %[" odd_high "], %[" o "]\n\t"
#endif

/* acc = bias + the products of n values and the weights of eight filters; returns where the next filters are. n: a
 * multiple of 8, > 0. */
EMITC_ALWAYS_INLINE const int8_t *emitc_eights_sums(
    int32_t *acc, const int32_t *bias, const int8_t *x, const int8_t *w, int32_t n)
{
#if defined(EMITC_SCALAR_RV32)
    const uint32_t halves = (uint32_t)n * (EMITC_HALF / 8u);
    int32_t a1 = bias[2];
    int32_t b1 = bias[3];
    int32_t c1 = bias[6];
    int32_t d1 = bias[7];
    uint32_t a0 = (uint32_t)bias[0] + ((uint32_t)a1 << 16) - halves;
    uint32_t b0 = (uint32_t)bias[1] + ((uint32_t)b1 << 16) - halves;
    uint32_t c0 = (uint32_t)bias[4] + ((uint32_t)c1 << 16) - halves;
    uint32_t d0 = (uint32_t)bias[5] + ((uint32_t)d1 << 16) - halves;
    uint32_t e0;
    uint32_t e1;
    uint32_t o0;
    uint32_t o1;
    __asm__(
        "li t0, 0x00ff00ff\n\t"
        "li t1, 0x00800080\n\t"
        "li t2, 0x8000\n"
        "1:\n\t"
        EMITC_EIGHTS_FIRST
        EMITC_EIGHTS_NEXT(1)
        EMITC_EIGHTS_NEXT(2)
        EMITC_EIGHTS_NEXT(3)
        EMITC_EIGHTS_NEXT(4)
        EMITC_EIGHTS_NEXT(5)
        EMITC_EIGHTS_NEXT(6)
        EMITC_EIGHTS_NEXT(7)
        "addi %[x], %[x], 8\n\t"
        "addi %[w], %[w], 64\n\t"
        "mul t3, ra, t1\n\t"
        "slli t4, ra, 15\n\t"
        "sub t3, t2, t3\n\t"
        "sub t4, t3, t4\n\t"
        EMITC_EIGHTS_SPLIT("e0", "o0", "a0", "a1", "b0", "b1")
        EMITC_EIGHTS_SPLIT("e1", "o1", "c0", "c1", "d0", "d1")
        "bne %[x], %[end], 1b\n\t"
        : [a0] "+r"(a0), [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1), [c0] "+r"(c0), [c1] "+r"(c1), [d0] "+r"(d0),
          [d1] "+r"(d1), [w] "+r"(w), [e0] "=&r"(e0), [e1] "=&r"(e1), [o0] "=&r"(o0), [o1] "=&r"(o1), [x] "+r"(x)
        : [end] "r"(x + n)
        : "ra", "t0", "t1", "t2", "t3", "t4", "t5", "t6", "memory");
    acc[0] = (int32_t)(a0 - ((uint32_t)a1 << 16));
    acc[1] = (int32_t)(b0 - ((uint32_t)b1 << 16));
    acc[2] = a1;
    acc[3] = b1;
    acc[4] = (int32_t)(c0 - ((uint32_t)c1 << 16));
    acc[5] = (int32_t)(d0 - ((uint32_t)d1 << 16));
    acc[6] = c1;
    acc[7] = d1;
#else
    memcpy(acc, bias, 8 * sizeof *acc);
    for (; n > 0; n--) {
        const int32_t value = *x++;
        for (int32_t filter = 0; filter < 8; filter++) {
            acc[filter] += value * ((int32_t)(uint8_t)*w++ - 128);
        }
    }
#endif
    return w;
}

#endif
