/* The interface of ESP-NN 1.2.3, as far as emitc calls it, for tests without the library. */
#ifndef STAND_IN_ESP_NN_H
#define STAND_IN_ESP_NN_H
#include <stdint.h>

typedef struct { int32_t width, height, channels, extra; } data_dims_t;
typedef struct { int32_t width, height; } data_2d_t;
typedef struct { int32_t min, max; } act_params_t;
typedef struct { int32_t *shift, *mult; } quant_data_t;
typedef struct {
    int32_t in_offset, out_offset;
    data_2d_t stride, padding, dilation;
    act_params_t activation;
} conv_params_t;
typedef struct {
    int32_t in_offset, out_offset, ch_mult;
    data_2d_t stride, padding, dilation;
    act_params_t activation;
} dw_conv_params_t;

void esp_nn_conv_s8(const data_dims_t *, const int8_t *, const data_dims_t *, const int8_t *, const int32_t *, const data_dims_t *,
                    int8_t *, const conv_params_t *, const quant_data_t *);
int esp_nn_get_conv_scratch_size(const data_dims_t *, const data_dims_t *, const data_dims_t *, const conv_params_t *);
void esp_nn_set_conv_scratch_buf(const void *);
void esp_nn_depthwise_conv_s8(const data_dims_t *, const int8_t *, const data_dims_t *, const int8_t *, const int32_t *,
                              const data_dims_t *, int8_t *, const dw_conv_params_t *, const quant_data_t *);
int esp_nn_get_depthwise_conv_scratch_size(const data_dims_t *, const data_dims_t *, const data_dims_t *,
                                           const dw_conv_params_t *);
void esp_nn_set_depthwise_conv_scratch_buf(const void *);
void esp_nn_fully_connected_s8(const int8_t *, int32_t, uint16_t, const int8_t *, int32_t, const int32_t *, int8_t *, uint16_t,
                               int32_t, int32_t, int32_t, int32_t, int32_t);
void esp_nn_fully_connected_per_ch_s8(const int8_t *, int32_t, uint16_t, const int8_t *, int32_t, const int32_t *, int8_t *,
                                      uint16_t, int32_t, const int32_t *, const int32_t *, int32_t, int32_t);
void esp_nn_avg_pool_s8(const int8_t *, uint16_t, uint16_t, int8_t *, uint16_t, uint16_t, uint16_t, uint16_t, uint16_t, uint16_t,
                        uint16_t, uint16_t, int32_t, int32_t, uint16_t);
void esp_nn_max_pool_s8(const int8_t *, uint16_t, uint16_t, int8_t *, uint16_t, uint16_t, uint16_t, uint16_t, uint16_t, uint16_t,
                        uint16_t, uint16_t, int32_t, int32_t, uint16_t);
void esp_nn_add_elementwise_s8(const int8_t *, const int8_t *, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t,
                               int8_t *, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t);
void esp_nn_mul_elementwise_s8(const int8_t *, const int8_t *, int32_t, int32_t, int8_t *, int32_t, int32_t, int32_t, int32_t,
                               int32_t, int32_t);
void esp_nn_softmax_s8(const int8_t *, int32_t, int32_t, int32_t, int32_t, int32_t, int8_t *);
int32_t esp_nn_get_softmax_scratch_size(int32_t, int32_t);
void esp_nn_set_softmax_scratch_buf(void *);
#endif
