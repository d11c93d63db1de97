#include "stand_in.h"

void esp_nn_fully_connected_per_ch_s8(const int8_t *in, int32_t in_offset, uint16_t depth, const int8_t *weights,
                                      int32_t weight_offset, const int32_t *bias, int8_t *out, uint16_t outputs, int32_t out_offset,
                                      const int32_t *shift, const int32_t *mult, int32_t low, int32_t high)
{
    for (int32_t c = 0; c < outputs; c++) {
        int32_t sum = bias[c];
        for (int32_t d = 0; d < depth; d++) {
            sum += (in[d] + in_offset) * (weights[c * depth + d] + weight_offset);
        }
        out[c] = limited(requantized(sum, mult[c], shift[c]) + out_offset, low, high);
    }
}

void esp_nn_fully_connected_s8(const int8_t *in, int32_t in_offset, uint16_t depth, const int8_t *weights, int32_t weight_offset,
                               const int32_t *bias, int8_t *out, uint16_t outputs, int32_t out_offset, int32_t shift, int32_t mult,
                               int32_t low, int32_t high)
{
    for (int32_t c = 0; c < outputs; c++) {
        esp_nn_fully_connected_per_ch_s8(in, in_offset, depth, weights + c * depth, weight_offset, bias + c, out + c, 1, out_offset,
                                         &shift, &mult, low, high);
    }
}
