/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: sums of several pixels and channels at once, with inner loops in assembly
 * where gcc compiles. A gcc that keeps a register for itself, by -fno-omit-frame-pointer or the like, says "impossible
 * constraints": compile without that option, or with EMITC_NO_ASM.
 */
#ifndef EMITC_DSP_TILE_H
#define EMITC_DSP_TILE_H

#include "emitc_dsp.h"

/* The inner loops in assembly take every register, which only an optimizing gcc can give. */
#if EMITC_DSP && defined(__OPTIMIZE__) && !defined(__clang__) && !defined(__ARM_FEATURE_MVE)
#define EMITC_TILE_ASM 1
#else
#define EMITC_TILE_ASM 0
#endif

/* Joined weights: SMLAD takes a word of two channels' weights as it is. Its halves are 256 times the second channel's
 * weight plus the first one's. So 256 times the second sum plus the first one comes of it, modulo 2^32. No second sum
 * needs more than 24 bits: the weights were checked when the model was compiled. */
EMITC_ALWAYS_INLINE int32_t emitc_joined_start(int32_t first, int32_t second)
{
    return (int32_t)((uint32_t)first + ((uint32_t)second << 8));
}

/* acc + both products, modulo 2^32. */
EMITC_ALWAYS_INLINE int32_t emitc_joined_mac(int32_t acc, uint32_t values, uint32_t weights)
{
#if EMITC_DSP
    return emitc_pair_mac(acc, values, weights);
#else
    return (int32_t)((uint32_t)acc + (uint32_t)emitc_pair_mac(0, values, weights));
#endif
}

/* The second sum, from that of both and the first one. */
EMITC_ALWAYS_INLINE int32_t emitc_joined_second(int32_t both, int32_t first)
{
    return (int32_t)((uint32_t)both - (uint32_t)first) >> 8;
}

/* The sums of two pairs of channels, as their products are added to them, and back. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_joined_acc4(emitc_acc4 acc)
{
    acc.a1 = emitc_joined_start(acc.a0, acc.a1);
    acc.a3 = emitc_joined_start(acc.a2, acc.a3);
    return acc;
}

EMITC_ALWAYS_INLINE emitc_acc4 emitc_parted_acc4(emitc_acc4 acc)
{
    acc.a1 = emitc_joined_second(acc.a1, acc.a0);
    acc.a3 = emitc_joined_second(acc.a3, acc.a2);
    return acc;
}

/* acc + the products of a pair of values of one pixel with two words of weights, of two channels each. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_two_words_mac(
    emitc_acc4 acc, uint32_t values, uint32_t first, uint32_t second, const bool joined)
{
    acc.a0 = emitc_pair_mac(acc.a0, values, emitc_even(first));
    acc.a1 = emitc_joined_mac(acc.a1, values, joined ? first : emitc_odd(first));
    acc.a2 = emitc_pair_mac(acc.a2, values, emitc_even(second));
    acc.a3 = emitc_joined_mac(acc.a3, values, joined ? second : emitc_odd(second));
    return acc;
}

#if EMITC_DSP
/* Two values of one pixel meet their weights of four channels, which are in two words and joined. */
#define EMITC_JOINED_WORDS(values, first, second) \
    "smlad %[a1], %[" #values "], %[" #first "], %[a1]\n\t" \
    "smlad %[a3], %[" #values "], %[" #second "], %[a3]\n\t" \
    "sxtb16 %[" #first "], %[" #first "]\n\t" \
    "sxtb16 %[" #second "], %[" #second "]\n\t" \
    "smlad %[a0], %[" #values "], %[" #first "], %[a0]\n\t" \
    "smlad %[a2], %[" #values "], %[" #second "], %[a2]\n\t"
/* Four values meet their weights of four channels. number: of the four in the turn. */
#define EMITC_JOINED_FOUR(number) \
    "ldr.w %[odd], [%[x], #4*" #number "]\n\t" \
    "ldr.w %[first], [%[w], #16*" #number "]\n\t" \
    "ldr.w %[second], [%[w], #16*" #number "+4]\n\t" \
    "ldr.w %[third], [%[w], #16*" #number "+8]\n\t" \
    "ldr.w %[fourth], [%[w], #16*" #number "+12]\n\t" \
    "sxtb16 %[even], %[odd]\n\t" \
    "sxtb16 %[odd], %[odd], ror #8\n\t" \
    EMITC_JOINED_WORDS(even, first, second) EMITC_JOINED_WORDS(odd, third, fourth)
/* A turn of the loop, and its fours; bytes of the code of one. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_JOINED_TURN 1
#define EMITC_JOINED_FOURS EMITC_JOINED_FOUR(0) "add %[x], %[x], #4\n\tadd %[w], %[w], #16\n\t"
#elif !defined(EMITC_JOINED_FOURS) /* else emitc_dsp_dual.h has its own */
#define EMITC_JOINED_TURN 4
#define EMITC_JOINED_FOURS \
    EMITC_JOINED_FOUR(0) EMITC_JOINED_FOUR(1) EMITC_JOINED_FOUR(2) EMITC_JOINED_FOUR(3) \
    "add %[x], %[x], #16\n\tadd %[w], %[w], #64\n\t"
#endif
#define EMITC_JOINED_FOUR_BYTES 76
#if !defined(EMITC_JOINED_TEXT)
#define EMITC_JOINED_TEXT \
    "ldr %[odd], %[skipped]\n\t.p2align 2\n\tadd pc, %[odd]\n\tnop\n" /* from 4 bytes further on */ \
    "1:\n\t" EMITC_JOINED_FOURS "cmp %[x], %[end]\n\tbne 1b"
#define EMITC_JOINED_PLACES \
    const int8_t *const end = x + (n & ~3); \
    x = (const int8_t *)emitc_before(x, 4 * skip); \
    w = (const int8_t *)emitc_before(w, 16 * skip);
#define EMITC_JOINED_READ [end] "r"(end), [skipped] "m"(skipped)
#endif
#endif

#if EMITC_TILE_ASM
/* So many bytes before `place`: where a loop begins that is entered late. Nothing is read there, and the barrier keeps
 * the compiler from taking it for a place in the object. */
EMITC_ALWAYS_INLINE const void *emitc_before(const void *place, int32_t bytes)
{
    uintptr_t address = (uintptr_t)place;
    __asm__("" : "+r"(address));
    return (const void *)(address - (uintptr_t)bytes);
}
#endif

/* emitc_pair_dot4 with joined weights. */
EMITC_ALWAYS_INLINE void emitc_joined_dot4(emitc_acc4 *sums, const int8_t *x, const int8_t *w, int32_t n)
{
    emitc_acc4 acc = *sums;
#if EMITC_TILE_ASM
    if (n >= 4) {
        acc = emitc_joined_acc4(acc);
        const int32_t skip = -(n >> 2) & (EMITC_JOINED_TURN - 1);
        const int32_t skipped = skip * EMITC_JOINED_FOUR_BYTES;
        uint32_t even, odd, first, second, third, fourth;
        EMITC_JOINED_PLACES
        __asm__ volatile(EMITC_JOINED_TEXT
            : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w),
              [even] "=&r"(even), [odd] "=&r"(odd), [first] "=&r"(first), [second] "=&r"(second),
              [third] "=&r"(third), [fourth] "=&r"(fourth)
            : EMITC_JOINED_READ
            : "cc", "memory");
        acc = emitc_parted_acc4(acc);
    }
#else
    acc = emitc_joined_acc4(acc);
    for (int32_t four = n >> 2; four > 0; four--) {
        const uint32_t values = emitc_four(x);
        acc = emitc_two_words_mac(acc, emitc_even(values), emitc_four(w), emitc_four(w + 4), true);
        acc = emitc_two_words_mac(acc, emitc_odd(values), emitc_four(w + 8), emitc_four(w + 12), true);
        x += 4;
        w += 16;
    }
    acc = emitc_parted_acc4(acc);
#endif
    for (int32_t rest = n & 3; rest > 0; rest--) {
        acc = emitc_mac4(acc, *x, w);
        x += 1;
        w += 4;
    }
    *sums = acc;
}

#if EMITC_DSP
/* Two words of the pixel, with two double words of weights. */
#define EMITC_ONE_WORDS(dot) \
    "ldrd %[p], %[q], [%[x]], #8\n\t" \
    "ldrd %[first], %[second], [%[w]], #8\n\t" \
    dot(p) \
    "ldrd %[first], %[second], [%[w]], #8\n\t" \
    dot(q)
#define EMITC_ONE_TEXT(dot) "1:\n\t" EMITC_ONE_WORDS(dot) EMITC_ONE_WORDS(dot) "cmp %[x], %[end]\n\tbne 1b"
#define EMITC_ONE_JOINED(values) EMITC_JOINED_WORDS(values, first, second)
#define EMITC_ONE_OPERANDS \
    : [a0] "+r"(acc.a0), [a1] "+r"(acc.a1), [a2] "+r"(acc.a2), [a3] "+r"(acc.a3), [x] "+r"(x), [w] "+r"(w), \
      [p] "=&r"(p), [q] "=&r"(q), [first] "=&r"(first), [second] "=&r"(second), [pair] "=&r"(pair) \
    : [end] "r"(end) \
    : "cc", "memory"
#endif

/* To the sums of one pixel and four channels adds what emitc_two_more does. x: one word for each double word of
 * weights. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_one_more(
    emitc_acc4 acc, const uint32_t *x, const int8_t **weights, int32_t words, const bool joined)
{
    const int8_t *w = *weights;
    int32_t rest = words;
#if EMITC_DSP
    if (words >= 4) {
        const uint32_t *const end = x + (words & ~3);
        uint32_t p, q, first, second, pair;
        if (joined) {
            __asm__ volatile(EMITC_ONE_TEXT(EMITC_ONE_JOINED) EMITC_ONE_OPERANDS);
        } else {
            __asm__ volatile(EMITC_ONE_TEXT(EMITC_DOT_WORDS) EMITC_ONE_OPERANDS);
        }
        rest = words & 3;
    }
#endif
    for (; rest > 0; rest--) {
        acc = emitc_two_words_mac(acc, x[0], emitc_four(w), emitc_four(w + 4), joined);
        x += 1;
        w += 8;
    }
    *weights = w;
    return acc;
}

/* The same from the bias on. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_one_sums(
    const int32_t *bias, const uint32_t *x, const int8_t **weights, int32_t words, const bool joined)
{
    const emitc_acc4 start = {bias[0], bias[1], bias[2], bias[3]};
    const emitc_acc4 acc = emitc_one_more(joined ? emitc_joined_acc4(start) : start, x, weights, words, joined);
    return joined ? emitc_parted_acc4(acc) : acc;
}

/* Sums of four pixels, for a first channel and for a second one. */
typedef struct emitc_tile {
    int32_t a0;
    int32_t a1;
    int32_t a2;
    int32_t a3;
    int32_t b0;
    int32_t b1;
    int32_t b2;
    int32_t b3;
} emitc_tile;

/* Two pixels and four channels. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tile_of(emitc_acc4 a, emitc_acc4 b)
{
    const emitc_tile t = {a.a0, a.a1, a.a2, a.a3, b.a0, b.a1, b.a2, b.a3};
    return t;
}

/* The second sums, from those of both and the first ones. */
EMITC_ALWAYS_INLINE emitc_tile emitc_parted(emitc_tile t)
{
    t.b0 = emitc_joined_second(t.b0, t.a0);
    t.b1 = emitc_joined_second(t.b1, t.a1);
    t.b2 = emitc_joined_second(t.b2, t.a2);
    t.b3 = emitc_joined_second(t.b3, t.a3);
    return t;
}

#if EMITC_TILE_ASM
#define EMITC_TILE_WIDEN_0 "sxtb16 %[odd], %[odd], ror #8\n\t"
#define EMITC_TILE_WIDEN_1
#define EMITC_TILE_COPY \
    "mov %[a1], %[a0]\n\tmov %[a2], %[a0]\n\tmov %[a3], %[a0]\n\t" \
    "mov %[b1], %[b0]\n\tmov %[b2], %[b0]\n\tmov %[b3], %[b0]\n\t"
#if !defined(EMITC_TILE_SUMS) /* where the core begins one instruction in a cycle: see emitc_dsp_dual.h */
/* One word of weights, two values of two channels, meets the same two values of four pixels: 16 products. Neighbouring
 * loads overlap. number: of the word in the turn. widen: EMITC_TILE_WIDEN_0, or _1 of joined weights. */
#define EMITC_TILE_WORD(number, widen) \
    "ldr.n %[odd], [%[w], #4*" #number "]\n\t" \
    "ldr.n %[p], [%[x], #16*" #number "]\n\t" \
    "ldr.n %[q], [%[x], #16*" #number "+4]\n\t" \
    "sxtb16 %[even], %[odd]\n\t" widen \
    "smlad %[a0], %[p], %[even], %[a0]\n\t" \
    "smlad %[b0], %[p], %[odd], %[b0]\n\t" \
    "smlad %[a1], %[q], %[even], %[a1]\n\t" \
    "smlad %[b1], %[q], %[odd], %[b1]\n\t" \
    "ldr.n %[p], [%[x], #16*" #number "+8]\n\t" \
    "ldr.n %[q], [%[x], #16*" #number "+12]\n\t" \
    "smlad %[a2], %[p], %[even], %[a2]\n\t" \
    "smlad %[b2], %[p], %[odd], %[b2]\n\t" \
    "smlad %[a3], %[q], %[even], %[a3]\n\t" \
    "smlad %[b3], %[q], %[odd], %[b3]\n\t"
/* Bytes of its code. */
#define EMITC_TILE_WORD_BYTES(joined) ((joined) ? 46 : 50)
/* A turn of the loop, and the number of its words. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_TILE_TURN 2
#define EMITC_TILE_WORDS(widen) \
    EMITC_TILE_WORD(0, widen) EMITC_TILE_WORD(1, widen) \
    "add %[w], %[w], #8\n\tadd %[x], %[x], #32\n\t"
#else
#define EMITC_TILE_TURN 8
#define EMITC_TILE_WORDS(widen) \
    EMITC_TILE_WORD(0, widen) EMITC_TILE_WORD(1, widen) EMITC_TILE_WORD(2, widen) EMITC_TILE_WORD(3, widen) \
    EMITC_TILE_WORD(4, widen) EMITC_TILE_WORD(5, widen) EMITC_TILE_WORD(6, widen) EMITC_TILE_WORD(7, widen) \
    "add %[w], %[w], #32\n\tadd %[x], %[x], #128\n\t"
#endif
/* What begins the sums of all pixels, and moves x and w back by what the first turn leaves out. For speed this is the
 * first word, which reads the bias in place of six copies of it. join: text between its loads and its products. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_TILE_FIRST(widen, join) \
    "ldr %[p], %[back]\n\tldr %[q], %[skipped]\n\t" join EMITC_TILE_COPY \
    "sub %[w], %[w], %[p]\n\tsub %[x], %[x], %[p], lsl #2\n\t"
#else
#define EMITC_TILE_FIRST(widen, join) \
    "ldr %[odd], [%[w]]\n\tldr %[p], [%[x]]\n\tldr %[a1], [%[x], #4]\n\t" \
    "ldr %[a2], [%[x], #8]\n\tldr %[a3], [%[x], #12]\n\tldr %[b1], %[back]\n\tldr %[q], %[skipped]\n\t" \
    join "sxtb16 %[even], %[odd]\n\t" widen \
    "sub %[w], %[w], %[b1]\n\tsub %[x], %[x], %[b1], lsl #2\n\t" \
    "smlad %[b3], %[a3], %[odd], %[b0]\n\tsmlad %[a3], %[a3], %[even], %[a0]\n\t" \
    "smlad %[b2], %[a2], %[odd], %[b0]\n\tsmlad %[a2], %[a2], %[even], %[a0]\n\t" \
    "smlad %[b1], %[a1], %[odd], %[b0]\n\tsmlad %[a1], %[a1], %[even], %[a0]\n\t" \
    "smlad %[b0], %[p], %[odd], %[b0]\n\tsmlad %[a0], %[p], %[even], %[a0]\n\t"
#endif
/* All words. The first turn is entered late, by `skipped` bytes of code: so the last one ends with the last word. */
#define EMITC_TILE_SUMS(joined, join) \
    EMITC_TILE_FIRST(EMITC_TILE_WIDEN_##joined, join) \
    "add pc, %[q]\n\t" /* from 4 bytes further on */ \
    "nop\n" \
    "1:\n\t" EMITC_TILE_WORDS(EMITC_TILE_WIDEN_##joined) \
    "ldr %[p], %[end]\n\t" \
    "cmp %[x], %[p]\n\t" \
    "bne 1b\n\t"
/* What the loop reads. A first word that is the only one leaves out the whole turn. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_TILE_LEFT_OUT \
    const int32_t skip = -words & (EMITC_TILE_TURN - 1); \
    const int32_t back = 4 * skip;
#else
#define EMITC_TILE_LEFT_OUT \
    const int32_t skip = words > 1 ? (1 - words) & (EMITC_TILE_TURN - 1) : EMITC_TILE_TURN; \
    const int32_t back = 4 * skip - 4;
#endif
#define EMITC_TILE_PLACES(joined) \
    EMITC_TILE_LEFT_OUT \
    const int32_t skipped = skip * EMITC_TILE_WORD_BYTES(joined); \
    const uint32_t *const end = x + 4 * words;
#endif
#define EMITC_TILE_LOCALS \
    int32_t a1, a2, a3, b1, b2, b3; \
    uint32_t even, odd, p, q;
/* What the words load has low registers, for short instructions. mode: "+" or "=&", of what is read before. */
#define EMITC_TILE_REGISTERS(mode, a, b) \
    [a0] mode "r"(a), [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] mode "r"(b), [b1] "=&r"(b1), \
        [b2] "=&r"(b2), [b3] "=&r"(b3), [even] "=&r"(even), \
        [x] mode "l"(at), [w] "+l"(w), [odd] "=&l"(odd), [p] "=&l"(p), [q] "=&l"(q)
#endif

/* The sums of four pixels and two channels: from bias on the products of `words` words of weights, past which *weights
 * is advanced. x: four words for each of them, one of every pixel. joined: as the weights are. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tile_sums(
    int32_t bias_a, int32_t bias_b, const uint32_t *x, const int8_t **weights, int32_t words, const bool joined)
{
    int32_t a = bias_a;
    int32_t b = joined ? emitc_joined_start(bias_a, bias_b) : bias_b;
#if EMITC_TILE_ASM
    EMITC_TILE_PLACES(joined)
    EMITC_TILE_LOCALS
    const uint32_t *at = x;
    const int8_t *w = *weights;
    if (joined) {
        __asm__ volatile(EMITC_TILE_SUMS(1, )
            : EMITC_TILE_REGISTERS("+", a, b)
            : [skipped] "m"(skipped), [back] "m"(back), [end] "m"(end) : "cc", "memory");
    } else {
        __asm__ volatile(EMITC_TILE_SUMS(0, )
            : EMITC_TILE_REGISTERS("+", a, b)
            : [skipped] "m"(skipped), [back] "m"(back), [end] "m"(end) : "cc", "memory");
    }
    const emitc_tile t = {a, a1, a2, a3, b, b1, b2, b3};
#else
    emitc_tile t = {a, a, a, a, b, b, b, b};
    const int8_t *w = *weights;
    for (int32_t word = words; word > 0; word--) {
        const uint32_t two = emitc_four(w);
        const uint32_t even = emitc_even(two);
        const uint32_t odd = joined ? two : emitc_odd(two);
        t.a0 = emitc_pair_mac(t.a0, x[0], even);
        t.b0 = emitc_joined_mac(t.b0, x[0], odd);
        t.a1 = emitc_pair_mac(t.a1, x[1], even);
        t.b1 = emitc_joined_mac(t.b1, x[1], odd);
        t.a2 = emitc_pair_mac(t.a2, x[2], even);
        t.b2 = emitc_joined_mac(t.b2, x[2], odd);
        t.a3 = emitc_pair_mac(t.a3, x[3], even);
        t.b3 = emitc_joined_mac(t.b3, x[3], odd);
        x += 4;
        w += 4;
    }
#endif
    *weights = w;
    return joined ? emitc_parted(t) : t;
}

#if EMITC_TILE_ASM
/* Two words of weights, two values of four channels, meet the same two values of two pixels: 16 products. number: of
 * the double word in the turn. */
#define EMITC_TWO_MAC(channel, weights) \
    "smlad %[a" #channel "], %[p], %[" #weights "], %[a" #channel "]\n\t" \
    "smlad %[b" #channel "], %[q], %[" #weights "], %[b" #channel "]\n\t"
#define EMITC_TWO_VALUES(number) "ldr %[p], [%[x], #8*" #number "]\n\tldr %[q], [%[x], #8*" #number "+4]\n\t"
#define EMITC_TWO_WIDEN "sxtb16 %[even], %[odd]\n\tsxtb16 %[odd], %[odd], ror #8\n\t"
#define EMITC_TWO_PLAIN(number) \
    "ldr %[odd], [%[w], #8*" #number "]\n\t" EMITC_TWO_VALUES(number) \
    EMITC_TWO_WIDEN EMITC_TWO_MAC(0, even) EMITC_TWO_MAC(1, odd) \
    "ldr %[odd], [%[w], #8*" #number "+4]\n\t" \
    EMITC_TWO_WIDEN EMITC_TWO_MAC(2, even) EMITC_TWO_MAC(3, odd)
#define EMITC_TWO_JOINED(number) \
    "ldr %[odd], [%[w], #8*" #number "]\n\tldr %[even], [%[w], #8*" #number "+4]\n\t" EMITC_TWO_VALUES(number) \
    EMITC_TWO_MAC(1, odd) EMITC_TWO_MAC(3, even) \
    "sxtb16 %[odd], %[odd]\n\tsxtb16 %[even], %[even]\n\t" EMITC_TWO_MAC(0, odd) EMITC_TWO_MAC(2, even)
/* Four double words a turn until w is at `most`, then one until it is at `end`. Both are in memory: the fourteen
 * registers that there are hold the rest. */
#define EMITC_TWO_TEXT(word) \
    "b 2f\n" \
    "1:\n\t" word(0) word(1) word(2) word(3) "add %[w], %[w], #32\n\tadd %[x], %[x], #32\n" \
    "2:\n\t" \
    "ldr %[p], %[most]\n\t" \
    "cmp %[w], %[p]\n\t" \
    "bne 1b\n\t" \
    "b 4f\n" \
    "3:\n\t" word(0) "add %[w], %[w], #8\n\tadd %[x], %[x], #8\n" \
    "4:\n\t" \
    "ldr %[p], %[end]\n\t" \
    "cmp %[w], %[p]\n\t" \
    "bne 3b"
#define EMITC_TWO_OPERANDS \
    : [a0] "+r"(t.a0), [a1] "+r"(t.a1), [a2] "+r"(t.a2), [a3] "+r"(t.a3), [b0] "+r"(t.b0), [b1] "+r"(t.b1), \
      [b2] "+r"(t.b2), [b3] "+r"(t.b3), [x] "+r"(x), [w] "+r"(w), [even] "=&r"(even), [odd] "=&r"(odd), \
      [p] "=&r"(p), [q] "=&r"(q) \
    : [most] "m"(most), [end] "m"(end) \
    : "cc", "memory"
#endif

/* To the sums t of two pixels (a, b) and four channels adds the products of `words` double words of weights, the first
 * with two values of channels 0 and 1, the second of 2 and 3; *weights is advanced past them. x: two words for each of
 * them, one of either pixel. joined: as the weights are, and the sums. */
EMITC_ALWAYS_INLINE emitc_tile emitc_two_more(
    emitc_tile t, const uint32_t *x, const int8_t **weights, int32_t words, const bool joined)
{
    const int8_t *w = *weights;
#if EMITC_TILE_ASM && !defined(__OPTIMIZE_SIZE__) /* gcc inlines it there where a register is missing */
    const int8_t *const end = w + 8 * words;
    const int8_t *const most = end - 8 * (words & 3);
    uint32_t even, odd, p, q;
    if (joined) {
        __asm__ volatile(EMITC_TWO_TEXT(EMITC_TWO_JOINED) EMITC_TWO_OPERANDS);
    } else {
        __asm__ volatile(EMITC_TWO_TEXT(EMITC_TWO_PLAIN) EMITC_TWO_OPERANDS);
    }
    *weights = w;
    return t;
#else
    emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3};
    emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3};
    for (int32_t word = words; word > 0; word--) {
        a = emitc_two_words_mac(a, x[0], emitc_four(w), emitc_four(w + 4), joined);
        b = emitc_two_words_mac(b, x[1], emitc_four(w), emitc_four(w + 4), joined);
        x += 2;
        w += 8;
    }
    *weights = w;
    return emitc_tile_of(a, b);
#endif
}

/* The sums of two pixels from the bias on, as emitc_two_more takes them, and back. */
EMITC_ALWAYS_INLINE emitc_tile emitc_two_start(const int32_t *bias, const bool joined)
{
    const emitc_acc4 start = {bias[0], bias[1], bias[2], bias[3]};
    const emitc_acc4 acc = joined ? emitc_joined_acc4(start) : start;
    return emitc_tile_of(acc, acc);
}

EMITC_ALWAYS_INLINE emitc_tile emitc_two_end(emitc_tile t, const bool joined)
{
    const emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3};
    const emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3};
    return joined ? emitc_tile_of(emitc_parted_acc4(a), emitc_parted_acc4(b)) : t;
}

/* emitc_two_more from the bias on. */
EMITC_ALWAYS_INLINE emitc_tile emitc_two_sums(
    const int32_t *bias, const uint32_t *x, const int8_t **weights, int32_t words, const bool joined)
{
    return emitc_two_end(emitc_two_more(emitc_two_start(bias, joined), x, weights, words, joined), joined);
}

/* Functions that do emitc_two_more for `blocks` sums that follow each other, whose weights lie `step` bytes from each
 * other. They do the same for the first pixel alone, whose words follow each other in x. */
#define EMITC_MORE_EACH(two, one, joined) \
    EMITC_NOINLINE void two(emitc_tile *sums, int32_t blocks, const uint32_t *x, const int8_t *weights, int32_t words, \
        int32_t step) \
    { \
        for (int32_t block = 0; block < blocks; block++) { \
            const int8_t *w = weights; \
            sums[block] = emitc_two_more(sums[block], x, &w, words, joined); \
            weights += step; \
        } \
    } \
    EMITC_NOINLINE void one(emitc_tile *sums, int32_t blocks, const uint32_t *x, const int8_t *weights, int32_t words, \
        int32_t step) \
    { \
        for (int32_t block = 0; block < blocks; block++) { \
            const int8_t *w = weights; \
            const emitc_tile t = sums[block]; \
            const emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3}; \
            const emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3}; \
            sums[block] = emitc_tile_of(emitc_one_more(a, x, &w, words, joined), b); \
            weights += step; \
        } \
    }
EMITC_MORE_EACH(emitc_two_more_each, emitc_first_more_each, false)
EMITC_MORE_EACH(emitc_two_more_each_joined, emitc_first_more_each_joined, true)

/* emitc_tap_mac4 for two pixels, with the sums a and b; one is at *first, the other one at *second. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac4_twice(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int8_t **w)
{
    const int8_t *again = *w;
    const emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3};
    const emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3};
    const emitc_acc4 sum_a = emitc_tap_mac4(a, first, channel, w);
    return emitc_tile_of(sum_a, emitc_tap_mac4(b, second, channel, &again));
}

/* The same with weights of 16 bits. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac4_wide_twice(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int16_t **w)
{
    const int16_t *again = *w;
    const emitc_acc4 a = {t.a0, t.a1, t.a2, t.a3};
    const emitc_acc4 b = {t.b0, t.b1, t.b2, t.b3};
    const emitc_acc4 sum_a = emitc_tap_mac4_wide(a, first, channel, w);
    return emitc_tile_of(sum_a, emitc_tap_mac4_wide(b, second, channel, &again));
}

#if EMITC_TILE_ASM
#if !defined(EMITC_TAP_VALUE) /* where the core begins one instruction in a cycle: see emitc_dsp_dual.h */
#define EMITC_TAP_VALUE \
    "ldr %[value], [%[value], %[channel]]\n\t" \
    "sxtb16 %[tap_even], %[tap]\n\tsxtb16 %[tap], %[tap], ror #8\n\t"
#endif
#define EMITC_TAP_8 \
    "ldr %[value], %[first]\n\tldr %[tap], [%[w]], #4\n\t" EMITC_TAP_VALUE \
    "sxtb16 %[even], %[value]\n\tsxtb16 %[value], %[value], ror #8\n\t" \
    "smlabb %[a0], %[even], %[tap_even], %[a0]\n\tsmlatt %[a2], %[even], %[tap_even], %[a2]\n\t" \
    "ldr %[even], %[second]\n\t" \
    "smlabb %[a1], %[value], %[tap], %[a1]\n\tsmlatt %[a3], %[value], %[tap], %[a3]\n\t" \
    "ldr %[value], [%[even], %[channel]]\n\t" \
    "sxtb16 %[even], %[value]\n\tsxtb16 %[value], %[value], ror #8\n\t" \
    "smlabb %[b0], %[even], %[tap_even], %[b0]\n\tsmlatt %[b2], %[even], %[tap_even], %[b2]\n\t" \
    "smlabb %[b1], %[value], %[tap], %[b1]\n\tsmlatt %[b3], %[value], %[tap], %[b3]"
#endif

/* emitc_tap_mac4_twice in one piece, which takes every register there is. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac8(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int8_t **w)
{
#if EMITC_TILE_ASM
    uint32_t value;
    uint32_t tap;
    uint32_t even;
    uint32_t tap_even;
    __asm__ volatile(
        EMITC_TAP_8
        : [a0] "+r"(t.a0), [a1] "+r"(t.a1), [a2] "+r"(t.a2), [a3] "+r"(t.a3), [b0] "+r"(t.b0), [b1] "+r"(t.b1),
          [b2] "+r"(t.b2), [b3] "+r"(t.b3), [w] "+r"(*w), [value] "=&r"(value), [tap] "=&r"(tap), [even] "=&r"(even),
          [tap_even] "=&r"(tap_even)
        : [first] "m"(*first), [second] "m"(*second), [channel] "r"(channel)
        : "memory");
    return t;
#else
    return emitc_tap_mac4_twice(t, first, second, channel, w);
#endif
}

/* emitc_tap_mac4_wide_twice in one piece. */
EMITC_ALWAYS_INLINE emitc_tile emitc_tap_mac8_wide(
    emitc_tile t, const int8_t *const *first, const int8_t *const *second, int32_t channel, const int16_t **w)
{
#if EMITC_TILE_ASM
    uint32_t value;
    uint32_t tap;
    uint32_t even;
    uint32_t tap_even;
    __asm__ volatile(
        "ldr %[value], %[first]\n\t"
        "ldrd %[tap_even], %[tap], [%[w]], #8\n\t"
        "ldr %[value], [%[value], %[channel]]\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[a0], %[even], %[tap_even], %[a0]\n\t"
        "smlatt %[a2], %[even], %[tap_even], %[a2]\n\t"
        "ldr %[even], %[second]\n\t"
        "smlabb %[a1], %[value], %[tap], %[a1]\n\t"
        "smlatt %[a3], %[value], %[tap], %[a3]\n\t"
        "ldr %[value], [%[even], %[channel]]\n\t"
        "sxtb16 %[even], %[value]\n\t"
        "sxtb16 %[value], %[value], ror #8\n\t"
        "smlabb %[b0], %[even], %[tap_even], %[b0]\n\t"
        "smlatt %[b2], %[even], %[tap_even], %[b2]\n\t"
        "smlabb %[b1], %[value], %[tap], %[b1]\n\t"
        "smlatt %[b3], %[value], %[tap], %[b3]"
        : [a0] "+r"(t.a0), [a1] "+r"(t.a1), [a2] "+r"(t.a2), [a3] "+r"(t.a3), [b0] "+r"(t.b0), [b1] "+r"(t.b1),
          [b2] "+r"(t.b2), [b3] "+r"(t.b3), [w] "+r"(*w), [value] "=&r"(value), [tap] "=&r"(tap), [even] "=&r"(even),
          [tap_even] "=&r"(tap_even)
        : [first] "m"(*first), [second] "m"(*second), [channel] "r"(channel)
        : "memory");
    return t;
#else
    return emitc_tap_mac4_wide_twice(t, first, second, channel, w);
#endif
}

#endif
