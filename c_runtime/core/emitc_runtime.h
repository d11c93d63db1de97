/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc runtime: status codes, version handshake, fixed-point helpers and the layer hook.
 * Generated code needs this file, <stdint.h>, <stddef.h> and <string.h>. No heap, no globals, no I/O.
 *
 * Options, all off by default; give every file the same:
 *   EMITC_NO_ASM             Plain C only, without assembly and vector intrinsics: for certification, or for another
 *                            option of the compiler that takes a register away. Every result stays the same.
 *   EMITC_TRACE              After every layer the application's emitc_layer_hook() is called, for profiles and checks.
 *   EMITC_TRACE_ROWS         With EMITC_TRACE: the hook is called for every row of layers that run row by row.
 *   EMITC_NO_TARGET_CHECK    No check of a kernel library's version.
 *   EMITC_NO_TARGET_WARNING  No warning where the core lacks the instructions that the package was made for.
 *   EMITC_FLOAT_HARDWARE     1 or 0: float32 requantization by the core's float unit, or by integer code, with the same
 *                            result. Without the option, the compiler's own macros tell what is faster.
 */
#ifndef EMITC_RUNTIME_H
#define EMITC_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when generated code and runtime no longer fit together; generated code checks it at compile time. */
#define EMITC_RUNTIME_VERSION 1

typedef enum emitc_status {
    EMITC_OK = 0,
    EMITC_NOT_READY = 1,        /* run or reset before a successful init */
    EMITC_INVALID_ARGUMENT = 2, /* a null pointer where memory is needed */
    EMITC_ARENA_TOO_SMALL = 3,
    EMITC_STATE_TOO_SMALL = 4,
    EMITC_MISALIGNED = 5,       /* arena or state is not aligned as the model's header asks */
    EMITC_BACKEND_FAILED = 6,   /* a kernel library or an accelerator reported an error */
    EMITC_VERSION_MISMATCH = 7, /* emitc_runtime.c is of another version than the generated code */
    EMITC_SELF_TEST_FAILED = 8, /* a constant or a result of the self test is not what it must be */
    EMITC_MORE = 9              /* a step has run, and the inference has further ones */
} emitc_status;

/* How static functions are compiled. EMITC_NOINLINE: once for all callers. EMITC_INLINE_FOR_SPEED: inline, but not with
 * -Os. EMITC_AT_WORD: a pointer that is a multiple of four; several words may be loaded and stored at once. */
#if defined(__GNUC__)
#define EMITC_MUST_CHECK __attribute__((warn_unused_result))
#define EMITC_ALWAYS_INLINE static inline __attribute__((always_inline))
#define EMITC_NOINLINE static __attribute__((noinline, unused))
#define EMITC_AT_WORD(pointer) __builtin_assume_aligned(pointer, 4)
#else
#define EMITC_MUST_CHECK
#define EMITC_ALWAYS_INLINE static inline
#define EMITC_NOINLINE static inline
#define EMITC_AT_WORD(pointer) (pointer)
#endif
/* 1 where assembly in the syntax of GCC is compiled; plain C is compiled elsewhere. */
#if defined(__GNUC__) && !defined(EMITC_NO_ASM)
#define EMITC_ASM 1
#else
#define EMITC_ASM 0
#endif
#if defined(__GNUC__) && defined(__OPTIMIZE_SIZE__)
#define EMITC_INLINE_FOR_SPEED static __attribute__((unused))
#else
#define EMITC_INLINE_FOR_SPEED EMITC_ALWAYS_INLINE
#endif

/* The status as a constant English text; never null. */
const char *emitc_status_string(emitc_status status);

/* Gives a model that was compiled with --input-rows one row of its input: writes row_bytes bytes to `to`. context: what
 * the application gave with the reader. Returns EMITC_OK, or what the run is to end with and return. */
typedef emitc_status (*emitc_row_reader)(void *context, uint32_t row, void *to, size_t row_bytes);

uint32_t emitc_runtime_version(void); /* EMITC_RUNTIME_VERSION of the emitc_runtime.c that was linked */

#if defined(EMITC_TRACE)
/* Defined by the application. Called after each layer, once for each of its outputs in order.
 * model: the model's C name. index: of the operator in the source model. output: valid during the call. */
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes);
#endif

/* Moves 16 bytes of any type between places that are multiples of four; they may overlap. */
EMITC_ALWAYS_INLINE void emitc_move_16(void *to, const void *from)
{
    uint32_t w0; /* one by one, or compilers keep an array of them in memory */
    uint32_t w1;
    uint32_t w2;
    uint32_t w3;
    memcpy(&w0, EMITC_AT_WORD(from), 4);
    memcpy(&w1, (const char *)EMITC_AT_WORD(from) + 4, 4);
    memcpy(&w2, (const char *)EMITC_AT_WORD(from) + 8, 4);
    memcpy(&w3, (const char *)EMITC_AT_WORD(from) + 12, 4);
    memcpy(EMITC_AT_WORD(to), &w0, 4);
    memcpy((char *)EMITC_AT_WORD(to) + 4, &w1, 4);
    memcpy((char *)EMITC_AT_WORD(to) + 8, &w2, 4);
    memcpy((char *)EMITC_AT_WORD(to) + 12, &w3, 4);
}

/* ---- fixed point: used by generated code ---- */

/* High 32 bits of 2ab, rounded to nearest with ties up. Not for a = b = INT32_MIN.
 * Shifting a negative value right is arithmetic on every compiler that emitc supports; generated code asserts it. */
static inline int32_t emitc_high_mul(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}

/* x / 2^right rounded to nearest with ties away from zero; right in 0..31. */
static inline int32_t emitc_round_shift(int32_t x, int32_t right)
{
    if (right == 0) {
        return x;
    }
    /* The bits above the cut, and one more where the first bit below it is set; one less for negative x makes of "ties
     * up" "ties away". INT32_MIN has no tie. */
    const int32_t moved = x - (x < 0 && x > INT32_MIN);
    return (moved >> right) + ((moved >> (right - 1)) & 1);
}

/* acc * q31 * 2^(shift - 31) with the two roundings of TFLite Micro; q31 >= 0, shift in -31..30, positive: left. */
static inline int32_t emitc_requantize(int32_t acc, int32_t q31, int32_t shift)
{
    if (shift >= 0) {
        return emitc_high_mul((int32_t)((uint32_t)acc << shift), q31);
    }
    const int32_t x = emitc_high_mul(acc, q31);
    return (((x + (x >> 31)) >> (-shift - 1)) + 1) >> 1;
}

static inline int32_t emitc_clamp(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* An accumulator as the int8 output: requantized, moved by the output's zero point (wrapping, as TFLite Micro does
 * where a factor over 1/2 takes it to the end of 32 bits), clamped. */
static inline int8_t emitc_output_s8(int32_t acc, int32_t q31, int32_t shift, int32_t offset, int32_t low, int32_t high)
{
    return (int8_t)emitc_clamp((int32_t)((uint32_t)emitc_requantize(acc, q31, shift) + (uint32_t)offset), low, high);
}

/* ---- int16 activations: used by generated code ----
 *
 * TFLite Micro requantizes their 64-bit sums by a multiplier of 15 bits and one rounding, halves up. Where a sum has 32
 * bits and enough of the product is shifted out, its lowest 16 bits do not matter to the rounding. */

/* acc * m / 2^16 rounded down; 0 <= m < 2^15. */
static inline int32_t emitc_high_mul_q15(int32_t acc, int32_t m)
{
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__) || defined(EMITC_NARROW_MULTIPLY)
    /* No multiplication gives 64 bits there. */
    return (acc >> 16) * m + (int32_t)((((uint32_t)acc & 0xffffu) * (uint32_t)m) >> 16);
#elif defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && EMITC_ASM
    int32_t product; /* compilers take a long multiplication and put its halves together */
    __asm__("smulwb %0, %1, %2" : "=r"(product) : "r"(acc), "r"(m));
    return product;
#else
    return (int32_t)(((int64_t)acc * m) >> 16);
#endif
}

/* A sum as the int16 output: acc * m / 2^(16 + right), limited to low..high; right in 1..30. */
static inline int16_t emitc_output_s16(int32_t acc, int32_t m, int32_t right, int32_t low, int32_t high)
{
    return (int16_t)emitc_clamp(((emitc_high_mul_q15(acc, m) >> (right - 1)) + 1) >> 1, low, high);
}

/* acc * m / 2^right, which wraps to 32 bits as TFLite Micro's does, limited to low..high; m without a sign, right in
 * 8..46. A product wraps at 64 bits, which those of sums under 2^47 never reach. */
static inline int16_t emitc_output_s16_wide(int64_t acc, int32_t m, int32_t right, int32_t low, int32_t high)
{
    const int64_t scaled = (int64_t)((uint64_t)acc * (uint32_t)m + ((uint64_t)1 << (right - 1))) >> right;
    return (int16_t)emitc_clamp((int32_t)scaled, low, high);
}

/* ---- float32 requantization: used by generated code ----
 *
 * ONNX Runtime's rule: the accumulator becomes a float32, is multiplied by a float32, and the product is rounded to an
 * integer; each of the three rounds to nearest, ties to even. The bits must not depend on the core:
 *   - A compiler may turn product and sum into one fused multiply-add, which leaves out the product's rounding. It may
 *     do so even where they are two statements in the source. So no float sum follows the product here: its bits go to
 *     integer code, or the product goes into one conversion instruction that the compiler cannot look into. Nothing is
 *     left that could be fused.
 *   - The product is never subnormal (it is 0, or at least as large as the scale, a normal number). So a core that
 *     flushes subnormal numbers to zero gives the same.
 *   - The float unit is in its default mode, to nearest; one with more than 24 bits (x87) gets integer code.
 */
#if !defined(EMITC_FLOAT_HARDWARE)
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#define EMITC_FLOAT_HARDWARE 0
#elif defined(__ARM_FP) && (__ARM_FP & 4) != 0
#define EMITC_FLOAT_HARDWARE 1
#elif defined(__riscv_flen) || defined(__aarch64__) || defined(__SSE_MATH__) || defined(_M_X64) || defined(_M_ARM64)
#define EMITC_FLOAT_HARDWARE 1
#elif defined(__XTENSA__) && !defined(__XTENSA_SOFT_FLOAT__)
#define EMITC_FLOAT_HARDWARE 1
#else
#define EMITC_FLOAT_HARDWARE 0
#endif
#endif

/* Largest magnitude of a limit below: enough for outputs of 16 bits with any zero point. */
#define EMITC_FLOAT_LIMIT 65536

#if EMITC_FLOAT_HARDWARE

/* rint(acc * scale), saturated at EMITC_FLOAT_LIMIT or beyond. */
static inline int32_t emitc_rint_f32(int32_t acc, float scale)
{
    const float product = (float)acc * scale;
#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP)
    int32_t rounded; /* saturates */
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(rounded) : "t"(product));
    return rounded;
#elif EMITC_ASM && defined(__riscv_flen)
    int32_t rounded; /* saturates */
    __asm__("fcvt.w.s %0, %1, rne" : "=r"(rounded) : "f"(product));
    return rounded;
#else
    uint32_t bits;
    memcpy(&bits, &product, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x47800000u) { /* 65536.0f; infinity is larger as well */
        magnitude = 0x47800000u;
    }
    /* The value is mantissa / 2^right, right >= 7. From 25 on it is under 1/2 and rounds to 0, as it does with 25. */
    const uint32_t exact = 150 - (magnitude >> 23);
    const uint32_t right = exact > 25 ? 25 : exact;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t below_half = (1u << (right - 1)) - 1;
    const int32_t rounded = (int32_t)((mantissa + below_half + ((mantissa >> right) & 1)) >> right);
    return (bits >> 31) != 0 ? -rounded : rounded;
#endif
}

#else

/* The same as emitc_rint_f32 for every accumulator, saturated at EMITC_FLOAT_LIMIT; with 64-bit shifts, slow. */
int32_t emitc_rint_f32_exact(int32_t acc, uint32_t scale_bits);

/* a * b / 2^32, or up to 4 less; b >= 0. */
static inline int32_t emitc_high_word(int32_t a, int32_t b)
{
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__) || defined(EMITC_NARROW_MULTIPLY)
    /* No multiplication gives 64 bits there. Of the four products of halves the lowest adds less than 1. */
    const int32_t a_high = a >> 16;
    const int32_t b_high = b >> 16;
    const uint32_t a_low = (uint32_t)a & 0xffffu;
    const int32_t b_low = b & 0xffff;
    return a_high * b_high + ((a_high * b_low) >> 16) + (int32_t)((a_low * (uint32_t)b_high) >> 16);
#else
    return (int32_t)(((int64_t)a * b) >> 32);
#endif
}

/* rint(acc * scale), saturated at EMITC_FLOAT_LIMIT. */
static inline int32_t emitc_rint_f32(int32_t acc, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    /* acc * scale in fixed point with 14 bits of fraction: the scale's mantissa is scale * 2^(157 - exponent) in 31
     * bits, so acc moves by exponent - 111. What does not fit has a magnitude of 65536 or more, or is under 2^-16. */
    const uint32_t exponent = bits >> 23;
    int32_t moved;
    if (exponent - 111 <= 30) {
        moved = (int32_t)((uint32_t)acc << (exponent - 111));
        if (moved >> (exponent - 111) != acc) {
            return emitc_rint_f32_exact(acc, bits);
        }
    } else if (111 - exponent <= 31) {
        moved = acc >> (111 - exponent);
    } else {
        return emitc_rint_f32_exact(acc, bits);
    }
    const int32_t fixed = emitc_high_word(moved, (int32_t)(((bits << 8) >> 1) | 0x40000000u)) + (1 << 13);
    /* Up to 5 too low. Float32 rounds acc by 64 of moved's units at most, since that is under 2^31; each is worth less
     * than 1/2 here. It rounds the product, under 2^30, by 32 at most. So beyond 69 of a half both roundings and the
     * tie do not matter, and to nearest is enough. */
    if (((uint32_t)(fixed + 72) & 0x3fffu) < 144u) {
        return emitc_rint_f32_exact(acc, bits);
    }
    return fixed >> 14;
}

#endif

/* rint(acc * scale) limited to low..high, for every acc and every positive finite normal scale.
 * low and high are within EMITC_FLOAT_LIMIT of 0. */
static inline int32_t emitc_scale_f32(int32_t acc, float scale, int32_t low, int32_t high)
{
    return emitc_clamp(emitc_rint_f32(acc, scale), low, high);
}

/* An accumulator as the output: scaled and rounded, then moved by the output's zero point, limited to low..high.
 * low - offset and high - offset are within EMITC_FLOAT_LIMIT of 0. */
static inline int32_t emitc_output_f32(int32_t acc, float scale, int32_t offset, int32_t low, int32_t high)
{
    return emitc_scale_f32(acc, scale, low - offset, high - offset) + offset;
}

/* x, where no compiler sees that it is a product: a sum that follows cannot become one fused multiply-add with it,
 * which would leave out the product's rounding. */
static inline float emitc_unfused(float x)
{
#if EMITC_ASM && defined(__arm__) && defined(__ARM_FP)
    __asm__("" : "+t"(x));
    return x;
#elif EMITC_ASM
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    __asm__("" : "+r"(bits));
    memcpy(&x, &bits, sizeof x);
    return x;
#else
    volatile float seen = x;
    return seen;
#endif
}

/* Four accumulators that share their input values. */
typedef struct emitc_acc4 {
    int32_t a0;
    int32_t a1;
    int32_t a2;
    int32_t a3;
} emitc_acc4;

/* acc + value * (w[0], w[1], w[2], w[3]) */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_mac4(emitc_acc4 acc, int32_t value, const int8_t *w)
{
    acc.a0 += value * w[0];
    acc.a1 += value * w[1];
    acc.a2 += value * w[2];
    acc.a3 += value * w[3];
    return acc;
}

/* A function that returns acc.aj + the sum over i < n of x[i] * weight j of value i. The four weights of a value take
 * `bytes` bytes. Four values a turn, so that the loop itself costs little. */
#define EMITC_DOT4(name, type, mac, bytes) \
    EMITC_ALWAYS_INLINE emitc_acc4 name(emitc_acc4 acc, const type *x, const int8_t *w, int32_t n) \
    { \
        for (int32_t turn = n >> 2; turn > 0; turn--) { \
            acc = mac(acc, x[0], w); \
            acc = mac(acc, x[1], w + (bytes)); \
            acc = mac(acc, x[2], w + 2 * (bytes)); \
            acc = mac(acc, x[3], w + 3 * (bytes)); \
            x += 4; \
            w += 4 * (bytes); \
        } \
        for (int32_t rest = n & 3; rest > 0; rest--) { \
            acc = mac(acc, *x, w); \
            x += 1; \
            w += (bytes); \
        } \
        return acc; \
    }
/* The same with an offset added to every x[i]. */
#define EMITC_DOT4_OFFSET(name, mac, bytes) \
    EMITC_ALWAYS_INLINE emitc_acc4 name(emitc_acc4 acc, const int8_t *x, int32_t offset, const int8_t *w, int32_t n) \
    { \
        for (; n > 0; n--) { \
            acc = mac(acc, *x + offset, w); \
            x += 1; \
            w += (bytes); \
        } \
        return acc; \
    }
EMITC_DOT4(emitc_dot4, int8_t, emitc_mac4, 4)
EMITC_DOT4(emitc_dot4_x16, int16_t, emitc_mac4, 4)
EMITC_DOT4_OFFSET(emitc_dot4_offset, emitc_mac4, 4)

/* Four sums of 64 bits. */
typedef struct emitc_sum4 {
    int64_t a0;
    int64_t a1;
    int64_t a2;
    int64_t a3;
} emitc_sum4;

/* emitc_dot4_x16 with sums of 64 bits: 511 products, each of 2^22 at most, add up within 32. */
EMITC_ALWAYS_INLINE emitc_sum4 emitc_dot4_x16_wide(emitc_sum4 sum, const int16_t *x, const int8_t *w, int32_t n)
{
    while (n > 0) {
        const int32_t part = n < 511 ? n : 511;
        const emitc_acc4 none = {0, 0, 0, 0};
        const emitc_acc4 acc = emitc_dot4_x16(none, x, w, part);
        sum.a0 += acc.a0;
        sum.a1 += acc.a1;
        sum.a2 += acc.a2;
        sum.a3 += acc.a3;
        x += part;
        w += 4 * part;
        n -= part;
    }
    return sum;
}

/* Weight `index` of those with four bits each: two lie in a byte, the first one in its low half. */
EMITC_ALWAYS_INLINE int32_t emitc_int4(const int8_t *w, int32_t index)
{
    const int32_t pair = w[index >> 1];
    return (index & 1) != 0 ? pair >> 4 : (int32_t)((uint32_t)pair << 28) >> 28;
}

/* emitc_mac4 with weights of four bits, in two bytes. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_mac4_int4(emitc_acc4 acc, int32_t value, const int8_t *w)
{
    acc.a0 += value * emitc_int4(w, 0);
    acc.a1 += value * emitc_int4(w, 1);
    acc.a2 += value * emitc_int4(w, 2);
    acc.a3 += value * emitc_int4(w, 3);
    return acc;
}

EMITC_DOT4(emitc_dot4_int4, int8_t, emitc_mac4_int4, 2)
EMITC_DOT4_OFFSET(emitc_dot4_offset_int4, emitc_mac4_int4, 2)

#ifdef __cplusplus
}
#endif
#endif
