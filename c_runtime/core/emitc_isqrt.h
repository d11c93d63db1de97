/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: square roots of numbers of 64 bits.
 *
 * Part of a package whose kernels use it.
 */
#ifndef EMITC_ISQRT_H
#define EMITC_ISQRT_H

#include "emitc_bits.h"

/* The largest number whose square is not above the value, which is 2^62 or more. */
EMITC_ALWAYS_INLINE uint32_t emitc_root_below(uint64_t value)
{
    /* Of the upper half: a straight line, at most 1/16 off, and two steps of Newton's, each of which doubles the bits
     * that are right. From there on the root is at most 1 too large; then the square is above the half, and the
     * difference wraps. */
    const uint32_t high = (uint32_t)(value >> 32);
    uint32_t upper = 24320 + (high >> 17) + (high >> 19);
    upper = (upper + high / upper) >> 1;
    upper = (upper + high / upper) >> 1;
    uint32_t rest = high - upper * upper;
    if (rest > 2 * upper) {
        upper--;
        rest += 2 * upper + 1;
    }
    /* The lower 16 bits are what is left over twice the upper ones, or 1 less: its square was left out. */
    const uint32_t lower = ((rest << 15) | ((uint32_t)value >> 17)) / upper;
    const uint32_t root = (upper << 16) + (lower < UINT16_MAX ? lower : UINT16_MAX);
    return (uint64_t)root * root > value ? root - 1 : root;
}

/* The integer nearest to the root: 65535 at most where the value has 32 bits or fewer, 2^32 - 1 at most of others. */
EMITC_ALWAYS_INLINE uint32_t emitc_root_nearest(uint64_t value)
{
    if (value == 0) {
        return 0;
    }
    const uint32_t high = (uint32_t)(value >> 32);
    const int32_t zeros = high != 0 ? 32 - emitc_bits(high) : 64 - emitc_bits((uint32_t)value);
    const int32_t places = zeros >> 1;
    const uint64_t scaled = value << (zeros & ~1);
    const uint32_t root = emitc_root_below(scaled);
    if (places == 0) {
        return scaled - (uint64_t)root * root > root && root < UINT32_MAX ? root + 1 : root;
    }
    /* No root of an integer ends in a half: the bit below says which integer is next. */
    const uint32_t nearest = (root >> places) + ((root >> (places - 1)) & 1);
    return high == 0 && nearest > UINT16_MAX ? UINT16_MAX : nearest;
}

#endif
