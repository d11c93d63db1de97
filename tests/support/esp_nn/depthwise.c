#include "stand_in.h"

int esp_nn_get_depthwise_conv_scratch_size(const data_dims_t *x, const data_dims_t *w, const data_dims_t *y,
                                           const dw_conv_params_t *p)
{
    (void)x, (void)w, (void)y, (void)p;
    return MORE_SCRATCH;
}

void esp_nn_set_depthwise_conv_scratch_buf(const void *buffer)
{
    (void)buffer;
}

void esp_nn_depthwise_conv_s8(const data_dims_t *x, const int8_t *in, const data_dims_t *w, const int8_t *weights,
                              const int32_t *bias, const data_dims_t *y, int8_t *out, const dw_conv_params_t *p,
                              const quant_data_t *q)
{
    for (int32_t i = 0; i < y->height * y->width * y->channels; i++) {
        const int32_t c = i % y->channels, column = i / y->channels % y->width, row = i / y->channels / y->width;
        int32_t sum = bias[c];
        for (int32_t k = 0; k < w->height * w->width; k++) {
            const int32_t h = row * p->stride.height - p->padding.height + k / w->width;
            const int32_t v = column * p->stride.width - p->padding.width + k % w->width;
            if (h >= 0 && h < x->height && v >= 0 && v < x->width) {
                sum += (in[(h * x->width + v) * x->channels + c / p->ch_mult] + p->in_offset) * weights[k * y->channels + c];
            }
        }
        out[i] = limited(requantized(sum, q->mult[c], q->shift[c]) + p->out_offset, p->activation.min, p->activation.max);
    }
}
