#include "stand_in.h"

static void *scratch;

int32_t esp_nn_get_softmax_scratch_size(int32_t width, int32_t height)
{
    (void)height;
    return 4 * width + MORE_SCRATCH;
}

void esp_nn_set_softmax_scratch_buf(void *buffer)
{
    scratch = buffer;
}

/* exp(a) for a <= 0 in Q5.26, as Q0.31. */
static int32_t exponential(int32_t a)
{
    static const int32_t factors[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
    const int32_t modulo = (a & ((1 << 24) - 1)) - (1 << 24);
    const int32_t x = modulo * 32 + (1 << 28), x2 = high_mul(x, x);
    const int32_t x3 = high_mul(x2, x), x4 = shifted_right(high_mul(x2, x2), 2);
    const int32_t tail = shifted_right(high_mul(x4 + x3, 715827883) + x2, 1);
    int32_t result = 1895147668 + high_mul(x + tail, 1895147668);
    for (int32_t i = 0; i < 7; i++) {
        result = (modulo - a) & (1 << (24 + i)) ? high_mul(result, factors[i]) : result;
    }
    return a == 0 ? INT32_MAX : result;
}

/* 1 / (1 + x) for x in [0, 1), both Q0.31. */
static int32_t reciprocal(int32_t x)
{
    const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) / 2);
    int32_t estimate = 1515870810 + high_mul(half, -1010580540);
    for (int32_t i = 0; i < 3; i++) {
        estimate += high_mul(estimate, (1 << 29) - high_mul(half, estimate)) * 4;
    }
    return estimate > INT32_MAX / 2 ? INT32_MAX : estimate * 2;
}

void esp_nn_softmax_s8(const int8_t *in, int32_t rows, int32_t width, int32_t mult, int32_t shift, int32_t least, int8_t *out)
{
    for (; rows > 0; rows--, in += width, out += width) {
        int32_t most = -128, sum = 0, headroom = 0;
        dirty(scratch, 4 * width);
        for (int32_t i = 0; i < width; i++) {
            most = in[i] > most ? in[i] : most;
        }
        for (int32_t i = 0; i < width; i++) {
            const int32_t difference = in[i] - most;
            sum += difference < least ? 0 : shifted_right(exponential(high_mul(difference * (1 << shift), mult)), 12);
        }
        while (((uint32_t)sum << headroom) < 0x80000000u) {
            headroom++;
        }
        const int32_t scale = reciprocal((int32_t)(((uint32_t)sum << headroom) - 0x80000000u));
        for (int32_t i = 0; i < width; i++) {
            const int32_t difference = in[i] - most;
            const int32_t e = difference < least ? 0 : exponential(high_mul(difference * (1 << shift), mult));
            out[i] = difference < least ? -128 : limited(shifted_right(high_mul(scale, e), 35 - headroom) - 128, -128, 127);
        }
    }
}
