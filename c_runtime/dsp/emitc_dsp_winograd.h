/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: convolutions with windows of three columns by Winograd's minimal filtering.
 *
 * F(4, 3) makes four neighbouring outputs of six columns with six products for each row of the window, not twelve:
 * y = A ((G g) * (B d)), g being the weights and d the columns. G and B have small integers here, so that transformed
 * weights and values fit int16. A has what is left of the factors; it gives 24 y without a remainder.
 */
#ifndef EMITC_DSP_WINOGRAD_H
#define EMITC_DSP_WINOGRAD_H

#include "emitc_dsp_tile.h"

/* Sums and differences of both halves of two pairs, which fit int16. */
EMITC_ALWAYS_INLINE uint32_t emitc_pair_add(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t sums;
    __asm__("sadd16 %0, %1, %2" : "=r"(sums) : "r"(a), "r"(b));
    return sums;
#else
    return ((a + b) & 0xffffu) | ((a & 0xffff0000u) + (b & 0xffff0000u));
#endif
}

EMITC_ALWAYS_INLINE uint32_t emitc_pair_sub(uint32_t a, uint32_t b)
{
#if EMITC_DSP
    uint32_t differences;
    __asm__("ssub16 %0, %1, %2" : "=r"(differences) : "r"(a), "r"(b));
    return differences;
#else
    return ((a - b) & 0xffffu) | ((a & 0xffff0000u) - (b & 0xffff0000u));
#endif
}

/* emitc_even or emitc_odd. */
EMITC_ALWAYS_INLINE uint32_t emitc_half_of(uint32_t word, bool is_odd)
{
    return is_odd ? emitc_odd(word) : emitc_even(word);
}

EMITC_ALWAYS_INLINE uint32_t emitc_pair_twice(uint32_t a)
{
    return emitc_pair_add(a, a);
}

/* B d of the first and the third of four channels, or (odd) of the second and the fourth: six words into every
 * `pitch`th one from v on. columns: the middle ones of the six; first, last: where the others are. At most 10 times a
 * value. */
EMITC_ALWAYS_INLINE void emitc_winograd_values(
    const uint32_t columns[4], const int8_t *first, const int8_t *last, bool is_odd, uint32_t *v, int32_t pitch)
{
    const uint32_t d2 = emitc_half_of(columns[1], is_odd);
    const uint32_t d4 = emitc_half_of(columns[3], is_odd);
    const uint32_t even = emitc_pair_sub(d4, d2);
    const uint32_t even4 = emitc_pair_sub(d4, emitc_pair_twice(emitc_pair_twice(d2)));
    const uint32_t d1 = emitc_half_of(columns[0], is_odd);
    const uint32_t d3 = emitc_half_of(columns[2], is_odd);
    const uint32_t odd4 = emitc_pair_sub(d3, emitc_pair_twice(emitc_pair_twice(d1)));
    const uint32_t odd = emitc_pair_twice(emitc_pair_sub(d3, d1));
    v[pitch] = emitc_pair_add(even4, odd4);
    v[2 * pitch] = emitc_pair_sub(even4, odd4);
    v[3 * pitch] = emitc_pair_add(even, odd);
    v[4 * pitch] = emitc_pair_sub(even, odd);
    const uint32_t left = emitc_pair_sub(emitc_half_of(emitc_four(first), is_odd), d2);
    v[0] = emitc_pair_add(emitc_pair_twice(emitc_pair_twice(left)), even);
    const uint32_t right = emitc_pair_sub(emitc_half_of(emitc_four(last), is_odd), d3);
    v[5 * pitch] = emitc_pair_sub(right, emitc_pair_twice(odd));
}

/* The same of some channels, a multiple of four, of six columns that follow each other. Returns where the next words
 * go. */
EMITC_ALWAYS_INLINE uint32_t *emitc_winograd_columns(const int8_t *x, int32_t channels, uint32_t *v, int32_t pitch)
{
    const int8_t *fourth = x + 3 * channels;
    for (const int8_t *const end = x + channels; x != end; x += 4) {
        const uint32_t columns[4] = {
            emitc_four(x + channels), emitc_four(x + 2 * channels), emitc_four(fourth), emitc_four(fourth + channels)};
        emitc_winograd_values(columns, x, fourth + 2 * channels, false, v, pitch);
        emitc_winograd_values(columns, x, fourth + 2 * channels, true, v + 6 * pitch, pitch);
        fourth += 4;
        v += 12 * pitch;
    }
    return v;
}

/* It has every register to itself. */
EMITC_NOINLINE uint32_t *emitc_winograd_columns_2(const int8_t *x, int32_t channels, uint32_t *v)
{
    return emitc_winograd_columns(x, channels, v, 2);
}

EMITC_NOINLINE uint32_t *emitc_winograd_columns_4(const int8_t *x, int32_t channels, uint32_t *v)
{
    return emitc_winograd_columns(x, channels, v, 4);
}

/* B d of one window, of s->rows rows and six columns, from row `top` and column `left` on. s->row, s->run: values of a
 * row and of a column of the input. Where columns are outside of it, up to 16 channels are put together in `side`, 24
 * words of working memory. */
EMITC_NOINLINE void emitc_winograd_window(
    const struct emitc_windows *s, const int8_t *x, int32_t top, int32_t left, uint32_t *v, int32_t pitch,
    uint32_t *side)
{
    const int32_t channels = s->run;
    const int32_t from = left * channels;
    const uint32_t zeros = (uint32_t)(uint8_t)s->zero * 0x01010101u;
    for (int32_t ky = s->rows; ky > 0; ky--) {
        const bool inside = top >= 0 && top < s->in_h;
        const bool whole = inside && from >= 0 && from + 6 * channels <= s->row;
        const int8_t *const row = x + top * s->row;
        for (int32_t c = 0; c < channels;) {
            const int32_t together = whole || channels - c < 16 ? channels - c : 16;
            const int8_t *at = row + from + c;
            if (!whole) {
                uint32_t *to = side;
                for (int32_t value = from + c; value < from + 6 * channels; value += channels) {
                    const bool is_there = inside && value >= 0 && value < s->row;
                    for (int32_t i = 0; i < together; i += 4) {
                        *to++ = is_there ? emitc_four(row + value + i) : zeros;
                    }
                }
                at = (const int8_t *)side;
            }
            v = pitch == 2 ? emitc_winograd_columns_2(at, together, v) : emitc_winograd_columns_4(at, together, v);
            c += together;
        }
        top += s->down;
    }
}

/* G g of a pair of weights: six words into every second one from u on. At most 7 times a weight. */
EMITC_ALWAYS_INLINE void emitc_winograd_filter(uint32_t g0, uint32_t g1, uint32_t g2, uint32_t *u)
{
    const uint32_t ends = emitc_pair_add(g0, g2);
    const uint32_t ends4 = emitc_pair_add(g0, emitc_pair_twice(emitc_pair_twice(g2)));
    const uint32_t middle = emitc_pair_twice(g1);
    u[0] = g0;
    u[2] = emitc_pair_add(ends, g1);
    u[4] = emitc_pair_sub(ends, g1);
    u[6] = emitc_pair_add(ends4, middle);
    u[8] = emitc_pair_sub(ends4, middle);
    u[10] = g2;
}

/* The same of `words` pairs of weights of two channels, which share words: three words of them, one for each column,
 * give six times two. Returns the weights that follow. */
EMITC_NOINLINE const int8_t *emitc_winograd_filters(const int8_t *w, uint32_t *u, int32_t words)
{
    for (const int8_t *const end = w + 12 * words; w != end; w += 12) {
        const uint32_t g0 = emitc_four(w);
        const uint32_t g1 = emitc_four(w + 4);
        const uint32_t g2 = emitc_four(w + 8);
        emitc_winograd_filter(emitc_even(g0), emitc_even(g1), emitc_even(g2), u);
        emitc_winograd_filter(emitc_odd(g0), emitc_odd(g1), emitc_odd(g2), u + 1);
        u += 12;
    }
    return w;
}

#if EMITC_TILE_ASM
#define EMITC_WINOGRAD_ZEROS \
    "mov %[a0], #0\n\tmov %[a1], #0\n\tmov %[a2], #0\n\tmov %[a3], #0\n\t" \
    "mov %[b0], #0\n\tmov %[b1], #0\n\tmov %[b2], #0\n\tmov %[b3], #0\n"
#if !defined(EMITC_WINOGRAD_ADD) /* where the core begins one instruction in a cycle: see emitc_dsp_dual.h */
/* The pairs of two channels meet those of four windows, or the other way round: 16 products. */
#define EMITC_WINOGRAD_WORD \
    "ldr %[even], [%[u]], #48\n\t" \
    "ldr %[odd], [%[u], #-44]\n\t" \
    "ldr %[p], [%[v]], #96\n\t" \
    "ldr %[q], [%[v], #-92]\n\t" \
    "smlad %[a0], %[p], %[even], %[a0]\n\t" \
    "smlad %[b0], %[p], %[odd], %[b0]\n\t" \
    "smlad %[a1], %[q], %[even], %[a1]\n\t" \
    "smlad %[b1], %[q], %[odd], %[b1]\n\t" \
    "ldr %[p], [%[v], #-88]\n\t" \
    "ldr %[q], [%[v], #-84]\n\t" \
    "smlad %[a2], %[p], %[even], %[a2]\n\t" \
    "smlad %[b2], %[p], %[odd], %[b2]\n\t" \
    "smlad %[a3], %[q], %[even], %[a3]\n\t" \
    "smlad %[b3], %[q], %[odd], %[b3]\n\t"
#define EMITC_WINOGRAD_WORDS EMITC_WINOGRAD_WORD EMITC_WINOGRAD_WORD EMITC_WINOGRAD_WORD EMITC_WINOGRAD_WORD
/* All words of one place, past which u and v are moved, and those of what ends with `end` and `most`. */
#define EMITC_WINOGRAD_ADD \
    EMITC_WINOGRAD_ZEROS \
    "2:\n\t" EMITC_WINOGRAD_WORDS EMITC_WINOGRAD_WORDS \
    "ldr %[p], %[most]\n\t" \
    "cmp %[u], %[p]\n\t" \
    "bne 2b\n\t" \
    "b 4f\n" \
    "3:\n\t" EMITC_WINOGRAD_WORD EMITC_WINOGRAD_WORD \
    "4:\n\t" \
    "ldr %[p], %[end]\n\t" \
    "cmp %[u], %[p]\n\t" \
    "bne 3b\n\t" \
    "add %[p], %[p], #8\n\t" \
    "str %[p], %[end]\n\t" \
    "ldr %[p], %[most]\n\t" \
    "ldr %[q], %[back]\n\t"
#define EMITC_WINOGRAD_NEXT "add %[p], %[p], #8\n\tstr %[p], %[most]\n\t"
#define EMITC_WINOGRAD_PLACES \
    const uint32_t *end = u + 12 * words; \
    const uint32_t *most = end - 12 * (words & 7);
#define EMITC_WINOGRAD_BACK (48 * words - 8)
#define EMITC_WINOGRAD_WRITTEN , [end] "+m"(end), [most] "+m"(most)
#define EMITC_WINOGRAD_READ
#endif
#endif

/* The products of four windows and two channels, or of four channels and two windows, in all six places: six sums of
 * each of the four with the first of the two, then with the second. four: four of every 24 words are in the same place;
 * two: two of every twelve. words: of one place, an even number. */
EMITC_NOINLINE void emitc_winograd_products(const uint32_t *four, const uint32_t *two, int32_t words, int32_t *sums)
{
#if EMITC_TILE_ASM
    if (words >= 8) {
        const uint32_t *v = four;
        const uint32_t *u = two;
        EMITC_WINOGRAD_PLACES
        const int32_t *const last = sums + 6;
        const int32_t back = EMITC_WINOGRAD_BACK;
        int32_t a0, a1, a2, a3, b0, b1, b2, b3;
        uint32_t even, odd, p, q;
        __asm__ volatile(
            "1:\n\t" EMITC_WINOGRAD_ADD
            "ldr %[even], %[sums]\n\t"
            "ldr %[odd], %[last]\n\t"
            EMITC_WINOGRAD_NEXT
            "sub %[u], %[u], %[q]\n\t"
            "sub %[v], %[v], %[q], lsl #1\n\t"
            "str %[a0], [%[even]], #4\n\t"
            "str %[a1], [%[even], #20]\n\t"
            "str %[a2], [%[even], #44]\n\t"
            "str %[a3], [%[even], #68]\n\t"
            "str %[b0], [%[even], #92]\n\t"
            "str %[b1], [%[even], #116]\n\t"
            "str %[b2], [%[even], #140]\n\t"
            "str %[b3], [%[even], #164]\n\t"
            "str %[even], %[sums]\n\t"
            "cmp %[even], %[odd]\n\t"
            "bne 1b"
            : [a0] "=&r"(a0), [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "=&r"(a3), [b0] "=&r"(b0), [b1] "=&r"(b1),
              [b2] "=&r"(b2), [b3] "=&r"(b3), [v] "+r"(v), [u] "+r"(u), [even] "=&r"(even), [odd] "=&r"(odd),
              [p] "=&r"(p), [q] "=&r"(q), [sums] "+m"(sums) EMITC_WINOGRAD_WRITTEN
            : [last] "m"(last), [back] "m"(back) EMITC_WINOGRAD_READ
            : "cc", "memory");
        return;
    }
#endif
    for (int32_t sum = 0; sum < 48; sum++) {
        const uint32_t *v = four + 4 * (sum % 6) + sum / 6 % 4;
        const uint32_t *u = two + 2 * (sum % 6) + sum / 24;
        sums[sum] = 0;
        for (int32_t word = words; word > 0; word--) {
            sums[sum] = emitc_pair_mac(sums[sum], *v, *u);
            v += 24;
            u += 12;
        }
    }
}

/* The sums of four neighbouring outputs from six of products, and the bias. 24 y is 8 y times 3, and multiplying by the
 * inverse of 3 modulo 2^32 divides it, since there is no remainder. 8 y fits int32. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_winograd_outputs(const int32_t *sums, int32_t bias)
{
    const uint32_t third = 0xaaaaaaabu;
    const uint32_t start = (uint32_t)bias;
    const uint32_t m0 = (uint32_t)sums[0];
    const uint32_t m5 = (uint32_t)sums[5];
    const uint32_t p = (uint32_t)sums[1] + (uint32_t)sums[2];
    const uint32_t q = (uint32_t)sums[1] - (uint32_t)sums[2];
    const uint32_t r = (uint32_t)sums[3] + (uint32_t)sums[4];
    const uint32_t s = (uint32_t)sums[3] - (uint32_t)sums[4];
    const emitc_acc4 acc = {
        (int32_t)((6 * m0 - 4 * p + r) * third + 8 * start) >> 3,
        (int32_t)((s - 2 * q) * third + 4 * start) >> 2,
        (int32_t)((r - p) * third + 2 * start) >> 1,
        (int32_t)((6 * m5 - q + 2 * s) * third + 2 * start) >> 1,
    };
    return acc;
}

/* The outputs of one channel: for each four places from `to` on, where pixels go from y on, emitc_output_up,
 * emitc_output_away or emitc_output_float of emitc_winograd_outputs. The sums of a window are `step` bytes after those
 * of the one before it. */
#define EMITC_WINOGRAD_BY_UP emitc_output by
#define EMITC_WINOGRAD_BY_AWAY emitc_output by
#define EMITC_WINOGRAD_BY_FLOAT float factor, int32_t offset
#if EMITC_TILE_ASM
/* Four sums as outputs. They are 8, 4, 2 and 2 times what they should be, multipliers take twice that. */
#define EMITC_WINOGRAD_ONE_UP(sum) \
    "smmlar %[" #sum "], %[" #sum "], %[q31], %[start]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[right]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_WINOGRAD_ONE_AWAY(sum) \
    "smmulr %[" #sum "], %[" #sum "], %[q31]\n\t" \
    "add %[" #sum "], %[" #sum "], %[" #sum "], asr #31\n\t" \
    "add %[" #sum "], %[" #sum "], %[start]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[right]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_WINOGRAD_ALL(one) \
    "asr %[m3], %[m3], #1\n\tasr %[m0], %[m0], #2\n\t" one(m5) one(m1) one(m3) one(m0)
#define EMITC_WINOGRAD_ALL_UP EMITC_WINOGRAD_ALL(EMITC_WINOGRAD_ONE_UP)
#define EMITC_WINOGRAD_ALL_AWAY EMITC_WINOGRAD_ALL(EMITC_WINOGRAD_ONE_AWAY)
/* Bits after the point are dropped as the sums become float32. They are 0, so each is rounded once. */
#define EMITC_WINOGRAD_PLACE(sum) "qadd %[" #sum "], %[" #sum "], %[offset]\n\tssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_WINOGRAD_ALL_FLOAT \
    "vmov s0, s1, %[m0], %[m3]\n\tvmov s2, s3, %[m1], %[m5]\n\t" \
    "vcvt.f32.s32 s0, s0, #3\n\tvcvt.f32.s32 s1, s1, #2\n\t" \
    "vcvt.f32.s32 s2, s2, #1\n\tvcvt.f32.s32 s3, s3, #1\n\t" \
    "vmul.f32 s0, s0, %[factor]\n\tvmul.f32 s1, s1, %[factor]\n\t" \
    "vmul.f32 s2, s2, %[factor]\n\tvmul.f32 s3, s3, %[factor]\n\t" \
    "vcvtr.s32.f32 s0, s0\n\tvcvtr.s32.f32 s1, s1\n\tvcvtr.s32.f32 s2, s2\n\tvcvtr.s32.f32 s3, s3\n\t" \
    "vmov %[m0], %[m3], s0, s1\n\tvmov %[m1], %[m5], s2, s3\n\t" \
    EMITC_WINOGRAD_PLACE(m0) EMITC_WINOGRAD_PLACE(m3) EMITC_WINOGRAD_PLACE(m1) EMITC_WINOGRAD_PLACE(m5)
#define EMITC_WINOGRAD_WITH_UP [q31] "r"(by.q31), [right] "r"(by.right), [start] "r"(by.start)
#define EMITC_WINOGRAD_WITH_AWAY EMITC_WINOGRAD_WITH_UP
#define EMITC_WINOGRAD_WITH_FLOAT [factor] "t"(factor), [offset] "r"(offset)
#define EMITC_WINOGRAD_CLOBBERED_UP "cc", "memory"
#define EMITC_WINOGRAD_CLOBBERED_AWAY EMITC_WINOGRAD_CLOBBERED_UP
#define EMITC_WINOGRAD_CLOBBERED_FLOAT "cc", "memory", "s0", "s1", "s2", "s3"
#define EMITC_WINOGRAD_FUNCTION(name, how) \
    EMITC_ALWAYS_INLINE void name( \
        const int32_t *sums, int32_t step, int32_t bias, const uint16_t *to, const uint16_t *end, int8_t *y, \
        EMITC_WINOGRAD_BY_##how) \
    { \
        int32_t m0, m1, m2, m3, m4, m5; \
        __asm__ volatile( \
            "1:\n\t" \
            "ldr %[m0], [%[sums]]\n\tldr %[m1], [%[sums], #4]\n\tldr %[m2], [%[sums], #8]\n\t" \
            "ldr %[m3], [%[sums], #12]\n\tldr %[m4], [%[sums], #16]\n\tldr %[m5], [%[sums], #20]\n\t" \
            "add %[sums], %[sums], %[step]\n\t" \
            "add %[m1], %[m1], %[m2]\n\tsub %[m2], %[m1], %[m2], lsl #1\n\t" /* p, q */ \
            "add %[m3], %[m3], %[m4]\n\tsub %[m4], %[m3], %[m4], lsl #1\n\t" /* r, s */ \
            "add %[m0], %[m0], %[m0], lsl #1\n\tadd %[m0], %[m3], %[m0], lsl #1\n\t" \
            "sub %[m0], %[m0], %[m1], lsl #2\n\t" /* 6 m0 - 4 p + r */ \
            "sub %[m1], %[m3], %[m1]\n\t" /* r - p */ \
            "sub %[m3], %[m4], %[m2], lsl #1\n\t" /* s - 2 q */ \
            "add %[m5], %[m5], %[m5], lsl #1\n\tadd %[m5], %[m5], %[m4]\n\t" \
            "rsb %[m5], %[m2], %[m5], lsl #1\n\t" /* 6 m5 - q + 2 s */ \
            "mla %[m5], %[m5], %[third], %[bias]\n\tmla %[m1], %[m1], %[third], %[bias]\n\t" \
            "mul %[m3], %[m3], %[third]\n\tmul %[m0], %[m0], %[third]\n\t" \
            "add %[m3], %[m3], %[bias], lsl #1\n\tadd %[m0], %[m0], %[bias], lsl #2\n\t" \
            EMITC_WINOGRAD_ALL_##how \
            "ldrh %[m2], [%[to], #6]\n\tldrh %[m4], [%[to], #4]\n\t" \
            "strb %[m5], [%[y], %[m2]]\n\tstrb %[m1], [%[y], %[m4]]\n\t" \
            "ldrh %[m2], [%[to], #2]\n\tldrh %[m4], [%[to]], #8\n\t" \
            "strb %[m3], [%[y], %[m2]]\n\tstrb %[m0], [%[y], %[m4]]\n\t" \
            "ldr %[m0], %[end]\n\t" \
            "cmp %[to], %[m0]\n\t" \
            "bne 1b" \
            : [m0] "=&r"(m0), [m1] "=&r"(m1), [m2] "=&r"(m2), [m3] "=&r"(m3), [m4] "=&r"(m4), [m5] "=&r"(m5), \
              [sums] "+r"(sums), [to] "+r"(to) \
            : [step] "I"(step), [third] "r"(0xaaaaaaabu), [bias] "r"(2 * (uint32_t)bias), [y] "r"(y), [end] "m"(end), \
              EMITC_WINOGRAD_WITH_##how \
            : EMITC_WINOGRAD_CLOBBERED_##how); \
    }
#endif
#define EMITC_WINOGRAD_OUTPUT_UP(acc) emitc_output_up(acc, by)
#define EMITC_WINOGRAD_OUTPUT_AWAY(acc) emitc_output_away(acc, by)
#define EMITC_WINOGRAD_OUTPUT_FLOAT(acc) emitc_output_float(acc, factor, offset)
#define EMITC_WINOGRAD_PLAIN(name, how) \
    EMITC_ALWAYS_INLINE void name( \
        const int32_t *sums, int32_t step, int32_t bias, const uint16_t *to, const uint16_t *end, int8_t *y, \
        EMITC_WINOGRAD_BY_##how) \
    { \
        for (; to != end; to += 4) { \
            const emitc_acc4 acc = emitc_winograd_outputs(sums, bias); \
            y[to[3]] = EMITC_WINOGRAD_OUTPUT_##how(acc.a3); \
            y[to[2]] = EMITC_WINOGRAD_OUTPUT_##how(acc.a2); \
            y[to[1]] = EMITC_WINOGRAD_OUTPUT_##how(acc.a1); \
            y[to[0]] = EMITC_WINOGRAD_OUTPUT_##how(acc.a0); \
            sums += step / 4; \
        } \
    }
#if !EMITC_TILE_ASM
#define EMITC_WINOGRAD_FUNCTION EMITC_WINOGRAD_PLAIN
#endif
EMITC_WINOGRAD_FUNCTION(emitc_winograd_up, UP)
EMITC_WINOGRAD_FUNCTION(emitc_winograd_away, AWAY)
#if defined(__ARM_FP)
EMITC_WINOGRAD_FUNCTION(emitc_winograd_float, FLOAT)
#else
EMITC_WINOGRAD_PLAIN(emitc_winograd_float, FLOAT)
#endif

#endif
