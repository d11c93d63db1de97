/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the DSP extension: the outputs of several pixels and of all channels, where each channel's sum
 * is requantized without further limits. The loop over the channels is in assembly too where gcc compiles. So nothing
 * is spilled and no place is computed for a pair of channels.
 *
 * Part of a package whose kernels use it; see emitc_dsp_tile.h. Names in the assembly are those of its loops.
 */
#ifndef EMITC_DSP_PIXELS_H
#define EMITC_DSP_PIXELS_H

#include "emitc_dsp_tile.h"

/* The channels of a layer. factor: their Q31 multipliers, or float32 factors. right: shifts, for multipliers. offset:
 * of the output, as the requantization takes it: 2 * zero point + 1 for multipliers, the zero point for factors. */
typedef struct emitc_out_channels {
    const int32_t *bias;
    const void *factor;
    const int8_t *right;
    int32_t offset;
} emitc_out_channels;

/* A sum as the output of a channel. */
EMITC_ALWAYS_INLINE int8_t emitc_channel_up(const emitc_out_channels *c, int32_t channel, int32_t acc)
{
    return emitc_output_up(acc, emitc_output_of(((const int32_t *)c->factor)[channel], c->right[channel], c->offset));
}

EMITC_ALWAYS_INLINE int8_t emitc_channel_away(const emitc_out_channels *c, int32_t channel, int32_t acc)
{
    return emitc_output_away(acc, emitc_output_of(((const int32_t *)c->factor)[channel], c->right[channel], c->offset));
}

EMITC_ALWAYS_INLINE int8_t emitc_channel_float(const emitc_out_channels *c, int32_t channel, int32_t acc)
{
    return emitc_output_float(acc, ((const float *)c->factor)[channel], c->offset);
}

#if EMITC_TILE_ASM
/* One sum as an output; even is its multiplier, odd the shift, q what is added before it. twice: how it is doubled. */
#define EMITC_PIXELS_UP(sum, twice) \
    twice(sum) \
    "smmlar %[" #sum "], %[" #sum "], %[even], %[q]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[odd]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PIXELS_AWAY(sum, twice) \
    twice(sum) \
    "smmulr %[" #sum "], %[" #sum "], %[even]\n\t" \
    "add %[" #sum "], %[" #sum "], %[" #sum "], asr #31\n\t" \
    "add %[" #sum "], %[" #sum "], %[q]\n\t" \
    "asr %[" #sum "], %[" #sum "], %[odd]\n\t" \
    "ssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PIXELS_OF_1_TWICE(sum) "lsl %[" #sum "], %[" #sum "], #1\n\t"
#define EMITC_PIXELS_OF_256_TWICE(sum) "asr %[" #sum "], %[" #sum "], #7\n\t"
#define EMITC_PIXELS_EACH_3(one, c, how) one(c##0, how) one(c##1, how) one(c##2, how)
#define EMITC_PIXELS_EACH_4(one, c, how) EMITC_PIXELS_EACH_3(one, c, how) one(c##3, how)
/* All sums of one channel as outputs. of: EMITC_PIXELS_OF_1, or EMITC_PIXELS_OF_256 where they are 256 times that. */
#define EMITC_PIXELS_ALL_UP(n, c, of) EMITC_PIXELS_EACH_##n(EMITC_PIXELS_UP, c, of##_TWICE)
#define EMITC_PIXELS_ALL_AWAY(n, c, of) EMITC_PIXELS_EACH_##n(EMITC_PIXELS_AWAY, c, of##_TWICE)
/* What is added before the shift, from the offset in q. */
#define EMITC_PIXELS_START_UP "lsl %[q], %[q], %[odd]\n\tasr %[q], %[q], #1\n\t"
/* The same by the float32 factor of s4 or s5; q is the output's zero point. Sums that are 256 times that become it as
 * they are converted, with as many bits after the point. */
#define EMITC_PIXELS_OF_1_REAL(s) "vcvt.f32.s32 " #s ", " #s "\n\t"
#define EMITC_PIXELS_OF_256_REAL(s) "vcvt.f32.s32 " #s ", " #s ", #8\n\t"
#define EMITC_PIXELS_PLACE(sum, of) "qadd %[" #sum "], %[" #sum "], %[q]\n\tssat %[" #sum "], #8, %[" #sum "]\n\t"
#define EMITC_PIXELS_BY_a "s4"
#define EMITC_PIXELS_BY_b "s5"
#define EMITC_PIXELS_ALL_FLOAT(n, c, of) \
    "vmov s0, s1, %[" #c "0], %[" #c "1]\n\tvmov s2, s3, %[" #c "2], %[" #c "3]\n\t" \
    of##_REAL(s0) of##_REAL(s1) of##_REAL(s2) of##_REAL(s3) \
    "vmul.f32 s0, s0, " EMITC_PIXELS_BY_##c "\n\tvmul.f32 s1, s1, " EMITC_PIXELS_BY_##c "\n\t" \
    "vmul.f32 s2, s2, " EMITC_PIXELS_BY_##c "\n\tvmul.f32 s3, s3, " EMITC_PIXELS_BY_##c "\n\t" \
    "vcvtr.s32.f32 s0, s0\n\tvcvtr.s32.f32 s1, s1\n\tvcvtr.s32.f32 s2, s2\n\tvcvtr.s32.f32 s3, s3\n\t" \
    "vmov %[" #c "0], %[" #c "1], s0, s1\n\tvmov %[" #c "2], %[" #c "3], s2, s3\n\t" \
    EMITC_PIXELS_EACH_##n(EMITC_PIXELS_PLACE, c, of)
/* What joined weights (1) need in addition: both sums' start, and the second sums after them. */
#define EMITC_PIXELS_JOIN_0
#define EMITC_PIXELS_JOIN_1 "add %[b0], %[a0], %[b0], lsl #8\n\t"
#define EMITC_PIXELS_PART(sum, from) "sub %[b" #sum "], %[b" #sum "], %[a" #sum "]\n\t"
#define EMITC_PIXELS_OTHER_0(n, all) EMITC_PIXELS_ALL_##all(n, b, EMITC_PIXELS_OF_1)
#define EMITC_PIXELS_OTHER_1(n, all) EMITC_PIXELS_ALL_##all(n, b, EMITC_PIXELS_OF_256)
#define EMITC_PIXELS_PART_0(n)
#define EMITC_PIXELS_PART_1(n) EMITC_PIXELS_EACH_##n(EMITC_PIXELS_PART, , )
/* The factors of a channel: of channel p where all have their own (1), or of the first where all have that (0). The
 * second channel's are loaded in the first case only, in the other one they are there. Float32 factors of both channels
 * are loaded at once. */
#define EMITC_PIXELS_FACTORS_0 "ldr %[even], [%[even]]\n\tldrsb %[odd], [%[odd]]\n\tldr %[q], %[offset]\n\t"
#define EMITC_PIXELS_FACTORS_1 \
    "ldr %[even], [%[even], %[p], lsl #2]\n\tldrsb %[odd], [%[odd], %[p]]\n\tldr %[q], %[offset]\n\t"
#define EMITC_PIXELS_NEXT_0(start)
#define EMITC_PIXELS_NEXT_1(start) \
    "add %[p], %[p], #1\n\tldr %[even], %[factor]\n\tldr %[odd], %[right]\n\t" EMITC_PIXELS_FACTORS_1 start
#define EMITC_PIXELS_FIRST_UP(each) \
    "ldr %[p], %[o]\n\tldr %[even], %[factor]\n\tldr %[odd], %[right]\n\tldr %[x], %[y]\n\t" \
    EMITC_PIXELS_FACTORS_##each "add %[x], %[x], %[p]\n\t" EMITC_PIXELS_START_UP
#define EMITC_PIXELS_SECOND_UP(each) EMITC_PIXELS_NEXT_##each(EMITC_PIXELS_START_UP)
#define EMITC_PIXELS_PAST_UP(each) "add %[p], %[p], #2 - " #each "\n\t"
#define EMITC_PIXELS_FIRST_AWAY EMITC_PIXELS_FIRST_UP
#define EMITC_PIXELS_SECOND_AWAY EMITC_PIXELS_SECOND_UP
#define EMITC_PIXELS_PAST_AWAY EMITC_PIXELS_PAST_UP
#define EMITC_PIXELS_REALS_0 "vldr s4, [%[even]]\n\tvmov.f32 s5, s4\n\t"
#define EMITC_PIXELS_REALS_1 "add %[even], %[even], %[p], lsl #2\n\tvldm %[even], {s4-s5}\n\t"
#define EMITC_PIXELS_FIRST_FLOAT(each) \
    "ldr %[p], %[o]\n\tldr %[even], %[factor]\n\tldr %[q], %[offset]\n\tldr %[x], %[y]\n\t" \
    EMITC_PIXELS_REALS_##each "add %[x], %[x], %[p]\n\t"
#define EMITC_PIXELS_SECOND_FLOAT(each)
#define EMITC_PIXELS_PAST_FLOAT(each) "add %[p], %[p], #2\n\t"
/* Both channels of a pixel in one store; q is the distance from pixel to pixel. */
#define EMITC_PIXELS_BOTH(sum, to) "bfi %[a" #sum "], %[b" #sum "], #8, #24\n\tstrh %[a" #sum "], [%[x]" to "]\n\t"
#define EMITC_PIXELS_STORE_3 \
    EMITC_PIXELS_BOTH(0, "") EMITC_PIXELS_BOTH(1, ", %[q]") EMITC_PIXELS_BOTH(2, ", %[q], lsl #1")
#define EMITC_PIXELS_STORE_4 \
    EMITC_PIXELS_STORE_3 "add %[x], %[x], %[q]\n\t" EMITC_PIXELS_BOTH(3, ", %[q], lsl #1")
/* All sums of two channels as outputs. */
#if !defined(EMITC_PIXELS_OUTPUTS) /* where the core begins one instruction in a cycle: see emitc_dsp_dual.h */
#define EMITC_PIXELS_OUTPUTS EMITC_PIXELS_IN_ORDER
#endif
#define EMITC_PIXELS_IN_ORDER(n, all, each, joined) \
    EMITC_PIXELS_PART_##joined(n) \
    EMITC_PIXELS_FIRST_##all(each) EMITC_PIXELS_ALL_##all(n, a, EMITC_PIXELS_OF_1) \
    EMITC_PIXELS_SECOND_##all(each) EMITC_PIXELS_OTHER_##joined(n, all)
/* Pairs of channels until `count` are done. sums: text that adds up a pair's products, joined ones from
 * EMITC_PIXELS_JOIN_1 on. Loads next to each other take
 * less time, so they are put together. */
#define EMITC_PIXELS_PAIRS(n, sums, all, each, joined) \
    "2:\n\t" \
    "ldr %[x], %[first]\n\tldr %[p], %[o]\n\tldr %[even], %[bias]\n\t" \
    "add %[even], %[even], %[p], lsl #2\n\t" \
    "ldr %[a0], [%[even]]\n\tldr %[b0], [%[even], #4]\n\t" \
    sums EMITC_PIXELS_OUTPUTS(n, all, each, joined) \
    "ldr %[q], %[step]\n\tldr %[even], %[count]\n\t" \
    EMITC_PIXELS_STORE_##n \
    EMITC_PIXELS_PAST_##all(each) \
    "str %[p], %[o]\n\t" \
    "cmp %[p], %[even]\n\t" \
    "bne 2b"
#if defined(__ARM_FP)
#define EMITC_PIXELS_CLOBBERED "cc", "memory", "s0", "s1", "s2", "s3", "s4", "s5"
#else
#define EMITC_PIXELS_CLOBBERED "cc", "memory"
#endif
/* What the sums of tiles (1) read, and those of other pixels (0). */
#define EMITC_PIXELS_READ_1 [skipped] "m"(skipped), [back] "m"(back),
#define EMITC_PIXELS_READ_0
/* The text in its operands. places: states what the sums read, and the end of the values. */
#define EMITC_PIXELS_TEXT(n, places, sums, all, one, add, alone, each, joined) \
    places EMITC_TILE_LOCALS \
    const int32_t *const bias = c->bias + channel; \
    const int32_t *const factor = (const int32_t *)c->factor + (each) * channel; \
    const int8_t *const right = c->right + (each) * channel; \
    const int32_t offset = c->offset; \
    const uint32_t *const first = x; \
    const uint32_t *at; \
    int32_t o = 0; \
    int32_t a0, b0; \
    __asm__ volatile(EMITC_PIXELS_PAIRS(n, sums, all, each, joined) \
        : EMITC_TILE_REGISTERS("=&", a0, b0), [o] "+m"(o) \
        : EMITC_PIXELS_READ_##alone [end] "m"(end), [bias] "m"(bias), [factor] "m"(factor), [right] "m"(right), \
          [offset] "m"(offset), [first] "m"(first), [count] "m"(count), [y] "m"(y), [step] "m"(step) \
        : EMITC_PIXELS_CLOBBERED);
#else
#define EMITC_PIXELS_TEXT EMITC_PIXELS_LOOP
#endif

/* The same in C. one: a sum as an output. add: the sums of a pair, as emitc_tile_sums. */
#define EMITC_PIXELS_LOOP(n, places, sums, all, one, add, alone, each, joined) \
    for (int32_t i = 0; i < count; i += 2) { \
        const int32_t *const start = &c->bias[channel + i]; \
        const int32_t a = (each) * (channel + i); \
        const emitc_tile t = add(start[0], start[1], x, &w, words, joined); \
        const int32_t by_pixel[8] = {t.a0, t.b0, t.a1, t.b1, t.a2, t.b2, t.a3, t.b3}; \
        for (int32_t pixel = 0; pixel < (n); pixel++) { \
            y[pixel * step + i] = one(c, a, by_pixel[2 * pixel]); \
            y[pixel * step + i + 1] = one(c, a + (each), by_pixel[2 * pixel + 1]); \
        } \
    }

/* To the sums a and b of one pixel adds the products of one word of weights. */
#define EMITC_PIXELS_WORD(values, weights, joined) \
    b = emitc_joined_mac(b, values, joined ? (weights) : emitc_odd(weights)); \
    a = emitc_pair_mac(a, values, emitc_even(weights));
/* What makes all channels of a single pixel, where pixels are in every fourth word. Its arguments are EMITC_PIXELS'. */
#if defined(__OPTIMIZE_SIZE__)
#define EMITC_PIXELS_ALONE_1(one, each, joined)
#else
#define EMITC_PIXELS_ALONE_1(one, each, joined) \
    if (pixels == 1) { \
        for (int32_t o = 0; o < out_c; o += 2) { \
            const int32_t channel = o + 1 < out_c ? o : out_c - 2; \
            const uint32_t *at = x; \
            int32_t a = c->bias[channel]; \
            int32_t b = c->bias[channel + 1]; \
            b = joined ? emitc_joined_start(a, b) : b; \
            for (int32_t two = words >> 1; two > 0; two--) { \
                const uint32_t first = emitc_four(w); \
                const uint32_t second = emitc_four(w + 4); \
                const uint32_t values = at[0]; \
                const uint32_t next = at[4]; \
                EMITC_PIXELS_WORD(values, first, joined) \
                EMITC_PIXELS_WORD(next, second, joined) \
                at += 8; \
                w += 8; \
            } \
            if (words & 1) { \
                const uint32_t last = emitc_four(w); \
                EMITC_PIXELS_WORD(at[0], last, joined) \
                w += 4; \
            } \
            y[channel] = one(c, (each) * channel, a); \
            y[channel + 1] = one(c, (each) * (channel + 1), joined ? emitc_joined_second(b, a) : b); \
        } \
        return; \
    }
#endif
#define EMITC_PIXELS_ALONE_0(one, each, joined)

/* A function for all channels, out_c, of up to n output pixels, which follow each other. x, words: as `add` takes them.
 * Less than n pixels are stored on the side first. Of an odd number of channels, the last pair is the last two. */
#define EMITC_PIXELS(name, how, n, places, sums, all, one, add, alone, each, joined) \
    EMITC_ALWAYS_INLINE const int8_t *name##_channels(const emitc_out_channels *c, int32_t channel, int32_t count, \
        const uint32_t *x, const int8_t *w, int32_t words, int8_t *y, int32_t step) \
    { \
        how(n, places, sums, all, one, add, alone, each, joined) \
        return w; \
    } \
    EMITC_NOINLINE void name(const emitc_out_channels *c, const uint32_t *x, const int8_t *w, int32_t words, \
        int32_t out_c, int8_t *y, int32_t pixels) \
    { \
        EMITC_PIXELS_ALONE_##alone(one, each, joined) \
        int8_t side[2 * (n)]; \
        const bool whole = pixels == (n); \
        for (int32_t o = 0; o < out_c;) { \
            const int32_t channel = o + 1 < out_c ? o : out_c - 2; \
            const int32_t count = whole ? (out_c - channel) & ~1 : 2; \
            w = name##_channels(c, channel, count, x, w, words, whole ? y + channel : side, whole ? out_c : 2); \
            for (int32_t pixel = whole ? 0 : pixels; pixel > 0; pixel--) { \
                y[(pixel - 1) * out_c + channel] = side[2 * pixel - 2]; \
                y[(pixel - 1) * out_c + channel + 1] = side[2 * pixel - 1]; \
            } \
            o = channel + count; \
        } \
    }
/* By the name of the requantization: how it is made of the text and of `one`. */
#define EMITC_PIXELS_up(name, n, places, sums, add, alone, each, joined) \
    EMITC_PIXELS(name, EMITC_PIXELS_TEXT, n, places, sums, UP, emitc_channel_up, add, alone, each, joined)
#define EMITC_PIXELS_away(name, n, places, sums, add, alone, each, joined) \
    EMITC_PIXELS(name, EMITC_PIXELS_TEXT, n, places, sums, AWAY, emitc_channel_away, add, alone, each, joined)
#if defined(__ARM_FP)
#define EMITC_PIXELS_float(name, n, places, sums, add, alone, each, joined) \
    EMITC_PIXELS(name, EMITC_PIXELS_TEXT, n, places, sums, FLOAT, emitc_channel_float, add, alone, each, joined)
#else
#define EMITC_PIXELS_float(name, n, places, sums, add, alone, each, joined) \
    EMITC_PIXELS(name, EMITC_PIXELS_LOOP, n, places, sums, , emitc_channel_float, add, alone, each, joined)
#endif

/* Four pixels whose values are widened in every fourth word, as emitc_tile_sums takes them. */
#define EMITC_PIXELS_OF_TILE(how, suffix, each, joined) \
    EMITC_PIXELS_##how(emitc_pixels_##how##suffix, 4, EMITC_TILE_PLACES(joined), \
        EMITC_TILE_SUMS(joined, EMITC_PIXELS_JOIN_##joined), emitc_tile_sums, 1, each, joined)
#define EMITC_PIXELS_OF_TILES(how) \
    EMITC_PIXELS_OF_TILE(how, , 1, 0) \
    EMITC_PIXELS_OF_TILE(how, _shared, 0, 0) \
    EMITC_PIXELS_OF_TILE(how, _joined, 1, 1) \
    EMITC_PIXELS_OF_TILE(how, _shared_joined, 0, 1)
EMITC_PIXELS_OF_TILES(up)
EMITC_PIXELS_OF_TILES(away)
EMITC_PIXELS_OF_TILES(float)

/* What the windows of four neighbouring pixels read of `rows` rows: six columns of `channels` values, of which every
 * pixel meets three. They are widened to `to` as emitc_widened_window does. x: the second column; first, last:
 * distances from it to the first one, and from the fourth one to the last one; step: from row to row. */
EMITC_ALWAYS_INLINE void emitc_widened_six(
    const int8_t *x, int32_t first, int32_t last, int32_t channels, uint32_t *to, int32_t rows, int32_t step)
{
#if EMITC_TILE_ASM
    const int32_t rest = step - channels;
    const int8_t *fourth, *end;
    uint32_t *second, *third;
    uint32_t a, b, c, t;
    __asm__ volatile(
        "1:\n\t"
        "add %[fourth], %[x], %[channels], lsl #1\n\tadd %[end], %[x], %[channels]\n\t"
        "add %[second], %[to], %[channels], lsl #3\n\tadd %[third], %[second], %[channels], lsl #3\n"
        "2:\n\t"
        "ldr %[b], [%[fourth], %[channels]]\n\tldr %[c], [%[fourth], %[last]]\n\tldr %[a], [%[fourth]], #4\n\t"
        "sxtb16 %[t], %[a], ror #8\n\tsxtb16 %[a], %[a]\n\t"
        "str %[t], [%[to], #28]\n\tstr %[a], [%[to], #12]\n\tstr %[t], [%[second], #24]\n\t"
        "str %[a], [%[second], #8]\n\tstr %[t], [%[third], #20]\n\tstr %[a], [%[third], #4]\n\t"
        "sxtb16 %[t], %[b], ror #8\n\tsxtb16 %[b], %[b]\n\t"
        "str %[t], [%[second], #28]\n\tstr %[b], [%[second], #12]\n\t"
        "str %[t], [%[third], #24]\n\tstr %[b], [%[third], #8]\n\t"
        "sxtb16 %[t], %[c], ror #8\n\tsxtb16 %[c], %[c]\n\t"
        "str %[t], [%[third], #28]\n\tstr %[c], [%[third], #12]\n\t"
        "ldr %[a], [%[x], %[first]]\n\tldr %[c], [%[x], %[channels]]\n\tldr %[b], [%[x]], #4\n\t"
        "sxtb16 %[t], %[c], ror #8\n\tsxtb16 %[c], %[c]\n\t"
        "str %[t], [%[to], #24]\n\tstr %[c], [%[to], #8]\n\tstr %[t], [%[second], #20]\n\t"
        "str %[c], [%[second], #4]\n\tstr %[t], [%[third], #16]\n\tstr %[c], [%[third]], #32\n\t"
        "sxtb16 %[t], %[b], ror #8\n\tsxtb16 %[b], %[b]\n\t"
        "str %[t], [%[to], #20]\n\tstr %[b], [%[to], #4]\n\t"
        "str %[t], [%[second], #16]\n\tstr %[b], [%[second]], #32\n\t"
        "sxtb16 %[t], %[a], ror #8\n\tsxtb16 %[a], %[a]\n\t"
        "str %[t], [%[to], #16]\n\tstr %[a], [%[to]], #32\n\t"
        "cmp %[x], %[end]\n\t"
        "bne 2b\n\t"
        "ldr %[t], %[rest]\n\tldr %[a], %[rows]\n\t"
        "mov %[to], %[third]\n\tadd %[x], %[x], %[t]\n\t"
        "subs %[a], %[a], #1\n\t"
        "str %[a], %[rows]\n\t"
        "bne 1b"
        : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [t] "=&l"(t), [second] "=&l"(second), [third] "=&l"(third),
          [fourth] "=&r"(fourth), [end] "=&r"(end), [x] "+r"(x), [to] "+l"(to), [rows] "+m"(rows)
        : [first] "r"(first), [last] "r"(last), [channels] "r"(channels), [rest] "m"(rest)
        : "cc", "memory");
#else
    for (; rows > 0; rows--) {
        for (int32_t i = 0; i < channels; i += 4) {
            for (int32_t column = 0; column < 6; column++) {
                const int32_t at = column == 0 ? first : column == 5 ? 2 * channels + last : (column - 1) * channels;
                const uint32_t four = emitc_four(x + at + i);
                for (int32_t tap = column < 4 ? 0 : column - 3; tap <= (column < 2 ? column : 2); tap++) {
                    to[2 * (tap * channels + i) + column - tap] = emitc_even(four);
                    to[2 * (tap * channels + i) + column - tap + 4] = emitc_odd(four);
                }
            }
        }
        to += 6 * channels;
        x += step;
    }
#endif
}

/* Widens the windows of four neighbouring pixels of a row, as emitc_widened_window does of one. They have three columns
 * of `channels` values, a multiple of four, and a stride of one column. The first one's begins in row `top`, at the
 * row's value `from`. Of all columns only the first and the last one may be outside the input. */
EMITC_NOINLINE void emitc_widened_four(
    const struct emitc_windows *s, const int8_t *x, int32_t top, int32_t from, uint32_t *to, int32_t channels)
{
    const int32_t words = 6 * channels;
    const int32_t first = from < 0 ? 0 : -channels;
    const int32_t last = from + words > s->row ? channels : 2 * channels;
    const uint32_t zeros = emitc_twice(s->zero);
    int32_t rest = s->rows;
    for (; rest > 0 && top < 0; rest--) {
        to = emitc_filled_strided(to, 1, zeros, words);
        top += s->down;
    }
    int32_t rows = 0;
    for (int32_t row = top; rows < rest && row < s->in_h; row += s->down) {
        rows++;
    }
    rest -= rows;
    if (rows > 0) {
        x += top * s->row + from + channels;
        emitc_widened_six(x, first, last, channels, to, rows, s->down * s->row);
    }
    uint32_t *side = to;
    for (int32_t row = first != 0 && last != channels ? 0 : rows; row > 0; row--) {
        if (first == 0) {
            (void)emitc_filled_strided(side, 4, zeros, channels >> 1);
        }
        if (last == channels) {
            (void)emitc_filled_strided(side + 4 * channels + 3, 4, zeros, channels >> 1);
        }
        side += words;
    }
    if (rest > 0) {
        (void)emitc_filled_strided(to + rows * words, 1, zeros, rest * words);
    }
}

#endif
