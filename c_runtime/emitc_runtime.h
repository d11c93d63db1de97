/* emitc runtime: status codes, version handshake, fixed-point helpers and the layer hook.
 *
 * Everything that generated code needs besides <stdint.h>, <stddef.h> and <string.h>. No heap, no globals, no I/O.
 *
 * Options, all off by default:
 *   EMITC_TRACE   calls emitc_layer_hook(), which the application then defines, after every layer: for profiling and for
 *                 comparing layer by layer. Without it the calls are not compiled at all.
 */
#ifndef EMITC_RUNTIME_H
#define EMITC_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

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
    EMITC_VERSION_MISMATCH = 7  /* emitc_runtime.c is of another version than the generated code */
} emitc_status;

#if defined(__GNUC__)
#define EMITC_MUST_CHECK __attribute__((warn_unused_result))
#else
#define EMITC_MUST_CHECK
#endif

/* Small functions whose arguments must stay in registers. */
#if defined(__GNUC__)
#define EMITC_INLINE static inline __attribute__((always_inline))
#else
#define EMITC_INLINE static inline
#endif

/* The status as a constant English text; never null. */
const char *emitc_status_string(emitc_status status);

/* EMITC_RUNTIME_VERSION of the emitc_runtime.c that was linked. */
uint32_t emitc_runtime_version(void);

#if defined(EMITC_TRACE)
/* Defined by the application. Called after each layer, once for each of its outputs in order.
 * model: the model's C name. index: of the operator in the source model. data: output_bytes bytes, valid during the call. */
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes);
#endif

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
    /* The bits above the cut, and one more where the first bit below it is set; one less for negative x makes of "ties up"
     * "ties away". INT32_MIN has no tie. */
    const int32_t moved = x - (x < 0 && x > INT32_MIN);
    return (moved >> right) + ((moved >> (right - 1)) & 1);
}

/* acc * q31 * 2^(shift - 31) with the two roundings of TFLite Micro; q31 >= 0, shift in -31..30, positive to the left. */
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

/* An accumulator as the int8 output: requantized, moved by the output's zero point (wrapping, as TFLite Micro does where a
 * factor over 1/2 takes it to the end of 32 bits), clamped. */
static inline int8_t emitc_output_s8(int32_t acc, int32_t q31, int32_t shift, int32_t offset, int32_t low, int32_t high)
{
    return (int8_t)emitc_clamp((int32_t)((uint32_t)emitc_requantize(acc, q31, shift) + (uint32_t)offset), low, high);
}

/* Four accumulators that share their input values. */
typedef struct emitc_acc4 {
    int32_t a0;
    int32_t a1;
    int32_t a2;
    int32_t a3;
} emitc_acc4;

/* acc + value * (w[0], w[1], w[2], w[3]) */
EMITC_INLINE emitc_acc4 emitc_mac4(emitc_acc4 acc, int32_t value, const int8_t *w)
{
    acc.a0 += value * w[0];
    acc.a1 += value * w[1];
    acc.a2 += value * w[2];
    acc.a3 += value * w[3];
    return acc;
}

/* acc.aj + sum over i < n of x[i] * w[4 * i + j]; four steps a turn, so that the loop itself costs little. */
EMITC_INLINE emitc_acc4 emitc_dot4(emitc_acc4 acc, const int8_t *x, const int8_t *w, int32_t n)
{
    for (int32_t turn = n >> 2; turn > 0; turn--) {
        acc = emitc_mac4(acc, x[0], w);
        acc = emitc_mac4(acc, x[1], w + 4);
        acc = emitc_mac4(acc, x[2], w + 8);
        acc = emitc_mac4(acc, x[3], w + 12);
        x += 4;
        w += 16;
    }
    for (int32_t rest = n & 3; rest > 0; rest--) {
        acc = emitc_mac4(acc, *x, w);
        x += 1;
        w += 4;
    }
    return acc;
}

/* The same with an offset added to every x[i]. */
EMITC_INLINE emitc_acc4 emitc_dot4_offset(emitc_acc4 acc, const int8_t *x, int32_t offset, const int8_t *w, int32_t n)
{
    for (; n > 0; n--) {
        acc = emitc_mac4(acc, *x + offset, w);
        x += 1;
        w += 4;
    }
    return acc;
}

#ifdef __cplusplus
}
#endif
#endif
