/* emitc: how many bits numbers have, by the instruction that counts leading zeros where the core has one.
 *
 * Part of a package whose kernels use it.
 */
#ifndef EMITC_BITS_H
#define EMITC_BITS_H

#include "emitc_runtime.h"

/* The bits of x without the zeros in front of them; 0 has none. */
EMITC_INLINE int32_t emitc_bits(uint32_t x)
{
#if defined(__GNUC__)
    return x != 0 ? 32 - __builtin_clz(x) : 0;
#else
    int32_t bits = 0;
    for (; x != 0; x >>= 1) {
        bits++;
    }
    return bits;
#endif
}

#endif
