/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: the exponential of numbers that are not above 0 by a polynomial, with the bits that ONNX Runtime's Softmax
 * sums up.
 *
 * Part of a package whose kernels use it; see emitc_tanh.h.
 */
#ifndef EMITC_EXP_H
#define EMITC_EXP_H

#include "emitc_tanh.h"

/* Below this the exponential, which is under 2^-124 there, is 0. */
#define EMITC_EXP_LOWEST -86.5f
/* Coefficients of exp(x) near 0, the highest power first; 1 / ln 2; 1.5 * 2^23, of a sum with which the last bit is
 * worth 1; -ln 2 in two parts. */
enum { EMITC_EXP_LOG2 = 7, EMITC_EXP_WHOLE = 8, EMITC_EXP_HIGH = 9, EMITC_EXP_LOW = 10 };
static const float emitc_exp_terms[11] = {
    1.37805939e-3f, 8.37312452e-3f, 4.16695364e-2f, 1.66664720e-1f, 4.99999851e-1f, 1.0f, 1.0f,
    1.44269504088896341f, 12582912.0f, -6.93145752e-1f, -1.42860677e-6f};

/* exp(x); of what is above 0 it may be anything. */
static inline float emitc_exp(float x)
{
    const float *const e = emitc_exp_terms;
    if (x < EMITC_EXP_LOWEST) {
        return 0.0f;
    }
#if !EMITC_FUSED
    if (x > -1e-30f) {
        return 1.0f; /* emitc_fused has no numbers under 2^-126 */
    }
#endif
    const float sum = emitc_fused(x, e[EMITC_EXP_LOG2], e[EMITC_EXP_WHOLE]);
    const float whole = sum - e[EMITC_EXP_WHOLE];
    const float rest = emitc_fused(whole, e[EMITC_EXP_LOW], emitc_fused(whole, e[EMITC_EXP_HIGH], x));
    const float y = emitc_fused(emitc_six_terms(e, rest), rest, e[6]);
    uint32_t bits;
    float power;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits << 23) + 0x3f800000u; /* of 2^whole */
    memcpy(&power, &bits, sizeof power);
    return y * power;
}

#endif
