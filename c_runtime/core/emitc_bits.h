/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: how many bits numbers have, by the instruction that counts leading zeros where the core has one.
 *
 * Part of a package whose kernels use it.
 */
#ifndef EMITC_BITS_H
#define EMITC_BITS_H

#include "emitc_runtime.h"

/* The bits of x without the zeros in front of them; 0 has none. */
EMITC_ALWAYS_INLINE int32_t emitc_bits(uint32_t x)
{
#if defined(__GNUC__) && (!defined(__riscv) || defined(__riscv_zbb))
    return x != 0 ? 32 - __builtin_clz(x) : 0;
#else
    /* Where compilers would call a function that looks them up in a table of 256 bytes. */
    const int32_t a = (int32_t)(x > 0xffffu) << 4;
    x >>= a;
    const int32_t b = (int32_t)(x > 0xffu) << 3;
    x >>= b;
    const int32_t c = (int32_t)(x > 0xfu) << 2;
    x >>= c;
    /* Of a digit of four bits. */
    return a + b + c + (int32_t)(x > 0) + (int32_t)(x > 1) + (int32_t)(x > 3) + (int32_t)(x > 7);
#endif
}

#endif
