/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: weighted sums of two rows of bytes.
 *
 * Part of a package whose kernels use it; see emitc_mve.h. The loop is in assembly, since compilers place its loads
 * badly.
 */
#ifndef EMITC_MVE_SUMS_H
#define EMITC_MVE_SUMS_H

#include "emitc_mve.h"

/* Of each of n bytes, a multiple of 4: (bias + a * a_weight + b * b_weight) / 2^right rounded down, limited to
 * low..high. y may lie over one of the operands, where an element is read before it is written. right in 0..31. */
EMITC_ALWAYS_INLINE void emitc_weighted_sums(
    const int8_t *a, const int8_t *b, int8_t *y, int32_t n, int32_t bias, int32_t a_weight, int32_t b_weight,
    int32_t right, int32_t low, int32_t high)
{
    const emitc_int32x4 least = emitc_int32x4_all(low);
    const emitc_int32x4 most = emitc_int32x4_all(high);
#if EMITC_MVE
    /* Vector instructions of two units overlap: those of two times four elements take turns. */
    __asm__ volatile(
        "wls lr, %[eights], 2f\n"
        "1:\n\t"
        "vldrb.s32 q0, [%[a]], #4\n\t"
        "vldrb.s32 q1, [%[b]], #4\n\t"
        "vmlas.s32 q0, %q[weight], %[bias]\n\t"
        "vldrb.s32 q2, [%[a]], #4\n\t"
        "vmla.s32 q0, q1, %[b_weight]\n\t"
        "vldrb.s32 q3, [%[b]], #4\n\t"
        "vshl.s32 q0, %[left]\n\t"
        "vmlas.s32 q2, %q[weight], %[bias]\n\t"
        "vmax.s32 q0, q0, %q[least]\n\t"
        "vmla.s32 q2, q3, %[b_weight]\n\t"
        "vmin.s32 q0, q0, %q[most]\n\t"
        "vstrb.32 q0, [%[y]], #4\n\t"
        "vshl.s32 q2, %[left]\n\t"
        "vmax.s32 q2, q2, %q[least]\n\t"
        "vmin.s32 q2, q2, %q[most]\n\t"
        "vstrb.32 q2, [%[y]], #4\n\t"
        "le lr, 1b\n"
        "2:"
        : [a] "+l"(a), [b] "+l"(b), [y] "+l"(y)
        : [eights] "r"(n >> 3), [weight] "w"(vdupq_n_s32(a_weight)), [least] "w"(least), [most] "w"(most),
          [bias] "r"(bias), [b_weight] "r"(b_weight), [left] "r"(-right)
        : "lr", "q0", "q1", "q2", "q3", "cc", "memory");
    n &= 7;
#endif
    for (; n >= 4; n -= 4) {
        const emitc_int32x4 half = emitc_int32x4_mac(emitc_int32x4_all(bias), emitc_int32x4_of_bytes(a), a_weight);
        const emitc_int32x4 product = emitc_int32x4_mac(half, emitc_int32x4_of_bytes(b), b_weight);
        const emitc_int32x4 sum = emitc_int32x4_down(product, right);
        emitc_store_bytes(y, emitc_int32x4_limited(sum, least, most));
        a += 4;
        b += 4;
        y += 4;
    }
}

#endif
