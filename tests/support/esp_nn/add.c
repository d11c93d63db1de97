#include "stand_in.h"

void esp_nn_add_elementwise_s8(const int8_t *a, const int8_t *b, int32_t a_offset, int32_t b_offset, int32_t a_mult, int32_t b_mult,
                               int32_t a_shift, int32_t b_shift, int32_t left, int8_t *out, int32_t out_offset, int32_t out_mult,
                               int32_t out_shift, int32_t low, int32_t high, int32_t size)
{
    for (int32_t i = 0; i < size; i++) {
        const int32_t sum = requantized((a[i] + a_offset) * (1 << left), a_mult, a_shift) +
                            requantized((b[i] + b_offset) * (1 << left), b_mult, b_shift);
        out[i] = limited(requantized(sum, out_mult, out_shift) + out_offset, low, high);
    }
}
