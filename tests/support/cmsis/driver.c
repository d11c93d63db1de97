/* Runs recorded calls of CMSIS-NN functions and prints what they return: "number status hex" a line.

   The records lie in `cases`, each a header of 64 words and its arrays, all aligned to 16 bytes. available.h says which functions
   the library has and how they are called. Working memory and output have exactly the recorded size: between guard words
   on a board, allocated on their own on the host, like all inputs, so that the address sanitizer sees every access. */
#include "available.h"

#include "arm_nnfunctions.h"

#include <stdint.h>
#include <string.h>

#if defined(ON_HOST)
#include <stdio.h>
#include <stdlib.h>
#else
#include "emitc_board.h"
#endif

extern const int32_t cases[];
extern const int32_t cases_end[];

enum {
    BYTES, OP, INPUT, FILTER = INPUT + 4, OUTPUT = FILTER + 4, STRIDE_W = OUTPUT + 4, STRIDE_H, PAD_W, PAD_H, DILATION_W,
    DILATION_H, INPUT_OFFSET, FILTER_OFFSET, OUTPUT_OFFSET, LOW, HIGH, CHANNEL_MULTIPLIER, MULTIPLIER, SHIFT, SCRATCH_BYTES,
    OUTPUT_BYTES, P0, P1, P2, P3, P4, P5, P6, P7, P8, P9, X, W, B, MULTIPLIERS, SHIFTS, A, SUMS, SCRATCH_2_BYTES, STATE_BYTES,
    X_BYTES, W_BYTES, B_BYTES, A_BYTES, ARRAY_CHANNELS, IN_PLACE
};
enum {
    CONV_S8 = 1, DEPTHWISE_S8, FULLY_CONNECTED_S8, AVERAGE_S8, MAX_S8, ADD_S8, MUL_S8, SOFTMAX_S8, TRANSPOSE_CONV_S8, CONV_S16,
    DEPTHWISE_S16, FULLY_CONNECTED_S16, AVERAGE_S16, MAX_S16, ADD_S16, MUL_S16, SVDF_S8, FULLY_CONNECTED_CHANNELS_S8, CONV_GENERAL_S8,
    DEPTHWISE_GENERAL_S8, CONV_S4, DEPTHWISE_S4, FULLY_CONNECTED_S4,
    CONV_GENERAL_S4, SIZE = 100
};
enum { UNKNOWN = -100, BROKEN_GUARD = -101, POOL_BYTES = 262144, GUARD = 0x5C };

static const int32_t *header;
static uint8_t *output, *scratch, *scratch_2, *state;
static int32_t extra_bytes; /* of the output line behind the output: the state */

#if defined(ON_HOST)
static void *held[16];
static int held_count;

static void *block(int32_t bytes, int fill)
{
    void *found = malloc(bytes > 0 ? (size_t)bytes : 1u);
    memset(found, fill, (size_t)bytes);
    held[held_count++] = found;
    return found;
}

static const void *array(int place, int bytes_place)
{
    if (header[place] == 0) {
        return NULL;
    }
    const int32_t bytes = header[bytes_place];
    void *copy = block(bytes, 0);
    memcpy(copy, (const uint8_t *)header + header[place], (size_t)bytes);
    return copy;
}

static int guards_hold(void)
{
    for (; held_count > 0; held_count--) {
        free(held[held_count - 1]);
    }
    return 1;
}

static void print_result(int number, int status, const uint8_t *bytes, int32_t count)
{
    printf("%d %d ", number, status);
    for (int32_t i = 0; i < count; i++) {
        printf("%02x", bytes[i]);
    }
    printf("\n");
}
#else
static uint8_t pool[POOL_BYTES] __attribute__((aligned(16)));
static uint32_t pool_used;

static void *block(int32_t bytes, int fill)
{
    uint8_t *found = pool + pool_used + 16;
    pool_used += 16u + (((uint32_t)bytes + 15u) & ~15u);
    memset(found, fill, (size_t)bytes);
    return found;
}

static const void *array(int place, int bytes_place)
{
    (void)bytes_place;
    return header[place] == 0 ? NULL : (const uint8_t *)header + header[place];
}

static int block_holds(const uint8_t *bytes, int32_t count)
{
    for (int i = 1; i <= 16; i++) {
        if (bytes[-i] != GUARD || bytes[count + i - 1] != GUARD) {
            return 0;
        }
    }
    return 1;
}

static int guards_hold(void)
{
    return block_holds(output, header[OUTPUT_BYTES]) && block_holds(scratch, header[SCRATCH_BYTES]) &&
           block_holds(scratch_2, header[SCRATCH_2_BYTES]) && block_holds(state, header[STATE_BYTES]);
}

static void print_result(int number, int status, const uint8_t *bytes, int32_t count)
{
    emitc_print_u32((uint32_t)number);
    emitc_print(status < 0 ? " -" : " ");
    emitc_print_u32((uint32_t)(status < 0 ? -status : status));
    emitc_print(" ");
    emitc_print_hex(bytes, (uint32_t)count);
    emitc_print("\n");
}
#endif

static cmsis_nn_dims dims(int first)
{
    const cmsis_nn_dims found = {.n = header[first], .h = header[first + 1], .w = header[first + 2], .c = header[first + 3]};
    return found;
}

static int call(void)
{
    const int32_t *h = header;
    const cmsis_nn_dims in = dims(INPUT), filter = dims(FILTER), out = dims(OUTPUT), bias = {1, 1, 1, out.c};
    const cmsis_nn_tile stride = {.w = h[STRIDE_W], .h = h[STRIDE_H]}, padding = {.w = h[PAD_W], .h = h[PAD_H]};
    const cmsis_nn_tile dilation = {.w = h[DILATION_W], .h = h[DILATION_H]};
    const cmsis_nn_activation clamp = {.min = h[LOW], .max = h[HIGH]};
    const cmsis_nn_context ctx = {.buf = h[SCRATCH_BYTES] > 0 ? scratch : NULL, .size = h[SCRATCH_BYTES]};
    const cmsis_nn_conv_params conv = {h[INPUT_OFFSET], h[OUTPUT_OFFSET], stride, padding, dilation, clamp};
    const cmsis_nn_dw_conv_params dw = {
        h[INPUT_OFFSET], h[OUTPUT_OFFSET], h[CHANNEL_MULTIPLIER], stride, padding, dilation, clamp};
    const cmsis_nn_fc_params fc = {h[INPUT_OFFSET], h[FILTER_OFFSET], h[OUTPUT_OFFSET], clamp};
    const cmsis_nn_pool_params pool_params = {.stride = stride, .padding = padding, .activation = clamp};
    const cmsis_nn_per_tensor_quant_params tensor = {.multiplier = h[MULTIPLIER], .shift = h[SHIFT]};
    const void *x = array(X, X_BYTES), *w = array(W, W_BYTES), *b = array(B, B_BYTES), *a = array(A, A_BYTES);
    if (h[IN_PLACE] != 0) { /* over the first input, or over the second */
        const void **const over = h[IN_PLACE] == 1 ? &x : &a;
        memcpy(output, *over, (size_t)h[OUTPUT_BYTES]);
        *over = output;
    }
    const cmsis_nn_per_channel_quant_params channels = {
        .multiplier = (int32_t *)array(MULTIPLIERS, ARRAY_CHANNELS), .shift = (int32_t *)array(SHIFTS, ARRAY_CHANNELS)};
    const cmsis_nn_context sums = {.buf = (void *)array(SUMS, ARRAY_CHANNELS), .size = 0};
    (void)in, (void)filter, (void)out, (void)bias, (void)ctx, (void)conv, (void)dw, (void)fc, (void)pool_params, (void)tensor;
    (void)x, (void)w, (void)b, (void)a, (void)channels, (void)sums;
#if defined(WITH_BIAS_DATA)
    const cmsis_nn_bias_data bias_16 = {.data = b, .is_int32_bias = false};
    (void)bias_16;
#define BIAS_16 &bias_16
#else
#define BIAS_16 b
#endif
    switch (h[OP]) {
#if HAVE_arm_convolve_wrapper_s8
    case CONV_S8:
        return arm_convolve_wrapper_s8(&ctx, &conv, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_depthwise_conv_wrapper_s8
    case DEPTHWISE_S8:
        return arm_depthwise_conv_wrapper_s8(&ctx, &dw, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_convolve_wrapper_s4
    case CONV_S4:
        return arm_convolve_wrapper_s4(&ctx, &conv, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_convolve_s4
    case CONV_GENERAL_S4:
        return arm_convolve_s4(&ctx, &conv, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_depthwise_conv_wrapper_s4
    case DEPTHWISE_S4:
        return arm_depthwise_conv_wrapper_s4(&ctx, &dw, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_fully_connected_s4
    case FULLY_CONNECTED_S4:
        return arm_fully_connected_s4(&ctx, &fc, &tensor, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_convolve_s8
    case CONV_GENERAL_S8:
#if defined(WITH_UPSCALE)
        return arm_convolve_s8(&ctx, &conv, &channels, &in, x, &filter, w, &bias, b, NULL, &out, (int8_t *)output);
#else
        return arm_convolve_s8(&ctx, &conv, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#endif
#if HAVE_arm_depthwise_conv_s8
    case DEPTHWISE_GENERAL_S8:
        return arm_depthwise_conv_s8(&ctx, &dw, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_fully_connected_s8
    case FULLY_CONNECTED_S8:
        return arm_fully_connected_s8(&sums, &fc, &tensor, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_fully_connected_per_channel_s8
    case FULLY_CONNECTED_CHANNELS_S8:
        return arm_fully_connected_per_channel_s8(
            &sums, &fc, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
#if HAVE_arm_avgpool_s8
    case AVERAGE_S8:
        return arm_avgpool_s8(&ctx, &pool_params, &in, x, &filter, &out, (int8_t *)output);
#endif
#if HAVE_arm_max_pool_s8
    case MAX_S8:
        return arm_max_pool_s8(&ctx, &pool_params, &in, x, &filter, &out, (int8_t *)output);
#endif
#if HAVE_arm_elementwise_add_s8
    case ADD_S8:
        return arm_elementwise_add_s8(
            x, a, h[P0], h[P1], h[P2], h[P3], h[P4], h[P5], h[P6], (int8_t *)output, h[OUTPUT_OFFSET], h[MULTIPLIER], h[SHIFT],
            h[LOW], h[HIGH], h[OUTPUT_BYTES]);
#endif
#if HAVE_arm_elementwise_mul_s8
    case MUL_S8:
        return arm_elementwise_mul_s8(
            x, a, h[P0], h[P3], (int8_t *)output, h[OUTPUT_OFFSET], h[MULTIPLIER], h[SHIFT], h[LOW], h[HIGH], h[OUTPUT_BYTES]);
#endif
#if HAVE_arm_softmax_s8
    case SOFTMAX_S8:
        arm_softmax_s8(x, h[P0], h[P1], h[MULTIPLIER], h[SHIFT], h[P2], (int8_t *)output);
        return 0;
#endif
#if HAVE_arm_convolve_wrapper_s16
    case CONV_S16:
        return arm_convolve_wrapper_s16(&ctx, &conv, &channels, &in, x, &filter, w, &bias, BIAS_16, &out, (int16_t *)output);
#endif
#if HAVE_arm_depthwise_conv_wrapper_s16
    case DEPTHWISE_S16:
        return arm_depthwise_conv_wrapper_s16(&ctx, &dw, &channels, &in, x, &filter, w, &bias, b, &out, (int16_t *)output);
#endif
#if HAVE_arm_fully_connected_s16
    case FULLY_CONNECTED_S16:
        return arm_fully_connected_s16(&ctx, &fc, &tensor, &in, x, &filter, w, &bias, b, &out, (int16_t *)output);
#endif
#if HAVE_arm_avgpool_s16
    case AVERAGE_S16:
        return arm_avgpool_s16(&ctx, &pool_params, &in, x, &filter, &out, (int16_t *)output);
#endif
#if HAVE_arm_max_pool_s16
    case MAX_S16:
        return arm_max_pool_s16(&ctx, &pool_params, &in, x, &filter, &out, (int16_t *)output);
#endif
#if HAVE_arm_elementwise_add_s16
    case ADD_S16:
        return arm_elementwise_add_s16(
            x, a, h[P0], h[P1], h[P2], h[P3], h[P4], h[P5], h[P6], (int16_t *)output, h[OUTPUT_OFFSET], h[MULTIPLIER],
            h[SHIFT], h[LOW], h[HIGH], h[OUTPUT_BYTES] / 2);
#endif
#if HAVE_arm_elementwise_mul_s16
    case MUL_S16:
        return arm_elementwise_mul_s16(
            x, a, h[P0], h[P3], (int16_t *)output, h[OUTPUT_OFFSET], h[MULTIPLIER], h[SHIFT], h[LOW], h[HIGH],
            h[OUTPUT_BYTES] / 2);
#endif
#if HAVE_arm_transpose_conv_s8
    case TRANSPOSE_CONV_S8: {
        const cmsis_nn_transpose_conv_params transposed = {
            .input_offset = h[INPUT_OFFSET], .output_offset = h[OUTPUT_OFFSET], .stride = stride, .padding = padding,
            .padding_offsets = {.w = h[P0], .h = h[P1]}, .dilation = dilation, .activation = clamp};
        const cmsis_nn_context second = {.buf = h[SCRATCH_2_BYTES] > 0 ? scratch_2 : NULL, .size = h[SCRATCH_2_BYTES]};
#if HAVE_arm_transpose_conv_wrapper_s8
        return arm_transpose_conv_wrapper_s8(
            &ctx, &second, &transposed, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#else
        return arm_transpose_conv_s8(
            &ctx, &second, &transposed, &channels, &in, x, &filter, w, &bias, b, &out, (int8_t *)output);
#endif
    }
#endif
#if HAVE_arm_svdf_state_s16_s8
    case SVDF_S8: {
        const cmsis_nn_context first = {.buf = scratch, .size = h[SCRATCH_BYTES]};
        const cmsis_nn_context second = {.buf = scratch_2, .size = h[SCRATCH_2_BYTES]};
        const cmsis_nn_svdf_params svdf = {
            .rank = h[P0], .input_offset = h[INPUT_OFFSET], .output_offset = h[OUTPUT_OFFSET],
            .input_activation = {.min = -32768, .max = 32767}, .output_activation = clamp};
        const cmsis_nn_per_tensor_quant_params in_quant = {.multiplier = h[P1], .shift = h[P2]};
        /* feature weights [n filters, h inputs], time weights [n filters, h steps] */
        const cmsis_nn_dims in_dims = {h[P3], h[P4], 1, 1}, feature = {h[P5], h[P4], 1, 1}, time = {h[P5], h[P6], 1, 1};
        const cmsis_nn_dims state_dims = {h[P3], h[P5], h[P6], 1}, svdf_out = {h[P3], h[P5] / h[P0], 1, 1};
        memcpy(state, a, (size_t)h[STATE_BYTES]);
        extra_bytes = h[STATE_BYTES];
        return arm_svdf_state_s16_s8(
            &first, &second, &svdf, &in_quant, &tensor, &in_dims, x, &state_dims, (int16_t *)state, &feature, w, &time,
            (const int16_t *)(const void *)((const int8_t *)w + h[P7]), &bias, b, &svdf_out, (int8_t *)output);
    }
#endif
    default:
        break;
    }
    if (h[OP] >= SIZE) {
        int32_t size = -1;
        switch (h[OP] - SIZE) {
#include "sizes.h"
        default:
            return UNKNOWN;
        }
        memcpy(output, &size, sizeof size);
        return 0;
    }
    return UNKNOWN;
}

int main(void)
{
    int number = 0;
    for (header = cases; header < cases_end; header += header[BYTES] / 4) {
#if !defined(ON_HOST)
        memset(pool, GUARD, sizeof pool);
        pool_used = 0;
#endif
        extra_bytes = 0;
        output = block(header[OUTPUT_BYTES], 0x33);
        scratch = block(header[SCRATCH_BYTES], 0xA5);
        scratch_2 = block(header[SCRATCH_2_BYTES], 0xA5);
        state = block(header[STATE_BYTES], 0);
        const int status = call();
        print_result(number, status, output, header[OUTPUT_BYTES]);
        if (extra_bytes > 0) {
            print_result(number, status, state, extra_bytes);
        }
        if (!guards_hold()) {
            print_result(number, BROKEN_GUARD, output, 0);
        }
        number++;
    }
#if !defined(ON_HOST)
    emitc_exit(0);
#endif
    return 0;
}
