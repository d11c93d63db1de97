/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* emitc: hyperbolic tangent and logistic function as quotients of polynomials, with the bits that ONNX Runtime gives.
 *
 * Part of a package whose kernels use it. Each step of a polynomial is a product and a sum that are rounded once: one
 * instruction of cores with a float unit, integers elsewhere.
 */
#ifndef EMITC_TANH_H
#define EMITC_TANH_H

#include "emitc_bits.h"

#if EMITC_ASM && ((defined(__arm__) && defined(__ARM_FEATURE_FMA)) || defined(__riscv_flen))
#define EMITC_FUSED 1
#else
#define EMITC_FUSED 0
#endif

#if !EMITC_FUSED
/* A number of float32 other than infinity: its sign is that of the mantissa, of 24 bits; it is mantissa * 2^(exponent -
 * 150). */
typedef struct emitc_unpacked {
    int32_t mantissa;
    int32_t exponent;
} emitc_unpacked;

static inline emitc_unpacked emitc_unpack(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    emitc_unpacked r = {(int32_t)(bits & 0x007fffffu), (int32_t)((bits >> 23) & 255u)};
    if (r.exponent != 0) {
        r.mantissa |= 0x00800000;
    } else {
        r.exponent = 1;
    }
    r.mantissa = (bits >> 31) != 0 ? -r.mantissa : r.mantissa;
    return r;
}

/* x / 2^places rounded down; the last bit is set where there is a remainder, so that a later rounding sees it. */
static inline int64_t emitc_shifted(int64_t x, int32_t places)
{
    if (places > 62) {
        return x < 0 ? -1 : x != 0;
    }
    const int64_t kept = x >> places;
    return kept | (((uint64_t)x & (((uint64_t)1 << places) - 1u)) != 0);
}

/* a * b + c, rounded once. c and the result have to be 0, or 2^-126 at least, and a product of a number below that less
 * than c. Large: called, and not repeated for every step of a polynomial. */
EMITC_NOINLINE float emitc_fused(float a, float b, float c)
{
    const emitc_unpacked of_a = emitc_unpack(a);
    const emitc_unpacked of_b = emitc_unpack(b);
    const emitc_unpacked of_c = emitc_unpack(c);
    if (of_a.exponent == 255 || of_b.exponent == 255 || of_c.exponent == 255) {
        return a * b + c; /* infinite, or not a number */
    }
    /* The product has 48 bits, and c as many as it needs: 14 are free below for what the other one has there. */
    int64_t product = (int64_t)of_a.mantissa * of_b.mantissa * (1 << 14);
    int64_t addend = of_c.mantissa * ((int64_t)1 << 38);
    int32_t exponent = of_a.exponent + of_b.exponent - 300 - 14;
    const int32_t above = exponent - (of_c.exponent - 150 - 38);
    if (product == 0 || above < 0) {
        product = emitc_shifted(product, product == 0 ? 0 : -above);
        exponent -= above;
    } else {
        addend = emitc_shifted(addend, above);
    }
    const int64_t sum = product + addend;
    if (sum == 0) {
        return a * b + c; /* with the sign of that zero */
    }
    /* Down to 32 bits, the last one set where there is a remainder, of which the conversion leaves 24: that of 64 is a
     * call by way of double on small cores. A power of two only moves the exponent. */
    const uint64_t size = sum < 0 ? 0u - (uint64_t)sum : (uint64_t)sum;
    const uint32_t high = (uint32_t)(size >> 32);
    uint32_t word = (uint32_t)size;
    const int32_t places = emitc_bits(high);
    if (places != 0) {
        const uint32_t rest = word << (32 - places);
        word = (high << (32 - places)) | (word >> places) | (rest != 0);
    }
    const float rounded = (float)word;
    uint32_t bits;
    float result;
    memcpy(&bits, &rounded, sizeof bits);
    bits += (uint32_t)(exponent + places) << 23;
    bits |= sum < 0 ? 0x80000000u : 0u;
    memcpy(&result, &bits, sizeof result);
    return result;
}
#else
/* a * b + c, rounded once. */
static inline float emitc_fused(float a, float b, float c)
{
#if defined(__riscv_flen)
    float result;
    __asm__("fmadd.s %0, %1, %2, %3" : "=f"(result) : "f"(a), "f"(b), "f"(c));
    return result;
#else
    __asm__("vfma.f32 %0, %1, %2" : "+t"(c) : "t"(a), "t"(b));
    return c;
#endif
}
#endif

/* a[0] * x^5 + ... + a[5] */
static inline float emitc_six_terms(const float *a, float x)
{
    float y = emitc_fused(a[0], x, a[1]);
    y = emitc_fused(y, x, a[2]);
    y = emitc_fused(y, x, a[3]);
    y = emitc_fused(y, x, a[4]);
    return emitc_fused(y, x, a[5]);
}

/* x within -limit..limit; a NaN stays one. */
static inline float emitc_within(float x, float limit)
{
    return x < -limit ? -limit : x > limit ? limit : x;
}

/* Coefficients: of the odd powers above, then of the even ones below from the place named, each the highest first.
 * The number that is added follows the logistic function's. */
enum { EMITC_TANH_BELOW = 7, EMITC_LOGISTIC_BELOW = 5 };
static const float emitc_tanh_terms[11] = {
    -2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f, 1.48572235717979e-05f,
    6.37261928875436e-04f, 4.89352455891786e-03f,
    1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f};
static const float emitc_logistic_terms[12] = {
    4.37031012579801e-11f, 1.15627324459942e-07f, 6.08574864600143e-05f, 8.51377133304701e-03f, 2.48287947061529e-01f,
    6.10247389755681e-13f, 5.76102136993427e-09f, 6.29106785017040e-06f, 1.70198817374094e-03f, 1.16817656904453e-01f,
    9.93151921023180e-01f,
    0.5f};

/* tanh(x) */
static inline float emitc_tanh(float x)
{
    const float *const a = emitc_tanh_terms;
    const float *const b = emitc_tanh_terms + EMITC_TANH_BELOW;
    const float v = emitc_within(x, 9.0f);
    const float s = v * v;
    const float above = emitc_fused(emitc_six_terms(a, s), s, a[6]);
    float below = emitc_fused(b[0], s, b[1]);
    below = emitc_fused(below, s, b[2]);
    below = emitc_fused(below, s, b[3]);
    return above * v / below;
}

/* 1 / (1 + exp(-x)) */
static inline float emitc_logistic(float x)
{
    const float *const a = emitc_logistic_terms;
    const float *const b = emitc_logistic_terms + EMITC_LOGISTIC_BELOW;
    const float v = emitc_within(x, 18.0f);
    const float s = v * v;
    float above = emitc_fused(a[0], s, a[1]);
    above = emitc_fused(above, s, a[2]);
    above = emitc_fused(above, s, a[3]);
    above = emitc_fused(above, s, a[4]);
    const float below = emitc_six_terms(b, s);
    const float y = above * v / below + a[11];
    return y < 0.0f ? 0.0f : y > 1.0f ? 1.0f : y;
}

#endif
