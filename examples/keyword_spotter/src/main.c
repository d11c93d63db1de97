/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Keyword spotter: one second of sound, as features, in; the word out.
 *
 * The model is the library that `emitc compile` makes before a build, generated/BOARD/kws. What the application owes it: an arena, the features,
 * and a look at every status. */
#include <stddef.h>
#include <stdint.h>

#include "emitc_board.h" /* print and timer */
#include "kws.h"

#include "clip.h" /* after <stdint.h>: an array of int8_t */

/* In the order of the model's output. */
static const char *const labels[] = {"down",  "go",   "left", "no",  "off",     "on",
                                     "right", "stop", "up",   "yes", "silence", "unknown"};

_Static_assert(sizeof labels / sizeof labels[0] == KWS_OUTPUT_0_ELEMENTS, "one label for each output");
_Static_assert(sizeof clip == KWS_INPUT_0_BYTES, "the clip is one input");

/* The only memory that the model writes to. */
static _Alignas(KWS_ARENA_ALIGN) uint8_t arena[KWS_ARENA_BYTES];

int spot_keyword(void);

/* 0 when the call succeeded; otherwise says what happened and what to do. No default: the compiler names a new status. */
static int failed(const char *call, emitc_status status)
{
    const char *advice = "";
    switch (status) {
    case EMITC_OK:
        return 0;
    case EMITC_NOT_READY:
        advice = "call kws_init() first, and check what it returns";
        break;
    case EMITC_INVALID_ARGUMENT:
        advice = "a pointer is null";
        break;
    case EMITC_ARENA_TOO_SMALL:
        advice = "give it KWS_ARENA_BYTES bytes";
        break;
    case EMITC_STATE_TOO_SMALL:
        advice = "give it KWS_STATE_BYTES bytes of state";
        break;
    case EMITC_MISALIGNED:
        advice = "align the arena to KWS_ARENA_ALIGN";
        break;
    case EMITC_BACKEND_FAILED:
        advice = "a kernel library or an accelerator failed: reset it and init again";
        break;
    case EMITC_VERSION_MISMATCH:
        advice = "compile the model again, or delete the old emitc_runtime.c";
        break;
    case EMITC_SELF_TEST_FAILED:
        advice = "the flash is damaged, or the compiler made wrong code: replace the image";
        break;
    case EMITC_MORE:
        advice = "call the next step";
        break;
    }
    emitc_print(call);
    emitc_print(": ");
    emitc_print(emitc_status_string(status));
    emitc_print(": ");
    emitc_print(advice);
    emitc_print("\n");
    return 1;
}

static size_t largest(const int8_t *scores, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (scores[i] > scores[best]) {
            best = i;
        }
    }
    return best;
}

/* The probability in tenths of a percent, rounded: real = (quantized - zero point) * scale. */
static uint32_t per_mille(int8_t score)
{
    const float probability = (float)(score - KWS_OUTPUT_0_ZERO_POINT) * KWS_OUTPUT_0_SCALE;
    return (uint32_t)(probability * 1000.0f + 0.5f);
}

int spot_keyword(void)
{
    kws_t model;
    if (failed("kws_init", kws_init(&model, arena, sizeof arena, NULL, 0))) {
        return 1;
    }

    /* The input lies in the arena and the run overwrites it: write all of it before each run. */
    int8_t *const input = kws_input_0(&model);
    for (size_t i = 0; i < KWS_INPUT_0_ELEMENTS; i++) {
        input[i] = clip[i];
    }

    emitc_timer_start();
    const emitc_status status = kws_run(&model);
    const uint64_t ticks = emitc_timer_read();
    if (failed("kws_run", status)) {
        return 1;
    }

    const int8_t *const scores = kws_output_0(&model);
    const size_t word = largest(scores, KWS_OUTPUT_0_ELEMENTS);
    const uint32_t score = per_mille(scores[word]);
    emitc_print("keyword: ");
    emitc_print(labels[word]);
    emitc_print(" ");
    emitc_print_u32(score / 10u);
    emitc_print(".");
    emitc_print_u32(score % 10u);
    emitc_print(" %\ntime: ");
    emitc_print_u64(emitc_timer_in_units(ticks));
    emitc_print(" ");
    emitc_print(emitc_timer_name());
    emitc_print("\n");
    return 0;
}

#if !defined(ARDUINO) /* where Arduino's own main calls setup(), in arduino.cpp */
int main(void)
{
    return spot_keyword();
}
#endif
