/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for cores with the vector extension MVE: copies of strided bytes.
 *
 * Part of a package whose kernels use it; see emitc_mve.h.
 */
#ifndef EMITC_MVE_COPY_H
#define EMITC_MVE_COPY_H

#include "emitc_mve.h"

/* Rows of n bytes, from one `from_step` bytes after the other to one `to_step` bytes after the other. */
EMITC_ALWAYS_INLINE void emitc_rows_strided(uint8_t *to, int32_t to_step, const uint8_t *from, int32_t from_step,
    int32_t n, int32_t rows)
{
#if EMITC_MVE
    if (rows == 1) {
        emitc_moved_down(to, from, n);
        return;
    }
    /* Sixteen bytes of all rows, then the next sixteen: that takes five instructions each, and no loop within another
     * one's. */
    for (; n >= 16; n -= 16) {
        for (int32_t row = 0; row < rows; row++) {
            vstrbq_u8(to + row * to_step, vldrbq_u8(from + row * from_step));
        }
        to += 16;
        from += 16;
    }
    if (n > 0) {
        const mve_pred16_t some = vctp8q((uint32_t)n);
        for (int32_t row = 0; row < rows; row++) {
            vstrbq_p_u8(to + row * to_step, vldrbq_z_u8(from + row * from_step, some), some);
        }
    }
#else
    for (int32_t row = 0; row < rows; row++) {
        memcpy(to + row * to_step, from + row * from_step, (size_t)n);
    }
#endif
}

/* n bytes, from one `from_step` bytes after the other to one `to_step` bytes after the other; steps in 1..17. */
EMITC_ALWAYS_INLINE void emitc_bytes_strided(uint8_t *to, int32_t to_step, const uint8_t *from, int32_t from_step,
    int32_t n)
{
#if EMITC_MVE
    const uint8x16_t lanes = vidupq_n_u8(0u, 1);
    const uint8x16_t from_places = vmulq_n_u8(lanes, (uint8_t)from_step);
    const uint8x16_t to_places = vmulq_n_u8(lanes, (uint8_t)to_step);
    for (int32_t i = 0; i < n; i += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)(n - i));
        const uint8x16_t bytes = vldrbq_gather_offset_z_u8(from + i * from_step, from_places, some);
        vstrbq_scatter_offset_p_u8(to + i * to_step, to_places, bytes, some);
    }
#else
    for (int32_t i = 0; i < n; i++) {
        to[i * to_step] = from[i * from_step];
    }
#endif
}

/* n values of uint8, each 128 lower. */
EMITC_ALWAYS_INLINE void emitc_lowered_mve(int8_t *to, const uint8_t *from, int32_t n)
{
#if EMITC_MVE
    for (int32_t i = 0; i < n; i += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)(n - i));
        const uint8x16_t turned = veorq_u8(vldrbq_z_u8(from + i, some), vdupq_n_u8(0x80u));
        vstrbq_p_s8(to + i, vreinterpretq_s8_u8(turned), some);
    }
#else
    for (int32_t i = 0; i < n; i++) {
        to[i] = (int8_t)(from[i] - 128);
    }
#endif
}

#endif
