/* SPDX-License-Identifier: Apache-2.0 OR 0BSD */
/* Person detector: a grey image of 96 x 96 pixels in; person or not, out. Here it looks at two stored images; a camera's
 * frame would be written to the input in their place.
 *
 * The model is the library that `emitc compile` makes before a build, generated/BOARD/person. What the application owes it: an arena, the pixels,
 * and a look at every status. */
#include <stddef.h>
#include <stdint.h>

#include "emitc_board.h" /* print and timer */
#include "person.h"

#include "images.h" /* after <stdint.h>: arrays of int8_t */

/* In the order of the model's output. */
enum { NO_PERSON, PERSON, OUTPUTS };

_Static_assert(OUTPUTS == PERSON_OUTPUT_0_ELEMENTS, "one name for each output");
_Static_assert(sizeof person_image == PERSON_INPUT_0_BYTES, "an image is one input");
_Static_assert(sizeof empty_image == PERSON_INPUT_0_BYTES, "an image is one input");

/* The only memory that the model writes to. */
static _Alignas(PERSON_ARENA_ALIGN) uint8_t arena[PERSON_ARENA_BYTES];

int look_for_persons(void);

/* 0 when the call succeeded; otherwise says what happened and what to do. No default: the compiler names a new status. */
static int failed(const char *call, emitc_status status)
{
    const char *advice = "";
    switch (status) {
    case EMITC_OK:
        return 0;
    case EMITC_NOT_READY:
        advice = "call person_init() first, and check what it returns";
        break;
    case EMITC_INVALID_ARGUMENT:
        advice = "a pointer is null";
        break;
    case EMITC_ARENA_TOO_SMALL:
        advice = "give it PERSON_ARENA_BYTES bytes";
        break;
    case EMITC_STATE_TOO_SMALL:
        advice = "give it PERSON_STATE_BYTES bytes of state";
        break;
    case EMITC_MISALIGNED:
        advice = "align the arena to PERSON_ARENA_ALIGN";
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

/* The probability in tenths of a percent, rounded: real = (quantized - zero point) * scale. */
static uint32_t per_mille(int8_t score)
{
    const float probability = (float)(score - PERSON_OUTPUT_0_ZERO_POINT) * PERSON_OUTPUT_0_SCALE;
    return (uint32_t)(probability * 1000.0f + 0.5f);
}

/* One image through the model, and what it says. 0, or 1 after a message. */
static int look(person_t *model, const char *name, const int8_t *pixels)
{
    /* The input lies in the arena and the run overwrites it: write all of it before each run. */
    int8_t *const input = person_input_0(model);
    for (size_t i = 0; i < PERSON_INPUT_0_ELEMENTS; i++) {
        input[i] = pixels[i];
    }

    emitc_timer_start();
    const emitc_status status = person_run(model);
    const uint64_t ticks = emitc_timer_read();
    if (failed("person_run", status)) {
        return 1;
    }

    const int8_t *const scores = person_output_0(model);
    const int seen = scores[PERSON] > scores[NO_PERSON];
    const uint32_t score = per_mille(scores[seen ? PERSON : NO_PERSON]);
    emitc_print(name);
    emitc_print(seen ? ": person " : ": no person ");
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

int look_for_persons(void)
{
    person_t model;
    if (failed("person_init", person_init(&model, arena, sizeof arena, NULL, 0))) {
        return 1;
    }
    return look(&model, "first image", person_image) || look(&model, "second image", empty_image);
}

#if !defined(ARDUINO) /* where Arduino's own main calls setup(), in arduino.cpp */
int main(void)
{
    return look_for_persons();
}
#endif
