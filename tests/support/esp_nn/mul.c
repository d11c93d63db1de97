#include "stand_in.h"

void esp_nn_mul_elementwise_s8(const int8_t *a, const int8_t *b, int32_t a_offset, int32_t b_offset, int8_t *out,
                               int32_t out_offset, int32_t out_mult, int32_t out_shift, int32_t low, int32_t high, int32_t size)
{
    for (int32_t i = 0; i < size; i++) {
        out[i] = limited(requantized((a[i] + a_offset) * (b[i] + b_offset), out_mult, out_shift) + out_offset, low, high);
    }
}
