/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc for RISC-V cores with vectors of integers (Zve32x or V, with registers of 128 bits or more): sixteen output
 * channels or more at a time.
 *
 * Part of a package whose kernels use it. Other cores compile the same functions from plain C, with the same results,
 * so that a package can be proved and stepped through on a host. They have 16 lanes.
 *
 * emitc_rvv_lanes says how many of n channels are taken at a time, and every other function takes that number. No
 * kernel depends on it: a core with longer registers takes more.
 */
#ifndef EMITC_RVV_H
#define EMITC_RVV_H

#include "emitc_runtime.h"

#if defined(__riscv_v_elen) && __riscv_v_min_vlen >= 128 && defined(__riscv_v_intrinsic) && EMITC_ASM
#define EMITC_RVV 1
#include <riscv_vector.h>
#else
#define EMITC_RVV 0
#endif

#if EMITC_RVV
typedef vint32m4_t emitc_rvv_sums;
typedef vint16m2_t emitc_rvv_bytes;
#else
#define EMITC_RVV_LANES 16
typedef struct emitc_rvv_sums {
    int32_t lane[EMITC_RVV_LANES];
} emitc_rvv_sums;
typedef struct emitc_rvv_bytes {
    int8_t lane[EMITC_RVV_LANES];
} emitc_rvv_bytes;
#endif

/* How many of n > 0 channels are taken at a time. */
EMITC_ALWAYS_INLINE int32_t emitc_rvv_lanes(int32_t n)
{
#if EMITC_RVV
    return (int32_t)__riscv_vsetvl_e32m4((size_t)n);
#else
    return n < EMITC_RVV_LANES ? n : EMITC_RVV_LANES;
#endif
}

/* Words from memory; lanes from n on are not used. */
EMITC_ALWAYS_INLINE emitc_rvv_sums emitc_rvv_words(const int32_t *from, int32_t n)
{
#if EMITC_RVV
    return __riscv_vle32_v_i32m4(from, (size_t)n);
#else
    emitc_rvv_sums r = {{0}};
    memcpy(r.lane, from, (size_t)n * sizeof r.lane[0]);
    return r;
#endif
}

/* Bytes from memory, for products. */
EMITC_ALWAYS_INLINE emitc_rvv_bytes emitc_rvv_bytes_at(const int8_t *from, int32_t n)
{
#if EMITC_RVV
    return __riscv_vsext_vf2_i16m2(__riscv_vle8_v_i8m1(from, (size_t)n), (size_t)n);
#else
    emitc_rvv_bytes r = {{0}};
    memcpy(r.lane, from, (size_t)n);
    return r;
#endif
}

/* sums + value * weights. */
EMITC_ALWAYS_INLINE emitc_rvv_sums emitc_rvv_mac(emitc_rvv_sums sums, int32_t value, emitc_rvv_bytes weights, int32_t n)
{
#if EMITC_RVV
    return __riscv_vwmacc_vx_i32m4(sums, (int16_t)value, weights, (size_t)n);
#else
    for (int32_t i = 0; i < n; i++) {
        sums.lane[i] += value * weights.lane[i];
    }
    return sums;
#endif
}

/* sums + values * weights, lane by lane. */
EMITC_ALWAYS_INLINE emitc_rvv_sums emitc_rvv_mac_each(
    emitc_rvv_sums sums, emitc_rvv_bytes values, emitc_rvv_bytes weights, int32_t n)
{
#if EMITC_RVV
    return __riscv_vwmacc_vv_i32m4(sums, values, weights, (size_t)n);
#else
    for (int32_t i = 0; i < n; i++) {
        sums.lane[i] += values.lane[i] * weights.lane[i];
    }
    return sums;
#endif
}

/* Sums requantized as emitc_requantize does: by the multipliers q31, and by bits to the right, 1..31, where halves are
 * rounded up. The product is the nearest one, halves up, which vsmul gives in that mode too. */
EMITC_ALWAYS_INLINE emitc_rvv_sums emitc_rvv_scaled_up(
    emitc_rvv_sums sums, const int32_t *q31, const int8_t *right, int32_t n)
{
#if EMITC_RVV
    const size_t vl = (size_t)n;
    const vuint32m4_t places = __riscv_vzext_vf4_u32m4(__riscv_vle8_v_u8m1((const uint8_t *)right, vl), vl);
    sums = __riscv_vsmul_vv_i32m4(sums, __riscv_vle32_v_i32m4(q31, vl), __RISCV_VXRM_RNU, vl);
    return __riscv_vssra_vv_i32m4(sums, places, __RISCV_VXRM_RNU, vl);
#else
    for (int32_t i = 0; i < n; i++) {
        const int32_t x = emitc_high_mul(sums.lane[i], q31[i]);
        sums.lane[i] = ((x >> (right[i] - 1)) + 1) >> 1;
    }
    return sums;
#endif
}

/* The same where halves are rounded away from zero. */
EMITC_ALWAYS_INLINE emitc_rvv_sums emitc_rvv_scaled_away(
    emitc_rvv_sums sums, const int32_t *q31, const int8_t *right, int32_t n)
{
#if EMITC_RVV
    const size_t vl = (size_t)n;
    const vuint32m4_t places = __riscv_vzext_vf4_u32m4(__riscv_vle8_v_u8m1((const uint8_t *)right, vl), vl);
    sums = __riscv_vsmul_vv_i32m4(sums, __riscv_vle32_v_i32m4(q31, vl), __RISCV_VXRM_RNU, vl);
    sums = __riscv_vadd_vv_i32m4(sums, __riscv_vsra_vx_i32m4(sums, 31, vl), vl);
    return __riscv_vssra_vv_i32m4(sums, places, __RISCV_VXRM_RNU, vl);
#else
    for (int32_t i = 0; i < n; i++) {
        sums.lane[i] = emitc_requantize(sums.lane[i], q31[i], -right[i]);
    }
    return sums;
#endif
}

/* The same by shifts of either direction, positive to the left; a sum that is shifted to the left wraps. */
EMITC_ALWAYS_INLINE emitc_rvv_sums emitc_rvv_scaled_any(
    emitc_rvv_sums sums, const int32_t *q31, const int8_t *shift, int32_t n)
{
#if EMITC_RVV
    const size_t vl = (size_t)n;
    const vint32m4_t places = __riscv_vsext_vf4_i32m4(__riscv_vle8_v_i8m1(shift, vl), vl);
    const vuint32m4_t left = __riscv_vreinterpret_v_i32m4_u32m4(__riscv_vmax_vx_i32m4(places, 0, vl));
    const vint32m4_t down = __riscv_vmin_vx_i32m4(places, 0, vl);
    const vuint32m4_t right = __riscv_vreinterpret_v_i32m4_u32m4(__riscv_vneg_v_i32m4(down, vl));
    sums = __riscv_vsmul_vv_i32m4(
        __riscv_vsll_vv_i32m4(sums, left, vl), __riscv_vle32_v_i32m4(q31, vl), __RISCV_VXRM_RNU, vl);
    /* -1 for a negative number that is shifted to the right. */
    const vint32m4_t sign = __riscv_vsra_vx_i32m4(__riscv_vand_vv_i32m4(sums, down, vl), 31, vl);
    return __riscv_vssra_vv_i32m4(__riscv_vadd_vv_i32m4(sums, sign, vl), right, __RISCV_VXRM_RNU, vl);
#else
    for (int32_t i = 0; i < n; i++) {
        sums.lane[i] = emitc_requantize(sums.lane[i], q31[i], shift[i]);
    }
    return sums;
#endif
}

/* Stores sums as bytes: moved by offset, which may wrap, and limited to low..high within int8. */
EMITC_ALWAYS_INLINE void emitc_rvv_store(
    int8_t *to, emitc_rvv_sums sums, int32_t offset, int32_t low, int32_t high, int32_t n)
{
#if EMITC_RVV
    const size_t vl = (size_t)n;
    const vint16m2_t halves =
        __riscv_vnclip_wx_i16m2(__riscv_vadd_vx_i32m4(sums, offset, vl), 0, __RISCV_VXRM_RDN, vl);
    vint8m1_t bytes = __riscv_vnclip_wx_i8m1(halves, 0, __RISCV_VXRM_RDN, vl);
    bytes = __riscv_vmin_vx_i8m1(__riscv_vmax_vx_i8m1(bytes, (int8_t)low, vl), (int8_t)high, vl);
    __riscv_vse8_v_i8m1(to, bytes, vl);
#else
    for (int32_t i = 0; i < n; i++) {
        to[i] = (int8_t)emitc_clamp((int32_t)((uint32_t)sums.lane[i] + (uint32_t)offset), low, high);
    }
#endif
}

#endif
