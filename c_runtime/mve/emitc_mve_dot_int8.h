/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: sums of products, for convolutions and matrix products.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. The inner loops are in assembly where compilers make much
 * longer ones.
 */
#ifndef EMITC_MVE_DOT_INT8_H
#define EMITC_MVE_DOT_INT8_H

#include "emitc_mve.h"

/* Outputs of `n` sums, one by one. */
EMITC_NOINLINE void emitc_outputs_one_by_one(
    int8_t *y, const int32_t *sums, const int32_t *bias, const int32_t *multiplier, const int8_t *shift, int32_t n,
    int32_t offset,
    int32_t low, int32_t high)
{
    for (int32_t i = 0; i < n; i++) {
        y[i] = emitc_output_s8(sums[i] + bias[i], multiplier[i], shift[i], offset, low, high);
    }
}

EMITC_NOINLINE void emitc_outputs_one_by_one_f32(
    int8_t *y, const int32_t *sums, const int32_t *bias, const float *factor, int32_t n, int32_t offset, int32_t low,
    int32_t high)
{
    for (int32_t i = 0; i < n; i++) {
        y[i] = (int8_t)emitc_output_f32(sums[i] + bias[i], factor[i], offset, low, high);
    }
}

/* Sum of the products of n bytes. */
EMITC_ALWAYS_INLINE int32_t emitc_dot(const int8_t *x, const int8_t *w, int32_t n)
{
    int32_t acc = 0;
#if EMITC_MVE
    for (; n > 0; n -= 16) {
        const mve_pred16_t some = vctp8q((uint32_t)n);
        acc = vmladavaq_s8(acc, vldrbq_z_s8(x, some), vldrbq_z_s8(w, some));
        x += 16;
        w += 16;
    }
#else
    for (int32_t i = 0; i < n; i++) {
        acc += x[i] * w[i];
    }
#endif
    return acc;
}

/* Sum of n bytes. */
EMITC_ALWAYS_INLINE int32_t emitc_byte_sum(const int8_t *x, int32_t n)
{
    int32_t sum = 0;
#if EMITC_MVE
    __asm__ volatile(
        "wlstp.8 lr, %[n], 2f\n"
        "1:\n\t"
        "vldrb.8 q0, [%[x]], #16\n\t"
        "vaddva.s8 %[sum], q0\n\t"
        "letp lr, 1b\n"
        "2:"
        : [sum] "+Te"(sum), [x] "+r"(x)
        : [n] "r"(n)
        : "q0", "lr", "cc", "memory");
#else
    for (int32_t i = 0; i < n; i++) {
        sum += x[i];
    }
#endif
    return sum;
}

/* Copies n bytes of stride `step` to contiguous places; returns their sum. step under 2^13. */
EMITC_ALWAYS_INLINE int32_t emitc_column(int8_t *to, const int8_t *from, int32_t n, int32_t step)
{
    int32_t sum = 0;
#if EMITC_MVE
    const uint16x8_t places = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    __asm__ volatile(
        "wlstp.16 lr, %[n], 2f\n"
        "1:\n\t"
        "vldrb.s16 q0, [%[from], %q[places]]\n\t"
        "vstrb.16 q0, [%[to]], #8\n\t"
        "vaddva.s16 %[sum], q0\n\t"
        "add %[from], %[from], %[next]\n\t"
        "letp lr, 1b\n"
        "2:"
        : [sum] "+Te"(sum), [from] "+r"(from), [to] "+l"(to)
        : [n] "r"(n), [next] "r"(8 * step), [places] "w"(places)
        : "q0", "lr", "cc", "memory");
#else
    for (int32_t i = 0; i < n; i++) {
        to[i] = from[i * step];
        sum += to[i];
    }
#endif
    return sum;
}

/* Copies four adjacent columns, with a distance of `step` between the values of a column, as emitc_dots_of_pair reads
 * them. Computes the sum of each. count: of the columns that there are; for others the last one of these is taken. */
EMITC_ALWAYS_INLINE void emitc_quad_columns(int32_t *sums, int8_t *to, const int8_t *from, int32_t n, int32_t step,
    int32_t count)
{
    const int32_t part = n & 15;
    for (int32_t column = 0; column < 4; column++) {
        const int8_t *const first = from + (column < count ? column : count - 1);
        int32_t sum = emitc_column(to + column * part, first, part, step);
        for (int32_t i = part; i < n; i += 16) {
            sum += emitc_column(to + 4 * i + 16 * column, first + i * step, 16, step);
        }
        sums[column] = sum;
    }
}

/* Moves `n` bytes one place to the front, over the one before them; their sum less `zero` each, times the weights. */
EMITC_ALWAYS_INLINE int32_t emitc_moved_bytes(int8_t *memory, const int8_t *weights, int32_t zero, int32_t n)
{
    int32_t sum = 0;
#if EMITC_MVE
    int32_t whole = 0;
    for (; n > 0; n -= 16) {
        const mve_pred16_t some = vctp8q((uint32_t)n);
        const int8x16_t values = vldrbq_z_s8(memory + 1, some);
        const int8x16_t factors = vldrbq_z_s8(weights, some);
        vstrbq_p_s8(memory, values, some);
        sum = vmladavaq_s8(sum, values, factors);
        whole = vaddvaq_s8(whole, factors);
        memory += 16;
        weights += 16;
    }
    sum -= zero * whole;
#else
    for (int32_t i = 0; i < n; i++) {
        memory[i] = memory[i + 1];
        sum += (memory[i] - zero) * weights[i];
    }
#endif
    return sum;
}

/* acc + the products of n bytes with four rows of weights, one after the other. */
EMITC_ALWAYS_INLINE emitc_acc4 emitc_sums4(emitc_acc4 acc, const int8_t *x, const int8_t *w, int32_t n)
{
#if EMITC_MVE
    const int8_t *w1 = w + n;
    const int8_t *w2 = w1 + n;
    const int8_t *w3 = w2 + n;
    for (int32_t block = n >> 4; block > 0; block--) {
        const int8x16_t values = vldrbq_s8(x);
        acc.a0 = vmladavaq_s8(acc.a0, values, vldrbq_s8(w));
        acc.a1 = vmladavaq_s8(acc.a1, values, vldrbq_s8(w1));
        acc.a2 = vmladavaq_s8(acc.a2, values, vldrbq_s8(w2));
        acc.a3 = vmladavaq_s8(acc.a3, values, vldrbq_s8(w3));
        x += 16;
        w += 16;
        w1 += 16;
        w2 += 16;
        w3 += 16;
    }
    if ((n & 15) != 0) {
        const mve_pred16_t some = vctp8q((uint32_t)(n & 15));
        const int8x16_t values = vldrbq_z_s8(x, some);
        acc.a0 = vmladavaq_s8(acc.a0, values, vldrbq_z_s8(w, some));
        acc.a1 = vmladavaq_s8(acc.a1, values, vldrbq_z_s8(w1, some));
        acc.a2 = vmladavaq_s8(acc.a2, values, vldrbq_z_s8(w2, some));
        acc.a3 = vmladavaq_s8(acc.a3, values, vldrbq_z_s8(w3, some));
    }
#else
    for (int32_t i = 0; i < n; i++) {
        acc.a0 += x[i] * w[i];
        acc.a1 += x[i] * w[n + i];
        acc.a2 += x[i] * w[2 * n + i];
        acc.a3 += x[i] * w[3 * n + i];
    }
#endif
    return acc;
}

/* emitc_dot of x with each of `channels` rows of weights, one after the other. */
EMITC_NOINLINE void emitc_dots_one_by_one(int32_t *acc, const int8_t *x, const int8_t *w, int32_t n, int32_t channels)
{
    for (; channels > 0; channels--) {
        *acc++ = emitc_dot(x, w, n);
        w += n;
    }
}

/* y -= a_zero * centred + b_zero * sum, n times; b_zero: one for all, or n where its step is 1. */
EMITC_ALWAYS_INLINE void emitc_without_zeros(
    int32_t *y, const int32_t *centred, int32_t a_zero, const int8_t *b_zero, int32_t step, int32_t sum, int32_t n)
{
#if EMITC_MVE
    int32x4_t zero = vdupq_n_s32(*b_zero);
    for (int32_t i = 0; i < n; i += 4) {
        const mve_pred16_t some = vctp32q((uint32_t)(n - i));
        zero = step != 0 ? vldrbq_z_s32(b_zero + i, some) : zero;
        int32x4_t result = vmlaq_n_s32(vldrwq_z_s32(y + i, some), vldrwq_z_s32(centred + i, some), -a_zero);
        result = vmlaq_n_s32(result, zero, -sum);
        vstrwq_p_s32(y + i, result, some);
    }
#else
    for (int32_t i = 0; i < n; i++) {
        y[i] -= a_zero * centred[i] + b_zero[i * step] * sum;
    }
#endif
}

#if EMITC_MVE_LOOPS
/* Vector instructions of two units overlap: as many loads as there are stand between the multiplications. */
#define EMITC_PAIR_W(q) "vldrb.8 " q ", [%[w]], #16\n\t"
#define EMITC_PAIR_X0 "vldrb.8 q0, [%[x0]], #16\n\t"
#define EMITC_PAIR_X1 "vldrb.8 q1, [%[x1]], #16\n\t"
#define EMITC_PAIR_MAC(mac, sum, x, w) mac " %[" sum "], " x ", " w "\n\t"
/* One register of weights of each of four channels, and of the values of two pixels; q0, q1, q2 are loaded before. */
#define EMITC_PAIR_HALF(mac) \
    EMITC_PAIR_MAC(mac, "a0", "q0", "q2") EMITC_PAIR_W("q3") \
    EMITC_PAIR_MAC(mac, "b0", "q1", "q2") EMITC_PAIR_W("q2") \
    EMITC_PAIR_MAC(mac, "a1", "q0", "q3") EMITC_PAIR_MAC(mac, "b1", "q1", "q3") EMITC_PAIR_W("q3") \
    EMITC_PAIR_MAC(mac, "a2", "q0", "q2") EMITC_PAIR_MAC(mac, "b2", "q1", "q2")
#define EMITC_PAIR_BLOCK(mac) \
    EMITC_PAIR_HALF(mac) EMITC_PAIR_W("q2") \
    EMITC_PAIR_MAC(mac, "a3", "q0", "q3") EMITC_PAIR_X0 \
    EMITC_PAIR_MAC(mac, "b3", "q1", "q3") EMITC_PAIR_X1
/* The same without a block before or after it. */
#define EMITC_PAIR_ALONE(mac) \
    EMITC_PAIR_X0 EMITC_PAIR_W("q2") \
    EMITC_PAIR_MAC(mac, "a0", "q0", "q2") EMITC_PAIR_X1 \
    EMITC_PAIR_MAC(mac, "b0", "q1", "q2") EMITC_PAIR_W("q3") \
    EMITC_PAIR_MAC(mac, "a1", "q0", "q3") EMITC_PAIR_W("q2") \
    EMITC_PAIR_MAC(mac, "b1", "q1", "q3") EMITC_PAIR_W("q3") \
    EMITC_PAIR_MAC(mac, "a2", "q0", "q2") EMITC_PAIR_MAC(mac, "b2", "q1", "q2") \
    EMITC_PAIR_MAC(mac, "a3", "q0", "q3") EMITC_PAIR_MAC(mac, "b3", "q1", "q3")
/* The last sums and the storing of all eight; next0 and next1 are done meanwhile. */
#define EMITC_PAIR_END(mac, next0, next1) \
    "vmov q4[2], q4[0], %[a0], %[a2]\n\t" EMITC_PAIR_MAC(mac, "a3", "q0", "q3") \
    "vmov q5[2], q5[0], %[b0], %[b2]\n\t" next0 EMITC_PAIR_MAC(mac, "b3", "q1", "q3") \
    EMITC_PAIR_STORE(next1)
#define EMITC_PAIR_STORE(next) \
    "vmov q4[3], q4[1], %[a1], %[a3]\n\t" next "vstrw.32 q4, [%[acc]], #16\n\t" \
    "vmov q5[3], q5[1], %[b1], %[b3]\n\tvstrw.32 q5, [%[acc]], #16\n\t"
#define EMITC_PAIR_AGAIN "cmp %[acc], %[last]\n\tbne 1b"
/* A quad of channels, whose first values are loaded before; `first`: its blocks. Then the next quad's are. */
#define EMITC_PAIR_BLOCKS(first) \
    "ldr %[end], %[x0_end]\n\t" EMITC_PAIR_X0 EMITC_PAIR_X1 \
    "1:\n\t" EMITC_PAIR_W("q2") first \
    "cmp %[x0], %[end]\n\tbeq 3f\n2:\n\t" \
    EMITC_PAIR_BLOCK("vmladava.s8") EMITC_PAIR_BLOCK("vmladava.s8") \
    "cmp %[x0], %[end]\n\tbne 2b\n3:\n\t" \
    "ldrd %[x0], %[x1], %[start]\n\t" \
    EMITC_PAIR_HALF("vmladava.s8") \
    EMITC_PAIR_END("vmladava.s8", EMITC_PAIR_X0, EMITC_PAIR_X1) \
    EMITC_PAIR_AGAIN
/* Four channels for `end` lanes, the predicate being theirs. */
#define EMITC_PAIR_PART(a, b) \
    "vpst\n\t" \
    "vldrbt.8 q2, [%[w]]\n\t" \
    "vmladav.s8 %[" a "], q0, q2\n\t" \
    "add %[w], %[end]\n\t" \
    "vmladav.s8 %[" b "], q1, q2\n\t"
#define EMITC_PAIR_OPERANDS \
    [a0] "=&Te"(a0), [a1] "=&Te"(a1), [a2] "=&Te"(a2), [a3] "=&Te"(a3), [b0] "=&Te"(b0), [b1] "=&Te"(b1), \
        [b2] "=&Te"(b2), [b3] "=&Te"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w] "+r"(w), [acc] "+r"(acc), [end] "=&r"(end)
#define EMITC_PAIR_CLOBBERS "q0", "q1", "q2", "q3", "q4", "q5", "cc", "memory"
#endif

/* For every quad of channels, the sums of the products of the n values of two pixels: four of the first, four of the
 * second. w: for each quad, the first n % 16 weights of each channel, then 16 of each channel at a time. quads > 0. */
EMITC_NOINLINE void emitc_dots_of_pair(
    int32_t *acc, const int8_t *x0, const int8_t *x1, const int8_t *w, int32_t n, int32_t quads)
{
#if EMITC_MVE_LOOPS
    const int8_t *const start[2] = {x0, x1};
    const int8_t *const x0_end = x0 + n;
    int32_t *const last = acc + 8 * quads;
    int32_t a0, a1, a2, a3, b0, b1, b2, b3;
    const int8_t *end;
    if (n == 8) {
        /* Two channels' weights fill a register; the values stay in four: those of each pixel for the first channel and
         * for the second. */
        __asm__ volatile(
            "mov %[end], #8\n\t"
            "vctp.8 %[end]\n\t"
            "vpstt\n\t"
            "vldrbt.8 q0, [%[x0]]\n\t"
            "vldrbt.8 q1, [%[x1]]\n\t"
            "vpnot\n\t"
            "vpstt\n\t"
            "vldrbt.8 q3, [%[x0], #-8]\n\t"
            "vldrbt.8 q5, [%[x1], #-8]\n"
            "1:\n\t"
            EMITC_PAIR_W("q2")
            "vmladav.s8 %[a0], q0, q2\n\t" "vmladav.s8 %[a1], q3, q2\n\t"
            "vmladav.s8 %[b0], q1, q2\n\t" "vmladav.s8 %[b1], q5, q2\n\t"
            EMITC_PAIR_W("q2")
            "vmladav.s8 %[a2], q0, q2\n\t" "vmladav.s8 %[a3], q3, q2\n\t"
            "vmov q4[2], q4[0], %[a0], %[a2]\n\t"
            "vmladav.s8 %[b2], q1, q2\n\t"
            "vmov q4[3], q4[1], %[a1], %[a3]\n\t"
            "vmladav.s8 %[b3], q5, q2\n\t"
            "vstrw.32 q4, [%[acc]], #16\n\t"
            "vmov q2[2], q2[0], %[b0], %[b2]\n\t"
            "vmov q2[3], q2[1], %[b1], %[b3]\n\t"
            "vstrw.32 q2, [%[acc]], #16\n\t"
            EMITC_PAIR_AGAIN
            : EMITC_PAIR_OPERANDS
            : [last] "r"(last)
            : EMITC_PAIR_CLOBBERS);
    } else if (n == 16) {
        __asm__ volatile(
            "vldrb.8 q0, [%[x0]]\n\t"
            "vldrb.8 q1, [%[x1]]\n"
            "1:\n\t"
            EMITC_PAIR_W("q2")
            EMITC_PAIR_HALF("vmladav.s8")
            EMITC_PAIR_END("vmladav.s8", "", "")
            EMITC_PAIR_AGAIN
            : EMITC_PAIR_OPERANDS
            : [last] "r"(last)
            : EMITC_PAIR_CLOBBERS);
    } else if ((n & 31) == 0) {
        __asm__ volatile(
            EMITC_PAIR_BLOCKS(EMITC_PAIR_BLOCK("vmladav.s8"))
            : EMITC_PAIR_OPERANDS
            : [start] "m"(start), [last] "r"(last), [x0_end] "m"(x0_end)
            : EMITC_PAIR_CLOBBERS);
    } else if ((n & 15) == 0) {
        __asm__ volatile(
            EMITC_PAIR_BLOCKS(EMITC_PAIR_BLOCK("vmladav.s8") EMITC_PAIR_BLOCK("vmladava.s8"))
            : EMITC_PAIR_OPERANDS
            : [start] "m"(start), [last] "r"(last), [x0_end] "m"(x0_end)
            : EMITC_PAIR_CLOBBERS);
    } else {
        const int32_t part = n & 15;
        __asm__ volatile(
            "ldr %[end], %[part]\n\t"
            "vctp.8 %[end]\n"
            "1:\n\t"
            "vpstt\n\t"
            "vldrbt.8 q0, [%[x0]]\n\t"
            "vldrbt.8 q1, [%[x1]]\n\t"
            "add %[x0], %[end]\n\t"
            "add %[x1], %[end]\n\t"
            EMITC_PAIR_PART("a0", "b0") EMITC_PAIR_PART("a1", "b1")
            EMITC_PAIR_PART("a2", "b2") EMITC_PAIR_PART("a3", "b3")
            "ldr %[end], %[x0_end]\n\t"
            "cmp %[x0], %[end]\n\t"
            "beq 3f\n"
            "2:\n\t"
            EMITC_PAIR_ALONE("vmladava.s8")
            "cmp %[x0], %[end]\n\t"
            "bne 2b\n"
            "3:\n\t"
            "vmov q4[2], q4[0], %[a0], %[a2]\n\t"
            "ldrd %[x0], %[x1], %[start]\n\t"
            "vmov q5[2], q5[0], %[b0], %[b2]\n\t"
            "ldr %[end], %[part]\n\t"
            EMITC_PAIR_STORE("")
            EMITC_PAIR_AGAIN
            : EMITC_PAIR_OPERANDS
            : [start] "m"(start), [last] "r"(last), [x0_end] "m"(x0_end), [part] "m"(part)
            : EMITC_PAIR_CLOBBERS);
    }
#elif EMITC_MVE
    const int32_t part = n & 15;
    for (; quads > 0; quads--) {
        int32_t a[4] = {0, 0, 0, 0};
        int32_t b[4] = {0, 0, 0, 0};
        if (part != 0) {
            const mve_pred16_t some = vctp8q((uint32_t)part);
            const int8x16_t first = vldrbq_z_s8(x0, some);
            const int8x16_t second = vldrbq_z_s8(x1, some);
            for (int32_t channel = 0; channel < 4; channel++) {
                const int8x16_t weights = vldrbq_z_s8(w, some);
                a[channel] = vmladavq_s8(first, weights);
                b[channel] = vmladavq_s8(second, weights);
                w += part;
            }
        }
        for (int32_t i = part; i < n; i += 16) {
            const int8x16_t first = vldrbq_s8(x0 + i);
            const int8x16_t second = vldrbq_s8(x1 + i);
            const int8x16_t w0 = vldrbq_s8(w);
            const int8x16_t w1 = vldrbq_s8(w + 16);
            const int8x16_t w2 = vldrbq_s8(w + 32);
            const int8x16_t w3 = vldrbq_s8(w + 48);
            a[0] = vmladavaq_s8(a[0], first, w0);
            b[0] = vmladavaq_s8(b[0], second, w0);
            a[1] = vmladavaq_s8(a[1], first, w1);
            b[1] = vmladavaq_s8(b[1], second, w1);
            a[2] = vmladavaq_s8(a[2], first, w2);
            b[2] = vmladavaq_s8(b[2], second, w2);
            a[3] = vmladavaq_s8(a[3], first, w3);
            b[3] = vmladavaq_s8(b[3], second, w3);
            w += 64;
        }
        memcpy(acc, a, sizeof a);
        memcpy(acc + 4, b, sizeof b);
        acc += 8;
    }
#else
    for (int32_t quad = 0; quad < quads; quad++) {
        memset(acc, 0, 8 * sizeof *acc);
        int32_t block = n & 15;
        for (int32_t i = 0; i < n; i += block, block = 16) {
            if (block == 0) {
                continue;
            }
            for (int32_t channel = 0; channel < 4; channel++) {
                acc[channel] += emitc_dot(x0 + i, w, block);
                acc[4 + channel] += emitc_dot(x1 + i, w, block);
                w += block;
            }
        }
        acc += 8;
    }
#endif
}

/* The same for a single pixel: four sums for each quad. */
EMITC_NOINLINE void emitc_dots_of_one(int32_t *acc, const int8_t *x, const int8_t *w, int32_t n, int32_t quads)
{
#if EMITC_MVE
    const int32_t part = n & 15;
    const int32_t blocks = n >> 4;
    for (; quads > 0; quads--) {
        int32_t a0, a1, a2, a3;
        const int8_t *values = x;
        int32_t turns = blocks;
        if (part != 0) {
            const mve_pred16_t some = vctp8q((uint32_t)part);
            const int8x16_t first = vldrbq_z_s8(values, some);
            a0 = vmladavq_s8(first, vldrbq_z_s8(w, some));
            a1 = vmladavq_s8(first, vldrbq_z_s8(w + part, some));
            a2 = vmladavq_s8(first, vldrbq_z_s8(w + 2 * part, some));
            a3 = vmladavq_s8(first, vldrbq_z_s8(w + 3 * part, some));
            values += part;
            w += 4 * part;
        } else {
            a0 = 0;
            a1 = 0;
            a2 = 0;
            a3 = 0;
        }
        __asm__ volatile(
            "wls lr, %[turns], 2f\n"
            "1:\n\t"
            "vldrb.8 q0, [%[x]], #16\n\t"
            "vldrb.8 q1, [%[w]], #16\n\t"
            "vmladava.s8 %[a0], q0, q1\n\t"
            "vldrb.8 q1, [%[w]], #16\n\t"
            "vmladava.s8 %[a1], q0, q1\n\t"
            "vldrb.8 q1, [%[w]], #16\n\t"
            "vmladava.s8 %[a2], q0, q1\n\t"
            "vldrb.8 q1, [%[w]], #16\n\t"
            "vmladava.s8 %[a3], q0, q1\n\t"
            "le lr, 1b\n"
            "2:"
            : [a0] "+Te"(a0), [a1] "+Te"(a1), [a2] "+Te"(a2), [a3] "+Te"(a3), [x] "+r"(values), [w] "+r"(w)
            : [turns] "r"(turns)
            : "q0", "q1", "lr", "cc", "memory");
        acc[0] = a0;
        acc[1] = a1;
        acc[2] = a2;
        acc[3] = a3;
        acc += 4;
    }
#else
    for (int32_t quad = 0; quad < quads; quad++) {
        memset(acc, 0, 4 * sizeof *acc);
        int32_t block = n & 15;
        for (int32_t i = 0; i < n; i += block, block = 16) {
            if (block == 0) {
                continue;
            }
            for (int32_t channel = 0; channel < 4; channel++) {
                acc[channel] += emitc_dot(x + i, w, block);
                w += block;
            }
        }
        acc += 4;
    }
#endif
}

/* Copies n bytes, which may not overlap; returns the end of the destination. */
EMITC_ALWAYS_INLINE int8_t *emitc_copied(int8_t *to, const int8_t *from, int32_t n)
{
    emitc_moved_down((uint8_t *)to, (const uint8_t *)from, n);
    return to + n;
}

/* Copies `count` runs of n bytes, of stride `step`, to contiguous places. */
EMITC_ALWAYS_INLINE void emitc_gather(int8_t *to, const int8_t *from, int32_t n, int32_t step, int32_t count)
{
#if EMITC_MVE
    if (n <= 16) {
        __asm__ volatile(
            "vctp.8 %[n]\n\t"
            "dls lr, %[count]\n"
            "1:\n\t"
            "vpstt\n\t"
            "vldrbt.8 q0, [%[from]]\n\t"
            "vstrbt.8 q0, [%[to]]\n\t"
            "add %[from], %[step]\n\t"
            "add %[to], %[n]\n\t"
            "le lr, 1b"
            : [from] "+r"(from), [to] "+r"(to)
            : [n] "r"(n), [step] "r"(step), [count] "r"(count)
            : "q0", "lr", "cc", "memory");
        return;
    }
#endif
    for (; count > 0; count--) {
        to = emitc_copied(to, from, n);
        from += step;
    }
}

/* Sets n bytes; returns their end. */
EMITC_ALWAYS_INLINE int8_t *emitc_filled(int8_t *to, int32_t value, int32_t n)
{
#if EMITC_MVE
    int8_t *destination = to;
    const int8x16_t all = vdupq_n_s8((int8_t)value);
    __asm__ volatile(
        "wlstp.8 lr, %[n], 2f\n"
        "1:\n\t"
        "vstrb.8 %q[all], [%[to]], #16\n\t"
        "letp lr, 1b\n"
        "2:"
        : [to] "+r"(destination)
        : [n] "r"(n), [all] "w"(all)
        : "lr", "cc", "memory");
#else
    memset(to, value, (size_t)n);
#endif
    return to + n;
}

/* Sums over taps of the products with each channel's own weights. taps: where the values of `channels` channels lie,
 * moved on by that many. w: of every 16 channels tap by tap; of what is left of the channels tap by tap, with
 * `part_step` from one tap to the next. Weights are such that the products of taps 0 and 1, 2 and 3, ... add up within
 * 16 bits. sums: of every 16 channels those of channels 0 4 8 12, 2 6 10 14, 1 5 9 13, 3 7 11 15; of what is left of
 * the channels in their order, with room for 16, or as if there were 16, where part_step is 16. */
EMITC_NOINLINE void emitc_tap_sums(
    int32_t *sums, const int8_t **taps, int32_t count, const int8_t *w, int32_t channels, int32_t part_step)
{
    for (; channels > 0; channels -= 16) {
        const int32_t lanes = channels < 16 ? channels : 16;
        const int32_t step = channels < 16 ? part_step : 16;
#if EMITC_MVE
        const mve_pred16_t some = vctp8q((uint32_t)lanes);
        int32x4x4_t acc = {{vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}};
        for (int32_t tap = 0; tap < count; tap += 2) {
            const int8x16_t x0 = vldrbq_z_s8(taps[tap], some);
            const int8x16_t w0 = vldrbq_z_s8(w, some);
            int16x8_t even = vmullbq_int_s8(x0, w0);
            int16x8_t odd = vmulltq_int_s8(x0, w0);
            taps[tap] += lanes;
            w += step;
            if (tap + 1 < count) {
                const int8x16_t x1 = vldrbq_z_s8(taps[tap + 1], some);
                const int8x16_t w1 = vldrbq_z_s8(w, some);
                even = vaddq_s16(even, vmullbq_int_s8(x1, w1));
                odd = vaddq_s16(odd, vmulltq_int_s8(x1, w1));
                taps[tap + 1] += lanes;
                w += step;
            }
            acc.val[0] = vaddq_s32(acc.val[0], vmovlbq_s16(even));
            acc.val[1] = vaddq_s32(acc.val[1], vmovlbq_s16(odd));
            acc.val[2] = vaddq_s32(acc.val[2], vmovltq_s16(even));
            acc.val[3] = vaddq_s32(acc.val[3], vmovltq_s16(odd));
        }
        if (step == 16) {
            vstrwq_s32(sums, acc.val[0]);
            vstrwq_s32(sums + 4, acc.val[2]);
            vstrwq_s32(sums + 8, acc.val[1]);
            vstrwq_s32(sums + 12, acc.val[3]);
        } else {
            vst4q_s32(sums, acc);
        }
#else
        static const int8_t place[16] = {0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15};
        memset(sums, 0, 16 * sizeof *sums);
        for (int32_t tap = 0; tap < count; tap++) {
            for (int32_t lane = 0; lane < lanes; lane++) {
                sums[step == 16 ? place[lane] : lane] += taps[tap][lane] * w[lane];
            }
            taps[tap] += lanes;
            w += step;
        }
#endif
        sums += 16;
    }
}

#endif
