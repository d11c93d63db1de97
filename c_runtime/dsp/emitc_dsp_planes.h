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
    const uint32_t middle = emitc_four(w + 3);
    const uint32_t bottom = emitc_four(w + 5); /* from the last weight of the middle row on, not to read past the end */
    const uint32_t odd[3] = {emitc_odd(top), emitc_odd(middle), emitc_odd(bottom)};
    const emitc_taps3x3 taps = {
        {emitc_pair_of(emitc_even(top), odd[0]), emitc_pair_of(emitc_even(middle), odd[1]),
            emitc_pair_of(odd[2], emitc_even(bottom) >> 16)},
        {emitc_pair_of(odd[0], emitc_even(top) >> 16), emitc_pair_of(odd[1], emitc_even(middle) >> 16),
            emitc_pair_above(emitc_even(bottom), odd[2])}};
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
#define EMITC_PLANE_CHANNELS_LOOP(how) \
    for (int32_t c = 0; c < channels; c++) { \
        const emitc_taps3x3 taps = emitc_taps3x3_of(weights + 9 * c); \
        EMITC_PLANE_BY_##how(c * s->each) \
        for (int32_t row = 0; row < s->rows; row += 2) { \
            const int32_t row_step = row + 1 < s->rows ? s->row_step : 0; \
            const uint32_t *x = emitc_plane_of(planes, first + c, s->half) + row; \
            int8_t *y = to + c + row * s->row_step; \
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
        } \
    }
#define EMITC_PLANE_BY_UP(number) \
    const emitc_output by = emitc_output_of(((const int32_t *)factor)[number], right[number], s->offset);
#define EMITC_PLANE_BY_AWAY(number) EMITC_PLANE_BY_UP(number)
#define EMITC_PLANE_BY_FLOAT(number) const float by = ((const float *)factor)[number];
#define EMITC_PLANE_OUTPUT_UP(acc) emitc_output_up(acc, by)
#define EMITC_PLANE_OUTPUT_AWAY(acc) emitc_output_away(acc, by)
#define EMITC_PLANE_OUTPUT_FLOAT(acc) emitc_output_float(acc, by, s->offset)

#if EMITC_TILE_ASM
/* What begins a channel: its weights as pairs, where its plane is, and what makes outputs of its sums. Loads are next
 * to each other, stores alternate with other instructions. Of the channel, t2 is the output's offset, t0 its factor. */
#define EMITC_PLANE_BEGIN(how) \
    "ldr %[t0], %[s]\n\tldr %[w1], %[weights]\n\tldr %[s1], %[factor]\n\tldr %[s2], %[right]\n\t" \
    "ldr %[x], %[values]\n\tldr %[t1], %[next]\n\t" \
    "ldr %[w5], [%[t0], #16]\n\tldr %[w3], [%[t0], #20]\n\tldr %[t2], [%[t0], #24]\n\t" \
    "ldr %[w0], [%[w1]]\n\tldr %[w2], [%[w1], #3]\n\tldr %[w4], [%[w1], #5]\n\tldr %[t0], [%[s1]]\n\t" \
    "add %[w1], %[w1], #9\n\tadd %[w5], %[x], %[w5], lsl #2\n\tstr %[w1], %[weights]\n\t" \
    EMITC_PLANE_SHIFT_##how "add %[s1], %[s1], %[w3], lsl #2\n\tstr %[t1], %[values]\n\t" \
    "sxtb16 %[s3], %[w2], ror #8\n\tstr %[s1], %[factor]\n\tsxtb16 %[w2], %[w2]\n\tstr %[w5], %[next]\n\t" \
    "sxtb16 %[s1], %[w4], ror #8\n\tstr %[t0], %[q31]\n\tsxtb16 %[w4], %[w4]\n\tstr %[t2], %[start]\n\t" \
    "sxtb16 %[s0], %[w0], ror #8\n\tsxtb16 %[w0], %[w0]\n\t" EMITC_PLANE_DOUBLED_##how \
    "pkhbt %[w1], %[s0], %[w0]\n\tpkhbt %[w0], %[w0], %[s0], lsl #16\n\t" \
    "pkhbt %[w3], %[s3], %[w2]\n\tpkhbt %[w2], %[w2], %[s3], lsl #16\n\t" \
    "pkhtb %[w5], %[s1], %[w4], asr #16\n\tpkhbt %[w4], %[s1], %[w4]\n\t"
#define EMITC_PLANE_BIAS_UP(bias) (2 * (bias))
#define EMITC_PLANE_BIAS_AWAY(bias) (2 * (bias))
#define EMITC_PLANE_BIAS_FLOAT(bias) (bias)
/* Multipliers have a shift, and take weights and a bias twice as large, because emitc_scaled doubles its sums. */
#define EMITC_PLANE_SHIFT_UP \
    "ldrsb %[w1], [%[s2]]\n\tadd %[s2], %[s2], %[w3]\n\tstr %[s2], %[right]\n\t" \
    "lsl %[t2], %[t2], %[w1]\n\tstr %[w1], %[shift]\n\tasr %[t2], %[t2], #1\n\t"
#define EMITC_PLANE_DOUBLED_UP \
    EMITC_PLANE_TWICE(w0) EMITC_PLANE_TWICE(w2) EMITC_PLANE_TWICE(w4) EMITC_PLANE_TWICE(s0) EMITC_PLANE_TWICE(s1) \
    EMITC_PLANE_TWICE(s3)
#define EMITC_PLANE_TWICE(pair) "sadd16 %[" #pair "], %[" #pair "], %[" #pair "]\n\t"
#define EMITC_PLANE_SHIFT_AWAY EMITC_PLANE_SHIFT_UP
#define EMITC_PLANE_DOUBLED_AWAY EMITC_PLANE_DOUBLED_UP
#define EMITC_PLANE_SHIFT_FLOAT
#define EMITC_PLANE_DOUBLED_FLOAT

/* Sums as outputs; t2 is the multiplier, t0 what is added before the shift, t1 the shift. Or s4 is a float32 factor and
 * t2 the output's zero point. The first text follows other loads, the second one the products. */
#define EMITC_PLANE_LOADS_UP "ldr %[t2], %[q31]\n\t"
#define EMITC_PLANE_THEN_UP "ldr %[t0], %[start]\n\tldr %[t1], %[shift]\n\t"
#define EMITC_PLANE_LOADS_AWAY EMITC_PLANE_LOADS_UP
#define EMITC_PLANE_THEN_AWAY EMITC_PLANE_THEN_UP
#define EMITC_PLANE_LOADS_FLOAT "ldr %[t2], %[start]\n\tvldr s4, %[q31]\n\t"
#define EMITC_PLANE_THEN_FLOAT
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
#define EMITC_PLANE_FOUR_UP EMITC_PLANE_TWO_UP(s0, s1) EMITC_PLANE_TWO_UP(s2, s3)
#define EMITC_PLANE_FOUR_AWAY EMITC_PLANE_TWO_AWAY(s0, s1) EMITC_PLANE_TWO_AWAY(s2, s3)
#define EMITC_PLANE_PLACE(sum) "qadd %[" #sum "], %[" #sum "], %[t2]\n\tssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PLANE_TWO_FLOAT(a, b) \
    "vmov s0, s1, %[" #a "], %[" #b "]\n\tvcvt.f32.s32 s0, s0\n\tvcvt.f32.s32 s1, s1\n\t" \
    "vmul.f32 s0, s0, s4\n\tvmul.f32 s1, s1, s4\n\tvcvtr.s32.f32 s0, s0\n\tvcvtr.s32.f32 s1, s1\n\t" \
    "vmov %[" #a "], %[" #b "], s0, s1\n\t" EMITC_PLANE_PLACE(a) EMITC_PLANE_PLACE(b)
#define EMITC_PLANE_FOUR_FLOAT \
    "vmov s0, s1, %[s0], %[s1]\n\tvmov s2, s3, %[s2], %[s3]\n\t" \
    "vcvt.f32.s32 s0, s0\n\tvcvt.f32.s32 s1, s1\n\tvcvt.f32.s32 s2, s2\n\tvcvt.f32.s32 s3, s3\n\t" \
    "vmul.f32 s0, s0, s4\n\tvmul.f32 s1, s1, s4\n\tvmul.f32 s2, s2, s4\n\tvmul.f32 s3, s3, s4\n\t" \
    "vcvtr.s32.f32 s0, s0\n\tvcvtr.s32.f32 s1, s1\n\tvcvtr.s32.f32 s2, s2\n\tvcvtr.s32.f32 s3, s3\n\t" \
    "vmov %[s0], %[s1], s0, s1\n\tvmov %[s2], %[s3], s2, s3\n\t" \
    EMITC_PLANE_PLACE(s0) EMITC_PLANE_PLACE(s1) EMITC_PLANE_PLACE(s2) EMITC_PLANE_PLACE(s3)
#if defined(__ARM_FP)
#define EMITC_PLANE_CLOBBERED "cc", "memory", "s0", "s1", "s2", "s3", "s4"
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
#if !defined(EMITC_PLANE_SUMS) /* where the core begins one instruction in a cycle: see emitc_dsp_dual.h */
/* The sums of two columns in each of two rows. r0 to r3: bytes from x to the four rows that they read; 64 to those of
 * the next two columns. */
#define EMITC_PLANE_SUMS(how, r0, r1, r2, r3) \
    "ldr %[s3], %[first]\n\t" \
    EMITC_PLANE_LOAD(t0, r0) EMITC_PLANE_LOAD(t1, r1) EMITC_PLANE_LOAD(t2, r2) \
    "smlad %[s0], %[t0], %[w0], %[s3]\n\t" \
    "smlatb %[s1], %[t0], %[w0], %[s3]\n\t" \
    "smlad %[s2], %[t1], %[w0], %[s3]\n\t" \
    "smlatb %[s3], %[t1], %[w0], %[s3]\n\t" \
    EMITC_PLANE_FIRST(t1, s0, s1, w2) EMITC_PLANE_FIRST(t2, s2, s3, w2) EMITC_PLANE_FIRST(t2, s0, s1, w4) \
    EMITC_PLANE_LOAD(t0, r3) EMITC_PLANE_LOAD(t1, 64 + r0) EMITC_PLANE_LOAD(t2, 64 + r1) \
    EMITC_PLANE_FIRST(t0, s2, s3, w4) EMITC_PLANE_LAST(t1, s0, s1, w1) \
    EMITC_PLANE_LAST(t2, s0, s1, w3) EMITC_PLANE_LAST(t2, s2, s3, w1) \
    EMITC_PLANE_LOAD(t0, 64 + r2) EMITC_PLANE_LOAD(t1, 64 + r3) EMITC_PLANE_LOADS_##how \
    EMITC_PLANE_LAST(t0, s0, s1, w5) EMITC_PLANE_LAST(t0, s2, s3, w3) EMITC_PLANE_LAST(t1, s2, s3, w5) \
    EMITC_PLANE_THEN_##how
/* Stores them. Where a step is 0, the output that is stored first is none. move: to the rows, from what y is. */
#define EMITC_PLANE_STORE(how, move) \
    EMITC_PLANE_FOUR_##how \
    "ldr %[t0], %[y]\n\t" \
    "ldr %[t1], %[column_step]\n\t" \
    "ldr %[t2], %[row_step]\n\t" move \
    "strb %[s3], [%[t2], %[t1]]\n\t" \
    "strb %[s2], [%[t2]]\n\t" \
    "strb %[s1], [%[t0], %[t1]]\n\t" \
    "strb %[s0], [%[t0]]\n\t"
#endif
/* The outputs of two columns at a time, up to `end`. x and y are those of six rows, of which the last 2 * pairs are
 * made. */
#define EMITC_PLANE_COLUMNS(how) \
    "1:\n\t" \
    "ldr %[t0], %[pairs]\n\t" \
    "cmp %[t0], #2\n\t" \
    "beq 2f\n\t" \
    "blt 3f\n\t" EMITC_PLANE_SUMS(how, 0, 4, 8, 12) \
    EMITC_PLANE_STORE(how, "add %[t2], %[t0], %[t2]\n\t") \
    "2:\n\t" EMITC_PLANE_SUMS(how, 8, 12, 16, 20) \
    EMITC_PLANE_STORE(how, \
        "add %[t0], %[t0], %[t2], lsl #1\n\t" \
        "add %[t2], %[t0], %[t2]\n\t") \
    "3:\n\t" EMITC_PLANE_SUMS(how, 16, 20, 24, 28) \
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
/* The outputs of one column in two rows at a time, up to `end`; then of one row up to `last`, where there is one more.
 * s1 is where they go, s3 bytes to the next row. */
#define EMITC_PLANE_COLUMN(how) EMITC_COLUMN_BEGIN \
    "b 2f\n" \
    "1:\n\t" \
    "ldr %[s2], %[first]\n\t" EMITC_PLANE_LOAD(t0, 0) EMITC_PLANE_LOAD(t1, 4) EMITC_PLANE_LOAD(t2, 8) \
    EMITC_PLANE_PAIR(t0, s0, w0, s2) EMITC_PLANE_PAIR(t1, s2, w0, s2) EMITC_PLANE_PAIR(t1, s0, w2, s0) \
    EMITC_PLANE_PAIR(t2, s2, w2, s2) EMITC_PLANE_PAIR(t2, s0, w4, s0) \
    EMITC_PLANE_LOAD(t0, 12) EMITC_PLANE_LOAD(t1, 64) EMITC_PLANE_LOAD(t2, 68) \
    EMITC_PLANE_PAIR(t0, s2, w4, s2) EMITC_PLANE_THIRD(t1, s0, w1) EMITC_PLANE_THIRD(t2, s0, w3) \
    EMITC_PLANE_THIRD(t2, s2, w1) \
    EMITC_PLANE_LOAD(t0, 72) EMITC_PLANE_LOAD(t1, 76) EMITC_PLANE_LOADS_##how \
    EMITC_PLANE_THIRD(t0, s0, w5) EMITC_PLANE_THIRD(t0, s2, w3) EMITC_PLANE_THIRD(t1, s2, w5) \
    EMITC_PLANE_THEN_##how \
    EMITC_PLANE_TWO_##how(s0, s2) \
    "strb %[s2], [%[s1], %[s3]]\n\t" \
    "strb %[s0], [%[s1]]\n\t" \
    "add %[s1], %[s1], %[s3], lsl #1\n\t" \
    "add %[x], %[x], #8\n" \
    "2:\n\t" \
    "ldr %[t0], %[end]\n\t" \
    "ldr %[t1], %[last]\n\t" \
    "cmp %[x], %[t0]\n\t" \
    "bne 1b\n\t" \
    "cmp %[t0], %[t1]\n\t" \
    "beq 3f\n\t" \
    "str %[t1], %[end]\n\t" \
    "mov %[s3], #0\n\t" \
    "b 1b\n" \
    "3:"
#define EMITC_PLANE_REGISTERS(mode, mode1, a, mode3, b) \
    [x] mode "r"(x), [s0] "=&r"(s0), [s1] mode1 "r"(a), [s2] "=&r"(s2), [s3] mode3 "r"(b), [t0] "=&r"(t0), \
        [t1] "=&r"(t1), [t2] "=&r"(t2)
#define EMITC_PLANE_WEIGHTS(mode) \
    [w0] mode "r"(w0), [w1] mode "r"(w1), [w2] mode "r"(w2), [w3] mode "r"(w3), [w4] mode "r"(w4), [w5] mode "r"(w5)
#define EMITC_PLANE_READ \
    EMITC_PLANE_WEIGHTS(), [first] "m"(first_sum), [q31] "m"(q31), [start] "m"(start), [shift] "m"(shift)
/* Where the outputs of one column go, and how far from row to row: at -Os gcc has no registers for them before the
 * assembly. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_COLUMN_BEGIN "ldr %[s1], %[each]\n\tldr %[s3], %[step]\n\t"
#define EMITC_COLUMN_REGISTERS EMITC_PLANE_REGISTERS("+", "=&", s1, "=&", s3)
#define EMITC_COLUMN_READ , [each] "m"(each), [step] "m"(step)
#else
#define EMITC_COLUMN_BEGIN
#define EMITC_COLUMN_REGISTERS EMITC_PLANE_REGISTERS("+", "+", each, "+", step)
#define EMITC_COLUMN_READ
#endif
/* All channels. Where y and x begin, they are those of six rows, of which the last 2 * pairs are made. */
#define EMITC_PLANE_CHANNELS_COLUMNS(how) \
    const int32_t column_step = s->column_step; \
    const int32_t row_step = s->row_step; \
    const int32_t pairs = (s->rows + 1) >> 1; \
    const int32_t last_step = s->rows & 1 ? 0 : row_step; \
    const int32_t above = 6 - 2 * pairs; \
    const int32_t words = (s->columns >> 1) * EMITC_PLANE_STEP; \
    const uint32_t *values = emitc_plane_of(planes, first, s->half) - above; \
    const uint32_t *next = values + (first & 1 ? s->half - EMITC_PLANE_ROWS : EMITC_PLANE_ROWS); \
    int8_t *const last_to = to + channels - above * row_step; \
    for (to -= above * row_step; to != last_to; to++) { \
        const uint32_t *x; \
        int8_t *y = to; \
        const int32_t first_sum = EMITC_PLANE_BIAS_##how(*bias++); \
        int32_t s0, s1, s2, s3, q31, start, shift; \
        uint32_t t0, t1, t2, w0, w1, w2, w3, w4, w5; \
        __asm__ volatile(EMITC_PLANE_BEGIN(how) \
            : EMITC_PLANE_REGISTERS("=&", "=&", s1, "=&", s3), EMITC_PLANE_WEIGHTS("=&"), [weights] "+m"(weights), \
              [factor] "+m"(factor), [right] "+m"(right), [values] "+m"(values), \
              [next] "+m"(next), [q31] "=m"(q31), [start] "=m"(start), [shift] "=m"(shift) \
            : [s] "m"(s) \
            : "memory"); \
        const uint32_t *end = x + words; \
        if (end != x) { \
            __asm__ volatile(EMITC_PLANE_COLUMNS(how) \
                : EMITC_PLANE_REGISTERS("+", "=&", s1, "=&", s3), [y] "+m"(y) \
                : EMITC_PLANE_READ, [end] "m"(end), [column_step] "m"(column_step), [row_step] "m"(row_step), \
                  [last_step] "m"(last_step), [pairs] "m"(pairs) \
                : EMITC_PLANE_CLOBBERED); \
        } \
        if (s->columns & 1) { \
            int8_t *each = y + above * row_step; \
            int32_t step = row_step; \
            x += above; \
            const uint32_t *const last = x + 2 * pairs; \
            end = x + (s->rows & ~1); \
            __asm__ volatile(EMITC_PLANE_COLUMN(how) \
                : EMITC_COLUMN_REGISTERS, [end] "+m"(end) \
                : EMITC_PLANE_READ, [last] "m"(last) EMITC_COLUMN_READ \
                : EMITC_PLANE_CLOBBERED); \
        } \
    }
#endif

/* The outputs of `channels` neighbouring channels of 3x3 windows, which begin with number `first` of those whose planes
 * lie at `planes`. weights: the nine of each window. factor, right: as emitc_out_channels has them; right is not read
 * where factors are float32. */
#define EMITC_PLANE_FUNCTION(name, how, part) \
    EMITC_NOINLINE void name( \
        const emitc_plane *s, const uint32_t *planes, int32_t first, const int8_t *weights, const int32_t *bias, \
        const void *factor, const int8_t *right, int32_t channels, int8_t *to) \
    { \
        EMITC_PLANE_CHANNELS_##part(how) \
        (void)right; \
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
