/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: depthwise convolutions by planes, each with the values of one channel.
 *
 * Part of a package whose kernels use it; see emitc_dsp_tile.h. Four channels of some rows of an image are widened to
 * int16, or two of a wide image. A word has two neighbouring columns of one row and channel. The words of
 * EMITC_PLANE_ROWS rows follow each other: a strip. The strips of the same columns and two channels follow each other,
 * then those of the next two columns. Of four channels, the last two follow the first two. Borders of the image have
 * the zero point. So sums read all their values at constant distances, two with each load.
 */
#ifndef EMITC_DSP_PLANES_H
#define EMITC_DSP_PLANES_H

#include "emitc_dsp_pool.h"
#include "emitc_dsp_tile.h"

enum { EMITC_PLANE_ROWS = 8, EMITC_PLANE_STEP = 2 * EMITC_PLANE_ROWS };

/* The outputs of each channel: how many, of at most six rows, and bytes from one to the next.
 * half: words of two channels. each, offset: as emitc_four_up takes them. */
typedef struct emitc_plane {
    int32_t rows;
    int32_t columns;
    int32_t row_step;
    int32_t column_step;
    int32_t half;
    int32_t each;
    int32_t offset;
} emitc_plane;

/* Where the plane of a channel begins, by its number of those that are widened. */
EMITC_ALWAYS_INLINE const uint32_t *emitc_plane_of(const uint32_t *values, int32_t channel, int32_t half)
{
    return values + (channel & 1) * EMITC_PLANE_ROWS + (channel >> 1) * half;
}

/* Two columns of two channels, in two strips. pixels: the channels of the first column, then those of the second. */
EMITC_ALWAYS_INLINE void emitc_plane_pairs(uint32_t *to, uint32_t pixels)
{
    to[0] = emitc_even(pixels);
    to[EMITC_PLANE_ROWS] = emitc_odd(pixels);
}

EMITC_ALWAYS_INLINE uint32_t emitc_two_bytes(const int8_t *values)
{
    uint16_t two;
    memcpy(&two, values, sizeof two);
    return two;
}

/* What widens two columns of four channels, or of two. x, next: the columns. half: words of two channels. */
#define EMITC_PLANE_FOUR(to, half, x, next) \
    emitc_plane_pairs(to, emitc_pair_of(x, next)); \
    emitc_plane_pairs((to) + (half), emitc_pair_above(x, next));
#define EMITC_PLANE_TWO(to, half, x, next) emitc_plane_pairs(to, emitc_pair_of(x, next));

/* Widens rows of an image. x: their first pixel; pixel, row: bytes from one pixel or row to the next. odd: whether the
 * first pixel is the second of its two columns. zeros: four times the zero point, which completes the pairs at both
 * ends. The ends of all rows come first, which leaves registers to the rows. */
#define EMITC_PLANE_WIDENED(name, columns, load) \
    EMITC_NOINLINE void name( \
        uint32_t *strips, int32_t half, const int8_t *x, int32_t rows, int32_t row, int32_t pixels, int32_t pixel, \
        int32_t odd, uint32_t zeros) \
    { \
        const int32_t inner = (pixels - odd) >> 1; \
        (void)half; \
        if (odd) { \
            const int8_t *at = x; \
            for (int32_t r = 0; r < rows; r++) { \
                const uint32_t first = load(at); \
                columns(strips + r, half, zeros, first) \
                at += row; \
            } \
            strips += EMITC_PLANE_STEP; \
            x += pixel; \
        } \
        if ((pixels - odd) & 1) { \
            uint32_t *const to = strips + inner * EMITC_PLANE_STEP; \
            const int8_t *at = x + 2 * inner * pixel; \
            for (int32_t r = 0; r < rows; r++) { \
                const uint32_t last = load(at); \
                columns(to + r, half, last, zeros) \
                at += row; \
            } \
        } \
        row -= 2 * inner * pixel; \
        for (; rows > 0; rows--) { \
            uint32_t *to = strips; \
            for (int32_t two = inner; two > 0; two--) { \
                const uint32_t first = load(x); \
                const uint32_t second = load(x + pixel); \
                columns(to, half, first, second) \
                to += EMITC_PLANE_STEP; \
                x += 2 * pixel; \
            } \
            strips++; \
            x += row; \
        } \
    }
EMITC_PLANE_WIDENED(emitc_plane_widened4, EMITC_PLANE_FOUR, emitc_four)
EMITC_PLANE_WIDENED(emitc_plane_widened2, EMITC_PLANE_TWO, emitc_two_bytes)

/* One row of zero points in an even number of strips. */
EMITC_NOINLINE void emitc_plane_zeros(uint32_t *to, int32_t strips, uint32_t zeros)
{
    for (; strips > 0; strips -= 2) {
        emitc_plane_pairs(to, zeros);
        to += 2 * EMITC_PLANE_ROWS;
    }
}

/* Moves two rows to the first ones, from row `by` on, in an even number of strips. */
EMITC_NOINLINE void emitc_plane_moved2(uint32_t *to, int32_t strips, int32_t by)
{
    for (; strips > 0; strips -= 2) {
        const uint32_t first = to[by];
        const uint32_t second = to[by + 1];
        to[0] = first;
        to[1] = second;
        const uint32_t other = to[EMITC_PLANE_ROWS + by];
        const uint32_t last = to[EMITC_PLANE_ROWS + by + 1];
        to[EMITC_PLANE_ROWS] = other;
        to[EMITC_PLANE_ROWS + 1] = last;
        to += 2 * EMITC_PLANE_ROWS;
    }
}

/* The same of some rows. */
EMITC_NOINLINE void emitc_plane_moved(uint32_t *to, int32_t strips, int32_t rows, int32_t by)
{
    for (; strips > 0; strips--) {
        for (int32_t row = 0; row < rows; row++) {
            to[row] = to[row + by];
        }
        to += EMITC_PLANE_ROWS;
    }
}

/* The weights of a 3x3 window in pairs, which are the first two and the last two of each row. */
typedef struct emitc_taps3x3 {
    uint32_t first[3];
    uint32_t last[3];
} emitc_taps3x3;

EMITC_ALWAYS_INLINE emitc_taps3x3 emitc_taps3x3_of(const int8_t *w)
{
    const uint32_t top = emitc_four(w);
    const uint32_t middle = emitc_four(w + 4);
    const uint32_t bottom = emitc_four(w + 8);
    const emitc_taps3x3 taps = {
        {emitc_even(top), emitc_even(middle), emitc_even(bottom)},
        {emitc_odd(top), emitc_odd(middle), emitc_odd(bottom)}};
    return taps;
}

/* The sums of two columns in each of two rows, in the order of the rows. x: from the first two columns on. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_plane_sums3x3(int32_t bias, const uint32_t *x, const emitc_taps3x3 *taps)
{
    const uint32_t *const next = x + EMITC_PLANE_STEP;
    emitc_acc4 acc = {bias, bias, bias, bias};
    for (int32_t row = 0; row < 3; row++) {
        const uint32_t first = taps->first[row];
        const uint32_t last = taps->last[row];
        acc.a0 = emitc_pair_mac(acc.a0, x[row], first) + emitc_low(next[row]) * emitc_high(last);
        acc.a1 = emitc_pair_mac(acc.a1, next[row], last) + emitc_high(x[row]) * emitc_low(first);
        acc.a2 = emitc_pair_mac(acc.a2, x[row + 1], first) + emitc_low(next[row + 1]) * emitc_high(last);
        acc.a3 = emitc_pair_mac(acc.a3, next[row + 1], last) + emitc_high(x[row + 1]) * emitc_low(first);
    }
    return acc;
}

/* The sums of emitc_plane_sums3x3 for a window of `height` rows. w: for two columns after the other one word of each
 * row. Its even bytes are the weights of the first output, its odd ones those of the second. words: of a row. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_plane_sums(
    int32_t bias, const uint32_t *x, const int8_t *w, int32_t height, int32_t words)
{
    emitc_acc4 acc = {bias, bias, bias, bias};
    for (; words > 0; words--) {
        const uint32_t *below = x + 1;
        uint32_t pair = *x;
        for (const int8_t *const end = w + 4 * height; w != end; w += 4) {
            const uint32_t four = emitc_four(w);
            const uint32_t even = emitc_even(four);
            const uint32_t odd = emitc_odd(four);
            acc.a0 = emitc_pair_mac(acc.a0, pair, even);
            acc.a1 = emitc_pair_mac(acc.a1, pair, odd);
            pair = *below++;
            acc.a2 = emitc_pair_mac(acc.a2, pair, even);
            acc.a3 = emitc_pair_mac(acc.a3, pair, odd);
        }
        x += EMITC_PLANE_STEP;
    }
    return acc;
}

/* The same in C. */
#define EMITC_PLANE_SAME_LOOP
#define EMITC_PLANE_CHANNEL_LOOP(how) \
    for (int32_t row = 0; row < s->rows; row += 2) { \
        const int32_t row_step = row + 1 < s->rows ? s->row_step : 0; \
        const uint32_t *x = values + row; \
        int8_t *y = to + row * s->row_step; \
        for (int32_t column = 0; column < s->columns; column += 2) { \
            const int32_t column_step = column + 1 < s->columns ? s->column_step : 0; \
            const emitc_acc4 acc = emitc_plane_sums3x3(bias[c], x, &taps); \
            y[row_step + column_step] = EMITC_PLANE_OUTPUT_##how(acc.a3); \
            y[row_step] = EMITC_PLANE_OUTPUT_##how(acc.a2); \
            y[column_step] = EMITC_PLANE_OUTPUT_##how(acc.a1); \
            y[0] = EMITC_PLANE_OUTPUT_##how(acc.a0); \
            x += EMITC_PLANE_STEP; \
            y += 2 * s->column_step; \
        } \
    }
#define EMITC_PLANE_OUTPUT_UP(acc) emitc_output_up(acc, by)
#define EMITC_PLANE_OUTPUT_AWAY(acc) emitc_output_away(acc, by)
#define EMITC_PLANE_OUTPUT_FLOAT(acc) emitc_output_float(acc, by.q31, by.start)

#if EMITC_TILE_ASM
/* The weights and the bias are doubled for multipliers, because emitc_scaled doubles its sums. */
EMITC_ALWAYS_INLINE uint32_t emitc_plane_doubled(uint32_t pair)
{
    __asm__("sadd16 %0, %0, %0" : "+r"(pair));
    return pair;
}
#define EMITC_PLANE_WEIGHT_UP(pair) emitc_plane_doubled(pair)
#define EMITC_PLANE_WEIGHT_AWAY(pair) emitc_plane_doubled(pair)
#define EMITC_PLANE_WEIGHT_FLOAT(pair) (pair)
#define EMITC_PLANE_BIAS_UP(bias) (2 * (bias))
#define EMITC_PLANE_BIAS_AWAY(bias) (2 * (bias))
#define EMITC_PLANE_BIAS_FLOAT(bias) (bias)

/* Sums as outputs; t2 is the multiplier, t0 what is added before the shift, t1 the shift. Or a float32 factor and the
 * output's zero point. */
#define EMITC_PLANE_ONE_UP(sum) \
    "smmlar %[" #sum "], %[" #sum "], %[t2], %[t0]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[t1]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PLANE_ONE_AWAY(sum) \
    "smmulr %[" #sum "], %[" #sum "], %[t2]\n\t" \
    "add %[" #sum "], %[" #sum "], %[" #sum "], asr #31\n\t" \
    "add %[" #sum "], %[" #sum "], %[t0]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[t1]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PLANE_TWO_UP(a, b) EMITC_PLANE_ONE_UP(a) EMITC_PLANE_ONE_UP(b)
#define EMITC_PLANE_TWO_AWAY(a, b) EMITC_PLANE_ONE_AWAY(a) EMITC_PLANE_ONE_AWAY(b)
#define EMITC_PLANE_TWO_FLOAT(a, b) \
    "vmov s2, %[t2]\n\t" \
    "vmov s0, s1, %[" #a "], %[" #b "]\n\t" \
    "vcvt.f32.s32 s0, s0\n\tvcvt.f32.s32 s1, s1\n\t" \
    "vmul.f32 s0, s0, s2\n\tvmul.f32 s1, s1, s2\n\t" \
    "vcvtr.s32.f32 s0, s0\n\tvcvtr.s32.f32 s1, s1\n\t" \
    "vmov %[" #a "], %[" #b "], s0, s1\n\t" \
    "qadd %[" #a "], %[" #a "], %[t0]\n\tssat %[" #a "], #8, %[" #a "]\n\t" \
    "qadd %[" #b "], %[" #b "], %[t0]\n\tssat %[" #b "], #8, %[" #b "]\n\t"
#if defined(__ARM_FP)
#define EMITC_PLANE_CLOBBERED "cc", "memory", "s0", "s1", "s2"
#else
#define EMITC_PLANE_CLOBBERED "cc", "memory"
#endif

/* The word `t` with two values times weights of two neighbouring outputs, whose sums are a and b. */
#define EMITC_PLANE_FIRST(t, a, b, w) \
    "smlad %[" #a "], %[" #t "], %[" #w "], %[" #a "]\n\t" \
    "smlatb %[" #b "], %[" #t "], %[" #w "], %[" #b "]\n\t"
#define EMITC_PLANE_LAST(t, a, b, w) \
    "smlabt %[" #a "], %[" #t "], %[" #w "], %[" #a "]\n\t" \
    "smlad %[" #b "], %[" #t "], %[" #w "], %[" #b "]\n\t"
/* The same of one output. */
#define EMITC_PLANE_PAIR(t, sum, w, from) "smlad %[" #sum "], %[" #t "], %[" #w "], %[" #from "]\n\t"
#define EMITC_PLANE_THIRD(t, sum, w) "smlabt %[" #sum "], %[" #t "], %[" #w "], %[" #sum "]\n\t"
#define EMITC_PLANE_LOAD(t, at) "ldr %[" #t "], [%[x], #" #at "]\n\t"
/* The sums of two columns in each of two rows. r0 to r3: bytes from x to the four rows that they read; 64 to those of
 * the next two columns. */
#define EMITC_PLANE_SUMS(r0, r1, r2, r3) \
    "ldr %[s3], %[bias]\n\t" \
    EMITC_PLANE_LOAD(t0, r0) EMITC_PLANE_LOAD(t1, r1) EMITC_PLANE_LOAD(t2, r2) \
    "smlad %[s0], %[t0], %[w0], %[s3]\n\t" \
    "smlatb %[s1], %[t0], %[w0], %[s3]\n\t" \
    "smlad %[s2], %[t1], %[w0], %[s3]\n\t" \
    "smlatb %[s3], %[t1], %[w0], %[s3]\n\t" \
    EMITC_PLANE_FIRST(t1, s0, s1, w2) EMITC_PLANE_FIRST(t2, s2, s3, w2) EMITC_PLANE_FIRST(t2, s0, s1, w4) \
    EMITC_PLANE_LOAD(t0, r3) EMITC_PLANE_LOAD(t1, 64 + r0) EMITC_PLANE_LOAD(t2, 64 + r1) \
    EMITC_PLANE_FIRST(t0, s2, s3, w4) EMITC_PLANE_LAST(t1, s0, s1, w1) \
    EMITC_PLANE_LAST(t2, s0, s1, w3) EMITC_PLANE_LAST(t2, s2, s3, w1) \
    EMITC_PLANE_LOAD(t0, 64 + r2) EMITC_PLANE_LOAD(t1, 64 + r3) "ldr %[t2], %[q31]\n\t" \
    EMITC_PLANE_LAST(t0, s0, s1, w5) EMITC_PLANE_LAST(t0, s2, s3, w3) EMITC_PLANE_LAST(t1, s2, s3, w5) \
    "ldr %[t0], %[start]\n\t" \
    "ldr %[t1], %[right]\n\t"
/* Stores them. Where a step is 0, the output that is stored first is none. move: to the rows, from what y is. */
#define EMITC_PLANE_STORE(how, move) \
    EMITC_PLANE_TWO_##how(s0, s1) EMITC_PLANE_TWO_##how(s2, s3) \
    "ldr %[t0], %[y]\n\t" \
    "ldr %[t1], %[column_step]\n\t" \
    "ldr %[t2], %[row_step]\n\t" move \
    "strb %[s3], [%[t2], %[t1]]\n\t" \
    "strb %[s2], [%[t2]]\n\t" \
    "strb %[s1], [%[t0], %[t1]]\n\t" \
    "strb %[s0], [%[t0]]\n\t"
/* The outputs of two columns at a time, up to `end`. x and y are those of six rows, of which the last 2 * pairs are
 * made. */
#define EMITC_PLANE_COLUMNS(how) \
    "1:\n\t" \
    "ldr %[t0], %[pairs]\n\t" \
    "cmp %[t0], #2\n\t" \
    "beq 2f\n\t" \
    "blt 3f\n\t" EMITC_PLANE_SUMS(0, 4, 8, 12) \
    EMITC_PLANE_STORE(how, "add %[t2], %[t0], %[t2]\n\t") \
    "2:\n\t" EMITC_PLANE_SUMS(8, 12, 16, 20) \
    EMITC_PLANE_STORE(how, \
        "add %[t0], %[t0], %[t2], lsl #1\n\t" \
        "add %[t2], %[t0], %[t2]\n\t") \
    "3:\n\t" EMITC_PLANE_SUMS(16, 20, 24, 28) \
    EMITC_PLANE_STORE(how, \
        "add %[t0], %[t0], %[t2], lsl #2\n\t" \
        "ldr %[t2], %[last_step]\n\t" \
        "add %[t2], %[t0], %[t2]\n\t") \
    "ldr %[t0], %[y]\n\t" \
    "ldr %[t2], %[end]\n\t" \
    "add %[x], %[x], #64\n\t" \
    "add %[t0], %[t0], %[t1], lsl #1\n\t" \
    "str %[t0], %[y]\n\t" \
    "cmp %[x], %[t2]\n\t" \
    "bne 1b"
/* The outputs of one column in two rows at a time, of `units` twice two rows. s1 is where they go, s3 bytes to the
 * next row. */
#define EMITC_PLANE_COLUMN(how) \
    "1:\n\t" \
    "ldr %[s2], %[bias]\n\t" EMITC_PLANE_LOAD(t0, 0) EMITC_PLANE_LOAD(t1, 4) EMITC_PLANE_LOAD(t2, 8) \
    EMITC_PLANE_PAIR(t0, s0, w0, s2) EMITC_PLANE_PAIR(t1, s2, w0, s2) EMITC_PLANE_PAIR(t1, s0, w2, s0) \
    EMITC_PLANE_PAIR(t2, s2, w2, s2) EMITC_PLANE_PAIR(t2, s0, w4, s0) \
    EMITC_PLANE_LOAD(t0, 12) EMITC_PLANE_LOAD(t1, 64) EMITC_PLANE_LOAD(t2, 68) \
    EMITC_PLANE_PAIR(t0, s2, w4, s2) EMITC_PLANE_THIRD(t1, s0, w1) EMITC_PLANE_THIRD(t2, s0, w3) \
    EMITC_PLANE_THIRD(t2, s2, w1) \
    EMITC_PLANE_LOAD(t0, 72) EMITC_PLANE_LOAD(t1, 76) "ldr %[t2], %[q31]\n\t" \
    EMITC_PLANE_THIRD(t0, s0, w5) EMITC_PLANE_THIRD(t0, s2, w3) EMITC_PLANE_THIRD(t1, s2, w5) \
    "ldr %[t0], %[start]\n\t" \
    "ldr %[t1], %[right]\n\t" \
    EMITC_PLANE_TWO_##how(s0, s2) \
    "ldr %[t0], %[end]\n\t" \
    "strb %[s2], [%[s1], %[s3]]\n\t" \
    "strb %[s0], [%[s1]]\n\t" \
    "add %[x], %[x], #8\n\t" \
    "add %[s1], %[s1], %[s3], lsl #1\n\t" \
    "cmp %[x], %[t0]\n\t" \
    "bne 1b"
#define EMITC_PLANE_SUM_REGISTERS(mode1, a, mode3, b) \
    [x] "+r"(x), [s0] "=&r"(s0), [s1] mode1(a), [s2] "=&r"(s2), [s3] mode3(b), [t0] "=&r"(t0), [t1] "=&r"(t1), \
        [t2] "=&r"(t2)
#define EMITC_PLANE_READ \
    [w0] "r"(w0), [w1] "r"(w1), [w2] "r"(w2), [w3] "r"(w3), [w4] "r"(w4), [w5] "r"(w5), [bias] "m"(start_bias), \
        [q31] "m"(by.q31), [start] "m"(by.start), [right] "m"(by.right), [end] "m"(end)
#define EMITC_PLANE_LOCALS(how) \
    int32_t s0, s1, s2, s3; \
    uint32_t t0, t1, t2; \
    const int32_t start_bias = EMITC_PLANE_BIAS_##how(bias[c]); \
    const uint32_t w0 = EMITC_PLANE_WEIGHT_##how(taps.first[0]); \
    const uint32_t w1 = EMITC_PLANE_WEIGHT_##how(taps.last[0]); \
    const uint32_t w2 = EMITC_PLANE_WEIGHT_##how(taps.first[1]); \
    const uint32_t w3 = EMITC_PLANE_WEIGHT_##how(taps.last[1]); \
    const uint32_t w4 = EMITC_PLANE_WEIGHT_##how(taps.first[2]); \
    const uint32_t w5 = EMITC_PLANE_WEIGHT_##how(taps.last[2]);
/* What is the same for all channels. */
#define EMITC_PLANE_SAME_COLUMNS \
    const int32_t column_step = s->column_step; \
    const int32_t row_step = s->row_step; \
    const int32_t pairs = (s->rows + 1) >> 1; \
    const int32_t last_step = s->rows & 1 ? 0 : row_step; \
    const int32_t above = 6 - 2 * pairs; \
    const int32_t words = (s->columns >> 1) * EMITC_PLANE_STEP;
#define EMITC_PLANE_CHANNEL_COLUMNS(how) \
    { \
        EMITC_PLANE_LOCALS(how) \
        const uint32_t *x = values - above; \
        const uint32_t *end = x + words; \
        int8_t *y = to - above * row_step; \
        if (words != 0) { \
            __asm__ volatile(EMITC_PLANE_COLUMNS(how) \
                : EMITC_PLANE_SUM_REGISTERS("=&r", s1, "=&r", s3), [y] "+m"(y) \
                : EMITC_PLANE_READ, [column_step] "m"(column_step), [row_step] "m"(row_step), \
                  [last_step] "m"(last_step), [pairs] "m"(pairs) \
                : EMITC_PLANE_CLOBBERED); \
        } \
        if (s->columns & 1) { \
            int8_t *each = y + above * row_step; \
            int32_t step = row_step; \
            x += above; \
            end = x + (s->rows & ~1); \
            for (int32_t odd = 0; odd < 2; odd++) { \
                if (x != end) { \
                    __asm__ volatile(EMITC_PLANE_COLUMN(how) \
                        : EMITC_PLANE_SUM_REGISTERS("+r", each, "+r", step) : EMITC_PLANE_READ \
                        : EMITC_PLANE_CLOBBERED); \
                } \
                step = 0; \
                end += 2 * (s->rows & 1); \
            } \
        } \
    }
#endif

/* A float32 factor instead of a multiplier. */
typedef struct emitc_plane_factor {
    float q31;
    int32_t right;
    int32_t start;
} emitc_plane_factor;

#define EMITC_PLANE_BY_UP \
    const emitc_output by = emitc_output_of(((const int32_t *)factor)[number], right[number], s->offset);
#define EMITC_PLANE_BY_AWAY EMITC_PLANE_BY_UP
#define EMITC_PLANE_BY_FLOAT const emitc_plane_factor by = {((const float *)factor)[number], 0, s->offset};

/* The outputs of `channels` neighbouring channels of 3x3 windows, which begin with number `first` of those whose planes
 * lie at `planes`. w: for each row of a window its weights 0, 1, 1 and 2. factor, right: as emitc_out_channels has
 * them; right is not read where factors are float32. */
#define EMITC_PLANE_FUNCTION(name, how, part) \
    EMITC_NOINLINE void name( \
        const emitc_plane *s, const uint32_t *planes, int32_t first, const int8_t *weights, const int32_t *bias, \
        const void *factor, const int8_t *right, int32_t channels, int8_t *y_first) \
    { \
        EMITC_PLANE_SAME_##part \
        (void)right; \
        for (int32_t c = 0; c < channels; c++) { \
            const int32_t number = c * s->each; \
            const uint32_t *const values = emitc_plane_of(planes, first + c, s->half); \
            const emitc_taps3x3 taps = emitc_taps3x3_of(weights + 12 * c); \
            int8_t *const to = y_first + c; \
            EMITC_PLANE_BY_##how \
            EMITC_PLANE_CHANNEL_##part(how) \
        } \
    }
#if EMITC_TILE_ASM
EMITC_PLANE_FUNCTION(emitc_plane_up, UP, COLUMNS)
EMITC_PLANE_FUNCTION(emitc_plane_away, AWAY, COLUMNS)
#else
EMITC_PLANE_FUNCTION(emitc_plane_up, UP, LOOP)
EMITC_PLANE_FUNCTION(emitc_plane_away, AWAY, LOOP)
#endif
#if EMITC_TILE_ASM && defined(__ARM_FP)
EMITC_PLANE_FUNCTION(emitc_plane_float, FLOAT, COLUMNS)
#else
EMITC_PLANE_FUNCTION(emitc_plane_float, FLOAT, LOOP)
#endif

#endif
