/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
#include "emitc_runtime.h"

const char *emitc_status_string(emitc_status status)
{
    switch (status) {
    case EMITC_OK:
        return "ok";
    case EMITC_NOT_READY:
        return "not ready: call init first";
    case EMITC_INVALID_ARGUMENT:
        return "invalid argument: a pointer is null";
    case EMITC_ARENA_TOO_SMALL:
        return "the arena is too small";
    case EMITC_STATE_TOO_SMALL:
        return "the state memory is too small";
    case EMITC_MISALIGNED:
        return "arena or state is misaligned";
    case EMITC_BACKEND_FAILED:
        return "a backend failed";
    case EMITC_VERSION_MISMATCH:
        return "the runtime is of another version than the generated code";
    case EMITC_SELF_TEST_FAILED:
        return "the self test failed";
    case EMITC_MORE:
        return "the inference has further steps";
    }
    return "unknown status";
}

uint32_t emitc_runtime_version(void)
{
    return EMITC_RUNTIME_VERSION;
}

#if !EMITC_FLOAT_HARDWARE
/* x / 2^right rounded to nearest, ties to even; right in 0..63, the sum of x and half of 2^right fits. */
static uint64_t round_even(uint64_t x, uint32_t right)
{
    if (right == 0) {
        return x;
    }
    return (x + (((uint64_t)1 << (right - 1)) - 1) + ((x >> right) & 1)) >> right;
}

/* x < 2^55 rounded to the 24 significant bits of a float32. */
static uint64_t round_to_float(uint64_t x)
{
    uint32_t right = 0;
    for (uint32_t step = 16; step > 0; step >>= 1) {
        if (x >> (right + step) >= 0x800000u) {
            right += step;
        }
    }
    return round_even(x, right) << right;
}

int32_t emitc_rint_f32_exact(int32_t acc, uint32_t scale_bits)
{
    const uint32_t exponent = scale_bits >> 23;
    const uint32_t mantissa = (scale_bits & 0x7fffffu) | 0x800000u;
    const uint32_t magnitude = acc < 0 ? 0u - (uint32_t)acc : (uint32_t)acc;
    const uint64_t product = round_to_float(round_to_float(magnitude) * mantissa);
    /* The value is product / 2^(150 - exponent), and product is 0 or in 2^23..2^55. */
    uint64_t rounded;
    if (exponent >= 150) {
        rounded = product;
    } else if (exponent <= 150 - 57) {
        rounded = 0;
    } else {
        rounded = round_even(product, 150 - exponent);
    }
    const int32_t limited = rounded > EMITC_FLOAT_LIMIT ? EMITC_FLOAT_LIMIT : (int32_t)rounded;
    return acc < 0 ? -limited : limited;
}
#endif
