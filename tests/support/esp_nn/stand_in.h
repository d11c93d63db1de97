/* What the stand-ins share: TensorFlow Lite's arithmetic, and a scratch whose every byte is written. */
#include "esp_nn.h"

static inline int32_t high_mul(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + (1 << 30)) >> 31);
}

static inline int32_t shifted_right(int32_t x, int32_t bits)
{
    const int64_t half = bits == 0 ? 0 : (int64_t)1 << (bits - 1);
    return (int32_t)((x < 0 ? -((half - (int64_t)x) >> bits) : ((int64_t)x + half) >> bits));
}

static inline int32_t requantized(int32_t x, int32_t mult, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    return shifted_right(high_mul((int32_t)((uint32_t)x << left), mult), left - shift);
}

static inline int8_t limited(int32_t x, int32_t low, int32_t high)
{
    return (int8_t)(x < low ? low : x > high ? high : x);
}

static inline void dirty(void *scratch, int32_t bytes)
{
    for (int32_t i = 0; i < bytes; i++) {
        ((volatile uint8_t *)scratch)[i] = 0xA5;
    }
}

#ifndef MORE_SCRATCH
#define MORE_SCRATCH 0 /* bytes beyond those that emitc plans */
#endif
