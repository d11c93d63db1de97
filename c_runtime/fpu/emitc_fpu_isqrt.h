/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with a float unit: square roots of numbers of 64 bits.
 *
 * Part of a package whose kernels use it; see emitc_isqrt.h, whose results these are.
 */
#ifndef EMITC_FPU_ISQRT_H
#define EMITC_FPU_ISQRT_H

#include "emitc_fpu.h"
#include "emitc_isqrt.h"

#if EMITC_FPU_ARM
/* Of numbers that are rare, in a function of its own: in the loop it would take the registers of the others. */
static __attribute__((noinline, unused)) uint32_t emitc_root_large(uint64_t value)
{
    return emitc_root_nearest(value);
}
#endif

/* The integer nearest to the root: 65535 at most where the value has 32 bits or fewer, 2^32 - 1 at most of others. */
EMITC_ALWAYS_INLINE uint32_t emitc_root_nearest_fpu(uint64_t value)
{
#if EMITC_FPU_ARM
    const uint32_t high = (uint32_t)(value >> 32);
    const uint32_t low = (uint32_t)value;
    if (high >= 1u << 16 || value == 0) {
        return emitc_root_large(value);
    }
    /* A float of the value is off by 1.5 units of 2^-24 of it at most. Its root is off by 1.75 such units of the root,
     * which is 2^24 at most. So the nearest integer is at most 1 from the one wanted, and what is left over its square
     * has less than 32 bits. */
    float real;
    __asm__("vsqrt.f32 %0, %1" : "=t"(real) : "t"(emitc_scaled_plus((float)high, 4294967296.0f, (float)low)));
    int32_t root = emitc_nearest_even(real);
    const int32_t rest = (int32_t)(low - (uint32_t)root * (uint32_t)root);
    /* No root of an integer ends in a half. */
    if (rest > root) {
        root++;
    } else if (rest <= -root) {
        root--;
    }
    return high == 0 && root > UINT16_MAX ? UINT16_MAX : (uint32_t)root;
#else
    return emitc_root_nearest(value);
#endif
}

#endif
