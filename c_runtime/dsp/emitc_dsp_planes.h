/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: depthwise convolutions by planes, each with the values of one channel.
 *
 * Part of a package whose kernels use it; see emitc_dsp_tile.h. Four channels of some rows of an image are widened to
 * int16, or two of a wide image. A word has two neighbouring columns of one row and channel. The words of
 * EMITC_PLANE_ROWS rows follow each other: a strip. The strips of the same columns follow, one for each channel, then
 * those of the next two columns. Borders of the image have the zero point. So sums read all their values at constant
 * distances, two with each load.
 */
#ifndef EMITC_DSP_PLANES_H
#define EMITC_DSP_PLANES_H

#include "emitc_dsp_pool.h"
#include "emitc_dsp_tile.h"

enum { EMITC_PLANE_ROWS = 8 };

/* The outputs of each channel: how many, of at most six rows, and bytes from one to the next. each, offset: as
 * emitc_four_up takes them. */
typedef struct emitc_plane {
    int32_t rows;
    int32_t columns;
    int32_t row_step;
    int32_t column_step;
    int32_t each;
    int32_t offset;
} emitc_plane;

/* Two columns of two channels, in two strips. pixels: the channels of the first column, then those of the second. */
EMITC_ALWAYS_INLINE void emitc_plane_pairs(uint32_t *to, uint32_t pixels)
{
    to[0] = emitc_even(pixels);
    to[EMITC_PLANE_ROWS] = emitc_odd(pixels);
}

/* The same of four channels. x, next: the columns. */
EMITC_ALWAYS_INLINE void emitc_plane_columns4(uint32_t *to, uint32_t x, uint32_t next)
{
    emitc_plane_pairs(to, emitc_pair_of(x, next));
    emitc_plane_pairs(to + 2 * EMITC_PLANE_ROWS, emitc_pair_above(x, next));
}

EMITC_ALWAYS_INLINE void emitc_plane_columns2(uint32_t *to, uint32_t x, uint32_t next)
{
    emitc_plane_pairs(to, emitc_pair_of(x, next));
}

EMITC_ALWAYS_INLINE uint32_t emitc_two_bytes(const int8_t *values)
{
    uint16_t two;
    memcpy(&two, values, sizeof two);
    return two;
}

/* Widens rows of an image. x: their first pixel; pixel, row: bytes from one pixel or row to the next. odd: whether the
 * first pixel is the second of its two columns. zeros: four times the zero point, which completes the pairs at both
 * ends. */
#define EMITC_PLANE_WIDENED(name, columns, four, step) \
    EMITC_NOINLINE void name( \
        uint32_t *strips, const int8_t *x, int32_t rows, int32_t row, int32_t pixels, int32_t pixel, int32_t odd, \
        uint32_t zeros) \
    { \
        for (; rows > 0; rows--) { \
            uint32_t *to = strips; \
            const int8_t *at = x; \
            if (odd) { \
                columns(to, zeros, four(at)); \
                to += (step); \
                at += pixel; \
            } \
            for (int32_t two = (pixels - odd) >> 1; two > 0; two--) { \
                columns(to, four(at), four(at + pixel)); \
                to += (step); \
                at += 2 * pixel; \
            } \
            if ((pixels - odd) & 1) { \
                columns(to, four(at), zeros); \
            } \
            strips++; \
            x += row; \
        } \
    }
EMITC_PLANE_WIDENED(emitc_plane_widened4, emitc_plane_columns4, emitc_four, 4 * EMITC_PLANE_ROWS)
EMITC_PLANE_WIDENED(emitc_plane_widened2, emitc_plane_columns2, emitc_two_bytes, 2 * EMITC_PLANE_ROWS)

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

/* The sums of two columns in each of two rows, in the order of the rows. x: from the first two columns on; next: from
 * the next ones on. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_plane_sums3x3(
    int32_t bias, const uint32_t *x, const uint32_t *next, const emitc_taps3x3 *taps)
{
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

/* The same sums of a window of `height` rows. w: for two columns after the other one word of each row. Its even bytes
 * are the weights of the first output, its odd ones those of the second. words: of a row. step: words from two columns
 * to the next two. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_plane_sums(
    int32_t bias, const uint32_t *x, const int8_t *w, int32_t height, int32_t words, int32_t step)
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
        x += step;
    }
    return acc;
}

#if EMITC_TILE_ASM
/* Both halves of a pair doubled. */
EMITC_ALWAYS_INLINE uint32_t emitc_plane_doubled(uint32_t pair)
{
    __asm__("sadd16 %0, %0, %0" : "+r"(pair));
    return pair;
}

/* The word `t` with two values times weights of two neighbouring outputs, whose sums are a and b. */
#define EMITC_PLANE_FIRST(t, a, b, w) \
    "smlad %[" #a "], %[" #t "], %[" #w "], %[" #a "]\n\t" \
    "smlatb %[" #b "], %[" #t "], %[" #w "], %[" #b "]\n\t"
#define EMITC_PLANE_LAST(t, a, b, w) \
    "smlabt %[" #a "], %[" #t "], %[" #w "], %[" #a "]\n\t" \
    "smlad %[" #b "], %[" #t "], %[" #w "], %[" #b "]\n\t"
#define EMITC_PLANE_LOAD(t, at) "ldr %[" #t "], [%[x], #" #at "]\n\t"
/* The sums of two columns in each of two rows. r0 to r3: bytes from x to the four rows that they read. The weights and
 * the bias are doubled, because emitc_scaled doubles its sums. */
#define EMITC_PLANE_SUMS(r0, r1, r2, r3) \
    "ldr %[s3], %[bias]\n\t" \
    EMITC_PLANE_LOAD(t0, r0) EMITC_PLANE_LOAD(t1, r1) EMITC_PLANE_LOAD(t2, r2) \
    "smlad %[s0], %[t0], %[w0], %[s3]\n\t" \
    "smlatb %[s1], %[t0], %[w0], %[s3]\n\t" \
    "smlad %[s2], %[t1], %[w0], %[s3]\n\t" \
    "smlatb %[s3], %[t1], %[w0], %[s3]\n\t" \
    EMITC_PLANE_FIRST(t1, s0, s1, w2) EMITC_PLANE_FIRST(t2, s2, s3, w2) EMITC_PLANE_FIRST(t2, s0, s1, w4) \
    EMITC_PLANE_LOAD(t0, r3) EMITC_PLANE_LOAD(t1, %c[step] + r0) EMITC_PLANE_LOAD(t2, %c[step] + r1) \
    EMITC_PLANE_FIRST(t0, s2, s3, w4) EMITC_PLANE_LAST(t1, s0, s1, w1) \
    EMITC_PLANE_LAST(t2, s0, s1, w3) EMITC_PLANE_LAST(t2, s2, s3, w1) \
    EMITC_PLANE_LOAD(t0, %c[step] + r2) EMITC_PLANE_LOAD(t1, %c[step] + r3) "ldr %[t2], %[q31]\n\t" \
    EMITC_PLANE_LAST(t0, s0, s1, w5) EMITC_PLANE_LAST(t0, s2, s3, w3) EMITC_PLANE_LAST(t1, s2, s3, w5) \
    "ldr %[t0], %[start]\n\t" \
    "ldr %[t1], %[right]\n\t"
#define EMITC_PLANE_UP(sum) \
    "smmlar %[" #sum "], %[" #sum "], %[t2], %[t0]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[t1]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PLANE_AWAY(sum) \
    "smmulr %[" #sum "], %[" #sum "], %[t2]\n\t" \
    "add %[" #sum "], %[" #sum "], %[" #sum "], asr #31\n\t" \
    "add %[" #sum "], %[" #sum "], %[t0]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[t1]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
/* Stores them. Where a step is 0, the output that is stored first is none. move: to the rows, from what y is. */
#define EMITC_PLANE_STORE(output, move) \
    output(s0) output(s1) output(s2) output(s3) \
    "ldr %[t0], %[y]\n\t" \
    "ldr %[t1], %[column_step]\n\t" \
    "ldr %[t2], %[row_step]\n\t" move \
    "strb %[s3], [%[t2], %[t1]]\n\t" \
    "strb %[s2], [%[t2]]\n\t" \
    "strb %[s1], [%[t0], %[t1]]\n\t" \
    "strb %[s0], [%[t0]]\n\t"
/* The outputs of the columns up to `end`. x and y are those of six rows, of which the last 2 * pairs are made. */
#define EMITC_PLANE_COLUMNS(output, strips) \
    __asm__ volatile( \
        "1:\n\t" \
        "ldr %[t0], %[pairs]\n\t" \
        "cmp %[t0], #2\n\t" \
        "beq 2f\n\t" \
        "blt 3f\n\t" EMITC_PLANE_SUMS(0, 4, 8, 12) \
        EMITC_PLANE_STORE(output, "add %[t2], %[t0], %[t2]\n\t") \
        "2:\n\t" EMITC_PLANE_SUMS(8, 12, 16, 20) \
        EMITC_PLANE_STORE(output, \
            "add %[t0], %[t0], %[t2], lsl #1\n\t" \
            "add %[t2], %[t0], %[t2]\n\t") \
        "3:\n\t" EMITC_PLANE_SUMS(16, 20, 24, 28) \
        EMITC_PLANE_STORE(output, \
            "add %[t0], %[t0], %[t2], lsl #2\n\t" \
            "ldr %[t2], %[last_step]\n\t" \
            "add %[t2], %[t0], %[t2]\n\t") \
        "ldr %[t0], %[y]\n\t" \
        "add %[x], %[x], %[step]\n\t" \
        "add %[t0], %[t0], %[t1], lsl #1\n\t" \
        "str %[t0], %[y]\n\t" \
        "ldr %[t0], %[end]\n\t" \
        "cmp %[x], %[t0]\n\t" \
        "bne 1b" \
        : [x] "+r"(x), [y] "+m"(y), [s0] "=&r"(s0), [s1] "=&r"(s1), [s2] "=&r"(s2), [s3] "=&r"(s3), [t0] "=&r"(t0), \
          [t1] "=&r"(t1), [t2] "=&r"(t2) \
        : [w0] "r"(w0), [w1] "r"(w1), [w2] "r"(w2), [w3] "r"(w3), [w4] "r"(w4), [w5] "r"(w5), \
          [bias] "m"(twice), [q31] "m"(by.q31), [start] "m"(by.start), [right] "m"(by.right), \
          [column_step] "m"(column_step), [row_step] "m"(row_step), [last_step] "m"(last_step), [pairs] "m"(pairs), \
          [end] "m"(end), [step] "i"(4 * EMITC_PLANE_ROWS * (strips)) \
        : "cc", "memory")
#define EMITC_PLANE_CHANNEL(output, strips) \
    { \
        const int32_t pairs = (s->rows + 1) >> 1; \
        const int32_t row_step = s->row_step; \
        const int32_t last_step = s->rows & 1 ? 0 : row_step; \
        const int32_t twice = 2 * *bias; \
        const uint32_t *x = values - (6 - 2 * pairs); \
        const uint32_t *end = x + (s->columns >> 1) * (EMITC_PLANE_ROWS * (strips)); \
        int8_t *y = to - (6 - 2 * pairs) * row_step; \
        int32_t column_step = s->column_step; \
        int32_t s0, s1, s2, s3; \
        uint32_t t0, t1, t2; \
        const uint32_t w0 = emitc_plane_doubled(taps.first[0]); \
        const uint32_t w1 = emitc_plane_doubled(taps.last[0]); \
        const uint32_t w2 = emitc_plane_doubled(taps.first[1]); \
        const uint32_t w3 = emitc_plane_doubled(taps.last[1]); \
        const uint32_t w4 = emitc_plane_doubled(taps.first[2]); \
        const uint32_t w5 = emitc_plane_doubled(taps.last[2]); \
        for (int32_t odd = 0; odd < 2; odd++) { \
            if (x != end) { \
                EMITC_PLANE_COLUMNS(output, strips); \
            } \
            column_step = 0; \
            end += (s->columns & 1) * (EMITC_PLANE_ROWS * (strips)); \
        } \
    }
#else
#define EMITC_PLANE_CHANNEL(output, strips) \
    for (int32_t row = 0; row < s->rows; row += 2) { \
        const int32_t row_step = row + 1 < s->rows ? s->row_step : 0; \
        const uint32_t *x = values + row; \
        int8_t *y = to + row * s->row_step; \
        for (int32_t column = 0; column < s->columns; column += 2) { \
            const int32_t column_step = column + 1 < s->columns ? s->column_step : 0; \
            const emitc_acc4 acc = emitc_plane_sums3x3(*bias, x, x + EMITC_PLANE_ROWS * (strips), &taps); \
            y[row_step + column_step] = output(acc.a3, by); \
            y[row_step] = output(acc.a2, by); \
            y[column_step] = output(acc.a1, by); \
            y[0] = output(acc.a0, by); \
            x += EMITC_PLANE_ROWS * (strips); \
            y += 2 * s->column_step; \
        } \
    }
#define EMITC_PLANE_UP emitc_output_up
#define EMITC_PLANE_AWAY emitc_output_away
#endif

/* The outputs of `channels` neighbouring channels of 3x3 windows. values: from the first one's plane on; to: its
 * bytes. w: for each row of a window its weights 0, 1, 1 and 2. */
#define EMITC_PLANE_FUNCTION(name, output, strips) \
    EMITC_NOINLINE void name( \
        const emitc_plane *s, const uint32_t *values, const int8_t *w, const int32_t *bias, \
        const int32_t *multiplier, const int8_t *right, int32_t channels, int8_t *to) \
    { \
        for (; channels > 0; channels--) { \
            const emitc_output by = emitc_output_of(*multiplier, *right, s->offset); \
            const emitc_taps3x3 taps = emitc_taps3x3_of(w); \
            EMITC_PLANE_CHANNEL(output, strips) \
            values += EMITC_PLANE_ROWS; \
            w += 12; \
            bias++; \
            multiplier += s->each; \
            right += s->each; \
            to++; \
        } \
    }
EMITC_PLANE_FUNCTION(emitc_plane4_up, EMITC_PLANE_UP, 4)
EMITC_PLANE_FUNCTION(emitc_plane4_away, EMITC_PLANE_AWAY, 4)
EMITC_PLANE_FUNCTION(emitc_plane2_up, EMITC_PLANE_UP, 2)
EMITC_PLANE_FUNCTION(emitc_plane2_away, EMITC_PLANE_AWAY, 2)

#endif
