#include "stand_in.h"

void esp_nn_avg_pool_s8(const int8_t *in, uint16_t width, uint16_t height, int8_t *out, uint16_t out_width, uint16_t out_height,
                        uint16_t step_x, uint16_t step_y, uint16_t kernel_w, uint16_t kernel_h, uint16_t pad_w, uint16_t pad_h,
                        int32_t low, int32_t high, uint16_t channels)
{
    for (int32_t i = 0; i < out_height * out_width * channels; i++) {
        const int32_t c = i % channels, column = i / channels % out_width, row = i / channels / out_width;
        int32_t sum = 0, count = 0;
        for (int32_t k = 0; k < kernel_h * kernel_w; k++) {
            const int32_t h = row * step_y - pad_h + k / kernel_w, v = column * step_x - pad_w + k % kernel_w;
            if (h >= 0 && h < height && v >= 0 && v < width) {
                const int32_t value = in[(h * width + v) * channels + c];
                sum += value;
                count++;
            }
        }
        out[i] = limited(sum > 0 ? (sum + count / 2) / count : (sum - count / 2) / count, low, high);
    }
}
