/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores that begin two instructions in a cycle (Cortex-M7): inner loops of the other headers for the DSP
 * extension in another order, from which no other core gains. Sums, registers and arguments are the same.
 *
 * Part of a package for such a core; it comes before the headers whose loops it replaces. These rules make the order.
 * One product and one other instruction begin in a cycle. A word that is loaded meets its first product two cycles
 * later. SXTB16 and other SIMD instructions come first in a pair. LDRD and LDM pair with nothing. So words are loaded
 * one by one, while the products of the word before them are added.
 */
#ifndef EMITC_DSP_DUAL_H
#define EMITC_DSP_DUAL_H

#if !defined(__OPTIMIZE_SIZE__)
#define EMITC_DUAL_MAC(sum, value, weights) "smlad %[" sum "], %[" value "], %[" weights "], %[" sum "]\n\t"
#define EMITC_DUAL_X(to, at) "ldr.n %[" to "], [%[x], #" at "]\n\t"

/* One word of weights, two values of two channels, meets the same two values of four pixels. Its first words are there:
 * that of the weights in `odd`, those of the first pixels in p and q. The next ones are loaded, 16 bytes of x further
 * on. Of weights that are not joined, q is loaded here. number: of the word in the turn. */
#define EMITC_DUAL_WORD_1(number) \
    "sxtb16 %[even], %[odd]\n\t" EMITC_DUAL_MAC("b0", "p", "odd") \
    EMITC_DUAL_MAC("b1", "q", "odd") \
    EMITC_DUAL_MAC("a0", "p", "even") EMITC_DUAL_X("p", "16*" #number "+8") \
    EMITC_DUAL_MAC("a1", "q", "even") EMITC_DUAL_X("q", "16*" #number "+12") \
    EMITC_DUAL_MAC("b2", "p", "odd") \
    EMITC_DUAL_MAC("b3", "q", "odd") "ldr.n %[odd], [%[w], #4*" #number "+4]\n\t" \
    EMITC_DUAL_MAC("a2", "p", "even") EMITC_DUAL_X("p", "16*" #number "+16") \
    EMITC_DUAL_MAC("a3", "q", "even") EMITC_DUAL_X("q", "16*" #number "+20")
#define EMITC_DUAL_WORD_0(number) \
    "sxtb16 %[even], %[odd]\n\t" EMITC_DUAL_X("q", "16*" #number "+4") \
    "sxtb16 %[odd], %[odd], ror #8\n\t" EMITC_DUAL_MAC("a0", "p", "even") \
    EMITC_DUAL_MAC("b0", "p", "odd") EMITC_DUAL_X("p", "16*" #number "+8") \
    EMITC_DUAL_MAC("a1", "q", "even") \
    EMITC_DUAL_MAC("b1", "q", "odd") EMITC_DUAL_X("q", "16*" #number "+12") \
    EMITC_DUAL_MAC("a2", "p", "even") \
    EMITC_DUAL_MAC("b2", "p", "odd") EMITC_DUAL_X("p", "16*" #number "+16") \
    EMITC_DUAL_MAC("a3", "q", "even") \
    EMITC_DUAL_MAC("b3", "q", "odd") "ldr.n %[odd], [%[w], #4*" #number "+4]\n\t"
#define EMITC_DUAL_SEVEN(joined) \
    EMITC_DUAL_WORD_##joined(0) EMITC_DUAL_WORD_##joined(1) EMITC_DUAL_WORD_##joined(2) EMITC_DUAL_WORD_##joined(3) \
    EMITC_DUAL_WORD_##joined(4) EMITC_DUAL_WORD_##joined(5) EMITC_DUAL_WORD_##joined(6)
/* The last word of a turn, which compares x with `end` where p is free, and leaves the loop before anything is loaded
 * that does not follow. */
#define EMITC_DUAL_EIGHTH_1 \
    "sxtb16 %[even], %[odd]\n\t" EMITC_DUAL_MAC("b0", "p", "odd") \
    EMITC_DUAL_MAC("a0", "p", "even") "ldr %[p], %[end]\n\t" \
    EMITC_DUAL_MAC("b1", "q", "odd") "cmp %[x], %[p]\n\t" \
    EMITC_DUAL_MAC("a1", "q", "even") EMITC_DUAL_X("p", "120") \
    EMITC_DUAL_X("q", "124") "beq 3f\n\t" \
    EMITC_DUAL_MAC("b2", "p", "odd") \
    EMITC_DUAL_MAC("b3", "q", "odd") "ldr %[odd], [%[w], #32]!\n\t" \
    EMITC_DUAL_MAC("a2", "p", "even") "ldr %[p], [%[x], #128]!\n\t" \
    EMITC_DUAL_MAC("a3", "q", "even") EMITC_DUAL_X("q", "4")
#define EMITC_DUAL_EIGHTH_0 \
    "sxtb16 %[even], %[odd]\n\t" EMITC_DUAL_X("q", "116") \
    "sxtb16 %[odd], %[odd], ror #8\n\t" EMITC_DUAL_MAC("a0", "p", "even") \
    EMITC_DUAL_MAC("b0", "p", "odd") "ldr %[p], %[end]\n\t" \
    EMITC_DUAL_MAC("a1", "q", "even") "cmp %[x], %[p]\n\t" \
    EMITC_DUAL_MAC("b1", "q", "odd") EMITC_DUAL_X("p", "120") \
    EMITC_DUAL_X("q", "124") "beq 3f\n\t" \
    EMITC_DUAL_MAC("a2", "p", "even") \
    EMITC_DUAL_MAC("b2", "p", "odd") "ldr %[p], [%[x], #128]!\n\t" \
    EMITC_DUAL_MAC("a3", "q", "even") \
    EMITC_DUAL_MAC("b3", "q", "odd") "ldr %[odd], [%[w], #32]!\n\t"
/* What is left of the last word of all. */
#define EMITC_DUAL_LEFT \
    EMITC_DUAL_MAC("b2", "p", "odd") EMITC_DUAL_MAC("a2", "p", "even") \
    EMITC_DUAL_MAC("b3", "q", "odd") EMITC_DUAL_MAC("a3", "q", "even")
/* All words, past which w is moved. The first turn is entered late, by `skipped` bytes of code, and x and w are moved
 * back by what it leaves out. join: text before the sums are copied. */
#define EMITC_TILE_SUMS(joined, join) \
    "ldr %[b1], %[back]\n\tldr %[even], %[skipped]\n\t" \
    "ldr.n %[odd], [%[w]]\n\t" "mov %[a1], %[a0]\n\t" \
    join EMITC_DUAL_X("p", "0") \
    "sub %[w], %[w], %[b1]\n\t" EMITC_DUAL_X("q", "4") \
    "sub %[x], %[x], %[b1], lsl #2\n\tmov %[a2], %[a0]\n\t" \
    "mov %[b1], %[b0]\n\tmov %[b2], %[b0]\n\t" \
    "mov %[b3], %[b0]\n\tmov %[a3], %[a0]\n\t" \
    "add pc, %[even]\n\t" /* from 4 bytes further on */ \
    "nop\n" \
    "1:\n\t" EMITC_DUAL_SEVEN(joined) EMITC_DUAL_EIGHTH_##joined \
    "b 1b\n" \
    "3:\n\t" EMITC_DUAL_LEFT "add %[w], %[w], #32\n\t"
/* What the loop reads. end: x of the turn that is the last one. */
#define EMITC_TILE_PLACES(joined) \
    const int32_t skip = -words & 7; \
    const int32_t back = 4 * skip; \
    const int32_t skipped = skip * ((joined) ? 46 : 50); \
    const uint32_t *const end = (const uint32_t *)emitc_before(x + 4 * words, 128);

/* The same where the pairs of two channels meet those of four windows, or the other way round: u has the two, v the
 * four, 48 and 96 bytes from word to word. Of the first words, the one of the second window is loaded here. */
#define EMITC_DUAL_OF(to, from, at) "ldr.w %[" to "], [%[" from "], #" at "]\n\t"
#define EMITC_DUAL_WINOGRAD(number) \
    EMITC_DUAL_MAC("a0", "p", "even") EMITC_DUAL_OF("q", "v", "96*" #number "+4") \
    EMITC_DUAL_MAC("b0", "p", "odd") EMITC_DUAL_OF("p", "v", "96*" #number "+8") \
    EMITC_DUAL_MAC("a1", "q", "even") \
    EMITC_DUAL_MAC("b1", "q", "odd") EMITC_DUAL_OF("q", "v", "96*" #number "+12") \
    EMITC_DUAL_MAC("a2", "p", "even") \
    EMITC_DUAL_MAC("b2", "p", "odd") EMITC_DUAL_OF("p", "v", "96*" #number "+96") \
    EMITC_DUAL_MAC("a3", "q", "even") EMITC_DUAL_OF("even", "u", "48*" #number "+48") \
    EMITC_DUAL_MAC("b3", "q", "odd") EMITC_DUAL_OF("odd", "u", "48*" #number "+52")
#define EMITC_WINOGRAD_ADD \
    "ldr %[b0], %[ahead]\n\tldr %[q], %[skipped]\n\t" \
    EMITC_DUAL_OF("even", "u", "0") "mov %[a0], #0\n\t" \
    EMITC_DUAL_OF("odd", "u", "4") "mov %[a1], #0\n\t" \
    EMITC_DUAL_OF("p", "v", "0") "mov %[a2], #0\n\t" \
    "sub %[u], %[u], %[b0]\n\tmov %[a3], #0\n\t" \
    "sub %[v], %[v], %[b0], lsl #1\n\tmov %[b1], #0\n\t" \
    "mov %[b2], #0\n\tmov %[b3], #0\n\tmov %[b0], #0\n\t" \
    "add pc, %[q]\n\t" /* from 4 bytes further on */ \
    "nop\n" \
    "2:\n\t" EMITC_DUAL_WINOGRAD(0) EMITC_DUAL_WINOGRAD(1) EMITC_DUAL_WINOGRAD(2) EMITC_DUAL_WINOGRAD(3) \
    EMITC_DUAL_WINOGRAD(4) EMITC_DUAL_WINOGRAD(5) EMITC_DUAL_WINOGRAD(6) \
    EMITC_DUAL_MAC("a0", "p", "even") EMITC_DUAL_OF("q", "v", "676") \
    EMITC_DUAL_MAC("b0", "p", "odd") "ldr %[p], %[end]\n\t" \
    EMITC_DUAL_MAC("a1", "q", "even") "cmp %[u], %[p]\n\t" \
    EMITC_DUAL_MAC("b1", "q", "odd") EMITC_DUAL_OF("p", "v", "680") \
    EMITC_DUAL_OF("q", "v", "684") "beq 3f\n\t" \
    EMITC_DUAL_MAC("a2", "p", "even") "add %[v], %[v], #768\n\t" \
    EMITC_DUAL_MAC("b2", "p", "odd") "add %[u], %[u], #384\n\t" \
    EMITC_DUAL_MAC("a3", "q", "even") EMITC_DUAL_OF("p", "v", "0") \
    EMITC_DUAL_MAC("b3", "q", "odd") EMITC_DUAL_OF("even", "u", "0") \
    EMITC_DUAL_OF("odd", "u", "4") "b 2b\n" \
    "3:\n\t" EMITC_DUAL_MAC("a2", "p", "even") \
    EMITC_DUAL_MAC("b2", "p", "odd") "ldr %[p], %[end]\n\t" \
    EMITC_DUAL_MAC("a3", "q", "even") "add %[p], %[p], #8\n\t" \
    EMITC_DUAL_MAC("b3", "q", "odd") "ldr %[q], %[back]\n\t" \
    "str %[p], %[end]\n\t"
#define EMITC_WINOGRAD_NEXT
/* end: u of the turn that is the last one. */
#define EMITC_WINOGRAD_PLACES \
    const int32_t skip = -words & 7; \
    const int32_t ahead = 48 * skip; \
    const int32_t skipped = 56 * skip; \
    const uint32_t *end = (const uint32_t *)emitc_before(u + 12 * words, 384);
#define EMITC_WINOGRAD_BACK (48 * words - 392)
#define EMITC_WINOGRAD_WRITTEN , [end] "+m"(end)
#define EMITC_WINOGRAD_READ , [ahead] "m"(ahead), [skipped] "m"(skipped)

/* Four values of one pixel meet their weights of four channels, joined. The values and the first two words of weights
 * are there, and those of the next four values are loaded. number: of the four in the turn, which can end before the
 * next values are loaded. more: text that begins with the last instruction. */
#define EMITC_DUAL_FOUR(number) \
    EMITC_DUAL_MAC("a1", "even", "first") EMITC_DUAL_OF("third", "w", "16*" #number "+8") \
    EMITC_DUAL_MAC("a3", "even", "second") EMITC_DUAL_OF("fourth", "w", "16*" #number "+12") \
    "sxtb16 %[first], %[first]\n\t" EMITC_DUAL_MAC("a1", "odd", "third") \
    "sxtb16 %[second], %[second]\n\t" EMITC_DUAL_MAC("a3", "odd", "fourth") \
    "sxtb16 %[third], %[third]\n\t" EMITC_DUAL_MAC("a0", "even", "first") \
    "sxtb16 %[fourth], %[fourth]\n\t" EMITC_DUAL_MAC("a2", "even", "second")
#define EMITC_DUAL_NEXT(values, weights, then, more) \
    "ldr.w %[even], [%[x], #" values "\n\t" EMITC_DUAL_MAC("a0", "odd", "third") \
    EMITC_DUAL_MAC("a2", "odd", "fourth") "ldr.w %[first], [%[w], #" weights "\n\t" \
    "sxtb16 %[odd], %[even], ror #8\n\tldr.w %[second], [%[w], #" then "]\n\t" \
    "sxtb16 %[even], %[even]\n\t" more
#define EMITC_JOINED_FOURS \
    EMITC_DUAL_FOUR(0) EMITC_DUAL_NEXT("4]", "16]", "20", ) EMITC_DUAL_FOUR(1) EMITC_DUAL_NEXT("8]", "32]", "36", ) \
    EMITC_DUAL_FOUR(2) EMITC_DUAL_NEXT("12]", "48]", "52", "cmp %[x], %[end]\n\t") EMITC_DUAL_FOUR(3) "beq 2f\n\t" \
    EMITC_DUAL_NEXT("16]!", "64]!", "4", "b 1b\n")
#define EMITC_JOINED_TURN 4
/* All fours. The first turn is entered late, by `skipped` bytes of code, and x and w are moved back by what it leaves
 * out. */
#define EMITC_JOINED_TEXT \
    "ldr %[third], %[back]\n\tldr %[fourth], %[skipped]\n\t" \
    "ldr.w %[even], [%[x]]\n\tldr.w %[first], [%[w]]\n\t" \
    "sub %[x], %[x], %[third]\n\tldr.w %[second], [%[w], #4]\n\t" \
    "sxtb16 %[odd], %[even], ror #8\n\tcmp %[x], %[end]\n\t" \
    "sxtb16 %[even], %[even]\n\tsub %[w], %[w], %[third], lsl #2\n\t" \
    ".p2align 2\n\t" \
    "add pc, %[fourth]\n\t" /* from 4 bytes further on */ \
    "nop\n" \
    "1:\n\t" EMITC_JOINED_FOURS \
    "2:\n\t" EMITC_DUAL_MAC("a0", "odd", "third") EMITC_DUAL_MAC("a2", "odd", "fourth") \
    "add %[w], %[w], #64\n\tadd %[x], %[x], #16"
/* end: x of the turn that is the last one. */
#define EMITC_JOINED_PLACES \
    const int32_t back = 4 * skip; \
    const int8_t *const end = (const int8_t *)emitc_before(x + (n & ~3), 16);
#define EMITC_JOINED_READ [end] "r"(end), [skipped] "m"(skipped), [back] "m"(back)

/* The sums of two channels of n pixels, 3 or 4, as the outputs of emitc_dsp_pixels.h. While one sum waits, others take
 * their next step. A sum of the second channel is 256 times that where weights are joined. */
#define EMITC_DUAL_IF_3(text)
#define EMITC_DUAL_IF_4(text) text
#define EMITC_DUAL_PART_0(sum)
#define EMITC_DUAL_PART_1(sum) "sub %[b" #sum "], %[b" #sum "], %[a" #sum "]\n\t"
#define EMITC_DUAL_TWICE_0(sum) "lsl %[" sum "], %[" sum "], #1\n\t"
#define EMITC_DUAL_TWICE_1(sum) "asr %[" sum "], %[" sum "], #7\n\t"
#define EMITC_DUAL_SHIFT(sum, by) "asr %[" sum "], %[" sum "], %[" by "]\n\t"
#define EMITC_DUAL_LIMIT(sum) "ssat %[" sum "], #8, %[" sum "]\n\t"
#define EMITC_DUAL_UP(sum) "smmlar %[" sum "], %[" sum "], %[even], %[q]\n\t"
#define EMITC_DUAL_AWAY(sum) "smmulr %[" sum "], %[" sum "], %[even]\n\t"
#define EMITC_DUAL_SIGN(sum) "add %[" sum "], %[" sum "], %[" sum "], asr #31\n\t"
#define EMITC_DUAL_START(sum) "add %[" sum "], %[" sum "], %[q]\n\t"
/* One channel, c. third, fourth: text that goes with the last two limits. */
#define EMITC_DUAL_ALL_UP(n, c, third, fourth) \
    EMITC_DUAL_UP(c "0") EMITC_DUAL_UP(c "1") EMITC_DUAL_UP(c "2") EMITC_DUAL_SHIFT(c "0", "odd") \
    EMITC_DUAL_IF_##n(EMITC_DUAL_UP(c "3")) EMITC_DUAL_SHIFT(c "1", "odd") EMITC_DUAL_ALL_LIMITS(n, c, third, fourth)
#define EMITC_DUAL_ALL_AWAY(n, c, third, fourth) \
    EMITC_DUAL_AWAY(c "0") EMITC_DUAL_AWAY(c "1") EMITC_DUAL_AWAY(c "2") EMITC_DUAL_IF_##n(EMITC_DUAL_AWAY(c "3")) \
    EMITC_DUAL_SIGN(c "0") EMITC_DUAL_SIGN(c "1") EMITC_DUAL_START(c "0") EMITC_DUAL_SIGN(c "2") \
    EMITC_DUAL_START(c "1") \
    EMITC_DUAL_IF_##n(EMITC_DUAL_SIGN(c "3")) EMITC_DUAL_START(c "2") EMITC_DUAL_SHIFT(c "0", "odd") \
    EMITC_DUAL_IF_##n(EMITC_DUAL_START(c "3")) EMITC_DUAL_SHIFT(c "1", "odd") \
    EMITC_DUAL_ALL_LIMITS(n, c, third, fourth)
#define EMITC_DUAL_ALL_LIMITS(n, c, third, fourth) \
    EMITC_DUAL_LIMIT(c "0") EMITC_DUAL_SHIFT(c "2", "odd") \
    EMITC_DUAL_LIMIT(c "1") EMITC_DUAL_IF_##n(EMITC_DUAL_SHIFT(c "3", "odd")) \
    EMITC_DUAL_LIMIT(c "2") third EMITC_DUAL_IF_##n(EMITC_DUAL_LIMIT(c "3")) fourth
/* The multiplier of a channel in `even`, its shift in `odd`, and in q what is added before the shift; first to fourth:
 * text that goes with the loads. each: 0 where all channels have the same ones. */
#define EMITC_DUAL_EACH_0(first, second, third, fourth) \
    "ldr %[even], [%[even]]\n\t" first "ldrsb %[odd], [%[odd]]\n\t" second \
    "ldr %[q], %[offset]\n\t" third fourth "lsl %[q], %[q], %[odd]\n\tasr %[q], %[q], #1\n\t"
#define EMITC_DUAL_EACH_1(first, second, third, fourth) \
    "ldr %[even], [%[even], %[p], lsl #2]\n\t" first "ldrsb %[odd], [%[odd], %[p]]\n\t" second \
    "ldr %[q], %[offset]\n\t" third fourth "lsl %[q], %[q], %[odd]\n\tasr %[q], %[q], #1\n\t"
#define EMITC_DUAL_SECOND_0(n, joined, how) \
    how(n, "a", , ) EMITC_DUAL_TWICES(n, joined) how(n, "b", , )
#define EMITC_DUAL_SECOND_1(n, joined, how) \
    how(n, "a", "ldr %[even], %[factor]\n\t", "ldr %[odd], %[right]\n\t") "add %[p], %[p], #1\n\t" \
    EMITC_DUAL_TWICE_##joined("b0") \
    EMITC_DUAL_EACH_1(EMITC_DUAL_TWICE_##joined("b1"), EMITC_DUAL_TWICE_##joined("b2"), \
        EMITC_DUAL_IF_##n(EMITC_DUAL_TWICE_##joined("b3")), ) \
    how(n, "b", , )
#define EMITC_DUAL_TWICES(n, joined) \
    EMITC_DUAL_TWICE_##joined("b0") EMITC_DUAL_TWICE_##joined("b1") EMITC_DUAL_TWICE_##joined("b2") \
    EMITC_DUAL_IF_##n(EMITC_DUAL_TWICE_##joined("b3"))
#define EMITC_DUAL_OUTPUTS(n, each, joined, how) \
    "ldr %[p], %[o]\n\t" EMITC_DUAL_PART_##joined(0) "ldr %[even], %[factor]\n\t" EMITC_DUAL_PART_##joined(1) \
    "ldr %[odd], %[right]\n\t" EMITC_DUAL_PART_##joined(2) \
    "ldr %[x], %[y]\n\t" EMITC_DUAL_IF_##n(EMITC_DUAL_PART_##joined(3)) \
    EMITC_DUAL_EACH_##each(EMITC_DUAL_TWICE_0("a0"), EMITC_DUAL_TWICE_0("a1"), EMITC_DUAL_TWICE_0("a2"), \
        "add %[x], %[x], %[p]\n\t" EMITC_DUAL_IF_##n(EMITC_DUAL_TWICE_0("a3"))) \
    EMITC_DUAL_SECOND_##each(n, joined, how)
#define EMITC_DUAL_OUTPUTS_UP(n, each, joined) EMITC_DUAL_OUTPUTS(n, each, joined, EMITC_DUAL_ALL_UP)
#define EMITC_DUAL_OUTPUTS_AWAY(n, each, joined) EMITC_DUAL_OUTPUTS(n, each, joined, EMITC_DUAL_ALL_AWAY)
#define EMITC_DUAL_OUTPUTS_FLOAT(n, each, joined) EMITC_PIXELS_IN_ORDER(n, FLOAT, each, joined)
#define EMITC_PIXELS_OUTPUTS(n, all, each, joined) EMITC_DUAL_OUTPUTS_##all(n, each, joined)

/* The sums of emitc_dsp_planes.h, of two columns in each of two rows. Each word is loaded while the one before it meets
 * its weights. What makes outputs is loaded after them: t2 the multiplier, t0 what is added, t1 the shift. */
#define EMITC_DUAL_PLANE(t, at) "ldr %[" #t "], [%[x], #" #at "]\n\t"
#define EMITC_DUAL_PLANE_T0_UP "ldr %[t0], %[start]\n\t"
#define EMITC_DUAL_PLANE_T1_UP "ldr %[t1], %[shift]\n\t"
#define EMITC_DUAL_PLANE_T0_AWAY EMITC_DUAL_PLANE_T0_UP
#define EMITC_DUAL_PLANE_T1_AWAY EMITC_DUAL_PLANE_T1_UP
#define EMITC_DUAL_PLANE_T0_FLOAT
#define EMITC_DUAL_PLANE_T1_FLOAT
#define EMITC_PLANE_SUMS(how, r0, r1, r2, r3) \
    "ldr %[s3], %[first]\n\t" EMITC_DUAL_PLANE(t0, r0) EMITC_DUAL_PLANE(t1, r1) EMITC_DUAL_PLANE(t2, r2) \
    "smlad %[s0], %[t0], %[w0], %[s3]\n\t" \
    "smlatb %[s1], %[t0], %[w0], %[s3]\n\t" EMITC_DUAL_PLANE(t0, r3) \
    "smlad %[s2], %[t1], %[w0], %[s3]\n\t" \
    "smlatb %[s3], %[t1], %[w0], %[s3]\n\t" EMITC_PLANE_FIRST(t1, s0, s1, w2) EMITC_DUAL_PLANE(t1, 64 + r0) \
    EMITC_PLANE_FIRST(t2, s2, s3, w2) EMITC_PLANE_FIRST(t2, s0, s1, w4) EMITC_DUAL_PLANE(t2, 64 + r1) \
    EMITC_PLANE_FIRST(t0, s2, s3, w4) EMITC_DUAL_PLANE(t0, 64 + r2) \
    EMITC_PLANE_LAST(t1, s0, s1, w1) EMITC_DUAL_PLANE(t1, 64 + r3) \
    EMITC_PLANE_LAST(t2, s0, s1, w3) EMITC_PLANE_LAST(t2, s2, s3, w1) EMITC_PLANE_LOADS_##how \
    EMITC_PLANE_LAST(t0, s0, s1, w5) EMITC_PLANE_LAST(t0, s2, s3, w3) EMITC_DUAL_PLANE_T0_##how \
    EMITC_PLANE_LAST(t1, s2, s3, w5) EMITC_DUAL_PLANE_T1_##how
#define EMITC_DUAL_PLANE_UP(sum) "smmlar %[" sum "], %[" sum "], %[t2], %[t0]\n\t"
#define EMITC_DUAL_PLANE_AWAY(sum) "smmulr %[" sum "], %[" sum "], %[t2]\n\t"
#define EMITC_DUAL_PLANE_START(sum) "add %[" sum "], %[" sum "], %[t0]\n\t"
/* Where they go is loaded with the last limits. */
#define EMITC_DUAL_PLANE_LIMITS \
    EMITC_DUAL_LIMIT("s0") EMITC_DUAL_SHIFT("s2", "t1") EMITC_DUAL_LIMIT("s1") EMITC_DUAL_SHIFT("s3", "t1") \
    EMITC_DUAL_LIMIT("s2") "ldr %[t0], %[y]\n\t" EMITC_DUAL_LIMIT("s3") "ldr %[t2], %[row_step]\n\t" \
    "ldr %[t1], %[column_step]\n\t"
#define EMITC_DUAL_PLANE_FOUR_UP \
    EMITC_DUAL_PLANE_UP("s0") EMITC_DUAL_PLANE_UP("s1") EMITC_DUAL_PLANE_UP("s2") EMITC_DUAL_SHIFT("s0", "t1") \
    EMITC_DUAL_PLANE_UP("s3") EMITC_DUAL_SHIFT("s1", "t1") EMITC_DUAL_PLANE_LIMITS
#define EMITC_DUAL_PLANE_FOUR_AWAY \
    EMITC_DUAL_PLANE_AWAY("s0") EMITC_DUAL_PLANE_AWAY("s1") EMITC_DUAL_PLANE_AWAY("s2") EMITC_DUAL_PLANE_AWAY("s3") \
    EMITC_DUAL_SIGN("s0") EMITC_DUAL_SIGN("s1") EMITC_DUAL_PLANE_START("s0") EMITC_DUAL_SIGN("s2") \
    EMITC_DUAL_PLANE_START("s1") EMITC_DUAL_SIGN("s3") EMITC_DUAL_PLANE_START("s2") EMITC_DUAL_SHIFT("s0", "t1") \
    EMITC_DUAL_PLANE_START("s3") EMITC_DUAL_SHIFT("s1", "t1") EMITC_DUAL_PLANE_LIMITS
#define EMITC_DUAL_PLANE_FOUR_FLOAT \
    EMITC_PLANE_FOUR_FLOAT "ldr %[t0], %[y]\n\tldr %[t1], %[column_step]\n\tldr %[t2], %[row_step]\n\t"
#define EMITC_PLANE_STORE(how, move) \
    EMITC_DUAL_PLANE_FOUR_##how move \
    "strb %[s3], [%[t2], %[t1]]\n\tstrb %[s2], [%[t2]]\n\t" \
    "strb %[s1], [%[t0], %[t1]]\n\tstrb %[s0], [%[t0]]\n\t"

/* One word of weights meets the values of four or three pixels whose windows overlap, as in emitc_dsp_span.h. Values of
 * the first two pixels are loaded together, where they are in neighbouring words. */
#define EMITC_DUAL_SPAN_1(pixel, from) \
    "sxtb16 %[even], %[odd]\n\t" EMITC_DUAL_MAC("b" pixel, from, "odd") EMITC_DUAL_MAC("a" pixel, from, "even")
#define EMITC_DUAL_SPAN_0(pixel, from) \
    "sxtb16 %[even], %[odd]\n\tsxtb16 %[odd], %[odd], ror #8\n\t" \
    EMITC_DUAL_MAC("a" pixel, from, "even") EMITC_DUAL_MAC("b" pixel, from, "odd")
#define EMITC_DUAL_BOTH(pixel, from) EMITC_DUAL_MAC("b" pixel, from, "odd") EMITC_DUAL_MAC("a" pixel, from, "even")
#define EMITC_SPAN_4(joined, number, at, pitch) \
    EMITC_SPAN_WEIGHTS(number) EMITC_SPAN_VALUES(p, #at) EMITC_SPAN_VALUES(q, #at "+" #pitch) \
    EMITC_DUAL_SPAN_##joined("0", "p") EMITC_SPAN_VALUES(p, #at "+2*" #pitch) \
    EMITC_DUAL_BOTH("1", "q") EMITC_SPAN_VALUES(q, #at "+3*" #pitch) \
    EMITC_DUAL_BOTH("2", "p") EMITC_DUAL_BOTH("3", "q")
#define EMITC_SPAN_3(joined, number, at, pitch) \
    EMITC_SPAN_WEIGHTS(number) EMITC_SPAN_VALUES(p, #at) EMITC_SPAN_VALUES(q, #at "+" #pitch) \
    EMITC_DUAL_SPAN_##joined("0", "p") EMITC_SPAN_VALUES(a3, #at "+2*" #pitch) \
    EMITC_DUAL_BOTH("1", "q") EMITC_DUAL_BOTH("2", "a3")
#define EMITC_SPAN_SLIDE_3(joined, number, first, second, third) \
    EMITC_SPAN_WEIGHTS(number) EMITC_SPAN_VALUES(third, "4*" #number "+8") EMITC_DUAL_SPAN_##joined("0", #first) \
    EMITC_DUAL_BOTH("1", #second) EMITC_DUAL_BOTH("2", #third)

/* Four channels of a pixel meet the weights of a tap: the place of the values takes three cycles, in which the weights
 * are widened. */
#define EMITC_TAP_VALUE \
    "sxtb16 %[tap_even], %[tap]\n\tsxtb16 %[tap], %[tap], ror #8\n\t" \
    "ldr %[value], [%[value], %[channel]]\n\t"
#endif

#endif
