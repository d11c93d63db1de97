/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: the error function by polynomials, with the bits that ONNX Runtime gives.
 *
 * Part of a package whose kernels use it; see emitc_tanh.h.
 */
#ifndef EMITC_ERF_H
#define EMITC_ERF_H

#include "emitc_tanh.h"

/* Coefficients, the highest power first: of x^2 up to EMITC_ERF_SPLIT and of x from there on, both for what is added to
 * x as a share of it; of exp(x) near 0. Then 1 / ln 2, and -ln 2 in two parts. */
#define EMITC_ERF_SPLIT 0.921875f
#define EMITC_ERF_LAST 3.925f
enum { EMITC_ERF_FAR = 6, EMITC_ERF_EXP = 13, EMITC_ERF_LN2 = 20 };
static const float emitc_erf_terms[23] = {
    -5.99104969e-4f, 4.99339588e-3f, -2.67667342e-2f, 1.12818025e-1f, -3.76124859e-1f, 1.28379151e-1f,
    1.72948930e-5f, -3.83208680e-4f, 3.88393435e-3f, -2.42545605e-2f, 1.06777847e-1f, 6.34846687e-1f, 1.28717512e-1f,
    1.38319808e-3f, 8.37550033e-3f, 4.16689515e-2f, 1.66664466e-1f, 4.99999851e-1f, 1.0f, 1.0f,
    1.44269504088896341f, -6.93145752e-1f, -1.42860677e-6f};
/* 1.5 * 2^23: the last bit of a sum with it is worth 1. */
#define EMITC_ERF_WHOLE 12582912.0f

/* x + share * x, rounded once. */
static inline float emitc_erf_grown(float share, float x)
{
#if !EMITC_FUSED
    if (x < 1e-30f) {
        return (float)((double)share * (double)x + (double)x); /* exact in double */
    }
#endif
    return emitc_fused(share, x, x);
}

/* erf(x) */
static inline float emitc_erf(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits & 0x80000000u;
    bits ^= sign;
    float v;
    float y;
    memcpy(&v, &bits, sizeof v);
    if (v > EMITC_ERF_SPLIT) {
        const float *const a = emitc_erf_terms + EMITC_ERF_FAR;
        const float *const e = emitc_erf_terms + EMITC_ERF_EXP;
        const float *const ln2 = emitc_erf_terms + EMITC_ERF_LN2;
        v = v > EMITC_ERF_LAST ? EMITC_ERF_LAST : v;
        const float share = emitc_fused(emitc_six_terms(a, v), v, a[6]);
        const float power = -emitc_fused(share, v, v);
        const float sum = emitc_fused(power, ln2[0], EMITC_ERF_WHOLE);
        const float whole = sum - EMITC_ERF_WHOLE;
        const float rest = emitc_fused(whole, ln2[2], emitc_fused(whole, ln2[1], power));
        y = emitc_fused(emitc_six_terms(e, rest), rest, e[6]);
        uint32_t exponent;
        memcpy(&exponent, &sum, sizeof exponent);
        memcpy(&bits, &y, sizeof bits);
        bits += exponent << 23; /* y * 2^whole */
        memcpy(&y, &bits, sizeof y);
        y = 1.0f - y;
    } else {
        y = emitc_erf_grown(emitc_six_terms(emitc_erf_terms, v * v), v);
    }
    memcpy(&bits, &y, sizeof bits);
    bits |= sign;
    memcpy(&y, &bits, sizeof y);
    return y;
}

#endif
